"""Our client with three real servers, any of which may be away."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import Self

import pytest
import requests

from eurekube_provider.core.errors import OwnershipConflict, RegistryUnreachable
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.plan import Action, Plan, PlanOutcome, Policy, plan
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.connection import BatchMode, Connection
from eurekube_provider.eureka.eureka_registry import EurekaRegistry
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.registry.plan_executor import PlanExecutor
from eurekube_provider.eureka.removal_checks import RemovalChecks
from eurekube_provider.eureka.writer import FEWEST_CHANGES_FOR_BATCHES, Writer
from lab import Lab
from lab.listing import list_uncached
from lab.proxy import Proxy
from lab.waiting import wait_until
from tests.contract.conftest import WAIT_SECONDS, Server, document, rating
from tests.eureka_servers import Servers, clock
from tests.recording_notes import RecordingNotes
from tests.server_fields import without_server_fields

OURS, THEIRS = "cluster/eks/shop/rating", "cluster/other/shop/rating"


def owned(app: str, instance_id: str = "", owner: str = OURS, **fields: object) -> Instance:
    """Return an instance of an owner."""
    return replace(rating(app, instance_id), metadata={"eurekube.owner": owner}, **fields)  # type: ignore[arg-type]


def held(peers: Peers, instance: Instance) -> list[Instance | None]:
    """Return an instance as each server holds it, in the order of the servers."""
    found, failures = peers.read_everywhere(*instance.key)
    assert failures == {}
    return [found[peer.url] for peer in peers.peers]


def wait_level(peers: Peers, instance: Instance, **expected: object) -> None:
    """Wait until every server holds the instance with these values of its fields."""

    def is_level() -> bool:
        there, _ = peers.read_everywhere(*instance.key)  # a busy machine may keep a server's answer
        found = [there.get(peer.url) for peer in peers.peers]
        return all(
            one and all(getattr(one, name) == value for name, value in expected.items()) for one in found
        )

    clock.wait_until(is_level, f"{instance.instance_id} everywhere", WAIT_SECONDS)


def register_until_seen(peers: Peers, instance: Instance) -> None:
    """Register an instance until a server shows it, since a removal that is still being forwarded may take
    it out.
    """

    def is_seen() -> bool:
        Writer(peers).register(instance)
        return any(peers.read_everywhere(*instance.key)[0].values())

    clock.wait_until(is_seen, f"{instance.instance_id} on a server", WAIT_SECONDS)


def synced(
    peers: Peers, desired: list[Instance], owner: str = OURS, policy: Policy = Policy.SYNC
) -> RecordingNotes:
    """Bring the servers to the desired instances by a plan; fail if any change fails."""
    record = RecordingNotes()
    app = desired[0].application
    actual = list_uncached(peers.peers[0].url, application=app)
    outcome = Writer(peers, record).apply(plan(desired, actual, owner, policy), owner)
    assert outcome.failures == ()
    return record


def test_what_was_applied_stands_on_every_server(peers: Peers, app: str) -> None:
    """A registration and an update reach all servers, and a removal leaves the instance on none."""
    first = owned(app)
    record = synced(peers, [first])
    wait_level(peers, first, port=first.port)
    changed = replace(first, ip_address="10.0.0.2")
    Writer(peers, record).apply(plan([changed], [first], OURS), OURS)
    wait_level(peers, first, ip_address="10.0.0.2")
    outcome = Writer(peers, record).apply(plan([], [changed], OURS), OURS)
    assert [change.action for change in outcome.done] == [Action.DEREGISTER]
    assert held(peers, first) == [None, None, None]
    assert [what for what, _ in record.notes] == ["registered", "registered", "leaving", "gone"]


@pytest.mark.parametrize("target", [Status.DOWN, Status.STARTING, Status.OUT_OF_SERVICE, Status.UP])
@pytest.mark.parametrize("start", [Status.UP, Status.OUT_OF_SERVICE, Status.DOWN])
def test_any_status_is_reached(peers: Peers, app: str, start: Status, target: Status) -> None:
    """An update takes an instance from any status to any other on every server, with or without other
    changes.
    """
    for number, address in enumerate(("10.0.0.1", "10.0.0.2")):
        before = owned(app, f"{number}.{app}", status=start)
        Writer(peers).register(before)
        wait_level(peers, before, status=start)
        after = replace(before, status=target, ip_address=address)
        outcome = Writer(peers).apply(plan([after], [before], OURS), OURS)
        assert outcome.failures == ()
        wait_level(peers, after, status=target, ip_address=address)
        now = peers.read(*after.key)
        assert now is not None
        assert not plan([after], [now], OURS)


def test_a_removal_where_one_server_holds_it_only(peers: Peers, http: requests.Session, app: str) -> None:
    """An instance that only one server holds is found and removed, whichever server it is."""
    for position, peer in enumerate(peers.peers):
        stray = owned(app, f"{position}.{app}")
        server = Server(peer.url, http)
        status = server.register(
            document(app, stray.instance_id, metadata={"eurekube.owner": OURS}),
            **{"x-netflix-discovery-replication": "true"},
        )
        assert status == 204
        Writer(peers).remove(stray)
        assert held(peers, stray) == [None, None, None]


def test_a_server_that_no_other_reaches_gets_new_registrations(
    single: Servers, three: Servers, app: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If servers do not replicate to each other, a registration reaches the first alone and the others by
    later renewals; a removal is sent to each.
    """
    monkeypatch.setattr(windows, "CUT_OFF_AFTER_SECONDS", 0.0)
    connection = Connection((three.eureka_urls[0], *single.eureka_urls), read_timeout_seconds=WAIT_SECONDS)
    instance = owned(app)
    with closing(Peers(connection)) as peers:
        Writer(peers).register(instance)
        near, far = held(peers, instance)
        assert near is not None
        assert far is None
        for turn in range(4):
            assert peers.renew(near, turn)
        for there in held(peers, instance):
            assert there is not None
            assert (there.status, there.last_dirty_timestamp_ms) == (Status.UP, near.last_dirty_timestamp_ms)
        Writer(peers).remove(instance)
        assert held(peers, instance) == [None, None]


def test_what_comes_back_after_its_removal_is_removed_again(peers: Peers, app: str) -> None:
    """An instance that comes back after its removal, by a renewal under way, is found by a later check and
    removed.
    """
    instance = owned(app)
    written = Writer(peers).register_over(instance, None)
    wait_level(peers, instance)
    checks = RemovalChecks(clock.sleep)
    Writer(peers).remove(written)
    checks.add_removal(peers, written)
    register_until_seen(peers, written)
    checks.check_and_remove_again()
    assert held(peers, instance) == [None, None, None]


def test_an_instance_that_keeps_coming_back_is_an_error(peers: Peers, app: str) -> None:
    """If a client registers the instance again and again, the error names the servers and a possible
    cause.
    """
    written = Writer(peers).register_over(owned(app), None)

    def comes_back(_: float) -> None:
        register_until_seen(peers, written)

    checks = RemovalChecks(comes_back)
    checks.add_removal(peers, written)
    with pytest.raises(RegistryUnreachable, match=r"keeps holding it.*somebody else") as caught:
        checks.check_and_remove_again()
    assert all(peer.url in caught.value.url for peer in peers.peers)


def test_registered_and_removed_at_once(peers: Peers, app: str) -> None:
    """If servers forward a registration after its removal, the sweep removes what comes back."""
    instances = [owned(app, f"{number}.{app}") for number in range(40)]

    repair = EurekaRegistry(peers, Cluster("another", "uid"), "operator", 600.0).repair

    def come_and_go(instance: Instance) -> None:
        Writer(peers).register(instance)
        Writer(peers).remove(instance)
        peers.table.store_removal_and_plan_checks(instance)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(come_and_go, instances))
    repair.start()
    marker = owned(f"{app}-marker")
    Writer(peers).register(marker)
    wait_level(peers, marker)
    clock.wait_until(
        lambda: not any(any(held(peers, one)) for one in instances), "the end of all", WAIT_SECONDS
    )
    repair.stop()


@pytest.mark.parametrize("owner", [THEIRS, ""], ids=["another cluster's", "nobody's"])
def test_a_foreign_instance_is_left_alone(peers: Peers, app: str, owner: str) -> None:
    """An old plan does not change an instance that another owner has registered: the read before the write
    shows it.
    """
    foreign = owned(app, owner=owner) if owner else rating(app)
    Writer(peers).register(foreign)
    wait_level(peers, foreign)
    mine = owned(app, ip_address="10.0.0.9")
    for stale in (plan([mine], [], OURS), plan([mine], [owned(app)], OURS), plan([], [owned(app)], OURS)):
        record = RecordingNotes()
        outcome = Writer(peers, record).apply(stale, OURS)
        assert outcome.done == ()
        (failure,) = outcome.failures
        assert isinstance(failure.error, OwnershipConflict)
        assert foreign.instance_id in str(failure.error)
        assert (owner or "not registered by Eurekube") in str(failure.error)
        assert record.notes == [("found", foreign.instance_id)]
    assert [one and without_server_fields(one) for one in held(peers, foreign)] == [
        without_server_fields(foreign)
    ] * 3


@pytest.mark.parametrize("owner", [THEIRS, ""], ids=["another cluster's", "nobody's"])
def test_a_registration_of_an_id_that_was_never_seen_gives_way(peers: Peers, app: str, owner: str) -> None:
    """A registration without a read before it leaves an instance that another client registered a moment
    ago.
    """
    foreign = owned(app, owner=owner) if owner else rating(app)
    Writer(peers).register(foreign)
    wait_level(peers, foreign)
    assert Writer(peers).set_status(foreign, Status.OUT_OF_SERVICE)
    wait_level(peers, foreign, status=Status.OUT_OF_SERVICE)
    before = held(peers, foreign)
    record = RecordingNotes(all_is_new=True)
    mine = owned(app, ip_address="10.0.0.9", home_page_url="http://mine/")
    (failure,) = Writer(peers, record).apply(plan([mine], [], OURS), OURS).failures
    assert isinstance(failure.error, OwnershipConflict)
    assert record.notes == [("found", foreign.instance_id)]
    last = owned(app, f"last.{app}")  # once this has been forwarded, so has what came before it
    assert Writer(peers, record).apply(plan([last], [], OURS), OURS).failures == ()
    wait_level(peers, last)
    now = [one and replace(one, last_updated_timestamp_ms=None) for one in held(peers, foreign)]
    assert now == [one and replace(one, last_updated_timestamp_ms=None) for one in before]


def test_an_id_that_was_never_seen_takes_one_write(peers: Peers, app: str) -> None:
    """A new id takes one write, a look at each server afterwards, and gets a timestamp below that of every
    later write.
    """
    instance = owned(app)

    def requests() -> Counter[str]:
        asked: Counter[str] = Counter()
        for peer in peers.peers:
            for (method, _), count in peer.traffic.requests.items():
                asked[method] += count
        return asked

    record = RecordingNotes(all_is_new=True)
    before = requests()
    assert Writer(peers, record).apply(plan([instance], [], OURS), OURS).failures == ()
    assert requests() - before == {"GET": len(peers.peers), "POST": 1}
    assert record.notes == [("registered", instance.instance_id)]
    wait_level(peers, instance, status=Status.UP)
    changed = replace(instance, ip_address="10.0.0.2")
    assert Writer(peers, record).apply(plan([changed], [instance], OURS), OURS).failures == ()
    wait_level(peers, instance, ip_address="10.0.0.2")


@pytest.mark.parametrize("status", [Status.UP, Status.STARTING], ids=str)
def test_a_persons_out_of_service_stays(peers: Peers, app: str, status: Status) -> None:
    """A person's OUT_OF_SERVICE stays when contents change, and returns after any other status."""
    instance = owned(app)
    synced(peers, [instance])
    wait_level(peers, instance)
    assert Writer(peers).set_status(instance, Status.OUT_OF_SERVICE)
    wait_level(peers, instance, status=Status.OUT_OF_SERVICE)
    for number, wanted in enumerate((status, Status.UP)):
        now = peers.read(*instance.key)
        assert now is not None
        changed = replace(instance, status=wanted, ip_address="10.0.0.7", home_page_url=f"http://{number}/")
        outcome = Writer(peers).apply(plan([changed], [now], OURS), OURS)
        assert outcome.failures == ()
        assert [change.action for change in outcome.done] == [Action.UPDATE]
        wait_level(peers, instance, home_page_url=changed.home_page_url)
    wait_level(
        peers,
        instance,
        status=Status.OUT_OF_SERVICE,
        overridden_status=Status.OUT_OF_SERVICE,
        ip_address="10.0.0.7",
    )


@pytest.mark.real_server("it kills a server and starts it again")
def test_a_restarted_server_learns_of_a_persons_out_of_service(frail: Lab, app: str) -> None:
    """A server that lost its memory gets a person's OUT_OF_SERVICE with the next write, not the UP that
    was wanted.
    """
    peers = Peers(Connection(tuple(frail.eureka_urls)))
    instance = owned(app)
    synced(peers, [instance])
    wait_level(peers, instance)
    assert Writer(peers).set_status(instance, Status.OUT_OF_SERVICE)
    wait_level(peers, instance, status=Status.OUT_OF_SERVICE)
    first = frail.eurekas[0]
    first.kill()
    first.start()
    assert peers.peers[0].read(*instance.key) is None
    written = Writer(peers).register_over(replace(instance, ip_address="10.0.0.2"), peers.read(*instance.key))
    assert (written.status, written.overridden_status) == (Status.OUT_OF_SERVICE, Status.OUT_OF_SERVICE)
    wait_level(
        peers,
        instance,
        status=Status.OUT_OF_SERVICE,
        overridden_status=Status.OUT_OF_SERVICE,
        ip_address="10.0.0.2",
    )
    assert Writer(peers).clear_status(instance)
    wait_level(peers, instance, status=Status.UP, overridden_status=Status.UNKNOWN)
    peers.close()


def test_an_instance_that_stands_as_wanted_is_not_written(peers: Peers, app: str) -> None:
    """Registering an unchanged instance does not change its timestamp, and so not its Eureka lease."""
    instance = owned(app)
    synced(peers, [instance])
    before = peers.read(*instance.key)
    record = RecordingNotes()
    Writer(peers, record).apply(plan([instance], [], OURS), OURS)
    after = peers.read(*instance.key)
    assert before is not None
    assert after is not None
    assert after.last_updated_timestamp_ms == before.last_updated_timestamp_ms
    assert record.notes == [("registered", instance.instance_id)]


@pytest.mark.parametrize("ahead_seconds", [600, -600])
def test_clocks_ten_minutes_apart_lose_no_update(
    peers: Peers, app: str, monkeypatch: pytest.MonkeyPatch, ahead_seconds: int
) -> None:
    """With clocks ten minutes apart each writer's update counts, since the timestamp always grows."""
    now = time.time

    def write_as(seconds: float, address: str) -> None:
        monkeypatch.setattr(time, "time", lambda: now() + seconds)
        Writer(peers).register_over(owned(app, ip_address=address), peers.read(*owned(app).key))
        monkeypatch.setattr(time, "time", now)

    for number in range(3):
        for seconds in (0, ahead_seconds):
            address = f"10.0.{number}.{abs(seconds) % 255}"
            write_as(seconds, address)
            found = peers.read(*owned(app).key)
            assert found is not None
            assert found.ip_address == address
    wait_level(peers, owned(app), ip_address=address)


def test_what_was_written_is_renewed(peers: Peers, app: str) -> None:
    """Servers accept a renewal with the timestamp that the write returned."""
    written = Writer(peers).register_over(owned(app), None)
    assert peers.renew(written)
    again = Writer(peers).register_over(replace(owned(app), ip_address="10.0.0.2"), peers.read(*written.key))
    assert peers.renew(again)
    assert not peers.renew(replace(again, last_dirty_timestamp_ms=(again.last_dirty_timestamp_ms or 0) + 1))


@pytest.mark.parametrize("mode", [BatchMode.REST, BatchMode.BATCH], ids=str)
def test_many_changes(three: Servers, app: str, mode: BatchMode) -> None:
    """Many instances are registered, updated and removed on every server, singly or in batches; a foreign
    one stays.
    """
    peers = Peers(Connection(tuple(three.eureka_urls), mode=mode))
    count = FEWEST_CHANGES_FOR_BATCHES + 10
    desired = [owned(app, f"{number:03}.{app}") for number in range(count)]
    foreign = owned(app, desired[0].instance_id, owner=THEIRS)
    Writer(peers).register(foreign)
    wait_level(peers, foreign)
    with ThreadPoolExecutor(8) as pool:
        record = RecordingNotes()
        outcome = Writer(peers, record).apply(plan(desired, [], OURS), OURS, pool)
        assert [failure.change.instance.key for failure in outcome.failures] == [foreign.key]
        assert len(outcome.done) == count - 1
        wait_level(peers, desired[-1])
        changed = [replace(one, status=Status.DOWN) for one in desired]
        outcome = Writer(peers, record).apply(plan(changed[1:], desired[1:], OURS), OURS, pool)
        assert outcome.failures == ()
        for one in changed[1:]:
            wait_level(peers, one, status=Status.DOWN)
        outcome = Writer(peers, record).apply(plan([], desired, OURS), OURS, pool)
        assert [failure.change.instance.key for failure in outcome.failures] == [foreign.key]
    assert [held(peers, one) for one in desired[1:]] == [[None, None, None]] * (count - 1)
    wait_level(peers, foreign, metadata=foreign.metadata)
    peers.close()


def test_owners_that_travel_together(three: Servers, app: str) -> None:
    """Single changes of many owners reach every server in far fewer requests than changes.

    An id of another owner stays as it is, and so does a person's status over an instance.
    """
    peers = Peers(Connection(tuple(three.eureka_urls), mode=BatchMode.BATCH))
    count = 60
    owners = [f"cluster/eks/shop/{app.lower()}-{number}" for number in range(count)]
    wanted = [owned(f"{app}-{number}", owner=owner) for number, owner in enumerate(owners)]
    foreign = owned(wanted[0].application, wanted[0].instance_id, owner=THEIRS)
    Writer(peers).register(foreign)
    wait_level(peers, foreign)

    def carry(record: RecordingNotes, desired: list[Instance], actual: list[Instance]) -> list[PlanOutcome]:
        executor = PlanExecutor(Writer(peers, record))
        plans = [
            plan(
                [one for one in desired if one.owner == owner],
                [one for one in actual if one.owner == owner],
                owner,
            )
            for owner in owners
        ]
        with ThreadPoolExecutor(16) as pool:
            return list(pool.map(executor.apply, plans, owners))

    def asked() -> int:
        return sum(peers.peers[0].traffic.requests.values())

    before = asked()
    first, *others = carry(RecordingNotes(all_is_new=True), wanted, [])
    assert [type(failure.error) for failure in first.failures] == [OwnershipConflict]
    assert [len(outcome.done) for outcome in others] == [1] * (count - 1)
    assert asked() - before < count
    wait_level(peers, wanted[-1])
    chosen = wanted[7]
    Writer(peers).set_status(chosen, Status.OUT_OF_SERVICE)
    wait_level(peers, chosen, status=Status.OUT_OF_SERVICE)
    record = RecordingNotes()
    record.has_instances = bool  # type: ignore[assignment, method-assign]
    changed = [replace(one, ip_address="10.0.0.2") for one in wanted[1:]]
    assert all(outcome.failures == () for outcome in carry(record, changed, wanted[1:]))
    for one in changed:
        wait_level(peers, one, ip_address="10.0.0.2")
    wait_level(peers, chosen, status=Status.OUT_OF_SERVICE, overridden_status=Status.OUT_OF_SERVICE)
    assert all(outcome.failures == () for outcome in carry(record, [], changed))
    assert [held(peers, one) for one in changed] == [[None, None, None]] * len(changed)
    wait_level(peers, foreign, metadata=foreign.metadata)
    peers.close()


def test_batches_keep_a_persons_out_of_service(three: Servers, app: str) -> None:
    """A person's OUT_OF_SERVICE survives an update in a batch on every server."""
    peers = Peers(Connection(tuple(three.eureka_urls), mode=BatchMode.BATCH))
    desired = [owned(app, f"{number:03}.{app}") for number in range(FEWEST_CHANGES_FOR_BATCHES)]
    Writer(peers).apply(plan(desired, [], OURS), OURS)
    chosen = desired[3]
    Writer(peers).set_status(chosen, Status.OUT_OF_SERVICE)
    wait_level(peers, chosen, status=Status.OUT_OF_SERVICE)
    changed = [replace(one, ip_address="10.0.0.2") for one in desired]
    outcome = Writer(peers).apply(plan(changed, desired, OURS), OURS)
    assert outcome.failures == ()
    wait_level(
        peers,
        chosen,
        status=Status.OUT_OF_SERVICE,
        overridden_status=Status.OUT_OF_SERVICE,
        ip_address="10.0.0.2",
    )
    Writer(peers).apply(plan([], changed, OURS), OURS)
    peers.close()


def test_batches_where_every_replica_is_known(three: Servers, peers: Peers) -> None:
    """Mode auto uses batches for many leases, if all servers are among the URLs."""
    assert not peers.uses_batches(10)
    assert peers.uses_batches(10_000)
    partly = Peers(Connection(tuple(three.eureka_urls[:2])))
    assert not partly.uses_batches(10_000)
    partly.close()


@pytest.fixture(scope="module")
def mortal() -> Iterator[Lab]:
    """Start three servers that tests may kill."""
    with Lab(eureka=3, kubernetes=False) as running:
        yield running


@pytest.fixture
def frail(mortal: Lab) -> Lab:
    """Return three servers, all of which run when a test begins."""
    for server in mortal.eurekas:
        if server.state != "running":
            server.start()
    return mortal


@pytest.mark.real_server("it stops a server's process")
def test_a_paused_server_holds_up_nobody_for_long(frail: Lab, app: str) -> None:
    """A frozen server costs one time-out in all, not one for each request."""
    timeout_seconds = 3.0
    peers = Peers(Connection(tuple(frail.eureka_urls), read_timeout_seconds=timeout_seconds))
    frail.eurekas[0].pause()
    started = time.monotonic()
    for number in range(10):
        Writer(peers).register(owned(app, f"{number}.{app}"))
    elapsed = time.monotonic() - started
    frail.eurekas[0].resume()
    peers.close()
    assert timeout_seconds <= elapsed < 3 * timeout_seconds


COUNT_OF_SERVICES = 40


class Operator:
    """An operator with many services of one pod each, which carries out sixteen plans at once."""

    def __init__(self, urls: list[str], leases: int) -> None:
        self.peers = Peers(Connection(tuple(urls)), waits_for_all_servers=False)
        self.registered: dict[tuple[str, str], Instance] = {}
        registry = EurekaRegistry(self.peers, Cluster("another", "uid"), "operator", 600.0)
        registry.renewals.renew_soon = self._came_back  # type: ignore[method-assign]
        self.repair = registry.repair
        self.repair.start()
        self._leases = leases
        record = RecordingNotes(all_is_new=True)
        record.note_removed = self._gone  # type: ignore[method-assign]
        self._plans = PlanExecutor(Writer(self.peers, record))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.repair.stop()
        self.peers.close()

    def _gone(self, instance: Instance, *, is_confirmed_gone: bool = False) -> None:  # noqa: ARG002
        self.registered.pop(instance.key, None)
        self.peers.table.store_removal_and_plan_checks(instance)

    def _came_back(self, keys: Iterable[tuple[str, str]]) -> None:
        for instance in filter(None, map(self.registered.get, keys)):
            if not self.peers.renew(instance):
                Writer(self.peers).register(instance)

    def register(self, *instances: Instance) -> None:
        """Register instances on every server that answers."""
        self.registered.update({one.key: one for one in instances})
        for one in instances:
            self.peers.table.store_written_and_return_previous(one)
        self._carry([(plan([one], [], one.owner or ""), one.owner or "") for one in instances])

    def remove(self, *instances: Instance) -> float:
        """Remove instances; return the seconds that it takes."""
        started = time.monotonic()
        self._carry([(plan([], [one], one.owner or ""), one.owner or "") for one in instances])
        return time.monotonic() - started

    def _carry(self, plans: list[tuple[Plan, str]]) -> None:
        def carry(steps: Plan, owner: str) -> PlanOutcome:
            return self._plans.apply(steps, owner, lease_count=self._leases)

        with ThreadPoolExecutor(16) as pool:
            outcomes = list(pool.map(carry, *zip(*plans, strict=True)))
        assert [outcome.failures for outcome in outcomes] == [()] * len(plans)


@pytest.mark.real_server("it stops a server's process")
@pytest.mark.parametrize("leases", [0, 1000], ids=["single requests", "batches"])
@pytest.mark.parametrize("how", ["frozen", "gone"])
def test_a_server_that_is_away_holds_up_no_change(frail: Lab, app: str, how: str, leases: int) -> None:
    """While one server is away the others lose removed instances at once; when it is back, it loses them
    too, except those registered again.
    """
    front = Proxy(frail.eurekas[0].port)
    before, instances = (
        [
            owned(f"{app}-{phase}-{number}", owner=f"cluster/eks/shop/{app.lower()}-{number}")
            for number in range(COUNT_OF_SERVICES)
        ]
        for phase in ("before", "then")
    )
    with front, Operator([f"http://127.0.0.1:{front.port}/eureka", *frail.eureka_urls[1:]], leases) as us:
        _, *others = us.peers.peers
        us.register(*before, *instances)
        for one in (*before, *instances):
            wait_level(us.peers, one)
        all_answer = us.remove(*before)
        if how == "frozen":
            frail.eurekas[0].pause()
        else:
            front.vanish()
        assert us.remove(*instances) <= 2 * all_answer + 1.0
        assert [one for one in instances if any(peer.read(*one.key) for peer in others)] == []
        again, *gone = instances

        def pause() -> bool:
            """Wait a second, since a server forwards a renewal once none has followed it for half a
            second.
            """
            time.sleep(1.0)
            return False

        def is_back() -> bool:  # the servers that answer may still tell each other of the removal
            us.register(again)
            held = [peer.read(*again.key) for peer in others]
            for found in held:
                if found is not None:
                    us.peers.renew(found)  # with which one that heard of the removal last is informed
            return all(held) or pause()

        wait_until(is_back, "it again", WAIT_SECONDS)
        frail.eurekas[0].resume()
        front.heal()
        wait_until(
            lambda: not any(peer.read(*one.key) for one in gone for peer in us.peers.peers),
            "the end of the rest on all servers",
            WAIT_SECONDS,
        )
        anybody = Peers(us.peers.connection)
        # The server that was away may carry out a removal of before only now, and tell all of it.
        wait_level(anybody, again)
        anybody.close()


@pytest.mark.real_server("it kills a server and starts it again")
def test_servers_that_die_and_come_back(frail: Lab, app: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a server dies the next one is asked; the dead one is asked last, and first again once it answers."""
    monkeypatch.setattr(windows, "AVOID_SERVER_SECONDS", 3.0)
    peers = Peers(Connection(tuple(frail.eureka_urls), connect_timeout_seconds=0.5))
    instance = owned(app)
    Writer(peers).register(instance)
    wait_level(peers, instance)
    asked: list[str] = []
    for peer in peers.peers:

        def read(
            application: str, instance_id: str, peer: object = peer, original: object = peer.read
        ) -> object:
            asked.append(peer.url)  # type: ignore[attr-defined]
            return original(application, instance_id)  # type: ignore[operator]

        peer.read = read  # type: ignore[method-assign,assignment]
    urls = frail.eureka_urls

    frail.eurekas[0].kill()
    assert peers.renew(instance)
    assert peers.read(*instance.key) is not None
    assert asked == [urls[1]]

    found, failures = peers.read_everywhere(*instance.key)
    assert any(found.values())
    assert failures.keys() == {urls[0]}

    Writer(peers).remove(instance)
    found, failures = peers.read_everywhere(*instance.key)
    assert not any(found.values())
    assert failures.keys() == {urls[0]}

    frail.eurekas[0].start()

    def asks_first_again() -> bool:
        asked.clear()
        peers.read(*instance.key)
        return asked == [urls[0]]

    wait_until(asks_first_again, "the first server's return", WAIT_SECONDS)

    for server in frail.eurekas:
        server.kill()
    with pytest.raises(RegistryUnreachable, match=r"no connection to|did not answer"):
        Writer(peers).register(instance)
    plan_of_many = plan([owned(app, f"{number}.{app}") for number in range(5)], [], OURS)
    outcome = Writer(peers).apply(plan_of_many, OURS)
    assert len(outcome.failures) == 5
    assert all(isinstance(failure.error, RegistryUnreachable) for failure in outcome.failures)
    peers.close()


def test_threads_share_one_client(peers: Peers, app: str) -> None:
    """Many threads can register, renew, read and remove through one client."""
    failures: list[Exception] = []
    barrier = threading.Barrier(8)

    def work(number: int) -> None:
        try:
            barrier.wait(WAIT_SECONDS)
            for round_ in range(5):
                instance = owned(app, f"{number}-{round_}.{app}")
                written = Writer(peers).register_over(instance, None)
                assert peers.renew(written)
                assert peers.read(*instance.key) is not None
                Writer(peers).remove(instance)
        except Exception as error:  # noqa: BLE001 - reported by the test
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
