"""Check and normalisation of the properties that a program gives.

Pulumi hands over numbers as floats, drops keys without a value and puts a marker where a value is not known
yet; after :func:`check` only the marker is left of these.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from eurekube_provider.core.text import describe_oversized_metadata, describe_unfit_name
from eurekube_provider.registrations.called_addresses import CalledAddress
from eurekube_provider.registrations.defaults import default_instance_id, with_defaults
from eurekube_provider.registrations.properties import (
    ID_IS_DEFAULT_PROPERTY,
    INPUT_NAMES,
    OUTPUT_ONLY_NAMES,
    PROPERTIES,
    Properties,
    Property,
)
from eurekube_provider.registrations.values import UNKNOWN, BadValue, UnfitValue, UnknownMarker


@dataclass(frozen=True, slots=True)
class CheckFailure:
    """One property that cannot be used, and the reason.

    :ivar property: the property's name, or its path, such as ``instances.a.host_name``; empty for none.
    :ivar reason: a sentence, or the end of one that begins with the property's name.
    :ivar redacted_reason: the reason where the property is a secret; empty where no reason repeats its value.
    """

    property: str
    reason: str
    redacted_reason: str = ""

    def reason_without_value(self) -> str:
        """Return the reason, without the property's value."""
        return self.redacted_reason or self.reason


@dataclass(frozen=True, slots=True)
class CheckedProperties:
    """The result of a check: normalised properties, which are valid only without problems.

    :ivar warnings: problems that are reported, and do not refuse the properties.
    :ivar addresses: the called addresses, as far as they are known, each with the path of its property.
    """

    properties: Properties
    problems: tuple[CheckFailure, ...]
    warnings: tuple[CheckFailure, ...] = ()
    addresses: Mapping[CalledAddress, str] = field(default_factory=dict)


def unknown_property_failure(where: str, name: str, known: tuple[str, ...]) -> CheckFailure:
    """Return the failure of an unknown property, with the known one of a similar name."""
    near = difflib.get_close_matches(name, known, n=1)
    return CheckFailure(where, "there is no such property" + (f"; {near[0]} is one" if near else ""))


def same_address_failure(
    address: CalledAddress, where: str, other: str, *, had_address_before: bool
) -> CheckFailure:
    """Return the failure of two registrations of an application at one address, which callers find twice.

    :param other: the other registration, as the beginning of a sentence.
    :param had_address_before: True if that of ``where`` had the address before, and so is not refused.
    """
    before = " (this one was registered there before, and stays)" if had_address_before else ""
    rest = (
        f"{other} registers the same application at this address and port{before}: callers find it twice;"
        " give one of them another host_name or port, or leave one out"
    )
    return CheckFailure(where, f"{address.ip_address}: {rest}", rest)


def check(olds: Mapping[str, Any], news: Mapping[str, Any]) -> CheckedProperties:
    """Normalise ``news``: fill in defaults, make whole numbers integers, drop keys without a value.

    :param olds: the checked properties of last time, empty on creation. A default id is taken over from them
        as long as application and port are the same, so that a renamed stack renames no instance.
    """
    return _PropertyCheck(olds, news).run()


class _PropertyCheck:
    """One call of :func:`check`, which collects all problems."""

    def __init__(self, olds: Mapping[str, Any], news: Mapping[str, Any]) -> None:
        self._olds = olds
        self._news = {
            key: value
            for key, value in news.items()
            if value is not None and key not in OUTPUT_ONLY_NAMES and key != ID_IS_DEFAULT_PROPERTY
        }
        self._result: Properties = {}
        self._problems: list[CheckFailure] = []
        self._warnings: list[CheckFailure] = []

    def run(self) -> CheckedProperties:
        for key in sorted(set(self._news) - set(INPUT_NAMES)):
            self._problems.append(unknown_property_failure(key, key, INPUT_NAMES))
        for each in PROPERTIES:
            if each.name != "instance_id":
                default = each.default if each.derive is None else each.derive(self._result, self._news)
                self._check_value(each, default)
        self._check_metadata()
        self._check_lease()
        self._check_instance_id()
        at = None if self._problems else CalledAddress.from_properties(self._result)
        addresses = {} if at is None else {at: "host_name"}
        return CheckedProperties(self._result, tuple(self._problems), tuple(self._warnings), addresses)

    def _check_metadata(self) -> None:
        metadata = self._result.get("metadata")
        if not isinstance(metadata, dict):
            return
        self._check_metadata_size(metadata)
        if "zone" not in metadata:
            return
        zone = metadata.pop("zone")
        if self._result.setdefault("zone", zone) != zone:
            self._add_problem("zone", "the metadata has another zone: give it in one place")

    def _check_metadata_size(self, metadata: Mapping[str, Any]) -> None:
        """Refuse metadata that are too large; only report metadata that an earlier release registered."""
        problem = describe_oversized_metadata(
            {key: item for key, item in metadata.items() if item is not UNKNOWN}
        )
        if not problem:
            return
        before = {"zone": self._olds.get("zone"), **(self._olds.get("metadata") or {})}
        if all(before.get(key) == item for key, item in metadata.items()):
            goes_on = "they were registered before that was refused, and stay; nothing can be added to them"
            self._warnings.append(CheckFailure("metadata", f"{problem}; {goes_on}"))
        else:
            self._add_problem("metadata", problem)

    def _check_lease(self) -> None:
        interval = self._result.get("renewal_interval_seconds", UNKNOWN)
        duration = self._result.get("duration_seconds", UNKNOWN)
        if isinstance(interval, int) and isinstance(duration, int) and duration <= interval:
            self._add_problem(
                "duration_seconds",
                f"{duration} seconds without a renewal are no longer than the {interval} seconds between two"
                " renewals, so that the instance would come and go; take three times as long",
            )

    def _check_instance_id(self) -> None:
        self._result[ID_IS_DEFAULT_PROPERTY] = "instance_id" not in self._news
        (described,) = (each for each in PROPERTIES if each.name == "instance_id")
        self._check_value(described, self._default_instance_id())
        value = self._result.get("instance_id")
        if isinstance(value, str) and (problem := describe_unfit_name(value)):
            self._add_problem("instance_id", f"{value!r} {problem}", problem)

    def _default_instance_id(self) -> str | UnknownMarker | None:
        """Return the default id, or the old one where only the owner changed, not application or port."""
        default = default_instance_id(self._result)
        if not isinstance(default, str) or "instance_id" not in self._olds:
            return default
        same = all(self._olds.get(name) == self._result[name] for name in ("application", "port"))
        return (
            str(self._olds["instance_id"])
            if same and with_defaults(self._olds)[ID_IS_DEFAULT_PROPERTY]
            else default
        )

    def _check_value(self, described: Property, default: Any) -> None:
        name, value = described.name, self._news.get(described.name)
        if value is None:
            if described.is_required:
                self._add_problem(name, described.missing_error)
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
            self._add_problem(name, unfit.reason, unfit.redacted_reason)
        except BadValue as refused:
            self._add_problem(name, refused.reason, refused.redacted_reason)

    def _add_problem(self, name: str, reason: str, redacted_reason: str = "") -> None:
        self._problems.append(CheckFailure(name, reason, redacted_reason))
