"""Output for a person: lines, and a progress bar for a wait where standard error is a terminal."""

from __future__ import annotations

import math
import sys
import time
from typing import TextIO

from eurekube_provider.core.quoting import printable

WIDTH = 30
_TICK_SECONDS = 0.5


def put(text: str) -> None:
    """Print a text unchanged, at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def say(line: str) -> None:
    """Print one line at once."""
    put(f"{printable(line)}\n")


def complain(line: str) -> None:
    """Print one line to standard error, at once."""
    print(printable(line), file=sys.stderr, flush=True)


def wait(seconds: float, total_seconds: float, label: str, stream: TextIO | None = None) -> None:
    """Wait ``seconds``, the rest of ``total_seconds``, and show a progress bar.

    :param stream: the stream for the bar; default standard error. Without a terminal no bar is shown.
    """
    stream = stream or sys.stderr
    end = time.monotonic() + seconds
    shows = stream.isatty()
    while (left := end - time.monotonic()) > 0:
        if shows:
            stream.write(f"\r{bar(total_seconds - left, total_seconds)} {label} for {math.ceil(left)} s  ")
            stream.flush()
        time.sleep(min(_TICK_SECONDS, left))
    if shows:
        stream.write(f"\r{bar(total_seconds, total_seconds)}{' ' * (len(label) + 20)}\n")
        stream.flush()


def bar(done: float, total: float) -> str:
    """Return a progress bar, e.g. ``[######....]``."""
    filled = WIDTH if total <= 0 else min(WIDTH, max(0, round(WIDTH * done / total)))
    return f"[{'#' * filled}{'.' * (WIDTH - filled)}]"
