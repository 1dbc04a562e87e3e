"""Output for a person: lines, and a progress bar for a wait where standard error is a terminal."""

from __future__ import annotations

import math
import sys
import time

from eurekube_provider.core.quoting import printable

PROGRESS_BAR_WIDTH = 30
_REDRAW_INTERVAL_SECONDS = 0.5


def print_text(text: str) -> None:
    """Print a text unchanged, at once."""
    print(text, end="", flush=True)


def print_line(line: str) -> None:
    """Print one line at once."""
    print(printable(line), flush=True)


def print_error_line(line: str) -> None:
    print(printable(line), file=sys.stderr, flush=True)


def wait_with_progress(seconds: float, total_seconds: float, label: str) -> None:
    """Wait ``seconds``, the rest of ``total_seconds``; a terminal as standard error shows a progress bar."""
    end = time.monotonic() + seconds
    shows = sys.stderr.isatty()
    while (left := end - time.monotonic()) > 0:
        if shows:
            bar = format_progress_bar(total_seconds - left, total_seconds)
            print(f"\r{bar} {label} for {math.ceil(left)} s  ", end="", file=sys.stderr, flush=True)
        time.sleep(min(_REDRAW_INTERVAL_SECONDS, left))
    if shows:
        print(f"\r{format_progress_bar(1, 1)}{' ' * (len(label) + 20)}", file=sys.stderr, flush=True)


def format_progress_bar(done: float, total: float) -> str:
    """Return a progress bar, e.g. ``[######....]``."""
    share = 1.0 if total <= 0 else min(1.0, max(0.0, done / total))
    filled = round(PROGRESS_BAR_WIDTH * share)
    return f"[{'#' * filled}{'.' * (PROGRESS_BAR_WIDTH - filled)}]"
