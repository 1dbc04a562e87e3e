"""A check, some time after a removal from several servers, whether it is gone: one check for many removals.

A renewal that one server forwarded just before a removal may give the instance back to another server,
where the operator would renew it for ever. So every server is asked once more, after the time that such a
renewal takes. Whoever removes many waits once: the first to finish stays and looks for all the others.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from eurekube_provider.core.errors import RegistryError
from eurekube_provider.core.model import Instance, Key
from eurekube_provider.eureka import apply, windows
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.uncached_reads import read_everywhere


@dataclass(frozen=True, slots=True)
class _Removed:
    peers: Peers
    instance: Instance
    due: float
    thread: int
    """Who removed it, and is told what became of it."""


_Failure = tuple[_Removed, RegistryError]


class RemovalChecks:
    """Removals that are checked once more; any number of threads may share it.

    :param wait: sleeps so many seconds.
    """

    def __init__(self, wait: Callable[[float], None] = time.sleep) -> None:
        self._wait = wait
        self._lock = threading.Lock()
        self._removed: dict[tuple[tuple[str, ...], Key], _Removed] = {}
        self._is_checking = False

    def add(self, peers: Peers, instance: Instance) -> None:
        """``instance`` was removed, as it is here; a single server forwards nothing."""
        if len(peers.peers) > 1:
            due = time.monotonic() + windows.RENEWAL_REPLICATED
            removed = _Removed(peers, instance, due, threading.get_ident())
            with self._lock:
                self._removed[self._place(peers, instance.key)] = removed

    def forget(self, peers: Peers, key: Key) -> None:
        """Check an instance no more: it is about to be registered again, and then shall be there."""
        with self._lock:
            self._removed.pop(self._place(peers, key), None)

    def finish(self) -> None:
        """Check everything that was added, unless another thread is at it and will.

        What another thread removed, and is not waiting for, is told on standard error where it stays: the
        failure is no fault of what this one removed.

        :raises RegistryError: what this thread removed came back and stays; the rest was looked at.
        """
        with self._lock:
            if self._is_checking:
                return
            self._is_checking = True
        failures: list[_Failure] = []
        while self._check_some(failures):
            pass
        mine = [error for removed, error in failures if removed.thread == threading.get_ident()]
        for removed, error in failures:
            if removed.thread != threading.get_ident():
                name = f"{removed.instance.application} {removed.instance.instance_id}"
                told = f"{name} was removed, and may have come back by a renewal that was under way: {error}"
                print(told, file=sys.stderr, flush=True)
        if mine:
            raise mine[0]

    def _check_some(self, failures: list[_Failure]) -> bool:
        """Wait for the first that is due, and look at all that are by then; False where nothing is left."""
        with self._lock:
            if not self._removed:
                self._is_checking = False
                return False
            first = min(removed.due for removed in self._removed.values()) + windows.CHECKED_TOGETHER
            seconds = first - time.monotonic()
        if seconds > 0:
            self._wait(seconds)
        with self._lock:
            # Where the clock was set, or a test does not really wait, one check is enough all the same.
            latest = max(time.monotonic(), first)
            due = {place: removed for place, removed in self._removed.items() if removed.due <= latest}
        for peers in {id(removed.peers): removed.peers for removed in due.values()}.values():
            mine = {place: removed for place, removed in due.items() if removed.peers is peers}
            try:
                failures += self._check(peers, mine)
            except RegistryError as error:
                failures += [(removed, error) for removed in mine.values()]
        with self._lock:
            for place, removed in due.items():
                if self._removed.get(place) is removed:
                    del self._removed[place]
        return True

    def _check(self, peers: Peers, due: dict[tuple[tuple[str, ...], Key], _Removed]) -> list[_Failure]:
        """Remove again what came back; returns what could not be."""
        failures: list[_Failure] = []
        reads = read_everywhere(peers, [removed.instance.key for removed in due.values()])
        for place, removed in due.items():
            again = reads.newest(removed.instance.key)
            with self._lock:
                shall_be_gone = self._removed.get(place) is removed
            # Registered anew since, it carries a newer time: only what came back is what was removed. So does
            # what a drain marked after it had been read; nobody registers anew with our mark.
            if (
                again is not None
                and shall_be_gone
                and again.owner == removed.instance.owner
                and (again.is_leaving or again.written_at_ms <= removed.instance.written_at_ms)
            ):
                try:
                    apply.remove(peers, again)
                except RegistryError as error:
                    failures.append((removed, error))
        return failures

    @staticmethod
    def _place(peers: Peers, key: Key) -> tuple[tuple[str, ...], Key]:
        return peers.connection.service_urls, key


REMOVAL_CHECKS = RemovalChecks()
"""The checks of this process: the removals of one update are checked once more together."""
