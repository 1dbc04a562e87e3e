"""Uncached reads of a registry, and the end of its renewals; parts of the registry have tests of their
own.
"""

from __future__ import annotations

import socket
import time
from dataclasses import replace

import pytest

from eurekube_provider.core.identity import Cluster
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.eureka_registry import EurekaRegistry
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.testing.eureka import Eureka
from tests.unit.eureka.servers import OWNER, RecordingListener, TwoServers, instance


def test_what_no_list_shows_yet_is_read_by_itself() -> None:
    """After a change of leader an unlisted instance is found by an uncached read, so that it can be
    removed.
    """
    unlisted, gone = instance("unlisted"), ("RATING", "gone")
    servers = TwoServers([unlisted])
    for peer in servers.peers:
        peer.list_instances = list  # type: ignore[method-assign]
    registry = EurekaRegistry(servers, Cluster("lab", "u"), "operator", 600.0)
    registry.start_leading(0)
    assert registry.table.instances_of_owner(OWNER) == []
    registry.table.listener = recorded = RecordingListener()
    for _ in range(2):
        registry.refresh([unlisted.key, gone])
    assert registry.table.instances_of_owner(OWNER) == [unlisted]
    assert recorded.owners == [OWNER]
    registry.reader.read()  # nor does a list that still lacks it make it go
    assert registry.table.instances_of_owner(OWNER) == [unlisted]


def test_what_a_list_shows_wrongly_is_read_where_that_is_asked_for() -> None:
    """``refresh`` with ``include_known`` also reads listed instances, and drops one that no server holds."""
    listed = instance("listed")
    registry = EurekaRegistry(TwoServers([]), Cluster("lab", "u"), "operator", 600.0)
    registry.start_leading(0)
    registry.reader.process_list([listed], is_complete=True)
    registry.refresh([listed.key])
    assert registry.table.instances_of_owner(OWNER) == [listed]
    registry.refresh([listed.key], include_known=True)
    assert registry.table.instances_of_owner(OWNER) == []


def test_what_somebody_else_took_over_is_renewed_no_more() -> None:
    """An instance that another owner took over, by a list or by the answer to a renewal, is no longer
    renewed: else it would never lapse.
    """
    whose = {"eurekube.owner": "stack/o/p/s/billing", "eurekube.renewer": "operator"}
    stacks = replace(instance("vm"), metadata=whose, last_dirty_timestamp_ms=1)
    its_own = replace(stacks, metadata={}, last_dirty_timestamp_ms=2)
    self_renewed = replace(its_own, metadata={**whose, "eurekube.renewer": "self"})
    syncers = replace(instance("pod"), last_dirty_timestamp_ms=1)
    foreign = replace(syncers, metadata={"eurekube.owner": "cluster/other/a/b"}, last_dirty_timestamp_ms=2)
    for ours, theirs in ((stacks, its_own), (stacks, self_renewed), (syncers, foreign)):
        for is_answer in (False, True):
            recorded = RecordingListener()
            registry = EurekaRegistry(TwoServers([theirs]), Cluster("lab", "u"), "operator", 600.0)
            registry.table.listener = recorded
            registry.reader.process_list([ours], is_complete=True)
            registry.keep_registered(ours)
            assert ours.key in registry.renewals
            recorded.owners.clear()
            if is_answer:
                registry.repair.newer_version_found(theirs)
            else:
                registry.reader.process_list([theirs], is_complete=True)
            assert ours.key not in registry.renewals
            assert registry.table.get(ours.key) == theirs
            assert ours.owner in recorded.owners


def test_a_list_from_before_does_not_hold_less_than_is_renewed() -> None:
    """Instances registered since an empty list count as part of the registry, so that their share is at
    most 100 %.
    """
    registry = EurekaRegistry(TwoServers([]), Cluster("lab", "u"), "operator", 600.0)
    registry.start_leading(0)
    for name in ("one", "two", "three"):
        registry.keep_registered(instance(name))
    figures = registry.figures()
    assert (figures.renewed_here, figures.registered, figures.renewed_share) == (3, 3, 1.0)


def test_renewals_of_the_last_minute_end_with_an_outage(
    eureka: Eureka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The renewals of the last minute are counted down while no server answers, and so nothing is read."""
    eureka.register("rating", "vm", "10.0.0.1", 8080)
    registry = EurekaRegistry(
        Peers(Connection((eureka.url,))), Cluster("lab", "u"), "operator", 600.0, renewal_interval_seconds=0.5
    )
    registry.start()
    try:
        registry.start_leading(1)
        registry.keep_registered(registry.known_instances()[0])
        give_up_at = time.monotonic() + 20.0
        while not registry.figures().accepted_renewals and time.monotonic() < give_up_at:
            time.sleep(0.05)
        registry.reader.read()
        assert registry.figures().renewals_last_minute >= 1
    finally:
        registry.stop()
    later = time.monotonic() + 61.0
    monkeypatch.setattr(time, "monotonic", lambda: later)
    figures = registry.figures()
    assert (figures.renewals_last_minute, figures.expected_renewals_per_minute) == (0, 2)


def test_a_server_that_refuses_connections_keeps_no_callers(eureka: Eureka) -> None:
    """A server that hangs counts as silent, and its callers as late; a server that refuses connections
    does not.
    """
    with socket.socket() as hanging, socket.socket() as closed:
        for one in (hanging, closed):
            one.bind(("127.0.0.1", 0))
        hanging.listen()
        hangs, refuses = (f"http://127.0.0.1:{one.getsockname()[1]}/eureka" for one in (hanging, closed))
        peers = Peers(Connection((eureka.url, hangs, refuses), read_timeout_seconds=1.0))
        registry = EurekaRegistry(peers, Cluster("lab", "u"), "operator", 600.0)
        began = time.monotonic()
        first, second = (registry.read_everywhere([("RATING", "a")]) for _ in range(2))
        answers_at = time.monotonic()
        peers.avoided.stop_avoiding(peers.peers[1])
        late = peers.avoided.callers_may_be_away_until_by_url()
        peers.close()
    assert first.instances_by_server == {eureka.url: {("RATING", "a"): None}}
    assert first.silent_since.keys() == second.silent_since.keys() == {hangs}
    assert began <= first.silent_since[hangs] <= second.silent_since[hangs] + 0.3
    assert late.keys() == {hangs}
    assert late[hangs] >= answers_at + (answers_at - first.silent_since[hangs]) > answers_at
