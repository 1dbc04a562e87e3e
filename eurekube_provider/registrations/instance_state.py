"""Comparison of a EurekaInstance's state with a program, and its inputs and outputs as Eureka holds them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from eurekube_provider.registrations.actual import ActualState
from eurekube_provider.registrations.defaults import with_defaults, without_fixed_defaults
from eurekube_provider.registrations.desired import DesiredState
from eurekube_provider.registrations.difference import (
    StateDifference,
    differing_incarnation,
    findings_of_refresh,
    has_changed,
    has_leftovers,
    has_stale_enforced_mark,
    have_no_url_in_common,
)
from eurekube_provider.registrations.instance_fields import instance_to_properties
from eurekube_provider.registrations.properties import (
    ASKED_STATUS_PROPERTY,
    ID_IS_DEFAULT_PROPERTY,
    INCARNATION_PROPERTY,
    INPUT_NAMES,
    LEAVING_MARK,
    SEEN_INCARNATION_PROPERTY,
    STILL_ENFORCED_MARK,
    Properties,
    contains_unknown,
)

IDENTITY_PROPERTY_NAMES = ("application", "instance_id")
"""Properties that identify a registration: a change of one makes another registration."""


def diff(olds: Mapping[str, Any], news: Mapping[str, Any]) -> StateDifference:
    """Compare an instance's state, as Eureka held it, with the checked properties of the program.

    Another application, id or set of servers makes another registration, which is made before the old one is
    removed. Two lists of URLs without a common one may still lead to the same Eureka: the new one then stands
    in the old one's place with an incarnation of its own, and the removal of the old one leaves it. Lists
    that share a URL are the same Eureka and update in place; their order means nothing.

    :param olds: a state's outputs.
    :param news: checked properties; anything may still be unknown, and counts as a change.
    """
    replaces = [name for name in IDENTITY_PROPERTY_NAMES if olds.get(name) != news.get(name)]
    if have_no_url_in_common(olds, news):
        replaces.append("service_url")
    if contains_unknown(news):
        return StateDifference(has_changes=True, replaces=tuple(replaces))
    have = DesiredState.from_properties(olds)
    want = DesiredState.from_properties({**news, INCARNATION_PROPERTY: have.incarnation})
    changes = (
        bool(replaces)
        or has_leftovers(olds, news)
        or has_changed(have.single_registration, want.single_registration)
        or olds.get("seen_owner", have.owner) != have.owner
        or olds.get(SEEN_INCARNATION_PROPERTY, have.incarnation) != have.incarnation
        or want.management_properties != have.management_properties
    )
    return StateDifference(changes, tuple(replaces))


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
        SEEN_INCARNATION_PROPERTY: differing_incarnation(desired, actual),
        "overridden_status": actual.overridden_status.value,
        "last_updated": _format_timestamp(actual.last_updated_timestamp_ms),
        "seen_owner": actual.owner or "",
        "status_is_enforced": registration.enforced_status is not None,
        LEAVING_MARK: True if actual.is_leaving else None,
        STILL_ENFORCED_MARK: actual.enforced if has_stale_enforced_mark(actual, asked) else None,
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
