"""The whole registry, read again and again: what is as it was costs nothing."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from eurekube_provider.core.errors import RegistryUnreachable
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.dev.eureka.cluster import EurekaCluster
from eurekube_provider.dev.eureka.documents import ServerRequest
from eurekube_provider.dev.eureka.response_caches import ALL, DELTA, CacheKey
from eurekube_provider.dev.eureka.virtual_clock import EPOCH_MS, Clock
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.protocol.codec import instances_from_text
from eurekube_provider.eureka.protocol.delta import Delta, applied, counts_of, delta_from_text
from eurekube_provider.eureka.registry import registry_fetcher
from eurekube_provider.eureka.registry.registry_fetcher import RegistryFetcher
from tests.model.commands import Commands

RATING = Instance("rating", "a", "10.0.0.1", "10.0.0.1", Port(8080))
ORDER = Instance("order", "b", "10.0.0.2", "10.0.0.2", Port(8080))

URL = "model"
STARTED = {URL: 1}
HEADERS = {"Accept": "application/json"}
TICK_MS = 30_000


class Server:
    """Peers with one server, whose list changes on request."""

    url = URL

    def __init__(self) -> None:
        self.listed: list[Instance] = []
        self.version = 0
        self.made = 0

    def list_by(self, read: Callable[[Server], list[Instance]]) -> list[Instance]:
        """Ask the only one."""
        return read(self)

    def list_unless(self, fingerprint: bytes) -> tuple[bytes, list[Instance] | None]:
        """A list of new objects, unless it is the one that was given last."""
        found = str(self.version).encode()
        if found == fingerprint:
            return found, None
        self.made += 1
        return found, [replace(instance) for instance in self.listed]


def test_an_answer_that_did_not_change_is_read_once() -> None:
    """The same answer is the same list, instance by instance."""
    server = Server()
    server.listed = [RATING, ORDER]
    listing = RegistryFetcher(server)  # type: ignore[arg-type]
    first, second = listing.read(), listing.read()
    assert first == [RATING, ORDER]
    assert [id(one) for one in first] == [id(one) for one in second]
    assert server.made == 1


def test_what_changed_is_new_and_the_rest_the_same() -> None:
    """Of another answer, an instance that is as it was stays the object that it was."""
    server = Server()
    server.listed = [RATING, ORDER]
    listing = RegistryFetcher(server)  # type: ignore[arg-type]
    rating, _ = listing.read()
    moved = replace(ORDER, ip_address="10.0.0.3")
    server.listed, server.version = [moved, RATING], 1
    found = listing.read()
    assert found == [moved, RATING]
    assert found[1] is rating


def test_what_is_gone_is_not_remembered() -> None:
    """A list has what its answer has, and nothing of the one before."""
    server = Server()
    server.listed = [RATING, ORDER]
    listing = RegistryFetcher(server)  # type: ignore[arg-type]
    listing.read()
    server.listed, server.version = [ORDER], 1
    assert listing.read() == [ORDER]


def test_a_delta_is_applied_by_key() -> None:
    """New, changed and removed items; an unchanged item stays the same object."""
    held = {one.key: one for one in (RATING, ORDER)}
    down = replace(ORDER, status=Status.DOWN)
    delta = Delta(1, "DOWN_1_UP_1_", {ORDER.key: down, RATING.key: replace(RATING)})
    found = applied(held, delta)
    assert found is not None
    assert found == {RATING.key: RATING, ORDER.key: down}
    assert found[RATING.key] is RATING
    assert applied(found, delta) == found
    assert applied(found, Delta(2, "UP_1_", {ORDER.key: None})) == {RATING.key: RATING}
    assert applied(held, Delta(3, "", {ORDER.key: None, RATING.key: None})) == {}


def test_counts_that_do_not_fit_are_a_doubt() -> None:
    """A change that was missed shows in how many there are of each status."""
    held = {one.key: one for one in (RATING, ORDER)}
    assert applied(held, Delta(1, "UP_3_", {})) is None
    assert applied(held, Delta(1, "OUT_OF_SERVICE_1_UP_1_", {})) is None
    assert counts_of([RATING, replace(ORDER, status=Status.OUT_OF_SERVICE)]) == "OUT_OF_SERVICE_1_UP_1_"


def delta_text(*instances: dict[str, Any], version: str = "7") -> str:
    """As a server writes it, one instance per application."""
    listed = [{"name": "RATING", "instance": one} for one in instances]
    return json.dumps(
        {"applications": {"versions__delta": version, "apps__hashcode": "UP_1_", "application": listed}}
    )


WRITTEN = {
    "instanceId": "a",
    "app": "RATING",
    "hostName": "10.0.0.1",
    "ipAddr": "10.0.0.1",
    "status": "UP",
    "leaseInfo": {},
    "metadata": {"ipAddr": "x", "actionType": "y"},
}


def test_a_delta_is_read_as_servers_write_it() -> None:
    """One object where a list is meant; metadata is no instance, whatever its keys are."""
    delta = delta_from_text(delta_text({**WRITTEN, "actionType": "MODIFIED"}))
    assert (delta.version, delta.counts, list(delta.changes)) == (7, "UP_1_", [("RATING", "a")])
    assert delta_from_text(delta_text({**WRITTEN, "actionType": "DELETED"})).changes == {
        ("RATING", "a"): None
    }
    assert delta_from_text(delta_text()).changes == {}


def lapsed(document: dict[str, Any]) -> frozenset[tuple[str, str]]:
    """Return the delta of an eviction."""
    return delta_from_text(delta_text(document)).lapsed


def test_evicted_instances_are_distinguished_from_deregistered() -> None:
    """By the end of its lease, which servers call its last renewal, and which is twice as long as it says."""
    lease = {"durationInSecs": 90, "lastRenewalTimestamp": 1_000_000, "evictionTimestamp": 1_090_001}
    gone = {**WRITTEN, "actionType": "DELETED", "leaseInfo": lease}
    assert lapsed(gone) == {("RATING", "a")}
    assert lapsed({**gone, "actionType": "ADDED"}) == frozenset()
    assert lapsed({**gone, "leaseInfo": {**lease, "evictionTimestamp": 1_090_000}}) == frozenset()
    for name in ("lastRenewalTimestamp", "evictionTimestamp"):
        assert lapsed({**gone, "leaseInfo": {**lease, name: 0}}) == frozenset()
    assert lapsed({**gone, "leaseInfo": {}}) == frozenset()
    back = {**gone, "actionType": "ADDED", "leaseInfo": {}}
    assert delta_from_text(delta_text(gone, back)).lapsed == frozenset()


STAMPED = {**WRITTEN, "lastUpdatedTimestamp": 1700, "lastDirtyTimestamp": 1600, "actionType": "ADDED"}


def held_of(document: dict[str, Any]) -> Instance:
    """Return the delta's item of one instance."""
    (instance,) = delta_from_text(delta_text(document)).changes.values()
    assert instance is not None
    return instance


def test_what_a_delta_repeats_is_not_made_again() -> None:
    """Its text may differ all the same: a server says when each was renewed last."""
    held = held_of(STAMPED)
    again = {**STAMPED, "leaseInfo": {"lastRenewalTimestamp": 9}}
    (found,) = delta_from_text(delta_text(again), {held.key: held}).changes.values()
    assert found is held
    gone = {**STAMPED, "actionType": "DELETED"}
    assert delta_from_text(delta_text(gone), {held.key: held}).changes == {held.key: None}


@pytest.mark.parametrize(
    "change",
    [
        {"lastUpdatedTimestamp": 1701, "vipAddress": "other"},
        {"lastDirtyTimestamp": 1601, "vipAddress": "other"},
        {"status": "DOWN"},
        {"overriddenStatus": "OUT_OF_SERVICE"},
        {"overriddenstatus": "OUT_OF_SERVICE"},
        {"metadata": {"zone": "b"}},
        {"ipAddr": "10.0.0.9"},
    ],
)
def test_what_a_delta_changes_is_made_again(change: dict[str, Any]) -> None:
    """The server stamps each change; a status that it enforces itself has no stamp."""
    held = held_of(STAMPED)
    text = delta_text({**STAMPED, **change})
    assert delta_from_text(text, {held.key: held}) == delta_from_text(text)
    assert delta_from_text(text).changes != {held.key: held}


def test_what_has_no_stamp_is_made_again() -> None:
    """Another kind of server may leave it out."""
    unstamped = {key: value for key, value in STAMPED.items() if key != "lastUpdatedTimestamp"}
    held = held_of(unstamped)
    text = delta_text({**unstamped, "ipAddr": "10.0.0.9"})
    assert delta_from_text(text, {held.key: held}) == delta_from_text(text)


@pytest.mark.parametrize(
    "text",
    [
        delta_text(version="first"),
        "{}",
        "<applications/>",
    ],
)
def test_what_is_no_delta_cannot_be_read(text: str) -> None:
    """Another server's answer is no delta without changes."""
    with pytest.raises((ValueError, KeyError)):
        delta_from_text(text)


@pytest.mark.parametrize(
    "odd",
    [
        {**WRITTEN},
        {**WRITTEN, "actionType": "ARCHIVED"},
        {"app": "RATING", "actionType": "ADDED"},
        {"instanceId": "a", "actionType": "ADDED"},
        "a",
        None,
        1,
    ],
)
def test_a_delta_with_an_unreadable_item_counts_for_the_others(odd: Any) -> None:
    """The counts show whether the item exists: where they do not fit, the list is read."""
    other = {**WRITTEN, "instanceId": "other", "actionType": "ADDED"}
    delta = delta_from_text(delta_text(odd, other))
    assert set(delta.changes) == {("RATING", "other")}


def test_a_delta_keeps_an_instance_that_no_request_can_name() -> None:
    """It counts as an instance in each list, so that lists and deltas go on to fit."""
    delta = delta_from_text(delta_text({**WRITTEN, "actionType": "ADDED", "instanceId": "a/b"}))
    (found,) = delta.changes.values()
    assert found is not None
    assert found.unreadable == "no request can name the id 'a/b'"
    assert applied({}, delta) == {("RATING", "a/b"): found}


@dataclass
class Following:
    """A listing of a model server with default caches, and what the server held when it made each answer.

    :ivar asked: the lists that were asked for.
    :ivar delta_fails: the answer in place of the delta: None where it is refused.
    :ivar after_list: called when a list was answered.
    :ivar silent: keys of which the server changed something that no delta tells, and no list so far.
    :ivar others: servers of the same registry.
    :ivar by_delta: the last list before one was understood that had been put off.
    """

    cluster: EurekaCluster
    started: dict[str, int] = field(default_factory=lambda: dict(STARTED))
    asked: list[str] = field(default_factory=list)
    delta_fails: list[RegistryUnreachable | None] = field(default_factory=list)
    after_list: Callable[[], object] = lambda: None
    truth: dict[str, list[Instance]] = field(default_factory=dict)
    silent: set[tuple[str, str]] = field(default_factory=set)
    url: str = URL
    others: tuple[str, ...] = ()
    by_delta: list[Instance] = field(default_factory=list)

    @property
    def peers(self) -> tuple[str, ...]:
        """This server, and others that are never asked."""
        return (self.url, *self.others)

    def __post_init__(self) -> None:
        """Write down the registry whenever a list or a delta is made."""
        clock = self.cluster.clock
        self.listing = RegistryFetcher(cast("Any", self), lambda: (clock.now_ms - EPOCH_MS) / 1000)
        self.watch()

    def watch(self) -> None:
        """The server, which is another one after a restart."""
        server = self.cluster.servers[URL]
        render, everything = server.render, CacheKey("Application", ALL)

        def made(key: CacheKey) -> str:
            text = render(key)
            self.truth[text] = instances_from_text(text if key.name == ALL else render(everything))
            return text

        server.caches.render = made

    def states(self) -> dict[tuple[str, str], tuple[str, str]]:
        """Each instance's status, and that which was set over it."""
        leases = self.cluster.servers[URL].registry.all()
        return {(one.holder.app, one.holder.id): (one.holder.status, one.holder.overridden) for one in leases}

    def list_by(self, read: Callable[[Any], list[Instance]]) -> list[Instance]:
        """Ask the only one."""
        return read(self)

    def list_unless(self, fingerprint: bytes) -> tuple[bytes, list[Instance] | None]:
        """As the client of a server does."""
        found, understand = self.list_unread(fingerprint)
        return found, None if understand is None else understand()

    def list_unread(self, fingerprint: bytes) -> tuple[bytes, Callable[[], list[Instance]] | None]:
        """A list that is understood later."""
        self.asked.append("list")
        text = self.get("apps")
        now = self.states()
        for one in self.truth[text]:
            if now.get(one.key) == (one.status, one.overridden_status):
                self.silent.discard(one.key)
        found = hashlib.sha256(text.encode()).digest()
        self.after_list()
        return found, None if found == fingerprint else lambda: instances_from_text(text)

    def changes_unless(
        self, fingerprint: bytes, read: Callable[[bytes], Delta] = delta_from_text
    ) -> tuple[bytes, Delta | None] | None:
        """Answer with the delta unless it is as it was."""
        self.asked.append("delta")
        if self.delta_fails:
            failure = self.delta_fails.pop(0)
            if failure is None:
                return None
            raise failure
        text = self.get("apps", "delta")
        found = hashlib.sha256(text.encode()).digest()
        return found, None if found == fingerprint else read(text.encode())

    def get(self, *path: str) -> str:
        """Ask the server."""
        return self.send(ServerRequest("GET", path, headers=HEADERS))

    def send(self, request: ServerRequest) -> str:
        """Ask the server anything."""
        before, changes_before = self.states(), list(self.cluster.servers[URL].registry.changes)
        text = self.cluster.request(URL, request).text
        tells = list(self.cluster.servers[URL].registry.changes)[len(changes_before) :]
        reported_now = {(lease.holder.app, lease.holder.id) for _, lease in tells}
        self.silent |= {
            key
            for key, state in self.states().items()
            if before.get(key) != state and key not in reported_now
        }
        return text

    def read(self, *, wants_proofs: bool = False) -> list[Instance]:
        """Return the listing; the requests for it are in ``asked``."""
        self.asked.clear()
        self.by_delta = self.listing.read(self.started, in_doubt=False, wants_proofs=wants_proofs)
        return self.listing.read_deferred_list() if self.listing.has_deferred_list else self.by_delta

    def ids(self) -> list[str]:
        """The ids of the same."""
        return sorted(one.instance_id for one in self.read())

    def register(self, instance_id: str, **more: Any) -> None:
        """One instance of one application."""
        document = {**Commands("x", 1).document("RATING", instance_id), "status": "UP", **more}
        document["overriddenStatus"] = "UNKNOWN"
        self.send(ServerRequest("POST", ("apps", "RATING"), headers=HEADERS, body={"instance": document}))

    def remove(self, instance_id: str) -> None:
        """Remove it."""
        self.send(ServerRequest("DELETE", ("apps", "RATING", instance_id), headers=HEADERS))

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.cluster.clock.advance(int(seconds * 1000))

    def anchored(self) -> Following:
        """A fetcher that holds two instances, and follows deltas."""
        self.register("a")
        self.register("b")
        assert self.ids() == ["a", "b"]
        assert self.asked == ["list", "delta"]
        return self


def following(since_tick_ms: int = 1000, **more: Any) -> Following:
    """One whose time is so long after the server's last copy of its caches."""
    return Following(EurekaCluster([URL], Clock(EPOCH_MS - EPOCH_MS % TICK_MS + since_tick_ms), **more))


def _evict_and_remove(one: Following) -> None:
    """Have the server evict ``c``, which nobody renews, and remove ``a``, which somebody deregisters."""
    one.register("c", leaseInfo={"durationInSecs": 30})
    one.wait(31)
    for instance_id in ("a", "b"):
        one.send(ServerRequest("PUT", ("apps", "RATING", instance_id), headers=HEADERS))
    one.cluster.servers[URL].registry.cancel("RATING", "c", replicated=False)
    one.remove("a")
    one.wait(31)


def shown(instances: Sequence[Instance], but: set[tuple[str, str]]) -> dict[tuple[str, str], Instance]:
    """To compare with others."""
    return {one.key: one for one in instances if one.key not in but}


@pytest.mark.parametrize("use_read_only_cache", [True, False])
def test_whatever_happens_deltas_show_what_the_registry_was(*, use_read_only_cache: bool) -> None:
    """Random histories: what is read is the list as it is answered, or the registry when the delta was made.

    What a renewal does to a status is reported by no delta, so that it may be missing until the next list.
    """
    followed = 0
    for seed in range(60):
        chance = random.Random(seed)  # noqa: S311 - a test
        one = following(chance.randrange(TICK_MS), use_read_only_cache=use_read_only_cache)
        commands = Commands("m", seed)
        if chance.random() < 0.5:  # somebody has asked for one of them before
            one.get(*chance.choice((("apps",), ("apps", "delta"))))
        for _ in range(60):
            for _ in range(chance.choice((0, 0, 1, 3))):
                one.send(commands.draw())
            one.wait(chance.choice((0.0, 0.3, 5.0, 15.0, 15.0, 15.0, 40.0, 130.0)))
            if chance.random() < 0.02:
                one.cluster.restart(URL)
                one.started[URL] += 1
                one.watch()
            if chance.random() < 0.6:
                found = one.read()
                followed += one.asked == ["delta"]
                list_now, delta_now = one.truth[one.get("apps")], one.truth[one.get("apps", "delta")]
                got = shown(found, one.silent)
                assert got in (shown(list_now, one.silent), shown(delta_now, one.silent)), seed
    assert followed > 500


def test_deltas_are_followed_from_list_to_list() -> None:
    """In five minutes of changes the list is read once; each change is seen when a list would show it."""
    one = following().anchored()
    for number in range(int(windows.LIST_INTERVAL / 15)):
        one.register(f"c{number}")
        one.wait(15)
        listed = sorted(each.instance_id for each in one.truth[one.get("apps")])
        assert one.ids() == listed
        assert one.asked == ["delta"]
    one.wait(15)
    one.read()
    assert one.asked == ["list", "delta"]


def followed_for(one: Following, seconds: float) -> None:
    """It is read each 15 s, and something changes each time."""
    for number in range(int(seconds / 15)):
        one.register(f"x{number % 2}", hostName=f"host-{number}")
        one.wait(15)
        one.read()


def test_what_a_delta_tells_waits_for_no_list() -> None:
    """The list of every five minutes is asked for before it, and understood after that was passed on."""
    one = following().anchored()
    followed_for(one, windows.LIST_INTERVAL)
    one.register("c")
    one.wait(31)
    one.asked.clear()
    found = one.listing.read(STARTED, in_doubt=False)
    assert sorted(each.instance_id for each in found) == ["a", "b", "c", "x0", "x1"]
    assert (one.asked, one.listing.has_deferred_list) == (["list", "delta"], True)
    assert {id(each) for each in one.listing.read_deferred_list()} == {id(each) for each in found}
    assert one.listing.has_deferred_list is False
    one.wait(15)
    one.read()
    assert one.asked == ["delta"]


def test_the_list_that_was_put_off_is_believed() -> None:
    """One that came and one that went, and no delta reported: the counts are the same."""
    one = following().anchored()
    followed_for(one, windows.LIST_INTERVAL)
    one.register("c")
    one.remove("b")
    one.cluster.servers[URL].registry.changes.clear()
    one.register("x0", hostName="another")
    one.wait(31)
    found = one.listing.read(STARTED, in_doubt=False)
    assert sorted(each.instance_id for each in found) == ["a", "b", "x0", "x1"]
    assert sorted(each.instance_id for each in one.listing.read_deferred_list()) == ["a", "c", "x0", "x1"]


def test_a_postponed_list_takes_nothing_back_that_a_delta_reported() -> None:
    """The server renewed its caches between the two answers: the delta is the newer one."""
    one = following().anchored()
    followed_for(one, windows.LIST_INTERVAL)
    one.register("d")
    one.wait(31)
    one.register("c")
    one.remove("b")
    one.after_list = lambda: one.wait(31)
    reported = one.listing.read(STARTED, in_doubt=False)
    one.after_list = lambda: None
    assert sorted(each.instance_id for each in reported) == ["a", "c", "d", "x0", "x1"]
    assert sorted(each.instance_id for each in one.listing.read_deferred_list()) == [
        "a",
        "c",
        "d",
        "x0",
        "x1",
    ]
    one.asked.clear()
    one.wait(15)
    one.read()
    assert one.asked == ["delta"]


@pytest.mark.parametrize("failure", [None, RegistryUnreachable("away", url=URL)])
def test_a_list_is_not_put_off_for_a_delta_that_does_not_come(failure: RegistryUnreachable | None) -> None:
    """The list was read, which is what counts."""
    one = following().anchored()
    followed_for(one, windows.LIST_INTERVAL)
    one.register("c")
    one.wait(31)
    one.asked.clear()
    one.delta_fails = [failure]
    found = one.listing.read(STARTED, in_doubt=False)
    assert sorted(each.instance_id for each in found) == ["a", "b", "c", "x0", "x1"]
    assert (one.asked, one.listing.has_deferred_list) == (["list", "delta"], False)
    one.wait(15)
    one.read()
    assert one.asked == ["list"]


def test_departures_before_the_first_delta_are_reported() -> None:
    """A reader that begins, as a new leader, has the proof of the last minutes; not of who is back."""
    one = following()
    reported: list[tuple[str, str]] = []
    one.listing.removals_seen = reported.extend
    for name in ("a", "b", "c"):
        one.register(name)
    one.remove("a")
    one.remove("b")
    one.register("b")
    assert one.ids() == ["b", "c"]
    assert reported == [("RATING", "a")]


def test_a_delta_older_than_the_list_brings_nothing_back() -> None:
    """Others had asked for the delta before, so that it is of the last half minute; the list is of now."""
    one = following()
    one.register("a")
    one.register("b")
    stale = delta_from_text(one.get("apps", "delta"))
    one.remove("a")
    held = {each.key: each for each in instances_from_text(one.get("apps"))}
    assert len(applied(held, stale) or ()) == 2  # the counts fit
    assert one.ids() == ["b"]
    one.wait(15)
    assert one.ids() == ["b"]
    assert one.asked == ["delta", "list", "delta"]
    one.wait(15)
    one.register("c")
    one.wait(30)
    assert one.ids() == ["b", "c"]
    assert one.asked == ["delta"]


def test_a_delta_newer_than_the_list_leaves_nothing_out() -> None:
    """The first delta that a server ever makes is of now, and stays until something else changes."""
    one = following()
    one.register("a")
    one.get("apps")
    one.register("b")
    assert one.ids() == ["a"]
    one.wait(15)
    assert one.ids() == ["a"]
    assert one.asked == ["delta", "list", "delta"]
    one.wait(15)
    assert one.ids() == ["a", "b"]
    one.wait(15)
    assert one.ids() == ["a", "b"]
    assert one.asked == ["delta"]


def test_a_reader_that_was_away_reads_the_list() -> None:
    """The server may have forgotten the change of one that came and of one that went."""
    one = following().anchored()
    one.remove("a")
    one.register("c")
    one.wait(windows.DELTA_GAP + 100)
    one.register("d")
    one.wait(30)
    assert one.ids() == ["b", "c", "d"]
    assert one.asked == ["list", "delta"]


def test_a_delta_that_stays_the_same_is_compared_with_the_list() -> None:
    """It may have been made while an instance came, which the server would show after minutes only."""
    one = following().anchored()
    server = one.cluster.servers[URL]

    def misses_the_delta(*_: str) -> None:
        server.caches.forget(CacheKey("Application", ALL))

    server.registry.invalidate = misses_the_delta
    one.register("c")
    for _ in range(int(windows.DELTA_STILL / 15)):
        one.wait(15)
        assert one.ids() == ["a", "b"]
    one.wait(15)
    assert one.ids() == ["a", "b", "c"]


def test_a_server_that_made_no_answers_for_minutes_is_listed() -> None:
    """Something stopped it: what it forgot meanwhile stands in no delta, and counts may fit."""
    one = following().anchored()
    caches = one.cluster.servers[URL].caches
    caches.close()
    one.remove("a")
    one.register("c")
    for _ in range(15):
        one.wait(15)
        assert one.ids() == ["a", "b"]
    one.register("d")
    caches.copy()
    assert one.ids() == ["b", "c", "d"]
    assert one.asked == ["delta", "list", "delta"]


def test_a_server_that_counts_its_deltas_again_is_listed() -> None:
    """It was restarted a moment ago, or is another one, although the counts fit."""
    one = following().anchored()
    one.wait(15)
    one.register("b")
    one.wait(15)
    assert one.ids() == ["a", "b"]
    assert one.asked == ["delta"]
    one.cluster.restart(URL)
    one.watch()
    one.register("a")
    one.register("b")
    assert one.ids() == ["a", "b"]
    assert one.asked == ["delta", "list"]


def test_what_no_delta_tells_is_seen_by_the_counts() -> None:
    """A status that changed in silence is a doubt, and deltas rest until it is over."""
    one = following().anchored()
    for _ in range(14):  # until the server has forgotten that "a" came
        one.wait(15)
        one.read()
    lease = one.cluster.servers[URL].registry.leases["RATING"]["a"]
    lease.holder.status = "DOWN"
    one.register("c")
    one.wait(30)
    found = {each.instance_id: each.status for each in one.read()}
    assert found == {"a": Status.DOWN, "b": Status.UP, "c": Status.UP}
    assert one.asked == ["delta", "list"]
    one.wait(15)
    one.read()
    assert one.asked == ["list"]
    one.wait(windows.LIST_INTERVAL)
    one.read()
    assert one.asked == ["list", "delta"]


def test_another_server_is_listed() -> None:
    """One that was started since, and one of which nobody knows when it was."""
    one = following().anchored()
    one.wait(15)
    one.read()
    assert one.asked == ["delta"]
    one.started[URL] += 1
    one.read()
    assert one.asked == ["list", "delta"]
    one.started.clear()
    for _ in range(2):
        one.read()
        assert one.asked == ["list"]


def test_who_doubts_has_the_list() -> None:
    """The deltas are not even requested; they are followed from the next list on."""
    one = following().anchored()
    one.asked.clear()
    one.listing.read(STARTED, in_doubt=True)
    assert one.asked == ["list"]
    one.read()
    assert one.asked == ["list", "delta"]
    one.read()
    assert one.asked == ["delta"]


def test_a_list_is_believed_after_deltas_although_it_is_as_it_was() -> None:
    """The answer is the one that was read last, but what is held went on since."""
    one = following().anchored()
    one.cluster.servers[URL].caches.read_only.pop(CacheKey("Application", DELTA))
    one.register("c")
    assert one.ids() == ["a", "b", "c"]
    one.asked.clear()
    found = one.listing.read(STARTED, in_doubt=True)
    assert sorted(each.instance_id for each in found) == ["a", "b"]


@pytest.mark.parametrize("begins", [True, False])
def test_a_server_without_deltas_is_listed(*, begins: bool) -> None:
    """They may be switched off there; it is asked again after some minutes."""
    one = following()
    if begins:
        one.delta_fails = [None]
    one.anchored()
    if not begins:
        one.wait(15)
        one.delta_fails = [None]
        one.read()
        assert one.asked == ["delta", "list"]
    one.wait(15)
    one.read()
    assert one.asked == ["list"]
    one.wait(windows.LIST_INTERVAL)
    one.read()
    assert one.asked == ["list", "delta"]


def test_a_delta_that_is_not_answered_beside_the_list_rests() -> None:
    """The list was read, which is what counts: deltas are asked for again after some minutes."""
    one = following()
    one.delta_fails = [RegistryUnreachable("away", url=URL)]
    one.anchored()
    one.wait(15)
    one.read()
    assert one.asked == ["list"]
    one.wait(windows.LIST_INTERVAL)
    one.read()
    assert one.asked == ["list", "delta"]


@pytest.mark.parametrize("wants_proofs", [False, True])
def test_a_delta_that_outweighs_the_list_rests(wants_proofs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under churn it repeats more than there is; who wants proofs of who left goes on with it."""
    monkeypatch.setattr(registry_fetcher, "FEWEST_THAT_OUTWEIGH", 5)
    one = following().anchored()
    for number in range(8):
        one.register(f"x{number}")
        one.remove(f"x{number}")
    one.wait(31)
    one.read(wants_proofs=wants_proofs)
    assert one.asked == ["delta"]
    one.register("y")
    one.wait(31)
    found = one.read(wants_proofs=wants_proofs)
    assert one.asked == ["delta" if wants_proofs else "list"]
    assert "y" in [each.instance_id for each in found]
    one.wait(windows.LIST_INTERVAL)
    one.read(wants_proofs=wants_proofs)
    assert one.asked == ["list", "delta"]


@pytest.mark.parametrize("others", [(), ("http://other",)])
def test_of_several_servers_who_was_evicted_has_not_left(others: tuple[str, ...]) -> None:
    """One that hears nothing from the others evicts what renews with them."""
    one = following().anchored()
    one.others = others
    reported: list[tuple[str, str]] = []
    evicted: list[tuple[str, str]] = []
    one.listing.removals_seen, one.listing.evictions_seen = reported.extend, evicted.extend
    _evict_and_remove(one)
    assert one.ids() == ["b"]
    assert sorted(set(reported)) == [("RATING", "a")] + ([] if others else [("RATING", "c")])
    assert sorted(set(evicted)) == ([("RATING", "c")] if others else [])


def away(one: Following) -> None:
    """The server answers no delta, and then as before: the first list after it is read in doubt."""
    one.delta_fails = [RegistryUnreachable("away", url=URL)]
    with pytest.raises(RegistryUnreachable):
        one.read()
    one.asked.clear()
    one.listing.read(one.started, in_doubt=True)
    assert one.asked == ["list"]


def test_departures_while_the_server_was_away_are_reported() -> None:
    """The delta is read again as soon as the list is, and not minutes later: it still has the proof."""
    one = following().anchored()
    reported: list[tuple[str, str]] = []
    one.listing.removals_seen = reported.extend
    one.remove("a")
    away(one)
    assert reported == []
    one.wait(30)
    assert one.ids() == ["b"]
    assert one.asked == ["list", "delta"]
    assert reported == [("RATING", "a")]
    one.register("c")
    one.wait(30)
    assert one.ids() == ["b", "c"]
    assert one.asked == ["delta"]


@pytest.mark.parametrize("wants_proofs", [False, True])
def test_deregistrations_are_reported_while_the_list_is_in_doubt(wants_proofs: bool) -> None:
    """Of an eviction nobody knows yet whether another server has its renewals."""
    one = following().anchored()
    left: list[tuple[str, str]] = []
    evicted: list[tuple[str, str]] = []
    one.listing.removals_seen, one.listing.evictions_seen = left.extend, evicted.extend
    _evict_and_remove(one)
    found = one.listing.read(one.started, in_doubt=True, wants_proofs=wants_proofs)
    assert [each.instance_id for each in found] == ["b"]
    assert left == ([("RATING", "a")] if wants_proofs else [])
    assert evicted == ([("RATING", "c")] if wants_proofs else [])
    one.delta_fails = [RegistryUnreachable("away", url=URL)]
    assert one.listing.read(one.started, in_doubt=True, wants_proofs=wants_proofs) == found


def test_who_came_back_after_the_outage_has_not_left() -> None:
    """The delta is that of the list's server, and what the list has stands, whatever came before."""
    one = following().anchored()
    reported: list[tuple[str, str]] = []
    one.listing.removals_seen = reported.extend
    one.remove("a")
    away(one)
    one.register("a")
    one.wait(30)
    assert one.ids() == ["a", "b"]
    assert reported == []


def test_deltas_that_go_unanswered_again_rest() -> None:
    """A server that answers lists and hangs over deltas costs two readings, and no more for some minutes."""
    one = following().anchored()
    away(one)
    one.wait(15)
    one.read()
    assert one.asked == ["list", "delta"]
    one.wait(15)
    away(one)
    one.wait(15)
    one.read()
    assert one.asked == ["list"]
    one.wait(windows.LIST_INTERVAL)
    one.read()
    assert one.asked == ["list", "delta"]


def test_an_outage_of_long_ago_is_forgotten() -> None:
    """Each outage is one of its own: the one before does not make deltas rest."""
    one = following().anchored()
    for _ in range(3):
        away(one)
        one.wait(15)
        one.read()
        assert one.asked == ["list", "delta"]
        one.wait(windows.LIST_INTERVAL)
        one.read()
        one.read()
        assert one.asked == ["delta"]
