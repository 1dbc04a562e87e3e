"""Differences between desired instances and those in Eureka, with their causes; a group shares one cause."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from eurekube_provider.core.model import Instance, intern_text
from eurekube_provider.core.plan import (
    Action,
    Change,
    Plan,
    Refusal,
    RefusalReason,
    describe_differences,
    describe_owner,
    self_registration_remedy,
)
from eurekube_provider.core.wording import format_count

MAX_NAMED_DIFFERENCES = 5
"""The number of instances of a group that are named; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One instance that differs between Kubernetes and Eureka.

    :param kubernetes: the desired status and address; empty for an instance that should not exist.
    :param eureka: the status and address in Eureka; empty for a missing instance.
    :param cause: the reason without this instance's id and address, equal for all instances with one cause.
    """

    application: str
    instance_id: str
    kubernetes: str
    eureka: str
    why: str
    cause: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {
            "application": self.application,
            "instanceId": self.instance_id,
            "kubernetes": self.kubernetes,
            "eureka": self.eureka,
            "why": self.why,
        }


def difference_of_change(change: Change, why: str = "") -> Difference:
    """Return the difference that a change would remove, with why it was not made; empty if not known."""
    instance, actual = change.instance, change.actual
    changed = ""
    if actual is not None and change.action in (Action.UPDATE, Action.SET_STATUS):
        changed = f"{', '.join(describe_differences(instance, actual))}; "
    return Difference(
        *instance.key,
        kubernetes="" if change.action is Action.DEREGISTER else status_and_address(instance),
        eureka=status_and_address(actual) if actual else "",
        why=f"{changed}{why}" if changed or why else _default_cause(change),
        cause=intern_text(mask_instance_names(instance, why) if why else _default_cause(change)),
    )


def difference_of_refusal(refusal: Refusal) -> Difference:
    """Return the difference that stays because another owner has the instance."""
    cause = f"{describe_owner(refusal.actual)} and was left as it is"
    if refusal.reason is RefusalReason.SELF_REGISTERED:
        cause = (
            f"registered by its own client at the same address: {self_registration_remedy(refusal.actual)}, "
            "and the syncer registers it"
        )
    return Difference(
        *refusal.instance.key,
        kubernetes=status_and_address(refusal.instance),
        eureka=status_and_address(refusal.actual),
        why=refusal.describe(),
        cause=intern_text(cause),
    )


def differences_in_plan(plan: Plan, why: str = "") -> list[Difference]:
    """Return the differences of a plan, one for each instance."""
    found = {one.instance.key: difference_of_refusal(one) for one in plan.refusals}
    for change in plan.changes:
        found.setdefault(change.instance.key, difference_of_change(change, why))
    return list(found.values())


def status_and_address(instance: Instance) -> str:
    """Return status and address of an instance, e.g. ``UP 10.0.0.1:8080``."""
    return f"{instance.status} {instance.address}"


def _default_cause(change: Change) -> str:
    if change.action is Action.REGISTER:
        return "not in Eureka"
    if change.action is Action.DEREGISTER or change.actual is None:
        return "no longer in Kubernetes"
    fields = describe_differences(change.instance, change.actual)
    statuses = [one for one in fields if one.startswith("status: ")]
    others = [one.partition(":")[0] for one in fields if not one.startswith("status: ")]
    parts = [*statuses, *([f"{', '.join(others)} differ"] if others else [])]
    return "; ".join(parts) or "its status differs"


def mask_instance_names(instance: Instance, sentence: str) -> str:
    """Return a sentence without an instance's id and address, to fit others with the same cause."""
    for word in (instance.instance_id, instance.address):
        sentence = sentence.replace(word, "…")
    return sentence


@dataclass(frozen=True, slots=True)
class DifferenceGroup:
    """Instances of one application that differ for one cause."""

    cause: str
    differences: Sequence[Difference]

    @property
    def summary(self) -> str:
        """The number of instances and the cause, e.g. ``2 instances: not in Eureka``."""
        return f"{format_count(len(self.differences))}: {self.cause}"

    @property
    def first_differences(self) -> Sequence[Difference]:
        """The first differences of the group, which are named."""
        return self.differences[:MAX_NAMED_DIFFERENCES]

    @property
    def omitted_count(self) -> int:
        """The number of differences that are not named."""
        return len(self.differences) - len(self.first_differences)


def group_by_cause(found: Iterable[Difference]) -> list[DifferenceGroup]:
    """Group differences by their cause, the largest group first."""
    groups: dict[str, list[Difference]] = {}
    for one in found:
        groups.setdefault(one.cause or one.why, []).append(one)
    return [
        DifferenceGroup(cause, tuple(those))
        for cause, those in sorted(groups.items(), key=lambda group: -len(group[1]))
    ]
