"""The command ``eurekube gate open``, which opens the readiness gate of a workload's pods by hand."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping
from typing import Any

from eurekube_provider.cli.terminal import complain, say
from eurekube_provider.core.errors import ConfigurationError, KubernetesError
from eurekube_provider.core.gate import (
    GateReason,
    GateStep,
    declares_gate,
    gate_condition,
    is_gate_open,
    is_held,
)
from eurekube_provider.core.objects import Object, conditions_of, qualified
from eurekube_provider.core.syncer import GATE
from eurekube_provider.kube.access import (
    PODS,
    STRATEGIC_MERGE_PATCH,
    WORKLOADS,
    KubeAccess,
    objects_named,
)
from eurekube_provider.operator.settings import add_settings

_KINDS = {kind.lower(): resource for kind, resource in WORKLOADS.items()} | {"pod": PODS}


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.description = (
        f"Open the readiness gate {GATE} of all pods of a workload that wait for it, whatever callers know:"
        " the roll-out goes on at once, and takes away pods that callers may still need. For pods that wait"
        " while no operator runs, or while Eureka is away. Pods that come later wait again. The operator"
        " never closes a gate that is open. Needs the right to patch pods/status."
    )
    parser.add_argument("action", choices=("open",), help="what becomes of it: open is all that there is")
    parser.add_argument(
        "workload", metavar="KIND/NAME", help=f"{', '.join(sorted(_KINDS))}, e.g. deployment/rating"
    )
    parser.add_argument("--namespace", "-n", metavar="NAME", required=True, help="the workload's namespace")
    add_settings(parser, frozenset({"kubeconfig", "context"}))


def run(options: argparse.Namespace) -> int:
    """Open the gates, and return the exit code: 1 if a pod's gate could not be opened."""
    access = KubeAccess.load(options.kubeconfig, options.context)
    failed = False
    waiting = list(waiting_pods(access, options.workload, options.namespace))
    for pod in waiting:
        try:
            open_gate(access, pod)
        except KubernetesError as error:
            failed = True
            complain(f"eurekube gate: the gate of pod {qualified(pod)} is not open: {error}")
        else:
            say(f"pod {qualified(pod)}: its gate is open")
    if not waiting:
        say(f"no pod of {options.workload} waits for callers")
    return int(failed)


def waiting_pods(access: KubeAccess, workload: str, namespace: str) -> Iterator[Object]:
    """Yield the pods of a workload that only their closed gate keeps from being ready.

    :param workload: kind and name, e.g. ``deployment/rating``.
    :raises ConfigurationError: there is no such workload.
    :raises KubernetesError: the workload cannot be read.
    """
    kind, _, name = workload.partition("/")
    resource = _KINDS.get(kind.lower())
    if resource is None or not name:
        raise ConfigurationError(
            f"{workload}: must be a kind and a name, e.g. deployment/rating; kinds are"
            f" {', '.join(sorted(_KINDS))}"
        )
    found = objects_named(access, resource, name, namespace)
    if not found:
        raise ConfigurationError(f"there is no {kind} {name} in namespace {namespace}")
    pods: list[Object] = list(found)
    if resource is not PODS:
        selector = selector_text(found[0]["spec"]["selector"])
        pods = [
            item
            for page in access.pages(PODS.path(namespace), query={"labelSelector": selector})
            for item in page["items"]
        ]
    for pod in pods:
        if declares_gate(pod["spec"]) and not is_gate_open(pod):
            if is_held(pod):
                yield pod
            else:
                say(
                    f"pod {qualified(pod)}: left as it is, since more than the gate keeps it from being ready"
                )


def selector_text(selector: Mapping[str, Any]) -> str:
    """Return a workload's selector in the form of the API's query parameter."""
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for one in selector.get("matchExpressions") or ():
        key, operator, values = one["key"], one["operator"], ",".join(one.get("values") or ())
        texts = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }
        parts.append(texts[operator])
    return ",".join(parts)


def open_gate(access: KubeAccess, pod: Object) -> None:
    """Set the condition of a pod's gate to True.

    :raises KubernetesError: the condition cannot be written.
    """
    step = GateStep(GateReason.OPENED_BY_HAND, "a person opened it with eurekube gate open")
    condition = gate_condition(step, step.message, conditions_of(pod).get(GATE, {}), time.time())
    body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"conditions": [condition]}}
    path = PODS.path(pod["metadata"]["namespace"], pod["metadata"]["name"], "status")
    access.request("PATCH", path, body=body, content_type=STRATEGIC_MERGE_PATCH)
