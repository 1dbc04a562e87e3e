"""The second look at what was removed from several servers, one for many removals.

A renewal that one server forwarded just before a removal may give the instance back to another server,
where the operator would renew it for ever. So every server is asked once more, after the time that such a
renewal takes. Whoever removes many waits once: the first to finish stays and looks for all the others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from eurekube_provider.core.errors import RegistryError
from eurekube_provider.core.model import Instance
from eurekube_provider.eureka import apply
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.stock import look_everywhere

FORWARDED_WITHIN_SECONDS = 1.5
"""Servers forward a renewal to each other within half a second, and once more when that failed."""

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Removed:
    peers: Peers
    instance: Instance
    due: float


class SecondLooks:
    """Removals that are looked at once more; any number of threads may share it.

    :param wait: sleeps so many seconds.
    """

    def __init__(self, wait: Callable[[float], None] = time.sleep) -> None:
        self._wait = wait
        self._lock = threading.Lock()
        self._removed: dict[tuple[tuple[str, ...], Key], _Removed] = {}
        self._someone_looks = False

    def add(self, peers: Peers, instance: Instance) -> None:
        """``instance`` was removed, as it is here; a single server forwards nothing."""
        if len(peers.peers) > 1:
            due = time.monotonic() + FORWARDED_WITHIN_SECONDS
            with self._lock:
                self._removed[self._place(peers, instance.key)] = _Removed(peers, instance, due)

    def forget(self, peers: Peers, key: Key) -> None:
        """It is about to be registered again: what is found from now on shall be there."""
        with self._lock:
            self._removed.pop(self._place(peers, key), None)

    def finish(self) -> None:
        """Look at everything that was added, unless another thread is at it and will.

        :raises RegistryError: something came back and could not be removed; the rest was looked at.
        """
        with self._lock:
            if self._someone_looks:
                return
            self._someone_looks = True
        failures: list[RegistryError] = []
        while self._look_at_some(failures):
            pass
        if failures:
            raise failures[0]

    def _look_at_some(self, failures: list[RegistryError]) -> bool:
        """Wait for the first that is due, and look at all that are by then; False where nothing is left."""
        with self._lock:
            if not self._removed:
                self._someone_looks = False
                return False
            seconds = min(removed.due for removed in self._removed.values()) - time.monotonic()
        if seconds > 0:
            self._wait(seconds)
        with self._lock:
            # Where the clock was set, or a test does not really wait, one look is enough all the same.
            latest = max(time.monotonic(), min((each.due for each in self._removed.values()), default=0.0))
            due = {place: removed for place, removed in self._removed.items() if removed.due <= latest}
        for peers in {id(removed.peers): removed.peers for removed in due.values()}.values():
            mine = {place: removed for place, removed in due.items() if removed.peers is peers}
            try:
                self._look(peers, mine)
            except RegistryError as error:
                failures.append(error)
        with self._lock:
            for place, removed in due.items():
                if self._removed.get(place) is removed:
                    del self._removed[place]
        return True

    def _look(self, peers: Peers, due: dict[tuple[tuple[str, ...], Key], _Removed]) -> None:
        stock = look_everywhere(peers, [removed.instance for removed in due.values()])
        for place, removed in due.items():
            again = stock.newest(removed.instance.key)
            with self._lock:
                shall_be_gone = self._removed.get(place) is removed
            # Registered anew since, it carries a newer time: only what came back is what was removed.
            if (
                again is not None
                and shall_be_gone
                and again.owner == removed.instance.owner
                and again.written_at_ms <= removed.instance.written_at_ms
            ):
                apply.remove(peers, again)

    @staticmethod
    def _place(peers: Peers, key: Key) -> tuple[tuple[str, ...], Key]:
        return peers.connection.service_urls, key
