"""Merge patches, and server-side apply as with ``force=true``.

A manager applies a configuration and manages its fields, which are paths of keys. A field that the manager
applied before, and nobody applies now, goes. Lists are values. Fields that other writes change have no
manager.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

FieldPath = tuple[str, ...]
ManagedFields = Mapping[str, frozenset[FieldPath]]
"""The fields of an object by who applied them."""


def merged(live: Any, patch: Any) -> Any:
    """Return ``live`` with a patch in which null removes (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(live) if isinstance(live, dict) else {}
    for key, item in patch.items():
        if item is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), item)
    return result


def applied(live: Any, configuration: Any, manager: str, managed: ManagedFields) -> tuple[Any, ManagedFields]:
    """Return an object with a configuration applied, and who manages its fields then."""
    before, wanted = dict(_fields(live)), dict(_fields(configuration))
    taken = {field for field in wanted if field not in before or before[field] != wanted[field]}
    others = {other: fields - taken for other, fields in managed.items() if other != manager}
    result = merged(live, configuration)
    for field in managed.get(manager, frozenset()).difference(wanted, *others.values()):
        patch: Any = None
        for key in reversed(field):
            patch = {key: patch}
        result = merged(result, patch)
    return result, {**others, manager: frozenset(wanted)}


def _fields(value: Any, at: FieldPath = ()) -> Iterator[tuple[FieldPath, Any]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _fields(item, (*at, key))
    else:
        yield at, value
