"""Shell completion of commands, options and choices."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from eurekube_provider.cli import completion_command
from eurekube_provider.cli.commands import COMMAND_SUMMARIES
from eurekube_provider.cli.main import main

BIN = Path(sys.executable).parent


def completions(line: str) -> list[str]:
    """Return the completions of a line's last word."""
    *words, incomplete = line.split(" ")
    return [value for value, _ in completion_command.completions(words, incomplete)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("st", ["status"]),
        ("dr", ["drain", "drift"]),
        ("nonsense ", []),
        ("--v", ["--version"]),
        ("status ", []),
        ("status --out", ["--output"]),
        ("status --output m", ["markdown"]),
        ("status --output json --o", []),
        ("status --output json -", ["--differences", "--namespace", "-n", "--config", "--eureka-url"]),
        ("instances --status u", ["UP", "UNKNOWN"]),
        ("instances --status UP --st", ["--status"]),
        ("drain --no-w", ["--no-wait"]),
        ("drain --connection ", []),
        ("doctor --output j", ["json"]),
        ("completion z", ["zsh"]),
    ],
)
def test_a_line_is_completed(line: str, expected: list[str]) -> None:
    """Completion offers commands, options that were not given yet or may be repeated, and choices."""
    assert completions(line)[: len(expected) or None] == expected


def test_kubectl_is_answered(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """For ``kubectl eurekube`` the completion program prints one completion per line, then kubectl's
    directive.
    """
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-eurekube", "st"])
    assert completion_command.complete_for_kubectl() == 0
    assert capsys.readouterr().out.splitlines() == [f"status\t{COMMAND_SUMMARIES['status']}", ":4"]


@pytest.mark.parametrize("shell", completion_command.COMPLETION_SCRIPTS)
def test_the_scripts_of_the_shells(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each shell's script calls ``kubectl_complete-eurekube``, the program that kubectl calls as well."""
    assert main(["completion", shell]) == 0
    assert "kubectl_complete-eurekube" in capsys.readouterr().out


def test_bash_completes_by_its_script() -> None:
    """In bash a completion with a space stays one word, and kubectl's directive is not offered."""
    script = (
        'COMP_WORDS=(eurekube instances --kept-by "o"); COMP_CWORD=3; _eurekube\n'
        'for one in "${COMPREPLY[@]}"; do echo "<$one>"; done'
    )
    ended = subprocess.run(
        ["bash", "-c", f"{completion_command.COMPLETION_SCRIPTS['bash']}\n{script}"],
        env={**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.stdout.splitlines() == ["<other cluster>", "<other>"]
