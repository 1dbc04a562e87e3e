"""A check, some time after removals from several servers, that the instances are gone.

A renewal that one server forwarded just before a removal may give the instance back to another server, where
the operator would renew it for ever. So every server is asked again after the time that such a renewal takes,
and once more where an instance came back. A process that removes many instances waits once: the first thread
to finish stays and checks for all the others.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from eurekube_provider.core.errors import RegistryError
from eurekube_provider.core.model import Instance, InstanceKey
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.peers import Peers, still_held_error
from eurekube_provider.eureka.uncached_reads import read_everywhere
from eurekube_provider.eureka.writer import Writer

MOST_CHECKS_PER_REMOVAL = 5
"""The most checks after a removal; an instance that came back is removed again each time."""

_UrlsAndKey = tuple[tuple[str, ...], InstanceKey]


@dataclass(frozen=True, slots=True)
class _RemovalToCheck:
    """A removal that is to be checked.

    :ivar thread_id: the thread that removed the instance, and gets the outcome.
    :ivar check_number: the number of the check.
    """

    peers: Peers
    instance: Instance
    due_at: float
    thread_id: int
    check_number: int = 1

    @property
    def urls_and_key(self) -> _UrlsAndKey:
        return self.peers.connection.service_urls, self.instance.key

    def is_same_registration(self, found: Instance) -> bool:
        """Return whether ``found`` is the removed instance, and not a later registration under its id.

        A later registration has a newer time. So does an instance that a drain marked after it was read here,
        but no later registration carries that mark.
        """
        removed = self.instance
        return found.owner == removed.owner and (
            found.is_leaving or found.written_at_ms <= removed.written_at_ms
        )


class RemovalChecks:
    """The removals that are to be checked; any number of threads may share the object.

    :param wait: sleeps for a number of seconds.
    """

    def __init__(self, wait: Callable[[float], None] = time.sleep) -> None:
        self._wait = wait
        self._lock = threading.Lock()
        self._removed: dict[_UrlsAndKey, _RemovalToCheck] = {}
        self._is_checking = False

    def add_removal(self, peers: Peers, instance: Instance) -> None:
        """Add a removed instance to the checks; not with a single server, which forwards nothing."""
        if len(peers.peers) > 1:
            due = time.monotonic() + windows.RENEWAL_REPLICATION_SECONDS
            removed = _RemovalToCheck(peers, instance, due, threading.get_ident())
            with self._lock:
                self._removed[removed.urls_and_key] = removed

    def forget(self, peers: Peers, key: InstanceKey) -> None:
        """Drop an instance from the checks, since it is about to be registered again."""
        with self._lock:
            self._removed.pop((peers.connection.service_urls, key), None)

    def check_and_remove_again(self) -> None:
        """Wait until all added removals are due, and remove again what came back, on one thread at a time.

        A failure of another thread's, which does not wait, goes to standard error, and is not raised here.

        :raises RegistryError: an instance of this thread's came back and stays; all others were checked.
        """
        with self._lock:
            if self._is_checking:
                return
            self._is_checking = True
        mine: list[RegistryError] = []
        try:
            while due := self._wait_for_due():
                for removed, error in self._remove_reappeared(due):
                    if removed.thread_id == threading.get_ident():
                        mine.append(error)
                        continue
                    name = f"{removed.instance.application} {removed.instance.instance_id}"
                    message = (
                        f"{name} was removed, and may have come back by a renewal that was under way: {error}"
                    )
                    print(message, file=sys.stderr, flush=True)
        except BaseException:
            with self._lock:
                self._is_checking = False  # the next call goes on with what is left
            raise
        if mine:
            raise mine[0]

    def _wait_for_due(self) -> list[_RemovalToCheck]:
        """Wait until the first check is due; return all that are due then, and none when no check is left."""
        with self._lock:
            if not self._removed:
                self._is_checking = False
                return []
            first = min(one.due_at for one in self._removed.values()) + windows.GROUP_REMOVAL_CHECKS_SECONDS
        seconds = first - time.monotonic()
        if seconds > 0:
            self._wait(seconds)
        # Where the clock was set, or a test does not really wait, one check is enough all the same.
        latest = max(time.monotonic(), first)
        with self._lock:
            return [removed for removed in self._removed.values() if removed.due_at <= latest]

    def _remove_reappeared(
        self, due: list[_RemovalToCheck]
    ) -> Iterator[tuple[_RemovalToCheck, RegistryError]]:
        """Read the removed instances that are due, remove those that came back, and plan their next check;
        yield those whose check or removal failed, with the error.
        """
        for peers in {id(removed.peers): removed.peers for removed in due}.values():
            mine = [removed for removed in due if removed.peers is peers]
            failure: RegistryError | None = None
            found: dict[InstanceKey, Instance | None] = {}
            try:
                reads = read_everywhere(peers, [removed.instance.key for removed in mine])
                found = {removed.instance.key: reads.newest(removed.instance.key) for removed in mine}
            except RegistryError as error:
                failure = error
            for removed in mine:
                again = found.get(removed.instance.key)
                with self._lock:
                    # Else it is to be there again, or was removed again.
                    shall_be_gone = self._removed.get(removed.urls_and_key) is removed
                    if shall_be_gone:
                        del self._removed[removed.urls_and_key]
                if not shall_be_gone:
                    continue
                if failure is not None:
                    yield removed, failure
                elif again is not None and removed.is_same_registration(again):
                    try:
                        self._remove_again(removed, again)
                    except RegistryError as error:
                        yield removed, error

    def _remove_again(self, removed: _RemovalToCheck, found: Instance) -> None:
        """Remove an instance that came back, and plan another check.

        :raises RegistryError: the instance came back too often, or no server can be asked.
        """
        if removed.check_number >= MOST_CHECKS_PER_REMOVAL:
            raise still_held_error(removed.peers, found)
        Writer(removed.peers).remove(found)
        due = time.monotonic() + windows.RENEWAL_REPLICATION_SECONDS
        with self._lock:
            again = replace(removed, instance=found, check_number=removed.check_number + 1, due_at=due)
            self._removed.setdefault(again.urls_and_key, again)


SHARED_REMOVAL_CHECKS = RemovalChecks()
"""The checks of this process, so that all removals of one update are checked together."""
