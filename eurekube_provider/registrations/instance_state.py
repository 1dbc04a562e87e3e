"""The inputs and outputs of a EurekaInstance as Eureka holds it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from eurekube_provider.registrations.actual import ActualState
from eurekube_provider.registrations.defaults import with_defaults, without_fixed_defaults
from eurekube_provider.registrations.desired import DesiredState
from eurekube_provider.registrations.difference import findings_of_refresh, marks_in_eureka
from eurekube_provider.registrations.instance_fields import instance_to_properties
from eurekube_provider.registrations.properties import (
    ASKED_STATUS_PROPERTY,
    ID_IS_DEFAULT_PROPERTY,
    INCARNATION_PROPERTY,
    INPUT_NAMES,
    Properties,
)


def outputs(properties: Mapping[str, Any], desired: DesiredState, held: ActualState) -> Properties:
    """Return the instance's state: the checked properties, replaced by the values that Eureka holds.

    ``owner`` stays as in the properties: Eureka must name this owner before we change or remove the instance,
    and it must never become somebody else's. ``seen_owner`` is the owner that Eureka names, empty for nobody.
    A fixed default that Eureka holds is left out, unless the earlier state has it: a refresh must not show it
    as removed.

    :param properties: checked properties, or an earlier state.
    """
    actual = held.all_instances[desired.single_registration.instance.key]
    given, properties = properties.keys(), with_defaults(properties)
    registration = desired.single_registration
    asked = registration.asked_status if registration.enforced_status is not None else None
    result = {
        **{key: properties[key] for key in (*INPUT_NAMES, ID_IS_DEFAULT_PROPERTY) if key in properties},
        **instance_to_properties(actual),
        "owner": properties["owner"],
        INCARNATION_PROPERTY: properties.get(INCARNATION_PROPERTY),
        "overridden_status": actual.overridden_status.value,
        "last_updated": _format_timestamp(actual.last_updated_timestamp_ms),
        "seen_owner": actual.owner or "",
        "status_is_enforced": registration.enforced_status is not None,
        **marks_in_eureka(desired, actual, asked),
        ASKED_STATUS_PROPERTY: asked.value if asked not in (None, actual.status) else None,
    }
    result = {key: value for key, value in result.items() if value is not None}
    return {**without_fixed_defaults(result), **{key: result[key] for key in given & result.keys()}}


def inputs(outs: Mapping[str, Any]) -> Properties:
    """Return the inputs that ask for the instance as Eureka holds it, so that a preview shows drift."""
    wanted = {key: outs[key] for key in (*INPUT_NAMES, ID_IS_DEFAULT_PROPERTY) if key in outs}
    if not with_defaults(outs)["status_is_enforced"]:
        wanted.pop("status", None)
    return {**without_fixed_defaults(wanted), **findings_of_refresh(outs)}


def resource_id(desired: DesiredState, _properties: Mapping[str, Any]) -> str:
    """Return the id of the EurekaInstance in Pulumi."""
    return "/".join(desired.single_registration.instance.key)


def _format_timestamp(timestamp_ms: int | None) -> str | None:
    if timestamp_ms is None:
        return None
    moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
