"""Handling of Ctrl-C, SIGTERM and a closed terminal, which take effect only where the demo can clean up."""

from __future__ import annotations

import signal
import time
from types import FrameType
from typing import Self

_POLL_SECONDS = 0.05


class Interrupted(KeyboardInterrupt):
    """Raised where a person or the system has asked the demo to end."""


class InterruptionHandler:
    """A context that remembers signals; only :meth:`pause` raises :class:`Interrupted` for them.

    Work between two pauses is therefore always complete, and can be cleaned up. The first signal counts;
    later ones do not disturb the clean-up.
    """

    _SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self._is_asked = False

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._remember_signal) for number in self._SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def pause(self, seconds: float = 0.0) -> None:
        """Wait ``seconds``, or raise :class:`Interrupted` where a signal has come."""
        end = time.monotonic() + seconds
        while not self._is_asked and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _POLL_SECONDS))
        if self._is_asked:
            raise Interrupted

    def _remember_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._is_asked = True
