"""``eurekube drift``: Markdown for people, JSON for programs."""

from __future__ import annotations

import json
import signal
import sys
from typing import Any

import pytest

from eurekube_provider.automation.stack_run import RunOutcome
from eurekube_provider.automation.summary import DiscoverySummary
from eurekube_provider.cli import drift_command
from eurekube_provider.cli.main import main


class Unchanged:
    """A stand-in for StackRunner, and its result without drift."""

    outcome, message, log = RunOutcome.UNCHANGED, "", None

    def __init__(self, *_: object) -> None:
        """Take any arguments."""

    def run(self, *_: object) -> Unchanged:
        """Return the result."""
        return self

    def to_json(self) -> dict[str, Any]:
        """Return an empty document."""
        return {}


NOTHING = DiscoverySummary("shop", "dev", (), (), (), (), {}, has_failed=False)


@pytest.mark.parametrize(
    ("words", "is_terminal", "is_json"),
    [([], True, False), ([], False, True), (["--format", "json"], True, True)],
)
def test_a_terminal_gets_what_a_person_reads(
    words: list[str],
    is_terminal: bool,
    is_json: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A terminal gets Markdown; a pipe, or ``--format json``, gets JSON."""
    monkeypatch.setattr(drift_command, "StackRunner", Unchanged)
    monkeypatch.setattr(drift_command, "summarise", lambda *_, **__: NOTHING)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal, raising=False)
    assert main(["drift", "--stack", "dev", *words]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("{") is is_json
    assert not is_json or json.loads(shown)["drifted"] is False
