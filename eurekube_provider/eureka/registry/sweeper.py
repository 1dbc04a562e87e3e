"""What was removed is looked for again on every server: one may have missed it, or been given it anew.

A server forwards a renewal up to a second after it came. Where a removal overtakes it, its receiver does not
know the instance any more, and the sender registers it there. Nobody renews that, so that it lapses in the
end; but until then callers would find it. So does a server that was frozen or cut off meanwhile: it still
holds what was removed elsewhere, and tells the others of it when it is back. So once it has been asked, they
are all asked anew.

What was registered again meanwhile stays. But the removal may still be on its way: in a server that was
frozen when it was sent, or from one server to the others. Neither knows of the registration that came after
it. So whoever renews is told of it, to find out soon whether it is still there.

A registration, or a status, may be late as well: sent to a server that was frozen, and carried out when the
instance had been removed, or was wanted otherwise. What is found so is not removed here: whoever knows what
is wanted is told.

Source: PeerEurekaNode.heartbeat and AcceptorExecutor of Netflix/eureka.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace

from eurekube_provider.core.errors import LeadershipLost, RegistryError, RegistryRejected
from eurekube_provider.core.liveness import Liveness, liveness_of
from eurekube_provider.core.model import Instance, Key
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.peers import MOST_TRIES, Peers
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.uncached_reads import read_each

_log = logging.getLogger(__name__)

MOST_SWEPT_LONGER = 1_000
"""How many that are due at once are looked for longer, with several reads each; the rest is left to lapse."""

MOST_REMEMBERED = 10_000
"""Removals that a server still has to be asked for; beyond, the oldest are left to lapse."""


@dataclass(frozen=True, slots=True)
class _PendingSweep:
    """A removed instance and when it is checked next.

    :param is_certain: it was removed; else it only may come, and somebody may want it.
    :param former: who had it before, and gave it to the owner. What one of them wrote later is not removed.
    """

    instance: Instance
    at: float
    checks: int = 0
    is_certain: bool = True
    former: Set[str] = frozenset()

    def next(self, sweep_after_seconds: Sequence[float]) -> _PendingSweep | None:
        """The check after this one; None after the last."""
        checks = self.checks + 1
        if checks >= len(sweep_after_seconds):
            return None
        at = self.at + sweep_after_seconds[checks] - sweep_after_seconds[self.checks]
        return replace(self, at=at, checks=checks)


class Sweeper:
    """Looks for what was removed, and removes it where it still is or is again.

    :param is_registered: whether an instance has been registered again since: then it stays.
    :param came_back: told of these at each check, once the server answers: the removal may have hit them.
    :param came_late: told of what a server holds and is not removed: it was written after the removal.
    :param servers_behind: how many servers answer behind one URL.
    """

    def __init__(
        self,
        peers: Peers,
        is_registered: Callable[[Key], bool],
        came_back: Callable[[Sequence[Key]], None] = lambda _: None,
        came_late: Callable[[Instance], None] = lambda _: None,
        servers_behind: Callable[[], int] = lambda: 1,
    ) -> None:
        self._peers = peers
        self._is_registered = is_registered
        self._came_back = came_back
        self._came_late = came_late
        self._servers_behind = servers_behind
        self._lock = threading.Lock()
        self._removals: dict[str, dict[Key, _PendingSweep]] = {peer.url: {} for peer in peers.peers}
        self._stopped = threading.Event()
        # One each, since a server that hangs takes its time.
        self._threads = [
            threading.Thread(target=self._run, args=(peer,), name=f"sweeper-{number}", daemon=True)
            for number, peer in enumerate(peers.peers)
        ]

    def start(self) -> None:
        """Begin to check what was removed."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Check nothing more."""
        self._stopped.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def liveness(self) -> list[Liveness]:
        """Tell of the threads that sweep."""
        return liveness_of(self._threads)

    def removed(self, instance: Instance, former: Set[str] = frozenset()) -> None:
        """``instance`` was removed from every server that could be asked.

        :param former: who had it before, and gave it to the owner: a server that was away may not know yet.
        """
        removal = _PendingSweep(instance, time.monotonic() + windows.SWEEP[0], former=former)
        with self._lock:
            for removals in self._removals.values():
                removals.pop(instance.key, None)
                removals[instance.key] = removal
                if len(removals) > MOST_REMEMBERED:
                    del removals[next(iter(removals))]

    def may_come(self, instance: Instance) -> None:
        """``instance`` was sent, and no answer came: it may stand there when nobody wants it any more."""
        removal = _PendingSweep(instance, time.monotonic() + windows.SWEEP[0], is_certain=False)
        with self._lock:
            for removals in self._removals.values():
                if len(removals) < MOST_REMEMBERED:
                    removals.setdefault(instance.key, removal)

    def sweep(self, peer: Peer, *, was_away: bool = False) -> bool:
        """Check what is due on one server.

        :param was_away: it did not answer the last time: what it missed is looked for elsewhere as well.
        :returns: what to give for ``was_away`` the next time; nothing is asked where nothing is due.
        """
        now = time.monotonic()
        removals = self._removals[peer.url]
        with self._lock:
            due = [removal for removal in removals.values() if removal.at <= now]
        if not due:
            return was_away
        swept = self._remove_again(peer, due)
        if swept:
            _log.warning(
                "removed from an Eureka server what it still held", extra={"url": peer.url, "count": swept}
            )
        again = [removal.instance.key for removal in due if self._is_registered(removal.instance.key)]
        if again:
            self._came_back(again)
        are_several = self._servers_behind() > 1 and len(self._peers.peers) == 1
        sweeps_longer = are_several and len(due) <= MOST_SWEPT_LONGER
        sweep_after_seconds = windows.SWEEP_BEHIND_ONE_URL if sweeps_longer else windows.SWEEP
        with self._lock:
            for removal in due:
                key = removal.instance.key
                if removals.get(key) is removal:
                    del removals[key]
                    following = removal.next(sweep_after_seconds)
                    if following is not None:
                        removals[key] = following
                    if was_away:
                        self._sweep_elsewhere(peer, removal)
        return False

    def _run(self, peer: Peer) -> None:
        was_away = False
        while not self._stopped.wait(windows.SWEEP_TICK):
            if not self._peers.may_write():
                continue  # whoever leads checks, and removes
            try:
                was_away = self.sweep(peer, was_away=was_away)
            except RegistryError:
                # Whoever writes or renews there says so; what is due stays due.
                was_away = True
                self._stopped.wait(windows.RETRY)
            except LeadershipLost:
                self._stopped.wait(windows.RETRY)
            except Exception:  # noqa: BLE001 - the thread must check again
                _log.exception("removals could not be checked")

    def _sweep_elsewhere(self, peer: Peer, removal: _PendingSweep) -> None:
        """The server was away and may have told the others of the instance; the lock is held."""
        instance = removal.instance
        anew = _PendingSweep(instance, time.monotonic() + windows.SWEEP[0], former=removal.former)
        for url, removals in self._removals.items():
            pending = removals.get(instance.key)
            if url != peer.url and (pending is None or pending.instance is instance):
                removals[instance.key] = min(pending or anew, anew, key=lambda removal: removal.at)

    def _remove_again(self, peer: Peer, due: Sequence[_PendingSweep]) -> int:
        """Remove what a server holds of these as it was when they were removed; how many."""
        held = self._read(peer, [removal.instance.key for removal in due])
        self._peers.answered(peer)
        swept = 0
        for removal in due:
            instance = removal.instance
            found = held[instance.key]
            if removal.is_certain and self._is_left(removal, found):
                try:
                    swept += self._remove(peer, removal, found if len(due) == 1 else None)
                except RegistryRejected as error:
                    _not_swept(peer, instance.key, error)
            elif found is not None and found.owner:
                # Perhaps of another owner, to whom it was handed over: that may have come late as well.
                self._came_late(found)
        return swept

    def _read(self, peer: Peer, keys: Sequence[Key]) -> dict[Key, Instance | None]:
        """What is held there, one by one: a batch would renew what it reads, which is to be dead.

        Behind one URL it is asked more often, since each answer may be another server's.
        """
        refused: set[Key] = set()
        servers = self._servers_behind()
        held = _read_each(peer, keys, refused)
        for _ in range(2 * servers if servers > 1 else 0):
            missing = [key for key in keys if held[key] is None and key not in refused]
            if not missing:
                break
            held.update(_read_each(peer, missing, refused))
        return held

    def _remove(self, peer: Peer, removal: _PendingSweep, found: Instance | None) -> bool:
        """Remove what is left, from a server that holds it: only that one tells the others.

        :param found: as it was read just now; None where it must be read again, since of many the last is
            removed some time after all were read.
        """
        key = removal.instance.key
        again = found or peer.read(*key)
        # Behind one URL another server may have answered, which does not hold it.
        is_elsewhere = again is None and len(self._peers.peers) == 1
        if not is_elsewhere and not self._is_left(removal, again):
            return False
        # Where it was read, another server may answer next: a balancer takes them in turn.
        return any(not self._is_registered(key) and peer.deregister(*key) for _ in range(MOST_TRIES))

    def _is_left(self, removal: _PendingSweep, found: Instance | None) -> bool:
        """Whether what was found is what was removed, and not registered again, perhaps at this moment."""
        removed = removal.instance
        return (
            found is not None
            and (found.owner == removed.owner or found.owner in removal.former)
            and not self._is_registered(removed.key)
            and found.written_at_ms <= (removed.last_dirty_timestamp_ms or time.time() * 1000)
        )


def _read_each(peer: Peer, keys: Sequence[Key], refused: set[Key]) -> dict[Key, Instance | None]:
    """What is held there; one read that is refused for good, and so would be each time, stops no other.

    :param refused: is told of these, which count as not held.
    """
    try:
        return read_each(peer, keys)
    except RegistryRejected:
        held: dict[Key, Instance | None] = {}
    for key in keys:
        try:
            held[key] = peer.read(*key)
        except RegistryRejected as error:
            held[key] = None
            refused.add(key)
            _not_swept(peer, key, error)
    return held


def _not_swept(peer: Peer, key: Key, error: RegistryRejected) -> None:
    _log.warning(
        "not checked whether the instance is gone: the Eureka server refuses to say or to remove it",
        extra={"url": peer.url, "application": key[0], "instance": key[1], "error": str(error)},
    )
