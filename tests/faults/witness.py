"""Watches clusters and Eureka servers all along, past proxies and caches, and notes what must never happen.

What a reading means while things are away:

* An endpoint counts as ready from the first reading that says so to the first that does not. An API server
  that does not answer says nothing: nobody changes anything there meanwhile.
* A server that was started anew is empty: what it does not hold then, it has not lost.
* An instance that went missing is complained of only after a *later* reading of its cluster still wants it.
* An instance that was wanted, then not, then wanted again may go once more while the operator's knowledge is
  old: for it a removal counts only after :data:`OLD_KNOWLEDGE_SECONDS`.
"""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import requests

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.identity import ClusterOwner, parse_owner
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.kube.access import KubeAccess
from lab.peering import SERVERS, Peering
from tests.faults.expected import Expected, Key, expected_instances

READ_SECONDS = 0.5
OLD_KNOWLEDGE_SECONDS = 120.0
"""By then the operator must have caught up with the source, the brake's hold included."""

_SAYS = {
    re.compile(r"expired lease for (\S+)/(\S+)"): "let the Eureka lease lapse of",
    re.compile(r"Cancelled instance (\S+)/(\S+) \(replication"): "removed",
}
"""A server's own words on what it does to an instance, between two readings too."""


@dataclass(frozen=True, slots=True)
class Complaint:
    """Something that must not happen, when it was seen, and what was being done to the world then."""

    at: datetime
    what: str
    faults: tuple[str, ...]

    def __str__(self) -> str:
        faults = "; ".join(self.faults) or "none"
        return f"{self.at:%H:%M:%S.%f} {self.what} (faults at that time: {faults})"


@dataclass(slots=True)
class Wanted:
    """What one cluster asks for, as it was read last; ``lock`` guards it.

    :param since: when each instance began to be wanted UP without a break.
    :param doubtful: those that have been wanted UP before and then were not.
    :param changed_at: when a reading last differed from the one before.
    """

    access: KubeAccess
    cluster_name: str
    now: dict[Key, Expected] = field(default_factory=dict)
    since: dict[Key, float] = field(default_factory=dict)
    doubtful: set[Key] = field(default_factory=set)
    changed_at: float = 0.0
    readings: int = 0


@dataclass(frozen=True, slots=True)
class _Suspicion:
    """What one server no longer showed at ``at``; the next reading of the cluster decides."""

    at: float
    key: Key
    complaint: Complaint


class Witness:
    """Checks the invariants until it is stopped.

    :param others: what belongs to somebody else and must stay as it is.
    :param active: names the faults that are on at the moment.
    """

    def __init__(
        self,
        eureka: Peering,
        clusters: Iterable[Wanted],
        others: Iterable[Instance],
        active: Callable[[], tuple[str, ...]],
    ) -> None:
        self.complaints: list[Complaint] = []
        self.clusters = list(clusters)
        self.others = {one.key: one for one in others}
        self.reads = [0] * SERVERS
        """How often each Eureka server was read."""

        self._eureka = eureka
        self._active = active
        self._lock = threading.Lock()
        self._held: list[dict[Key, Instance]] = [{} for _ in range(SERVERS)]
        self._lives = [0] * SERVERS
        self._out_of_service: set[Key] = set()
        self._suspicions: list[_Suspicion] = []
        self._log_offsets = [server.log.stat().st_size for server in eureka.servers]
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._watch_server, args=(number,), name=f"witness-eureka-{number + 1}")
            for number in range(SERVERS)
        ] + [
            threading.Thread(target=self._watch_cluster, args=(one,), name=f"witness-{one.cluster_name}")
            for one in self.clusters
        ]

    def start(self) -> None:
        """Begin to look."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def begins_anew(self, number: int) -> None:
        """A server is about to lose its memory: what it held before is no promise any more."""
        with self._lock:
            self._lives[number] += 1
            self._held[number] = {}

    def unsettle(self, cluster_name: str, syncer: tuple[str, str]) -> None:
        """A person edits this syncer: what it asks for may change and change back between two readings."""
        with self._lock:
            for one in self.clusters:
                if one.cluster_name == cluster_name:
                    keys = [key for key, wanted in one.now.items() if wanted.syncer == syncer]
                    one.doubtful.update(keys)
                    one.since.update(dict.fromkeys(keys, time.monotonic()))

    def expect_out_of_service(self, key: Key) -> None:
        """A person took it out of service: no server may call it UP as long as it is there."""
        with self._lock:
            self._out_of_service.add(key)

    @property
    def out_of_service(self) -> set[Key]:
        """What a person took out of service and is still there."""
        with self._lock:
            return set(self._out_of_service)

    @property
    def changed_at(self) -> float:
        """When a cluster last asked for something else, in ``time.monotonic()``."""
        with self._lock:
            return max(one.changed_at for one in self.clusters)

    def differences(self) -> list[str]:
        """How the servers differ, now, from what the clusters want; empty when all are level.

        :raises KubernetesError: a cluster does not say what it wants.
        :raises requests.exceptions.RequestException: a server does not say what it holds.
        """
        wanted: dict[Key, Expected] = {}
        for one in self.clusters:
            wanted |= expected_instances(one.access, one.cluster_name, self.others.values())
        ours = {one.cluster_name for one in self.clusters}
        out_of_service = self.out_of_service
        found: list[str] = []
        for number, server in enumerate(self._eureka.servers):
            held = self._eureka.listed(number)
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
            found += [
                f"{server.name} lacks {key[1]} of somebody else" for key in self.others if key not in held
            ]
        return sorted(found)

    def _watch_cluster(self, cluster: Wanted) -> None:
        while not self._stopped.wait(READ_SECONDS):
            began = time.monotonic()
            try:
                now = expected_instances(cluster.access, cluster.cluster_name, self.others.values())
            except KubernetesError:
                continue
            with self._lock:
                self._take_reading(cluster, now, began)

    def _take_reading(self, cluster: Wanted, now: dict[Key, Expected], began: float) -> None:
        if now != cluster.now:
            cluster.changed_at = time.monotonic()
        up = {key for key, one in now.items() if one.status == "UP"}
        # A pod may have been unready between two readings, as when a cluster misses its nodes for a moment.
        steady = {key for key in up if key not in cluster.now or cluster.now[key].turned == now[key].turned}
        for key in cluster.since.keys() - steady:
            del cluster.since[key]
            cluster.doubtful.add(key)
        for key in up - cluster.since.keys():
            cluster.since[key] = began
        cluster.now = now
        cluster.readings += 1
        ours = f".{cluster.cluster_name}:"
        decided = [one for one in self._suspicions if one.at < began and ours in one.key[1]]
        for one in decided:
            self._suspicions.remove(one)
            since = cluster.since.get(one.key)
            patience = OLD_KNOWLEDGE_SECONDS if one.key in cluster.doubtful else 0.0
            if since is not None and since + patience < one.at:
                self.complaints.append(one.complaint)

    def _watch_server(self, number: int) -> None:
        server = self._eureka.servers[number]
        while not self._stopped.wait(READ_SECONDS):
            life = self._lives[number]
            self._read_log(number)
            try:
                held = self._eureka.listed(number)
            except (requests.exceptions.RequestException, ValueError):
                continue
            with self._lock:
                self.reads[number] += 1
                if life != self._lives[number]:
                    continue
                self._judge(server.name, self._held[number], held)
                self._held[number] = held
                # Not as soon as no cluster wants it: while the brake holds it, the wish holds, too.
                self._out_of_service &= {key for one in self.clusters for key in one.now}.union(*self._held)

    def _judge(self, name: str, before: dict[Key, Instance], held: dict[Key, Instance]) -> None:
        now = time.monotonic()
        wanted = {key for one in self.clusters for key in one.since}
        for key in wanted & before.keys():
            if before[key].status is not Status.UP:
                continue
            if key not in held:
                self._suspect(now, key, f"{key[1]} is ready and was gone from {name}")
            elif held[key].status is not Status.UP and not held[key].is_overridden:
                self._suspect(now, key, f"{key[1]} is ready and was {held[key].status} on {name}")
        for key in self._out_of_service & held.keys() & wanted:
            if held[key].status is Status.UP:  # DOWN while its pod is not ready
                what = f"{key[1]}, out of service by a person's wish, was UP on {name}"
                self.complaints.append(self._complaint(what))
        for key, planted in self.others.items():
            if key in before and key not in held:
                self.complaints.append(self._complaint(f"{key[1]} of somebody else was gone from {name}"))
            elif key in held and held[key].wanted() != planted.wanted():
                what = f"{key[1]} of somebody else was changed on {name}: {held[key]}"
                self.complaints.append(self._complaint(what))

    def _read_log(self, number: int) -> None:
        """Hear from a server what it did to instances, also between two readings."""
        server = self._eureka.servers[number]
        with server.log.open("rb") as log:
            log.seek(self._log_offsets[number])
            lines = log.read()
        whole = lines[: lines.rfind(b"\n") + 1]
        self._log_offsets[number] += len(whole)
        text = whole.decode(errors="replace")
        for pattern, words in _SAYS.items():
            for key in pattern.findall(text):
                with self._lock:
                    if key in self.others:
                        what = f"{server.name} {words} {key[1]} of somebody else"
                        self.complaints.append(self._complaint(what))
                    elif any(key in one.since for one in self.clusters):
                        self._suspect(
                            time.monotonic(), key, f"{server.name} {words} {key[1]}, which is ready"
                        )

    def _suspect(self, at: float, key: Key, what: str) -> None:
        self._suspicions.append(_Suspicion(at, key, self._complaint(what)))

    def _complaint(self, what: str) -> Complaint:
        return Complaint(datetime.now(UTC), what, self._active())


def summarised(complaints: Iterable[Complaint], most: int = 12) -> str:
    """The first complaints, one a line."""
    found = list(complaints)
    lines = [str(one) for one in itertools.islice(found, most)]
    if len(found) > most:
        lines.append(f"... and {len(found) - most} more")
    return "\n".join(lines)
