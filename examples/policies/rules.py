"""An organization's rules for registrations, as plain functions that tests call without Pulumi."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

ONE = ("eurekube:index:Instance", "pulumi-python:dynamic/eurekube:EurekaInstance")
MANY = ("eurekube:index:Application", "pulumi-python:dynamic/eurekube:EurekaApplication")
"""The types of an application's resource in the native and in the dynamic provider."""


def registrations(resource_type: str, properties: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the registrations of a resource by key; an instance's own values override those of its
    application.

    The dynamic provider writes `drain_seconds` where the native one writes `drainSeconds`.
    """
    if resource_type in ONE:
        return {"": properties}
    if resource_type in MANY:
        shared = {name: value for name, value in properties.items() if name != "instances"}
        return {key: {**shared, **own} for key, own in properties["instances"].items()}
    return {}


def is_drained(registration: Mapping[str, Any], _names: Iterable[str]) -> str:
    """Require that a registration stays out of service before its removal, so that callers forget it
    first.
    """
    seconds = registration.get("drainSeconds", registration.get("drain_seconds")) or 0
    return "" if seconds > 0 else "set drainSeconds: callers remember a registration for up to a minute"


def has_zone(registration: Mapping[str, Any], _names: Iterable[str]) -> str:
    """Require that a registration gives its zone."""
    return "" if registration.get("zone") else "set zone: without one no caller prefers what is near"


def has_known_name(registration: Mapping[str, Any], names: Iterable[str]) -> str:
    """Require that a registration's application is one of the organization's names."""
    name = str(registration["application"]).lower()
    return "" if name in names else f"the application {name!r} is not in the list of names"


RULES = {"drained": is_drained, "zone": has_zone, "known-name": has_known_name}
"""The rule of each policy by name; a rule returns a message, empty if the registration conforms."""


def violations(
    rule: str, resource_type: str, properties: Mapping[str, Any], names: Iterable[str] = ()
) -> list[str]:
    """Return the messages of one rule about a resource, each with the key of its instance."""
    found = []
    for key, registration in registrations(resource_type, properties).items():
        messages = RULES[rule](registration, names)
        if messages:
            found.append(f"{key}: {messages}" if key else messages)
    return found
