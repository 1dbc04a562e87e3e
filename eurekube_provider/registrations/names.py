"""Conversion of property names between Pulumi's schema (``hostName``) and ``registrations`` (``host_name``).

Keys that a program chooses itself, those of metadata and of instances, are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping
from functools import lru_cache
from typing import Any

from eurekube_provider.core.wording import camel_case
from eurekube_provider.registrations.members import APPLICATION_INPUT_NAMES, APPLICATION_OUTPUT_NAMES
from eurekube_provider.registrations.properties import INPUT_NAMES, OUTPUT_ONLY_NAMES, Properties

INSTANCES_PROPERTY = "instances"
"""The property of an application that maps keys to the properties of its instances."""

_MOST_CACHED_NAMES = 512
"""The number of names that are remembered: more than exist, so that misspelt names cannot fill the memory."""

_PROPERTY_NAMES = frozenset(
    (*INPUT_NAMES, *OUTPUT_ONLY_NAMES, *APPLICATION_INPUT_NAMES, *APPLICATION_OUTPUT_NAMES)
)

to_camel_case = lru_cache(_MOST_CACHED_NAMES)(camel_case)
"""Return ``host_name`` as ``hostName``."""


@lru_cache(_MOST_CACHED_NAMES)
def to_snake_case(name: str) -> str:
    """Return ``hostName`` as ``host_name``; a name in snake case stays."""
    return re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name)


def with_camel_case_names(text: str, names: Container[str] = _PROPERTY_NAMES) -> str:
    """Return a sentence with the names in it, by default those of properties, in camel case."""
    return re.sub(r"\w+", lambda found: to_camel_case(found[0]) if found[0] in names else found[0], text)


def path_in_camel_case(path: str) -> str:
    """Return a path such as ``instances.a.host_name`` in camel case; a program's own key in it stays."""
    first, *rest = path.split(".")
    if first == INSTANCES_PROPERTY and len(rest) > 1:
        return ".".join((first, *rest[:-1], to_camel_case(rest[-1])))
    return ".".join((to_camel_case(first), *rest))


def rename_properties(properties: Mapping[str, Any], convert: Callable[[str], str]) -> Properties:
    """Return properties with each name changed by ``convert``, also within ``instances``."""
    return {convert(key): _rename_within_instances(key, value, convert) for key, value in properties.items()}


def has_camel_case_name(properties: Iterable[str]) -> bool:
    """Return whether a name is in camel case, as in a state that the native provider wrote."""
    return any(to_snake_case(name) != name for name in properties)


def _rename_within_instances(key: str, value: Any, convert: Callable[[str], str]) -> Any:
    if key != INSTANCES_PROPERTY or not isinstance(value, Mapping):
        return value
    return {
        one: {convert(own): item for own, item in each.items()} if isinstance(each, Mapping) else each
        for one, each in value.items()
    }
