"""Completion and help of the whole program, for commands of both kinds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from eurekube_provider.cli import completion_command
from eurekube_provider.cli.click_program import command_of
from eurekube_provider.cli.commands import COMMANDS, COMPLETION_VARIABLE
from eurekube_provider.cli.main import main
from scripts.command_reference import commands_page

ROOT = Path(__file__).parents[3]


def completions(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str) -> list[str]:
    """What bash is told for a line that ends where the cursor is."""
    words = line.split(" ")
    monkeypatch.setenv(COMPLETION_VARIABLE, "bash_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    assert main([]) == 0
    return [one.partition(",")[2] for one in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("eurekube st", ["status"]),
        ("eurekube dr", ["drain", "drift"]),
        ("eurekube status --out", ["--output"]),
        ("eurekube status --output m", ["markdown"]),
        ("eurekube drain --no-w", ["--no-wait"]),
        ("eurekube doctor --output j", ["json"]),
        ("eurekube completion z", ["zsh"]),
    ],
)
def test_a_line_is_completed(
    line: str, expected: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands, options and choices, also of the commands that argparse reads."""
    assert completions(monkeypatch, capsys, line) == expected


@pytest.mark.parametrize("shell", completion_command.SHELLS)
def test_the_scripts_of_the_shells(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each asks this program, in the variable that it answers to."""
    assert main(["completion", shell]) == 0
    assert f"{COMPLETION_VARIABLE}={shell}_complete" in capsys.readouterr().out


def test_kubectl_is_answered(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """``kubectl eurekube``: one completion a line, then kubectl's directive."""
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-eurekube", "st"])
    assert completion_command.complete_for_kubectl() == 0
    assert capsys.readouterr().out.splitlines() == [f"status\t{COMMANDS['status']}", ":4"]


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_options_with_a_sentence(name: str) -> None:
    """So that help, completion and docs/reference/cli.md can show them."""
    command = command_of(name)
    assert command.help
    assert all(one.help for one in command.params if isinstance(one, click.Option))


def test_the_page_of_the_commands_is_up_to_date() -> None:
    """docs/reference/cli.md says what the commands say of themselves: `make commands` writes it."""
    assert commands_page() == (ROOT / "docs" / "reference" / "cli.md").read_text()


def test_only_people_pay_for_click() -> None:
    """What machines run, the operator above all, loads neither click nor rich."""
    program = (
        "import sys\nfrom eurekube_provider.cli.commands import module_of\nmodule_of('operator')\n"
        "module_of('keepalive')\nsys.exit(bool({'click', 'rich'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


def test_unknown_commands_are_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, as of any wrong option."""
    for words in (["statsu"], ["status", "--outptu"], []):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2
    assert "No such command 'statsu'" in capsys.readouterr().err
