"""Whose an OUT_OF_SERVICE is that comes late: a person's, or ours."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eurekube_provider.core.model import Instance, Status
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.eureka_registry import EurekaRegistry
from tests.unit.eureka.servers import Holding, instance


@pytest.mark.parametrize(
    ("stands_at", "just_now_seconds", "is_ours"),
    [((0,), 0.0, True), ((0, 1), 0.0, False), ((0, 1), 10.0, True)],
)
def test_an_out_of_service_at_all_servers_is_a_persons(
    stands_at: tuple[int, ...], just_now_seconds: float, is_ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless ours was set just now; at some servers only it was told again by a server within a minute."""
    monkeypatch.setattr(windows, "ANOTHERS_STATUS", 0.0)
    monkeypatch.setattr(windows, "OUR_STATUS", just_now_seconds)
    up = instance("vm")
    out = replace(up, status=Status.OUT_OF_SERVICE, overridden_status=Status.OUT_OF_SERVICE)
    servers = Holding(up)
    registry = servers.registry()
    registry.instances.registered(up)
    for number in stands_at:
        servers.held[number][up.key] = out
    monkeypatch.setattr(windows, "SWEEP", (0.0,))
    registry.sweeper.may_come(up)
    registry.sweeper.sweep(servers.peers[0])
    assert not known_as_leaving(registry, up)  # nothing of ours was there
    registry.instances.overriding(up)
    registry.sweeper.sweep(servers.peers[0])
    assert known_as_leaving(registry, up) is is_ours


def test_an_out_of_service_after_a_pod_was_removed_with_ours_is_ours() -> None:
    """A pod of the same name that follows finds it at every server, however long the last one drained."""
    up = instance("vm")
    leaving = replace(up, metadata={**up.metadata, "eurekube.leaving": "true"})
    out = replace(up, status=Status.OUT_OF_SERVICE, overridden_status=Status.OUT_OF_SERVICE)
    servers = Holding(up)
    registry = servers.registry()
    registry.instances.registered(leaving)
    registry.instances.gone(leaving)
    registry.instances.registered(up)
    for held in servers.held:
        held[up.key] = out
    registry.repair.came_late(out)
    assert known_as_leaving(registry, up)


def known_as_leaving(registry: EurekaRegistry, one: Instance) -> bool:
    """Whether it is known with our mark."""
    known = registry.table.get(one.key)
    return known is not None and known.is_leaving
