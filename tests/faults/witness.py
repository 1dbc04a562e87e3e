"""Reads clusters and Eureka servers all the time, past proxies and caches, and records what must never
happen.

How readings are judged while parts are away:

* An endpoint counts as ready from the first reading that shows it ready to the first that does not. While
  an API server does not answer nothing is known, and nobody can change anything there.
* A server that was started again is empty: instances that it held before are not counted as lost.
* A missing instance is a complaint only if a *later* reading of its cluster still wants it.
* A readiness gate that opens is judged by the readings of the servers that answer: if callers had another pod
  of its syncer, each must have shown the pod for as long as they need.
* An instance that was wanted, unwanted and wanted again may be removed once more by old knowledge, and an
  unwanted one may stay UP for a moment: for as long as :mod:`tests.faults.excuse` says, and no longer than
  the active faults explain.
"""

from __future__ import annotations

import itertools
import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import requests

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.identity import ClusterOwner, parse_owner
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.syncer import DEFAULT_CONNECTION_NAME
from eurekube_provider.kube.access import KubeAccess
from tests.faults.excuse import (
    KNOWLEDGE_SECONDS,
    PROMPT_SECONDS,
    Excuses,
    Explains,
    allowance,
    brake_holds,
)
from tests.faults.expected import Expected, Key, Objects, expected_instances, stray_syncers
from tests.faults.gates import (
    LEARN_SECONDS,
    Gate,
    Gates,
    closed,
    gates_of,
    instance_that_callers_must_know,
    must_be_open_at,
    opened,
)
from tests.faults.judgement import Stay, Wishes, changed_others, losses, stays, still_staying

READ_SECONDS = 0.5

_SAYS = {
    re.compile(r"expired lease for (\S+)/(\S+)"): "let the Eureka lease lapse of",
    re.compile(r"Cancelled instance (\S+)/(\S+) \(replication"): "removed",
}
"""Patterns of a Eureka server's log about removed instances, which also show changes between two readings."""

_HOLDS = {
    re.compile(
        r"held back removals, keeping the instances registered syncer=([^\s/]+)/(\S+)"
    ): "the brake holds",
    re.compile(r"keeping a derived syncer for now: .* syncer=([^\s/]+)/(\S+)"): "a Service that left keeps",
}
"""Patterns of the operator's log lines about what stays for a minute."""


@dataclass(frozen=True, slots=True)
class Complaint:
    """Something that must not happen, with its time and the faults that were active."""

    at: datetime
    what: str
    faults: tuple[str, ...]

    def __str__(self) -> str:
        faults = "; ".join(self.faults) or "none"
        return f"{self.at:%H:%M:%S.%f} {self.what} (faults at that time: {faults})"


class LogReader:
    """A reader of a process's log that returns only new, complete lines."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._offset = log.stat().st_size if log.exists() else 0

    def read(self) -> str:
        """Return the complete lines that were logged since the last call."""
        if not self._log.exists():
            return ""
        with self._log.open("rb") as log:
            log.seek(self._offset)
            lines = log.read()
        whole = lines[: lines.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.decode(errors="replace")


@dataclass(slots=True)
class WatchedServer:
    """One Eureka server under observation.

    :param read: reads its instances past its caches.
    :param connection: the name that the operators' configuration has for it and its peers.
    :param staying: since when each unwanted instance is UP there.
    :param life: counts its starts.
    :param lacked_at: for instances that are UP: when the last reading began that did not show them so.
    :param read_at: when its last reading began; None if that was not answered.
    """

    name: str
    log: Path
    read: Callable[[], dict[Key, Instance]]
    connection: str = DEFAULT_CONNECTION_NAME
    held: dict[Key, Instance] = field(default_factory=dict)
    staying: dict[Key, Stay] = field(default_factory=dict)
    life: int = 0
    readings: int = 0
    lacked_at: dict[Key, float] = field(default_factory=dict)
    read_at: float | None = None

    def last_lacked(self, key: Key) -> float:
        """Return when the last reading began that did not show an instance UP; minus infinity if none."""
        held = self.held.get(key)
        if self.read_at is None or (held is not None and held.status is Status.UP):
            return self.lacked_at.get(key, -math.inf)
        return self.read_at


@dataclass(slots=True)
class WatchedCluster:
    """One cluster under observation.

    :param logs: of its operators.
    :param read_at: when its last reading began.
    :param changed_at: when a reading last differed from the one before.
    :param gates: the readiness gates of its pods.
    """

    access: KubeAccess
    name: str
    logs: Sequence[Path] = ()
    wishes: Wishes = field(default_factory=Wishes)
    read_at: float = 0.0
    changed_at: float = 0.0
    readings: int = 0
    gates: Gates = field(default_factory=dict)

    def wanted(self, connection: str) -> set[Key]:
        """Return the instances that are wanted UP at a server of this connection."""
        now = self.wishes.now
        return {key for key in self.wishes.since if now[key].eureka == connection}

    def unready(self, connection: str) -> set[Key]:
        """Return the instances that are wanted DOWN at a server of this connection."""
        now = self.wishes.now.items()
        return {key for key, one in now if one.status != "UP" and one.eureka == connection}


@dataclass(frozen=True, slots=True)
class _Suspicion:
    """An instance that a server no longer showed at time ``at``; the next reading of the cluster decides
    whether it was lost.
    """

    at: float
    key: Key
    server: int
    complaint: Complaint


class Witness:
    """A thread that checks the invariants until it is stopped.

    :param others: instances of somebody else that must stay as they are.
    :param active: names the faults that are on at the moment.
    :param excuses: the excuses; its slack multiplies the witness's patience.
    """

    def __init__(
        self,
        servers: Iterable[WatchedServer],
        clusters: Iterable[WatchedCluster],
        others: Iterable[Instance],
        active: Callable[[], tuple[str, ...]],
        excuses: Excuses,
    ) -> None:
        self.complaints: list[Complaint] = []
        self.servers = list(servers)
        self.clusters = list(clusters)
        self.others = {one.key: one for one in others}
        self._active = active
        self._excuses = excuses
        self._lock = threading.Lock()
        self._wished: set[Key] = set()
        self._out_of_service: dict[Key, float] = {}
        self._suspicions: list[_Suspicion] = []
        self._overdue: set[tuple[int, Key, float]] = set()
        self._excused: set[tuple[int, Key, float]] = set()
        self._late: set[tuple[str, float]] = set()
        self._calm_since: float | None = None
        self.waited_gates = 0
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._watch_server, args=(number,), name=f"witness-{one.name}")
            for number, one in enumerate(self.servers)
        ] + [
            threading.Thread(target=self._watch_cluster, args=(one,), name=f"witness-{one.name}")
            for one in self.clusters
        ]

    def start(self) -> None:
        """Start reading."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop reading."""
        self._stopped.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def begins_again(self, number: int) -> None:
        """Note that a server is about to lose its memory, so that nothing it held counts as lost."""
        with self._lock:
            server = self.servers[number]
            server.life += 1
            server.held, server.staying = {}, {}
            server.lacked_at, server.read_at = {}, None

    def round_begins(self) -> None:
        """Note that faults begin, meanwhile a gate may stay closed."""
        with self._lock:
            self._calm_since = None

    def faults_are_over(self) -> None:
        """Note that every fault is over: gates must open in the time that callers need."""
        with self._lock:
            self._calm_since = time.monotonic()

    def unsettle(self, cluster_name: str, syncer: tuple[str, str]) -> None:
        """Note that a person edits this syncer, whose wishes may therefore change and change back between
        two readings.
        """
        with self._lock:
            for one in self.clusters:
                if one.name == cluster_name:
                    one.wishes = one.wishes.unsettled(syncer, time.monotonic())

    def may_go_out_of_service(self, key: Key) -> None:
        """Note that a person is about to take an instance out of service."""
        with self._lock:
            self._wished.add(key)

    def expect_out_of_service(self, key: Key) -> None:
        """Note that a person has taken an instance out of service: from now on no server may show it UP
        while it exists.
        """
        with self._lock:
            self._out_of_service[key] = time.monotonic()

    @property
    def out_of_service(self) -> set[Key]:
        """Return the instances that a person took out of service and that are still there."""
        with self._lock:
            return set(self._out_of_service)

    @property
    def changed_at(self) -> float:
        """The time of the last change in any cluster's wishes, in ``time.monotonic()``."""
        with self._lock:
            return max(one.changed_at for one in self.clusters)

    def differences(self) -> list[str]:
        """Return how the servers differ now from what the clusters want; empty if they agree.

        :raises KubernetesError: a cluster cannot be read.
        :raises requests.exceptions.RequestException: a server cannot be read.
        """
        everything: dict[Key, Expected] = {}
        found: list[str] = []
        for one in self.clusters:
            objects = Objects.read(one.access)
            everything |= expected_instances(objects, one.name, self.others.values())
            found += stray_syncers(objects)
        ours = {one.name for one in self.clusters}
        out_of_service = self.out_of_service
        for server in self.servers:
            held = server.read()
            wanted = {key: one for key, one in everything.items() if one.eureka == server.connection}
            there = {
                key: one
                for key, one in held.items()
                if isinstance(owner := parse_owner(one.owner), ClusterOwner)
                and owner.cluster in ours
                and key not in self.others
            }
            found += [f"{server.name} lacks {key[1]}" for key in wanted.keys() - there.keys()]
            found += [f"{server.name} still has {key[1]}" for key in there.keys() - wanted.keys()]
            for key in wanted.keys() & there.keys():
                status = wanted[key].status
                if status == "UP" and key in out_of_service:
                    status = "OUT_OF_SERVICE"
                have, want = (there[key].status, there[key].ip_address), (status, wanted[key].address)
                if have != want:
                    found.append(f"{server.name} has {key[1]} as {' '.join(have)}, not {' '.join(want)}")
            if server.connection == DEFAULT_CONNECTION_NAME:
                found += [
                    f"{server.name} lacks {key[1]} of somebody else" for key in self.others if key not in held
                ]
        return sorted(found)

    def _watch_cluster(self, cluster: WatchedCluster) -> None:
        logs = [LogReader(one) for one in cluster.logs]
        while not self._stopped.wait(READ_SECONDS):
            began = time.monotonic()
            for log in logs:
                text = log.read()
                for pattern, words in _HOLDS.items():
                    for syncer in pattern.findall(text):
                        given = brake_holds(cluster.name, syncer)
                        self._excuses.give(f"{words} {'/'.join(syncer)}", given, began)
            try:
                objects = Objects.read(cluster.access)
            except KubernetesError:
                continue
            now = expected_instances(objects, cluster.name, self.others.values())
            with self._lock:
                is_first = not cluster.readings
                self._take_reading(cluster, now, began)
                before, cluster.gates = cluster.gates, gates_of(objects, cluster.gates, began)
                if not is_first:
                    self._judge_gates(cluster, before, time.monotonic())

    def _take_reading(self, cluster: WatchedCluster, now: dict[Key, Expected], began: float) -> None:
        if now != cluster.wishes.now:
            cluster.changed_at = time.monotonic()
        cluster.wishes = cluster.wishes.read(now, began)
        cluster.read_at = began
        cluster.readings += 1
        ours = f".{cluster.name}:"
        decided = [one for one in self._suspicions if one.at < began and ours in one.key[1]]
        for one in decided:
            self._suspicions.remove(one)
            if one.key in cluster.wishes.since:
                self._decide(cluster, one)
        cluster.wishes = cluster.wishes.without(self._settled(cluster, began))

    def _judge_gates(self, cluster: WatchedCluster, before: Gates, now: float) -> None:
        """Complain of gates that opened too early, were closed again, or are closed for too long."""
        for gate in closed(before, cluster.gates):
            self.complaints.append(self._complaint(f"the gate of {'/'.join(gate.pod)} was closed again"))
        for gate in opened(before, cluster.gates):
            self._judge_opening(cluster, gate, now)
        spans = [
            span
            for number, server in enumerate(self.servers)
            for span in self._excuses.of(Explains.GATE, number, cluster.name, None)
            if span.excuse.server is not None and server.connection == DEFAULT_CONNECTION_NAME
        ]
        for uid, gate in cluster.gates.items():
            if gate.waits_since is None or self._calm_since is None:
                continue
            since = max(gate.waits_since, self._calm_since)
            is_late = cluster.read_at > must_be_open_at(since, self._excuses.slack, spans)
            if is_late and (uid, since) not in self._late:
                self._late.add((uid, since))
                what = f"the gate of {'/'.join(gate.pod)} is closed {cluster.read_at - since:.0f} s"
                self.complaints.append(self._complaint(f"{what} after the last fault"))

    def _judge_opening(self, cluster: WatchedCluster, gate: Gate, now: float) -> None:
        """Complain of a gate that opened before callers knew its pod by each server that answers."""
        key = instance_that_callers_must_know(gate, cluster.gates, cluster.wishes, cluster.name, now)
        if key is None:
            return
        self.waited_gates += 1
        mine, shown_since = cluster.wishes.now[key], now - LEARN_SECONDS
        for number, server in enumerate(self.servers):
            lacked_at = server.last_lacked(key)
            if server.connection != mine.eureka or server.read_at is None or lacked_at <= shown_since:
                continue
            spans = self._excuses.of(Explains.GATE, number, cluster.name, mine.syncer)
            faults = [span.fault for span in spans if span.until >= shown_since]
            self._excuses.used.update(faults)
            if not faults:
                what = f"the gate of {'/'.join(gate.pod)} opened {now - lacked_at:.1f} s after {server.name}"
                self.complaints.append(self._complaint(f"{what} lacked its instance"))

    def _decide(self, cluster: WatchedCluster, one: _Suspicion) -> None:
        """Complain of a lost instance, unless knowledge as old as a fault allows explains it."""
        syncer = cluster.wishes.now[one.key].syncer
        spans = self._excuses.of(Explains.LOSS, one.server, cluster.name, syncer)
        patience = KNOWLEDGE_SECONDS * self._excuses.slack
        allowed = cluster.wishes.may_be_lost_until(one.key, patience, spans)
        if one.at > allowed.until:
            self.complaints.append(one.complaint)
        elif allowed.faults:
            self._excuses.used.update(allowed.faults)

    def _settled(self, cluster: WatchedCluster, now: float) -> set[Key]:
        """Return doubted instances that no request based on old knowledge can affect any more."""
        patience = KNOWLEDGE_SECONDS * self._excuses.slack
        held = set[Key]().union(*(one.held for one in self.servers))
        found: set[Key] = set()
        for key, broken_at in cluster.wishes.doubted.items():
            wanted = cluster.wishes.now.get(key)
            if key not in cluster.wishes.since and key in held:
                continue
            since = cluster.wishes.since.get(key, broken_at)
            syncer = wanted.syncer if wanted else None
            if all(
                now
                > allowance(
                    since, patience, self._excuses.of(Explains.LOSS, number, cluster.name, syncer)
                ).until
                for number in range(len(self.servers))
            ):
                found.add(key)
        return found

    def _watch_server(self, number: int) -> None:
        server = self.servers[number]
        log = LogReader(server.log)
        while not self._stopped.wait(READ_SECONDS):
            life = server.life
            self._hear(number, log.read())
            began = time.monotonic()
            try:
                held = server.read()
            except (requests.exceptions.RequestException, ValueError):
                server.read_at = None
                continue
            with self._lock:
                server.readings += 1
                if life != server.life:
                    continue
                self._judge(number, server.held, held, began)
                server.held, server.read_at = held, began
                # Not as soon as no cluster wants it: while the brake holds it, the wish holds, too.
                there = {key for one in self.clusters for key in one.wishes.now}
                there = there.union(*(one.held for one in self.servers))
                self._out_of_service = {key: at for key, at in self._out_of_service.items() if key in there}
                self._wished &= there

    def _judge(
        self, number: int, before: dict[Key, Instance], held: dict[Key, Instance], began: float
    ) -> None:
        now = time.monotonic()
        server = self.servers[number]
        wanted = set[Key]().union(*(one.wanted(server.connection) for one in self.clusters))
        up, up_before = (
            {key for key, one in those.items() if one.status is Status.UP} for those in (held, before)
        )
        if server.read_at is not None:
            server.lacked_at |= dict.fromkeys(up - up_before, server.read_at)
        for key, how in losses(before, held, wanted, self._wished).items():
            self._suspect(number, now, key, f"{key[1]} is ready and was {how} {server.name}")
        self._judge_stays(number, held, wanted, now)
        for key in self._out_of_service.keys() & held.keys() & wanted:
            is_up = held[key].status is Status.UP  # DOWN while its pod is not ready
            if is_up and began >= self._out_of_service[key]:
                what = f"{key[1]}, out of service by a person's wish, was UP on {server.name}"
                self.complaints.append(self._complaint(what))
        for key in self.others.keys() & before.keys() - held.keys():
            self.complaints.append(self._complaint(f"{key[1]} of somebody else was gone from {server.name}"))
        for key in changed_others(held, self.others):
            what = f"{key[1]} of somebody else was changed on {server.name}: {held[key]}"
            self.complaints.append(self._complaint(what))

    def _judge_stays(self, number: int, held: dict[Key, Instance], wanted: set[Key], now: float) -> None:
        """Complain, once, of each unwanted instance that is UP for longer than any excuse allows."""
        server = self.servers[number]
        clusters = {one.name: one for one in self.clusters if one.readings}
        unready = set[Key]().union(*(one.unready(server.connection) for one in self.clusters))
        staying = stays(held, wanted, unready, clusters, self.others)
        server.staying = still_staying(server.staying, staying, now)
        patience = PROMPT_SECONDS * self._excuses.slack
        for key, stay in server.staying.items():
            since = stay.since
            if now <= since + patience or (number, key, since) in self._overdue:
                continue
            owner = parse_owner(held[key].owner)
            assert isinstance(owner, ClusterOwner)
            spans = self._excuses.of(stay.what, number, owner.cluster, (owner.namespace, owner.syncer))
            allowed = allowance(since, patience, spans)
            # Its cluster must have been read since: what it asks for again, it may have asked for before.
            if min(now, clusters[owner.cluster].read_at) <= allowed.until:
                if (number, key, since) not in self._excused:
                    self._excused.add((number, key, since))
                    self._excuses.used.update(allowed.faults)
                continue
            self._overdue.add((number, key, since))
            how = "not ready" if stay.what is Explains.UNREADY else "gone"
            what = f"{key[1]} is {how} and was UP on {server.name} for {now - since:.0f} s"
            if allowed.faults:
                what += (
                    f", {now - allowed.until + patience:.0f} s after the end of {'; '.join(allowed.faults)}"
                )
            self.complaints.append(self._complaint(what))

    def _hear(self, number: int, text: str) -> None:
        """Judge the new lines of a server's log about instances."""
        server = self.servers[number]
        for pattern, words in _SAYS.items():
            for key in pattern.findall(text):
                with self._lock:
                    if key in self.others:
                        what = f"{server.name} {words} {key[1]} of somebody else"
                        self.complaints.append(self._complaint(what))
                    elif any(key in one.wanted(server.connection) for one in self.clusters):
                        what = f"{server.name} {words} {key[1]}, which is ready"
                        self._suspect(number, time.monotonic(), key, what)

    def _suspect(self, number: int, at: float, key: Key, what: str) -> None:
        self._suspicions.append(_Suspicion(at, key, number, self._complaint(what)))

    def _complaint(self, what: str) -> Complaint:
        return Complaint(datetime.now(UTC), what, self._active())


def summarised(complaints: Iterable[Complaint], most: int = 12) -> str:
    """Return the first complaints as text, a line each."""
    found = list(complaints)
    lines = [str(one) for one in itertools.islice(found, most)]
    if len(found) > most:
        lines.append(f"... and {len(found) - most} more")
    return "\n".join(lines)
