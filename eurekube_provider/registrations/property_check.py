"""Check and normalisation of the properties that a program gives.

The module knows neither Pulumi nor Eureka's wire format. Pulumi hands over numbers as floats, drops keys
without a value and puts a marker where a value is not known yet; after :func:`check` only the marker is left
of these.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from eurekube_provider.core.text import metadata_problem, name_problem
from eurekube_provider.registrations.called_addresses import CalledAddress
from eurekube_provider.registrations.defaults import completed, default_instance_id
from eurekube_provider.registrations.properties import (
    DEFAULT_ID,
    INPUTS,
    OUTPUTS,
    PROPERTIES,
    Properties,
    Property,
)
from eurekube_provider.registrations.values import UNKNOWN, BadValue, Marker, UnfitValue


@dataclass(frozen=True, slots=True)
class CheckFailure:
    """One property that cannot be used, and the reason.

    :ivar hidden: the reason where the property is a secret; empty where no reason repeats its value.
    """

    property: str
    reason: str
    hidden: str = ""

    def without_value(self) -> str:
        """The reason, without the property's value."""
        return self.hidden or self.reason


@dataclass(frozen=True, slots=True)
class Checked:
    """Normalised properties, of use only where there are no problems.

    :ivar warnings: problems that are reported, and do not refuse the properties.
    :ivar addresses: the called addresses, as far as they are known, each with the path of its property.
    """

    properties: Properties
    problems: tuple[CheckFailure, ...]
    warnings: tuple[CheckFailure, ...] = ()
    addresses: Mapping[CalledAddress, str] = field(default_factory=dict)


def no_such_property(where: str, name: str, known: tuple[str, ...]) -> CheckFailure:
    """Return the failure of an unknown property, with the known one of a similar name."""
    near = difflib.get_close_matches(name, known, n=1)
    return CheckFailure(where, "there is no such property" + (f"; {near[0]} is one" if near else ""))


def same_address(at: CalledAddress, where: str, other: str, *, stands: bool) -> CheckFailure:
    """Return the failure of two registrations of an application at one address, which callers find twice.

    :param other: the other registration at the address, as the beginning of a sentence.
    :param stands: True if the registration of ``where`` had the address before, and is therefore not refused.
    """
    before = " (this one was registered there before, and stays)" if stands else ""
    rest = (
        f"{other} registers the same application at this address and port{before}: callers find it twice;"
        " give one of them another host_name or port, or leave one out"
    )
    return CheckFailure(where, f"{at.ip_address}: {rest}", rest)


def check(olds: Mapping[str, Any], news: Mapping[str, Any]) -> Checked:
    """Normalise ``news``: fill in defaults, make whole numbers integers, drop keys without a value.

    :param olds: the checked properties of last time, empty on creation. A default id is taken over from them
        as long as application and port are the same, so that a renamed stack renames no instance.
    """
    return _Check(olds, news).run()


class _Check:
    """One call of :func:`check`, which collects all problems."""

    def __init__(self, olds: Mapping[str, Any], news: Mapping[str, Any]) -> None:
        self._olds = olds
        self._news = {
            key: value
            for key, value in news.items()
            if value is not None and key not in OUTPUTS and key != DEFAULT_ID
        }
        self._result: Properties = {}
        self._problems: list[CheckFailure] = []
        self._warnings: list[CheckFailure] = []

    def run(self) -> Checked:
        for key in sorted(set(self._news) - set(INPUTS)):
            self._problems.append(no_such_property(key, key, INPUTS))
        for each in PROPERTIES:
            if each.name != "instance_id":
                default = each.default if each.derive is None else each.derive(self._result, self._news)
                self._keep_value(each, default)
        self._metadata()
        self._lease()
        self._instance_id()
        at = None if self._problems else CalledAddress.of(self._result)
        addresses = {} if at is None else {at: "host_name"}
        return Checked(self._result, tuple(self._problems), tuple(self._warnings), addresses)

    def _metadata(self) -> None:
        metadata = self._result.get("metadata")
        if not isinstance(metadata, dict):
            return
        self._size_of(metadata)
        if "zone" not in metadata:
            return
        zone = metadata.pop("zone")
        if self._result.setdefault("zone", zone) != zone:
            self._refuse("zone", "the metadata has another zone: give it in one place")

    def _size_of(self, metadata: Mapping[str, Any]) -> None:
        """Refuse metadata that are too large; only report metadata that an earlier release registered."""
        problem = metadata_problem({key: item for key, item in metadata.items() if item is not UNKNOWN})
        if not problem:
            return
        before = {"zone": self._olds.get("zone"), **(self._olds.get("metadata") or {})}
        if all(before.get(key) == item for key, item in metadata.items()):
            goes_on = "they were registered before that was refused, and stay; nothing can be added to them"
            self._warnings.append(CheckFailure("metadata", f"{problem}; {goes_on}"))
        else:
            self._refuse("metadata", problem)

    def _lease(self) -> None:
        interval = self._result.get("renewal_interval_seconds", UNKNOWN)
        duration = self._result.get("duration_seconds", UNKNOWN)
        if isinstance(interval, int) and isinstance(duration, int) and duration <= interval:
            self._refuse(
                "duration_seconds",
                f"{duration} seconds without a renewal are no longer than the {interval} seconds between two"
                " renewals, so that the instance would come and go; take three times as long",
            )

    def _instance_id(self) -> None:
        self._result[DEFAULT_ID] = "instance_id" not in self._news
        (described,) = (each for each in PROPERTIES if each.name == "instance_id")
        self._keep_value(described, self._default_instance_id())
        value = self._result.get("instance_id")
        if isinstance(value, str) and (problem := name_problem(value)):
            self._refuse("instance_id", f"{value!r} {problem}", problem)

    def _default_instance_id(self) -> str | Marker | None:
        """Return the default id, or the old one where application and port are the same and only the owner
        changed.
        """
        default = default_instance_id(self._result)
        if not isinstance(default, str) or "instance_id" not in self._olds:
            return default
        same = all(self._olds.get(name) == self._result[name] for name in ("application", "port"))
        return str(self._olds["instance_id"]) if same and completed(self._olds)[DEFAULT_ID] else default

    def _keep_value(self, described: Property, default: Any) -> None:
        name, value = described.name, self._news.get(described.name)
        if value is None:
            if described.is_required:
                self._refuse(name, described.missing)
            elif default is not None:
                self._result[name] = copy(default)
            return
        if value is UNKNOWN:
            self._result[name] = value
            return
        try:
            self._result[name] = described.check(value)
        except UnfitValue as unfit:
            self._result[name] = unfit.value
            self._refuse(name, unfit.reason, unfit.hidden)
        except BadValue as refused:
            self._refuse(name, refused.reason, refused.hidden)

    def _refuse(self, name: str, reason: str, hidden: str = "") -> None:
        self._problems.append(CheckFailure(name, reason, hidden))
