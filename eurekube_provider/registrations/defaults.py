"""Properties of a EurekaInstance that follow from the others, so that its state need not hold them.

Pulumi's engine writes the whole state again at every step of every resource, and the cost grows with the
number of properties. The forms and their costs: docs/decisions/0018-a-state-says-nothing-twice.md.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from types import MappingProxyType
from typing import Any

from eurekube_provider.core.identity import StackOwner, parse_owner
from eurekube_provider.registrations.properties import DEFAULT_ID, PROPERTIES
from eurekube_provider.registrations.values import UNKNOWN, Marker

FIXED: Mapping[str, Any] = MappingProxyType(
    {each.name: each.default for each in PROPERTIES if each.default is not None}
)
"""The defaults that are the same for every registration."""

_DERIVED = tuple(each for each in PROPERTIES if each.derive is not None and each.name not in FIXED)
"""Properties whose default is derived from properties before them."""

_READ_BACK = "overridden_status"
"""A property that every state has from Eureka, and that checked properties never have."""

NOT_AMONG_INPUTS = (DEFAULT_ID, *(each.name for each in reversed(_DERIVED)))
"""Properties that the check derives from a program's inputs, and can derive again."""

NOT_AMONG_OUTPUTS = (DEFAULT_ID, "status_is_enforced", "seen_owner")
"""Properties of an instance that no program reads, or reads only where they have a value."""


def shortened(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return properties without those that equal their fixed default.

    An enabled secure port is kept, even at its default.
    """
    kept = {"secure_port"} if properties.get("secure_port_enabled") else set()
    return {
        key: value
        for key, value in properties.items()
        if key not in FIXED or value != FIXED[key] or key in kept
    }


def without_derivable(
    properties: Mapping[str, Any], names: tuple[str, ...], kept: Container[str] = ()
) -> dict[str, Any]:
    """Return properties without those of ``names`` that :func:`completed` puts back with the same value.

    :param names: :data:`NOT_AMONG_INPUTS` or :data:`NOT_AMONG_OUTPUTS`.
    :param kept: properties that stay nevertheless: a secret, which is marked only in its place, and a
        property of an earlier state, so that a refresh does not show it as removed.
    """
    short = dict(properties)
    going = [name for name in names if name in short and name not in kept]
    all_gone = {key: value for key, value in short.items() if key not in going}
    full = completed(all_gone)
    if all(full.get(name) == short[name] for name in going):
        return all_gone
    for name in going:
        rest = {key: value for key, value in short.items() if key != name}
        if completed(rest).get(name) == short[name]:
            short = rest
    return short


def completed(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return properties with all defaults: undo :func:`shortened` and :func:`without_derivable`."""
    full = {**FIXED, **properties}
    for each in _DERIVED:
        if each.name not in full and each.derive is not None:
            default = each.derive(full, full)
            if default is not None:
                full[each.name] = default
    if DEFAULT_ID not in full and "instance_id" in full:
        full[DEFAULT_ID] = full["instance_id"] == default_instance_id(full)
    if _READ_BACK in full:
        full.setdefault("status_is_enforced", False)
        if "owner" in full:
            full.setdefault("seen_owner", full["owner"])
    return full


def default_instance_id(properties: Mapping[str, Any]) -> str | Marker | None:
    """Return ``<name>.<stack>.<project>:<application>:<port>``; None where one of the parts cannot be
    used.
    """
    application, port = properties.get("application"), properties.get("port")
    owner = properties.get("owner")
    if UNKNOWN in (application, port, owner):
        return UNKNOWN
    parsed = parse_owner(owner) if isinstance(owner, str) else None
    if not isinstance(application, str) or not isinstance(parsed, StackOwner):
        return None
    if not isinstance(port, int | float) or port % 1 != 0:  # the engine makes a float of every number
        return None
    return f"{parsed.name}.{parsed.stack}.{parsed.project}:{application.lower()}:{int(port)}"
