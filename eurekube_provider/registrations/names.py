"""Conversion of property names between Pulumi's schema (``hostName``) and ``registrations`` (``host_name``).

Keys that a program chooses itself, those of metadata and of instances, are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from eurekube_provider.core.wording import camel_case
from eurekube_provider.registrations.members import MEMBER_INPUTS, MEMBER_OUTPUTS
from eurekube_provider.registrations.properties import INPUTS, OUTPUTS, Properties

INSTANCES = "instances"
"""The property whose values have properties of their own."""

_MOST_NAMES = 512
"""The number of names that are remembered: more than exist, so that misspelt names cannot fill the memory."""

_KNOWN = {*INPUTS, *OUTPUTS, *MEMBER_INPUTS, *MEMBER_OUTPUTS}
_WORDS = re.compile("|".join(rf"\b{name}\b" for name in sorted(_KNOWN, key=len, reverse=True) if "_" in name))


camel = lru_cache(_MOST_NAMES)(camel_case)
"""Return ``host_name`` as ``hostName``."""


@lru_cache(_MOST_NAMES)
def snake(name: str) -> str:
    """Return ``hostName`` as ``host_name``; a name in snake case stays."""
    return re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name)


def as_written(text: str) -> str:
    """Return a sentence for people, with the names of properties in camel case."""
    return _WORDS.sub(lambda found: camel(found[0]), text)


def path_as_written(path: str) -> str:
    """Return a path such as ``instances.a.host_name`` in camel case; a program's own key in it stays."""
    first, *rest = path.split(".")
    if first == INSTANCES and len(rest) > 1:
        return ".".join((first, *rest[:-1], camel(rest[-1])))
    return ".".join((camel(first), *rest))


def renamed(properties: Mapping[str, Any], name: Callable[[str], str]) -> Properties:
    """Return properties with each name changed by ``name``, also within ``instances``."""
    return {name(key): _nested(key, value, name) for key, value in properties.items()}


def are_schemas(properties: Iterable[str]) -> bool:
    """Return whether names are in camel case, as in a state that the native provider wrote."""
    return any(snake(name) != name for name in properties)


def _nested(key: str, value: Any, name: Callable[[str], str]) -> Any:
    if key != INSTANCES or not isinstance(value, Mapping):
        return value
    return {
        one: {name(own): item for own, item in each.items()} if isinstance(each, Mapping) else each
        for one, each in value.items()
    }
