"""Repeated reads of the whole registry, by lists and deltas; unchanged instances stay the same objects."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from eurekube_provider.core.errors import RegistryUnreachable
from eurekube_provider.core.model import FindInstance, Instance, InstanceKey, Port, Status
from eurekube_provider.dev.eureka.cluster import EurekaCluster
from eurekube_provider.dev.eureka.documents import ServerRequest
from eurekube_provider.dev.eureka.response_caches import ALL_APPS, ALL_APPS_DELTA, CacheKey
from eurekube_provider.dev.eureka.virtual_clock import MODEL_START_MS, Clock
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.listing import Listing
from eurekube_provider.eureka.protocol.codec import instances_from_text
from eurekube_provider.eureka.protocol.delta import Delta, DeltaPart, delta_from_text
from eurekube_provider.eureka.protocol.instance_texts import TextPieces
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
    """A stand-in for Peers with one server, whose list a test changes."""

    url = URL

    def __init__(self) -> None:
        self.listed: list[Instance] = []
        self.version = 0
        self.made = 0

    def list_from_first_server(self, read: Callable[[Server], list[Instance]]) -> list[Instance]:
        """Read from the only server."""
        return read(self)

    def list_if_changed(
        self, fingerprint: bytes, _find_known: FindInstance
    ) -> tuple[bytes, list[Instance] | None]:
        """Return the list as new objects, or None if its fingerprint is unchanged."""
        found = str(self.version).encode()
        if found == fingerprint:
            return found, None
        self.made += 1
        return found, [replace(instance) for instance in self.listed]


def test_an_answer_that_did_not_change_is_read_once() -> None:
    """An unchanged answer gives the same list with the same instance objects, and is not parsed again."""
    server = Server()
    server.listed = [RATING, ORDER]
    listing = RegistryFetcher(server)  # type: ignore[arg-type]
    first, second = listing.read(), listing.read()
    assert [*first] == [RATING, ORDER]
    assert [id(one) for one in first] == [id(one) for one in second]
    assert server.made == 1


def test_what_changed_is_new_and_the_rest_the_same() -> None:
    """In a changed answer, each unchanged instance stays the object that was read before."""
    server = Server()
    server.listed = [RATING, ORDER]
    listing = RegistryFetcher(server)  # type: ignore[arg-type]
    rating, _ = listing.read()
    moved = replace(ORDER, ip_address="10.0.0.3")
    server.listed, server.version = [moved, RATING], 1
    found = [*listing.read()]
    assert found == [moved, RATING]
    assert found[1] is rating


def test_what_is_gone_is_not_remembered() -> None:
    """An instance that the new list lacks is dropped."""
    server = Server()
    server.listed = [RATING, ORDER]
    listing = RegistryFetcher(server)  # type: ignore[arg-type]
    listing.read()
    server.listed, server.version = [ORDER], 1
    assert [*listing.read()] == [ORDER]


def delta_of(counts: str, changes: dict[InstanceKey, Instance | None]) -> Delta:
    """Return a delta with these changes in one part."""
    return Delta(1, counts, (DeltaPart(changes),))


def apply_delta(held: Mapping[InstanceKey, Instance], delta: Delta) -> Mapping[InstanceKey, Instance] | None:
    """Return a list with the changes of a later delta; None where the delta contradicts the result."""
    found = Listing(held).with_changes(delta.changes)
    return found.by_key if found.status_counts == delta.status_counts else None


def test_a_delta_is_applied_by_key() -> None:
    """A delta adds, changes and removes instances by their keys; an unchanged instance stays the same
    object.
    """
    held = {one.key: one for one in (RATING, ORDER)}
    down = replace(ORDER, status=Status.DOWN)
    delta = delta_of("DOWN_1_UP_1_", {ORDER.key: down, RATING.key: replace(RATING)})
    found = apply_delta(held, delta)
    assert found is not None
    assert found == {RATING.key: RATING, ORDER.key: down}
    assert found[RATING.key] is RATING
    assert apply_delta(found, delta) == found
    assert apply_delta(found, delta_of("UP_1_", {ORDER.key: None})) == {RATING.key: RATING}
    assert apply_delta(held, delta_of("", {ORDER.key: None, RATING.key: None})) == {}


def test_counts_that_do_not_fit_are_a_doubt() -> None:
    """A delta is refused when its counts per status do not fit the result: a change was missed."""
    held = {one.key: one for one in (RATING, ORDER)}
    assert apply_delta(held, delta_of("UP_3_", {})) is None
    assert apply_delta(held, delta_of("OUT_OF_SERVICE_1_UP_1_", {})) is None
    assert (
        Listing.of([RATING, replace(ORDER, status=Status.OUT_OF_SERVICE)]).status_counts
        == "OUT_OF_SERVICE_1_UP_1_"
    )


def delta_text(*instances: dict[str, Any], version: str = "7") -> str:
    """Return the text of a delta as a server writes it, one instance per application entry."""
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
    """A delta is read with single objects in place of lists, and metadata in it is not taken for an
    instance.
    """
    delta = delta_from_text(delta_text({**WRITTEN, "actionType": "MODIFIED"}))
    assert (delta.version, delta.status_counts, list(delta.changes)) == (7, "UP_1_", [("RATING", "a")])
    assert delta_from_text(delta_text({**WRITTEN, "actionType": "DELETED"})).changes == {
        ("RATING", "a"): None
    }
    assert delta_from_text(delta_text()).changes == {}


def evicted_keys(document: dict[str, Any]) -> frozenset[tuple[str, str]]:
    """Return the keys that a delta with this item reports as evicted."""
    return delta_from_text(delta_text(document)).evicted_keys


def test_evicted_instances_are_distinguished_from_deregistered() -> None:
    """A deleted item counts as evicted when its eviction time lies after the end of its lease; servers allow
    twice the duration and call this end ``lastRenewalTimestamp``.
    """
    lease = {"durationInSecs": 90, "lastRenewalTimestamp": 1_000_000, "evictionTimestamp": 1_090_001}
    gone = {**WRITTEN, "actionType": "DELETED", "leaseInfo": lease}
    assert evicted_keys(gone) == {("RATING", "a")}
    assert evicted_keys({**gone, "actionType": "ADDED"}) == frozenset()
    assert evicted_keys({**gone, "leaseInfo": {**lease, "evictionTimestamp": 1_090_000}}) == frozenset()
    for name in ("lastRenewalTimestamp", "evictionTimestamp"):
        assert evicted_keys({**gone, "leaseInfo": {**lease, name: 0}}) == frozenset()
    assert evicted_keys({**gone, "leaseInfo": {}}) == frozenset()
    back = {**gone, "actionType": "ADDED", "leaseInfo": {}}
    assert delta_from_text(delta_text(gone, back)).evicted_keys == frozenset()


STAMPED = {**WRITTEN, "lastUpdatedTimestamp": 1700, "lastDirtyTimestamp": 1600, "actionType": "ADDED"}


def held_of(document: dict[str, Any]) -> Instance:
    """Return the instance that a delta with this item reports."""
    (instance,) = delta_from_text(delta_text(document)).changes.values()
    assert instance is not None
    return instance


def test_what_a_delta_repeats_is_not_made_again() -> None:
    """An item that repeats a held instance gives the held object, even if the item's lease has changed."""
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
    """A changed item gives a new object. The server stamps each change, except for a status that it
    enforces itself.
    """
    held = held_of(STAMPED)
    text = delta_text({**STAMPED, **change})
    assert delta_from_text(text, {held.key: held}).changes == delta_from_text(text).changes
    assert delta_from_text(text).changes != {held.key: held}


def test_what_has_no_stamp_is_made_again() -> None:
    """An item without an update time, which another kind of server may send, is always parsed again."""
    unstamped = {key: value for key, value in STAMPED.items() if key != "lastUpdatedTimestamp"}
    held = held_of(unstamped)
    text = delta_text({**unstamped, "ipAddr": "10.0.0.9"})
    assert delta_from_text(text, {held.key: held}).changes == delta_from_text(text).changes


@pytest.mark.parametrize(
    "text",
    [
        delta_text(version="first"),
        "{}",
        "<applications/>",
    ],
)
def test_what_is_no_delta_cannot_be_read(text: str) -> None:
    """A text that is no delta raises, and is not read as a delta without changes."""
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
    """An unreadable item of a delta is skipped, and the others are applied; counts that do not fit then cause
    a full list.
    """
    other = {**WRITTEN, "instanceId": "other", "actionType": "ADDED"}
    delta = delta_from_text(delta_text(odd, other))
    assert set(delta.changes) == {("RATING", "other")}


def test_a_delta_keeps_an_instance_that_no_request_can_name() -> None:
    """An instance whose id fits into no URL is kept, so that the counts of lists and deltas still fit."""
    delta = delta_from_text(delta_text({**WRITTEN, "actionType": "ADDED", "instanceId": "a/b"}))
    (found,) = delta.changes.values()
    assert found is not None
    assert found.unreadable == "no request can name the id 'a/b'"
    assert apply_delta({}, delta) == {("RATING", "a/b"): found}


@dataclass
class Following:
    """A fetcher at a model server with default caches, and the registry at the time of each answer.

    :ivar asked: the requests since the last read began: "list" or "delta".
    :ivar delta_fails: the failures of the next delta requests: an error, or None where the delta is refused.
    :ivar after_list: called when a list was answered.
    :ivar silent: keys of instances that changed without a delta, and that no list has shown since.
    :ivar others: URLs of other servers of the same registry.
    :ivar by_delta: the last result before a postponed list was understood.
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
    by_delta: Listing = field(default_factory=Listing)

    @property
    def peers(self) -> tuple[str, ...]:
        """URLs of this server and of others, which are never asked."""
        return (self.url, *self.others)

    def __post_init__(self) -> None:
        """Make the fetcher, and record the registry whenever the server makes a list or a delta."""
        clock = self.cluster.clock
        self.listing = RegistryFetcher(cast("Any", self), lambda: (clock.now_ms - MODEL_START_MS) / 1000)
        self.watch()

    def watch(self) -> None:
        """Record the answers of the server, which is a new object after a restart."""
        server = self.cluster.servers[URL]
        render, everything = server.render_list, CacheKey("Application", ALL_APPS)

        def made(key: CacheKey) -> str:
            text = render(key)
            self.truth[text] = instances_from_text(text if key.name == ALL_APPS else render(everything))
            return text

        server.caches.render = made

    def states(self) -> dict[tuple[str, str], tuple[str, str]]:
        """Return each instance's status and override at the server."""
        leases = self.cluster.servers[URL].registry.all_leases()
        return {(one.holder.app, one.holder.id): (one.holder.status, one.holder.overridden) for one in leases}

    def list_from_first_server(self, read: Callable[[Any], list[Instance]]) -> list[Instance]:
        """Read from the only server."""
        return read(self)

    def list_if_changed(
        self, fingerprint: bytes, _find_known: FindInstance
    ) -> tuple[bytes, list[Instance] | None]:
        """Return the list, or None if its fingerprint is unchanged, as a server's client does."""
        found, understand = self.fetch_unparsed_list_if_changed(fingerprint, _find_known)
        return found, None if understand is None else understand()

    def fetch_unparsed_list_if_changed(
        self, fingerprint: bytes, _find_known: FindInstance
    ) -> tuple[bytes, Callable[[], list[Instance]] | None]:
        """Request the list, and return its fingerprint and a function that parses it later."""
        self.asked.append("list")
        text = self.get("apps")
        now = self.states()
        for one in self.truth[text]:
            if now.get(one.key) == (one.status, one.overridden_status):
                self.silent.discard(one.key)
        found = hashlib.sha256(text.encode()).digest()
        self.after_list()
        return found, None if found == fingerprint else lambda: instances_from_text(text)

    def read_delta_if_changed(
        self, fingerprint: bytes, read: Callable[[TextPieces], Delta]
    ) -> tuple[bytes, Delta | None] | None:
        """Return the delta, or None in its place if its fingerprint is unchanged."""
        self.asked.append("delta")
        if self.delta_fails:
            failure = self.delta_fails.pop(0)
            if failure is None:
                return None
            raise failure
        text = self.get("apps", "delta")
        found = hashlib.sha256(text.encode()).digest()
        return found, None if found == fingerprint else read(lambda: (text.encode(),))

    def get(self, *path: str) -> str:
        """Return the server's answer to a GET request."""
        return self.send(ServerRequest("GET", path, headers=HEADERS))

    def send(self, request: ServerRequest) -> str:
        """Send a request to the server, and note the instances that it changes without a delta."""
        before, changes_before = self.states(), list(self.cluster.servers[URL].registry.recent_changes)
        text = self.cluster.request(URL, request).text
        tells = list(self.cluster.servers[URL].registry.recent_changes)[len(changes_before) :]
        reported_now = {(lease.holder.app, lease.holder.id) for _, lease in tells}
        self.silent |= {
            key
            for key, state in self.states().items()
            if before.get(key) != state and key not in reported_now
        }
        return text

    def read(self, *, wants_departure_proofs: bool = False) -> Listing:
        """Return the fetched instances; the requests for them are in ``asked``."""
        self.asked.clear()
        self.by_delta = self.listing.read(
            self.started, in_doubt=False, wants_departure_proofs=wants_departure_proofs
        )
        return self.listing.parse_deferred_list() if self.listing.has_deferred_list else self.by_delta

    def ids(self) -> list[str]:
        """Fetch the registry, and return the sorted ids."""
        return sorted(one.instance_id for one in self.read())

    def register(self, instance_id: str, app: str = "RATING", **more: Any) -> None:
        """Register an instance."""
        document = {**Commands("x", 1).document(app, instance_id), "status": "UP", **more}
        document["overriddenStatus"] = "UNKNOWN"
        self.send(ServerRequest("POST", ("apps", app), headers=HEADERS, body={"instance": document}))

    def remove(self, instance_id: str) -> None:
        """Deregister an instance of the application RATING."""
        self.send(ServerRequest("DELETE", ("apps", "RATING", instance_id), headers=HEADERS))

    def wait(self, seconds: float) -> None:
        """Move the server's clock on."""
        self.cluster.clock.advance(int(seconds * 1000))

    def anchored(self) -> Following:
        """Register two instances and read them, so that the fetcher follows deltas from now on."""
        self.register("a")
        self.register("b")
        assert self.ids() == ["a", "b"]
        assert self.asked == ["list", "delta"]
        return self


def following(since_tick_ms: int = 1000, **more: Any) -> Following:
    """Return a fetcher whose clock is this many milliseconds after the server's last refresh of its
    caches.
    """
    return Following(
        EurekaCluster([URL], Clock(MODEL_START_MS - MODEL_START_MS % TICK_MS + since_tick_ms), **more)
    )


def _evict_and_remove(one: Following) -> None:
    """Have the server evict ``c``, which nobody renews, and remove ``a``, which somebody deregisters."""
    one.register("c", leaseInfo={"durationInSecs": 30})
    one.wait(31)
    for instance_id in ("a", "b"):
        one.send(ServerRequest("PUT", ("apps", "RATING", instance_id), headers=HEADERS))
    one.cluster.servers[URL].registry.cancel("RATING", "c", replicated=False)
    one.remove("a")
    one.wait(31)


def shown(instances: Iterable[Instance], but: set[tuple[str, str]]) -> dict[tuple[str, str], Instance]:
    """Return the instances by key, without those of ``but``."""
    return {one.key: one for one in instances if one.key not in but}


@pytest.mark.parametrize("use_read_only_cache", [True, False])
def test_whatever_happens_deltas_show_what_the_registry_was(*, use_read_only_cache: bool) -> None:
    """In random histories a read gives the current list, or the registry at the time of the last delta. A
    status that only a renewal changed is in no delta, and may be missing until the next list.
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


def test_a_delta_that_is_newer_than_the_list_is_applied_with_the_next_one() -> None:
    """A change in the first delta that the list before it does not show is not lost: the next delta, which
    repeats it unchanged, is applied as a whole.
    """
    one = following()
    one.register("a")
    one.get("apps")  # stays cached
    one.register("c", app="ORDER")
    assert one.ids() == ["a"]
    one.register("b")
    one.wait(31)
    assert one.ids() == ["a", "b", "c"]
    assert one.asked == ["delta"]


def test_deltas_are_followed_from_list_to_list() -> None:
    """During five minutes of changes the list is read once, and deltas show each change as soon as a list
    would.
    """
    one = following().anchored()
    for number in range(int(windows.FULL_LIST_INTERVAL_SECONDS / 15)):
        one.register(f"c{number}")
        one.wait(15)
        listed = sorted(each.instance_id for each in one.truth[one.get("apps")])
        assert one.ids() == listed
        assert one.asked == ["delta"]
    one.wait(15)
    one.read()
    assert one.asked == ["list", "delta"]


def followed_for(one: Following, seconds: float) -> None:
    """Read the registry each 15 s during this time, with one change before each read."""
    for number in range(int(seconds / 15)):
        one.register(f"x{number % 2}", hostName=f"host-{number}")
        one.wait(15)
        one.read()


def test_what_a_delta_tells_waits_for_no_list() -> None:
    """When the list of every five minutes is due, the delta's result is returned first, and the list is
    parsed later.
    """
    one = following().anchored()
    followed_for(one, windows.FULL_LIST_INTERVAL_SECONDS)
    one.register("c")
    one.wait(31)
    one.asked.clear()
    found = one.listing.read(STARTED, in_doubt=False)
    assert sorted(each.instance_id for each in found) == ["a", "b", "c", "x0", "x1"]
    assert (one.asked, one.listing.has_deferred_list) == (["list", "delta"], True)
    assert {id(each) for each in one.listing.parse_deferred_list()} == {id(each) for each in found}
    assert one.listing.has_deferred_list is False
    one.wait(15)
    one.read()
    assert one.asked == ["delta"]


def test_the_list_that_was_put_off_is_believed() -> None:
    """A postponed list corrects a registration and a removal that no delta reported and whose counts
    cancel out.
    """
    one = following().anchored()
    followed_for(one, windows.FULL_LIST_INTERVAL_SECONDS)
    one.register("c")
    one.remove("b")
    one.cluster.servers[URL].registry.recent_changes.clear()
    one.register("x0", hostName="another")
    one.wait(31)
    found = one.listing.read(STARTED, in_doubt=False)
    assert sorted(each.instance_id for each in found) == ["a", "b", "x0", "x1"]
    assert sorted(each.instance_id for each in one.listing.parse_deferred_list()) == ["a", "c", "x0", "x1"]


def test_a_postponed_list_takes_nothing_back_that_a_delta_reported() -> None:
    """A postponed list that is older than the delta, as caches were refreshed between them, undoes none of
    the delta's changes.
    """
    one = following().anchored()
    followed_for(one, windows.FULL_LIST_INTERVAL_SECONDS)
    one.register("d")
    one.wait(31)
    one.register("c")
    one.remove("b")
    one.after_list = lambda: one.wait(31)
    reported = one.listing.read(STARTED, in_doubt=False)
    one.after_list = lambda: None
    assert sorted(each.instance_id for each in reported) == ["a", "c", "d", "x0", "x1"]
    assert sorted(each.instance_id for each in one.listing.parse_deferred_list()) == [
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
    """When the delta beside a due list fails, the list is used at once, and the next read is a list."""
    one = following().anchored()
    followed_for(one, windows.FULL_LIST_INTERVAL_SECONDS)
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
    """When a reader begins, as a new leader does, its first delta reports removals of the last minutes,
    except of instances that are back.
    """
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
    """A cached delta that is up to half a minute older than the list does not restore a removed instance."""
    one = following()
    one.register("a")
    one.register("b")
    stale = delta_from_text(one.get("apps", "delta"))
    one.remove("a")
    held = {each.key: each for each in instances_from_text(one.get("apps"))}
    assert len(apply_delta(held, stale) or ()) == 2  # the counts fit
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
    """A server's first delta, which is newer than its list and stays cached, hides no instance for long."""
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
    """After a pause longer than a server keeps changes for deltas, the list is read."""
    one = following().anchored()
    one.remove("a")
    one.register("c")
    one.wait(windows.LONGEST_DELTA_GAP_SECONDS + 100)
    one.register("d")
    one.wait(30)
    assert one.ids() == ["b", "c", "d"]
    assert one.asked == ["list", "delta"]


def test_a_delta_that_stays_the_same_is_compared_with_the_list() -> None:
    """After minutes with an unchanged delta the list is read: a server can cache a delta that misses a
    registration.
    """
    one = following().anchored()
    server = one.cluster.servers[URL]

    def misses_the_delta(*_: str) -> None:
        server.caches.drop_from_first_cache(CacheKey("Application", ALL_APPS))

    server.registry.invalidate = misses_the_delta
    one.register("c")
    for _ in range(int(windows.DOUBT_UNCHANGED_DELTA_AFTER_SECONDS / 15)):
        one.wait(15)
        assert one.ids() == ["a", "b"]
    one.wait(15)
    assert one.ids() == ["a", "b", "c"]


def test_a_server_that_made_no_answers_for_minutes_is_listed() -> None:
    """When a server's caches stood still for minutes, the list is read: its next delta may miss changes whose
    counts cancel out.
    """
    one = following().anchored()
    caches = one.cluster.servers[URL].caches
    caches.close()
    one.remove("a")
    one.register("c")
    for _ in range(15):
        one.wait(15)
        assert one.ids() == ["a", "b"]
    one.register("d")
    caches.copy_to_read_only()
    assert one.ids() == ["b", "c", "d"]
    assert one.asked == ["delta", "list", "delta"]


def test_a_server_that_counts_its_deltas_again_is_listed() -> None:
    """When the version of a delta is lower than before, as after a restart, the list is read even if the
    counts fit.
    """
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
    """A status change that no delta reports is noticed by the counts; lists are then read for some minutes in
    place of deltas.
    """
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
    one.wait(windows.FULL_LIST_INTERVAL_SECONDS)
    one.read()
    assert one.asked == ["list", "delta"]


def test_another_server_is_listed() -> None:
    """The list is read when the server's start time has changed or is unknown."""
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
    """A read in doubt requests only the list; deltas are followed again after the next list."""
    one = following().anchored()
    one.asked.clear()
    one.listing.read(STARTED, in_doubt=True)
    assert one.asked == ["list"]
    one.read()
    assert one.asked == ["list", "delta"]
    one.read()
    assert one.asked == ["delta"]


def test_a_list_is_believed_after_deltas_although_it_is_as_it_was() -> None:
    """A list with an unchanged fingerprint is still used after deltas have changed the held instances."""
    one = following().anchored()
    one.cluster.servers[URL].caches.read_only.pop(CacheKey("Application", ALL_APPS_DELTA))
    one.register("c")
    assert one.ids() == ["a", "b", "c"]
    one.asked.clear()
    found = one.listing.read(STARTED, in_doubt=True)
    assert sorted(each.instance_id for each in found) == ["a", "b"]


@pytest.mark.parametrize("begins", [True, False])
def test_a_server_without_deltas_is_listed(*, begins: bool) -> None:
    """A server that refuses deltas is asked for lists only, and for a delta again after some minutes."""
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
    one.wait(windows.FULL_LIST_INTERVAL_SECONDS)
    one.read()
    assert one.asked == ["list", "delta"]


def test_a_delta_that_is_not_answered_beside_the_list_rests() -> None:
    """When the delta beside a list fails, the list is used, and deltas are requested again after some
    minutes.
    """
    one = following()
    one.delta_fails = [RegistryUnreachable("away", url=URL)]
    one.anchored()
    one.wait(15)
    one.read()
    assert one.asked == ["list"]
    one.wait(windows.FULL_LIST_INTERVAL_SECONDS)
    one.read()
    assert one.asked == ["list", "delta"]


@pytest.mark.parametrize("wants_departure_proofs", [False, True])
def test_a_delta_that_outweighs_the_list_rests(
    wants_departure_proofs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a delta has more items than the list, as under churn, lists are read for some minutes; a reader
    that wants proofs of removals goes on with deltas.
    """
    monkeypatch.setattr(registry_fetcher, "SMALL_DELTA_INSTANCES", 5)
    one = following().anchored()
    for number in range(8):
        one.register(f"x{number}")
        one.remove(f"x{number}")
    one.wait(31)
    one.read(wants_departure_proofs=wants_departure_proofs)
    assert one.asked == ["delta"]
    one.register("y")
    one.wait(31)
    found = one.read(wants_departure_proofs=wants_departure_proofs)
    assert one.asked == ["delta" if wants_departure_proofs else "list"]
    assert "y" in [each.instance_id for each in found]
    one.wait(windows.FULL_LIST_INTERVAL_SECONDS)
    one.read(wants_departure_proofs=wants_departure_proofs)
    assert one.asked == ["list", "delta"]


@pytest.mark.parametrize("others", [(), ("http://other",)])
def test_of_several_servers_who_was_evicted_has_not_left(others: tuple[str, ...]) -> None:
    """An eviction counts as a removal only at a single server: one of several servers may lack renewals that
    the others get.
    """
    one = following().anchored()
    one.others = others
    reported: list[tuple[str, str]] = []
    evicted: list[tuple[str, str]] = []
    one.listing.removals_seen, one.listing.evictions_seen = reported.extend, evicted.extend
    _evict_and_remove(one)
    assert one.ids() == ["b"]
    assert sorted(set(reported)) == [("RATING", "a")] + ([] if others else [("RATING", "c")])
    assert sorted(set(evicted)) == ([("RATING", "c")] if others else [])


def read_after_outage(one: Following) -> None:
    """Let one delta request fail, and read the first list after it in doubt."""
    one.delta_fails = [RegistryUnreachable("away", url=URL)]
    with pytest.raises(RegistryUnreachable):
        one.read()
    one.asked.clear()
    one.listing.read(one.started, in_doubt=True)
    assert one.asked == ["list"]


def test_departures_while_the_server_was_away_are_reported() -> None:
    """After an outage the delta is read again with the next list, and still reports removals during the
    outage.
    """
    one = following().anchored()
    reported: list[tuple[str, str]] = []
    one.listing.removals_seen = reported.extend
    one.remove("a")
    read_after_outage(one)
    assert reported == []
    one.wait(30)
    assert one.ids() == ["b"]
    assert one.asked == ["list", "delta"]
    assert reported == [("RATING", "a")]
    one.register("c")
    one.wait(30)
    assert one.ids() == ["b", "c"]
    assert one.asked == ["delta"]


@pytest.mark.parametrize("wants_departure_proofs", [False, True])
def test_deregistrations_are_reported_while_the_list_is_in_doubt(wants_departure_proofs: bool) -> None:
    """A read in doubt that wants proofs reports deregistrations as removals, and evictions separately:
    another server may still get an evicted instance's renewals.
    """
    one = following().anchored()
    left: list[tuple[str, str]] = []
    evicted: list[tuple[str, str]] = []
    one.listing.removals_seen, one.listing.evictions_seen = left.extend, evicted.extend
    _evict_and_remove(one)
    found = one.listing.read(one.started, in_doubt=True, wants_departure_proofs=wants_departure_proofs)
    assert [each.instance_id for each in found] == ["b"]
    assert left == ([("RATING", "a")] if wants_departure_proofs else [])
    assert evicted == ([("RATING", "c")] if wants_departure_proofs else [])
    one.delta_fails = [RegistryUnreachable("away", url=URL)]
    assert (
        one.listing.read(one.started, in_doubt=True, wants_departure_proofs=wants_departure_proofs) == found
    )


def test_who_came_back_after_the_outage_has_not_left() -> None:
    """An instance that the list has after an outage is not reported as removed, whatever the delta says."""
    one = following().anchored()
    reported: list[tuple[str, str]] = []
    one.listing.removals_seen = reported.extend
    one.remove("a")
    read_after_outage(one)
    one.register("a")
    one.wait(30)
    assert one.ids() == ["a", "b"]
    assert reported == []


def test_deltas_that_go_unanswered_again_rest() -> None:
    """After a second failed delta, lists are read for some minutes, so that a server that hangs over deltas
    costs two readings only.
    """
    one = following().anchored()
    read_after_outage(one)
    one.wait(15)
    one.read()
    assert one.asked == ["list", "delta"]
    one.wait(15)
    read_after_outage(one)
    one.wait(15)
    one.read()
    assert one.asked == ["list"]
    one.wait(windows.FULL_LIST_INTERVAL_SECONDS)
    one.read()
    assert one.asked == ["list", "delta"]


def test_an_outage_of_long_ago_is_forgotten() -> None:
    """Outages that lie minutes apart are not counted together, and deltas are requested again after each."""
    one = following().anchored()
    for _ in range(3):
        read_after_outage(one)
        one.wait(15)
        one.read()
        assert one.asked == ["list", "delta"]
        one.wait(windows.FULL_LIST_INTERVAL_SECONDS)
        one.read()
        one.read()
        assert one.asked == ["delta"]
