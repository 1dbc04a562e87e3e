"""Instances that count as new: no other server, and no other replica, may know them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.plan import Action, Change, plan
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.eureka_registry import EurekaRegistry
from eurekube_provider.eureka.notes import ChangeOrder
from lab.waiting import wait_until
from tests.unit.eureka.servers import OWNER, Holding, RecordingListener, TwoServers, after_a_restart, instance


def test_nothing_is_new_before_all_servers_were_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No instance counts as new until every server was listed: another server may hold one that the first one
    forgot, with a status that a person set.
    """
    monkeypatch.setattr(windows, "LIST_LAG_SECONDS", 0.0)
    registry = EurekaRegistry(TwoServers([instance("held")]), Cluster("lab", "u"), "operator", 600.0)
    registry.start_leading(0)  # nobody reads on: as it is until all are listed
    assert registry.reachability.has_been_read
    assert not registry.instances.is_key_unused(("RATING", "held"))
    assert not registry.instances.is_key_unused(("RATING", "another"))
    registry.start()
    try:
        wait_until(lambda: registry.instances.is_key_unused(("RATING", "another")), "all to be listed", 30.0)
        assert not registry.instances.is_key_unused(("RATING", "held"))
    finally:
        registry.stop()


def test_nothing_is_new_while_lists_may_be_older_than_the_take_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No instance counts as new while the lists may be too old to show what the former leader registered
    last.
    """
    monkeypatch.setattr(windows, "LIST_LAG_SECONDS", 600.0)
    servers = TwoServers([])
    registry = EurekaRegistry(servers, Cluster("lab", "u"), "operator", 600.0)
    registry.start_leading(0)
    registry.reader.read()
    assert servers.lists == [peer.url for peer in servers.peers]
    assert not registry.instances.is_key_unused(("RATING", "any"))
    monkeypatch.setattr(windows, "LIST_LAG_SECONDS", 0.0)
    registry.start_leading(0)
    registry.reader.read()
    assert registry.instances.is_key_unused(("RATING", "any"))


def test_the_first_leader_of_a_cluster_believes_its_first_list() -> None:
    """Without a leader before it, a replica counts instances as new after its first list."""
    registry = EurekaRegistry(
        TwoServers([]),
        Cluster("lab", "u"),
        "operator",
        600.0,
        may_follow_another_leader=lambda: False,
    )
    registry.start_leading(0)
    assert registry.instances.is_key_unused(("RATING", "any"))


def test_nothing_is_new_while_a_server_may_have_lost_its_memory() -> None:
    """No instance counts as new after a server's restart: its list lacks instances that other servers
    hold.
    """
    registry = after_a_restart(TwoServers([]))
    registry.reachability.note_read_and_check_first()
    assert registry.instances.is_key_unused(("RATING", "any"))
    registry.restarts.detect_restarts()
    assert not registry.instances.is_key_unused(("RATING", "any"))


@pytest.mark.parametrize("takes_over", [False, True])
def test_what_another_cluster_of_our_name_registers_is_left_as_it_is(
    takes_over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Instances of another cluster with our name are neither known, renewed nor removed; after a rebuild of
    the cluster (``takes_over``) they are.
    """
    theirs = replace(
        instance("theirs"), metadata={"eurekube.owner": OWNER, "eurekube.cluster-uid": "another"}
    )
    ours = replace(instance("ours"), metadata={"eurekube.owner": OWNER, "eurekube.cluster-uid": "u"})
    servers = Holding(theirs, ours)
    for number, peer in enumerate(servers.peers):
        gone = partial(lambda number, *key: servers.held[number].pop(key, None) is not None, number)
        monkeypatch.setattr(peer, "deregister", gone)
    registry = EurekaRegistry(servers, Cluster("lab", "u"), "operator", 600.0, check_cluster=not takes_over)
    registry.reachability.note_read_and_check_first()
    registry.renewals.add(theirs, just_registered=True)
    registry.reader.process_list([theirs, ours], is_complete=True)
    known = {one.key for one in registry.known_instances(owner=OWNER)}
    assert known == ({theirs.key, ours.key} if takes_over else {ours.key})
    for one in (theirs, ours):
        registry.keep_registered(one)
    assert (theirs.key in registry.renewals, ours.key in registry.renewals) == (takes_over, True)
    recorded = RecordingListener()
    registry.table.listener = recorded
    outcome = registry.apply(plan((), [theirs, ours], OWNER), OWNER)
    assert recorded.owners == [], "who asked would ask again at once"
    left = set() if takes_over else {theirs.key}
    assert [set(held) for held in servers.held] == [left, left]
    assert {one.change.instance.key for one in outcome.failures} == left
    assert all("another cluster of this name" in str(one.error) for one in outcome.failures)


def test_what_is_removed_from_a_server_that_is_alone() -> None:
    """An instance removed from a single server needs no later check, unless another replica that led a moment
    ago may still have sent it there.
    """
    registry = EurekaRegistry(
        TwoServers([]), Cluster("lab", "u"), "operator", 600.0, may_follow_another_leader=lambda: False
    )
    registry.start_leading(0)
    one, other = instance("one"), instance("other")
    registry.instances.note_removed(one, is_confirmed_gone=True)
    assert registry.table.copy_record(one.key).checks_by_url is None
    registry.reachability.await_list_after_takeover()
    registry.instances.note_removed(other, is_confirmed_gone=True)
    assert registry.table.copy_record(other.key).checks_by_url is not None


def test_what_needs_no_read_before_an_update() -> None:
    """Only an owner's own instance, written by this replica while no other one may write, is updated
    without a read.
    """
    registry = EurekaRegistry(
        TwoServers([]), Cluster("lab", "u"), "operator", 600.0, may_follow_another_leader=lambda: False
    )
    registry.start_leading(0)
    one = instance("one")
    update = ChangeOrder(Change(Action.UPDATE, one, one), OWNER)
    assert not registry.instances.registered_instance_if_certain(update)
    registry.instances.note_registered(one)
    assert registry.instances.registered_instance_if_certain(update)
    assert not registry.instances.registered_instance_if_certain(
        replace(update, owner="cluster/lab/shop/another")
    )
    assert not registry.instances.registered_instance_if_certain(
        replace(update, change=replace(update.change, adopts=True))
    )
    assert not registry.instances.registered_instance_if_certain(
        replace(update, change=replace(update.change, action=Action.REGISTER))
    )
    registry.reachability.await_list_after_takeover()
    assert not registry.instances.registered_instance_if_certain(update)


def test_what_needs_no_read_before_a_removal() -> None:
    """Only a terminated pod's instance is removed unread: its owner's own, renewed as this replica wrote it,
    at a server whose renewals neither fail nor wait.
    """
    registry = EurekaRegistry(
        TwoServers([]), Cluster("lab", "u"), "operator", 600.0, may_follow_another_leader=lambda: False
    )
    registry.start_leading(0)
    one = instance("one")
    removal = ChangeOrder(Change(Action.DEREGISTER, one, one, is_terminated=True), OWNER)
    can_remove = registry.instances.can_remove_unread
    assert not can_remove(removal), "nobody wrote it"
    registry.instances.note_registered(one)
    assert can_remove(removal)
    assert not can_remove(replace(removal, owner="cluster/lab/shop/another"))
    assert not can_remove(replace(removal, change=replace(removal.change, is_terminated=False)))
    registry.table.store_read_instance(replace(one, metadata={"eurekube.owner": f"{OWNER}-b"}))
    assert not can_remove(removal), "another owner's by now"
    registry.instances.note_registered(one)
    registry.table.note_override_change(one)
    assert not can_remove(removal), "its status may be a person's"
    other = replace(one, instance_id="other")
    of_other = ChangeOrder(Change(Action.DEREGISTER, other, other, is_terminated=True), OWNER)
    registry.instances.note_registered(other)
    assert can_remove(of_other)
    registry.renewals.remove(other.key)
    assert not can_remove(of_other), "nobody renews it"
    registry.instances.note_registered(other)
    assert can_remove(of_other)
    registry.reachability.await_list_after_takeover()
    assert not can_remove(of_other), "another replica may still write"


def test_what_a_hand_over_replaced_is_older_and_of_the_same_cluster() -> None:
    """A version is superseded if both it and the newer one belong to syncers of this cluster."""
    registry = Holding().registry()
    newer = replace(instance("vm"), last_dirty_timestamp_ms=2000)
    older = replace(
        newer, metadata={**newer.metadata, "eurekube.owner": f"{OWNER}-b"}, last_dirty_timestamp_ms=1000
    )
    stacks = replace(older, metadata={"eurekube.owner": "stack/o/p/s/n"})
    assert registry.instances.is_superseded_version(older, newer)
    assert not registry.instances.is_superseded_version(newer, older)
    assert not registry.instances.is_superseded_version(stacks, newer)
    assert not registry.instances.is_superseded_version(older, replace(newer, metadata=stacks.metadata))
