"""The command ``eurekube gate open``, which opens the readiness gate of a workload's pods by hand."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping
from typing import Any

from eurekube_provider.cli.terminal import print_error_line, print_line
from eurekube_provider.core.errors import ConfigurationError, KubernetesError
from eurekube_provider.core.gate import (
    GateDecision,
    GateReason,
    build_gate_condition,
    declares_gate,
    is_gate_open,
    is_held_by_gate,
)
from eurekube_provider.core.objects import Object, conditions_of, qualified_name
from eurekube_provider.core.syncer import READINESS_GATE
from eurekube_provider.kube.access import (
    PODS,
    STRATEGIC_MERGE_PATCH_TYPE,
    WORKLOADS_BY_KIND,
    KubeAccess,
    list_objects_by_name,
)
from eurekube_provider.operator.settings import add_setting_flags

_API_RESOURCE_BY_KIND = {kind.lower(): resource for kind, resource in WORKLOADS_BY_KIND.items()} | {
    "pod": PODS
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        f"Open the readiness gate {READINESS_GATE} of all pods of a workload that wait for it, whatever "
        "callers know: the roll-out goes on at once, and takes away pods that callers may still need. For "
        "pods that wait while no operator runs, or while Eureka is away. Pods that come later wait again. "
        "The operator never closes a gate that is open. Needs the right to patch pods/status."
    )
    parser.add_argument("action", choices=("open",), help="what becomes of it: open is all that there is")
    parser.add_argument(
        "workload",
        metavar="KIND/NAME",
        help=f"{', '.join(sorted(_API_RESOURCE_BY_KIND))}, e.g. deployment/rating",
    )
    parser.add_argument("--namespace", "-n", metavar="NAME", required=True, help="the workload's namespace")
    add_setting_flags(parser, frozenset({"kubeconfig", "context"}))


def run(options: argparse.Namespace) -> int:
    """Open the gates, and return the exit code: 1 if a pod's gate could not be opened."""
    access = KubeAccess.load(options.kubeconfig, options.context)
    failed = False
    waiting = list(pods_waiting_for_gate(access, options.workload, options.namespace))
    for pod in waiting:
        try:
            open_gate(access, pod)
        except KubernetesError as error:
            failed = True
            print_error_line(f"eurekube gate: the gate of pod {qualified_name(pod)} is not open: {error}")
        else:
            print_line(f"pod {qualified_name(pod)}: its gate is open")
    if not waiting:
        print_line(f"no pod of {options.workload} waits for callers")
    return int(failed)


def pods_waiting_for_gate(access: KubeAccess, workload: str, namespace: str) -> Iterator[Object]:
    """Yield the pods of a workload that only their closed gate keeps from being ready.

    :param workload: kind and name, e.g. ``deployment/rating``.
    :raises ArgumentError: ``workload`` names no kind.
    :raises ConfigurationError: there is no such workload.
    :raises KubernetesError: the workload cannot be read.
    """
    kind, _, name = workload.partition("/")
    resource = _API_RESOURCE_BY_KIND.get(kind.lower())
    if resource is None or not name:
        raise argparse.ArgumentError(
            None,
            f"{workload}: must be a kind and a name, e.g. deployment/rating; kinds are"
            f" {', '.join(sorted(_API_RESOURCE_BY_KIND))}",
        )
    found = list_objects_by_name(access, resource, name, namespace)
    if not found:
        raise ConfigurationError(f"there is no {kind} {name} in namespace {namespace}")
    pods: list[Object] = list(found)
    if resource is not PODS:
        selector = format_label_selector(found[0]["spec"]["selector"])
        pods = [
            item
            for page in access.pages(PODS.path(namespace), query={"labelSelector": selector})
            for item in page["items"]
        ]
    for pod in pods:
        if declares_gate(pod["spec"]) and not is_gate_open(pod):
            if is_held_by_gate(pod):
                yield pod
            else:
                print_line(
                    f"pod {qualified_name(pod)}: left as it is, since more than the gate keeps it from being "
                    "ready"
                )


def format_label_selector(selector: Mapping[str, Any]) -> str:
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
    """Set the condition of a pod's gate to True; raise KubernetesError where it cannot be written."""
    step = GateDecision(GateReason.OPENED_BY_HAND, "a person opened it with eurekube gate open")
    condition = build_gate_condition(
        step, step.message, conditions_of(pod).get(READINESS_GATE, {}), time.time()
    )
    body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"conditions": [condition]}}
    path = PODS.path(pod["metadata"]["namespace"], pod["metadata"]["name"], "status")
    access.request("PATCH", path, body=body, content_type=STRATEGIC_MERGE_PATCH_TYPE)
