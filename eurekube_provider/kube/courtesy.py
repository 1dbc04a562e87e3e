"""What lets more urgent work go first: for those who write statuses and Events beside it."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_SECONDS = 2.0
"""What is to be written is written after this time, however much else there is to do."""

SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.01, 0.25
PAUSE_FACTOR = 4.0
"""A pause after a write is so many times as long as the write took: who has much to write leaves the API
server and our own processor to others, the more the busier they are.
"""

STOP_SECONDS = 3.0
"""For so long what is still to be written keeps a process that was told to end."""


class Courtesy:
    """For one writer.

    :param wait_quiet: waits until there is nothing more urgent to do, for so many seconds at most.
    """

    def __init__(self, wait_quiet: Callable[[float], None] = lambda _: None) -> None:
        self._wait_quiet = wait_quiet

    @staticmethod
    def latest_at() -> float:
        """Until when what is told now may wait, by ``time.monotonic()``."""
        return time.monotonic() + PATIENCE_SECONDS

    def wait(self, latest_at: float) -> None:
        """Before a write: wait for quiet, but no longer than until then."""
        patience = latest_at - time.monotonic()
        if patience > 0:
            self._wait_quiet(patience)

    @staticmethod
    def pause(write_seconds: float) -> None:
        """After a write that took so long."""
        time.sleep(min(max(PAUSE_FACTOR * write_seconds, SHORTEST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS))
