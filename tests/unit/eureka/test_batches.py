"""Changes in batches to model servers; registrations that another client made a moment ago are kept."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import pytest

from eurekube_provider.core.errors import LeadershipLost, OwnershipConflict, RegistryUnreachable
from eurekube_provider.core.identity import LEAVING_KEY, OWNER_KEY
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.core.plan import Action, Change, plan
from eurekube_provider.dev.eureka.cluster import EurekaCluster
from eurekube_provider.eureka import peers as peers_module
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.batches import ErrorByKey, apply_orders_in_batches
from eurekube_provider.eureka.connection import BatchMode, Connection
from eurekube_provider.eureka.notes import ChangeOrder, WriteNotes
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol import batch
from eurekube_provider.eureka.protocol.batch import ItemResponse
from eurekube_provider.eureka.protocol.peer import Peer
from lab.waiting import wait_until
from tests.explore.world import World, owned
from tests.recording_notes import RecordingNotes
from tests.unit.eureka.model_servers import ONE, URLS, Servers, removed

OURS, THEIRS = "cluster/eks/shop/rating", "cluster/other/shop/rating"


@pytest.fixture(autouse=True, params=[False, True], ids=["unknown servers", "servers that tell versions"])
def servers_tell_versions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run each test with servers that were seen lately to tell versions apart, and with unknown ones."""
    is_known: bool = request.param
    if is_known:
        monkeypatch.setattr(Peers, "tells_versions", lambda *_: True)
    return is_known


class InlineExecutor:
    """An executor that does work in the caller's thread."""

    def __init__(self, *_: object) -> None:
        pass

    def submit(self, work: Callable[[], None]) -> bool:
        """Do the work at once."""
        work()
        return True


def change_in_batches(
    peers: Peers,
    wanted: Sequence[Instance],
    leaving: Sequence[Instance] = (),
    notes: WriteNotes | None = None,
    *,
    is_terminated: bool = False,
) -> ErrorByKey:
    """Register and remove these instances in batches, and return the failures by key."""
    changes = [Change(Action.REGISTER, one) for one in wanted]
    changes += [Change(Action.DEREGISTER, one, one, is_terminated=is_terminated) for one in leaving]
    return apply_orders_in_batches(
        peers, notes or WriteNotes(peers.table), [ChangeOrder(change, OURS) for change in changes]
    )


@contextmanager
def counted(server: Peer) -> Iterator[list[int]]:
    """Yield a list that gets the number of items of each batch to a server."""
    sent, send = list[int](), server.send_batch

    def send_and_count(items: Sequence[bytes]) -> list[ItemResponse]:
        sent.append(len(items))
        return send(items)

    with mock.patch.object(server, "send_batch", send_and_count):
        yield sent


def test_a_slow_server_is_written_to_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow server that is no longer waited for still gets the batch soon, because servers do not forward
    batches.
    """
    monkeypatch.setattr(windows, "SERVER_GRACE_SECONDS", 0.05)
    one = instance(OURS, 1)
    slow, held, lock = URLS[2], {url: set[str]() for url in URLS}, threading.Lock()

    def carry_out(peer: Peer, items: Sequence[bytes]) -> list[ItemResponse]:
        if peer.url == slow:
            time.sleep(0.3)
        answers = []
        with lock:
            for item in map(json.loads, items):
                there = held[peer.url]
                if item["action"] == "Register":
                    there.add(item["id"])
                elif item["action"] == "Cancel":
                    there.discard(item["id"])
                answers.append(ItemResponse(200 if item["id"] in there else 404))
        return answers

    monkeypatch.setattr(Peer, "send_batch", carry_out)
    monkeypatch.setattr(Peer, "read", lambda peer, _, name: one if name in held[peer.url] else None)
    peers = Peers(Connection(URLS, mode=BatchMode.BATCH), waits_for_all_servers=False)
    assert change_in_batches(peers, [one]) == {}
    assert one.instance_id in held[URLS[0]]
    wait_until(lambda: one.instance_id in held[slow], "the registration", 10.0)
    assert change_in_batches(peers, (), [one]) == {}
    assert one.instance_id not in held[URLS[0]]
    wait_until(lambda: one.instance_id not in held[slow], "the removal", 10.0)
    peers.close()


def test_what_may_not_be_written_in_a_batch_is_not_even_read() -> None:
    """A batch sends no request at all once this replica may no longer lead."""
    peers = Peers(Connection(URLS, mode=BatchMode.BATCH), lambda: False)
    with mock.patch.object(Peer, "send_batch") as asked, pytest.raises(LeadershipLost, match="not begun"):
        change_in_batches(peers, [instance(OURS, 1)], [instance(OURS, 2)])
    asked.assert_not_called()
    peers.close()


def instance(owner: str, number: int, timestamp_ms: int | None = None) -> Instance:
    """Return an instance whose port shows its owner."""
    return Instance(
        "rating",
        f"{number:04}",
        "10.0.0.1",
        "10.0.0.1",
        Port(8080 if owner == OURS else 9090),
        metadata={OWNER_KEY: owner},
        last_dirty_timestamp_ms=timestamp_ms,
    )


@contextmanager
def one_server() -> Iterator[tuple[EurekaCluster, Peers]]:
    """Yield a server that has run for an hour, and its client."""
    cluster = EurekaCluster(URLS[:1])
    cluster.clock.advance(3_600_000)
    with owned(World(cluster)):
        yield cluster, Peers(Connection(URLS[:1], mode=BatchMode.BATCH))


def owner_on(cluster: EurekaCluster, url: str, number: int) -> str | None:
    """Return the owner of an instance on a server, or None if the server does not hold it."""
    held = cluster.servers[url].registry.get("RATING", f"{number:04}")
    return held.fields["metadata"][OWNER_KEY] if held else None


@pytest.mark.parametrize("age_seconds", [0, 300 * 86_400], ids=["new", "of the year before"])
@pytest.mark.parametrize("is_split", [False, True], ids=["forwarded", "split"])
@pytest.mark.parametrize("at", URLS)
@pytest.mark.parametrize("number", [0, 1], ids=["first", "second"])
def test_an_id_that_another_client_took_a_moment_ago(
    number: int, at: str, is_split: bool, age_seconds: int
) -> None:
    """An id that one server holds for another owner, unlisted, is a conflict: that server never holds our
    instance under it, and the others have theirs as soon as they hear of it.
    """
    cluster = EurekaCluster(URLS)
    cluster.clock.advance(3_600_000)
    if is_split:
        cluster.cut = {(one, other) for one in URLS for other in URLS if at in (one, other)}
    before = cluster.clock.now_ms - age_seconds * 1000
    world, seen, held = World(cluster), RecordingNotes(all_is_new=True), set[str | None]()
    world.watch = lambda _: held.add(owner_on(cluster, at, number))
    with owned(world), mock.patch.object(peers_module, "PeerExecutor", InlineExecutor):
        peers = Peers(Connection(URLS, mode=BatchMode.BATCH))
        peers.peers[URLS.index(at)].register(instance(THEIRS, number, before))
        wanted = [instance(OURS, each) for each in (0, 1)]
        failures = change_in_batches(peers, wanted, notes=seen)
        cluster.clock.advance(5_000)
    assert {key: type(error) for key, error in failures.items()} == {wanted[number].key: OwnershipConflict}
    assert seen.notes == [("found", f"{number:04}"), ("registered", f"{1 - number:04}")]
    assert held - {None} == {THEIRS}  # nobody held it before they registered it
    others = {owner_on(cluster, url, number) for url in URLS if url != at}
    assert others == ({OURS} if is_split else {THEIRS})
    assert {owner_on(cluster, url, 1 - number) for url in URLS} == {OURS}


def test_what_a_silent_server_may_hold_gives_way() -> None:
    """While a server does not answer, an id that was never seen wins over a former version of ours, which
    that server may hold and tell the others of.
    """
    cluster = EurekaCluster(URLS)
    cluster.clock.advance(3_600_000)
    former_ms = cluster.clock.now_ms - 600_000
    with owned(World(cluster)), mock.patch.object(peers_module, "PeerExecutor", InlineExecutor):
        peers = Peers(Connection(URLS, mode=BatchMode.BATCH))
        peers.peers[2].send_batch = mock.Mock(side_effect=RegistryUnreachable("it is frozen"))  # type: ignore[method-assign]
        assert not change_in_batches(peers, [instance(OURS, 0)], notes=RecordingNotes(all_is_new=True))
        held = [peer.read("RATING", "0000") for peer in peers.peers[:2]]
    assert all(one and one.written_at_ms > former_ms for one in held)


@pytest.mark.parametrize("number", [0, 1], ids=["first", "second"])
def test_an_id_that_another_client_takes_at_this_moment(number: int) -> None:
    """Another owner's registration between our write at one server and at another wins on every server, and
    is reported as a failure.
    """
    cluster = EurekaCluster(URLS)
    cluster.clock.advance(3_600_000)
    world, seen = World(cluster), RecordingNotes(all_is_new=True)
    with owned(world), mock.patch.object(peers_module, "PeerExecutor", InlineExecutor):
        peers = Peers(Connection(URLS, mode=BatchMode.BATCH))
        theirs = instance(THEIRS, number, cluster.clock.now_ms)
        send = peers.peers[0].send_batch
        looks = iter([True])

        def comes_between(items: list[bytes]) -> object:
            answers = send(items)
            if next(looks, False):
                peers.peers[2].register(theirs)
            return answers

        wanted = [instance(OURS, each) for each in (0, 1)]
        with mock.patch.object(peers.peers[0], "send_batch", comes_between):
            failures = change_in_batches(peers, wanted, notes=seen)
        cluster.clock.advance(5_000)
    assert list(failures) == [theirs.key]
    assert ("found", theirs.instance_id) in seen.notes
    assert {owner_on(cluster, url, number) for url in URLS} == {THEIRS}


@pytest.mark.parametrize("urls", [URLS[:1], URLS], ids=["one server", "three"])
def test_an_update_after_a_write_is_one_request_to_each_server(
    urls: tuple[str, ...],
) -> None:
    """An update soon after a write is one batch per server, whose answer also shows what the server holds."""
    cluster = EurekaCluster(urls)
    cluster.clock.advance(3_600_000)
    world, notes = World(cluster), RecordingNotes(all_is_new=True, all_gives_way=True)
    with owned(world), mock.patch.object(peers_module, "PeerExecutor", InlineExecutor):
        peers = Peers(Connection(urls, mode=BatchMode.BATCH))
        assert not change_in_batches(peers, [instance(OURS, 0)], notes=notes)
        first = notes.table.get(("RATING", "0000"))
        world.trace.clear()
        assert not change_in_batches(peers, [replace(instance(OURS, 0), status=Status.DOWN)], notes=notes)
        held = [peer.read("RATING", "0000") for peer in peers.peers]
    assert first is not None
    assert (
        len([line for line in world.trace if "Register" in line]) == len(urls) == len(world.trace) - len(urls)
    )
    assert [one and (one.status, one.written_at_ms) for one in held] == [
        (Status.DOWN, first.written_at_ms + 1)
    ] * len(urls)


@pytest.mark.parametrize("urls", [URLS[:1], URLS], ids=["one server", "three"])
def test_an_update_gives_way_to_a_later_take_over(urls: tuple[str, ...]) -> None:
    """An update without a read gives way to another owner's newer registration, and reports the conflict."""
    cluster = EurekaCluster(urls)
    cluster.clock.advance(3_600_000)
    notes = RecordingNotes(all_is_new=True, all_gives_way=True)
    with owned(World(cluster)), mock.patch.object(peers_module, "PeerExecutor", InlineExecutor):
        peers = Peers(Connection(urls, mode=BatchMode.BATCH))
        both = [instance(OURS, number) for number in (0, 1)]
        assert not change_in_batches(peers, both, notes=notes)
        peers.peers[-1].register(instance(THEIRS, 1, cluster.clock.now_ms))
        failures = change_in_batches(peers, [replace(one, status=Status.DOWN) for one in both], notes=notes)
        cluster.clock.advance(5_000)
    assert {key: type(error) for key, error in failures.items()} == {both[1].key: OwnershipConflict}
    assert {owner_on(cluster, url, 1) for url in urls} == {THEIRS}
    assert ("found", "0001") in notes.notes


def test_an_update_after_another_replicas_write_is_written_again() -> None:
    """An update that is older than another replica's write is sent again, so that the wanted contents
    stand.
    """
    one, notes = instance(OURS, 0), RecordingNotes(all_is_new=True, all_gives_way=True)
    with one_server() as (cluster, peers):
        assert not change_in_batches(peers, [one], notes=notes)
        newer = replace(one, status=Status.STARTING, last_dirty_timestamp_ms=cluster.clock.now_ms)
        peers.peers[0].register(newer)
        assert not change_in_batches(peers, [replace(one, status=Status.DOWN)], notes=notes)
        held = peers.peers[0].read(*one.key)
    assert held is not None
    assert held.status is Status.DOWN


def lose(cluster: EurekaCluster, peers: Peers, notes: RecordingNotes) -> Instance:
    """Register an instance, and have all servers forget it; return it as it was."""
    assert not change_in_batches(peers, [instance(OURS, 0)], notes=notes)
    known = notes.table.get(("RATING", "0000"))
    assert known is not None
    cluster.clock.advance(60_000)
    for url in cluster.urls:
        cluster.restart(url)
    notes.table.remember_lost_instance(known)
    notes.table.store_confirmed_absence(known.key, may_be_forgotten=True)
    return known


@pytest.mark.parametrize("urls", [URLS[:1], URLS], ids=["one server", "three"])
@pytest.mark.parametrize("status", [Status.UP, Status.DOWN])
def test_what_the_only_server_forgot_is_registered_without_a_read(
    urls: tuple[str, ...], status: Status
) -> None:
    """An instance that the only server forgot stands again after one batch, as old as it was, or by a
    millisecond newer with other contents. Of several servers another one may hold it: they are read.
    """
    cluster, notes = EurekaCluster(urls), RecordingNotes()
    cluster.clock.advance(3_600_000)
    world = World(cluster)
    with owned(world), mock.patch.object(peers_module, "PeerExecutor", InlineExecutor):
        peers = Peers(Connection(urls, mode=BatchMode.BATCH))
        known = lose(cluster, peers, notes)
        world.trace.clear()
        assert not change_in_batches(peers, [replace(instance(OURS, 0), status=status)], notes=notes)
        reads = len([line for line in world.trace if "Register" not in line])
        held = peers.peers[0].read(*known.key)
    assert held is not None
    assert held.status is status
    if len(urls) > 1:
        assert reads == len(urls)
    else:
        assert reads == 0
        assert held.written_at_ms == known.written_at_ms + (status is not known.status)
        assert notes.table.get(known.key) == held


def test_what_stands_in_place_of_what_was_forgotten_stays() -> None:
    """Whoever has registered the id since the server forgot it keeps it, and the conflict is reported."""
    notes = RecordingNotes()
    with one_server() as (cluster, peers):
        lose(cluster, peers, notes)
        peers.peers[0].register(instance(THEIRS, 0, cluster.clock.now_ms))
        failures = change_in_batches(peers, [instance(OURS, 0)], notes=notes)
        assert owner_on(cluster, URLS[0], 0) == THEIRS
    assert [type(error) for error in failures.values()] == [OwnershipConflict]


def test_a_status_that_a_person_set_since_is_noted_with_the_update() -> None:
    """A status that a person set is kept by an update, and learned from its answer."""
    one, notes = instance(OURS, 0), RecordingNotes(all_is_new=True, all_gives_way=True)
    with one_server() as (_, peers):
        assert not change_in_batches(peers, [one], notes=notes)
        peers.peers[0].set_status(one, Status.OUT_OF_SERVICE)
        assert not change_in_batches(peers, [replace(one, health_check_url="http://a/")], notes=notes)
        held, known = peers.peers[0].read(*one.key), notes.table.get(one.key)
    for found in (held, known):
        assert found is not None
        assert (found.overridden_status, found.health_check_url) == (Status.OUT_OF_SERVICE, "http://a/")


def test_instances_of_a_namesake_cluster_are_left_in_a_batch() -> None:
    """A batch does not remove an instance of another cluster with our name."""
    cluster = EurekaCluster(URLS[:1])
    with owned(World(cluster)):
        peers = Peers(Connection(URLS[:1], mode=BatchMode.BATCH))
        both = [instance(OURS, number) for number in (0, 1)]
        assert not change_in_batches(peers, both)

        class Two(RecordingNotes):
            def is_of_other_cluster_of_same_name(self, instance: Instance) -> bool:
                return instance.instance_id == "0000"

        failures = change_in_batches(peers, (), both, notes=Two())
    assert list(failures) == [both[0].key]
    assert [owner_on(cluster, URLS[0], number) for number in (0, 1)] == [OURS, None]


def test_what_stands_everywhere_is_not_registered_again() -> None:
    """An unlisted instance that every server holds is not registered again, so that no client is notified;
    one that a server lacks is.
    """
    cluster = EurekaCluster(URLS)
    cluster.clock.advance(3_600_000)
    world = World(cluster)
    with owned(world), mock.patch.object(peers_module, "PeerExecutor", InlineExecutor):
        peers = Peers(Connection(URLS, mode=BatchMode.BATCH))
        wanted = [instance(OURS, each) for each in (0, 1)]
        assert not change_in_batches(peers, wanted, notes=RecordingNotes(all_is_new=True))
        cluster.cut = {(one, other) for one in URLS for other in URLS}
        peers.peers[2].deregister(*wanted[1].key)  # which one server alone heard of
        world.trace.clear()
        assert not change_in_batches(peers, wanted)
    sent = [line for line in world.trace if "Register" in line]
    assert {line.split()[1] for line in sent} == set(URLS)
    assert all("0001" in line and "Register:0000" not in line for line in sent)
    assert {owner_on(cluster, url, 1) for url in URLS} == {OURS}


def test_an_unlisted_out_of_service_keeps_our_mark_in_a_batch() -> None:
    """An OUT_OF_SERVICE instance with the operator's mark keeps the mark in a batch; one that a person put
    out of service gets none.
    """
    cluster = EurekaCluster(URLS[:1])
    with owned(World(cluster)):
        peers = Peers(Connection(URLS[:1], mode=BatchMode.BATCH))
        marked = replace(instance(OURS, 0), metadata={OWNER_KEY: OURS, LEAVING_KEY: "true"})
        standing = [marked, instance(OURS, 1)]
        assert not change_in_batches(peers, standing, notes=RecordingNotes(all_is_new=True))
        for one in standing:
            peers.peers[0].set_status(one, Status.OUT_OF_SERVICE)
        wanted = [replace(instance(OURS, each), health_check_url="http://a/") for each in (0, 1)]
        assert not change_in_batches(peers, wanted, notes=RecordingNotes())
        found = [peers.peers[0].read(*one.key) for one in standing]
    assert [one.is_leaving for one in found if one] == [True, False]
    assert all(one and one.health_check_url for one in found)


def test_a_batch_without_an_answer_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registration in an unanswered batch is noted as one that may come late: a frozen server may still
    carry it out.
    """
    one, reported = instance(OURS, 1), list[Instance]()

    def carry_out(peer: Peer, items: Sequence[bytes]) -> list[ItemResponse]:
        if peer.url == URLS[1]:
            raise RegistryUnreachable("frozen")
        return [ItemResponse(200 if json.loads(item)["action"] == "Register" else 404) for item in items]

    monkeypatch.setattr(Peer, "send_batch", carry_out)
    monkeypatch.setattr(Peer, "register", lambda *_: None)
    peers = Peers(Connection(URLS[:2], mode=BatchMode.BATCH))
    notes = RecordingNotes()
    monkeypatch.setattr(notes.table, "remember_unanswered_registrations", reported.extend)
    change_in_batches(peers, [one], notes=notes)
    peers.close()
    assert [(sent.key, sent.status) for sent in reported] == [(one.key, Status.UP)]


@pytest.mark.parametrize("comes_back", [False, True], ids=["removed", "registered again"])
def test_a_server_left_behind_gets_nothing_that_was_undone(
    comes_back: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow server does not get changes that were undone before their batch was sent to it."""
    monkeypatch.setattr(windows, "SERVER_GRACE_SECONDS", 0.05)
    many = [instance(OURS, number) for number in range(batch.MOST_ITEMS_PER_BATCH // 2 + 1)]
    last = many[-1]
    slow, held = URLS[1], {url: dict[str, None]() for url in URLS[:2]}
    is_slow, goes_on, lock = threading.Event(), threading.Event(), threading.Lock()

    def carry_out(peer: Peer, items: Sequence[bytes]) -> list[ItemResponse]:
        document = [json.loads(item) for item in items]
        if peer.url == slow and is_slow.is_set() and len(document) > 2:
            assert goes_on.wait(30.0)
        with lock:
            there, answers = held[peer.url], []
            for item in document:
                if item["action"] == "Register":
                    there[item["id"]] = None
                elif item["action"] == "Cancel":
                    there.pop(item["id"], None)
                answers.append(ItemResponse(200 if item["id"] in there else 404))
        return answers

    def read(peer: Peer, _: str, name: str) -> Instance | None:
        return many[int(name)] if name in held[peer.url] else None

    monkeypatch.setattr(Peer, "send_batch", carry_out)
    monkeypatch.setattr(Peer, "read", read)
    threads, seen = set(threading.enumerate()), RecordingNotes()
    peers = Peers(Connection(tuple(held), mode=BatchMode.BATCH), waits_for_all_servers=False)
    if comes_back:
        assert change_in_batches(peers, many, notes=seen) == {}
    is_slow.set()
    wanted, leaving = ((), many) if comes_back else (many, ())
    assert change_in_batches(peers, wanted, leaving, notes=seen) == {}
    wanted, leaving = ([last], ()) if comes_back else ((), [last])
    assert change_in_batches(peers, wanted, leaving, notes=seen) == {}
    goes_on.set()
    wait_until(lambda: ("0000" in held[slow]) is not comes_back, "the first batch", 30.0)
    peers.close()
    wait_until(lambda: threads.issuperset(threading.enumerate()), "the end", 30.0)
    assert (last.instance_id in held[slow]) is comes_back


def test_what_a_server_keeps_of_a_batch_is_removed_again(servers: Servers) -> None:
    """An instance that one of several servers keeps after a removal is removed again, as no server would
    forward the removal.
    """
    servers.everywhere(ONE)
    first, keeps = servers.peers.peers[0], iter([True])
    send = first.send_batch

    def batch(items: Sequence[bytes]) -> list[ItemResponse]:
        if b'"Cancel"' in items[0] and next(keeps, False):
            return [ItemResponse(200), *send(items[1:])]
        return send(items)

    with mock.patch.object(first, "send_batch", batch):
        assert not removed(servers, in_a_batch=True)
    assert next(keeps, None) is None
    assert servers.holding() == {}


def test_what_somebody_else_registers_in_its_place_stays(servers: Servers) -> None:
    """Another owner's instance that was registered just after our removal is not removed again."""
    servers.everywhere(ONE)
    first, comes = servers.peers.peers[0], iter([True])
    theirs = replace(ONE, metadata={OWNER_KEY: THEIRS}, last_dirty_timestamp_ms=servers.cluster.clock.now_ms)
    send = first.send_batch

    def batch(items: Sequence[bytes]) -> list[ItemResponse]:
        if b'"Cancel"' not in items[0] or not next(comes, False):
            return send(items)
        answers = send(items[:1])
        first.register(theirs)
        return [*answers, *send(items[1:])]

    with mock.patch.object(first, "send_batch", batch):
        assert not removed(servers, in_a_batch=True)
    assert servers.holding().keys() == {URLS[0]}


def test_what_a_server_drops_of_a_batch_is_sent_by_itself(servers: Servers) -> None:
    """A registration that a server answered with 200 but does not hold is sent again alone."""
    first, drops = servers.peers.peers[0], iter([True])
    send = first.send_batch

    def batch(items: Sequence[bytes]) -> list[ItemResponse]:
        if b'"Register"' in items[0] and next(drops, False):
            return [ItemResponse(200), *send(items[1:])]
        return send(items)

    with mock.patch.object(first, "send_batch", batch):
        assert not servers.carry_out(plan([ONE], [], OURS), in_a_batch=True)
    assert next(drops, None) is None
    assert servers.holding().keys() == set(URLS)


def test_what_a_server_answers_with_500_stops_no_other_registration(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a server drops one registration of a batch, and answers it with 500 alone, the others are registered
    and noted; what serves is not removed meanwhile.
    """
    serving = replace(ONE, instance_id="serving", ip_address="10.0.0.3")
    for peer in servers.peers.peers:
        peer.register(serving)
    bad = replace(ONE, instance_id="bad", ip_address="10.0.0.2")

    def refuse(*_: object) -> None:
        raise RegistryUnreachable("answered 500", status_code=500)

    def send(self: Peer, items: Sequence[bytes]) -> list[ItemResponse]:
        dropped = [b'"Register"' in item and b'"bad"' in item for item in items]
        sent = [item for item, is_dropped in zip(items, dropped, strict=True) if not is_dropped]
        answers = iter(send_batch(self, sent))
        return [ItemResponse(200) if is_dropped else next(answers) for is_dropped in dropped]

    send_batch = Peer.send_batch
    monkeypatch.setattr(Peer, "send_batch", send)
    monkeypatch.setattr(Peer, "register", refuse)
    errors = servers.carry_out(plan([bad, ONE], [serving], OURS), in_a_batch=True)
    assert [str(error) for error in errors] == ["answered 500"] * 2
    assert servers.cluster.servers[URLS[0]].registry.get(*serving.key) is not None
    assert servers.holding().keys() == set(URLS)
    assert servers.table.get(ONE.key) is not None


def test_a_server_is_asked_for_versions_alone_once_it_told_one() -> None:
    """A server that was never seen to tell versions apart writes out what it holds; afterwards it says only
    that a new instance and one that leaves are there in the known version.
    """
    one, other = instance(OURS, 0), instance(OURS, 1)
    notes = RecordingNotes(all_is_new=True)
    with one_server() as (_, peers):
        server, answers = peers.peers[0], list[list[ItemResponse]]()
        send = server.send_batch

        def noted(items: Sequence[bytes]) -> list[ItemResponse]:
            answers.append(send(items))
            return answers[-1]

        server.send_batch = noted  # type: ignore[method-assign]
        is_known_before = peers.tells_versions(server)
        assert not change_in_batches(peers, [one], notes=notes)
        assert (answers[-1][1].instance is None) == is_known_before
        assert peers.tells_versions(server)
        assert not change_in_batches(peers, [other], notes=notes)
        assert answers[-1] == [ItemResponse(200), ItemResponse(200)]
        known = notes.table.get(other.key)
        assert known is not None
        answers.clear()
        assert not change_in_batches(peers, [], [known], notes=notes)
        assert answers[0] == [ItemResponse(200)]
        assert server.read(*other.key) is None


@pytest.mark.parametrize("owner", [OURS, THEIRS])
def test_a_server_that_holds_an_older_version_is_told_of_the_removal(owner: str) -> None:
    """An older version at one server, where the known one is at the others, is removed as well; another
    owner's is left, and the change is a conflict.
    """
    cluster = EurekaCluster(URLS)
    cluster.cut = {(a, b) for a in URLS for b in URLS if a != b}
    cluster.clock.advance(3_600_000)
    known = instance(OURS, 0, cluster.clock.now_ms)
    with owned(World(cluster)), mock.patch.object(peers_module, "PeerExecutor", InlineExecutor):
        peers = Peers(Connection(URLS, mode=BatchMode.BATCH))
        for peer in peers.peers[:2]:
            peer.register(known)
        peers.peers[2].register(instance(owner, 0, cluster.clock.now_ms - 60_000))
        failures = change_in_batches(peers, [], [known])
        left = [owner_on(cluster, url, 0) for url in URLS]
    assert bool(failures) is (owner is THEIRS)
    assert left == ([None] * 3 if owner is OURS else [OURS, OURS, THEIRS])


def test_a_terminated_pods_instance_costs_one_request() -> None:
    """A terminated pod's instance is read in the request that removes it; any other one before."""
    notes = RecordingNotes(all_is_new=True, all_gives_way=True)
    with one_server() as (_, peers), counted(peers.peers[0]) as sent:
        assert not change_in_batches(peers, [instance(OURS, 0), instance(OURS, 1)], notes=notes)
        for number in (0, 1):
            known = notes.table.get(("RATING", f"{number:04}"))
            assert known is not None
            sent.clear()
            assert not change_in_batches(peers, [], [known], notes=notes, is_terminated=number == 0)
            assert sent == ([3] if number == 0 else [1, 2])
            assert peers.peers[0].read(*known.key) is None
            assert ("gone", known.instance_id) in notes.notes


@pytest.mark.parametrize("leads", [True, False])
@pytest.mark.parametrize("status", [Status.UP, Status.OUT_OF_SERVICE])
def test_what_was_taken_over_since_its_renewal_is_put_back(
    status: Status, leads: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Another owner's instance that was removed unread stands again as it was, a person's status included,
    and is a conflict, also where another replica leads by then.
    """
    notes = RecordingNotes(all_is_new=True, all_gives_way=True)
    with one_server() as (cluster, peers):
        server = peers.peers[0]
        ours = [instance(OURS, number) for number in (0, 1)]
        assert not change_in_batches(peers, ours, notes=notes)
        cluster.clock.advance(5_000)
        server.register(instance(THEIRS, 1, cluster.clock.now_ms))
        if status is Status.OUT_OF_SERVICE:
            server.set_status(ours[1], status)
        theirs = server.read(*ours[1].key)
        assert theirs is not None
        known = [notes.table.get(one.key) or one for one in ours]
        send = server.send_batch

        def send_and_lose_leadership(items: Sequence[bytes]) -> list[ItemResponse]:
            answers = send(items)
            if not leads:
                peers.may_write = lambda: False
            return answers

        with mock.patch.object(server, "send_batch", send_and_lose_leadership):
            failures = change_in_batches(peers, [], known, notes=notes, is_terminated=True)
        held = server.read(*theirs.key)
        assert server.read(*ours[0].key) is None
    assert {key: type(error) for key, error in failures.items()} == {theirs.key: OwnershipConflict}
    assert held is not None
    assert (held.owner, held.status, held.overridden_status, held.written_at_ms) == (
        THEIRS,
        theirs.status,
        theirs.overridden_status,
        theirs.written_at_ms,
    )
    assert ("gone", theirs.instance_id) not in notes.notes
    assert ("found", theirs.instance_id) in notes.notes
    assert caplog.text.count("another owner had taken over") == 1


def test_another_owners_at_one_of_several_servers_is_put_back() -> None:
    """At several servers a terminated pod's instance is removed by one request to each; another owner's at
    one of them stands there again, and is a conflict.
    """
    cluster = EurekaCluster(URLS)
    cluster.cut = {(a, b) for a in URLS for b in URLS if a != b}
    cluster.clock.advance(3_600_000)
    notes = RecordingNotes(all_is_new=True, all_gives_way=True)
    with owned(World(cluster)), mock.patch.object(peers_module, "PeerExecutor", InlineExecutor):
        peers = Peers(Connection(URLS, mode=BatchMode.BATCH))
        assert not change_in_batches(peers, [instance(OURS, 0)], notes=notes)
        known = notes.table.get(("RATING", "0000"))
        assert known is not None
        cluster.clock.advance(1_000)
        peers.peers[2].register(instance(THEIRS, 0, cluster.clock.now_ms))
        with counted(peers.peers[0]) as sent:
            failures = change_in_batches(peers, [], [known], notes=notes, is_terminated=True)
        left = [owner_on(cluster, url, 0) for url in URLS]
    assert sent == [3]
    assert {key: type(error) for key, error in failures.items()} == {known.key: OwnershipConflict}
    assert left == [None, None, THEIRS]
    assert ("gone", known.instance_id) not in notes.notes


def test_a_server_that_tells_no_versions_is_read_before_a_removal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that was not seen lately to tell versions apart is asked before a removal."""
    notes = RecordingNotes(all_is_new=True, all_gives_way=True)
    with one_server() as (_, peers), counted(peers.peers[0]) as sent:
        assert not change_in_batches(peers, [instance(OURS, 0)], notes=notes)
        known = notes.table.get(("RATING", "0000"))
        assert known is not None
        monkeypatch.setattr(Peers, "tells_versions", lambda *_: False)
        sent.clear()
        assert not change_in_batches(peers, [], [known], notes=notes, is_terminated=True)
    assert sent == [1, 2]
