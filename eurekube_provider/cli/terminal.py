"""Output for a person: lines, and a progress bar for a wait where standard error is a terminal."""

from __future__ import annotations

import math
import sys
import time
from typing import TextIO

from eurekube_provider.core.quoting import printable

PROGRESS_BAR_WIDTH = 30
_REDRAW_INTERVAL_SECONDS = 0.5


def print_text(text: str) -> None:
    """Print a text unchanged, at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def print_line(line: str) -> None:
    """Print one line at once."""
    print_text(f"{printable(line)}\n")


def print_error_line(line: str) -> None:
    print(printable(line), file=sys.stderr, flush=True)


def wait_with_progress(
    seconds: float, total_seconds: float, label: str, stream: TextIO | None = None
) -> None:
    """Wait ``seconds``, the rest of ``total_seconds``, and show a progress bar.

    :param stream: the stream for the bar; default standard error. Without a terminal no bar is shown.
    """
    stream = stream or sys.stderr
    end = time.monotonic() + seconds
    shows = stream.isatty()
    while (left := end - time.monotonic()) > 0:
        if shows:
            stream.write(
                f"\r{format_progress_bar(total_seconds - left, total_seconds)} {label} for "
                f"{math.ceil(left)} s  "
            )
            stream.flush()
        time.sleep(min(_REDRAW_INTERVAL_SECONDS, left))
    if shows:
        stream.write(f"\r{format_progress_bar(total_seconds, total_seconds)}{' ' * (len(label) + 20)}\n")
        stream.flush()


def format_progress_bar(done: float, total: float) -> str:
    """Return a progress bar, e.g. ``[######....]``."""
    filled = (
        PROGRESS_BAR_WIDTH
        if total <= 0
        else min(PROGRESS_BAR_WIDTH, max(0, round(PROGRESS_BAR_WIDTH * done / total)))
    )
    return f"[{'#' * filled}{'.' * (PROGRESS_BAR_WIDTH - filled)}]"
