"""A check, some time after a removal from several servers, whether it is gone: one check for many removals.

A renewal that one server forwarded just before a removal may give the instance back to another server,
where the operator would renew it for ever. So every server is asked once more, after the time that such a
renewal takes, and again where something came back. Anyone who removes many waits once: the first to finish
stays and looks for all the others.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from eurekube_provider.core.errors import RegistryError, RegistryUnreachable
from eurekube_provider.core.model import Instance, Key
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.uncached_reads import read_everywhere
from eurekube_provider.eureka.writer import Writer

MOST_CHECKS = 5
"""How often a removal is looked for: what came back is removed again each time."""

_Place = tuple[tuple[str, ...], Key]


@dataclass(frozen=True, slots=True)
class _Removed:
    """A removal that is to be checked.

    :ivar thread: the thread that removed it, and gets the outcome.
    :ivar check: the number of the check.
    """

    peers: Peers
    instance: Instance
    due: float
    thread: int
    check: int = 1

    @property
    def place(self) -> _Place:
        return self.peers.connection.service_urls, self.instance.key

    def came_back(self, found: Instance) -> bool:
        """Return whether the instance that stands there is the one that was removed.

        Registered again since, it carries a newer time. So does what a drain marked after it had been read,
        but nobody registers again with our mark.
        """
        removed = self.instance
        return found.owner == removed.owner and (
            found.is_leaving or found.written_at_ms <= removed.written_at_ms
        )


class RemovalChecks:
    """Removals that are checked once more; any number of threads may share it.

    :param wait: sleeps so many seconds.
    """

    def __init__(self, wait: Callable[[float], None] = time.sleep) -> None:
        self._wait = wait
        self._lock = threading.Lock()
        self._removed: dict[_Place, _Removed] = {}
        self._is_checking = False

    def add(self, peers: Peers, instance: Instance) -> None:
        """``instance`` was removed, as it is here; a single server forwards nothing."""
        if len(peers.peers) > 1:
            due = time.monotonic() + windows.RENEWAL_REPLICATED
            removed = _Removed(peers, instance, due, threading.get_ident())
            with self._lock:
                self._removed[removed.place] = removed

    def forget(self, peers: Peers, key: Key) -> None:
        """Check an instance no more: it is about to be registered again, and then shall be there."""
        with self._lock:
            self._removed.pop((peers.connection.service_urls, key), None)

    def finish(self) -> None:
        """Check everything that was added, unless another thread is at it and will.

        What another thread removed, and is not waiting for, is reported on standard error where it stays: the
        failure is no fault of what this one removed.

        :raises RegistryError: what this thread removed came back and stays; the rest was looked at.
        """
        with self._lock:
            if self._is_checking:
                return
            self._is_checking = True
        mine: list[RegistryError] = []
        while due := self._wait_for_some():
            for removed, error in self._check(due):
                if removed.thread == threading.get_ident():
                    mine.append(error)
                    continue
                name = f"{removed.instance.application} {removed.instance.instance_id}"
                message = (
                    f"{name} was removed, and may have come back by a renewal that was under way: {error}"
                )
                print(message, file=sys.stderr, flush=True)
        if mine:
            raise mine[0]

    def _wait_for_some(self) -> list[_Removed]:
        """Wait for the first that is due; returns all that are by then, and none where nothing is left."""
        with self._lock:
            if not self._removed:
                self._is_checking = False
                return []
            first = min(removed.due for removed in self._removed.values()) + windows.CHECKED_TOGETHER
        seconds = first - time.monotonic()
        if seconds > 0:
            self._wait(seconds)
        # Where the clock was set, or a test does not really wait, one check is enough all the same.
        latest = max(time.monotonic(), first)
        with self._lock:
            return [removed for removed in self._removed.values() if removed.due <= latest]

    def _check(self, due: list[_Removed]) -> Iterator[tuple[_Removed, RegistryError]]:
        """Remove again what came back, to be looked for once more; yields what stays, and why."""
        for peers in {id(removed.peers): removed.peers for removed in due}.values():
            mine = [removed for removed in due if removed.peers is peers]
            failure: RegistryError | None = None
            found: dict[Key, Instance | None] = {}
            try:
                reads = read_everywhere(peers, [removed.instance.key for removed in mine])
                found = {removed.instance.key: reads.newest(removed.instance.key) for removed in mine}
            except RegistryError as error:
                failure = error
            for removed in mine:
                again = found.get(removed.instance.key)
                with self._lock:
                    # Else it is to be there again, or was removed again.
                    shall_be_gone = self._removed.get(removed.place) is removed
                    if shall_be_gone:
                        del self._removed[removed.place]
                if not shall_be_gone:
                    continue
                if failure is not None:
                    yield removed, failure
                elif again is not None and removed.came_back(again):
                    try:
                        self._remove_again(removed, again)
                    except RegistryError as error:
                        yield removed, error

    def _remove_again(self, removed: _Removed, found: Instance) -> None:
        """Remove what came back, and have it looked for.

        :raises RegistryError: it came back too often, or no server can be asked.
        """
        if removed.check >= MOST_CHECKS:
            urls = ", ".join(removed.peers.connection.service_urls)
            raise RegistryUnreachable(
                f"deregister {found.application} {found.instance_id}: {urls} keeps holding it although it"
                " said that it removed it; somebody else may be registering it again",
                url=urls,
            )
        Writer(removed.peers).remove(found)
        due = time.monotonic() + windows.RENEWAL_REPLICATED
        with self._lock:
            again = replace(removed, instance=found, check=removed.check + 1, due=due)
            self._removed.setdefault(again.place, again)


REMOVAL_CHECKS = RemovalChecks()
"""The checks of this process: the removals of one update are checked once more together."""
