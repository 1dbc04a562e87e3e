"""Rolling updates by hand: endpoints change in slices, and Eureka servers are read until they show each
change.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from dataclasses import field as member

from bench.field import BenchLab, endpoint
from bench.prober import Key, Prober, RawPatches

SERVICE_COUNT = 100
START_ENDPOINTS = 10
"""Number of endpoints of a service at the start."""

WRITER_COUNT = 8
ENDPOINT_NUMBERS_PER_CONTESTANT = 100_000
"""Number of endpoint numbers reserved for one contestant."""

MIN_READ_INTERVAL_SECONDS = 0.005
"""Shortest time in seconds between two reads of a followed change: the readers leave the processors to the
contestants.
"""

READ_INTERVAL_SHARE = 0.05
"""Time between two reads of a followed change later on, as a share of the time that the change has taken
so far.
"""

GONE = "gone"
_GIVEN_UP_SECONDS = 20.0


@dataclass(slots=True)
class Rollout:
    """One service under rolling updates: the endpoints of its slice, with the states that a registry must
    show.
    """

    namespace: str
    name: str
    number: int
    endpoints: dict[int, str] = member(default_factory=dict)
    turn: int = 0

    def change_next_endpoint(self) -> tuple[int, str, bytes]:
        """Change one endpoint; in turn a new one comes unready, becomes ready, an old one terminates, and
        disappears.

        :returns: the endpoint's number, its new state, and the JSON patch of its slice.
        """
        kind, self.turn = self.turn % 4, self.turn + 1
        if kind == 0:
            self.number += 1
            self.endpoints[self.number] = "DOWN"
            return self.number, "DOWN", _endpoint_patch("add", "/-", endpoint(self.number, ready=False))
        if kind == 1:
            self.endpoints[self.number] = "UP"
            conditions = endpoint(self.number)["conditions"]
            place = len(self.endpoints) - 1
            return self.number, "UP", _endpoint_patch("replace", f"/{place}/conditions", conditions)
        oldest = next(iter(self.endpoints))
        if kind == 2:
            self.endpoints[oldest] = GONE
            conditions = endpoint(oldest, ready=False, terminating=True)["conditions"]
            return oldest, GONE, _endpoint_patch("replace", "/0/conditions", conditions)
        del self.endpoints[oldest]
        return oldest, GONE, _endpoint_patch("remove", "/0")

    def slice_endpoints(self) -> list[dict[str, object]]:
        """Return the slice's endpoints."""
        return [
            endpoint(number, ready=state == "UP", terminating=state == GONE)
            for number, state in self.endpoints.items()
        ]


def _endpoint_patch(operation: str, place: str, value: object = None) -> bytes:
    """Return the JSON patch of one endpoint."""
    step = {"op": operation, "path": f"/endpoints{place}"} | ({"value": value} if value is not None else {})
    return json.dumps([step], separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Change:
    """A patch that alters the instances which Eureka must hold.

    :ivar sent: by the monotonic clock, in seconds.
    :ivar version: the resource version that the slice had then.
    :ivar state: the status that the instance shall have, or :data:`GONE`.
    """

    sent: float
    namespace: str
    name: str
    version: str
    key: Key
    state: str


@dataclass(slots=True)
class ChangeLag:
    """Milliseconds that one change took until each server showed it, by URL."""

    sent: float
    key: Key
    state: str
    shown: dict[str, float] = member(default_factory=dict)
    is_superseded: bool = False


class Churn:
    """The changes of one contestant, made in turns.

    :param identify: returns the instance id that the contestant gives to an endpoint of a service.
    :param followed: the share of changes that are followed until every server shows them.
    """

    def __init__(
        self,
        field: BenchLab,
        namespace: str,
        offset: int,
        identify: Callable[[str, int], str],
        followed: float,
    ) -> None:
        self._field = field
        self._identify = identify
        self._share = followed
        self.rollouts: list[Rollout] = []
        for service in range(SERVICE_COUNT):
            first = offset + service * ENDPOINT_NUMBERS_PER_CONTESTANT // SERVICE_COUNT
            states = dict.fromkeys(range(first, first + START_ENDPOINTS), "UP")
            rollout = Rollout(namespace, f"{namespace}-{service}", first + START_ENDPOINTS - 1, states)
            self.rollouts.append(rollout)
            field.create_service(namespace, rollout.name, rollout.slice_endpoints())
        self._latest: dict[Key, str] = {}
        self._turn = 0
        self.clear_measurements()

    def clear_measurements(self) -> None:
        """Forget all measurements so far."""
        self.made = 0
        self.seconds = 0.0
        self.changes: list[Change] = []
        self.lags: list[ChangeLag] = []
        self.lost: list[Key] = []

    @property
    def superseded_count(self) -> int:
        """Number of followed changes that some server never showed, since the next change of the instance
        came first.
        """
        return sum(lag.is_superseded for lag in self.lags)

    def lag_milliseconds(self, choose: Callable[[Iterable[float]], float]) -> list[float]:
        """Return the milliseconds of each change that all servers showed; ``choose`` (``min`` or ``max``)
        picks the server.
        """
        count = len(self._field.lab.eureka_urls)
        return [choose(lag.shown.values()) for lag in self.lags if len(lag.shown) == count]

    def expected_statuses(self) -> dict[Key, str]:
        """Return the instances that the registry must hold, with their states."""
        return {
            (rollout.name.upper(), self._identify(rollout.name, number)): state
            for rollout in self.rollouts
            for number, state in rollout.endpoints.items()
            if state != GONE
        }

    def find_differences(self) -> set[tuple[str, Key]]:
        """Return the servers and keys where a server holds another state than it must."""
        wanted = self.expected_statuses()
        asked = list(wanted.keys() | self._latest.keys())
        found: set[tuple[str, Key]] = set()
        for url in self._field.lab.eureka_urls:
            prober = Prober(url)
            there = prober.read_statuses(asked)
            prober.close()
            found |= {(url, key) for key in asked if wanted.get(key) != there.get(key)}
        return found

    def run(self, rate: int, seconds: float) -> None:
        """Make ``rate`` changes a second for ``seconds``, and wait until the followed ones are shown or
        given up.
        """
        followed: list[ChangeLag] = []
        written = threading.Event()
        followers = [
            threading.Thread(target=self._follow_changes, args=(url, followed, written))
            for url in self._field.lab.eureka_urls
        ]
        for follower in followers:
            follower.start()
        try:
            with ThreadPoolExecutor(WRITER_COUNT) as pool:
                lanes = range(WRITER_COUNT)
                made = list(pool.map(lambda lane: self.write_changes(lane, rate, seconds, followed), lanes))
        finally:
            written.set()
            for follower in followers:
                follower.join()
        self._turn += 1
        self.made += sum(made)
        self.seconds += seconds
        self.lags += followed

    def record_expected_status(self, key: Key, state: str) -> None:
        """Record the state that the registry must show for an instance from now on."""
        self._latest[key] = state

    def write_changes(self, lane: int, rate: int, seconds: float, followed: list[ChangeLag]) -> int:
        """Make one writer's changes; return their number."""
        rollouts = self.rollouts[lane::WRITER_COUNT]
        chance = random.Random(f"{self._turn} {lane}")  # noqa: S311 - repeatable
        patches = RawPatches(self._field.lab.kubeconfig)
        pause, made = WRITER_COUNT / rate, 0
        started = time.monotonic() + lane / rate
        while (now := time.monotonic()) < started + seconds:
            due = started + made * pause
            if now < due:
                time.sleep(due - now)
            rollout = chance.choice(rollouts)
            number, state, patch = rollout.change_next_endpoint()
            key = (rollout.name.upper(), self._identify(rollout.name, number))
            alters = state != GONE or number in rollout.endpoints
            if alters:
                self.record_expected_status(key, state)
            sent = time.monotonic()
            version = patches.patch(rollout.namespace, rollout.name, patch)
            if alters:
                self.changes.append(Change(sent, rollout.namespace, rollout.name, version, key, state))
                if chance.random() < self._share:
                    followed.append(ChangeLag(sent, key, state))
            made += 1
        patches.close()
        return made

    def _follow_changes(self, url: str, followed: list[ChangeLag], written: threading.Event) -> None:
        """Read one server until it has shown each followed change, or never will."""
        prober = Prober(url)
        pending: list[tuple[float, ChangeLag]] = []
        taken = 0
        while True:
            is_last = written.is_set()
            new = followed[taken:]
            taken += len(new)
            pending += [(0.0, lag) for lag in new]
            pending = [again for due, lag in pending if (again := self._read_change(prober, url, due, lag))]
            if is_last and not pending and taken == len(followed):
                break
            time.sleep(MIN_READ_INTERVAL_SECONDS)
        prober.close()

    def _read_change(
        self, prober: Prober, url: str, due: float, lag: ChangeLag
    ) -> tuple[float, ChangeLag] | None:
        """Read a change at one server if it is due; return when to read it again, or None when it is done."""
        if time.monotonic() < due:
            return due, lag
        found = prober.read(lag.key)
        now = time.monotonic()
        waited = now - lag.sent
        if (found["status"] if found else GONE) == lag.state:
            lag.shown[url] = waited * 1000
        elif self._latest[lag.key] != lag.state:
            lag.is_superseded = True
        elif waited > _GIVEN_UP_SECONDS:
            self.lost.append(lag.key)
        else:
            return now + max(MIN_READ_INTERVAL_SECONDS, READ_INTERVAL_SHARE * waited), lag
        return None
