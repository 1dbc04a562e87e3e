"""Comparison of a state with a program, for EurekaInstance and EurekaApplication alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eurekube_provider.core.model import Instance, Status, same_contents_but_status
from eurekube_provider.registrations.desired import DesiredState, Registration
from eurekube_provider.registrations.members import APPLICATION_INPUT_NAMES
from eurekube_provider.registrations.properties import (
    ID_IS_DEFAULT_PROPERTY,
    INCARNATION_PROPERTY,
    LEAVING_MARK,
    LEFTOVER_MARKS,
    SEEN_INCARNATION_PROPERTY,
    STILL_ENFORCED_MARK,
    Properties,
    contains_unknown,
)
from eurekube_provider.registrations.values import UNKNOWN

_IDENTITY_PROPERTIES = ("application", "instance_id")
"""Properties that identify a registration: a change of one makes another registration."""

_OWNERS_FOUND = ("seen_owner", "held_by_others")
_FINDING_PROPERTY_NAMES = (*_OWNERS_FOUND, SEEN_INCARNATION_PROPERTY, LEAVING_MARK, STILL_ENFORCED_MARK)
"""Properties in which a refresh notes its findings; in a EurekaApplication's each maps keys of instances."""


@dataclass(frozen=True, slots=True)
class StateDifference:
    """The difference between a state and a program.

    :ivar has_changes: True if an update is needed.
    :ivar replaces: the changed properties that need a new registration, made before the old one is removed.
    """

    has_changes: bool
    replaces: tuple[str, ...] = ()


def diff(olds: Mapping[str, Any], news: Mapping[str, Any]) -> StateDifference:
    """Compare a resource's state, as Eureka held it, with the checked properties of the program.

    Another application, another id of a EurekaInstance, or other servers make another registration, which is
    made before the old one is removed. Two lists of URLs without a common one may still lead to one Eureka:
    the new one then takes the old one's place, and the removal of the old one leaves it. An application that
    takes the place of a EurekaInstance in the state replaces it, too.

    :param news: checked properties; anything may still be unknown, and counts as a change.
    """
    replaces = [name for name in _IDENTITY_PROPERTIES if name in news and olds.get(name) != news[name]]
    if "instances" in news and "instances" not in olds:
        replaces.append("instances")
    if have_no_url_in_common(olds, news):
        replaces.append("service_url")
    changes = bool(replaces) or contains_unknown(news) or bool(findings_of_refresh(olds))
    changes = changes or any(olds.get(mark) or news.get(mark) for mark in LEFTOVER_MARKS)
    return StateDifference(changes or _asks_for_other_contents(olds, news), tuple(replaces))


def _asks_for_other_contents(olds: Mapping[str, Any], news: Mapping[str, Any]) -> bool:
    """Return whether a program asks for other registrations than its state has; none may be unknown."""
    if "instances" in news and _non_empty_inputs(olds) == _non_empty_inputs(news):  # most states
        return False
    have = DesiredState.from_properties(olds)
    want = DesiredState.from_properties({**news, INCARNATION_PROPERTY: have.incarnation})
    return (
        have.management_properties != want.management_properties
        or have.registrations.keys() != want.registrations.keys()
        or any(_has_changed(have.registrations[key], each) for key, each in want.registrations.items())
        or _host_names(olds) != _host_names(news)  # which an earlier version wrote otherwise
    )


def _has_changed(have: Registration, want: Registration) -> bool:
    """Return whether a state's registration differs from a program's in its contents, status or place."""
    return not same_contents_but_status(have.instance, want.instance) or (
        have.enforced_status is not want.enforced_status or have.instance.key != want.instance.key
    )


def _host_names(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {key: each.get("host_name") for key, each in (properties.get("instances") or {}).items()}


def _non_empty_inputs(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {key: properties[key] for key in APPLICATION_INPUT_NAMES if properties.get(key) not in (None, {})}


def complete_imported_state(state: Mapping[str, Any], news: Mapping[str, Any]) -> Properties:
    """Return a state; complete one that an import wrote by the program's owner and URLs, and note the owner
    in Eureka as ``seen_owner`` or ``held_by_others``.
    """
    if "service_url" in state:
        return dict(state)
    ours = {**state, "owner": news.get("owner"), "service_url": news.get("service_url")}
    if "instances" not in state:
        return {**ours, "seen_owner": state.get("owner", "")}
    everyone = dict.fromkeys(state["instances"], state.get("owner", ""))
    return {**ours, "held_by_others": {**everyone, **(state.get("held_by_others") or {})}}


def findings_of_refresh(state: Mapping[str, Any]) -> Properties:
    """Return a refresh's findings, of a state or of inputs, that an update has to undo.

    A refresh writes them among the inputs, too: no program asks for them, so that a preview shows them, and
    the next refresh finds nothing new.
    """
    found = {name: state[name] for name in _FINDING_PROPERTY_NAMES if state.get(name) not in (None, {})}
    if found.get("seen_owner") == state.get("owner"):
        found.pop("seen_owner", None)
    return found


def without_refresh_findings(inputs: Mapping[str, Any]) -> Properties:
    """Return inputs without a refresh's findings and without the marks of leftovers."""
    left_out = {*_FINDING_PROPERTY_NAMES, *LEFTOVER_MARKS}
    return {name: value for name, value in inputs.items() if name not in left_out}


def without_values_of_state(news: Mapping[str, Any], olds: Mapping[str, Any]) -> Properties:
    """Return a program's properties without what no program writes: findings of a refresh, marks of leftovers
    and a default id come back from the state, ``olds``, where `ignoreChanges` names every property.
    """
    back = {name for name in (*_FINDING_PROPERTY_NAMES, *LEFTOVER_MARKS) if name in olds}
    if news.get(ID_IS_DEFAULT_PROPERTY) and news.get("instance_id") == olds.get("instance_id"):
        back.add("instance_id")
    return {name: value for name, value in news.items() if name not in back}


def has_new_finding(found: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    """Return whether one of the findings ``found`` is missing in the findings ``known``."""
    return any(
        bool(value.items() - known[name].items())
        if isinstance(value, Mapping) and isinstance(known.get(name), Mapping)
        else value != known.get(name)
        for name, value in found.items()
    )


def have_no_url_in_common(olds: Mapping[str, Any], news: Mapping[str, Any]) -> bool:
    """Return whether two states have no service URL in common, so that they may name two Eurekas."""
    url = news.get("service_url")
    return url is UNKNOWN or set(str(olds.get("service_url")).split(",")).isdisjoint(str(url).split(","))


def marks_in_eureka(desired: DesiredState, actual: Instance, asked: Status | None) -> Properties:
    """Return what an instance's own marks show and a state must not have: an interrupted drain, an enforced
    status other than ``asked``, and another incarnation than the state's, unless no stack registered it.
    """
    found: Properties = {}
    if actual.is_leaving:
        found[LEAVING_MARK] = True
    if actual.enforced not in ("", asked and asked.value):
        found[STILL_ENFORCED_MARK] = actual.enforced
    is_of_stack = bool(actual.incarnation) or actual.owner == desired.owner
    if is_of_stack and actual.incarnation != (desired.incarnation or ""):
        found[SEEN_INCARNATION_PROPERTY] = actual.incarnation
    return found
