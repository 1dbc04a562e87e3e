"""Checks of workloads: whether their pods begin and end so that no caller notices.

Pure, on the objects as the API's JSON has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eurekube_provider.core.drain_time import DEFAULT_SHUTDOWN_SECONDS, Drain
from eurekube_provider.core.objects import Object, qualified
from eurekube_provider.core.prestop import (
    DEFAULT_PROGRESS_DEADLINE_SECONDS,
    PreStopHook,
    progress_deadline_seconds,
    servers,
)
from eurekube_provider.core.shortfall import shortfalls
from eurekube_provider.doctor.finding import Fault, Finding, Patch, PatchKind


@dataclass(frozen=True, slots=True)
class Workload:
    """A Deployment, StatefulSet or DaemonSet, or a pod whose owner is none of these.

    :ivar item: the object; ``kind`` says which of them it is.
    """

    kind: str
    item: Object

    @property
    def subject(self) -> str:
        """Kind, namespace and name, for a person."""
        return f"{self.kind} {qualified(self.item)}"

    @property
    def namespace(self) -> str:
        """The namespace of the workload."""
        return str(self.item["metadata"]["namespace"])

    @property
    def _pod(self) -> Object:
        template = (self.item.get("spec") or {}).get("template") or {}
        return self.item if self.kind == "Pod" else template

    @property
    def pod_spec(self) -> Object:
        """The ``spec`` of its pods."""
        found: Object = self._pod.get("spec") or {}
        return found

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of its pods."""
        found: Mapping[str, str] = (self._pod.get("metadata") or {}).get("labels") or {}
        return found

    @property
    def match_labels(self) -> Mapping[str, str]:
        """The labels that its selector wants of pods; none for a pod."""
        selector = (self.item.get("spec") or {}).get("selector") or {}
        found: Mapping[str, str] = selector.get("matchLabels") or {}
        return found

    def patch(self, pod_spec: Mapping[str, Any], **spec: Any) -> Patch | None:
        """Make a patch of its pods' spec, and of its own; None for a pod, which cannot be changed."""
        if self.kind == "Pod":
            return None
        body = {**spec, **({"template": {"spec": pod_spec}} if pod_spec else {})}
        name = str(self.item["metadata"]["name"])
        return Patch(self.kind.lower(), self.namespace, name, PatchKind.STRATEGIC, {"spec": body})


def drain_findings(
    workload: Workload, drain: Drain, hook: PreStopHook, shutdown_seconds: int = DEFAULT_SHUTDOWN_SECONDS
) -> Iterator[Finding]:
    """Find pods that end before callers forget them, and rollouts faster than callers learn of new pods.

    :param hook: how a preStop waits that is not there yet.
    :param shutdown_seconds: what the process itself needs after SIGTERM.
    """
    for one in shortfalls(workload.pod_spec, drain.prestop_seconds, hook, shutdown_seconds):
        patch = workload.patch(one.pod_spec) if one.pod_spec is not None else None
        yield Finding(Fault(one.lack), workload.subject, one.problem, one.remedy, patch)
    yield from _min_ready(workload, drain.min_ready_seconds)


def _min_ready(workload: Workload, needed: int) -> Iterator[Finding]:
    spec: Object = workload.item.get("spec") or {}
    given = int(spec.get("minReadySeconds") or 0)
    if workload.kind == "Pod" or given >= needed:
        return
    change = {"minReadySeconds": needed}
    before = int(spec.get("progressDeadlineSeconds") or DEFAULT_PROGRESS_DEADLINE_SECONDS)
    deadline = progress_deadline_seconds(before, needed)
    if workload.kind == "Deployment" and deadline > before:
        change["progressDeadlineSeconds"] = deadline
    yield Finding(
        Fault.MIN_READY_TOO_SHORT,
        workload.subject,
        f"minReadySeconds is {given}, and callers may need {needed} s to find a new pod: a rollout takes away"
        " those that they know before",
        f"set minReadySeconds to {needed}",
        workload.patch({}, **change),
    )


def readiness_findings(workload: Workload) -> Iterator[Finding]:
    """Find containers of which Kubernetes does not know when they answer."""
    for container in servers(workload.pod_spec):
        if container.get("readinessProbe"):
            continue
        name = str(container.get("name"))
        port = next((one.get("containerPort") for one in container.get("ports") or ()), None)
        probe = {"tcpSocket": {"port": port}, "periodSeconds": 2} if port else None
        yield Finding(
            Fault.NO_READINESS_PROBE,
            workload.subject,
            f"container {name} has no readinessProbe: it counts as ready before it answers, and the first"
            " callers fail",
            "give it a readinessProbe; for Spring Boot an httpGet of /actuator/health/readiness tells more"
            f" than {'the port, which the patch tries' if port else 'a port'}",
            workload.patch({"containers": [{"name": name, "readinessProbe": probe}]}) if probe else None,
        )


def _ports(container: Object, number: int | None) -> list[Object]:
    return [one for one in container.get("ports") or () if one.get("containerPort") == number]


def environment_patch(workload: Workload, variable: str, value: str, port: int | None = None) -> Patch | None:
    """Make a patch that sets a variable in the container at ``port``, else in the first that serves."""
    containers = servers(workload.pod_spec)
    if not containers:
        return None
    chosen = next((one for one in containers if _ports(one, port)), containers[0])
    entry = {"name": chosen.get("name"), "env": [{"name": variable, "value": value}]}
    return workload.patch({"containers": [entry]})


def speaks_http(workload: Workload, port: int) -> bool:
    """Whether a probe asks that port in plain http."""
    for container in workload.pod_spec.get("containers") or ():
        names = {port, *(one.get("name") for one in _ports(container, port))}
        for probe in ("readinessProbe", "livenessProbe", "startupProbe"):
            asked = (container.get(probe) or {}).get("httpGet") or {}
            if asked.get("port") in names and asked.get("scheme", "HTTP") == "HTTP":
                return True
    return False
