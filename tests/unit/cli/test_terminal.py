"""Progress bar of a wait, on terminals and elsewhere."""

from __future__ import annotations

import io
import sys

import pytest

from eurekube_provider.cli.terminal import format_progress_bar, wait_with_progress


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_the_bar_fills() -> None:
    """The bar goes from empty to full, never beyond, and is full if there is nothing to wait for."""
    assert format_progress_bar(0, 100) == f"[{'.' * 30}]"
    assert format_progress_bar(50, 100) == f"[{'#' * 15}{'.' * 15}]"
    assert format_progress_bar(200, 100) == format_progress_bar(0, 0) == f"[{'#' * 30}]"


def test_a_person_watches_and_a_log_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal one line is redrawn; elsewhere nothing is written."""
    watched, logged = Terminal(), io.StringIO()
    for stream in (watched, logged):
        monkeypatch.setattr(sys, "stderr", stream)
        wait_with_progress(0.02, 10.0, "caches may still be warm")
    drawn = watched.getvalue()
    assert drawn.startswith(f"\r{format_progress_bar(9.98, 10)} caches may still be warm for 1 s")
    assert drawn.endswith("\n")
    assert drawn.count("\n") == 1
    assert logged.getvalue() == ""
