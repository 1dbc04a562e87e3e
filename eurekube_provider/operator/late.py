"""What was sent to Eureka and not answered: a server that was frozen may carry it out when it is back.

By then it may have been undone. A registration that comes after the removal is newer than what was removed,
and an OUT_OF_SERVICE that comes after our mark was taken off passes for a person's, for ever. So both are
remembered for as long as a list may take to show them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from eurekube_provider.core.identity import LEAVING_KEY
from eurekube_provider.core.model import Instance, Status

REMEMBERED_SECONDS = 90.0
"""A server is seldom frozen for longer than some seconds; a list shows what came within 45 s."""

MOST_REMEMBERED = 10_000

Key = tuple[str, str]


class Late:
    """Of one registry; any number of threads may share it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._sent: dict[tuple[Key, bool], tuple[float, Instance]] = {}  # oldest first; a status by itself

    def note(self, sent: Instance) -> None:
        """No answer came to this, be it a registration or, with an override, a status."""
        name = (sent.key, sent.is_overridden)
        with self._lock:
            self._purge()
            self._sent.pop(name, None)
            self._sent[name] = (self._clock(), sent)

    def newest(self, removed: Instance) -> Instance:
        """``removed``, or what was sent of it later and may still come."""
        with self._lock:
            self._purge()
            _, sent = self._sent.get((removed.key, False), (0.0, removed))
        return (
            max(removed, sent, key=lambda one: one.written_at_ms) if sent.owner == removed.owner else removed
        )

    def marked(self, held: Iterable[Instance]) -> list[Instance]:
        """These, with our mark where the OUT_OF_SERVICE may be one of ours that came late."""
        with self._lock:
            self._purge()
            # A registration as leaving may be late, too, and keep the status that came with it.
            asked_for = {
                key for (key, _), (_, sent) in self._sent.items() if sent.status is Status.OUT_OF_SERVICE
            }
        return [self._marked(one) if one.key in asked_for else one for one in held]

    def clear(self) -> None:
        """Another replica leads."""
        with self._lock:
            self._sent.clear()

    @staticmethod
    def _marked(instance: Instance) -> Instance:
        if instance.overridden_status is not Status.OUT_OF_SERVICE or instance.is_leaving:
            return instance
        return replace(instance, metadata={**instance.metadata, LEAVING_KEY: "true"})

    def _purge(self) -> None:
        """Forget what is old; the lock is held."""
        since = self._clock() - REMEMBERED_SECONDS
        while self._sent:
            name = next(iter(self._sent))
            if self._sent[name][0] >= since and len(self._sent) < MOST_REMEMBERED:
                return
            del self._sent[name]
