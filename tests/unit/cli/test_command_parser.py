"""The command line that people and their scripts have: commands, options, defaults and exit codes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from eurekube_provider.cli.command_parser import CommandParser, parser_of
from eurekube_provider.cli.commands import COMMANDS
from eurekube_provider.cli.main import main
from scripts.command_reference import commands_pages

ROOT = Path(__file__).parents[3]
RECORDED = Path(__file__).with_name("command_line.txt")
"""Each parameter of each command, with its value and its default. What stands there stays, and what is new is
added. Sentences are in docs/reference/cli.md."""


def least_of(parser: CommandParser) -> list[str]:
    """The least that a command must be given."""
    words: list[str] = []
    for one in parser.parameters:
        if one.required and one.nargs is None:
            words += [*one.option_strings[:1], *map(str, list(one.choices or ["rating"])[:1])]
    return words


def lines_of(name: str) -> list[str]:
    """Return the recorded lines of a command."""
    parser = parser_of(name)
    values = vars(parser.parse_args(least_of(parser)))
    return [f"{name} {_line(one, values)}".rstrip() for one in parser.parameters]


def _line(one: argparse.Action, values: dict[str, Any]) -> str:
    kind = " ".join(map(str, one.choices or ()))
    name = ", ".join(one.option_strings) or str(one.metavar or one.dest).upper()
    value = "" if one.nargs == 0 else kind or (str(one.metavar) if one.option_strings else "")
    return " | ".join((name, value, str(values[one.dest])))


@pytest.mark.parametrize("name", COMMANDS)
def test_what_was_there_stays(name: str) -> None:
    """Names, values and defaults of a command's options and arguments."""
    recorded = RECORDED.read_text(encoding="utf-8").splitlines()
    mine = [line for line in recorded if line.startswith(f"{name} ")]
    assert [line for line in mine if line not in lines_of(name)] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_wrong_usage_ends_with_2(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown or shortened option, one without its value, and a value that is no choice."""
    parser = parser_of(name)
    least = [name, *least_of(parser)]
    wrong = [[*least, "--no-such-option"], *([[name]] if least != [name] else [])]
    for one in parser.parameters:
        if not one.option_strings:
            continue
        option = one.option_strings[0]
        wrong.append([*least, option[:-1], *(["x"] if one.nargs is None else [])])
        wrong += [[*least, option]] if one.nargs is None else []
        wrong += [[*least, option, "nonsense"]] if one.choices else []
    for words in wrong:
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2, words
    assert capsys.readouterr().err


@pytest.mark.parametrize("word", ["-h", "--help"])
@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_is_given(name: str, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By the program, and by each command."""
    with pytest.raises(SystemExit) as ended:
        main([*name.split(), word])
    assert ended.value.code == 0
    assert "eurekube" in capsys.readouterr().out


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_options_with_a_sentence(name: str) -> None:
    """So that help, completion and docs/reference/cli.md can show them."""
    parser = parser_of(name)
    assert parser.description
    assert all(one.help for one in parser.parameters)


def test_the_pages_of_the_commands_are_up_to_date() -> None:
    """They say what the commands say of themselves: `make commands` writes them."""
    for name, page in commands_pages().items():
        assert page == (ROOT / "docs" / "reference" / name).read_text()
