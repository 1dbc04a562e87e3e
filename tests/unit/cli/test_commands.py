"""The public command line: commands, options, defaults and exit codes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from eurekube_provider.cli.commands import COMMAND_SUMMARIES, CommandParser, load_command_parser
from eurekube_provider.cli.main import main
from scripts.command_reference import commands_pages

ROOT = Path(__file__).parents[3]
RECORDED = Path(__file__).with_name("command_line.txt")
"""File with each parameter of each command, its values and its default. Lines are added, never changed; the
help texts are in docs/reference/cli.md.
"""


def least_of(parser: CommandParser) -> list[str]:
    """Return the arguments that a command requires."""
    words: list[str] = []
    for one in parser.parameters:
        if one.required and one.nargs is None:
            words += [*one.option_strings[:1], *map(str, list(one.choices or ["rating"])[:1])]
    return words


def lines_of(name: str) -> list[str]:
    """Return the lines of a command in the form of the recorded file."""
    parser = load_command_parser(name)
    values = vars(parser.parse_args(least_of(parser)))
    return [f"{name} {_line(one, values)}".rstrip() for one in parser.parameters]


def _line(one: argparse.Action, values: dict[str, Any]) -> str:
    kind = " ".join(map(str, one.choices or ()))
    name = ", ".join(one.option_strings) or str(one.metavar or one.dest).upper()
    value = "" if one.nargs == 0 else kind or (str(one.metavar) if one.option_strings else "")
    return " | ".join((name, value, str(values[one.dest])))


@pytest.mark.parametrize("name", COMMAND_SUMMARIES)
def test_what_was_there_stays(name: str) -> None:
    """Every recorded option and argument of a command keeps its name, values and default."""
    recorded = RECORDED.read_text(encoding="utf-8").splitlines()
    mine = [line for line in recorded if line.startswith(f"{name} ")]
    assert [line for line in mine if line not in lines_of(name)] == []


@pytest.mark.parametrize("name", COMMAND_SUMMARIES)
def test_wrong_usage_ends_with_2(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A command ends with exit code 2 for an unknown or shortened option, a missing value, and an invalid
    choice.
    """
    parser = load_command_parser(name)
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
@pytest.mark.parametrize("name", ["", *COMMAND_SUMMARIES])
def test_help_is_given(name: str, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The program and each command print help for ``-h`` and ``--help``."""
    with pytest.raises(SystemExit) as ended:
        main([*name.split(), word])
    assert ended.value.code == 0
    assert "eurekube" in capsys.readouterr().out


@pytest.mark.parametrize("name", COMMAND_SUMMARIES)
def test_each_command_has_options_with_a_sentence(name: str) -> None:
    """Each command has a description, and each option a help text, for help, completion and
    docs/reference/cli.md.
    """
    parser = load_command_parser(name)
    assert parser.description
    assert all(one.help for one in parser.parameters)


def test_the_pages_of_the_commands_are_up_to_date() -> None:
    """The command pages in docs/reference equal the commands' own texts; `make commands` writes them."""
    for name, page in commands_pages().items():
        assert page == (ROOT / "docs" / "reference" / name).read_text()
