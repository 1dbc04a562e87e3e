"""Properties of a EurekaInstance that follow from the others, so that its state need not hold them.

The engine writes the whole state at every step: docs/decisions/0018-a-state-says-nothing-twice.md.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from types import MappingProxyType
from typing import Any

from eurekube_provider.core.identity import StackOwner, parse_owner
from eurekube_provider.registrations.properties import ID_IS_DEFAULT_PROPERTY, PROPERTIES
from eurekube_provider.registrations.values import UNKNOWN, UnknownMarker

FIXED_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {each.name: each.default for each in PROPERTIES if each.default is not None}
)
"""The defaults that are the same for every registration."""

_PROPERTIES_WITH_DERIVED_DEFAULT = tuple(
    each for each in PROPERTIES if each.derive is not None and each.name not in FIXED_DEFAULTS
)
"""Properties whose default is derived from properties before them."""

_STATE_ONLY_PROPERTY = "overridden_status"
"""A property that is in every state, read from Eureka, and never among checked properties."""

_DERIVED_NAMES = tuple(each.name for each in reversed(_PROPERTIES_WITH_DERIVED_DEFAULT))
DERIVABLE_INPUT_NAMES = (ID_IS_DEFAULT_PROPERTY, *_DERIVED_NAMES)
"""Properties that the check derives from a program's inputs, and can derive again."""

DERIVABLE_OUTPUT_NAMES = (ID_IS_DEFAULT_PROPERTY, "status_is_enforced", "seen_owner")
"""Properties of a state that :func:`with_defaults` derives again."""


def without_fixed_defaults(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return properties without those that equal their fixed default, but for a secure port that is enabled,
    and a disabled one that is not 443: whoever names a secure port enables it.
    """
    port = "secure_port"
    is_other = port in properties and properties[port] != FIXED_DEFAULTS[port]
    kept = {"secure_port_enabled"} if is_other else {port} if properties.get("secure_port_enabled") else set()
    return {
        key: value
        for key, value in properties.items()
        if key not in FIXED_DEFAULTS or value != FIXED_DEFAULTS[key] or key in kept
    }


def without_derivable(
    properties: Mapping[str, Any], names: tuple[str, ...], kept: Container[str] = ()
) -> dict[str, Any]:
    """Return properties without those of ``names`` that :func:`with_defaults` puts back with the same value.

    :param names: :data:`DERIVABLE_INPUT_NAMES` or :data:`DERIVABLE_OUTPUT_NAMES`.
    :param kept: properties that stay nevertheless: a secret, which is marked only in its place, and a
        property of an earlier state, so that a refresh does not show it as removed.
    """
    short = dict(properties)
    going = [name for name in names if name in short and name not in kept]
    all_gone = {key: value for key, value in short.items() if key not in going}
    full = with_defaults(all_gone)
    if all(full.get(name) == short[name] for name in going):
        return all_gone
    for name in going:
        rest = {key: value for key, value in short.items() if key != name}
        if with_defaults(rest).get(name) == short[name]:
            short = rest
    return short


def with_defaults(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return properties with what :func:`without_fixed_defaults` and :func:`without_derivable` left out."""
    full = {**FIXED_DEFAULTS, **properties}
    for each in _PROPERTIES_WITH_DERIVED_DEFAULT:
        if each.name not in full and each.derive is not None:
            default = each.derive(full, full)
            if default is not None:
                full[each.name] = default
    if ID_IS_DEFAULT_PROPERTY not in full and "instance_id" in full:
        full[ID_IS_DEFAULT_PROPERTY] = full["instance_id"] == default_instance_id(full)
    if _STATE_ONLY_PROPERTY in full:
        full.setdefault("status_is_enforced", False)
        if "owner" in full:
            full.setdefault("seen_owner", full["owner"])
    return full


def default_instance_id(properties: Mapping[str, Any]) -> str | UnknownMarker | None:
    """Return ``<name>.<stack>.<project>:<application>:<port>``; None where a part cannot be used."""
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
