"""The command line that people and their scripts have: commands, options, defaults, sentences, exit codes."""

from __future__ import annotations

import argparse
import inspect
from pathlib import Path
from typing import Any

import click
import pytest

from eurekube_provider.cli.click_program import RecordingParser
from eurekube_provider.cli.commands import COMMANDS, module_of
from eurekube_provider.cli.main import main, parser

RECORDED = Path(__file__).with_name("command_line.txt")
"""A line for each command and each of its parameters. What stands there stays; what is new is added."""

REQUIRED = {
    "explain": ["rating"],
    "drain": ["rating"],
    "undrain": ["rating"],
    "import": ["rating"],
    "drift": ["--stack", "dev"],
    "completion": ["bash"],
}
"""The least that a command must be told."""


def lines_of(name: str) -> list[str]:
    """What is recorded of a command."""
    module = module_of(name)
    command = getattr(module, "command", None)
    if command is not None:
        with command.make_context(name, list(REQUIRED.get(name, []))) as context:
            values = context.params
        told = [_click_line(one, values) for one in command.params]
        return [f"{name}: {_plain(command.help)}", *(f"{name} {line}" for line in told)]
    recorded = RecordingParser(name)
    module.add_to(recorded)
    values = vars(parser(name).parse_args([name, *REQUIRED.get(name, [])]))
    said = f"{_plain(recorded.description)} {_plain(recorded.epilog)}".rstrip()
    return [f"{name}: {said}", *(f"{name} {_argparse_line(one, values)}" for one in recorded.added)]


def _click_line(one: click.Parameter, values: dict[str, Any]) -> str:
    kind = " ".join(map(str, one.type.choices)) if isinstance(one.type, click.Choice) else ""
    if isinstance(one, click.Option):
        value = "" if one.is_flag else kind or one.metavar
        return _line(", ".join(one.opts), value, values[one.name or ""], one.help)
    return _line(str(one.metavar or one.name).upper().strip("[]."), kind, values[one.name or ""], "")


def _argparse_line(one: argparse.Action, values: dict[str, Any]) -> str:
    kind = " ".join(map(str, one.choices or ()))
    if one.option_strings:
        value = "" if one.nargs == 0 else kind or one.metavar
        return _line(", ".join(one.option_strings), value, values[one.dest], one.help)
    return _line(str(one.metavar or one.dest).upper(), kind, values[one.dest], one.help)


def _line(name: str, value: object, default: object, told: str | None) -> str:
    shown = list(default) if isinstance(default, tuple) else default
    return " | ".join((name, str(value or ""), str(shown), (told or "").replace("%%", "%")))


def _plain(text: str | None) -> str:
    return " ".join(inspect.cleandoc(text or "").replace("\b", "").split())


@pytest.mark.parametrize("name", COMMANDS)
def test_what_was_there_stays(name: str) -> None:
    """Names, values, defaults and sentences of a command and its options."""
    recorded = RECORDED.read_text(encoding="utf-8").splitlines()
    mine = [line for line in recorded if line.startswith((f"{name}: ", f"{name} "))]
    assert mine
    assert [line for line in mine if line not in lines_of(name)] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_wrong_usage_ends_with_2(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What is unknown or shortened, an option without its value, and a value that is no choice."""
    least = [name, *REQUIRED.get(name, [])]
    wrong = [[*least, "--no-such-option"]]
    for line in lines_of(name)[1:]:
        option, value, *_ = line.removeprefix(f"{name} ").split(" | ")
        if option.startswith("--"):
            flag = option.split(",")[0]
            wrong.append([*least, flag[:-1], *(["x"] if value else [])])
            if value:
                wrong.append([*least, flag])
            if value and value == value.lower() and " " in value:
                wrong.append([*least, flag, "nonsense"])
    if name in REQUIRED:
        wrong.append([name])
    for words in wrong:
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2, words
    assert capsys.readouterr().err


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_is_given(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By the program, and by each command."""
    with pytest.raises(SystemExit) as ended:
        main([*name.split(), "--help"])
    assert ended.value.code == 0
    assert "eurekube" in capsys.readouterr().out
