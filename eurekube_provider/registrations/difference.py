"""A program's changes to a resource that a state has, as far as both kinds share them."""

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
"""Findings of a refresh beside properties: of a EurekaApplication by the keys of its instances."""


@dataclass(frozen=True, slots=True)
class StateDifference:
    """The effect of an update.

    :ivar replaces: the properties that need a new registration, which is made before the old one goes.
    """

    changes: bool
    replaces: tuple[str, ...] = ()


def is_unfinished(olds: Mapping[str, Any], news: Mapping[str, Any]) -> bool:
    """Return whether a refresh or the check found what an earlier run left, so that an update must see
    to it.
    """
    return any(olds.get(mark) or news.get(mark) for mark in MARKS)


def adopted(state: Mapping[str, Any], news: Mapping[str, Any]) -> Properties:
    """A state as an update reads it: where an import wrote it, Eureka names another owner than the stack.

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
    """Return the leftovers that an update has to undo, and that no property shows.

    A refresh writes it among the inputs, too: no program asks for it, so that a preview shows it, and the
    next refresh finds nothing new.

    :param state: outputs, or inputs that a refresh wrote.
    """
    found = {name: state[name] for name in _FINDINGS if state.get(name) not in (None, {})}
    if found.get("seen_owner") == state.get("owner"):
        found.pop("seen_owner", None)
    return found


def without_findings(inputs: Mapping[str, Any]) -> Properties:
    """Inputs without what a refresh found, and without the marks of an update that was made since."""
    return {name: value for name, value in inputs.items() if name not in (*_FINDINGS, *MARKS)}


def has_news(found: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    """Return whether findings tell anything that earlier ones do not."""
    return any(
        bool(value.items() - known[name].items())
        if isinstance(value, Mapping) and isinstance(known.get(name), Mapping)
        else value != known.get(name)
        for name, value in found.items()
    )


def at_other_servers(olds: Mapping[str, Any], news: Mapping[str, Any]) -> bool:
    """Return whether two lists of URLs have none in common, so that they may be two Eurekas."""
    url = news.get("service_url")
    return url is UNKNOWN or set(str(olds.get("service_url")).split(",")).isdisjoint(str(url).split(","))


def is_still_enforced(actual: Instance, asked: str | None) -> bool:
    """Return whether ``actual`` carries the mark of another enforced status than the one that is asked
    for.
    """
    return actual.enforced not in ("", asked)
