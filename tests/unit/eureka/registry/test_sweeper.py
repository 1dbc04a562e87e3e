"""What was removed is looked for on every server, whatever one of them refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eurekube_provider.core.errors import RegistryRejected
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.eureka import windows
from tests.unit.eureka.servers import Balanced, Holding, behind_a_balancer, instance, older


def test_what_was_removed_is_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that was away may hold it still, and tell the others of it."""
    monkeypatch.setattr(windows, "SWEEP", (0.0,))
    removed = instance("removed")
    servers = Holding(removed)
    registry = servers.registry()
    registry.instances.gone(removed)
    for number, peer in enumerate(servers.peers):
        gone: list[tuple[str, ...]] = []
        monkeypatch.setattr(peer, "deregister", lambda *key, gone=gone: gone.append(key) or True)
        registry.sweeper.sweep(peer)
        assert set(gone) == {removed.key}, number


def test_a_server_that_refuses_to_be_told_a_status_is_swept_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is dead leaves it, whatever else is not as it should be there."""
    up, dead = instance("vm"), instance("dead")
    servers = Holding(up, dead)
    registry = servers.registry()
    registry.instances.registered(up)
    servers.held[0][up.key] = replace(up, status=Status.DOWN)
    first = servers.peers[0]
    gone: list[tuple[str, str]] = []

    def refuse(*_: object) -> None:
        raise RegistryRejected("no")

    def remove(*key: str) -> bool:
        gone.append((key[0], key[1]))
        return True

    monkeypatch.setattr(first, "batch", refuse)
    monkeypatch.setattr(first, "tell", refuse)
    monkeypatch.setattr(first, "deregister", remove)
    monkeypatch.setattr(windows, "SWEEP", (0.0, 35.0))
    registry.sweeper.may_come(up)
    registry.sweeper.removed(dead)
    registry.sweeper.sweep(first)
    assert gone == [dead.key]


def test_what_one_server_behind_the_url_still_holds_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one that is asked in its place does not know it, and tells nobody of a removal."""
    dead = instance("dead")
    servers = Balanced(older(0), older(30), older(60))
    registry = behind_a_balancer(servers)
    servers.held = [[], [dead], []]

    def remove(*_: str) -> bool:
        held = servers.held[servers.turn()]
        if not held:
            return False
        servers.held = [[], [], []]  # who holds it tells the others
        return True

    monkeypatch.setattr(servers.peers[0], "deregister", remove)
    monkeypatch.setattr(windows, "SWEEP", (0.0, 35.0))
    registry.sweeper.removed(dead)
    registry.sweeper.sweep(servers.peers[0])
    assert servers.held == [[], [], []]


def test_one_read_that_is_refused_for_good_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy may refuse one id whenever it is asked for; the other dead instances are removed."""
    odd, dead = instance("odd"), instance("dead")
    servers = Holding(odd, dead)
    peer = servers.peers[0]
    gone: list[tuple[str, ...]] = []

    def remove(*key: str) -> bool:
        gone.append(key)
        return True

    def read(application: str, instance_id: str) -> Instance | None:
        if instance_id == odd.instance_id:
            raise RegistryRejected("400")
        return servers.read_at(0, application, instance_id)

    monkeypatch.setattr(peer, "read", read)
    monkeypatch.setattr(peer, "deregister", remove)
    monkeypatch.setattr(windows, "SWEEP", (0.0, 35.0))
    registry = servers.registry()
    for one in (odd, dead):
        registry.sweeper.removed(one)
    registry.sweeper.sweep(peer)
    assert gone == [dead.key]
