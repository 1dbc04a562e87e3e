"""The preStop hook in pod templates: reading and writing how long a pod serves after its deletion began.

Pure, on the objects as the API's JSON has them. A pod that is deleted leaves Eureka at once; its containers
get SIGTERM only when their preStop has ended, and until then they serve callers that still know them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from eurekube_provider.core.drain_time import DEFAULT_SHUTDOWN_SECONDS, Drain
from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.objects import Object
from eurekube_provider.core.syncer import READINESS_GATE

ValueTransform = Callable[[Any], Any]

DEFAULT_PROGRESS_DEADLINE_SECONDS = 600
"""Kubernetes' default of a Deployment's ``progressDeadlineSeconds``."""

SLEEP_COMMAND_PATTERN = re.compile(r"(^|[\s;&/])sleep(?P<times>(?:\s+\d+(?:\.\d+)?[smhd]?)+)(?![\w.])")
"""A ``sleep`` in a shell command, at the start or after a separator; ``times`` are its durations."""

_SLEEP_TIME_PATTERN = re.compile(r"([\d.]+)([smhd]?)")
_SECONDS_BY_UNIT = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


class PreStopHook(StrEnum):
    """The kinds of preStop hooks that wait."""

    SLEEP = "sleep"
    """The kubelet waits. Needs Kubernetes 1.30 or newer, and nothing in the image."""
    EXEC = "exec"
    """The container runs ``sleep``, which its image must have; for older clusters."""

    def build_waiting_hook(self, seconds: int) -> dict[str, Any]:
        """Return the ``preStop`` that waits for this many seconds."""
        if self is PreStopHook.SLEEP:
            return {"sleep": {"seconds": seconds}}
        return {"exec": {"command": ["sleep", str(seconds)]}}


def serving_seconds_after_deletion(pod_spec: Object) -> int:
    """Return for how many seconds a pod serves after its deletion began: until its first server's SIGTERM.

    A container that names no port counts only if none does. A preStop that does not sleep counts as 0, and a
    grace period that is shorter than a sleep cuts it off. A native sidecar counts if its own preStop may end
    it before the others, see :func:`early_ending_sidecars`.
    """
    ends = map(
        prestop_sleep_seconds, (*containers_with_ports_or_all(pod_spec), *early_ending_sidecars(pod_spec))
    )
    return min((*ends, grace_period_seconds(pod_spec)))


def containers_with_ports_or_all(pod_spec: Object) -> Sequence[Object]:
    """Return the containers that serve: those that name a port or, where none does, all."""
    containers: Sequence[Object] = pod_spec.get("containers") or ()
    return [one for one in containers if one.get("ports")] or containers


def early_ending_sidecars(pod_spec: Object) -> Sequence[Object]:
    """Return the native sidecars that serve, and may stop serving before the containers do.

    A native sidecar is an init container with ``restartPolicy: Always``. The kubelet runs its preStop when
    the pod's deletion begins, and sends it SIGTERM after the last container has ended (``killContainer`` in
    pkg/kubelet/kuberuntime). So it outlives the others, unless its preStop does more than sleep. Istio's
    sidecar has Envoy drain, but goes on accepting connections (``skip_exit``), and does not count.
    """
    return [
        one
        for one in pod_spec.get("initContainers") or ()
        if one.get("restartPolicy") == "Always"
        and one.get("ports")
        and not _keeps_serving_during_prestop((one.get("lifecycle") or {}).get("preStop") or {})
    ]


def _keeps_serving_during_prestop(hook: Object) -> bool:
    """Return whether a container with this preStop, or none, serves while it runs, until SIGTERM."""
    command: Sequence[str] = (hook.get("exec") or {}).get("command") or ()
    is_sleep = len(command) > 1 and command[0].rpartition("/")[2] == "sleep"
    is_istio = len(command) > 1 and command[0].rpartition("/")[2] == "pilot-agent" and command[-1] == "drain"
    return not hook or bool(hook.get("sleep")) or is_sleep or is_istio


def grace_period_seconds(pod_spec: Object) -> int:
    """Return the seconds that a pod has for its preStop hook and its shutdown together."""
    given = pod_spec.get("terminationGracePeriodSeconds")
    return DEFAULT_SHUTDOWN_SECONDS if given is None else int(given)


def prestop_sleep_seconds(container: Object) -> int:
    """Return the seconds for which a container's preStop sleeps, by itself or in a command; 0 for neither."""
    hook = (container.get("lifecycle") or {}).get("preStop") or {}
    if hook.get("sleep"):
        return int(hook["sleep"].get("seconds") or 0)
    command = " ".join((hook.get("exec") or {}).get("command") or ())
    times = " ".join(found["times"] for found in SLEEP_COMMAND_PATTERN.finditer(command))
    return int(
        sum(float(number) * _SECONDS_BY_UNIT[unit] for number, unit in _SLEEP_TIME_PATTERN.findall(times))
    )


def progress_deadline_seconds(given: Any, min_ready_seconds: int) -> int:
    """Return a Deployment's ``progressDeadlineSeconds``: as given, or ``min_ready_seconds`` and ten minutes.

    The API server refuses a deadline within which no pod can become available.

    :param given: None for Kubernetes' own 600.
    """
    deadline = int(given or DEFAULT_PROGRESS_DEADLINE_SECONDS)
    if deadline > min_ready_seconds:
        return deadline
    return min_ready_seconds + DEFAULT_PROGRESS_DEADLINE_SECONDS


def add_drain_to_workload(
    kind: str,
    spec: Object,
    drain: Drain,
    hook: PreStopHook = PreStopHook.SLEEP,
    containers: Sequence[str] = (),
    apply_when_known: Callable[[Any, ValueTransform], Any] = lambda value, change: change(value),
    *,
    declares_gate: bool = False,
) -> dict[str, Any]:
    """Return the ``spec`` of a Deployment or a StatefulSet changed so that its pods drain before they stop.

    Its containers get a preStop that waits, the grace period grows by the same time, and ``minReadySeconds``
    is raised to it, unless it is longer already; a Deployment's ``progressDeadlineSeconds`` stays longer than
    ``minReadySeconds``.

    :param containers: the names of the containers that get a preStop; none: all.
    :param apply_when_known: changes a part that may not be known yet; by default every part is plain JSON.
    :param declares_gate: True if the pods declare the readiness gate, in place of ``minReadySeconds``.
    :raises ConfigurationError: a container has a preStop already, or one of ``containers`` does not exist.
    """

    def drain_template(template: Object) -> dict[str, Any]:
        changed = apply_when_known(template.get("spec") or {}, lambda inner: _add_drain_to_pod(inner, *rest))
        if declares_gate:
            changed = apply_when_known(changed, with_readiness_gate)
        return {**template, "spec": changed}

    rest = drain, hook, containers, apply_when_known
    needed = drain.known_after_seconds if declares_gate else drain.min_ready_seconds
    min_ready = apply_when_known(spec.get("minReadySeconds"), lambda given: max(needed, int(given or 0)))
    result = {**spec, "template": apply_when_known(spec.get("template") or {}, drain_template)}
    if not declares_gate:
        result["minReadySeconds"] = min_ready
    if kind == "Deployment":
        given = spec.get("progressDeadlineSeconds")
        deadline = apply_when_known(
            min_ready,
            lambda least: apply_when_known(given, lambda seconds: progress_deadline_seconds(seconds, least)),
        )
        if given is not None or deadline != DEFAULT_PROGRESS_DEADLINE_SECONDS:
            result["progressDeadlineSeconds"] = deadline
    return result


def with_readiness_gate(pod_spec: Object) -> dict[str, Any]:
    """Return a pod's spec with the readiness gate declared."""
    given = pod_spec.get("readinessGates") or []
    is_there = any(one.get("conditionType") == READINESS_GATE for one in given)
    return {
        **pod_spec,
        "readinessGates": [*given, *([] if is_there else [{"conditionType": READINESS_GATE}])],
    }


def _add_drain_to_pod(
    spec: Object,
    drain: Drain,
    hook: PreStopHook,
    names: Sequence[str],
    apply_when_known: Callable[[Any, ValueTransform], Any],
) -> dict[str, Any]:
    def extend_grace_period(given: Any) -> int:
        return drain.grace_period_seconds(DEFAULT_SHUTDOWN_SECONDS if given is None else max(1, int(given)))

    def drain_containers(containers: Sequence[Any]) -> list[Any]:
        if names:
            _require_containers(names, containers)
        return [apply_when_known(one, drain_container) for one in containers]

    def drain_container(one: Object) -> Object:
        if names and one.get("name") not in names:
            return one
        lifecycle = apply_when_known(
            one.get("lifecycle") or {}, lambda given: _with_prestop(one, given, drain, hook)
        )
        return {**one, "lifecycle": lifecycle}

    return {
        **spec,
        "terminationGracePeriodSeconds": apply_when_known(
            spec.get("terminationGracePeriodSeconds"), extend_grace_period
        ),
        "containers": apply_when_known(spec.get("containers") or [], drain_containers),
    }


def _with_prestop(container: Object, lifecycle: Object, drain: Drain, hook: PreStopHook) -> dict[str, Any]:
    seconds = drain.prestop_seconds
    if lifecycle.get("preStop"):
        raise ConfigurationError(
            f"the container {container.get('name')!r} has a preStop already, which is not overwritten: remove"
            f" it, or let it sleep for {seconds} s itself and name the containers that shall get one"
        )
    return {**lifecycle, "preStop": hook.build_waiting_hook(seconds)}


def _require_containers(names: Sequence[str], containers: Sequence[Any]) -> None:
    """Refuse a name that no container has; nothing is refused while some containers are not known yet."""
    known = [one.get("name") for one in containers if isinstance(one, Mapping)]
    if len(known) < len(containers):
        return
    for name in names:
        if name not in known:
            raise ConfigurationError(
                f"there is no container {name!r}; there are {', '.join(map(str, known))}"
            )
