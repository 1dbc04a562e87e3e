"""The order in which an operator starts and ends, on parts that only write down what they get."""

from __future__ import annotations

import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from eurekube_provider.core.errors import RegistryUnreachable
from eurekube_provider.core.registry import Healthy
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.registry.reachability import Reachability
from eurekube_provider.operator import run as module
from eurekube_provider.operator.settings import Settings
from tests.unit.operator.parts import URL, PlayedOperator

PARTS = (
    "Controller",
    "EventRecorder",
    "KubeAccess",
    "Leadership",
    "Sources",
    "StatusWriter",
    "Triggers",
)


def ended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the calls that each part got since the stop, e.g. ``Leadership.release``.
    ``Leadership.release``.
    """
    parts, stop = Mock(), threading.Event()
    for name in PARTS:
        made = getattr(parts, name)
        maker = Mock(return_value=made)
        monkeypatch.setattr(module, name, Mock(return_value=made, load=maker))
    monkeypatch.setattr(module, "KINDS", {"Connection": Mock(return_value=parts.EurekaRegistry)})
    parts.KubeAccess.guarded.return_value = parts.KubeAccess
    parts.KubeAccess.get.return_value = {"metadata": {"uid": "uid"}}
    parts.Sources.unread_namespaces.return_value = {}
    parts.Sources.syncer_keys.return_value = []
    parts.EurekaRegistry.condition.return_value = Healthy()
    parts.Leadership.follow.side_effect = lambda *_: parts.reset_mock()
    monkeypatch.setattr("eurekube_provider.operator.selfcheck.BackgroundSelfCheck", parts.BackgroundSelfCheck)
    monkeypatch.setattr(module, "settle_down", lambda: None)  # of the tests' own process
    connections = {"default": Connection.parse(URL)}
    module.run(Settings(connections, cluster_name="lab", leader_elect=False, web_address=""), stop)
    return [name for name, _, _ in parts.mock_calls]


def test_the_lease_is_released_after_all_work_and_renewals_end_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next leader may write at once; and what it has not found yet must not lapse meanwhile."""
    reported = ended(monkeypatch)
    order = [
        "Sources.stop",
        "Leadership.close",
        "Controller.stop",
        "Leadership.release",
        "EurekaRegistry.stop",
    ]
    assert [name for name in reported if name in order] == order
    of_registry = {name for name in reported if name.startswith("EurekaRegistry.")}
    assert of_registry == {"EurekaRegistry.condition", "EurekaRegistry.stop"}


def test_nothing_is_begun_before_cluster_and_registry_were_read() -> None:
    """A first list that is missing would look like a cluster, or a Eureka, without anything in it."""
    registry = PlayedOperator().registry
    sources: Any = SimpleNamespace(is_synced=False, is_settled=False, failures={}, unread_namespaces=dict)

    def waits() -> bool:
        """Return whether it waits for the stop."""
        stop = threading.Event()
        threading.Timer(0.1, stop.set).start()
        return not module.wait_until_read(sources, {"default": registry}, stop, float("inf"))

    assert waits()
    sources.is_settled = True
    assert waits()
    registry.reachability.read()
    sources.is_settled = False
    assert waits()
    sources.is_settled = True
    assert not waits()
    registry.reachability = Reachability(registry.peers)
    registry.reachability.failed(RegistryUnreachable("away"))
    assert not waits()  # each syncer says so, and nothing is changed there before it answers


def test_without_mirrors_none_of_them_takes_memory() -> None:
    """Their modules are loaded by an operator that serves them only."""
    code = (
        "import sys, eurekube_provider.operator.run, eurekube_provider.operator.settings\n"
        "print([name for name in sys.modules if 'operator.mirror' in name or 'core.mirror_' in name])"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert output.stdout.strip() == "['eurekube_provider.core.mirror_source']"
