"""The operator's notes in its Lease, by which a process learns from the one before."""

from __future__ import annotations

from typing import Any

from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.lease_notes import parse_lease_notes
from eurekube_provider.operator.lease_memory import LeaseMemory
from eurekube_provider.operator.settings import Settings
from tests.unit.operator.parts import PlayedOperator


def process(name: str, namespaces: tuple[str, ...] = (), **more: Any) -> LeaseMemory:
    """Return the Lease memory of an operator process with this cluster name and these watched namespaces."""
    played = PlayedOperator()
    is_long_running = more.pop("is_long_running", True)
    settings = Settings(played.parts.settings.connections, watch_namespaces=namespaces, **more)
    return LeaseMemory(settings, Cluster(name, "uid-1"), played.registries, is_long_running=is_long_running)


def test_names_and_namespaces_go_from_one_process_to_the_next() -> None:
    """Each process writes its cluster name and namespaces when it takes the Lease, so that a crash loses
    nothing.
    """
    first = process("0b2c1d3e", ("shop", "pay"))
    metadata = first.add_notes({"name": "eurekube-leader"})
    assert (first.previous_cluster_names(), first.dropped_namespaces(["pay"])) == ((), frozenset())
    second = process("east", ("shop", "card"), cluster_name="east", previous_cluster_names=("older",))
    assert second.previous_cluster_names() == ("older",)
    second.load_notes(metadata)
    assert second.previous_cluster_names() == ("0b2c1d3e", "older")
    assert second.dropped_namespaces(["pay", "card"]) == {"pay"}
    metadata = second.add_notes(metadata)
    notes = parse_lease_notes(metadata)
    assert (notes.operator, notes.cluster_name, notes.is_cluster_name_given) == ("eurekube", "east", True)
    assert notes.watched_namespaces == ("shop", "card")
    third = process("east", ("shop", "card"))
    third.load_notes(metadata)
    assert third.previous_cluster_names() == ("0b2c1d3e", "older")
    assert third.dropped_namespaces([]) == {"pay"}
    again = process("0b2c1d3e", ("pay",))
    again.load_notes(metadata)
    assert again.previous_cluster_names() == ("east", "older")
    assert again.dropped_namespaces([]) == {"shop", "card"}
    everywhere = process("east")
    everywhere.load_notes(metadata)
    assert everywhere.dropped_namespaces([]) == frozenset()


def test_what_was_dropped_of_all_namespaces_is_named_in_the_lease() -> None:
    """Whoever watched all namespaces has dropped those with syncers; others that come later it never had."""
    metadata = process("east").add_notes({})
    restricted = process("east", ("shop",))
    metadata = restricted.add_notes(metadata)
    assert restricted.dropped_namespaces({"pay", "card"}) == {"pay", "card"}
    metadata = restricted.add_notes(metadata)
    assert parse_lease_notes(metadata).dropped_namespaces == ("card", "pay")
    assert restricted.dropped_namespaces({"pay", "card", "late"}) == {"pay", "card"}
    following = process("east", ("shop",))
    following.load_notes(metadata)
    assert following.dropped_namespaces({"pay", "card", "late"}) == {"pay", "card"}


def test_a_single_pass_leaves_the_namespaces_to_the_operator() -> None:
    """A single pass notes its cluster name, but not its namespaces, which a person chose for that pass
    only.
    """
    metadata = process("east", ("shop",)).add_notes({})
    after = parse_lease_notes(process("west", ("pay",), is_long_running=False).add_notes(metadata))
    assert (after.watched_namespaces, after.dropped_namespaces) == (("shop",), ())
    assert (after.cluster_name, after.previous_cluster_names) == ("west", ("east",))


def test_each_server_is_noted_with_its_last_answer() -> None:
    """The notes give each server's last reading, answer and error, for commands that report the operator's
    state.
    """
    played = PlayedOperator(("default", "elsewhere"))
    (peer,) = played.registry.peers.peers
    peer.traffic.note_usability()
    played.registry.reachability.note_read_and_check_first()
    memory = LeaseMemory(played.parts.settings, Cluster("east", "uid-1"), played.registries)
    default, elsewhere = parse_lease_notes(memory.add_notes({})).server_notes
    assert (default.eureka, default.url, default.error) == ("default", peer.url, "")
    assert default.read_at.endswith("Z")
    assert default.answered_at.endswith("Z")
    assert (elsewhere.read_at, elsewhere.answered_at) == ("", "")
