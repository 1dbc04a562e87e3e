"""What the operator learns of Eureka: what fakes are enough for; the rest is proven on real servers."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from eurekube_provider.core.errors import (
    ConfigurationError,
    RegistryError,
    RegistryRejected,
    RegistryUnreachable,
)
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.core.plan import plan
from eurekube_provider.core.registry import Refused
from eurekube_provider.eureka import (
    batch,
    fan_out,
    late_write_repair,
    late_writes,
    list_lag,
    recovery,
    resync,
    stack_renewals,
    sweeper,
)
from eurekube_provider.eureka.accepted_renewals import AcceptedRenewals
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.eureka_registry import EurekaRegistry
from eurekube_provider.eureka.forgotten import ForgottenInstances
from eurekube_provider.eureka.peer import Peer
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.registry_fetcher import RegistryFetcher
from eurekube_provider.eureka.restart_detection import (
    LATELY_SECONDS,
    RestartDetection,
    StartTimes,
    running_seconds,
)
from eurekube_provider.eureka.server_status import ServerStatus
from lab.waiting import wait_until

OWNER = "cluster/lab/shop/rating"
STATUS = ServerStatus("0 days 00:01", int(time.time() * 1000) - 60_000, (), 0.0)


def instance(name: str) -> Instance:
    """One of ours."""
    return Instance("rating", name, "10.0.0.1", "10.0.0.1", Port(8080), metadata={"eurekube.owner": OWNER})


def started_now() -> ServerStatus:
    """What a server says that was started this moment."""
    return replace(STATUS, started_timestamp_ms=1 + int(time.time() * 1000), uptime="0 days 00:00")


class Told:
    """What a registry tells."""

    def __init__(self) -> None:
        self.owners: list[str] = []
        self.conditions = 0

    def owner_changed(self, owner: str) -> None:
        """Write it down."""
        self.owners.append(owner)

    def condition_changed(self) -> None:
        """Count it."""
        self.conditions += 1


class TwoServers(Peers):
    """The first one was restarted empty a moment ago; the second one still holds an instance."""

    def __init__(self, held: list[Instance]) -> None:
        super().__init__(Connection(("http://127.0.0.1:1/eureka", "http://127.0.0.1:2/eureka")))
        self._held = held
        self.silent: dict[str, RegistryError] = {}
        self.lists: list[str] = []
        """Who was listed by itself."""
        self.looks = 0
        """How often the first one was asked since when it runs."""
        for peer, listed in zip(self.peers, ([], held), strict=True):
            peer.list_instances = partial(self._list, peer.url, listed)  # type: ignore[method-assign]
            peer.status = partial(self._status, peer.url)  # type: ignore[method-assign]

    @property
    def asked_first(self) -> tuple[Peer, ...]:
        """All but who is silent."""
        return tuple(peer for peer in self.peers if peer.url not in self.silent)

    def _list(self, url: str, listed: list[Instance]) -> list[Instance]:
        self.lists.append(url)
        return listed

    def _status(self, url: str) -> ServerStatus:
        self.looks += url == self.peers[0].url
        return STATUS

    def list_by(self, read: Callable[[Peer], list[Instance]]) -> list[Instance]:
        """What the first one lists."""
        assert callable(read)
        return []

    def read(self, application: str, instance_id: str) -> Instance | None:
        """Whichever holds it."""
        return next((one for one in self._held if one.key == (application, instance_id)), None)

    def each(
        self, ask: Callable[[Peer], Any], *, asks_avoided: bool = False, grace_seconds: float | None = None
    ) -> tuple[dict[str, Any], dict[str, RegistryError]]:
        """Both answer, but for who is silent."""
        assert asks_avoided in (True, False) or grace_seconds
        asked = [peer for peer in self.peers if peer.url not in self.silent]
        return {peer.url: ask(peer) for peer in asked}, self.silent


class Holding(Peers):
    """Two servers, each with what it holds; ``away`` do not answer."""

    def __init__(self, *held: Instance) -> None:
        super().__init__(Connection(("http://127.0.0.1:1/eureka", "http://127.0.0.1:2/eureka")))
        self.held = [{one.key: one for one in held} for _ in self.peers]
        self.away: set[int] = set()
        self.reads = 0
        for number, peer in enumerate(self.peers):
            peer.read = partial(self.read_at, number)  # type: ignore[method-assign]
            peer.register = partial(self._register, number)  # type: ignore[method-assign]
            peer.renew = partial(self._renew, number)  # type: ignore[method-assign]
            peer.status = partial(self._status, number)  # type: ignore[method-assign]

    def _status(self, number: int) -> ServerStatus:
        self._answer(number)
        return older(3600)

    def read_at(self, number: int, application: str, instance_id: str) -> Instance | None:
        """What one of them holds."""
        self._answer(number)
        self.reads += 1
        return self.held[number].get((application, instance_id))

    def _register(self, number: int, one: Instance) -> None:
        self._answer(number)
        for held in self.held:  # it tells the other one
            held[one.key] = one

    def _renew(self, number: int, one: Instance) -> bool:
        self._answer(number)
        return one.key in self.held[number]

    def _answer(self, number: int) -> None:
        if number in self.away:
            raise RegistryUnreachable("away")

    def registry(self) -> EurekaRegistry:
        """A registry, not started."""
        found = EurekaRegistry(self, Cluster("lab", "u"), "operator", 600.0)
        found.restarts.notice()
        return found


def of_a_stack(name: str, written_seconds_ago: float = 600.0) -> Instance:
    """A stack's, which asks to be renewed."""
    whose = {"eurekube.owner": "stack/o/p/s/billing", "eurekube.renewer": "operator"}
    stamp = int((time.time() - written_seconds_ago) * 1000)
    return replace(instance(name), metadata=whose, last_dirty_timestamp_ms=stamp)


def renewed_after(registry: EurekaRegistry, *listed: Instance) -> set[str]:
    """What is renewed once this was listed."""
    registry.resync.learn(list(listed), is_complete=True)
    registry.stack_renewals.check()
    return {one.instance_id for one in registry.renewals.held()}


@pytest.mark.parametrize(("ends_in_seconds", "first"), [(120.0, 250), (-60.0, 600)])
def test_very_many_of_stacks_are_looked_at_little_by_little(ends_in_seconds: float, first: int) -> None:
    """Each look reads a part, that which may lapse first; what would lapse meanwhile is read at once."""
    ends_ms = round((time.time() + ends_in_seconds) * 1000)
    many = [replace(of_a_stack(f"i{number}"), lease_ends_ms=ends_ms - number) for number in range(600)]
    registry = Holding(*many).registry()
    renewed = renewed_after(registry, *many)
    assert renewed == {f"i{number}" for number in range(600 - first, 600)}
    for _ in range(2):
        registry.stack_renewals.check()
    assert len(registry.renewals) == 600


def after_a_restart(servers: TwoServers) -> EurekaRegistry:
    """A registry, not started, that is to notice that the first server was restarted."""
    registry = EurekaRegistry(servers, Cluster("lab", "u"), "operator", 600.0)
    registry.restarts.notice()
    again = started_now()
    servers.peers[0].status = lambda: again  # type: ignore[method-assign]
    return registry


class Balanced(Peers):
    """One URL, behind which servers answer each in its turn: each its start time, and what it holds."""

    def __init__(self, *servers: ServerStatus) -> None:
        super().__init__(Connection(("http://127.0.0.1:1/eureka",)))
        self.servers = list(servers)
        self.held: list[list[Instance]] = [[] for _ in servers]
        self.restored: list[Instance] = []
        self._turns = itertools.count()
        peer = self.peers[0]
        peer.status = self._status  # type: ignore[method-assign]
        peer.read = self._read  # type: ignore[method-assign]
        peer.register = self.restored.append  # type: ignore[assignment, method-assign]

    def turn(self) -> int:
        """Which server answers now."""
        return next(self._turns) % len(self.servers)

    def _status(self) -> ServerStatus:
        return self.servers[self.turn()]

    def _read(self, application: str, instance_id: str) -> Instance | None:
        return next((one for one in self.held[self.turn()] if one.key == (application, instance_id)), None)


def behind_a_balancer(
    servers: Balanced, looks: int = 7, follows_another: Callable[[], bool] = lambda: True
) -> EurekaRegistry:
    """A registry, not started, that has looked at the servers so often."""
    registry = EurekaRegistry(
        servers, Cluster("lab", "u"), "operator", 600.0, follows_another=follows_another
    )
    for _ in range(looks):
        registry.restarts.notice()
    return registry


def looked(servers: Balanced) -> tuple[RestartDetection, list[Peer]]:
    """Whoever has looked at the servers some times, and the restarts that it noticed."""
    restarted: list[Peer] = []
    restarts = RestartDetection(servers, restarted.append)
    for _ in range(7):
        restarts.notice()
    return restarts, restarted


def older(seconds: float) -> ServerStatus:
    """What a server says that was started so long before the others."""
    return replace(STATUS, started_timestamp_ms=(STATUS.started_timestamp_ms or 0) - int(1000 * seconds))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_another_server_behind_the_same_url_is_no_restart(count: int) -> None:
    """However often a load balancer sends us to one or the other."""
    restarts, restarted = looked(Balanced(*(older(number) for number in range(count))))
    assert restarted == []
    assert not restarts.lost_memory
    assert restarts.servers_behind == count


class Sticky(Balanced):
    """A balancer of connections, of which one is kept open: it leads to one server until it is closed."""

    connections = 0

    def __init__(self, *servers: ServerStatus) -> None:
        super().__init__(*servers)
        self.peers[0].status_and_close = self._status_and_close  # type: ignore[method-assign]

    def turn(self) -> int:
        """Which server answers now."""
        return self.connections % len(self.servers)

    def _status_and_close(self) -> ServerStatus:
        answer = self._status()
        self.connections += 1
        return answer


@pytest.mark.parametrize("count", [1, 2, 3])
def test_servers_behind_a_balancer_of_connections_are_found(count: int) -> None:
    """By who looks for them: all that is asked over one connection goes to one of them."""
    restarts, restarted = looked(Sticky(*(older(number) for number in range(count))))
    assert restarts.servers_behind == 1
    restarts.detect_behind_balancer()
    assert restarts.servers_behind == min(count, 2)
    assert restarted == []


@pytest.mark.parametrize("ahead", [0.0, 3600.0, -3600.0])
def test_for_how_long_a_server_has_run_is_told_by_its_own_clock(ahead: float) -> None:
    """Ours may be another one."""
    servers = Balanced(replace(older(-ahead), clock_ahead_seconds=ahead))
    restarts, _ = looked(servers)
    (url,) = (peer.url for peer in servers.peers)
    assert restarts.runs_for("http://another") is None
    assert 60 <= (restarts.runs_for(url) or 0) < 180


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_restart_behind_a_load_balancer_is_noticed_once(count: int) -> None:
    """By a start time that nobody had before, whichever of the servers it is."""
    servers = Balanced(*(older(10 * number) for number in range(count)))
    restarts, restarted = looked(servers)
    for number in range(count):
        servers.servers[number] = started_now()
        for _ in range(3 * count):
            restarts.notice()
        assert restarted == [servers.peers[0]] * (number + 1)
        assert restarts.lost_memory
        wait_until(lambda: started_now() != servers.servers[number], "the next millisecond", 1.0)  # noqa: B023


def test_a_restart_is_noticed_though_the_clock_was_set_back() -> None:
    """The new start time is an earlier one: for how long the server has run counts."""
    starts = StartTimes()
    assert not starts.take(1_000_000, 3600.0, 0.0)
    assert starts.take(500_000, 5.0, 60.0)


def test_a_server_that_we_are_sent_to_late_was_not_restarted() -> None:
    """It has run for an hour; that we have known its URL for longer proves nothing."""
    starts = StartTimes()
    assert not starts.take(1, 86_400.0, 0.0)
    assert not starts.take(2, 3600.0, 2.0)
    assert not starts.take(1, 93_600.0, 7200.0)
    assert not starts.take(3, 3600.0, 7202.0)
    assert starts.take(4, 60.0, 7204.0)


def test_a_server_that_was_away_for_long_was_restarted_meanwhile() -> None:
    """However long it has run by the time that we can ask it again; and if it was not, it is known still."""
    for started, is_restart in ((1, False), (2, True)):
        starts = StartTimes()
        starts.take(1, 100.0, 0.0)
        assert starts.take(started, 3000.0, 7200.0) is is_restart
        assert not starts.take(started, 3002.0, 7202.0)


def test_deltas_are_followed_where_there_is_no_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at the start, after a failure or a restart, nor from a take-over until the first list that shows
    everything, nor behind a load balancer.
    """
    doubts: list[bool] = []
    servers, follows = Balanced(older(600)), True

    def read(_: object, started: Mapping[str, int], *, in_doubt: bool) -> list[Instance]:
        assert list(started) == [servers.peers[0].url]
        doubts.append(in_doubt)
        return []

    def doubtful(registry: EurekaRegistry) -> bool:
        registry.resync.read()
        return doubts.pop()

    monkeypatch.setattr(RegistryFetcher, "read", read)
    registry = behind_a_balancer(servers, follows_another=lambda: follows)
    assert doubtful(registry)
    assert not doubtful(registry)
    registry.reachability.failed(RegistryUnreachable("away"))
    assert doubtful(registry)
    assert not doubtful(registry)
    registry.take_over(0)
    assert doubts.pop()
    assert doubtful(registry)
    monkeypatch.setattr(list_lag, "LIST_LAG_SECONDS", 0.0)
    registry.take_over(0)
    assert doubts.pop()
    assert not doubtful(registry)
    monkeypatch.setattr(list_lag, "LIST_LAG_SECONDS", 600.0)
    follows = False
    registry.take_over(0)
    assert doubts.pop()
    assert not doubtful(registry)
    servers.servers = [started_now()]
    assert doubtful(registry)
    servers = Balanced(older(600), older(700))
    assert doubtful(behind_a_balancer(servers))


def test_a_list_that_was_put_off_is_learned_after_what_the_delta_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever waits for the news works on them meanwhile. Where there is no such list, nothing waits."""
    told: list[list[str]] = []
    owed: list[list[Instance]] = []
    monkeypatch.setattr(resync, "FIRST_THINGS_SECONDS", 0.0)
    monkeypatch.setattr(RegistryFetcher, "read", lambda *_, **__: [instance("by-delta")])
    monkeypatch.setattr(RegistryFetcher, "has_deferred_list", property(lambda _: bool(owed)))
    monkeypatch.setattr(RegistryFetcher, "read_deferred_list", lambda _: owed.pop())
    registry = behind_a_balancer(Balanced(older(600)))
    registry.resync.was_read = lambda: told.append(sorted(one.instance_id for one in registry.known()))
    registry.resync.read()
    assert told == [["by-delta"]]
    owed.append([instance("by-delta"), instance("by-list")])
    registry.resync.read()
    assert told == [["by-delta"], ["by-delta"], ["by-delta", "by-list"]]
    assert owed == []


def test_it_is_read_more_often_while_somebody_follows_and_something_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As for mirrors; not for syncers alone, which learn of each other by their own writes."""
    registry = behind_a_balancer(Balanced(older(600)))
    seldom = registry.resync.interval_seconds
    assert seldom > resync.FOLLOWED_SECONDS

    def after(*names: str) -> float:
        registry.resync.learn([instance(name) for name in names], is_complete=True)
        return registry.resync.interval_seconds

    assert [after("a"), after("a", "b")] == [seldom, seldom]
    registry.follow(lambda: None)
    assert after("a") == seldom  # the first that is followed
    assert after("a") == seldom
    assert after("a", "c") == resync.FOLLOWED_SECONDS
    assert after("a", "c") == resync.FOLLOWED_SECONDS
    monkeypatch.setattr(resync, "AFTER_CHANGE_SECONDS", -1.0)  # it is over
    assert after("a") == seldom


def test_start_times_are_forgotten() -> None:
    """Servers that come and go behind one URL leave nothing behind."""
    starts = StartTimes()
    for number in range(1000):
        starts.take(number, 1.0, LATELY_SECONDS * number / 10)
    assert len(starts.seen_at) < 15


@pytest.mark.parametrize(
    ("uptime", "ahead", "seconds"),
    [
        ("0 days 00:01", 0.0, 90.0),
        ("0 days 00:01", 3600.0, 120.0),  # a proxy with a clock of its own wrote the date
        ("1 days 02:03", 3600.0, 3690.0),
        ("0 days 00:01", None, 90.0),
        ("", 30.0, 120.0),
        ("0 days 00:00", -200.0, 0.0),
    ],
)
def test_for_how_long_a_server_has_run(uptime: str, ahead: float | None, seconds: float) -> None:
    """By its own clock, and never longer than its process."""
    status = ServerStatus(uptime, 1_000_000, (), ahead)
    assert running_seconds(status, 1_090.0) == seconds


@pytest.mark.parametrize("forgot", [0, 1])
def test_what_one_server_behind_the_url_forgot_is_restored(forgot: int) -> None:
    """A load balancer sends the question who holds it to each in its turn: all are asked."""
    stacks = replace(instance("vm"), metadata={"eurekube.owner": "stack/o/p/s/billing"})
    servers = Balanced(older(0), older(1))
    servers.held[1 - forgot] = [stacks]
    registry = behind_a_balancer(servers, looks=6 + forgot)
    registry.recovery.missing([stacks], None)
    assert stacks.key in registry.renewals


def test_what_a_person_removed_stays_away_behind_a_load_balancer() -> None:
    """Both servers answer in turn, and none was restarted: it is renewed no more and not restored."""
    stacks = replace(instance("vm"), metadata={"eurekube.owner": "stack/o/p/s/billing"})
    servers = Balanced(older(0), older(1))
    registry = behind_a_balancer(servers)
    registry.recovery.missing([stacks], None)
    assert stacks.key not in registry.renewals
    assert servers.restored == []


def test_who_takes_over_looks_for_what_only_other_servers_hold() -> None:
    """The server that was asked first had lost its memory: what is stale on the others is found, too."""
    stale = instance("stale")
    told = Told()
    registry = EurekaRegistry(TwoServers([stale]), Cluster("lab", "u"), "operator", 600.0)
    registry.subscription.listener = told
    registry.start()
    try:
        wait_until(lambda: registry.reachability.was_read, "the first reading", 10.0)
        registry.take_over(0)
        wait_until(lambda: OWNER in told.owners, "its owner to be looked at", 30.0)
        assert registry.view.owned(OWNER) == [stale]
    finally:
        registry.stop()


def test_who_takes_over_lists_later_who_was_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A removal that a frozen server missed is known to nobody any more when the leader before has ended.

    What a stack removed meanwhile is not taken for registered: renewals would bring it back everywhere.
    """
    monkeypatch.setattr(resync, "RESTART_CHECK_SECONDS", 0.02)
    stale = instance("stale")
    whose = {"eurekube.owner": "stack/o/p/s/billing", "eurekube.renewer": "operator"}
    stacks = replace(instance("vm"), metadata=whose)
    servers, told = TwoServers([stale, stacks]), Told()
    registry = EurekaRegistry(servers, Cluster("lab", "u"), "operator", 600.0)
    registry.subscription.listener = told
    away = servers.peers[1]
    servers.silent = {away.url: RegistryUnreachable("away")}

    def some_looks() -> None:
        before = servers.looks
        wait_until(lambda: servers.looks > before + 3, "some looks at the servers", 30.0)

    registry.start()
    try:
        wait_until(lambda: registry.reachability.was_read, "the first reading", 10.0)
        registry.take_over(0)
        wait_until(lambda: servers.lists, "a list of all that answer", 30.0)
        some_looks()
        assert (told.owners, len(registry.view)) == ([], 0)
        servers.silent = {}
        wait_until(lambda: told.owners, "its owner to be looked at", 30.0)
        assert (told.owners, registry.view.owned(OWNER)) == ([OWNER], [stale])
        assert stacks.key not in registry.renewals
        registry.view.gone(stale.key)
        some_looks()  # once: the sweeper looks after what this replica removes
        assert told.owners == [OWNER]
    finally:
        registry.stop()


def test_what_nobody_expected_ends_no_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done between two readings is done on the thread that reads."""
    monkeypatch.setattr(resync, "RESTART_CHECK_SECONDS", 0.02)
    registry = EurekaRegistry(TwoServers([]), Cluster("lab", "u"), "operator", 600.0)
    rounds: list[int] = []

    def catch_up() -> None:
        rounds.append(len(rounds))
        raise RuntimeError("a bug")

    monkeypatch.setattr(registry.resync, "catch_up", catch_up)
    registry.start()
    try:
        registry.take_over(0)
        wait_until(lambda: len(rounds) > 2, "the next rounds", 30.0)
        assert all(loop.is_alive for loop in registry.liveness())
    finally:
        registry.stop()


def test_a_list_that_is_old_brings_back_nothing() -> None:
    """It was removed since: renewed, it would be restored at the first answer that nobody has it."""
    gone, stands = of_a_stack("gone"), of_a_stack("stands")
    assert renewed_after(Holding(stands).registry(), gone, stands) == {"stands"}


def test_a_list_of_a_server_that_missed_a_removal_brings_back_nothing() -> None:
    """It was frozen when a stack removed it at the other one; the leader of today does not know of it."""
    stale, shared = of_a_stack("stale"), instance("shared")
    servers = Holding(shared)
    servers.held[1][stale.key] = stale
    assert renewed_after(servers.registry(), shared, stale) == set()


def test_what_is_known_as_removed_stays_so_where_nothing_shows_any_more_that_servers_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What both held went away since."""
    monkeypatch.setattr(stack_renewals, "LIST_LAG_SECONDS", -1.0)
    stale, shared = of_a_stack("stale"), instance("shared")
    servers = Holding(shared)
    servers.held[1][stale.key] = stale
    registry = servers.registry()
    assert renewed_after(registry, shared, stale) == set()
    for held in servers.held:
        held.pop(shared.key, None)
    assert renewed_after(registry, stale) == set()


def test_a_status_is_remembered_before_it_is_set_or_taken_off() -> None:
    """It may come once more when it was taken off: a server tells a busy peer again."""
    shared = instance("shared")
    servers = Holding(shared)
    told: list[str] = []
    servers.overriding = lambda one: told.append(f"remember {one.instance_id}")

    def asked(what: str, _: Instance, status: Status) -> bool:
        told.append(f"{what} {status}")
        return True

    for peer in servers.peers:
        peer.set_status = partial(asked, "set")  # type: ignore[method-assign]
        peer.clear_status = partial(asked, "clear")  # type: ignore[method-assign]
    servers.set_status(shared, Status.OUT_OF_SERVICE)
    servers.clear_status(shared)
    assert told == ["remember shared", "set OUT_OF_SERVICE", "remember shared", "clear UP"]


@pytest.mark.parametrize(("renewed", "stays"), [("lately", set()), ("by nobody for long", {"vm"})])
def test_what_one_server_may_have_evicted_is_renewed(renewed: str, stays: set[str]) -> None:
    """No operator ran for some minutes: servers forget at their own pace, and the first list is one's own."""
    end = time.time() + (60.0 if renewed == "lately" else -5.0)
    left, shared = replace(of_a_stack("vm"), lease_ends_ms=int(end * 1000)), instance("shared")
    servers = Holding(shared)
    servers.held[1][left.key] = left
    assert renewed_after(servers.registry(), shared, left) == stays


@pytest.mark.parametrize("written_seconds_ago", [30.0, 600.0])
def test_what_was_removed_before_our_eyes_is_not_restored(
    written_seconds_ago: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither when the server that missed the removal answers again, nor when its list is read, nor when it
    alone answers; but when the stack registers it anew.
    """
    stacks, shared = of_a_stack("vm", written_seconds_ago), instance("shared")
    servers = Holding(shared, stacks)
    registry = servers.registry()
    assert renewed_after(registry, shared, stacks) == {"vm"}
    del servers.held[0][stacks.key]
    registry.recovery.missing([stacks], None)  # the other one has not answered the renewal
    assert (registry.renewals.held(), stacks.key in servers.held[0]) == ([], False)
    passed = 0.0
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed, time=time.time)
    monkeypatch.setattr(stack_renewals, "time", clock)
    for away in (set[int](), {0}):
        servers.away = away
        passed += 60.0
        assert renewed_after(registry, shared, stacks) == set()
    servers.away = set()
    again = replace(stacks, last_dirty_timestamp_ms=stacks.written_at_ms + 1)
    servers.register(again)
    assert renewed_after(registry, shared, again) == {"vm"}


@pytest.mark.parametrize("place", [0, 1], ids=["where it was removed", "where the removal was missed"])
def test_what_is_registered_anew_by_a_clock_that_is_behind_is_renewed(
    place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its mark says that it is another one; what missed a removal may hold one from before, too."""
    ahead, behind = of_a_stack("vm", -600.0), of_a_stack("vm", 10.0)
    marked = {"eurekube.incarnation": "another"}
    again = replace(behind, metadata={**behind.metadata, **marked})
    servers = Holding(ahead, instance("shared"))
    registry = servers.registry()
    assert renewed_after(registry, ahead, instance("shared")) == {"vm"}
    del servers.held[0][ahead.key]
    del servers.held[1][ahead.key]
    servers.away = {1}
    registry.recovery.missing([ahead], None)
    assert ahead.key not in registry.renewals
    servers.away = {1 - place}
    servers.held[place][again.key] = again
    monkeypatch.setattr(stack_renewals, "LIST_LAG_SECONDS", -1.0)
    assert renewed_after(registry, again, instance("shared")) == ({"vm"} if place == 0 else set())


def test_what_may_be_on_its_way_or_forgotten_is_renewed() -> None:
    """A new one, any where servers share nothing, and any of which a restarted server knows nothing."""
    new, old, shared = of_a_stack("new", 10.0), of_a_stack("old"), instance("shared")
    servers = Holding(shared)
    servers.held[1][new.key] = new
    assert renewed_after(servers.registry(), shared, new) == {"new"}
    split = Holding()
    split.held[1][old.key] = old
    assert renewed_after(split.registry(), old) == {"old"}
    restarted = Holding(shared)
    restarted.held[1][old.key] = old
    restarted.peers[0].status = started_now  # type: ignore[method-assign]
    assert renewed_after(restarted.registry(), shared, old) == {"old"}


def test_one_of_a_stack_that_cannot_be_read_keeps_no_other_from_being_renewed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Anybody may register with a stack's marks, under an id that a server or a proxy refuses to look for."""
    odd, *others = (of_a_stack(name) for name in ("odd%", "vm-1", "vm-2"))
    servers = Holding(odd, *others)
    refuse(servers, odd, monkeypatch)
    assert renewed_after(servers.registry(), odd, *others) == {"vm-1", "vm-2"}


def test_whether_servers_share_is_told_by_what_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever others have registered beside it."""
    odd, shared, removed = instance("odd%"), instance("shared"), of_a_stack("removed")
    servers = Holding(odd, shared)
    servers.held[0][removed.key] = removed
    refuse(servers, odd, monkeypatch)
    assert renewed_after(servers.registry(), odd, shared, removed) == set()
    del servers.held[1][shared.key]
    assert renewed_after(servers.registry(), odd, shared, removed) == {"removed"}


def refuse(servers: Holding, odd: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no server say whether it holds this one."""
    for number, peer in enumerate(servers.peers):

        def read(*key: str, number: int = number) -> Instance | None:
            if key == odd.key:
                raise RegistryRejected("400", status_code=400)
            return servers.read_at(number, *key)

        monkeypatch.setattr(peer, "read", read)


def test_what_is_known_costs_no_read() -> None:
    """Neither what is renewed, nor for a while what was removed and is listed still."""
    stacks, gone = [of_a_stack(f"vm-{number}") for number in range(300)], of_a_stack("gone")
    servers = Holding(*stacks)
    registry = servers.registry()
    assert len(renewed_after(registry, *stacks, gone)) == 300
    reads = servers.reads
    assert reads == 2 * 301
    assert len(renewed_after(registry, *stacks, gone)) == 300
    assert servers.reads == reads


def test_a_take_over_leaves_behind_who_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server that is asked first: it is not waited for as long as otherwise, nor asked for the list."""
    monkeypatch.setattr(fan_out, "GRACE_SECONDS", 30.0)
    hangs = threading.Event()
    asked: list[str] = []

    def status(peer: Peer) -> ServerStatus:
        if peer.url == peers.peers[0].url:
            hangs.wait(30.0)
        return STATUS

    def list_unless(peer: Peer, _: bytes) -> tuple[bytes, list[Instance]]:
        asked.append(peer.url)
        return b"list", [instance("held")]

    monkeypatch.setattr(Peer, "status", status)
    monkeypatch.setattr(Peer, "list_unless", list_unless)
    peers = Peers(Connection(tuple(f"http://{name}/eureka" for name in "abc")), waits_for_all=False)
    registry = EurekaRegistry(peers, Cluster("lab", "u"), "operator", 600.0)
    started = time.monotonic()
    try:
        registry.take_over(0)
        assert time.monotonic() - started < 10.0
    finally:
        hangs.set()
        peers.close()
    assert asked == [peers.peers[1].url]
    assert registry.view.owned(OWNER) == [instance("held")]


def test_nothing_is_learned_of_another_cluster_of_the_name() -> None:
    """Another cluster has our name, and a take-over is the first to read: its syncers' instances, of which we
    have no syncer, would be taken for what deleted ones left behind.
    """
    metadata = {"eurekube.owner": OWNER, "eurekube.cluster-uid": "another"}
    told = Told()
    registry = EurekaRegistry(
        TwoServers([replace(instance("theirs"), metadata=metadata)]),
        Cluster("lab", "u"),
        "operator",
        600.0,
        check_cluster=True,
    )
    registry.subscription.listener = told
    registry.take_over(0)
    assert "in use by another cluster" in str(registry.condition())
    assert (told.conditions, told.owners, len(registry.view)) == (1, [], 0)
    assert isinstance(registry.condition(), Refused)


def test_nothing_is_new_before_all_servers_were_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the first server had forgotten may stand on the others, a status that a person set included."""
    monkeypatch.setattr(list_lag, "LIST_LAG_SECONDS", 0.0)
    registry = EurekaRegistry(TwoServers([instance("held")]), Cluster("lab", "u"), "operator", 600.0)
    registry.take_over(0)  # nobody reads on: as it is until all are listed
    assert registry.reachability.was_read
    assert not registry.instances.is_new(("RATING", "held"))
    assert not registry.instances.is_new(("RATING", "another"))
    registry.start()
    try:
        wait_until(lambda: registry.instances.is_new(("RATING", "another")), "all to be listed", 30.0)
        assert not registry.instances.is_new(("RATING", "held"))
    finally:
        registry.stop()


def test_nothing_is_new_while_lists_may_be_older_than_the_take_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All servers were listed, and what the former leader registered last is in none of the lists yet."""
    monkeypatch.setattr(list_lag, "LIST_LAG_SECONDS", 600.0)
    servers = TwoServers([])
    registry = EurekaRegistry(servers, Cluster("lab", "u"), "operator", 600.0)
    registry.take_over(0)
    registry.resync.read()
    assert servers.lists == [peer.url for peer in servers.peers]
    assert not registry.instances.is_new(("RATING", "any"))
    monkeypatch.setattr(list_lag, "LIST_LAG_SECONDS", 0.0)
    registry.take_over(0)
    registry.resync.read()
    assert registry.instances.is_new(("RATING", "any"))


def test_the_first_leader_of_a_cluster_believes_its_first_list() -> None:
    """Nobody led before who could have registered what no list shows yet."""
    registry = EurekaRegistry(
        TwoServers([]),
        Cluster("lab", "u"),
        "operator",
        600.0,
        follows_another=lambda: False,
    )
    registry.take_over(0)
    assert registry.instances.is_new(("RATING", "any"))


def test_what_no_list_shows_yet_is_read_by_itself() -> None:
    """What leaves Kubernetes just after a change of leader must leave Eureka, listed or not."""
    unlisted, gone = instance("unlisted"), ("RATING", "gone")
    servers = TwoServers([unlisted])
    for peer in servers.peers:
        peer.list_instances = list  # type: ignore[method-assign]
    registry = EurekaRegistry(servers, Cluster("lab", "u"), "operator", 600.0)
    registry.take_over(0)
    assert registry.view.owned(OWNER) == []
    registry.refresh([unlisted.key, gone])
    assert registry.view.owned(OWNER) == [unlisted]
    registry.resync.read()  # nor does a list that still lacks it make it go
    assert registry.view.owned(OWNER) == [unlisted]


def test_what_a_list_shows_wrongly_is_read_where_that_is_asked_for() -> None:
    """One look at everything must say what there is, not what there was."""
    listed = instance("listed")
    registry = EurekaRegistry(TwoServers([]), Cluster("lab", "u"), "operator", 600.0)
    registry.take_over(0)
    registry.resync.learn([listed], is_complete=True)
    registry.refresh([listed.key])
    assert registry.view.owned(OWNER) == [listed]
    registry.refresh([listed.key], known_too=True)
    assert registry.view.owned(OWNER) == []


def test_what_a_restarted_server_forgot_stands_on_the_others() -> None:
    """Its list is not all there is: somebody else's instance may keep a place, or an address, from us."""
    servers, foreign = TwoServers([instance("theirs")]), ("RATING", "theirs")
    registry = after_a_restart(servers)
    registry.start()
    try:
        wait_until(lambda: registry.reachability.was_read, "the first reading", 10.0)
        assert registry.view.get(foreign) is not None
    finally:
        registry.stop()


def test_what_nobody_can_be_asked_for_is_kept() -> None:
    """A server came back empty while the one that holds it does not answer."""
    servers, foreign = TwoServers([instance("theirs")]), ("RATING", "theirs")
    registry = after_a_restart(servers)
    registry.take_over(0)
    assert registry.view.get(foreign) is not None
    servers.silent = {servers.peers[1].url: RegistryUnreachable("away")}
    registry.take_over(0)
    assert registry.view.get(foreign) is not None


def test_what_registers_itself_beside_ours_has_us_look() -> None:
    """Ours was registered before a list showed it; once only, and not for another application."""
    told = Told()
    registry = EurekaRegistry(TwoServers([]), Cluster("lab", "u"), "operator", 600.0)
    registry.subscription.listener = told
    ours, itself = instance("pod"), replace(instance("itself"), metadata={})
    other = replace(itself, application="other")
    registry.resync.learn([ours], is_complete=True)
    for listed, expected in (([ours, other], []), ([ours, other, itself], [ours.owner])):
        for again in (expected, []):
            told.owners.clear()
            registry.resync.learn(listed, is_complete=True)
            assert told.owners == again


def test_what_somebody_else_took_over_is_renewed_no_more() -> None:
    """Or it would never lapse when its application dies; a list tells, or the answer to a renewal."""
    whose = {"eurekube.owner": "stack/o/p/s/billing", "eurekube.renewer": "operator"}
    stacks = replace(instance("vm"), metadata=whose, last_dirty_timestamp_ms=1)
    its_own = replace(stacks, metadata={}, last_dirty_timestamp_ms=2)
    self_renewed = replace(its_own, metadata={**whose, "eurekube.renewer": "self"})
    syncers = replace(instance("pod"), last_dirty_timestamp_ms=1)
    foreign = replace(syncers, metadata={"eurekube.owner": "cluster/other/a/b"}, last_dirty_timestamp_ms=2)
    for ours, theirs in ((stacks, its_own), (stacks, self_renewed), (syncers, foreign)):
        for is_answer in (False, True):
            told = Told()
            registry = EurekaRegistry(TwoServers([theirs]), Cluster("lab", "u"), "operator", 600.0)
            registry.subscription.listener = told
            registry.resync.learn([ours], is_complete=True)
            registry.keep(ours)
            assert ours.key in registry.renewals
            told.owners.clear()
            if is_answer:
                registry.recovery.newer(theirs)
            else:
                registry.resync.learn([theirs], is_complete=True)
            assert ours.key not in registry.renewals
            assert registry.view.get(ours.key) == theirs
            assert ours.owner in told.owners


def test_a_cluster_name_that_is_in_use_with_another_uid_is_refused() -> None:
    """Also where only another server tells of it: the one that was listed was restarted a moment ago."""
    whose = {"eurekube.owner": OWNER, "eurekube.cluster-uid": "another"}
    theirs = replace(instance("theirs"), metadata=whose)
    ours = replace(theirs, metadata={**whose, "eurekube.cluster-uid": "u"})
    others = replace(theirs, metadata={**whose, "eurekube.owner": "cluster/other/shop/rating"})
    for held, is_refused in ((theirs, True), (ours, False), (others, False)):
        servers, cluster = TwoServers([held]), Cluster("lab", "u")
        registry = EurekaRegistry(servers, cluster, "operator", 600.0, check_cluster=True)
        if is_refused:
            with pytest.raises(ConfigurationError, match="has UID another, this cluster has u"):
                registry.resync.read()
        else:
            registry.resync.read()
        assert registry.reachability.was_read is not is_refused


@pytest.mark.parametrize("takes_over", [False, True])
def test_what_another_cluster_of_our_name_registers_is_left_as_it_is(
    takes_over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both began when neither had anything registered, so that none was refused; a rebuilt one takes over."""
    theirs = replace(
        instance("theirs"), metadata={"eurekube.owner": OWNER, "eurekube.cluster-uid": "another"}
    )
    ours = replace(instance("ours"), metadata={"eurekube.owner": OWNER, "eurekube.cluster-uid": "u"})
    servers = Holding(theirs, ours)
    for number, peer in enumerate(servers.peers):
        gone = partial(lambda number, *key: servers.held[number].pop(key, None) is not None, number)
        monkeypatch.setattr(peer, "deregister", gone)
    registry = EurekaRegistry(servers, Cluster("lab", "u"), "operator", 600.0, check_cluster=not takes_over)
    registry.reachability.read()
    registry.renewals.add(theirs, just_registered=True)
    registry.resync.learn([theirs, ours], is_complete=True)
    for one in registry.known(owner=OWNER):
        registry.keep(one)
    assert (theirs.key in registry.renewals, ours.key in registry.renewals) == (takes_over, True)
    outcome = registry.apply(plan((), registry.known(owner=OWNER), OWNER), OWNER)
    left = set() if takes_over else {theirs.key}
    assert [set(held) for held in servers.held] == [left, left]
    assert {one.change.instance.key for one in outcome.failures} == left
    assert all("another cluster of this name" in str(one.error) for one in outcome.failures)


def test_what_was_removed_is_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that was away may hold it still, and tell the others of it."""
    monkeypatch.setattr(sweeper, "SWEEP_AFTER_SECONDS", (0.0,))
    removed = instance("removed")
    servers = Holding(removed)
    registry = servers.registry()
    registry.instances.gone(removed)
    for number, peer in enumerate(servers.peers):
        gone: list[tuple[str, ...]] = []
        monkeypatch.setattr(peer, "deregister", lambda *key, gone=gone: gone.append(key) or True)
        registry.sweeper.sweep(peer)
        assert set(gone) == {removed.key}, number


def test_only_what_names_this_operator_is_renewed_for_stacks() -> None:
    """What names another one, or renews itself, is theirs to let lapse."""
    named = {
        name: replace(instance(name), metadata={"eurekube.owner": "stack/o/p/s/n", "eurekube.renewer": name})
        for name in ("operator", "another", "self")
    }
    assert renewed_after(Holding(*named.values()).registry(), *named.values()) == {"operator"}


@pytest.mark.parametrize("is_restarted", [True, False])
def test_a_persons_status_comes_back_only_with_what_servers_forgot(is_restarted: bool) -> None:
    """Not where somebody removed the instance, and not what the operator itself had taken out."""
    servers = TwoServers([])
    registry = after_a_restart(servers)
    if is_restarted:
        registry.restarts.notice()
    out = {"status": Status.OUT_OF_SERVICE, "overridden_status": Status.OUT_OF_SERVICE}
    persons = replace(instance("persons"), **out)  # type: ignore[arg-type]
    leaving = replace(instance("ours"), metadata={**persons.metadata, "eurekube.leaving": "true"}, **out)  # type: ignore[arg-type]
    for one in (persons, leaving):
        registry.instances.registered(one)
    servers.peers[0].status = lambda: STATUS  # type: ignore[method-assign]
    registry.recovery.missing([persons, leaving], None)
    assert registry.instances.lost_override(leaving.key) is Status.UNKNOWN
    lost = Status.OUT_OF_SERVICE if is_restarted else Status.UNKNOWN
    assert registry.instances.lost_override(persons.key) is lost


def test_what_a_restarted_server_forgot_of_a_stacks_is_restored() -> None:
    """Nobody's program runs to do it."""
    stacks = replace(instance("vm"), metadata={"eurekube.owner": "stack/o/p/s/billing"})
    servers = Balanced(STATUS)
    registry = behind_a_balancer(servers)
    servers.servers = [started_now()]
    registry.recovery.missing([stacks], None)
    assert stacks.key in registry.renewals
    assert [one.key for one in servers.restored] == [stacks.key]


def test_what_was_restored_without_an_answer_stays_away_once_it_is_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that has just started may answer too late: it carried it out, as its list shows soon."""
    stacks = of_a_stack("vm")
    servers = Balanced(STATUS)
    registry = behind_a_balancer(servers)
    registry.keep(stacks)
    servers.servers = [started_now()]
    answers = [RegistryUnreachable("it did not answer within 5 s")]

    def register(one: Instance) -> None:
        servers.held[0].append(one)
        while answers:
            raise answers.pop()

    monkeypatch.setattr(servers.peers[0], "register", register)
    registry.recovery.missing([stacks], None)
    assert stacks.key in registry.renewals
    registry.resync.learn(servers.held[0], is_complete=True)
    monkeypatch.setattr(RestartDetection, "lost_memory", False)  # two minutes later
    servers.held[0].clear()
    registry.recovery.missing([stacks], None)
    assert servers.held == [[]]
    assert stacks.key not in registry.renewals


def test_what_is_nowhere_while_no_server_says_its_start_is_kept_until_one_does() -> None:
    """The server may have been restarted this moment; its next answer tells whether it was."""
    stacks = replace(instance("vm"), metadata={"eurekube.owner": "stack/o/p/s/billing"})
    servers = Balanced(STATUS)
    registry = behind_a_balancer(servers)
    registry.keep(stacks)
    servers.servers = [replace(STATUS, started_timestamp_ms=None)]
    registry.recovery.missing([stacks], None)
    assert stacks.key in registry.renewals
    assert not servers.restored
    servers.servers = [started_now()]
    registry.recovery.missing([stacks], None)
    assert [one.key for one in servers.restored] == [stacks.key]
    assert stacks.key in registry.renewals


def test_what_is_nowhere_where_no_server_has_ever_said_its_start_was_removed() -> None:
    """It would be kept for ever."""
    stacks = replace(instance("vm"), metadata={"eurekube.owner": "stack/o/p/s/billing"})
    registry = behind_a_balancer(Balanced(replace(STATUS, started_timestamp_ms=None)))
    registry.keep(stacks)
    registry.recovery.missing([stacks], None)
    assert stacks.key not in registry.renewals


def test_nothing_is_new_while_a_server_may_have_lost_its_memory() -> None:
    """Its list lacks what stands on the others, and may stand in our place."""
    registry = after_a_restart(TwoServers([]))
    registry.reachability.read()
    assert registry.instances.is_new(("RATING", "any"))
    registry.restarts.notice()
    assert not registry.instances.is_new(("RATING", "any"))


def test_a_renewal_ends_at_who_removed_it() -> None:
    """A server that accepted it lately did not evict it; the other one, which missed the removal, would have
    it registered again. What nobody knows to have been accepted is renewed where it stands, as a syncer's is.
    """
    stacks, syncers = of_a_stack("vm"), instance("ours")
    servers = Holding(stacks, syncers)
    assert [servers.renew(one, turn) for one in (stacks, syncers) for turn in range(2)] == [True] * 4
    for one in (stacks, syncers):
        del servers.held[0][one.key]
    assert not servers.renew(stacks, 2)  # asks it
    assert not servers.renew(stacks, 3)  # begins with the other one
    assert servers.renew(syncers, 2)
    servers.accepted = AcceptedRenewals()
    assert servers.renew(stacks, 2)


@pytest.mark.parametrize(
    ("accepted_seconds_ago", "restarted", "stands"),
    [(20.0, False, False), (100.0, False, True), (20.0, True, True)],
    ids=["removed", "may be evicted", "restarted"],
)
def test_who_lacks_a_stacks_registration_is_made_level_unless_it_removed_it(
    accepted_seconds_ago: float, restarted: bool, stands: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It accepted its renewal less than a lease ago, and has run all the time: it was told to remove it."""
    stacks = of_a_stack("vm")
    servers = Holding(stacks)
    monkeypatch.setattr(
        recovery, "read_many", lambda peer, some: {one.key: peer.read(*one.key) for one in some}
    )
    monkeypatch.setattr(recovery, "bring_level", lambda peer, some: [peer.register(one) for one in some])
    registry = servers.registry()
    registry.keep(stacks)
    now = [1000.0]
    servers.accepted = AcceptedRenewals(lambda: now[0])
    first = servers.peers[0]
    servers.accepted.note(first.url, [stacks])
    now[0] += accepted_seconds_ago
    del servers.held[0][stacks.key]
    if restarted:
        first.status = started_now  # type: ignore[method-assign]
    registry.recovery.missing([stacks], first)
    assert (stacks.key in servers.held[0], stacks.key in registry.renewals) == (stands, stands)


def test_what_is_removed_meanwhile_is_told_to_no_server_that_is_made_level(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of thousands the last are told seconds after they were read from the others."""
    many = [instance(f"i{number:04}") for number in range(batch.MOST_ITEMS + 2)]
    servers = Holding(*many)
    registry = servers.registry()
    for one in many:
        registry.instances.registered(one)
    told: list[Instance] = []

    def bring_level(_: Peer, some: list[Instance]) -> None:
        told.extend(some)
        registry.instances.leaving(many[-1])
        registry.instances.gone(many[-1])

    monkeypatch.setattr(recovery, "read_many", lambda _, some: {one.key: one for one in some})
    monkeypatch.setattr(recovery, "bring_level", bring_level)
    registry.recovery.missing(many, servers.peers[0])
    assert told == many[:-1]


@pytest.mark.parametrize("held_on", [(), (1,)], ids=["nowhere", "at the restarted one"])
@pytest.mark.parametrize(
    ("accepted_at", "accepted_seconds_ago", "stands"),
    [(0, 20.0, False), (0, 100.0, True), (1, 20.0, True)],
    ids=["removed", "may be evicted", "restarted"],
)
def test_beside_a_restart_a_server_that_kept_its_memory_tells_what_was_removed(
    held_on: tuple[int, ...], accepted_at: int, accepted_seconds_ago: float, stands: bool
) -> None:
    """What it accepted lately, and holds no more, was removed; what it may have evicted is restored."""
    stacks = of_a_stack("vm")
    servers = Holding(stacks)
    registry = servers.registry()
    registry.keep(stacks)
    now = [1000.0]
    servers.accepted = AcceptedRenewals(lambda: now[0])
    servers.accepted.note(servers.peers[accepted_at].url, [stacks])
    now[0] += accepted_seconds_ago
    for number in {0, 1}.difference(held_on):
        del servers.held[number][stacks.key]
    servers.peers[1].status = started_now  # type: ignore[method-assign]
    registry.recovery.missing([stacks], None)
    assert registry.restarts.lost_memory
    assert (stacks.key in servers.held[0], stacks.key in registry.renewals) == (stands, stands)
    assert (stacks.instance_id in renewed_after(registry, stacks)) is stands  # a list may show it for a while


def test_what_lacks_at_a_server_of_unknown_start_is_restored() -> None:
    """It answers, but does not say since when it runs: it may have forgotten what another one still holds."""
    stacks = of_a_stack("vm")
    servers = Holding(stacks)
    registry = servers.registry()
    servers.accepted.note(servers.peers[0].url, [stacks])
    del servers.held[0][stacks.key]
    silent = replace(STATUS, started_timestamp_ms=None)
    servers.peers[0].status = lambda: silent  # type: ignore[method-assign]
    registry.recovery.missing([stacks], None)
    assert stacks.key in servers.held[0]
    assert stacks.key in registry.renewals


def test_what_was_lost_is_forgotten_by_owner_and_where_something_stands() -> None:
    """Of two owners who had the same, each one's is forgotten by itself; both's where something stands."""
    lost, one, other = ForgottenInstances(), instance("one"), instance("other")
    theirs = replace(one, metadata={"eurekube.owner": "cluster/lab/shop/another"})
    for each in (one, other, theirs):
        lost.note(each)
    lost.stands(one)
    assert [*lost.of(one.owner or ""), *lost.of(theirs.owner or "")] == [other]
    lost.note(theirs)
    lost.forget(theirs.owner or "")
    lost.stands(theirs)
    assert lost.of(one.owner or "") == [other]


@pytest.mark.parametrize(
    ("stands_at", "just_now_seconds", "is_ours"),
    [((0,), 0.0, True), ((0, 1), 0.0, False), ((0, 1), 10.0, True)],
)
def test_an_out_of_service_at_all_servers_is_a_persons(
    stands_at: tuple[int, ...], just_now_seconds: float, is_ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless ours was set just now; at some servers only it was told again by a server within a minute."""
    monkeypatch.setattr(late_write_repair, "TOLD_WITHIN_SECONDS", 0.0)
    monkeypatch.setattr(late_writes, "JUST_NOW_SECONDS", just_now_seconds)
    up = instance("vm")
    out = replace(up, status=Status.OUT_OF_SERVICE, overridden_status=Status.OUT_OF_SERVICE)
    servers = Holding(up)
    registry = servers.registry()
    registry.instances.registered(up)
    for number in stands_at:
        servers.held[number][up.key] = out
    monkeypatch.setattr(sweeper, "SWEEP_AFTER_SECONDS", (0.0,))
    registry.sweeper.may_come(up)
    registry.sweeper.sweep(servers.peers[0])
    assert not known_as_leaving(registry, up)  # nothing of ours was there
    servers.overriding(up)
    registry.sweeper.sweep(servers.peers[0])
    assert known_as_leaving(registry, up) is is_ours


def test_an_out_of_service_after_a_pod_was_removed_with_ours_is_ours() -> None:
    """A pod of the same name that follows finds it at every server, however long the last one drained."""
    up = instance("vm")
    leaving = replace(up, metadata={**up.metadata, "eurekube.leaving": "true"})
    out = replace(up, status=Status.OUT_OF_SERVICE, overridden_status=Status.OUT_OF_SERVICE)
    servers = Holding(up)
    registry = servers.registry()
    registry.instances.registered(leaving)
    registry.instances.gone(leaving)
    registry.instances.registered(up)
    for held in servers.held:
        held[up.key] = out
    registry.repair.came_late(out)
    assert known_as_leaving(registry, up)


def test_a_server_that_refuses_to_be_told_a_status_is_swept_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is dead leaves it, whatever else is not as it should be there."""
    up, dead = instance("vm"), instance("dead")
    servers = Holding(up, dead)
    registry = servers.registry()
    registry.instances.registered(up)
    servers.held[0][up.key] = replace(up, status=Status.DOWN)
    first = servers.peers[0]
    gone: list[tuple[str, str]] = []

    def refuse(*_: object) -> None:
        raise RegistryRejected("no")

    def remove(*key: str) -> bool:
        gone.append((key[0], key[1]))
        return True

    monkeypatch.setattr(first, "batch", refuse)
    monkeypatch.setattr(first, "tell", refuse)
    monkeypatch.setattr(first, "deregister", remove)
    monkeypatch.setattr(sweeper, "SWEEP_AFTER_SECONDS", (0.0, 35.0))
    registry.sweeper.may_come(up)
    registry.sweeper.removed(dead)
    registry.sweeper.sweep(first)
    assert gone == [dead.key]


def test_what_one_server_behind_the_url_still_holds_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one that is asked in its place does not know it, and tells nobody of a removal."""
    dead = instance("dead")
    servers = Balanced(older(0), older(30), older(60))
    registry = behind_a_balancer(servers)
    servers.held = [[], [dead], []]

    def remove(*_: str) -> bool:
        held = servers.held[servers.turn()]
        if not held:
            return False
        servers.held = [[], [], []]  # who holds it tells the others
        return True

    monkeypatch.setattr(servers.peers[0], "deregister", remove)
    monkeypatch.setattr(sweeper, "SWEEP_AFTER_SECONDS", (0.0, 35.0))
    registry.sweeper.removed(dead)
    registry.sweeper.sweep(servers.peers[0])
    assert servers.held == [[], [], []]


def test_one_read_that_is_refused_for_good_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy may refuse one id whenever it is asked for; the other dead instances are removed."""
    odd, dead = instance("odd"), instance("dead")
    servers = Holding(odd, dead)
    peer = servers.peers[0]
    gone: list[tuple[str, ...]] = []

    def remove(*key: str) -> bool:
        gone.append(key)
        return True

    def read(application: str, instance_id: str) -> Instance | None:
        if instance_id == odd.instance_id:
            raise RegistryRejected("400")
        return servers.read_at(0, application, instance_id)

    monkeypatch.setattr(peer, "read", read)
    monkeypatch.setattr(peer, "deregister", remove)
    monkeypatch.setattr(sweeper, "SWEEP_AFTER_SECONDS", (0.0, 35.0))
    registry = servers.registry()
    for one in (odd, dead):
        registry.sweeper.removed(one)
    registry.sweeper.sweep(peer)
    assert gone == [dead.key]


def known_as_leaving(registry: EurekaRegistry, one: Instance) -> bool:
    """Whether it is known with our mark."""
    known = registry.view.get(one.key)
    return known is not None and known.is_leaving
