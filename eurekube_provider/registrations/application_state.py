"""The inputs and outputs of a EurekaApplication as Eureka holds it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from eurekube_provider.core.model import Instance, Status, same_contents_but_status
from eurekube_provider.registrations.actual import ActualState
from eurekube_provider.registrations.desired import DesiredState, program_key
from eurekube_provider.registrations.difference import findings_of_refresh, marks_in_eureka
from eurekube_provider.registrations.draining import without_drain_mark
from eurekube_provider.registrations.instance_fields import instance_to_properties
from eurekube_provider.registrations.members import (
    APPLICATION_INPUT_NAMES,
    ID_BASE_PROPERTY,
    member_inputs_matching,
)
from eurekube_provider.registrations.properties import INCARNATION_PROPERTY, Properties


def outputs(properties: Mapping[str, Any], desired: DesiredState, held: ActualState) -> Properties:
    """Return the state: an earlier one or checked properties, replaced where Eureka holds other values."""
    kept = {key: properties[key] for key in APPLICATION_INPUT_NAMES if key in properties}
    found: defaultdict[str, Properties] = defaultdict(dict)  # each property's values by key
    instances = found["instances"]
    found_before = properties.get("statuses") or {}
    for key, each in desired.registrations.items():
        place = each.instance.key
        actual = held.owned.get(place) or held.owned_by_others.get(place)
        if actual is None:
            continue
        for mark, value in marks_in_eureka(
            desired, actual, each.asked_status or each.enforced_status
        ).items():
            found[mark][key] = value
        actual = without_drain_mark(actual)
        if actual.owner != desired.owner:
            found["held_by_others"][key] = actual.owner or ""
        # A status that an earlier refresh found is among the inputs by now; the program did not ask for it.
        if (
            actual.status is not (each.enforced_status or Status.UP)
            or found_before.get(key) == actual.status.value
        ):
            found["statuses"][key] = actual.status.value
        is_settled = same_contents_but_status(each.instance, actual) and each.enforced_status in (
            None,
            actual.status,
        )
        instances[key] = (
            dict(properties["instances"][key])
            if is_settled
            else member_inputs_matching(
                properties, key, _member_properties(actual, with_status=each.enforced_status is not None)
            )
        )
    for extra in held.surplus_instances(desired):
        # Left by a call that failed: shown, so that the next one removes it.
        key = program_key(extra, {})
        if key in instances:
            key = f"{key} {extra.instance_id}"
        instances[key] = member_inputs_matching(properties, key, _member_properties(extra, with_status=False))
    kept |= {name: properties[name] for name in ("created", INCARNATION_PROPERTY) if properties.get(name)}
    return {**kept, "statuses": {}, "held_by_others": {}, **found}


def inputs(outs: Mapping[str, Any]) -> Properties:
    """Return the inputs that ask for the instances as Eureka holds them, so that a preview shows drift."""
    return {**{key: outs[key] for key in APPLICATION_INPUT_NAMES if key in outs}, **findings_of_refresh(outs)}


def resource_id(desired: DesiredState, properties: Mapping[str, Any]) -> str:
    """Return the id of the EurekaApplication in Pulumi."""
    return f"{desired.application}/{properties[ID_BASE_PROPERTY]}"


def _member_properties(actual: Instance, *, with_status: bool) -> Properties:
    full = instance_to_properties(actual)
    if not with_status:
        del full["status"]
    return full
