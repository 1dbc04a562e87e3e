"""Overrides that a drain sets and an undrain clears."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eurekube_provider.core.identity import LEAVING_KEY
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.core.text import MAX_NAME_LENGTH_IN_URL, describe_unfit_name
from eurekube_provider.eureka.overrides import can_be_named_in_url, clear_overrides
from tests.unit.eureka.model_servers import ONE, Servers


@pytest.mark.parametrize(("instance_id", "is_asked"), [("a;b", False), ("a%b", False), ("vm 1:8080", True)])
def test_what_no_url_can_name_is_not_asked_for(instance_id: str, is_asked: bool) -> None:
    """An id that servers accept in a registration but refuse in every URL is not asked for."""
    assert can_be_named_in_url(Instance("rating", instance_id, "vm", "10.0.0.1", Port(8080))) is is_asked


def test_what_somebody_gave_a_long_id_can_be_drained() -> None:
    """An id longer than Eurekube allows for its own instances can still be asked for when somebody else
    registered it.
    """
    long = "x" * (MAX_NAME_LENGTH_IN_URL + 1)
    assert "letters in a URL" in describe_unfit_name(long)
    assert can_be_named_in_url(Instance("rating", long, "vm", "10.0.0.1", Port(8080)))


def test_undrain_leaves_what_is_on_its_way_out(servers: Servers) -> None:
    """An undrain clears a person's override, but not the operator's for a pod that ends."""
    for metadata, expected in (
        (ONE.metadata, "UP"),
        ({**ONE.metadata, LEAVING_KEY: "true"}, "OUT_OF_SERVICE"),
    ):
        one = replace(ONE, metadata=metadata, last_dirty_timestamp_ms=servers.cluster.clock.now_ms)
        servers.everywhere(one)
        for peer in servers.peers.peers:
            peer.set_status(one, Status.OUT_OF_SERVICE)
        clear_overrides(servers.peers, [one])
        assert {held.status for held in servers.holding().values()} == {expected}


@pytest.mark.parametrize(
    ("set_over_it", "says", "expected"),
    [
        ("DOWN", "UP", "UP"),
        ("STARTING", "UP", "UP"),
        ("DOWN", "STARTING", "STARTING"),
        ("UP", "DOWN", "DOWN"),
    ],
)
def test_undrain_clears_whatever_somebody_set(
    servers: Servers, set_over_it: str, says: str, expected: str
) -> None:
    """A DOWN or STARTING that somebody set is not taken for what the application says: it would stay."""
    one = replace(ONE, metadata={}, last_dirty_timestamp_ms=servers.cluster.clock.now_ms)
    servers.everywhere(one)
    for peer in servers.peers.peers:
        peer.set_status(one, Status(set_over_it))
    if says != "UP":
        changed_ms = servers.cluster.clock.now_ms + 1
        servers.everywhere(replace(one, status=Status(says), last_dirty_timestamp_ms=changed_ms))
    clear_overrides(servers.peers, [one])
    assert {(held.status, held.overridden) for held in servers.holding().values()} == {(expected, "UNKNOWN")}


@pytest.mark.parametrize("metadata", [{}, ONE.metadata])
def test_a_self_registered_out_of_service_is_put_back_on_request(
    servers: Servers, metadata: dict[str, str]
) -> None:
    """With ``includes_registered_out_of_service`` an undrain puts back an instance that registered itself as
    OUT_OF_SERVICE, a status that Eureka keeps, and leaves no override. An instance that Eurekube registered
    so stays as it is.
    """
    one = replace(ONE, metadata=metadata, last_dirty_timestamp_ms=servers.cluster.clock.now_ms)
    servers.everywhere(replace(one, status=Status.OUT_OF_SERVICE))
    servers.everywhere(replace(one, last_dirty_timestamp_ms=servers.cluster.clock.now_ms + 1))
    clear_overrides(servers.peers, [one])
    assert {held.status for held in servers.holding().values()} == {"OUT_OF_SERVICE"}
    clear_overrides(servers.peers, [one], includes_registered_out_of_service=True)
    expected = ("OUT_OF_SERVICE", "UNKNOWN") if metadata else ("UP", "UNKNOWN")
    assert {(held.status, held.overridden) for held in servers.holding().values()} == {expected}


def test_an_up_that_was_left_set_over_it_is_cleared_the_next_time(servers: Servers) -> None:
    """An override UP left by a process that died during an undrain is cleared by the next undrain."""
    one = replace(ONE, metadata={}, last_dirty_timestamp_ms=servers.cluster.clock.now_ms)
    servers.everywhere(replace(one, status=Status.OUT_OF_SERVICE))
    for peer in servers.peers.peers:
        peer.set_status(one, Status.UP)
    clear_overrides(servers.peers, [one], includes_registered_out_of_service=True)
    assert {(held.status, held.overridden) for held in servers.holding().values()} == {("UP", "UNKNOWN")}


def test_undrain_waits_for_what_servers_still_tell_each_other(servers: Servers) -> None:
    """An undrain clears an override again that a busy server replicates after it was cleared."""
    one = replace(ONE, last_dirty_timestamp_ms=servers.cluster.clock.now_ms)
    servers.everywhere(one)
    for peer in servers.peers.peers:
        peer.set_status(one, Status.OUT_OF_SERVICE)
    last = servers.peers.peers[-1]

    def late() -> None:
        last.set_status(one, Status.OUT_OF_SERVICE)

    servers.cluster.clock.run_after(700, late)
    clear_overrides(servers.peers, [one])
    servers.cluster.clock.advance(5000)
    held = servers.holding().values()
    assert {(one.status, one.overridden) for one in held} == {("UP", "UNKNOWN")}
