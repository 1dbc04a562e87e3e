"""Checks of a pod's spec for settings that end the pod while callers still call it, and their corrections.

Pure, on a pod's spec as the API's JSON has it. ``eurekube doctor`` checks workloads by it, the operator the
pods behind a syncer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from eurekube_provider.core.drain_time import DEFAULT_SHUTDOWN_SECONDS
from eurekube_provider.core.objects import Object
from eurekube_provider.core.prestop import (
    SLEEP_COMMAND_PATTERN,
    PreStopHook,
    containers_with_ports_or_all,
    early_ending_sidecars,
    grace_period_seconds,
    prestop_sleep_seconds,
)


class ShortfallKind(StrEnum):
    """The kinds of shortfalls in a pod's spec."""

    NO_PRE_STOP = "NoPreStop"
    """Pods end at once when they are deleted, while callers go on calling them."""

    PRE_STOP_TOO_SHORT = "PreStopTooShort"
    """Pods wait before they end, but for a shorter time than callers remember them."""

    GRACE_PERIOD_TOO_SHORT = "GracePeriodTooShort"
    """The grace period ends before the preStop, and the kubelet kills the pod."""


@dataclass(frozen=True, slots=True)
class Shortfall:
    """One setting that is too short in a pod's spec.

    :ivar container: the container that ends too early, or whose preStop is cut off.
    :ivar problem_sentence: the fault and its effect.
    :ivar remedy: the change that fixes it, in words.
    :ivar pod_spec_patch: the change as a strategic merge patch of the spec; None where a preStop already does
        something else, which must be kept.
    """

    kind: ShortfallKind
    container: str
    problem_sentence: str
    remedy: str
    pod_spec_patch: Mapping[str, Any] | None


def find_shortfalls(
    pod_spec: Object,
    needed_seconds: int,
    hook: PreStopHook = PreStopHook.SLEEP,
    shutdown_seconds: int = DEFAULT_SHUTDOWN_SECONDS,
) -> Iterator[Shortfall]:
    """Find the settings that keep a pod from serving until no caller knows it any more.

    :param needed_seconds: for how long callers may call the pod after its deletion began.
    :param hook: the kind of preStop to add where a container has none.
    :param shutdown_seconds: the time that the process itself needs after SIGTERM.
    """
    grace = grace_period_seconds(pod_spec)
    ending = [("containers", one) for one in containers_with_ports_or_all(pod_spec)]
    ending += [("initContainers", one) for one in early_ending_sidecars(pod_spec)]
    for group, container in ending:
        name, slept = str(container.get("name")), prestop_sleep_seconds(container)
        prestop: Object = (container.get("lifecycle") or {}).get("preStop") or {}
        enough = {"terminationGracePeriodSeconds": max(grace, max(needed_seconds, slept) + shutdown_seconds)}
        longer = f"set terminationGracePeriodSeconds to {enough['terminationGracePeriodSeconds']}"
        if slept < needed_seconds:
            prestop_patch = _waiting_prestop(prestop, needed_seconds, hook)
            yield Shortfall(
                ShortfallKind.PRE_STOP_TOO_SHORT if slept else ShortfallKind.NO_PRE_STOP,
                name,
                f"container {name} {_describe_container_ending(prestop, slept)} when its pod is deleted, and "
                f"callers may call it for {needed_seconds} s more",
                f"let a preStop sleep for {needed_seconds} s"
                + ("" if prestop_patch else ", after what it does already")
                + f", and {longer}",
                {**enough, group: [{"name": name, "lifecycle": {"preStop": prestop_patch}}]}
                if prestop_patch
                else None,
            )
        if slept and grace <= slept:
            yield Shortfall(
                ShortfallKind.GRACE_PERIOD_TOO_SHORT,
                name,
                f"terminationGracePeriodSeconds is {grace}: the preStop of container {name}, which sleeps for"
                f" {slept} s, is cut off, and the process is killed while it answers",
                longer,
                enough,
            )


def _describe_container_ending(prestop: Object, slept: int) -> str:
    if slept:
        return f"serves on for {slept} s"
    return "has a preStop that does not sleep" if prestop else "has no preStop and ends at once"


def _waiting_prestop(prestop: Object, seconds: int, hook: PreStopHook) -> dict[str, Any] | None:
    """Return the preStop changed to sleep for ``seconds``; None where it does something else."""
    if prestop.get("sleep"):
        return PreStopHook.SLEEP.build_waiting_hook(seconds)
    if not prestop:
        return hook.build_waiting_hook(seconds)
    command: Sequence[str] = (prestop.get("exec") or {}).get("command") or ()
    if len(command) == 2 and SLEEP_COMMAND_PATTERN.search(" ".join(command)):
        return {"exec": {"command": [command[0], str(seconds)]}}
    if sum(len(SLEEP_COMMAND_PATTERN.findall(word)) for word in command) != 1:
        return None
    return {
        "exec": {"command": [SLEEP_COMMAND_PATTERN.sub(rf"\g<1>sleep {seconds}", word) for word in command]}
    }
