"""Changes of a program to a resource in the state, as far as EurekaInstance and EurekaApplication share
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eurekube_provider.core.model import Instance
from eurekube_provider.registrations.properties import (
    LEAVING,
    MARKS,
    SEEN_INCARNATION,
    STILL_ENFORCED,
    Properties,
)
from eurekube_provider.registrations.values import UNKNOWN

_FINDINGS = ("seen_owner", "held_by_others", SEEN_INCARNATION, LEAVING, STILL_ENFORCED)
"""Properties in which a refresh notes its findings; in a EurekaApplication's each maps keys of instances."""


@dataclass(frozen=True, slots=True)
class StateDifference:
    """The effect of an update.

    :ivar replaces: the changed properties that need a new registration, made before the old one is removed.
    """

    changes: bool
    replaces: tuple[str, ...] = ()


def is_unfinished(olds: Mapping[str, Any], news: Mapping[str, Any]) -> bool:
    """Return whether a refresh or the check found leftovers of an earlier run, which an update must
    handle.
    """
    return any(olds.get(mark) or news.get(mark) for mark in MARKS)


def adopted(state: Mapping[str, Any], news: Mapping[str, Any]) -> Properties:
    """Return a state as an update reads it: one that an import wrote gets the program's owner and URLs, and
    the owner in Eureka as ``seen_owner``.

    :param news: checked properties.
    """
    if "service_url" in state:
        return dict(state)
    ours = {**state, "owner": news.get("owner"), "service_url": news.get("service_url")}
    if "instances" not in state:
        return {**ours, "seen_owner": state.get("owner", "")}
    everyone = dict.fromkeys(state["instances"], state.get("owner", ""))
    return {**ours, "held_by_others": {**everyone, **(state.get("held_by_others") or {})}}


def findings(state: Mapping[str, Any]) -> Properties:
    """Return a refresh's findings that an update has to undo and that no other property shows.

    A refresh writes them among the inputs, too: no program asks for them, so that a preview shows them, and
    the next refresh finds nothing new.

    :param state: outputs, or inputs that a refresh wrote.
    """
    found = {name: state[name] for name in _FINDINGS if state.get(name) not in (None, {})}
    if found.get("seen_owner") == state.get("owner"):
        found.pop("seen_owner", None)
    return found


def without_findings(inputs: Mapping[str, Any]) -> Properties:
    """Return inputs without a refresh's findings and without the marks of leftovers."""
    return {name: value for name, value in inputs.items() if name not in (*_FINDINGS, *MARKS)}


def has_news(found: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    """Return whether ``found`` has a finding that ``known`` lacks."""
    return any(
        bool(value.items() - known[name].items())
        if isinstance(value, Mapping) and isinstance(known.get(name), Mapping)
        else value != known.get(name)
        for name, value in found.items()
    )


def at_other_servers(olds: Mapping[str, Any], news: Mapping[str, Any]) -> bool:
    """Return whether the URLs of two states have none in common, so that they may lead to two Eurekas."""
    url = news.get("service_url")
    return url is UNKNOWN or set(str(olds.get("service_url")).split(",")).isdisjoint(str(url).split(","))


def is_still_enforced(actual: Instance, asked: str | None) -> bool:
    """Return whether ``actual`` carries the mark of an enforced status other than ``asked``."""
    return actual.enforced not in ("", asked)
