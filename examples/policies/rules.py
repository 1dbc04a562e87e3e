"""Rules of an organization for each registration: plain functions, which tests call without Pulumi."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

ONE = ("eurekube:index:Instance", "pulumi-python:dynamic/eurekube:EurekaInstance")
MANY = ("eurekube:index:Application", "pulumi-python:dynamic/eurekube:EurekaApplication")
"""The resources of the native and of the dynamic provider."""


def registrations(resource_type: str, properties: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The registrations of a resource: by key those of an application, whose own values come first.

    The dynamic provider writes `drain_seconds` where the native one writes `drainSeconds`.
    """
    if resource_type in ONE:
        return {"": properties}
    if resource_type in MANY:
        shared = {name: value for name, value in properties.items() if name != "instances"}
        return {key: {**shared, **own} for key, own in properties["instances"].items()}
    return {}


def is_drained(registration: Mapping[str, Any], _names: Iterable[str]) -> str:
    """It stays out of service before it is removed, so that callers forget it first."""
    seconds = registration.get("drainSeconds", registration.get("drain_seconds")) or 0
    return "" if seconds > 0 else "set drainSeconds: callers remember a registration for up to a minute"


def has_zone(registration: Mapping[str, Any], _names: Iterable[str]) -> str:
    """It says where it runs."""
    return "" if registration.get("zone") else "set zone: without one no caller prefers what is near"


def has_known_name(registration: Mapping[str, Any], names: Iterable[str]) -> str:
    """Its application is one of those that this organization has."""
    name = str(registration["application"]).lower()
    return "" if name in names else f"the application {name!r} is not in the list of names"


RULES = {"drained": is_drained, "zone": has_zone, "known-name": has_known_name}
"""By the name of its policy; each returns what is wrong, or nothing."""


def violations(
    rule: str, resource_type: str, properties: Mapping[str, Any], names: Iterable[str] = ()
) -> list[str]:
    """Return what one rule finds in a resource, each with the key of the instance that it is about."""
    found = []
    for key, registration in registrations(resource_type, properties).items():
        messages = RULES[rule](registration, names)
        if messages:
            found.append(f"{key}: {messages}" if key else messages)
    return found
