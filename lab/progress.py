"""Progress on standard error: one line for each step, and a sign of life during the long ones.

Standard output stays free for a command's result. A line is written whole, so that several threads, or a
parent and its child, do not cut each other's lines.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SIGN_OF_LIFE_INTERVAL_SECONDS = 15.0


def say(line: str) -> None:
    """Write one line of progress to standard error."""
    sys.stderr.write(f"lab: {line}\n")
    sys.stderr.flush()


class Stopwatch:
    """A clock of the seconds since it was made."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def __str__(self) -> str:
        seconds = self.seconds
        if seconds < 100:
            return f"{seconds:.1f} s"
        return f"{int(seconds) // 60} min {int(seconds) % 60} s"


@contextmanager
def report_signs_of_life(what: str, describe_state: Callable[[], str]) -> Iterator[Stopwatch]:
    """While the block runs, say every 15 seconds that `what` goes on, and its state, e.g. its last line."""
    stopwatch = Stopwatch()
    done = threading.Event()

    def beat() -> None:
        while not done.wait(SIGN_OF_LIFE_INTERVAL_SECONDS):
            say(f"{what}: still at it after {stopwatch} ({describe_state()})")

    thread = threading.Thread(target=beat, name=f"lab-heartbeat-{what}", daemon=True)
    thread.start()
    try:
        yield stopwatch
    finally:
        done.set()
        thread.join()
