"""Reads of single instances: fresh, without a trace, and without keeping anything alive."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from eurekube_provider.cli.drain_command import beyond_reach, left_out
from eurekube_provider.core import identity
from eurekube_provider.core.errors import RegistryRejected, RegistryUnreachable
from eurekube_provider.core.identity import MEMBER_KEY
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.eureka_registry import EurekaRegistry
from eurekube_provider.eureka.overrides import Named, another_is_up, instances_named, still_listed
from eurekube_provider.eureka.peers import BATCHES_FROM_LEASES, Peers, merged
from eurekube_provider.eureka.protocol.batch import ItemResponse
from eurekube_provider.eureka.protocol.delta import Delta
from eurekube_provider.eureka.uncached_reads import READS_AT_ONCE, read_each, read_everywhere
from eurekube_provider.registrations import registry_lists
from eurekube_provider.registrations.actual import read_actual
from eurekube_provider.registrations.desired import DesiredState
from eurekube_provider.registrations.members import check_members
from eurekube_provider.registrations.registry_lists import RegistryLists

Key = tuple[str, str]
URL = "http://a/eureka"
OWNER = "stack/organization/shop/dev/rating"


class Server:
    """One server: what it holds, what its list shows, and what it was asked."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.held: dict[Key, Instance] = {}
        self.listed: list[Instance] = []
        self.gone: list[Key] = []
        self.refused: set[Key] = set()
        self.reads = self.renewals = 0

    def read(self, application: str, instance_id: str) -> Instance | None:
        """Return the instance."""
        self.reads += 1
        if (application, instance_id) in self.refused:
            raise RegistryRejected(f"400 for {instance_id}")
        return self.held.get((application, instance_id))

    def changes_unless(self, _: bytes) -> tuple[bytes, Delta]:
        """Return the removals."""
        return b"", Delta(1, "", dict.fromkeys(self.gone))

    def find(self, instance_id: str) -> Instance | None:
        """Return the instance of an id, in any application."""
        return next((one for key, one in self.held.items() if key[1] == instance_id), None)

    def deregister(self, application: str, instance_id: str) -> bool:
        """Remove."""
        return self.held.pop((application, instance_id), None) is not None

    def batch(self, items: Sequence[bytes]) -> list[ItemResponse]:
        """Heartbeats, which renew and tell what is there."""
        self.renewals += len(items)
        everything = list(self.held.values())
        ids = [item.partition(b'"id":"')[2].partition(b'"')[0].decode() for item in items]
        found = [next((one for one in everything if one.instance_id == name), None) for name in ids]
        return [ItemResponse(409, one) if one else ItemResponse(404) for one in found]


class Cluster(Peers):
    """Servers that take batches, as far as they are asked here."""

    def __init__(self, *urls: str) -> None:
        super().__init__(Connection(urls or (URL,)))
        self.servers = [Server(url) for url in self.connection.service_urls]
        self.silent: set[str] = set()

    def holds(self, instances: Iterable[Instance], *, listed: Iterable[Instance] = ()) -> None:
        """On every server."""
        instances, listed = list(instances), list(listed)
        for server in self.servers:
            server.held = {one.key: one for one in instances}
            server.listed = listed

    def each(
        self, ask: Callable[[Any], Any], *, asks_avoided: bool = False, grace_seconds: float | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """All, but for those that are silent."""
        assert asks_avoided in (True, False) or grace_seconds
        asked = [one for one in self.servers if one.url not in self.silent]
        return {one.url: ask(one) for one in asked}, {
            url: RegistryUnreachable("away", url=url) for url in self.silent
        }

    def read(self, application: str, instance_id: str) -> Instance | None:
        """The first one's."""
        return self.servers[0].read(application, instance_id)

    def find(self, instance_id: str) -> Instance | None:
        """The first one's."""
        return self.servers[0].find(instance_id)

    def list_instances(self) -> list[Instance]:
        """The first one's."""
        return self.servers[0].listed

    def list_everywhere(self) -> tuple[list[Instance], dict[str, Any]]:
        """All of them."""
        return merged(one.listed for one in self.servers), {}

    def batch(self, peer: Any, items: Sequence[bytes]) -> Sequence[ItemResponse]:
        """Each server's own."""
        answers: list[ItemResponse] = peer.batch(items)
        return answers

    def uses_batches(self, leases: int) -> bool:
        """As the servers allow it."""
        return leases >= BATCHES_FROM_LEASES

    @property
    def renewals(self) -> int:
        """How many heartbeats came."""
        return sum(one.renewals for one in self.servers)


def instance(number: int, **more: Any) -> Instance:
    """One that carries its number."""
    at = f"192.0.2.{number % 250}"
    return Instance("RATING", f"i{number}", at, at, Port(8080), last_dirty_timestamp_ms=1000, **more)


MANY = [instance(number) for number in range(BATCHES_FROM_LEASES + 100)]


def test_to_look_at_many_renews_none() -> None:
    """A refresh of a thousand must not keep those alive that nobody renews any more."""
    cluster = Cluster("http://a/eureka", "http://b/eureka")
    cluster.holds(MANY[1:])
    reads = read_everywhere(cluster, [one.key for one in MANY])
    assert [reads.newest(one.key) for one in MANY] == [None, *MANY[1:]]
    assert [one.reads for one in cluster.servers] == [len(MANY)] * 2
    assert cluster.renewals == 0


def sweep(cluster: Cluster, *removed: Instance, former: frozenset[str] = frozenset()) -> None:
    """Look once at a server for what was removed, as soon as it was."""
    registry = EurekaRegistry(cluster, identity.Cluster("lab", "u"), "operator", 600.0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("eurekube_provider.eureka.windows.SWEEP", (0.0, 0.0))
        for one in removed:
            for owner in former:
                registry.table.registered(replace(one, metadata={"eurekube.owner": owner}))
                registry.table.registered(one)
            registry.table.removed(one)
        registry.repair.look(cluster.servers[0])  # type: ignore[arg-type]


def test_to_sweep_many_renews_none() -> None:
    """A removed instance has to be dead; another owner's is left alone."""
    cluster = Cluster()
    cluster.holds([MANY[0], replace(MANY[1], metadata={"eurekube.owner": "other"})])
    sweep(cluster, *MANY)
    assert list(cluster.servers[0].held) == [MANY[1].key]
    assert cluster.renewals == 0


def test_what_was_handed_over_is_swept_as_its_former_owners() -> None:
    """A server that was away still holds it so; what that one wrote after the removal stays."""
    cluster = Cluster()
    (server,) = cluster.servers
    formers = [replace(one, metadata={"eurekube.owner": "former"}) for one in MANY[:2]]
    later = replace(formers[1], last_dirty_timestamp_ms=int(time.time() * 1000) + 60_000)
    cluster.holds([formers[0], later])
    sweep(cluster, *MANY[:2], former=frozenset({"former"}))
    assert list(server.held.values()) == [later]


def test_to_sweep_many_takes_time() -> None:
    """An instance that was registered again after the read is read again before its removal."""
    cluster = Cluster()
    cluster.holds(MANY[:3])
    (server,) = cluster.servers
    again = replace(MANY[2], last_dirty_timestamp_ms=2000)
    deregister = server.deregister

    def removes_slowly(application: str, instance_id: str) -> bool:
        server.held[again.key] = again
        return deregister(application, instance_id)

    server.deregister = removes_slowly  # type: ignore[method-assign]
    sweep(cluster, *MANY[:3])
    assert list(server.held.values()) == [again]


def test_what_was_registered_again_is_looked_after(monkeypatch: pytest.MonkeyPatch) -> None:
    """A removal that was under way may hit it, so that each look at a server has it renewed."""
    monkeypatch.setattr("eurekube_provider.eureka.windows.SWEEP", (0.0, 0.0))
    cluster = Cluster()
    cluster.holds(MANY[:2])
    registry = EurekaRegistry(cluster, identity.Cluster("lab", "u"), "operator", 600.0)
    again: list[Key] = []
    monkeypatch.setattr(registry.renewals, "renew_soon", again.extend)
    for one in MANY[:2]:
        registry.table.removed(one)
    registry.table.registered(MANY[0])
    for _ in range(3):
        registry.repair.look(cluster.servers[0])  # type: ignore[arg-type]
    assert again == [one.key for one in MANY[:2]] * 2
    assert list(cluster.servers[0].held) == [MANY[0].key]


def test_the_first_read_that_fails_ends_the_rest() -> None:
    """A server that is away is not waited for a thousand times."""

    class Away:
        reads = 0

        def read(self, *_: str) -> None:
            Away.reads += 1
            raise RegistryUnreachable("away", url=URL)

    with pytest.raises(RegistryUnreachable):
        read_each(cast("Peers", Away()), [one.key for one in MANY])
    assert Away.reads <= READS_AT_ONCE


@pytest.fixture(autouse=True)
def nothing_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look asks for a list of its own."""
    monkeypatch.setattr(registry_lists, "LISTED_FOR_SECONDS", -1.0)


def application(count: int, renewer: str = "eurekube") -> DesiredState:
    """A stack's application with so many instances."""
    properties = {
        "application": "rating",
        "port": 8080,
        "instances": {f"k{n}": {"host_name": f"10.0.{n // 250}.{n % 250}"} for n in range(count)},
        "renewer": renewer,
        "service_url": URL,
        "owner": OWNER,
    }
    return DesiredState.from_properties(check_members({}, properties).properties)


@pytest.mark.parametrize("renewer", ["eurekube", "self"])
def test_only_what_is_written_and_others_renew_is_renewed(renewer: str) -> None:
    """A look at what stands renews nothing; what is written may be read in batches, but for a stranger's."""
    cluster, wanted = Cluster(), application(BATCHES_FROM_LEASES + 1, renewer)
    instances = [each.instance for each in wanted.registrations.values()]
    strange = replace(instances[0], metadata={"eurekube.owner": "somebody"})
    cluster.holds([strange, *instances[1:]], listed=[strange, *instances[2:]])
    for listed in (None, [strange]):
        assert len(read_actual(wanted, [OWNER], cluster, listed).ours) == len(instances) - 1
    assert cluster.renewals == 0
    for listed in (None, [strange]):
        found = read_actual(wanted, [OWNER], cluster, listed, writes=True)
        assert len(found.ours) == len(instances) - 1
        assert list(found.others) == [strange.key]
    assert cluster.renewals == (0 if renewer == "self" else 2 * (len(instances) - 1))


def test_a_look_knows_what_the_state_knows() -> None:
    """An update's registration of a moment ago is in no list yet; a listed instance may be gone."""
    cluster, before, wanted = Cluster(), application(2), application(1)
    kept, going = (each.instance for each in before.registrations.values())
    gone = instance(7, metadata={"eurekube.owner": OWNER, MEMBER_KEY: "k7"})
    cluster.holds([kept, going], listed=[gone])
    assert read_actual(wanted, [OWNER], cluster, also=before.keys).surplus(wanted) == [going]
    assert read_actual(wanted, [OWNER], cluster).surplus(wanted) == []
    single = replace(going, metadata={"eurekube.owner": OWNER})  # a EurekaInstance took the place over
    cluster.holds([kept, single])
    assert read_actual(wanted, [OWNER], cluster, also=before.keys).surplus(wanted) == []


@pytest.mark.parametrize(("has_members", "is_seen"), [(True, True), (False, False)])
def test_an_application_of_one_is_read_from_every_server(has_members: bool, is_seen: bool) -> None:
    """Somebody may have taken the place at a server that is asked later; an instance is read from one."""
    cluster = Cluster("http://a/eureka", "http://b/eureka")
    wanted = replace(application(1), has_members=has_members)
    (ours,) = (each.instance for each in wanted.registrations.values())
    cluster.holds([ours])
    strange = replace(ours, metadata={"eurekube.owner": "somebody"}, last_dirty_timestamp_ms=2**41)
    cluster.servers[1].held[ours.key] = strange
    found = read_actual(wanted, [OWNER], cluster, [], everywhere=False)
    assert (ours.key in found.others) is is_seen


def test_a_neighbour_at_our_address_is_read() -> None:
    """One that a list shows and that is gone stands in nobody's way."""
    cluster, wanted = Cluster(), application(1)
    (ours,) = (each.instance for each in wanted.registrations.values())
    twin = replace(ours, instance_id="its-own", metadata={})
    far = instance(9)
    cluster.holds([twin], listed=[twin, far])
    lists = RegistryLists()
    assert lists.neighbours([ours], OWNER, cluster) == [twin]
    cluster.holds([], listed=[twin, far])
    assert lists.neighbours([ours], OWNER, cluster) == []


def test_whether_another_is_up_is_read() -> None:
    """A list may have been true half a minute ago; each server's callers find what that server holds."""
    cluster = Cluster("http://a/eureka", "http://b/eureka")
    mine, other = instance(1), instance(2)
    cluster.holds([mine, replace(other, status=Status.OUT_OF_SERVICE)], listed=[mine, other])
    assert not another_is_up(cluster, "RATING", {mine.key})
    cluster.holds([mine, other], listed=[mine, replace(other, status=Status.DOWN)])
    assert another_is_up(cluster, "RATING", {mine.key})
    cluster.servers[1].held.pop(other.key)
    assert not another_is_up(cluster, "RATING", {mine.key})
    cluster.holds([mine, *MANY[2:]], listed=[mine, *MANY[2:]])
    assert another_is_up(cluster, "RATING", {mine.key})
    assert cluster.renewals == 0


def test_instances_are_named_as_they_stand() -> None:
    """A gone one is left out, an id is found before any list shows it, and an undecided one is kept."""
    cluster = Cluster("http://a/eureka", "http://b/eureka")
    there, unlisted = instance(1, status=Status.DOWN), instance(3)
    gone = instance(2, status=Status.DOWN)
    cluster.holds([there, unlisted], listed=[replace(there, status=Status.UP), gone])
    assert instances_named(cluster, "rating") == Named((there,))
    assert instances_named(cluster, "i3") == Named((unlisted,))
    with pytest.raises(RegistryRejected, match="neither an application nor an instance i2"):
        instances_named(cluster, "i2")
    cluster.silent = {"http://b/eureka"}
    assert instances_named(cluster, "i2") == Named((gone,))


def test_what_a_list_shows_as_up_and_no_server_holds_is_not_yet_known() -> None:
    """The list is older than that, or the server holds it under another id than it shows."""
    cluster = Cluster()
    there, listed = instance(1), instance(2)
    cluster.holds([there], listed=[there, listed])
    assert instances_named(cluster, "rating") == Named((there,), (), (listed,))
    assert instances_named(cluster, "i2") == Named(unseen=(listed,))
    assert still_listed(cluster, [listed]) == [listed]
    cluster.holds([there], listed=[there])
    assert still_listed(cluster, [listed]) == []


def test_a_delta_says_that_it_left_before_the_list_does() -> None:
    """A list is made again every half minute, and may have been made before it left."""
    cluster = Cluster()
    cluster.holds([], listed=[instance(2)])
    cluster.servers[0].gone = [instance(2).key]
    assert still_listed(cluster, [instance(2)]) == []


def test_what_a_server_refuses_to_tell_costs_only_itself() -> None:
    """Under an id that a proxy refuses: it is named as what no request can name, and so is why."""
    cluster = Cluster()
    there, odd = instance(1), instance(2)
    cluster.holds([there], listed=[odd, there])
    cluster.servers[0].refused = {odd.key}
    named = instances_named(cluster, "rating")
    assert (named.held, named.beyond, named.unseen) == ((there,), (odd,), ())
    assert named.beyond[0].unreadable == "400 for i2"
    assert not another_is_up(cluster, "RATING", {there.key})
    with pytest.raises(RegistryRejected):
        read_each(cluster, [odd.key])


def test_an_id_that_no_request_can_name_hinders_nothing() -> None:
    """A server takes it in and refuses every URL with it: it is reported, and the others are drained."""
    cluster = Cluster()
    odd = "no request can name the id 'two/\\x1b[2K'"
    there, strange = instance(1), replace(instance(2), instance_id="two/\x1b[2K", unreadable=odd)
    cluster.holds([there], listed=[strange, there])  # what is read of the other one is refused
    named = instances_named(cluster, "rating")
    assert named == Named((there,), (strange,))
    assert list(named) == [there, strange]
    (reported,) = beyond_reach(named.beyond, "drained")
    assert f"'two/\\x1b[2K' is UP and not drained: {odd}" in reported
    assert not another_is_up(cluster, "RATING", {there.key})
    cluster.holds([], listed=[strange])
    assert instances_named(cluster, "rating") == Named(beyond=(strange,))
    assert instances_named(cluster, strange.instance_id) == Named(beyond=(strange,))


def test_what_a_drain_left_out_is_reported() -> None:
    """It was there when the drain began, and in no list; what came since is not meant."""

    class Options:
        target, self_registered = "rating", False

    cluster = Cluster()
    drained, before, since = instance(1), instance(2), replace(instance(3), last_dirty_timestamp_ms=9_000)
    cluster.holds([drained, before, since], listed=[drained, before, since])
    (reported,) = left_out(cluster, cast("Any", Options), [drained], began=5.0)
    assert "i2 is UP and was not drained" in reported
    assert left_out(cluster, cast("Any", Options), [drained, before], began=5.0) == []
