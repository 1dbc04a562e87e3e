"""The doctor's findings about workloads, and the patches that it prints for them."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import pytest

from eurekube_provider.core.drain_time import Drain
from eurekube_provider.core.prestop import PreStopHook
from eurekube_provider.core.syncer import READINESS_GATE
from eurekube_provider.doctor.finding import Fault, Finding, Patch, merge_patches
from eurekube_provider.doctor.workload_checks import (
    Workload,
    WorkloadIndex,
    WorkloadRequirements,
    drain_findings,
    environment_patch,
    gate_findings,
    is_probed_by_http,
    readiness_findings,
)

SOUND = {"preStop": {"sleep": {"seconds": 120}}}


def container(name: str = "app", lifecycle: Any = None, **more: Any) -> dict[str, Any]:
    """Return a container that listens at port 8080."""
    hook = {"lifecycle": lifecycle} if lifecycle else {}
    return {"name": name, "ports": [{"name": "http", "containerPort": 8080}], **hook, **more}


def workload(
    *containers: dict[str, Any], grace: int | None = 150, kind: str = "Deployment", **spec: Any
) -> Workload:
    """Return a workload of the namespace shop, with a sufficient minReadySeconds by default."""
    pod: dict[str, Any] = {"containers": list(containers)}
    if grace is not None:
        pod["terminationGracePeriodSeconds"] = grace
    metadata = {"namespace": "shop", "name": "rating", "labels": {"app": "rating"}}
    if kind == "Pod":
        return Workload(kind, {"metadata": metadata, "spec": pod})
    template = {"metadata": {"labels": {"app": "rating"}}, "spec": pod}
    return Workload(
        kind, {"metadata": metadata, "spec": {"minReadySeconds": 120, "template": template, **spec}}
    )


def found(one: Workload, hook: PreStopHook = PreStopHook.SLEEP, **drain: float) -> list[Finding]:
    """Return the drain findings of a workload."""
    return list(drain_findings(one, WorkloadRequirements(Drain(**drain)), hook))


def body(finding: Finding) -> Any:
    """Return the body of a finding's patch."""
    assert finding.patch is not None
    return finding.patch.body


def test_nothing_is_said_of_a_workload_that_drains() -> None:
    """A workload with a long enough preStop, grace period and minReadySeconds has no finding."""
    assert found(workload(container(lifecycle=SOUND))) == []
    assert found(workload(container(lifecycle=SOUND), {"name": "logs"})) == []  # serves nobody


def test_a_pod_that_ends_at_once() -> None:
    """A container without a preStop is a finding; the patch adds one to this container, and a grace
    period.
    """
    (finding,) = found(workload(container(), container("proxy", SOUND), grace=None))[:1]
    assert finding.fault is Fault.NO_PRE_STOP
    assert "container app has no preStop and ends at once" in finding.problem
    assert body(finding) == {
        "spec": {
            "template": {
                "spec": {
                    "terminationGracePeriodSeconds": 150,
                    "containers": [{"name": "app", "lifecycle": SOUND}],
                }
            }
        }
    }


def test_older_clusters_sleep_by_a_command() -> None:
    """For clusters before 1.30, which have no sleep hook, the patch runs the command ``sleep``."""
    (finding,) = found(workload(container()), PreStopHook.EXEC)
    (patched,) = body(finding)["spec"]["template"]["spec"]["containers"]
    assert patched["lifecycle"] == {"preStop": {"exec": {"command": ["sleep", "120"]}}}


@pytest.mark.parametrize(
    ("hook", "fixed"),
    [
        ({"sleep": {"seconds": 5}}, {"sleep": {"seconds": 120}}),
        ({"exec": {"command": ["sleep", "10"]}}, {"exec": {"command": ["sleep", "120"]}}),
        ({"exec": {"command": ["/bin/sleep", "10"]}}, {"exec": {"command": ["/bin/sleep", "120"]}}),
        (
            {"exec": {"command": ["sh", "-c", "curl -X POST :80/x; sleep 10 && true"]}},
            {"exec": {"command": ["sh", "-c", "curl -X POST :80/x; sleep 120 && true"]}},
        ),
    ],
)
def test_a_sleep_that_is_too_short_is_made_longer(hook: Any, fixed: Any) -> None:
    """The patch changes only the number of seconds in a preStop that sleeps too short."""
    (finding,) = found(workload(container(lifecycle={"preStop": hook})))
    assert finding.fault is Fault.PRE_STOP_TOO_SHORT
    (patched,) = body(finding)["spec"]["template"]["spec"]["containers"]
    assert patched["lifecycle"]["preStop"] == fixed


@pytest.mark.parametrize(
    "hook", [{"httpGet": {"path": "/drain", "port": 8080}}, {"exec": {"command": ["sh", "-c", "drain"]}}]
)
def test_a_prestop_that_does_something_else_is_not_overwritten(hook: Any) -> None:
    """A preStop without a sleep gets no patch; the remedy says for how long it must wait."""
    (finding,) = found(workload(container(lifecycle={"preStop": hook})))
    assert (finding.fault, finding.patch) == (Fault.NO_PRE_STOP, None)
    assert "sleep for 120 s, after what it does already" in finding.remedy


def live(one: Workload, *more: dict[str, Any], **spec: Any) -> Workload:
    """Return the workload with a running pod that admission gave more containers and other fields."""
    containers = [*one.pod_spec["containers"], *more]
    pod = {
        "metadata": {"namespace": "shop", "name": "rating-x"},
        "spec": {**one.pod_spec, "containers": containers},
    }
    pod["spec"] |= spec
    return replace(one, live_pod=pod)


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("istio-proxy", "a container istio-proxy with image auto"),
        ("linkerd-proxy", "proxy-wait-before-exit-seconds"),
        ("proxy", "mutatingwebhookconfigurations"),
    ],
)
def test_a_container_that_the_template_lacks(name: str, where: str) -> None:
    """An injected sidecar without a preStop is a finding without a patch, because the template does not
    have it.
    """
    sound = workload(container(lifecycle=SOUND))
    assert found(live(sound)) == []
    (finding,) = found(live(sound, container(name)))
    assert (finding.fault, finding.subject, finding.patch) == (
        Fault.NO_PRE_STOP,
        "Deployment shop/rating",
        None,
    )
    assert f"pod shop/rating-x: container {name} has no preStop" in finding.problem
    assert "injects it" in finding.problem
    assert "sleep for 120 s" in finding.remedy
    assert where in finding.remedy
    assert found(live(sound, container(name, SOUND))) == []


def test_what_admission_changed_of_the_templates_own() -> None:
    """A running pod that differs from its rolled-out template is a finding; a fault of the template is
    reported once.
    """
    sound = workload(container(lifecycle=SOUND), replicas=2)
    cut = {"terminationGracePeriodSeconds": 30}
    rolled_out = {**sound.kubernetes_object, "status": {"updatedReplicas": 2}}
    (finding,) = found(live(replace(sound, kubernetes_object=rolled_out), **cut))
    assert (finding.fault, finding.patch) == (Fault.GRACE_PERIOD_TOO_SHORT, None)
    assert "its template says otherwise" in finding.problem
    rolling = {**sound.kubernetes_object, "status": {"updatedReplicas": 1}}
    assert found(live(replace(sound, kubernetes_object=rolling), **cut)) == []
    assert len(found(live(workload(container())))) == 1


def test_a_native_sidecar_that_drains_at_once() -> None:
    """A native sidecar with too short a sleep is a finding; the patch changes the init container."""
    draining = {"preStop": {"exec": {"command": ["sh", "-c", "sleep 5; drain"]}}}
    sidecar = container("proxy", draining, restartPolicy="Always")
    one = workload(container(lifecycle=SOUND))
    one.kubernetes_object["spec"]["template"]["spec"]["initContainers"] = [sidecar]
    (finding,) = found(one)
    assert finding.fault is Fault.PRE_STOP_TOO_SHORT
    (patched,) = body(finding)["spec"]["template"]["spec"]["initContainers"]
    assert patched["lifecycle"]["preStop"]["exec"]["command"][-1] == "sleep 120; drain"


def test_a_grace_period_that_cuts_the_sleep_off() -> None:
    """A grace period shorter than the preStop's sleep is a finding, also Kubernetes' default of 30 s."""
    long = {"preStop": {"exec": {"command": ["sleep", "200"]}}}
    (finding,) = found(workload(container(lifecycle=long), grace=None))
    assert finding.fault is Fault.GRACE_PERIOD_TOO_SHORT
    assert body(finding) == {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 230}}}}


def test_tuned_caches_ask_for_less() -> None:
    """With shorter caches shorter times are enough."""
    short = workload(container(lifecycle={"preStop": {"sleep": {"seconds": 60}}}), minReadySeconds=60)
    assert found(short, client_fetch_seconds=5, load_balancer_cache_seconds=0) == []
    assert [one.fault for one in found(short)] == [Fault.PRE_STOP_TOO_SHORT, Fault.MIN_READY_TOO_SHORT]


def test_a_rollout_that_is_too_fast() -> None:
    """Too short a minReadySeconds is a finding; the patch also raises a progress deadline that would be
    too short.
    """
    (finding,) = found(workload(container(lifecycle=SOUND), minReadySeconds=0))
    assert body(finding) == {"spec": {"minReadySeconds": 120}}
    (finding,) = found(workload(container(lifecycle=SOUND), progressDeadlineSeconds=60, minReadySeconds=0))
    assert body(finding) == {"spec": {"minReadySeconds": 120, "progressDeadlineSeconds": 720}}


def test_pods_that_wait_for_callers_need_no_time() -> None:
    """The readiness gate replaces minReadySeconds, and with ``prefers_readiness_gate`` the patch declares the
    gate.
    """
    gates = [{"conditionType": "example.org/other"}, {"conditionType": READINESS_GATE}]
    gated = workload(container(lifecycle=SOUND), minReadySeconds=0)
    gated.kubernetes_object["spec"]["template"]["spec"]["readinessGates"] = gates
    assert found(gated) == []
    gated.kubernetes_object["spec"]["template"]["spec"]["readinessGates"] = gates[:1]
    gated.kubernetes_object["spec"]["progressDeadlineSeconds"] = 60
    by_gate = WorkloadRequirements(prefers_readiness_gate=True)
    (finding,) = drain_findings(gated, by_gate, PreStopHook.SLEEP)
    template = {"spec": {"readinessGates": gates}}
    assert body(finding) == {"spec": {"progressDeadlineSeconds": 720, "template": template}}
    assert finding.remedy.startswith("declare the readiness gate eurekube.io/callers-know")
    assert found(live(gated, readinessGates=gates)) == [], "a policy declared it in the pods alone"


def test_a_pod_that_waits_unnoticed() -> None:
    """A ready pod whose gate has no condition for a while is a finding: no operator serves the gate."""
    ready = {"type": "ContainersReady", "status": "True", "lastTransitionTime": "1970-01-01T00:01:00Z"}
    pod: dict[str, Any] = {
        "metadata": {"namespace": "shop", "name": "rating-1"},
        "spec": {"readinessGates": [{"conditionType": READINESS_GATE}]},
        "status": {"conditions": [ready]},
    }
    waits = replace(workload(container()), live_pod=pod)
    (finding,) = gate_findings(waits, 200.0)
    assert (finding.fault, finding.patch) == (Fault.GATE_NOT_SERVED, None)
    assert "--gate-namespace shop" in finding.remedy
    assert list(gate_findings(waits, 110.0)) == [], "it has been ready for a moment"
    assert list(gate_findings(workload(container()), 200.0)) == [], "no pod runs"
    pod["status"]["conditions"].append({"type": READINESS_GATE, "status": "False"})
    assert list(gate_findings(waits, 200.0)) == [], "an operator looks at it"


def test_readiness() -> None:
    """A container without a readiness probe is a finding; the patch probes its port, if it has one."""
    (finding,) = readiness_findings(workload(container(), container("proxy", readinessProbe={"exec": {}})))
    (patched,) = body(finding)["spec"]["template"]["spec"]["containers"]
    assert patched == {"name": "app", "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 2}}
    (finding,) = readiness_findings(workload({"name": "app"}))
    assert (finding.fault, finding.patch) == (Fault.NO_READINESS_PROBE, None)


def test_a_pod_of_something_else_gets_no_patch() -> None:
    """A pod of an unknown kind of workload gets findings without patches, and none about its rollout."""
    one = workload(container(), kind="Pod")
    assert [(each.fault, each.patch) for each in found(one)] == [(Fault.NO_PRE_STOP, None)]
    assert one.subject == "Pod shop/rating"


def test_which_container_gets_a_variable() -> None:
    """A variable is set in the container that listens at the instance's port, else in the first that has a
    port.
    """
    two = workload({"name": "logs"}, container("proxy", ports=[{"containerPort": 80}]), container())
    for port, name in ((8080, "app"), (80, "proxy"), (9, "proxy")):
        patch = environment_patch(two, "X", "1", port)
        assert patch is not None
        assert patch.body["spec"]["template"]["spec"]["containers"] == [
            {"name": name, "env": [{"name": "X", "value": "1"}]}
        ]


def test_a_probe_that_speaks_http() -> None:
    """A port speaks HTTP if a probe requests it, by name or number, in plain HTTP."""
    for probe, expected in (
        ({"httpGet": {"port": "http"}}, True),
        ({"httpGet": {"port": 8080, "scheme": "HTTP"}}, True),
        ({"httpGet": {"port": 8080, "scheme": "HTTPS"}}, False),
        ({"httpGet": {"port": "admin"}}, False),
        ({"tcpSocket": {"port": 8080}}, False),
    ):
        assert is_probed_by_http(workload(container(livenessProbe=probe)), 8080) is expected


def test_one_patch_for_each_object() -> None:
    """Patches of one object are merged: containers and variables by name, and the longer of two times."""
    one = workload(container(), container("proxy"), grace=None, minReadySeconds=0)
    findings = [*found(one), *readiness_findings(one)]
    patch = environment_patch(one, "X", "1")
    findings.append(Finding(Fault.SELF_REGISTERED, one.subject, "", "", patch))
    (merged,) = merge_patches(findings)
    spec = merged.body["spec"]
    assert spec["minReadySeconds"] == 120
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] == 150
    assert [(each["name"], sorted(each)) for each in spec["template"]["spec"]["containers"]] == [
        ("app", ["env", "lifecycle", "name", "readinessProbe"]),
        ("proxy", ["lifecycle", "name", "readinessProbe"]),
    ]
    assert merge_patches([Finding(Fault.PEERS_DISAGREE, "", "", "")]) == []


def test_a_command_for_a_shell() -> None:
    """A patch's kubectl command is quoted for a shell."""
    patch = Patch("eurekasyncers.eurekube.io", "shop", "it", {"spec": {"x": "it's $HOME"}})
    assert shlex.split(patch.command) == [
        *("kubectl", "patch", "eurekasyncers.eurekube.io", "it", "--namespace", "shop"),
        *("--type", "merge", "--patch", '{"spec": {"x": "it\'s $HOME"}}'),
    ]


def labelled_workload(name: str, namespace: str = "shop", **labels: str) -> Workload:
    """Return a Deployment whose pods have these labels and whose selector requires all of them."""
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}}}
    return Workload("Deployment", {"metadata": {"namespace": namespace, "name": name}, "spec": spec})


def service(**selector: str) -> dict[str, Any]:
    """Return a Service of the namespace shop with this selector."""
    return {"metadata": {"namespace": "shop"}, "spec": {"selector": selector}}


def pod(**labels: str) -> dict[str, Any]:
    """Return a pod of the namespace shop with these labels."""
    return {"metadata": {"namespace": "shop", "labels": labels}}


ONE = labelled_workload("one", app="rating", track="stable", part="shop")
OTHER = labelled_workload("other", app="rating", track="canary", part="shop")
ELSEWHERE = labelled_workload("one", "else", app="rating", track="stable", part="shop")
INDEX = WorkloadIndex([ONE, OTHER, ELSEWHERE])


def test_a_service_selects_the_pods_of_workloads() -> None:
    """A Service finds the workloads of its namespace whose pods have all labels of its selector; without
    one, none.
    """
    assert INDEX.find_by_service(service(app="rating")) == [ONE, OTHER]
    assert INDEX.find_by_service(service(app="rating", track="canary")) == [OTHER]
    assert INDEX.find_by_service(service(app="rating", track="none")) == []
    assert INDEX.find_by_service(service()) == []
    assert WorkloadIndex([ELSEWHERE]).find_by_service(service(app="rating")) == []


def test_a_pod_belongs_to_the_workload_whose_selector_it_fits() -> None:
    """A pod belongs to the first workload whose selector its labels fulfil."""
    assert INDEX.find_by_pod(pod(app="rating", track="canary", part="shop", hash="1")) is OTHER
    assert INDEX.find_by_pod(pod(app="rating", part="shop")) is None
    assert INDEX.find_by_pod({"metadata": {"namespace": "shop"}}) is None
    twice = WorkloadIndex([labelled_workload("b", app="rating"), ONE])
    assert twice.find_by_pod(pod(app="rating", track="stable", part="shop")) == labelled_workload(
        "b", app="rating"
    )


def test_a_pod_without_a_workload_is_its_own() -> None:
    """A workload of the kind Pod is found by Services, and matches no other pod."""
    alone = Workload("Pod", {"metadata": {"namespace": "shop", "name": "a", "labels": {"app": "rating"}}})
    index = WorkloadIndex([alone])
    assert index.find_by_service(service(app="rating")) == [alone]
    assert index.find_by_pod(pod(app="rating")) is None
