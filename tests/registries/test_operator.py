"""An operator works with a kind of registry that the factory knows by one import and one line."""

from __future__ import annotations

from typing import Any

import pytest

from eurekube_provider.operator.registries import REGISTRY_FACTORY_BY_CONNECTION_CLASS
from eurekube_provider.operator.settings import Settings
from tests.explore.operator.workloads import Workloads
from tests.explore.operator.world import World, owned
from tests.registries.memory import MemoryConnection, MemoryRegistry


def test_an_operator_serves_another_kind_of_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods come and go, and their instances with them."""
    monkeypatch.setitem(
        REGISTRY_FACTORY_BY_CONNECTION_CLASS, "MemoryConnection", MemoryRegistry.from_connection
    )
    connection = MemoryConnection()
    connections: Any = {"default": connection}
    with owned():
        world = World.of(1)
        workloads = Workloads(world.kube)
        workloads.service()
        for name in ("a", "b"):
            workloads.pod(name)
        workloads.syncer()
        process, _ = world.start(
            Settings(connections, web_address="", drain_seconds=0, pod_name="operator"),
        )

        def registered_after(seconds: float) -> set[str]:
            world.scheduler.run(world.now_ms + round(seconds * 1000))
            return {key[1].partition(".")[0] for key in connection.held}

        assert registered_after(30.0) == {"a", "b"}
        workloads.pod("c")
        assert registered_after(2.0) == {"a", "b", "c"}
        workloads.pod("a", ready=False, terminating=True)
        assert registered_after(2.0) == {"b", "c"}
        world.scheduler.kill(process)
    assert world.logged == []
