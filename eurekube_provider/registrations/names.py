"""Names as Pulumi's schema has them and as ``registrations`` has them: ``hostName`` and ``host_name``.

What a program chooses itself, keys of metadata and of instances, is no name.
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
"""How many names are remembered: more than there are, however many somebody misspells."""

_KNOWN = {*INPUTS, *OUTPUTS, *MEMBER_INPUTS, *MEMBER_OUTPUTS}
_WORDS = re.compile("|".join(rf"\b{name}\b" for name in sorted(_KNOWN, key=len, reverse=True) if "_" in name))


camel = lru_cache(_MOST_NAMES)(camel_case)
"""``host_name`` as ``hostName``."""


@lru_cache(_MOST_NAMES)
def snake(name: str) -> str:
    """``hostName`` as ``host_name``; what is written so already stays."""
    return re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name)


def as_written(text: str) -> str:
    """A sentence for people, with the names of properties as their programs write them."""
    return _WORDS.sub(lambda found: camel(found[0]), text)


def path_as_written(path: str) -> str:
    """A path such as ``instances.a.host_name``, of which the second part is a program's own key."""
    first, *rest = path.split(".")
    if first == INSTANCES and len(rest) > 1:
        return ".".join((first, *rest[:-1], camel(rest[-1])))
    return ".".join((camel(first), *rest))


def renamed(properties: Mapping[str, Any], name: Callable[[str], str]) -> Properties:
    """Properties with each name as ``name`` makes it, those of instances included."""
    return {name(key): _nested(key, value, name) for key, value in properties.items()}


def are_schemas(properties: Iterable[str]) -> bool:
    """Return whether names are those of the schema: a state that the native provider wrote has them."""
    return any(snake(name) != name for name in properties)


def _nested(key: str, value: Any, name: Callable[[str], str]) -> Any:
    if key != INSTANCES or not isinstance(value, Mapping):
        return value
    return {
        one: {name(own): item for own, item in each.items()} if isinstance(each, Mapping) else each
        for one, each in value.items()
    }
