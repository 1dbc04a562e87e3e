"""Conversion of a registration's properties to an instance, and of an instance in Eureka to properties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eurekube_provider.core.identity import RESERVED_METADATA_PREFIX, SELF_RENEWER_VALUE
from eurekube_provider.core.model import EurekaLease, Instance, Port, Status
from eurekube_provider.registrations.properties import PROPERTIES, Properties

_CLASS_BY_FIELD_NAME = {"port": Port, "secure_port": Port, "lease": EurekaLease}
_PROPERTIES_OF_INSTANCE = tuple(each for each in PROPERTIES if each.instance_path)


def properties_to_instance(
    properties: Mapping[str, Any], status: Status, marks: Mapping[str, str]
) -> Instance:
    """Make the instance that properties ask for.

    :param properties: all properties of one registration; none may be unknown.
    """
    fields: dict[str, Any] = {"metadata": {}}
    for each in _PROPERTIES_OF_INSTANCE:
        value = properties.get(each.name)
        field, *within = each.instance_path
        if value is None or (field == "metadata" and not value):
            continue
        if within:
            fields.setdefault(field, {})[within[0]] = each.type(value)
        elif field == "metadata":
            texts = {str(key): str(item) for key, item in value.items()}
            fields["metadata"] = texts | fields["metadata"]
        else:
            fields[field] = each.type(value)
    fields["metadata"] |= marks
    parts = {name: made(**fields.pop(name)) for name, made in _CLASS_BY_FIELD_NAME.items()}
    return Instance(status=status, **parts, **fields)


def instance_to_properties(actual: Instance) -> Properties:
    """Convert an instance, as Eureka holds it, to the properties that ask for it.

    An instance that no Eurekube registered counts as renewed by its own client. Metadata of Eurekube's own, a
    syncer's included, no program may ask for.
    """
    found: Properties = {"status": actual.status.value}
    for each in _PROPERTIES_OF_INSTANCE:
        field, *within = each.instance_path
        value = getattr(actual, field)
        if within:
            value = value.get(within[0]) if field == "metadata" else getattr(value, within[0])
        elif field == "metadata":
            value = {
                key: item
                for key, item in sorted(value.items())
                if key != "zone" and not key.startswith(RESERVED_METADATA_PREFIX)
            }
        found[each.name] = (value or None) if each.may_be_absent else "" if value is None else value
    if actual.owner is None:
        found["renewer"] = found["renewer"] or SELF_RENEWER_VALUE
    return found
