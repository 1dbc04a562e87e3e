"""preStop in pod templates: for how many seconds a pod serves after its deletion, and how a template gets
a drain.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from eurekube_provider.core.drain_time import Drain
from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.prestop import (
    PreStopHook,
    add_drain_to_workload,
    serving_seconds_after_deletion,
    with_readiness_gate,
)
from eurekube_provider.core.syncer import READINESS_GATE

TUNED = Drain(client_fetch_seconds=5, load_balancer_cache_seconds=0)


def container(name: str = "app", prestop: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Return a container with a port and this preStop."""
    lifecycle = {"lifecycle": {"preStop": prestop}} if prestop else {}
    return {"name": name, "image": name, "ports": [{"containerPort": 8080}], **lifecycle, **more}


def workload(*containers: dict[str, Any], grace: int | None = None, **spec: Any) -> dict[str, Any]:
    """Return the spec of a Deployment or StatefulSet."""
    pod: dict[str, Any] = {"containers": list(containers or (container(),))}
    if grace is not None:
        pod["terminationGracePeriodSeconds"] = grace
    return {"template": {"metadata": {"labels": {"app": "rating"}}, "spec": pod}, **spec}


@pytest.mark.parametrize(
    ("hook", "grace", "expected"),
    [
        (None, None, 0),
        ({"sleep": {"seconds": 20}}, None, 20),
        ({"sleep": {"seconds": 120}}, None, 30),
        ({"sleep": {"seconds": 120}}, 150, 120),
        ({"sleep": {"seconds": 120}}, 60, 60),
        ({"sleep": {"seconds": 120}}, 0, 0),
        ({"exec": {"command": ["sleep", "100"]}}, 150, 100),
        ({"exec": {"command": ["/bin/sh", "-c", "curl -X POST localhost/drain; sleep 90 && true"]}}, 150, 90),
        ({"exec": {"command": ["/usr/bin/sleep", "15"]}}, 150, 15),
        ({"exec": {"command": ["sleep", "120s"]}}, 150, 120),
        ({"exec": {"command": ["sh", "-c", "sleep 1.5m; kill 1"]}}, 150, 90),
        ({"exec": {"command": ["sleep", "1m", "30s"]}}, 150, 90),
        ({"exec": {"command": ["sh", "-c", "sleep 1m 30s && sleep 5"]}}, 150, 95),
        ({"exec": {"command": ["sh", "-c", "sleep $WAIT; sleep 15x"]}}, 150, 0),
        ({"exec": {"command": ["/app/oversleep", "15"]}}, 150, 0),
        ({"httpGet": {"path": "/drain", "port": 8080}}, 150, 0),
    ],
)
def test_how_long_a_pod_serves(hook: dict[str, Any] | None, grace: int | None, expected: int) -> None:
    """The time is the sleep of its preStop, limited by the grace period."""
    pod_spec = workload(container(prestop=hook), grace=grace)["template"]["spec"]
    assert serving_seconds_after_deletion(pod_spec) == expected


def test_the_first_server_that_ends_counts() -> None:
    """The container with a port that ends first counts; containers without a port do not."""
    app = container(prestop={"sleep": {"seconds": 100}})
    without_port = {"name": "logs", "image": "logs"}
    pod_spec = workload(app, container("proxy"), grace=150)["template"]["spec"]
    assert serving_seconds_after_deletion(pod_spec) == 0
    assert serving_seconds_after_deletion(workload(app, without_port, grace=150)["template"]["spec"]) == 100
    assert serving_seconds_after_deletion(workload(without_port, grace=150)["template"]["spec"]) == 0


SLEEPS: dict[str, Any] = {"sleep": {"seconds": 120}}


@pytest.mark.parametrize(
    ("hook", "expected"),
    [
        (None, 120),
        ({"sleep": {"seconds": 5}}, 120),
        ({"exec": {"command": ["/bin/sleep", "5"]}}, 120),
        ({"exec": {"command": ["pilot-agent", "request", "--debug-port=15020", "POST", "drain"]}}, 120),
        ({"exec": {"command": ["sh", "-c", "curl -X POST localhost/drain"]}}, 0),
        ({"exec": {"command": ["sh", "-c", "sleep 60; curl -X POST localhost/drain"]}}, 60),
        ({"httpGet": {"path": "/drain", "port": 8080}}, 0),
    ],
)
def test_a_native_sidecar_ends_after_the_others(hook: dict[str, Any] | None, expected: int) -> None:
    """A native sidecar gets SIGTERM after the other containers have ended, but its preStop runs at once."""
    spec = workload(container(prestop=SLEEPS), grace=150)["template"]["spec"]
    sidecar = container("proxy", hook, restartPolicy="Always")
    assert serving_seconds_after_deletion({**spec, "initContainers": [sidecar]}) == expected
    for other in ({**sidecar, "restartPolicy": None}, {**sidecar, "ports": []}):  # ended, or serves nobody
        assert serving_seconds_after_deletion({**spec, "initContainers": [other]}) == 120
    alone = workload(container(), grace=150)["template"]["spec"]
    assert serving_seconds_after_deletion({**alone, "initContainers": [sidecar]}) == 0, (
        "the container itself ends at once"
    )


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
@pytest.mark.parametrize("hook", list(PreStopHook))
def test_what_is_written_is_what_is_needed(kind: str, hook: PreStopHook) -> None:
    """In the drained template every container serves as long as callers need, and keeps its former time to
    end.
    """
    before = workload(container(), container("proxy"), grace=60, replicas=3)
    untouched = copy.deepcopy(before)
    after = add_drain_to_workload(kind, before, TUNED, hook)
    assert before == untouched
    pod = after["template"]["spec"]
    assert serving_seconds_after_deletion(pod) == TUNED.prestop_seconds == 60
    assert pod["terminationGracePeriodSeconds"] == 60 + 60
    assert after["minReadySeconds"] == 60
    assert (after["replicas"], after["template"]["metadata"]) == (3, before["template"]["metadata"])
    assert "progressDeadlineSeconds" not in after


def test_what_is_longer_already_stays() -> None:
    """A longer ``minReadySeconds`` and a postStart are kept."""
    started = {"postStart": {"exec": {"command": ["/warm-up"]}}}
    after = add_drain_to_workload(
        "Deployment", workload(container(lifecycle=started), minReadySeconds=300), TUNED
    )
    assert after["minReadySeconds"] == 300
    (made,) = after["template"]["spec"]["containers"]
    assert made["lifecycle"] == {**started, "preStop": {"sleep": {"seconds": 60}}}


@pytest.mark.parametrize(
    ("client_fetch_seconds", "given", "expected"),
    [
        (5, {}, None),
        (5, {"progressDeadlineSeconds": 61}, 61),
        (5, {"progressDeadlineSeconds": 60}, 60 + 600),
        (5, {"progressDeadlineSeconds": 30.0}, 60 + 600),
        (5, {"progressDeadlineSeconds": 90, "minReadySeconds": 120}, 120 + 600),
        (5, {"minReadySeconds": 600}, 600 + 600),
        (570, {}, 625 + 600),
        (570, {"progressDeadlineSeconds": 900}, 900),
    ],
)
def test_a_rollout_may_take_as_long_as_its_pods_need(
    client_fetch_seconds: float, given: dict[str, Any], expected: int | None
) -> None:
    """``progressDeadlineSeconds`` is raised above ``minReadySeconds``, since the API server requires that."""
    drain = Drain(client_fetch_seconds=client_fetch_seconds, load_balancer_cache_seconds=0)
    after = add_drain_to_workload("Deployment", workload(**given), drain)
    assert after.get("progressDeadlineSeconds") == expected
    assert after["minReadySeconds"] < (expected or 600)


def test_pods_may_wait_for_callers_instead() -> None:
    """The readiness gate replaces ``minReadySeconds``, is added once beside others, and the deadline
    exceeds its wait.
    """
    other = {"conditionType": "example.org/other"}
    before = workload(container(), progressDeadlineSeconds=90)
    before["template"]["spec"]["readinessGates"] = [other]
    after = add_drain_to_workload("Deployment", before, Drain(), declares_gate=True)
    assert "minReadySeconds" not in after
    assert after["progressDeadlineSeconds"] == 102 + 600
    assert after["template"]["spec"]["readinessGates"] == [other, {"conditionType": READINESS_GATE}]
    assert serving_seconds_after_deletion(after["template"]["spec"]) == 120
    assert with_readiness_gate(after["template"]["spec"]) == after["template"]["spec"]


def test_a_stateful_set_has_no_deadline() -> None:
    """StatefulSets have no field ``progressDeadlineSeconds``."""
    after = add_drain_to_workload("StatefulSet", workload(), Drain(client_fetch_seconds=600))
    assert "progressDeadlineSeconds" not in after


def test_a_prestop_that_is_there_is_refused() -> None:
    """An existing preStop is not replaced; the error names its container."""
    there = workload(container(), container("proxy", prestop={"exec": {"command": ["/drain"]}}))
    with pytest.raises(ConfigurationError, match="the container 'proxy' has a preStop already"):
        add_drain_to_workload("Deployment", there, TUNED)


def test_containers_can_be_named() -> None:
    """Only the named containers get a preStop, the others keep their own; an unknown name is refused."""
    theirs = {"exec": {"command": ["/drain"]}}
    there = workload(container(), container("proxy", prestop=theirs))
    app, proxy = add_drain_to_workload("Deployment", there, TUNED, containers=("app",))["template"]["spec"][
        "containers"
    ]
    assert app["lifecycle"]["preStop"] == {"sleep": {"seconds": 60}}
    assert proxy["lifecycle"]["preStop"] == theirs
    with pytest.raises(ConfigurationError, match="there is no container 'web'; there are app, proxy"):
        add_drain_to_workload("Deployment", there, TUNED, containers=("web",))
