"""Renewal of stacks' registrations, except removed ones that a list or a server still shows."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from eurekube_provider.core.errors import RegistryRejected
from eurekube_provider.core.model import Instance
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.listing import Listing
from tests.unit.eureka.servers import Holding, instance, of_a_stack, renewed_after, started_now


@pytest.mark.parametrize(("ends_in_seconds", "first"), [(120.0, 250), (-60.0, 600)])
def test_very_many_of_stacks_are_looked_at_little_by_little(ends_in_seconds: float, first: int) -> None:
    """Each check reads a part of the listed registrations, those whose lease ends first; registrations about
    to lapse are all read at once.
    """
    ends_ms = round((time.time() + ends_in_seconds) * 1000)
    many = [replace(of_a_stack(f"i{number}"), lease_ends_ms=ends_ms - number) for number in range(600)]
    registry = Holding(*many).registry()
    renewed = renewed_after(registry, *many)
    assert renewed == {f"i{number}" for number in range(600 - first, 600)}
    for _ in range(2):
        registry.stacks.renew_suggested_by_list()
    assert len(registry.renewals) == 600


def test_a_list_that_is_old_brings_back_nothing() -> None:
    """A registration that was removed since the list was made is not renewed, as a renewal's 404 would
    restore it.
    """
    gone, stands = of_a_stack("gone"), of_a_stack("stands")
    assert renewed_after(Holding(stands).registry(), gone, stands) == {"stands"}


def test_a_list_of_a_server_that_missed_a_removal_brings_back_nothing() -> None:
    """A registration that only a server that was frozen during its removal still lists is not renewed."""
    stale, shared = of_a_stack("stale"), instance("shared")
    servers = Holding(shared)
    servers.held[1][stale.key] = stale
    assert renewed_after(servers.registry(), shared, stale) == set()


def test_a_known_removal_stays_known_without_proof_of_sharing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A known removal stays known after the instance that proved replication between the servers is gone."""
    monkeypatch.setattr(windows, "LIST_LAG_SECONDS", -1.0)
    stale, shared = of_a_stack("stale"), instance("shared")
    servers = Holding(shared)
    servers.held[1][stale.key] = stale
    registry = servers.registry()
    assert renewed_after(registry, shared, stale) == set()
    for held in servers.held:
        held.pop(shared.key, None)
    assert renewed_after(registry, stale) == set()


@pytest.mark.parametrize(("renewed", "stays"), [("lately", set()), ("by nobody for long", {"vm"})])
def test_what_one_server_may_have_evicted_is_renewed(renewed: str, stays: set[str]) -> None:
    """A registration that one server lacks is renewed if its lease has ended: the server may have evicted it
    while no operator ran.
    """
    end = time.time() + (60.0 if renewed == "lately" else -5.0)
    left, shared = replace(of_a_stack("vm"), lease_ends_ms=int(end * 1000)), instance("shared")
    servers = Holding(shared)
    servers.held[1][left.key] = left
    assert renewed_after(servers.registry(), shared, left) == stays


@pytest.mark.parametrize("written_seconds_ago", [30.0, 600.0])
def test_what_was_removed_before_our_eyes_is_not_restored(written_seconds_ago: float) -> None:
    """A registration whose removal was seen is not restored when the server that missed the removal answers
    or is listed, alone or not; it is renewed when the stack registers it again.
    """
    stacks, shared = of_a_stack("vm", written_seconds_ago), instance("shared")
    servers = Holding(shared, stacks)
    registry = servers.registry()
    assert renewed_after(registry, shared, stacks) == {"vm"}
    del servers.held[0][stacks.key]
    registry.repair.instances_missing([stacks], None)  # the other one has not answered the renewal
    assert (registry.renewals.renewed_instances(), stacks.key in servers.held[0]) == ([], False)
    passed, began = 0.0, servers.table.clock()
    servers.table.clock = lambda: began + passed
    for away in (set[int](), {0}):
        servers.away = away
        passed += 60.0
        assert renewed_after(registry, shared, stacks) == set()
    servers.away = set()
    again = replace(stacks, last_dirty_timestamp_ms=stacks.written_at_ms + 1)
    servers.peers[0].register(again)
    assert renewed_after(registry, shared, again) == {"vm"}


def test_what_may_be_on_its_way_or_forgotten_is_renewed() -> None:
    """A registration that one server lacks is renewed if it is new, if the servers do not replicate, or if
    that server was restarted.
    """
    new, old, shared = of_a_stack("new", 10.0), of_a_stack("old"), instance("shared")
    servers = Holding(shared)
    servers.held[1][new.key] = new
    assert renewed_after(servers.registry(), shared, new) == {"new"}
    split = Holding()
    split.held[1][old.key] = old
    assert renewed_after(split.registry(), old) == {"old"}
    restarted = Holding(shared)
    restarted.held[1][old.key] = old
    restarted.peers[0].read_status = started_now  # type: ignore[method-assign]
    assert renewed_after(restarted.registry(), shared, old) == {"old"}


def test_what_is_known_costs_no_read() -> None:
    """Registrations that are renewed already, and recent removals that are still listed, are not read
    again.
    """
    stacks, gone = [of_a_stack(f"vm-{number}") for number in range(300)], of_a_stack("gone")
    servers = Holding(*stacks)
    registry = servers.registry()
    assert len(renewed_after(registry, *stacks, gone)) == 300
    reads = servers.reads
    assert reads == 2 * 301
    assert len(renewed_after(registry, *stacks, gone)) == 300
    assert servers.reads == reads


def test_only_what_names_this_operator_is_renewed_for_stacks() -> None:
    """Instances that name another operator, or renew themselves, may lapse."""
    named = {
        name: replace(instance(name), metadata={"eurekube.owner": "stack/o/p/s/n", "eurekube.renewer": name})
        for name in ("operator", "another", "self")
    }
    assert renewed_after(Holding(*named.values()).registry(), *named.values()) == {"operator"}


def test_a_list_made_by_changes_shows_what_the_whole_list_shows() -> None:
    """Of a list that was made of the last one the changed instances count beside those of the last list, and
    one that another operator renews by now does not.
    """
    old, given_away, new = (of_a_stack(name) for name in ("old", "given-away", "new"))
    theirs = replace(given_away, metadata={**given_away.metadata, "eurekube.renewer": "another"})
    registry = Holding(old, given_away, new).registry()
    listing = Listing.of([old, given_away])
    registry.stacks.process_list(listing)
    registry.stacks.process_list(listing.with_changes({theirs.key: theirs, new.key: new}))
    registry.stacks.renew_suggested_by_list()
    assert {one.instance_id for one in registry.renewals.renewed_instances()} == {"old", "new"}


def test_an_unreadable_registration_keeps_no_other_from_renewal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A registration with a stack's marks whose id servers refuse to read does not prevent the renewal of
    others.
    """
    odd, *others = (of_a_stack(name) for name in ("odd%", "vm-1", "vm-2"))
    servers = Holding(odd, *others)
    refuse(servers, odd, monkeypatch)
    assert renewed_after(servers.registry(), odd, *others) == {"vm-1", "vm-2"}


def test_whether_servers_share_is_reported_by_what_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replication between servers is judged by readable instances, whether unreadable ones exist or not."""
    odd, shared, removed = instance("odd%"), instance("shared"), of_a_stack("removed")
    servers = Holding(odd, shared)
    servers.held[0][removed.key] = removed
    refuse(servers, odd, monkeypatch)
    assert renewed_after(servers.registry(), odd, shared, removed) == set()
    del servers.held[1][shared.key]
    servers.table.forget_dropped_registration(removed.key)
    assert renewed_after(servers.registry(), odd, shared, removed) == {"removed"}


def refuse(servers: Holding, odd: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every server refuse to read this instance."""
    for number, peer in enumerate(servers.peers):

        def read(*key: str, number: int = number) -> Instance | None:
            if key == odd.key:
                raise RegistryRejected("400", status_code=400)
            return servers.read_at(number, *key)

        monkeypatch.setattr(peer, "read", read)


@pytest.mark.parametrize("place", [0, 1], ids=["where it was removed", "where the removal was missed"])
def test_a_registration_by_a_clock_that_is_behind_is_renewed(
    place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new registration with an older timestamp is told from the removed one by its incarnation; at a server
    that missed the removal it is not renewed, as it may be older.
    """
    ahead, behind = of_a_stack("vm", -600.0), of_a_stack("vm", 10.0)
    marked = {"eurekube.incarnation": "another"}
    again = replace(behind, metadata={**behind.metadata, **marked})
    servers = Holding(ahead, instance("shared"))
    registry = servers.registry()
    assert renewed_after(registry, ahead, instance("shared")) == {"vm"}
    del servers.held[0][ahead.key]
    del servers.held[1][ahead.key]
    servers.away = {1}
    registry.repair.instances_missing([ahead], None)
    assert ahead.key not in registry.renewals
    servers.away = {1 - place}
    servers.held[place][again.key] = again
    monkeypatch.setattr(windows, "LIST_LAG_SECONDS", -1.0)
    assert renewed_after(registry, again, instance("shared")) == ({"vm"} if place == 0 else set())


class OfAnotherRegion(Holding):
    """Two servers that show what they do not hold, as they do with ``remote-region-urls-with-name``."""

    do_they_hold_it = False

    def _renew(self, number: int, one: Instance) -> bool:
        return super()._renew(number, one) and self.do_they_hold_it


def test_what_another_region_holds_is_not_registered_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registration that servers show, and do not hold, is left to its region: registered here it would stay
    when it is removed there. Once a server holds it, it is renewed.
    """
    theirs = of_a_stack("vm")
    servers = OfAnotherRegion(theirs)
    registered: list[Instance] = []
    for peer in servers.peers:
        monkeypatch.setattr(peer, "register", registered.append)
    registry = servers.registry()
    assert renewed_after(registry, theirs) == {"vm"}
    registry.repair.instances_missing([theirs], None)
    passed, began = 0.0, servers.table.clock()
    servers.table.clock = lambda: began + passed
    for _ in range(3):
        passed += 60.0
        assert renewed_after(registry, theirs) == set()
    servers.do_they_hold_it = True
    passed += 60.0
    assert renewed_after(registry, theirs) == {"vm"}
    assert registered == []
