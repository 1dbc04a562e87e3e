"""The order in which an operator starts and stops its parts, with parts that record their calls."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from eurekube_provider.core.errors import KubernetesError, RegistryUnreachable
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
    "ClusterCache",
    "StatusWriter",
    "StackRefreshController",
)


def ended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run the operator until it stops; return the calls of its parts during the stop, e.g.
    ``Leadership.release_lease``.
    """
    parts, stop = Mock(), threading.Event()
    for name in PARTS:
        made = getattr(parts, name)
        maker = Mock(return_value=made)
        monkeypatch.setattr(module, name, Mock(return_value=made, load=maker))
    monkeypatch.setattr(
        module,
        "REGISTRY_FACTORY_BY_CONNECTION_CLASS",
        {"Connection": Mock(return_value=parts.EurekaRegistry)},
    )
    parts.KubeAccess.guarded.return_value = parts.KubeAccess
    parts.KubeAccess.get.return_value = {"metadata": {"uid": "uid"}}
    parts.ClusterCache.unread_namespaces.return_value = {}
    parts.ClusterCache.syncer_keys.return_value = []
    parts.EurekaRegistry.condition.return_value = Healthy()
    parts.Leadership.run_tasks.side_effect = lambda *_: parts.reset_mock()
    monkeypatch.setattr("eurekube_provider.operator.selfcheck.BackgroundSelfCheck", parts.BackgroundSelfCheck)
    monkeypatch.setattr(module, "freeze_objects_and_collect_rarely", lambda: None)  # of the tests' process
    connections = {"default": Connection.parse(URL)}
    module.run(Settings(connections, cluster_name="lab", leader_elect=False, web_address=""), stop)
    return [name for name, _, _ in parts.mock_calls]


def test_the_lease_is_released_after_all_work_and_renewals_end_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next leader may write as soon as the Lease is released, and instances it has not found yet must
    not lapse.
    """
    reported = ended(monkeypatch)
    order = [
        "ClusterCache.stop",
        "Leadership.forbid_changes",
        "Controller.stop",
        "Leadership.release_lease",
        "EurekaRegistry.stop",
    ]
    assert [name for name in reported if name in order] == order
    of_registry = {name for name in reported if name.startswith("EurekaRegistry.")}
    assert of_registry == {"EurekaRegistry.condition", "EurekaRegistry.stop"}


def answers_until_it_ends(
    monkeypatch: pytest.MonkeyPatch, *codes: int | None, cluster_name: str | None = None
) -> int:
    """Start an operator whose API server fails with these status codes (None for no answer) before it is
    asked to stop; return how often it asked.
    """
    left, stop = list(codes), threading.Event()

    def get(path: str) -> None:
        if len(left) == 1:
            stop.set()
        raise KubernetesError(f"GET {path}", status_code=left.pop(0))

    access = SimpleNamespace(get=get, namespace="default")
    monkeypatch.setattr(module, "API_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(module, "KubeAccess", SimpleNamespace(load=lambda *_: access))
    monkeypatch.setattr(module, "RenewalsWithoutKubernetes", Mock())
    monkeypatch.setattr("eurekube_provider.operator.selfcheck.BackgroundSelfCheck", Mock())
    settings = Settings({"default": Connection.parse(URL)}, cluster_name=cluster_name, web_address="")
    with suppress(KubernetesError):  # of the last denial
        module.run(settings, stop)
    return len(codes) - len(left)


def test_an_api_server_that_has_just_started_may_deny_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has not read its rules yet: a process that waited for it must not end, since it renews meanwhile."""
    assert answers_until_it_ends(monkeypatch, None, 503, 403, 401, 403) == 5
    assert answers_until_it_ends(monkeypatch, 403, 403) == 1, "it answered at once"
    monkeypatch.setattr(module, "DENIAL_SETTLE_SECONDS", -1.0)
    assert answers_until_it_ends(monkeypatch, None, 403, 403) == 2, "it goes on to deny"


def test_who_knows_its_cluster_waits_for_its_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that can renew by what Eureka shows does not end: a lost role would cost registrations."""
    assert answers_until_it_ends(monkeypatch, 403, 401, 403, cluster_name="lab") == 3


def test_nothing_is_begun_before_cluster_and_registry_were_read() -> None:
    """Before the first lists a cluster or a Eureka would look empty."""
    registry = PlayedOperator().registry
    sources: Any = SimpleNamespace(
        is_synced=False, is_synced_or_forbidden=False, failures={}, unread_namespaces=dict
    )

    def waits() -> bool:
        """Return True if the operator waits until it is stopped."""
        stop = threading.Event()
        threading.Timer(0.1, stop.set).start()
        return not module.wait_until_read(sources, {"default": registry}, stop, float("inf"), told.extend)

    told: list[KubernetesError] = []
    sources.failures["services"] = denied = KubernetesError("denied", status_code=403)
    assert waits()
    assert denied in told, "it may renew meanwhile"
    sources.is_synced_or_forbidden = True
    assert waits()
    registry.reachability.note_read_and_check_first()
    sources.is_synced_or_forbidden = False
    assert waits()
    sources.is_synced_or_forbidden = True
    assert not waits()
    registry.reachability = Reachability(registry.peers)
    registry.reachability.note_failure_and_check_lasting(RegistryUnreachable("away"))
    assert not waits()  # each syncer says so, and nothing is changed there before it answers


def test_without_mirrors_none_of_them_takes_memory() -> None:
    """An operator loads the modules of mirrors only if it serves mirrors."""
    code = (
        "import sys, eurekube_provider.operator.run, eurekube_provider.operator.settings\n"
        "print([name for name in sys.modules if 'operator.mirror' in name or 'core.mirror_' in name])"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert output.stdout.strip() == "['eurekube_provider.core.mirror_source']"
