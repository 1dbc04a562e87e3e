"""Proofs that instances left a registry, for whoever must not take a gap in a list for one.

There are two. A server says in its delta that it deregistered the instance, or evicted it where there is no
other server that may have its renewals. Or no server holds it, by the uncached read of each: of a server that
was started a moment ago that proves nothing, since it may not have heard of the instance yet.

Source: AbstractInstanceRegistry.internalCancel and InstanceResource of Netflix/eureka.
"""

from __future__ import annotations

import math
import threading
import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable

from eurekube_provider.core.mirror_source import UnlistedInstances
from eurekube_provider.core.model import Instance, Key
from eurekube_provider.core.text import path_problem
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.registry.restart_detection import RestartDetection
from eurekube_provider.eureka.table import Table
from eurekube_provider.eureka.uncached_reads import READS_AT_ONCE, UncachedReads, read_everywhere

MOST_ASKED = 500
"""How many instances are asked for within :data:`.windows.PROOFS_COUNTED`, of each server: where all vanish
at once, as from one that lost its memory, the rest must wait."""

CHUNK = 2 * READS_AT_ONCE
"""How many instances are read at once: within two answers of each server."""


class RemovalProofs:
    """The proofs of one registry; any number of threads may share them."""

    def __init__(
        self,
        peers: Peers,
        table: Table,
        restarts: RestartDetection,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._peers, self._table, self._restarts = peers, table, restarts
        self._clock = clock
        self._lock = threading.Lock()
        self._asked: OrderedDict[Key, float] = OrderedDict()  # when, the longest ago first
        self._detected_at = -math.inf
        self._waiting: dict[Key, float] = {}  # since the last time that they had to wait

    def forget(self) -> None:
        """Forget of what stands again that it ever left, and that it was asked for."""
        self._table.forget_who_left()
        with self._lock:
            for table in (self._asked, self._waiting):
                for key in [key for key in table if self._table.holds(key)]:
                    del table[key]

    def find_unlisted(self, keys: Iterable[Key]) -> UnlistedInstances:
        """What became of instances that are listed no more; of what no request can name, nobody says.

        :raises RegistryError: no server answers.
        """
        asked = [key for key in dict.fromkeys(keys) if not any(map(path_problem, key))]
        with self._lock:
            gone = {key for key in asked if self._table.has_left(key)}
            rest = self._allowed([key for key in asked if key not in gone])
        if not rest:
            return UnlistedInstances((), frozenset(gone))
        found = self._read(rest)
        registered: list[Instance] = []
        are_all_heard = not found.failures and self._are_settled_and_alone
        for key in rest:
            held = found.newest(key)
            if held is not None:
                registered.append(held)
            elif are_all_heard:
                gone.add(key)
        return UnlistedInstances(tuple(registered), frozenset(gone))

    def _read(self, keys: list[Key]) -> UncachedReads:
        """Read in chunks, and all the rest at once when a server is silent.

        Of very many the nearest server has read all before one that is farther away has read half, and that
        would count as silent.
        """
        found = UncachedReads({}, {})
        while keys:
            count = len(keys) if found.failures else CHUNK
            found = found.joined(read_everywhere(self._peers, keys[:count]))
            keys = keys[count:]
        return found

    def _allowed(self, keys: list[Key]) -> list[Key]:
        """Choose the keys that may be asked for now, the longest ago first; the lock is held.

        Others wait that an earlier question left out. Where that was asked for longer ago it has its turn
        first: else a large application would keep all others from being asked for.
        """
        now = self._clock()
        may_be = MOST_ASKED - sum(now - at < windows.PROOFS_COUNTED for at in self._asked.values())
        here = set(keys)
        self._waiting = {key: at for key, at in self._waiting.items() if now - at < windows.PROOF_TURN}
        others = sorted(self._asked_at(key) for key in self._waiting if key not in here)
        allowed: list[Key] = []
        for key in sorted(keys, key=self._asked_at):
            if len(allowed) + bisect_left(others, self._asked_at(key)) < may_be:
                allowed.append(key)
            else:
                self._waiting[key] = now
        for key in allowed:
            self._waiting.pop(key, None)
            self._asked[key] = now
            self._asked.move_to_end(key)
        while self._asked and now - next(iter(self._asked.values())) > windows.PROOF_KEPT:
            self._asked.popitem(last=False)
        return allowed

    def _asked_at(self, key: Key) -> float:
        return self._asked.get(key, -math.inf)

    @property
    def _are_settled_and_alone(self) -> bool:
        """Whether every server has run for long enough, and is alone at its URL."""
        if not self._have_all_settled:
            return False
        now = self._clock()
        if now - self._detected_at > windows.TOPOLOGY:
            self._detected_at = now
            self._restarts.detect_behind_balancer()
        return self._have_all_settled

    @property
    def _have_all_settled(self) -> bool:
        return self._restarts.servers_behind == 1 and all(
            (self._restarts.runs_for(peer.url) or 0.0) >= windows.SERVER_SETTLED for peer in self._peers.peers
        )
