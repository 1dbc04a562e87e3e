"""Checks of workloads: do their pods start and end without failed calls? Pure, on the API's JSON."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eurekube_provider.core.drain_time import DEFAULT_SHUTDOWN_SECONDS, Drain
from eurekube_provider.core.gate import declares_gate, held_since_unix, is_held_by_gate
from eurekube_provider.core.objects import Object, conditions_of, qualified_name
from eurekube_provider.core.prestop import (
    DEFAULT_PROGRESS_DEADLINE_SECONDS,
    PreStopHook,
    containers_with_ports_or_all,
    progress_deadline_seconds,
    with_readiness_gate,
)
from eurekube_provider.core.shortfall import Shortfall, find_shortfalls
from eurekube_provider.core.syncer import READINESS_GATE
from eurekube_provider.doctor.finding import Fault, Finding, Patch

GATE_UNNOTICED_SECONDS = 60.0
"""Seconds within which an operator explains why a pod waits, even after a take-over."""

_OTHER_INJECTOR_SETTINGS_PLACE = (
    "in the configuration of what injects the container (kubectl get"
    " mutatingwebhookconfigurations,mutatingadmissionpolicies)"
)
SETTINGS_PLACE_BY_INJECTED_CONTAINER: Mapping[str, str] = {
    "istio-proxy": (
        "in the pod template, by a container istio-proxy with image auto and this preStop, which Istio merges"
        " into its own; or have Istio inject a native sidecar, which ends after the others"
    ),
    "linkerd-proxy": (
        "by the annotation config.alpha.linkerd.io/proxy-wait-before-exit-seconds of the pod template; or"
        " have Linkerd inject a native sidecar, which ends after the others"
    ),
}


@dataclass(frozen=True, slots=True)
class Workload:
    """A Deployment, StatefulSet or DaemonSet, or a pod whose owner is none of these.

    :ivar kubernetes_object: the object, of this ``kind``.
    :ivar live_pod: one of its running pods, which admission may have changed; None without one.
    """

    kind: str
    kubernetes_object: Object
    live_pod: Object | None = None

    @property
    def subject(self) -> str:
        """Kind, namespace and name of the workload, for a person."""
        return f"{self.kind} {qualified_name(self.kubernetes_object)}"

    @property
    def namespace(self) -> str:
        return str(self.kubernetes_object["metadata"]["namespace"])

    @property
    def _pod_template(self) -> Object:
        template = (self.kubernetes_object.get("spec") or {}).get("template") or {}
        return self.kubernetes_object if self.kind == "Pod" else template

    @property
    def pod_spec(self) -> Object:
        found: Object = self._pod_template.get("spec") or {}
        return found

    @property
    def labels(self) -> Mapping[str, str]:
        found: Mapping[str, str] = (self._pod_template.get("metadata") or {}).get("labels") or {}
        return found

    @property
    def match_labels(self) -> Mapping[str, str]:
        """The labels that the workload's selector requires of pods; empty for a pod."""
        selector = (self.kubernetes_object.get("spec") or {}).get("selector") or {}
        found: Mapping[str, str] = selector.get("matchLabels") or {}
        return found

    @property
    def is_rolled_out(self) -> bool:
        """True if the controller's status says that all pods have the current template."""
        status, spec = self.kubernetes_object.get("status") or {}, self.kubernetes_object.get("spec") or {}
        generation = self.kubernetes_object["metadata"].get("generation")
        wanted = status.get("desiredNumberScheduled", spec.get("replicas"))
        updated = status.get("updatedNumberScheduled", status.get("updatedReplicas"))
        return status.get("observedGeneration") == generation and (updated or 0) >= (wanted or 0)

    def build_patch(self, pod_spec: Mapping[str, Any], **spec: Any) -> Patch | None:
        """Return a patch of the pods' spec and the workload's; None for a pod, which cannot be changed."""
        if self.kind == "Pod":
            return None
        body = {**spec, **({"template": {"spec": pod_spec}} if pod_spec else {})}
        name = str(self.kubernetes_object["metadata"]["name"])
        return Patch(self.kind.lower(), self.namespace, name, {"spec": body})


@dataclass(frozen=True, slots=True)
class SelectedService:
    """A Service that a syncer selects, its EndpointSlices, and the workloads that run its pods."""

    service: Object
    slices: Sequence[Object]
    workloads: Sequence[Workload]


@dataclass(frozen=True, slots=True)
class WorkloadRequirements:
    """The times that workloads must allow for.

    :ivar shutdown_seconds: the time that a process needs after SIGTERM.
    :ivar prefers_readiness_gate: True if new pods are to wait by the readiness gate, in place of
        ``minReadySeconds``.
    """

    drain: Drain = field(default_factory=Drain)
    shutdown_seconds: int = DEFAULT_SHUTDOWN_SECONDS
    prefers_readiness_gate: bool = False


def drain_findings(
    workload: Workload, requirements: WorkloadRequirements, hook: PreStopHook
) -> Iterator[Finding]:
    """Yield findings about pods that end before callers forget them, or are rolled out faster than callers
    learn of them; ``hook`` is the preStop to propose.
    """
    needed, shutdown_seconds = requirements.drain.prestop_seconds, requirements.shutdown_seconds
    written = list(find_shortfalls(workload.pod_spec, needed, hook, shutdown_seconds))
    for one in written:
        patch = workload.build_patch(one.pod_spec_patch) if one.pod_spec_patch is not None else None
        yield Finding(Fault(one.kind), workload.subject, one.problem_sentence, one.remedy, patch)
    live = workload.live_pod
    if live is not None:
        spec: Object = live.get("spec") or {}
        known = {(one.kind, one.container) for one in written}
        for one in find_shortfalls(spec, needed, hook, shutdown_seconds):
            if (one.kind, one.container) not in known:
                yield from _live_pod_findings(workload, qualified_name(live), one)
    # A policy declares the gate in the pods, and leaves the template as it is.
    if not declares_gate(workload.pod_spec) and not (live and declares_gate(live.get("spec") or {})):
        yield from _min_ready_findings(workload, requirements)


def _live_pod_findings(workload: Workload, pod: str, lacking: Shortfall) -> Iterator[Finding]:
    """Yield a finding about a shortfall that admission, and not its template, has given to a running pod."""
    template = workload.pod_spec
    names = {one.get("name") for key in ("containers", "initContainers") for one in template.get(key) or ()}
    if lacking.container not in names:
        why = "its template has no such container: a webhook or a policy injects it"
        where = SETTINGS_PLACE_BY_INJECTED_CONTAINER.get(lacking.container, _OTHER_INJECTOR_SETTINGS_PLACE)
    elif workload.is_rolled_out:
        why = "its template says otherwise: a webhook or a policy changes the pods, or they are older"
        where = "change that webhook or policy, or replace the pods (kubectl rollout restart)"
    else:
        return
    problem = f"pod {pod}: {lacking.problem_sentence}; {why}"
    yield Finding(Fault(lacking.kind), workload.subject, problem, f"{lacking.remedy}: {where}")


def _min_ready_findings(workload: Workload, requirements: WorkloadRequirements) -> Iterator[Finding]:
    spec: Object = workload.kubernetes_object.get("spec") or {}
    given, needed = int(spec.get("minReadySeconds") or 0), requirements.drain.min_ready_seconds
    if workload.kind == "Pod" or given >= needed:
        return
    change = {"minReadySeconds": needed}
    before = int(spec.get("progressDeadlineSeconds") or DEFAULT_PROGRESS_DEADLINE_SECONDS)
    deadline = progress_deadline_seconds(before, needed)
    if workload.kind == "Deployment" and deadline > before:
        change["progressDeadlineSeconds"] = deadline
    remedy, patch = f"set minReadySeconds to {needed}", workload.build_patch({}, **change)
    if requirements.prefers_readiness_gate:
        del change["minReadySeconds"]
        remedy = (
            f"declare the readiness gate {READINESS_GATE}, which an operator must serve in this namespace"
        )
        gates = with_readiness_gate(workload.pod_spec)["readinessGates"]
        patch = workload.build_patch({"readinessGates": gates}, **change)
    yield Finding(
        Fault.MIN_READY_TOO_SHORT,
        workload.subject,
        f"minReadySeconds is {given}, and callers may need {needed} s to find a new pod: a rollout takes "
        "away those that they know before",
        remedy,
        patch,
    )


def gate_findings(workload: Workload, now_seconds: float) -> Iterator[Finding]:
    """Yield a finding if at a Unix time a pod waits for its gate and no operator has said why."""
    pod = workload.live_pod
    if pod is None or not is_held_by_gate(pod) or READINESS_GATE in conditions_of(pod):
        return
    if now_seconds - held_since_unix(pod) > GATE_UNNOTICED_SECONDS:
        yield Finding(
            Fault.GATE_NOT_SERVED,
            workload.subject,
            f"pod {qualified_name(pod)} waits for the readiness gate {READINESS_GATE}, and no operator has "
            "looked at it: no new pod becomes ready",
            f"have the operator run, with --gate-namespace {workload.namespace}; or take the gate out of the"
            " template; what waits goes on with eurekube gate open",
        )


def readiness_findings(workload: Workload) -> Iterator[Finding]:
    """Yield findings about containers without a readiness probe."""
    for container in containers_with_ports_or_all(workload.pod_spec):
        if container.get("readinessProbe"):
            continue
        name = str(container.get("name"))
        port = next((one.get("containerPort") for one in container.get("ports") or ()), None)
        probe = {"tcpSocket": {"port": port}, "periodSeconds": 2} if port else None
        yield Finding(
            Fault.NO_READINESS_PROBE,
            workload.subject,
            f"container {name} has no readinessProbe: it counts as ready before it answers, and the first "
            "callers fail",
            "give it a readinessProbe; for Spring Boot an httpGet of /actuator/health/readiness tells more"
            f" than {'the port, which the patch tries' if port else 'a port'}",
            workload.build_patch({"containers": [{"name": name, "readinessProbe": probe}]})
            if probe
            else None,
        )


def _container_ports(container: Object, number: int | None) -> list[Object]:
    return [one for one in container.get("ports") or () if one.get("containerPort") == number]


def environment_patch(workload: Workload, variable: str, value: str, port: int | None = None) -> Patch | None:
    """Return a patch that sets a variable in the container with this port, else in the first with ports."""
    containers = containers_with_ports_or_all(workload.pod_spec)
    if not containers:
        return None
    chosen = next((one for one in containers if _container_ports(one, port)), containers[0])
    entry = {"name": chosen.get("name"), "env": [{"name": variable, "value": value}]}
    return workload.build_patch({"containers": [entry]})


def is_probed_by_http(workload: Workload, port: int) -> bool:
    """Return whether a probe sends plain http requests to a port."""
    for container in workload.pod_spec.get("containers") or ():
        names = {port, *(one.get("name") for one in _container_ports(container, port))}
        for probe in ("readinessProbe", "livenessProbe", "startupProbe"):
            asked = (container.get(probe) or {}).get("httpGet") or {}
            if asked.get("port") in names and asked.get("scheme", "HTTP") == "HTTP":
                return True
    return False


_NamespacedLabel = tuple[str, str, str]
"""Namespace, key and value of a label."""


class WorkloadIndex:
    """An index that finds workloads by the pods that they run, and by the Services that select these pods."""

    def __init__(self, workloads: Sequence[Workload]) -> None:
        self._by_label: dict[_NamespacedLabel, list[Workload]] = defaultdict(list)
        self._by_selector: dict[_NamespacedLabel, list[tuple[int, Workload]]] = defaultdict(list)
        uses = Counter(
            label for one in workloads for label in _namespaced_labels(one.namespace, one.match_labels)
        )
        for position, one in enumerate(workloads):
            for label in _namespaced_labels(one.namespace, one.labels):
                self._by_label[label].append(one)
            wanted = _namespaced_labels(one.namespace, one.match_labels)
            if wanted:  # under its rarest label: all workloads of a namespace may share another one
                self._by_selector[min(wanted, key=uses.__getitem__)].append((position, one))

    def find_by_service(self, service: Object) -> list[Workload]:
        """Return the workloads whose pods a Service selects; none for one with hand-written endpoints."""
        selector = (service.get("spec") or {}).get("selector") or {}
        wanted = _namespaced_labels(service["metadata"]["namespace"], selector)
        if not wanted:
            return []
        fewest = min((self._by_label.get(label, []) for label in wanted), key=len)
        return [one for one in fewest if selector.items() <= one.labels.items()]

    def find_by_pod(self, pod: Object) -> Workload | None:
        """Return the first workload whose selector matches a pod's labels; None without one."""
        labels = pod["metadata"].get("labels") or {}
        found = (
            each
            for label in _namespaced_labels(pod["metadata"]["namespace"], labels)
            for each in self._by_selector.get(label, ())
            if each[1].match_labels.items() <= labels.items()
        )
        _, workload = min(found, key=lambda each: each[0], default=(0, None))
        return workload


def _namespaced_labels(namespace: str, labels: Object) -> list[_NamespacedLabel]:
    return [(namespace, key, value) for key, value in labels.items()]
