"""Uncached reads of single instances, which renew none."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from eurekube_provider.cli.drain_command import describe_missed_instances, describe_unaddressable
from eurekube_provider.core import identity
from eurekube_provider.core.errors import RegistryRejected, RegistryUnreachable
from eurekube_provider.core.identity import APPLICATION_MEMBER_KEY
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.eureka_registry import EurekaRegistry
from eurekube_provider.eureka.overrides import (
    NamedInstances,
    filter_still_listed,
    find_named_instances,
    is_another_instance_up_everywhere,
)
from eurekube_provider.eureka.peers import FEWEST_LEASES_FOR_BATCHES, Peers, merge_lists
from eurekube_provider.eureka.protocol.batch import ItemResponse
from eurekube_provider.eureka.protocol.delta import Delta, DeltaPart
from eurekube_provider.eureka.shared_batches import MakeItems
from eurekube_provider.eureka.uncached_reads import MOST_PARALLEL_READS, read_everywhere, read_instances
from eurekube_provider.registrations import registry_lists
from eurekube_provider.registrations.actual import read_actual
from eurekube_provider.registrations.desired import DesiredState
from eurekube_provider.registrations.members import check_application
from eurekube_provider.registrations.registry_lists import RegistryListCache

Key = tuple[str, str]
URL = "http://a/eureka"
OWNER = "stack/organization/shop/dev/rating"


class Server:
    """A server with held instances, a list that may differ, and counts of its requests."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.held: dict[Key, Instance] = {}
        self.listed: list[Instance] = []
        self.gone: list[Key] = []
        self.refused: set[Key] = set()
        self.reads = self.renewals = 0

    def read(self, application: str, instance_id: str) -> Instance | None:
        """Return the instance that the server holds, or None; raise if the read is refused."""
        self.reads += 1
        if (application, instance_id) in self.refused:
            raise RegistryRejected(f"400 for {instance_id}")
        return self.held.get((application, instance_id))

    def read_delta_if_changed(self, _: bytes) -> tuple[bytes, Delta]:
        """Return a delta with the removed keys."""
        return b"", Delta(1, "", (DeltaPart(dict.fromkeys(self.gone)),))

    def find_by_id(self, instance_id: str) -> Instance | None:
        """Return the instance of an id, in any application."""
        return next((one for key, one in self.held.items() if key[1] == instance_id), None)

    def deregister(self, application: str, instance_id: str) -> bool:
        """Remove an instance."""
        return self.held.pop((application, instance_id), None) is not None

    def send_batch(self, items: Sequence[bytes]) -> list[ItemResponse]:
        """Take heartbeats, which renew instances, and return what is held."""
        self.renewals += len(items)
        everything = list(self.held.values())
        ids = [item.partition(b'"id":"')[2].partition(b'"')[0].decode() for item in items]
        found = [next((one for one in everything if one.instance_id == name), None) for name in ids]
        return [ItemResponse(409, one) if one else ItemResponse(404) for one in found]


class Cluster(Peers):
    """Fake Peers with servers that take batches."""

    def __init__(self, *urls: str) -> None:
        super().__init__(Connection(urls or (URL,)))
        self.servers = [Server(url) for url in self.connection.service_urls]
        self.silent: set[str] = set()

    def holds(self, instances: Iterable[Instance], *, listed: Iterable[Instance] = ()) -> None:
        """Let every server hold these instances, and list those."""
        instances, listed = list(instances), list(listed)
        for server in self.servers:
            server.held = {one.key: one for one in instances}
            server.listed = listed

    def ask_all(
        self, ask: Callable[[Any], Any], *, asks_avoided: bool = False, grace_seconds: float | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Ask every server that is not silent, and return answers and failures by URL."""
        assert asks_avoided in (True, False) or grace_seconds
        asked = [one for one in self.servers if one.url not in self.silent]
        return {one.url: ask(one) for one in asked}, {
            url: RegistryUnreachable("away", url=url) for url in self.silent
        }

    def read(self, application: str, instance_id: str) -> Instance | None:
        """Read an instance from the first server."""
        return self.servers[0].read(application, instance_id)

    def find_by_id(self, instance_id: str) -> Instance | None:
        """Find an instance at the first server."""
        return self.servers[0].find_by_id(instance_id)

    def list_instances(self) -> list[Instance]:
        """Return the first server's list."""
        return self.servers[0].listed

    def list_everywhere(self) -> tuple[list[Instance], dict[str, Any]]:
        """Return the merged lists of all servers."""
        return merge_lists(one.listed for one in self.servers), {}

    def send_batch(self, peer: Any, make_items: MakeItems, most_items: int) -> Sequence[ItemResponse]:
        """Send a batch to this server."""
        answers: list[ItemResponse] = peer.send_batch(make_items())
        assert len(answers) <= most_items
        return answers

    def uses_batches(self, leases: int) -> bool:
        """Return whether so many leases are enough for batches."""
        return leases >= FEWEST_LEASES_FOR_BATCHES

    @property
    def renewals(self) -> int:
        """Number of heartbeats at all servers."""
        return sum(one.renewals for one in self.servers)


def instance(number: int, **more: Any) -> Instance:
    """Return an instance with this number in its id and address."""
    at = f"192.0.2.{number % 250}"
    return Instance("RATING", f"i{number}", at, at, Port(8080), last_dirty_timestamp_ms=1000, **more)


MANY = [instance(number) for number in range(FEWEST_LEASES_FOR_BATCHES + 100)]


def test_to_look_at_many_renews_none() -> None:
    """Uncached reads of a thousand instances renew none: an abandoned instance must lapse despite a
    refresh.
    """
    cluster = Cluster("http://a/eureka", "http://b/eureka")
    cluster.holds(MANY[1:])
    reads = read_everywhere(cluster, [one.key for one in MANY])
    assert [reads.newest(one.key) for one in MANY] == [None, *MANY[1:]]
    assert [one.reads for one in cluster.servers] == [len(MANY)] * 2
    assert cluster.renewals == 0


def sweep(cluster: Cluster, *removed: Instance, former: frozenset[str] = frozenset()) -> None:
    """Record removals, and check the first server for the removed instances at once."""
    registry = EurekaRegistry(cluster, identity.Cluster("lab", "u"), "operator", 600.0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("eurekube_provider.eureka.windows.REMOVAL_CHECKS_AFTER_SECONDS", (0.0, 0.0))
        for one in removed:
            for owner in former:
                registry.table.store_written_and_return_previous(
                    replace(one, metadata={"eurekube.owner": owner})
                )
                registry.table.store_written_and_return_previous(one)
            registry.table.store_removal_and_plan_checks(one)
        registry.repair.check_and_clean_server(cluster.servers[0])  # type: ignore[arg-type]


def test_to_sweep_many_renews_none() -> None:
    """The check of many removals removes our remaining instances, leaves another owner's, and renews none."""
    cluster = Cluster()
    cluster.holds([MANY[0], replace(MANY[1], metadata={"eurekube.owner": "other"})])
    sweep(cluster, *MANY)
    assert list(cluster.servers[0].held) == [MANY[1].key]
    assert cluster.renewals == 0


def test_what_was_handed_over_is_swept_as_its_former_owners() -> None:
    """After a hand-over the check also removes the former owner's version at a server that was away, but not
    one written after the removal.
    """
    cluster = Cluster()
    (server,) = cluster.servers
    formers = [replace(one, metadata={"eurekube.owner": "former"}) for one in MANY[:2]]
    later = replace(formers[1], last_dirty_timestamp_ms=int(time.time() * 1000) + 60_000)
    cluster.holds([formers[0], later])
    sweep(cluster, *MANY[:2], former=frozenset({"former"}))
    assert list(server.held.values()) == [later]


def test_to_sweep_many_takes_time() -> None:
    """Before its removal each instance is read again, so that one that was registered meanwhile stays."""
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
    """An instance registered again is renewed at each check, because a removal under way may hit it."""
    monkeypatch.setattr("eurekube_provider.eureka.windows.REMOVAL_CHECKS_AFTER_SECONDS", (0.0, 0.0))
    cluster = Cluster()
    cluster.holds(MANY[:2])
    registry = EurekaRegistry(cluster, identity.Cluster("lab", "u"), "operator", 600.0)
    again: list[Key] = []
    monkeypatch.setattr(registry.renewals, "renew_soon", again.extend)
    for one in MANY[:2]:
        registry.table.store_removal_and_plan_checks(one)
    registry.table.store_written_and_return_previous(MANY[0])
    for _ in range(3):
        registry.repair.check_and_clean_server(cluster.servers[0])  # type: ignore[arg-type]
    assert again == [one.key for one in MANY[:2]] * 2
    assert list(cluster.servers[0].held) == [MANY[0].key]


def test_the_first_read_that_fails_ends_the_rest() -> None:
    """The first failed read ends the other reads, so that a server that is away is not waited for each
    time.
    """

    class Away:
        reads = 0

        def read(self, *_: str) -> None:
            Away.reads += 1
            raise RegistryUnreachable("away", url=URL)

    with pytest.raises(RegistryUnreachable):
        read_instances(cast("Peers", Away()), [one.key for one in MANY])
    assert Away.reads <= MOST_PARALLEL_READS


@pytest.fixture(autouse=True)
def nothing_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the cache of lists, so that each look requests its own."""
    monkeypatch.setattr(registry_lists, "LIST_CACHE_SECONDS", -1.0)


def application(count: int, renewer: str = "eurekube") -> DesiredState:
    """Return the desired state of a stack's application with this many instances."""
    properties = {
        "application": "rating",
        "port": 8080,
        "instances": {f"k{n}": {"host_name": f"10.0.{n // 250}.{n % 250}"} for n in range(count)},
        "renewer": renewer,
        "service_url": URL,
        "owner": OWNER,
    }
    return DesiredState.from_properties(check_application({}, properties).properties)


@pytest.mark.parametrize("renewer", ["eurekube", "self"])
def test_only_what_is_written_and_others_renew_is_renewed(renewer: str) -> None:
    """Only reads before a write may use batches, which renew, and never for self-renewed or another
    owner's instances.
    """
    cluster, wanted = Cluster(), application(FEWEST_LEASES_FOR_BATCHES + 1, renewer)
    instances = [each.instance for each in wanted.registrations.values()]
    strange = replace(instances[0], metadata={"eurekube.owner": "somebody"})
    cluster.holds([strange, *instances[1:]], listed=[strange, *instances[2:]])
    for listed in (None, [strange]):
        assert len(read_actual(wanted, [OWNER], cluster, listed).owned) == len(instances) - 1
    assert cluster.renewals == 0
    for listed in (None, [strange]):
        found = read_actual(wanted, [OWNER], cluster, listed, for_writing=True)
        assert len(found.owned) == len(instances) - 1
        assert list(found.owned_by_others) == [strange.key]
    assert cluster.renewals == (0 if renewer == "self" else 2 * (len(instances) - 1))


def test_a_look_knows_what_the_state_knows() -> None:
    """Keys of the state are read even if unlisted, a listed instance may be gone, and an instance that a
    EurekaInstance took over is no surplus.
    """
    cluster, before, wanted = Cluster(), application(2), application(1)
    kept, going = (each.instance for each in before.registrations.values())
    gone = instance(7, metadata={"eurekube.owner": OWNER, APPLICATION_MEMBER_KEY: "k7"})
    cluster.holds([kept, going], listed=[gone])
    assert read_actual(wanted, [OWNER], cluster, extra_keys=before.program_keys).surplus_instances(
        wanted
    ) == [going]
    assert read_actual(wanted, [OWNER], cluster).surplus_instances(wanted) == []
    single = replace(going, metadata={"eurekube.owner": OWNER})  # a EurekaInstance took the place over
    cluster.holds([kept, single])
    assert (
        read_actual(wanted, [OWNER], cluster, extra_keys=before.program_keys).surplus_instances(wanted) == []
    )


@pytest.mark.parametrize(("has_members", "is_seen"), [(True, True), (False, False)])
def test_an_application_of_one_is_read_from_every_server(has_members: bool, is_seen: bool) -> None:
    """A EurekaApplication with one member is read from every server, as another owner may hold its id at a
    later one; a
    EurekaInstance is read from one server.
    """
    cluster = Cluster("http://a/eureka", "http://b/eureka")
    wanted = replace(application(1), has_members=has_members)
    (ours,) = (each.instance for each in wanted.registrations.values())
    cluster.holds([ours])
    strange = replace(ours, metadata={"eurekube.owner": "somebody"}, last_dirty_timestamp_ms=2**41)
    cluster.servers[1].held[ours.key] = strange
    found = read_actual(wanted, [OWNER], cluster, [], from_all_servers=False)
    assert (ours.key in found.owned_by_others) is is_seen


def test_a_neighbour_at_our_address_is_read() -> None:
    """A listed instance at our address is read, and is no neighbour if no server holds it."""
    cluster, wanted = Cluster(), application(1)
    (ours,) = (each.instance for each in wanted.registrations.values())
    twin = replace(ours, instance_id="its-own", metadata={})
    far = instance(9)
    cluster.holds([twin], listed=[twin, far])
    lists = RegistryListCache()
    assert lists.foreign_instances_at_addresses([ours], OWNER, cluster) == [twin]
    cluster.holds([], listed=[twin, far])
    assert lists.foreign_instances_at_addresses([ours], OWNER, cluster) == []


def test_whether_another_is_up_is_read() -> None:
    """Another instance counts as UP only if an uncached read at every server finds one; lists may be
    outdated.
    """
    cluster = Cluster("http://a/eureka", "http://b/eureka")
    mine, other = instance(1), instance(2)
    cluster.holds([mine, replace(other, status=Status.OUT_OF_SERVICE)], listed=[mine, other])
    assert not is_another_instance_up_everywhere(cluster, "RATING", {mine.key})
    cluster.holds([mine, other], listed=[mine, replace(other, status=Status.DOWN)])
    assert is_another_instance_up_everywhere(cluster, "RATING", {mine.key})
    cluster.servers[1].held.pop(other.key)
    assert not is_another_instance_up_everywhere(cluster, "RATING", {mine.key})
    cluster.holds([mine, *MANY[2:]], listed=[mine, *MANY[2:]])
    assert is_another_instance_up_everywhere(cluster, "RATING", {mine.key})
    assert cluster.renewals == 0


def test_instances_are_named_as_they_stand() -> None:
    """Instances are named by uncached reads: a removed one is left out, an unlisted one found, and one that a
    silent server may hold is kept.
    """
    cluster = Cluster("http://a/eureka", "http://b/eureka")
    there, unlisted = instance(1, status=Status.DOWN), instance(3)
    gone = instance(2, status=Status.DOWN)
    cluster.holds([there, unlisted], listed=[replace(there, status=Status.UP), gone])
    assert find_named_instances(cluster, "rating") == NamedInstances((there,))
    assert find_named_instances(cluster, "i3") == NamedInstances((unlisted,))
    with pytest.raises(RegistryRejected, match="neither an application nor an instance i2"):
        find_named_instances(cluster, "i2")
    cluster.silent = {"http://b/eureka"}
    assert find_named_instances(cluster, "i2") == NamedInstances((gone,))


def test_what_a_list_shows_as_up_and_no_server_holds_is_not_yet_known() -> None:
    """A listed UP instance that no server holds is reported as unseen: the list may be old, or show
    another id.
    """
    cluster = Cluster()
    there, listed = instance(1), instance(2)
    cluster.holds([there], listed=[there, listed])
    assert find_named_instances(cluster, "rating") == NamedInstances((there,), (), (listed,))
    assert find_named_instances(cluster, "i2") == NamedInstances(only_listed=(listed,))
    assert filter_still_listed(cluster, [listed]) == [listed]
    cluster.holds([there], listed=[there])
    assert filter_still_listed(cluster, [listed]) == []


def test_a_delta_says_that_it_left_before_the_list_does() -> None:
    """An instance that a delta reports as removed does not count as listed, although the cached list still
    shows it.
    """
    cluster = Cluster()
    cluster.holds([], listed=[instance(2)])
    cluster.servers[0].gone = [instance(2).key]
    assert filter_still_listed(cluster, [instance(2)]) == []


def test_what_a_server_refuses_to_tell_costs_only_itself() -> None:
    """An instance whose read is refused is named as unreachable with the reason; the others are read."""
    cluster = Cluster()
    there, odd = instance(1), instance(2)
    cluster.holds([there], listed=[odd, there])
    cluster.servers[0].refused = {odd.key}
    named = find_named_instances(cluster, "rating")
    assert (named.registered, named.unreadable, named.only_listed) == ((there,), (odd,), ())
    assert named.unreadable[0].unreadable == "400 for i2"
    assert not is_another_instance_up_everywhere(cluster, "RATING", {there.key})
    with pytest.raises(RegistryRejected):
        read_instances(cluster, [odd.key])


def test_an_id_that_no_request_can_name_hinders_nothing() -> None:
    """An instance whose id fits into no URL is reported, and the others are drained."""
    cluster = Cluster()
    odd = "no request can name the id 'two/\\x1b[2K'"
    there, strange = instance(1), replace(instance(2), instance_id="two/\x1b[2K", unreadable=odd)
    cluster.holds([there], listed=[strange, there])  # what is read of the other one is refused
    named = find_named_instances(cluster, "rating")
    assert named == NamedInstances((there,), (strange,))
    assert list(named) == [there, strange]
    (reported,) = describe_unaddressable(named.unreadable, "drained")
    assert f"'two/\\x1b[2K' is UP and not drained: {odd}" in reported
    assert not is_another_instance_up_everywhere(cluster, "RATING", {there.key})
    cluster.holds([], listed=[strange])
    assert find_named_instances(cluster, "rating") == NamedInstances(unreadable=(strange,))
    assert find_named_instances(cluster, strange.instance_id) == NamedInstances(unreadable=(strange,))


def test_what_a_drain_left_out_is_reported() -> None:
    """An UP instance that existed when the drain began but was not drained is reported; a later one is
    not.
    """

    class Options:
        target, self_registered = "rating", False

    cluster = Cluster()
    drained, before, since = instance(1), instance(2), replace(instance(3), last_dirty_timestamp_ms=9_000)
    cluster.holds([drained, before, since], listed=[drained, before, since])
    (reported,) = describe_missed_instances(cluster, cast("Any", Options), [drained], began=5.0)
    assert "i2 is UP and was not drained" in reported
    assert describe_missed_instances(cluster, cast("Any", Options), [drained, before], began=5.0) == []
