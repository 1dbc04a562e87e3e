"""The properties of a EurekaApplication: shared ones written once, and each instance's own.

They are kept as short as people wrote them, since the state holds them twice; an instance's full properties
are made whenever they are needed. Renaming one needs a heading State in the CHANGELOG.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from eurekube_provider.core.identity import StackOwner, parse_owner
from eurekube_provider.registrations.called_addresses import CalledAddress
from eurekube_provider.registrations.properties import (
    ID_IS_DEFAULT_PROPERTY,
    INCARNATION_PROPERTY,
    Properties,
    PropertyScope,
    property_names,
    select_derived_secrets,
    split_secret_placeholders,
)
from eurekube_provider.registrations.property_check import (
    CheckedProperties,
    CheckFailure,
    check,
    same_address_failure,
    unknown_property_failure,
)
from eurekube_provider.registrations.values import UNKNOWN, UnknownMarker

SHARED_PROPERTY_NAMES = property_names(PropertyScope.INSTANCE_OR_APPLICATION)
"""Properties that an instance may set itself, and else takes from its application."""

MEMBER_PROPERTY_NAMES = property_names(PropertyScope.ONE_INSTANCE, PropertyScope.INSTANCE_OR_APPLICATION)
"""Properties that may be written for an instance of an application."""

_COMPARED_PROPERTY_NAMES = (*MEMBER_PROPERTY_NAMES, "renewer")
"""Properties compared with an instance in Eureka; the renewer is set for the application only."""

MANAGEMENT_PROPERTY_NAMES = property_names(PropertyScope.RESOURCE)
"""Properties that are the same for all instances of an application."""

ID_BASE_PROPERTY = "id_base"
"""A bookkeeping property: the end of every default id, kept so that a renamed stack renames no instance."""

APPLICATION_INPUT_NAMES = (*MANAGEMENT_PROPERTY_NAMES, *SHARED_PROPERTY_NAMES, "instances", ID_BASE_PROPERTY)

APPLICATION_OUTPUT_NAMES = ("statuses", "held_by_others", "created", INCARNATION_PROPERTY)
"""Properties that are known after an update only; statuses and owners that differ are given by key."""


def check_application(olds: Mapping[str, Any], news: Mapping[str, Any]) -> CheckedProperties:
    """Normalise an application's properties, which were ``olds``; each problem names its instance."""
    written = {key: value for key, value in news.items() if value is not None}
    unknown = sorted(set(written) - {*APPLICATION_INPUT_NAMES, *APPLICATION_OUTPUT_NAMES})
    problems = [unknown_property_failure(key, key, APPLICATION_INPUT_NAMES) for key in unknown]
    shared = _check_shared_properties(olds, written)
    result, warnings = shared.properties, list(shared.warnings)
    problems += shared.problems
    base = _id_base(olds, written)
    if base is not None:
        result[ID_BASE_PROPERTY] = base
    instances = written.get("instances")
    if instances is UNKNOWN:
        return CheckedProperties({**result, "instances": UNKNOWN}, tuple(problems))
    if not isinstance(instances, Mapping):
        reason = "is required: a map from a key of your own to host_name and what else is particular"
        return CheckedProperties(result, (*problems, CheckFailure("instances", reason)))
    kept: Properties = {}
    ids: dict[str, str] = {}
    addresses: dict[CalledAddress, str] = {}
    reported = {problem.property for problem in problems}
    for key, value in sorted(instances.items()):
        where = f"instances.{key}"
        if value is UNKNOWN:
            kept[key] = value
            continue
        if not key or "/" in key or any(letter.isspace() for letter in key):
            problems.append(
                CheckFailure(where, "a key must have no slash and no space: it is part of the id")
            )
        elif not isinstance(value, Mapping):
            problems.append(
                CheckFailure(
                    where, f"must be a map with host_name, not {value!r}", "must be a map with host_name"
                )
            )
        else:
            instance_id, member = _check_member(olds, result, key, value, reported)
            kept[key] = member.properties
            problems += member.problems
            warnings += member.warnings
            for at in member.addresses:
                if (first := addresses.setdefault(at, key)) == key:
                    continue
                both_stand = _had_same_address_before(olds, at, first, key)
                target = warnings if both_stand else problems
                target.append(
                    same_address_failure(
                        at,
                        f"{where}.host_name",
                        f"the instance {first!r} of this application",
                        had_address_before=both_stand,
                    )
                )
            other = ids.setdefault(instance_id, key) if isinstance(instance_id, str) else key
            if other != key:
                same = f"is that of {other!r} too"
                problems.append(CheckFailure(f"{where}.instance_id", f"{instance_id!r} {same}", same))
    named = {at: f"instances.{key}.host_name" for at, key in addresses.items()}
    return CheckedProperties({**result, "instances": kept}, tuple(problems), tuple(warnings), named)


def member_properties(properties: Mapping[str, Any]) -> dict[str, Properties]:
    """Return the full properties of each instance by key, from checked properties or those of a state."""
    instances = properties.get("instances") or {}
    return {
        key: check({}, _merge_with_application(properties, key, own)).properties
        for key, own in instances.items()
    }


def instance_ids(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the id of each instance by key, from checked properties or those of a state.

    An id that is not known yet is :data:`~eurekube_provider.registrations.values.UNKNOWN`.
    """
    instances = properties.get("instances") or {}
    found = {
        key: _merge_with_application(properties, key, own).get("instance_id")
        for key, own in instances.items()
    }
    return {key: UNKNOWN if id_ is None else id_ for key, id_ in found.items()}


def member_inputs_matching(properties: Mapping[str, Any], key: str, held: Mapping[str, Any]) -> Properties:
    """Return the inputs of a member that ask for ``held``, its full properties in Eureka: the written ones,
    changed where ``held`` differs. A text that is not there becomes empty, which only a state may have.
    """
    written = dict((properties.get("instances") or {}).get(key) or {})
    for _ in range(2):  # what differs may be the default of another property, which then differs, too
        full = check({}, _merge_with_application(properties, key, written)).properties
        for name in _COMPARED_PROPERTY_NAMES:
            if name == "metadata":
                want, there = full.get(name) or {}, held.get(name) or {}
                differing = {
                    one: there.get(one, "")
                    for one in sorted({*want, *there})
                    if want.get(one) != there.get(one)
                }
                if differing:
                    written[name] = {**(written.get(name) or {}), **differing}
            elif full.get(name) != held.get(name):
                written[name] = "" if held.get(name) is None else held[name]
    return written


def _check_shared_properties(olds: Mapping[str, Any], written: Mapping[str, Any]) -> CheckedProperties:
    """Check an application's shared properties as those of an instance; keep those that were written."""
    alone = {
        key: written[key] for key in (*MANAGEMENT_PROPERTY_NAMES, *SHARED_PROPERTY_NAMES) if key in written
    }
    stand_ins = {"host_name": "host", "instance_id": "id", "port": 1}
    checked = check(_former_metadata_and_zone(olds), {**stand_ins, **alone})
    kept = {
        name: checked.properties[name] for name in MANAGEMENT_PROPERTY_NAMES if name in checked.properties
    }
    return replace(checked, properties=kept | _select_written_properties(alone, checked.properties))


def _former_metadata_and_zone(olds: Mapping[str, Any]) -> Properties:
    """Return the metadata of the old state, to which a check compares the new ones."""
    return {name: olds[name] for name in ("metadata", "zone") if name in olds}


def _check_member(
    olds: Mapping[str, Any],
    application: Mapping[str, Any],
    key: str,
    value: Mapping[str, Any],
    reported: set[str],
) -> tuple[Any, CheckedProperties]:
    """Check one member; return its id and own properties. Problems in ``reported`` are known already."""
    where = f"instances.{key}"
    written, derived = split_secret_placeholders(
        {name: item for name, item in value.items() if item is not None}
    )
    problems = [
        unknown_property_failure(f"{where}.{name}", name, MEMBER_PROPERTY_NAMES)
        for name in sorted(set(written) - set(MEMBER_PROPERTY_NAMES))
    ]
    known = {name: item for name, item in written.items() if name in MEMBER_PROPERTY_NAMES}
    before = (olds.get("instances") or {}).get(key)
    checked = check(
        _former_metadata_and_zone(_merge_with_application(olds, key, before)) if before is not None else {},
        _merge_with_application(application, key, known),
    )
    problems += [
        replace(problem, property=f"{where}.{problem.property}")
        for problem in checked.problems
        if problem.property in known or problem.property not in reported
    ]
    kept = _select_written_properties(known, checked.properties) | select_derived_secrets(
        derived, checked.properties
    )
    warnings = tuple(replace(one, property=f"{where}.{one.property}") for one in checked.warnings)
    found = CheckedProperties(kept, tuple(problems), warnings, checked.addresses)
    return checked.properties.get("instance_id"), found


def _had_same_address_before(olds: Mapping[str, Any], address: CalledAddress, *keys: str) -> bool:
    """Return whether all of these instances were at this address before, as earlier releases allowed."""
    instances = olds.get("instances") or {}
    return all(
        key in instances
        and CalledAddress.from_properties(
            check({}, _merge_with_application(olds, key, instances[key])).properties
        )
        == address
        for key in keys
    )


def _select_written_properties(written: Mapping[str, Any], checked: Mapping[str, Any]) -> Properties:
    kept = {name: checked[name] for name in SHARED_PROPERTY_NAMES if name in written and name in checked}
    kept |= {name: checked[name] for name in MEMBER_PROPERTY_NAMES if name in written and name in checked}
    metadata = written.get("metadata")
    if isinstance(metadata, Mapping):
        kept["metadata"] = {
            name: value for name, value in (checked.get("metadata") or {}).items() if name in metadata
        }
        if "zone" in metadata and "zone" in checked:
            kept["zone"] = checked["zone"]
    return kept


def _merge_with_application(application: Mapping[str, Any], key: str, own: Any) -> Properties:
    """Return the application's properties overridden by the instance's own; metadata key by key."""
    if not isinstance(own, Mapping):
        return {}
    merged: Properties = {
        name: application[name]
        for name in (*MANAGEMENT_PROPERTY_NAMES, *SHARED_PROPERTY_NAMES)
        if name in application
    }
    above = merged.get("metadata")
    if isinstance(own.get("metadata"), Mapping) and "zone" in own["metadata"]:
        merged.pop("zone", None)
    merged |= own
    if isinstance(above, Mapping) and isinstance(own.get("metadata"), Mapping):
        merged["metadata"] = {**above, **own["metadata"]}
    if "secure_port" in own and "secure_port_enabled" not in own:
        merged["secure_port_enabled"] = True  # naming one enables it, here as anywhere
    if not merged.get("instance_id"):
        merged["instance_id"] = _default_member_id(merged, key, application.get(ID_BASE_PROPERTY))
    merged.pop(ID_IS_DEFAULT_PROPERTY, None)
    return merged


def _default_member_id(merged: Mapping[str, Any], key: str, base: Any) -> str | UnknownMarker | None:
    """Return ``<key>.<name>.<stack>.<project>:<application>:<port>``."""
    application, port = merged.get("application"), merged.get("port")
    if UNKNOWN in (application, port):
        return UNKNOWN
    if not isinstance(application, str) or not isinstance(port, int | float) or base is None:
        return None
    if not math.isfinite(port):  # refused by the check
        return None
    return f"{key}.{base}:{application.lower()}:{int(port)}"


def _id_base(olds: Mapping[str, Any], news: Mapping[str, Any]) -> str | None:
    if olds.get(ID_BASE_PROPERTY):
        return str(olds[ID_BASE_PROPERTY])
    owner = parse_owner(str(news.get("owner")))
    return f"{owner.name}.{owner.stack}.{owner.project}" if isinstance(owner, StackOwner) else None
