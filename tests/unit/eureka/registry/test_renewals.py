"""Renewals at a fake registry that can be held up, forget instances, and fail."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Any

import pytest

from eurekube_provider.core.errors import RegistryRejected, RegistryUnreachable
from eurekube_provider.core.model import EurekaLease, Instance, Port, Status
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.protocol.batch import MOST_ITEMS_PER_BATCH, ItemResponse, chunks
from eurekube_provider.eureka.registry import renewals as module
from eurekube_provider.eureka.registry.renewals import Renewals
from eurekube_provider.eureka.table import InstanceTable
from eurekube_provider.runtime.clock import boot_clock_seconds
from lab.waiting import wait_until

WAIT_SECONDS = 10
Key = tuple[str, str]


def instance(
    number: int = 1, renewal_interval_seconds: int = 30, lease_seconds: int = 90, **fields: Any
) -> Instance:
    """Return an instance with a key of its own."""
    return Instance(
        "rating",
        f"rating-{number}",
        "10.0.0.1",
        "10.0.0.1",
        Port(8080),
        lease=EurekaLease(renewal_interval_seconds, lease_seconds),
        last_dirty_timestamp_ms=1,
        **fields,
    )


class FakePeer:
    """A server that takes batches."""

    def __init__(self, url: str, of: FakePeers) -> None:
        self.url = url
        self.sizes: list[int] = []
        self.away = False
        self.most_items = 250
        self._of = of

    def __repr__(self) -> str:
        return self.url

    def send_batch(self, items: Sequence[bytes]) -> list[ItemResponse]:
        """Take a batch of heartbeats, and return one answer for each."""
        if self.away or len(items) > self.most_items:
            raise RegistryUnreachable(f"{self.url} is away", url=self.url)
        self.sizes.append(len(items))
        return [self._carry_out(item) for item in map(json.loads, items)]

    def _carry_out(self, item: dict[str, Any]) -> ItemResponse:
        key = (item["appName"], item["id"])
        if item["action"] != "Register":
            return self._of.answer(key, self)
        self._of.registered.append((self.url, key))
        return ItemResponse(200)

    def read(self, application: str, instance_id: str) -> Instance | None:
        """Return the instance that is there; None for none."""
        return self._of.read(application, instance_id)


class FakePeers:
    """The part of Peers that renewals use: plain renewals to any server, or batches to each."""

    def __init__(self, urls: Sequence[str] = ("http://one/eureka",), *, batches: bool = False) -> None:
        self.peers = tuple(FakePeer(url, self) for url in urls)
        self.batches = batches
        self.renewed: Counter[Key] = Counter()
        self.table = InstanceTable()
        self.turns: list[int] = []
        self.by_peer: Counter[tuple[str, Key]] = Counter()
        self.times: dict[Key, list[float]] = {}
        self.forgotten: set[Key] = set()
        self.stored: dict[Key, Instance] = {}
        self.error: Exception | None = None
        self.errors: dict[Key, Exception] = {}
        self.tries: Counter[Key] = Counter()
        self.held: dict[Key, Instance] = {}
        self.reads = 0
        self.read_error: RegistryUnreachable | None = None
        self.register_error: RegistryUnreachable | None = None
        self.registered: list[tuple[str, Key]] = []
        self.registered_at: dict[Key, list[float]] = {}
        self.writes = True
        self.seconds = 0.0
        self.most_at_once = 0
        self.gate = threading.Event()
        self.gate.set()
        self.over = threading.Event()
        self.waiting = 0
        self._lock = threading.Lock()

    def uses_batches(self, _leases: int) -> bool:
        """Return whether batches are used."""
        return self.batches

    def renew(self, renewed: Instance, turn: int) -> bool:
        """Take a plain renewal, and return whether the instance is held."""
        self.turns.append(turn)
        return self.answer(renewed.key, None).status_code != 404

    def may_write(self) -> bool:
        """Return whether this replica leads."""
        return self.writes

    def read(self, application: str, instance_id: str) -> Instance | None:
        """Return the instance that is there; None for none."""
        self.reads += 1
        if self.read_error:
            raise self.read_error
        return self.held.get((application, instance_id))

    def ask_in_turn(self, ask: Callable[[Any], None]) -> None:
        """Take a plain registration."""
        if self.register_error:
            raise self.register_error
        ask(self)

    def register(self, registered: Instance) -> None:
        """Note a plain registration."""
        self.registered.append(("", registered.key))
        self.registered_at.setdefault(registered.key, []).append(boot_clock_seconds())

    def answer(self, key: Key, peer: FakePeer | None) -> ItemResponse:
        """Return the answer to one renewal, after the delay and the gate, or raise the error set for it."""
        with self._lock:
            self.waiting += 1
            self.most_at_once = max(self.most_at_once, self.waiting)
            self.tries[key] += 1
        self.over.wait(self.seconds)
        self.gate.wait(WAIT_SECONDS)
        with self._lock:
            self.waiting -= 1
            if self.error:
                raise self.error
            if key in self.errors:
                raise self.errors[key]
            self.renewed[key] += 1
            self.times.setdefault(key, []).append(boot_clock_seconds())
            if peer:
                self.by_peer[peer.url, key] += 1
            if key in self.forgotten:
                return ItemResponse(404)
            if key in self.stored:
                return ItemResponse(409, self.stored[key])
            return ItemResponse(200)


class Listening:
    """A listener that records what renewals find."""

    def __init__(self) -> None:
        self.lost: list[tuple[Instance, Any]] = []
        self.missing_counts: list[int] = []
        self.newer_ones: list[Instance] = []
        self.again: list[Any] = []
        self.error: Exception | None = None

    def instances_missing(self, instances: Sequence[Instance], peer: Any) -> None:
        """Record the missing instances, or raise the error of the test."""
        self.lost += [(one, peer) for one in instances]
        self.missing_counts.append(len(instances))
        if self.error:
            raise self.error

    def newer_version_found(self, stored: Instance) -> None:
        """Record the newer version that a server holds."""
        self.newer_ones.append(stored)

    def server_answers_again(self, peer: Any) -> None:
        """Record the server that answers again."""
        self.again.append(peer)


Start = Callable[..., Renewals]


@pytest.fixture
def listener() -> Listening:
    """Return a listener that records findings."""
    return Listening()


@pytest.fixture
def start(listener: Listening, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Yield a function that starts renewals with a tick of 0.02 s."""
    monkeypatch.setattr(windows, "RENEWAL_TICK_SECONDS", 0.02)
    monkeypatch.setattr(windows, "FIRST_RENEWAL_SECONDS", 0.1)
    monkeypatch.setattr(windows, "FIRST_RETRY_SECONDS", 0.02)
    running: list[tuple[Renewals, FakePeers]] = []

    def started(peers: FakePeers, interval_seconds: float = 0.2) -> Renewals:
        renewals = Renewals(peers, interval_seconds=interval_seconds)  # type: ignore[arg-type]
        running.append((renewals, peers))
        renewals.start(listener)
        return renewals

    yield started
    for renewals, peers in running:
        peers.gate.set()
        peers.over.set()
        renewals.stop()


def test_everything_is_renewed_again_and_again(start: Start) -> None:
    """All instances are renewed in each round, just registered or not."""
    peers = FakePeers()
    renewals = start(peers)
    for number in range(20):
        renewals.add(instance(number), just_registered=number % 2 == 0)
    wait_until(
        lambda: len(peers.renewed) == 20 and min(peers.renewed.values()) >= 3, "three rounds", WAIT_SECONDS
    )
    assert len(renewals) == 20
    assert ("RATING", "rating-1") in renewals
    assert renewals.counts.accepted >= 60
    assert renewals.counts.accepted_last_minute == renewals.counts.accepted
    assert (renewals.counts.missing, renewals.counts.failed) == (0, 0)


def test_a_servers_losses_are_reported_together(start: Start, listener: Listening) -> None:
    """After a server lost its memory, all instances that it lacks are reported in one call."""
    peers = FakePeers(batches=True)
    renewals = start(peers, interval_seconds=60.0)
    count = 3 * MOST_ITEMS_PER_BATCH
    for number in range(count):
        renewals.add(instance(number), just_registered=True)
        peers.forgotten.add(instance(number).key)
    renewals.renew_now(peers.peers[0], peers.forgotten)  # type: ignore[arg-type]
    wait_until(lambda: listener.missing_counts, "the 404s", WAIT_SECONDS)
    assert listener.missing_counts == [count]
    assert {one.key for one, _ in listener.lost} == peers.forgotten


def test_the_interval_is_kept(start: Start) -> None:
    """The median time between two renewals of an instance is about the interval."""
    peers = FakePeers()
    renewals = start(peers, interval_seconds=0.3)
    for number in range(10):
        renewals.add(instance(number), just_registered=False)
    wait_until(
        lambda: len(peers.times) == 10 and min(map(len, peers.times.values())) >= 4, "rounds", WAIT_SECONDS
    )
    gaps = [after - before for times in peers.times.values() for before, after in pairwise(times)]
    assert median(gaps) < 0.6


def test_everything_is_renewed_twice_a_minute_at_least(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Instances with a longer renewal interval are renewed each 30 s, too: servers expect this, and fewer
    renewals bring self-preservation nearer.
    """
    passed = [boot_clock_seconds()]
    monkeypatch.setattr(module, "boot_clock_seconds", lambda: passed[0])
    peers = FakePeers()
    renewals = start(peers, interval_seconds=windows.RENEWAL_INTERVAL_SECONDS)
    often, *others = [instance(number, promised) for number, promised in enumerate((1, 30, 3600))]
    for one in (often, *others):
        renewals.add(one, just_registered=True)
    for half_minute in (1, 2, 3):
        for _ in range(3):
            before = peers.renewed[often.key]
            passed[0] += 9.9
            wait_until(lambda: peers.renewed[often.key] > before, "the next tick", WAIT_SECONDS)  # noqa: B023
        wait_until(
            lambda: min(peers.renewed[one.key] for one in others) >= half_minute,  # noqa: B023
            "a renewal of each",
            WAIT_SECONDS,
        )


def test_a_shorter_promise_is_kept(start: Start) -> None:
    """An instance whose own renewal interval is shorter than the general one is renewed at its own."""
    peers = FakePeers()
    renewals = start(peers, interval_seconds=60)
    renewals.add(instance(renewal_interval_seconds=1), just_registered=True)
    wait_until(lambda: len(peers.times.get(instance().key, ())) >= 3, "three renewals", WAIT_SECONDS)


def test_a_promise_that_becomes_shorter_is_kept(start: Start) -> None:
    """When an instance's renewal interval becomes shorter, the new interval holds at once."""
    peers = FakePeers()
    renewals = start(peers, interval_seconds=60)
    renewals.add(instance(renewal_interval_seconds=60), just_registered=True)
    renewals.add(instance(renewal_interval_seconds=1), just_registered=True)
    wait_until(lambda: len(peers.times.get(instance().key, ())) >= 2, "two renewals", WAIT_SECONDS)


def test_what_is_listed_as_renewed_is_held_once(start: Start) -> None:
    """The listed object of a renewed instance replaces it; another version or instance changes nothing."""
    renewals = start(FakePeers(), interval_seconds=60)
    renewed = instance()
    renewals.add(renewed, just_registered=True)
    other = replace(renewed, last_dirty_timestamp_ms=7)
    stranger = replace(renewed, instance_id="stranger")
    renewals.hold_listed([other, stranger])
    assert renewals.get(renewed.key) is renewed
    assert renewals.get(stranger.key) is None
    listed = replace(renewed, last_updated_timestamp_ms=5)
    renewals.hold_listed([listed])
    assert renewals.get(renewed.key) is listed


def test_another_status_of_the_same_time_is_another_version(start: Start) -> None:
    """An instance is renewed in this version only with its timestamp, status and contents."""
    renewals = start(FakePeers())
    renewals.add(instance(), just_registered=True)
    assert renewals.is_renewed_as(replace(instance(), last_updated_timestamp_ms=7))
    for other in (
        replace(instance(), status=Status.OUT_OF_SERVICE),
        replace(instance(), last_dirty_timestamp_ms=2),
        replace(instance(), host_name="elsewhere"),
        instance(2),
    ):
        assert not renewals.is_renewed_as(other)


def test_renewals_are_spread(start: Start) -> None:
    """The first renewals of instances registered at one moment are spread over the interval."""
    peers = FakePeers()
    renewals = start(peers, interval_seconds=1.0)
    for number in range(100):
        renewals.add(instance(number), just_registered=True)
    wait_until(lambda: len(peers.renewed) == 100, "the first round", WAIT_SECONDS)
    first = sorted(times[0] for times in peers.times.values())
    assert first[-1] - first[0] > 0.3


@pytest.mark.parametrize("batches", [False, True])
def test_a_removal_waits_for_its_renewal_in_flight(start: Start, batches: bool) -> None:
    """A removal returns only when no renewal is under way that could restore the instance, and no renewal
    follows.
    """
    peers = FakePeers(batches=batches)
    renewals = start(peers)
    peers.gate.clear()
    renewals.add(instance(), just_registered=False)
    wait_until(lambda: peers.waiting, "the renewal", WAIT_SECONDS)
    removed = threading.Event()

    def remove() -> None:
        renewals.remove(instance().key)
        removed.set()

    remover = threading.Thread(target=remove)
    remover.start()
    assert not removed.wait(0.1)
    peers.gate.set()
    assert removed.wait(WAIT_SECONDS)
    remover.join()
    count = peers.renewed[instance().key]
    threading.Event().wait(0.5)  # two intervals in which nothing may happen
    assert peers.renewed[instance().key] == count
    assert instance().key not in renewals


def test_a_removal_of_what_is_not_renewed_returns_at_once(start: Start) -> None:
    """The removal of an instance that is not renewed does not wait."""
    start(FakePeers()).remove(instance().key)


def test_what_the_server_does_not_hold_is_reported_once(start: Start, listener: Listening) -> None:
    """A plain renewal that is answered with 404 is reported, and the instance is not renewed again."""
    peers = FakePeers()
    peers.forgotten = {instance().key}
    renewals = start(peers)
    renewals.add(instance(), just_registered=False)
    renewals.add(instance(2), just_registered=False)
    wait_until(lambda: listener.lost, "the 404", WAIT_SECONDS)  # its thread reports it after the answer
    before = peers.renewed[instance(2).key]
    wait_until(lambda: peers.renewed[instance(2).key] >= before + 4, "more rounds", WAIT_SECONDS)
    assert listener.lost == [(instance(), None)]
    assert peers.renewed[instance().key] == 1
    assert instance().key not in renewals
    assert renewals.counts.missing == 1


def test_what_came_back_is_renewed_again(start: Start, listener: Listening) -> None:
    """An instance that was missing is renewed again after it is registered again."""
    peers = FakePeers()
    peers.forgotten = {instance().key}
    renewals = start(peers)
    renewals.add(instance(), just_registered=False)
    wait_until(lambda: listener.lost, "the 404", WAIT_SECONDS)
    peers.forgotten = set()
    renewals.add(instance(), just_registered=True)
    wait_until(lambda: renewals.counts.accepted >= 2, "renewals", WAIT_SECONDS)


@pytest.mark.parametrize("error", [RegistryUnreachable("away"), RuntimeError("odd")])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_failure_is_retried(start: Start, error: Exception) -> None:
    """A renewal that fails with any error is counted and soon tried again."""
    peers = FakePeers()
    peers.error = error
    renewals = start(peers, interval_seconds=60)
    renewals.add(instance(), just_registered=False)
    wait_until(lambda: renewals.counts.failed >= 2, "failures", WAIT_SECONDS)
    peers.error = None
    wait_until(lambda: renewals.counts.accepted == 1, "the renewal", WAIT_SECONDS)
    assert instance().key in renewals


def test_a_refused_renewal_waits_for_its_turn(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """A renewal refused with 400 is tried again after its interval only, and logged once; others are not
    delayed.
    """
    peers = FakePeers()
    peers.errors = {instance().key: RegistryRejected("PUT: answered 400", status_code=400)}
    renewals = start(peers, interval_seconds=0.4)
    renewals.add(instance(), just_registered=False)
    renewals.add(instance(2), just_registered=False)
    wait_until(lambda: peers.renewed[instance(2).key] >= 5, "five rounds", WAIT_SECONDS)
    assert 3 <= peers.tries[instance().key] <= peers.renewed[instance(2).key] + 2
    assert renewals.counts.refused_instances == 1
    logged = [record for record in caplog.records if "refused to renew" in record.message]
    assert [vars(record)["instance"] for record in logged] == [instance().instance_id]
    peers.errors = {}
    wait_until(
        lambda: peers.renewed[instance().key] and not renewals.counts.refused_instances,
        "its renewal",
        WAIT_SECONDS,
    )


def fails_to_renew(code: int = 500) -> RegistryUnreachable:
    """Return the error of a renewal that a server answers with this status code."""
    return RegistryUnreachable(f"renew: answered {code}", status_code=code)


def test_a_500_to_one_instance_waits_for_its_turn(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """An instance whose renewals alone are answered with 500 is tried once more at once, then at its turns;
    it is counted as refused, and logged by name.
    """
    peers = FakePeers()
    peers.errors = {instance().key: fails_to_renew()}
    renewals = start(peers, interval_seconds=0.4)
    for number in range(1, 9):
        renewals.add(instance(number), just_registered=False)
    wait_until(lambda: peers.renewed[instance(2).key] >= 6, "six rounds", WAIT_SECONDS)
    assert peers.tries[instance().key] <= peers.renewed[instance(2).key] + 4
    assert renewals.counts.refused_instances == 1
    logged = [record for record in caplog.records if "refused to renew" in record.message]
    assert [vars(record)["instance"] for record in logged] == [instance().instance_id]
    assert not peers.registered  # its lease is long
    peers.errors = {}
    wait_until(lambda: not renewals.counts.refused_instances, "its renewal", WAIT_SECONDS)


@pytest.mark.parametrize("error", [fails_to_renew(), RegistryRejected("PUT: 405", status_code=405)])
@pytest.mark.parametrize("count_of_others", [0, 20])
def test_what_is_refused_for_long_is_registered(
    start: Start, monkeypatch: pytest.MonkeyPatch, error: Exception, count_of_others: int
) -> None:
    """If renewals are refused for half of a Eureka lease, of one instance or of all, each is registered
    again, once in that time and before its lease ends: that renews it.
    """
    monkeypatch.setattr(windows, "LONGEST_RETRY_SECONDS", 0.22)  # to the lease as 5 s to 90 s
    peers = FakePeers()
    peers.error = error
    ones = [instance(number, lease_seconds=4) for number in range(count_of_others + 1)]
    peers.held = {one.key: replace(one, last_dirty_timestamp_ms=2) for one in ones}
    renewals, began = start(peers, interval_seconds=0.4), boot_clock_seconds()
    for one in ones:
        renewals.add(one, just_registered=False)
    wait_until(
        lambda: len(peers.registered_at) == len(ones) and min(map(len, peers.registered_at.values())) >= 2,
        "two registrations of each",
        WAIT_SECONDS,
    )
    gaps = [after - before for times in peers.registered_at.values() for before, after in pairwise(times)]
    assert min(gaps) > 1.99
    assert max([*gaps, *(times[0] - began for times in peers.registered_at.values())]) < 4
    assert renewals.counts.refused_instances == len(ones)
    peers.error = None
    wait_until(lambda: not renewals.counts.refused_instances, "renewals", WAIT_SECONDS)
    registered = len(peers.registered)
    wait_until(lambda: min(peers.renewed.values()) > 4, "more of them", WAIT_SECONDS)
    assert len(peers.registered) == registered


@pytest.mark.parametrize("code", [503, 504, 429, 401])
def test_a_busy_server_gets_no_registrations(start: Start, code: int) -> None:
    """A server that is busy, or a gateway without a server, is asked for nothing in place of renewals."""
    peers = FakePeers()
    peers.error = fails_to_renew(code)
    peers.held = {instance().key: instance()}
    renewals = start(peers, interval_seconds=0.2)
    renewals.add(instance(lease_seconds=1), just_registered=False)
    threading.Event().wait(1.5)
    assert peers.tries
    assert (peers.reads, peers.registered) == (0, [])
    assert renewals.counts.refused_instances == 0


@pytest.mark.parametrize("name", ["read_error", "register_error"])
def test_a_server_that_fails_altogether_is_left_alone(
    start: Start, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A server that answers everything with 500 gets one request after the other, less and less often."""
    monkeypatch.setattr(windows, "LONGEST_RETRY_SECONDS", 0.2)
    peers = FakePeers()
    peers.error = fails_to_renew()
    setattr(peers, name, fails_to_renew())
    ones = [instance(number, lease_seconds=1) for number in range(50)]
    peers.held = {one.key: one for one in ones}
    renewals = start(peers, interval_seconds=0.4)
    for one in ones:
        renewals.add(one, just_registered=False)
    wait_until(lambda: peers.reads, "the first read", WAIT_SECONDS)
    before = peers.reads + peers.tries.total()
    threading.Event().wait(2.0)
    assert peers.reads + peers.tries.total() - before <= 2 * 2.0 / 0.2 + 2
    assert not peers.registered


@pytest.mark.parametrize(
    ("held", "writes"),
    [
        (instance(metadata={"eurekube.owner": "cluster/c/shop/other"}), True),
        (instance(overridden_status=Status.OUT_OF_SERVICE, status=Status.OUT_OF_SERVICE), True),
        (instance(), False),
    ],
    ids=["another-owner", "out-of-service", "not-leading"],
)
def test_refused_instances_that_are_not_registered(start: Start, held: Instance, *, writes: bool) -> None:
    """An instance of another owner, or out of service, is not registered in place of a renewal; a replica
    that does not lead registers none.
    """
    peers = FakePeers()
    peers.error, peers.writes = fails_to_renew(), writes
    peers.held = {held.key: held}
    renewals = start(peers, interval_seconds=0.2)
    renewals.add(instance(lease_seconds=1), just_registered=False)
    threading.Event().wait(2.0)
    assert peers.tries.total() > 2
    assert bool(peers.reads) is writes
    assert not peers.registered


def test_a_stacks_instance_is_left_to_lapse(start: Start) -> None:
    """A stack's instance whose renewals are refused is not registered: it may just have been removed."""
    peers = FakePeers()
    peers.error = fails_to_renew()
    one = instance(lease_seconds=1, metadata={"eurekube.owner": "stack/o/p/s/rating"})
    peers.held = {one.key: one}
    start(peers, interval_seconds=0.2).add(one, just_registered=False)
    threading.Event().wait(1.5)
    assert peers.tries
    assert (peers.reads, peers.registered) == (0, [])


def test_each_server_that_refuses_in_batches_is_sent_a_registration(start: Start) -> None:
    """An instance whose renewals one of two servers refuses in batches is registered there alone."""
    peers = FakePeers(("http://one/eureka", "http://two/eureka"), batches=True)
    first, second = peers.peers
    ones = [instance(number, lease_seconds=2) for number in range(3)]
    peers.held = {one.key: one for one in ones}
    answer = peers.answer

    def refuse_at_second(key: Key, peer: FakePeer | None) -> ItemResponse:
        found = answer(key, peer)
        return ItemResponse(500) if peer is second and key == ones[0].key else found

    peers.answer = refuse_at_second  # type: ignore[method-assign]
    renewals = start(peers, interval_seconds=0.4)
    for one in ones:
        renewals.add(one, just_registered=False)
    wait_until(lambda: len(peers.registered) >= 2, "two registrations", WAIT_SECONDS)
    assert set(peers.registered) == {(second.url, ones[0].key)}
    assert peers.by_peer[first.url, ones[0].key] >= 2 * len(peers.registered)


def test_one_thread_tries_while_no_server_answers(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """While no server answers, one thread retries and the others wait; all continue once a retry succeeds."""
    monkeypatch.setattr(windows, "FIRST_RETRY_SECONDS", 0.2)
    monkeypatch.setattr(windows, "LONGEST_RETRY_SECONDS", 0.2)
    peers = FakePeers()
    peers.error = RegistryUnreachable("away")
    renewals = start(peers, interval_seconds=60)
    for number in range(100):
        renewals.add(instance(number), just_registered=False)
    wait_until(lambda: renewals.counts.failed, "the first failures", WAIT_SECONDS)
    threading.Event().wait(0.2)  # those that were under way with it
    began, before = boot_clock_seconds(), peers.tries.total()
    wait_until(lambda: peers.tries.total() >= before + 5, "five more tries", WAIT_SECONDS)
    assert boot_clock_seconds() - began > 0.6
    peers.error = None
    wait_until(lambda: len(peers.renewed) == 100, "all of them", WAIT_SECONDS)


def test_more_threads_where_servers_are_slow(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """With slow servers more than eight threads renew, up to a maximum, until the renewals are on time."""
    monkeypatch.setattr(windows, "LONGEST_RENEWAL_WAIT_SECONDS", 0.2)
    peers = FakePeers()
    peers.seconds = 0.1
    renewals = start(peers, interval_seconds=1.0)
    for number in range(120):
        renewals.add(instance(number), just_registered=True)
    wait_until(lambda: peers.most_at_once > module.PLAIN_THREADS, "more of them", WAIT_SECONDS)
    wait_until(lambda: min(peers.renewed.values()) > 2, "more rounds", WAIT_SECONDS)
    wait_until(lambda: renewals.counts.overdue_seconds < 1.0, "the end of the delay", WAIT_SECONDS)
    assert peers.most_at_once <= module.MOST_PLAIN_THREADS


def test_who_falls_behind_says_so(
    start: Start, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Late renewals are logged once with their number, and once more when they are on time again."""
    monkeypatch.setattr(windows, "LONGEST_RENEWAL_WAIT_SECONDS", 60.0)
    peers = FakePeers()
    peers.seconds = 0.1
    renewals = start(peers, interval_seconds=0.4)
    for number in range(200):
        renewals.add(instance(number), just_registered=True)
    wait_until(lambda: renewals.counts.overdue_seconds > 0.6, "the delay", WAIT_SECONDS)
    wait_until(lambda: "renewals fall behind" in caplog.text, "the warning", WAIT_SECONDS)
    peers.seconds = 0.0
    peers.over.set()
    wait_until(lambda: "on time again" in caplog.text, "the end of it", WAIT_SECONDS)
    assert caplog.text.count("renewals fall behind") == 1


def test_a_server_gets_what_it_lacks_while_there_is_more_to_do(
    start: Start, listener: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missing instances are reported even while the sender is never idle."""
    monkeypatch.setattr(windows, "GATHER_MISSING_SECONDS", 0.1)
    peers = FakePeers(batches=True)
    peers.seconds = 0.002
    peers.forgotten = {instance(number).key for number in range(0, 3000, 100)}
    renewals = start(peers, interval_seconds=0.2)  # a batch of 250 takes half a second
    for number in range(3000):
        renewals.add(instance(number), just_registered=True)
    wait_until(lambda: renewals.counts.overdue_seconds, "the work", WAIT_SECONDS)
    wait_until(lambda: listener.missing_counts, "what is missing", WAIT_SECONDS)
    assert renewals.counts.overdue_seconds


def test_a_listener_that_fails_stops_nothing(start: Start, listener: Listening) -> None:
    """Renewals continue after the listener of their findings raises."""
    listener.error = RuntimeError("odd")
    peers = FakePeers()
    peers.forgotten = {instance().key}
    renewals = start(peers)
    renewals.add(instance(), just_registered=False)
    renewals.add(instance(2), just_registered=False)
    wait_until(lambda: listener.lost and peers.renewed[instance(2).key] >= 3, "more rounds", WAIT_SECONDS)


def test_new_contents_are_renewed_from_then_on(start: Start, listener: Listening) -> None:
    """An instance added again under its key replaces the earlier contents, and is renewed once per
    interval.
    """
    peers = FakePeers()
    renewals = start(peers)
    renewals.add(instance(), just_registered=True)
    newer = replace(instance(), last_dirty_timestamp_ms=2)
    renewals.add(newer, just_registered=True)
    assert len(renewals) == 1
    peers.forgotten = {instance().key}
    wait_until(lambda: listener.lost, "the 404", WAIT_SECONDS)
    assert listener.lost == [(newer, None)]


def test_many_are_renewed_in_batches_on_every_server(start: Start) -> None:
    """Batches go to each server, with at most 250 items each."""
    peers = FakePeers(("http://one/eureka", "http://two/eureka"), batches=True)
    renewals = start(peers)
    for number in range(600):
        renewals.add(instance(number), just_registered=False)
    wait_until(lambda: len(peers.by_peer) == 1200, "all on both", WAIT_SECONDS)
    sizes = [size for peer in peers.peers for size in peer.sizes]
    assert max(sizes) <= 250
    assert len(sizes) < 600


def test_a_batch_is_no_larger_than_servers_send_each_other() -> None:
    """600 items are split into batches of at most 250, the size that servers use between each other."""
    assert [len(chunk) for chunk in chunks(range(600))] == [250, 250, 100]


def test_a_server_that_lacks_one_says_which_server(start: Start, listener: Listening) -> None:
    """A 404 within a batch is reported with its server, and the instance is still renewed at the others."""
    peers = FakePeers(("http://one/eureka", "http://two/eureka"), batches=True)
    peers.forgotten = {instance().key}
    renewals = start(peers)
    renewals.add(instance(), just_registered=False)
    wait_until(lambda: {peer for _, peer in listener.lost} == set(peers.peers), "both servers", WAIT_SECONDS)
    assert instance().key in renewals


def test_a_newer_version_is_reported(start: Start, listener: Listening) -> None:
    """A 409 within a batch counts as a renewal, and the newer version that the server holds is reported."""
    peers = FakePeers(batches=True)
    stored = replace(instance(), last_dirty_timestamp_ms=7)
    peers.stored = {instance().key: stored}
    renewals = start(peers)
    renewals.add(instance(), just_registered=False)
    wait_until(lambda: listener.newer_ones, "the newer version", WAIT_SECONDS)
    assert listener.newer_ones[0] == stored
    assert instance().key in renewals


def test_a_server_that_is_away_delays_nobody_else(start: Start, listener: Listening) -> None:
    """Batches to a server that is away are retried without delaying other servers, and its return is
    reported.
    """
    peers = FakePeers(("http://one/eureka", "http://two/eureka"), batches=True)
    one, two = peers.peers
    one.away = True
    renewals = start(peers)
    renewals.add(instance(), just_registered=False)
    wait_until(lambda: peers.by_peer[two.url, instance().key] >= 3, "renewals on the other", WAIT_SECONDS)
    assert peers.by_peer[one.url, instance().key] == 0
    assert renewals.counts.failed >= 1
    one.away = False
    wait_until(lambda: peers.by_peer[one.url, instance().key] >= 1, "renewals on the first", WAIT_SECONDS)
    assert listener.again == [one]


def test_renewals_of_one_instance_are_counted(start: Start) -> None:
    """Each plain renewal has its number among the instance's renewals, so that servers can take turns."""
    peers = FakePeers()
    start(peers).add(instance(), just_registered=False)
    wait_until(lambda: len(peers.turns) > 3, "four renewals", WAIT_SECONDS)
    assert peers.turns[:4] == [1, 2, 3, 4]


def test_a_server_that_batches_never_reach(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """While batches to one server fail for long, plain renewals are sent as well: the other servers replicate
    them to it.
    """
    monkeypatch.setattr(windows, "PLAIN_RENEWALS_AFTER_SECONDS", 0.5)
    peers = FakePeers(("http://one/eureka", "http://two/eureka"), batches=True)
    peers.peers[0].away = True
    renewals = start(peers)
    renewals.add(instance(), just_registered=False)
    wait_until(lambda: peers.turns, "a plain renewal", WAIT_SECONDS)
    peers.peers[0].away = False

    def are_batches_only() -> bool:
        plain, batched = len(peers.turns), peers.by_peer[peers.peers[0].url, instance().key]
        wait_until(
            lambda: peers.by_peer[peers.peers[0].url, instance().key] > batched + 2, "batches", WAIT_SECONDS
        )
        return len(peers.turns) == plain

    wait_until(are_batches_only, "the end of it", WAIT_SECONDS)


@pytest.mark.parametrize("batches", [False, True])
def test_some_at_once(start: Start, batches: bool) -> None:
    """``renew_now`` renews the named instances at once, as a server may have lost its memory, and no other
    ones.
    """
    peers = FakePeers(batches=batches)
    renewals = start(peers, interval_seconds=600)
    for number in range(30):
        renewals.add(instance(number, 600), just_registered=True)
    assert peers.renewed == {}
    named = [instance(number).key for number in range(10, 40)]  # of which the last are renewed no more
    renewals.renew_now(peers.peers[0], named)  # type: ignore[arg-type]
    wait_until(lambda: peers.renewed == dict.fromkeys(named[:20], 1), "all of them", WAIT_SECONDS)


def test_a_server_that_is_away_is_asked_for_one_renewal(start: Start) -> None:
    """One renewal finds out that a server answers again, and all others follow."""
    peers = FakePeers(batches=True)
    peers.error = RegistryUnreachable("away")
    renewals = start(peers, interval_seconds=600)
    for number in range(20):
        renewals.add(instance(number, 600), just_registered=True)
    keys = [instance(number).key for number in range(20)]
    renewals.renew_now(peers.peers[0], keys)  # type: ignore[arg-type]
    sizes = peers.peers[0].sizes
    wait_until(lambda: len(sizes) >= 4, "three more tries", WAIT_SECONDS)
    assert sizes[0] == 20
    assert set(sizes[1:]) == {1}
    peers.error = None
    wait_until(lambda: len(peers.renewed) == 20, "all of them", WAIT_SECONDS)


def test_a_server_that_answers_small_requests_alone(
    start: Start, listener: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a server answers a probe and no batch, plain renewals are sent as well, and its return is
    reported once.
    """
    monkeypatch.setattr(windows, "PLAIN_RENEWALS_AFTER_SECONDS", 0.5)
    peers = FakePeers(batches=True)
    peers.peers[0].most_items = 4
    renewals = start(peers)
    for number in range(20):
        renewals.add(instance(number), just_registered=False)
    wait_until(lambda: peers.turns, "plain renewals", WAIT_SECONDS)
    wait_until(lambda: len(peers.renewed) == 20, "all of them", WAIT_SECONDS)
    assert len(listener.again) <= 1


def test_what_waited_for_a_server_is_sent_when_it_is_back(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Renewals that failed are repeated as soon as the server is known to answer, though none is named."""
    monkeypatch.setattr(windows, "FIRST_RETRY_SECONDS", 600.0)
    monkeypatch.setattr(windows, "LONGEST_RETRY_SECONDS", 600.0)
    peers = FakePeers(batches=True)
    renewals = start(peers, interval_seconds=600)
    renewals.add(instance(), just_registered=True)
    peers.error = RegistryUnreachable("away")
    renewals.renew_now(peers.peers[0], [instance().key])  # type: ignore[arg-type]
    wait_until(lambda: renewals.counts.failed, "the failure", WAIT_SECONDS)
    peers.error = None
    renewals.renew_now(peers.peers[0], [])  # type: ignore[arg-type]
    wait_until(lambda: peers.renewed, "the renewal", WAIT_SECONDS)


@pytest.mark.parametrize("batches", [False, True])
def test_some_soon(start: Start, batches: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """``renew_soon`` renews the named instances once outside their turn, and no other ones."""
    monkeypatch.setattr(windows, "WRITE_REPLICATION_SECONDS", 0.1)
    peers = FakePeers(batches=batches)
    renewals = start(peers, interval_seconds=600)
    for number in range(3):
        renewals.add(instance(number, 600), just_registered=True)
    renewals.renew_soon([instance(1).key, instance(7).key])
    wait_until(lambda: peers.renewed, "it", WAIT_SECONDS)
    renewals.renew_soon([instance(2).key])
    wait_until(lambda: peers.renewed == {instance(1).key: 1, instance(2).key: 1}, "both", WAIT_SECONDS)


def test_a_stop_waits_for_what_is_in_flight(start: Start) -> None:
    """A stop waits for renewals under way, and no renewal follows it."""
    peers = FakePeers()
    renewals = start(peers)
    peers.gate.clear()
    renewals.add(instance(), just_registered=False)
    wait_until(lambda: peers.waiting, "the renewal", WAIT_SECONDS)
    stopper = threading.Thread(target=renewals.stop)
    stopper.start()
    stopper.join(0.1)
    assert stopper.is_alive()
    peers.gate.set()
    stopper.join(WAIT_SECONDS)
    assert not stopper.is_alive()
    assert peers.waiting == 0
    count = peers.renewed[instance().key]
    threading.Event().wait(0.3)  # more than an interval in which nothing may happen
    assert peers.renewed[instance().key] == count


def test_a_machine_that_slept(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the machine slept, all missed renewals are sent at once, and the following ones are spread over
    the interval.
    """
    slept = [0.0]
    awake = boot_clock_seconds
    monkeypatch.setattr(module, "boot_clock_seconds", lambda: awake() + slept[0])
    peers = FakePeers(batches=True)
    renewals = start(peers, interval_seconds=600)
    for number in range(50):
        renewals.add(instance(number, 600), just_registered=True)
    assert peers.renewed == {}
    slept[0] = 3600.0
    wait_until(lambda: len(peers.renewed) == 50, "all of them", WAIT_SECONDS)
    assert set(peers.renewed.values()) == {1}
    slept[0] += 300.0
    wait_until(
        lambda: renewals.counts.accepted > 50 and not renewals.counts.overdue_seconds,
        "some again",
        WAIT_SECONDS,
    )
    assert peers.renewed.total() < 95


def test_standing_by_ends_every_renewal(start: Start) -> None:
    """Standing by waits for renewals under way and drops all instances; instances added meanwhile are not
    renewed, those added after the resumption are.
    """
    peers = FakePeers()
    renewals = start(peers)
    renewals.add(instance(1), just_registered=False)
    peers.gate.clear()
    wait_until(lambda: peers.waiting, "a renewal in flight", WAIT_SECONDS)
    thread = threading.Thread(target=renewals.stand_by)
    thread.start()
    wait_until(lambda: renewals.is_standing_by, "the renewals to stand by", WAIT_SECONDS)
    assert thread.is_alive()
    peers.gate.set()
    thread.join(timeout=WAIT_SECONDS)
    assert not thread.is_alive()
    before = peers.renewed.copy()
    renewals.add(instance(2), just_registered=False)
    assert len(renewals) == 0
    renewals.resume()
    renewals.add(instance(3), just_registered=False)
    wait_until(lambda: peers.renewed[instance(3).key] > 1, "renewals after that", WAIT_SECONDS)
    assert peers.renewed[instance(1).key] == before[instance(1).key]
    assert peers.renewed[instance(2).key] == 0


def test_a_renewal_is_current_while_its_server_accepts_all(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An instance counts as renewed lately if no renewal fails, waits for long, or was refused."""
    monkeypatch.setattr(windows, "RENEWAL_TICK_SECONDS", 0.05)
    one, other = instance(1), instance(2)
    peers = FakePeers()
    renewals = start(peers, interval_seconds=0.2)
    assert not renewals.is_renewal_current(one.key)
    for each in (one, other):
        renewals.add(each, just_registered=True)
    assert renewals.is_renewal_current(one.key)
    peers.errors[one.key] = RegistryRejected("no", status_code=500)
    wait_until(lambda: not renewals.is_renewal_current(one.key), "a refusal", WAIT_SECONDS)
    assert renewals.is_renewal_current(other.key)
    del peers.errors[one.key]
    wait_until(lambda: renewals.is_renewal_current(one.key), "its end", WAIT_SECONDS)
    peers.error = RegistryUnreachable("away")
    wait_until(lambda: not renewals.is_renewal_current(other.key), "a failure", WAIT_SECONDS)
    peers.error = None
    wait_until(lambda: renewals.is_renewal_current(other.key), "its end", WAIT_SECONDS)
    monkeypatch.setattr(windows, "LONGEST_RENEWAL_WAIT_SECONDS", 0.02)
    peers.gate.clear()
    wait_until(lambda: not renewals.is_renewal_current(other.key), "the wait", WAIT_SECONDS)
    peers.gate.set()
