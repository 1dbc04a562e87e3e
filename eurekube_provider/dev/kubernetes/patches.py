"""Merge patches, and server-side apply as with ``force=true``.

A manager applies a configuration and manages its fields, which are paths of keys. A field that the manager
applied before, and no manager applies now, is removed. A list is one value. A field that another kind of
write changes has no manager.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

FieldPath = tuple[str, ...]
ManagedFields = Mapping[str, frozenset[FieldPath]]
"""The fields of an object that each manager applied, by manager."""


def apply_merge_patch(live: Any, patch: Any) -> Any:
    """Return ``live`` with a merge patch applied, in which null removes a field (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(live) if isinstance(live, dict) else {}
    for key, item in patch.items():
        if item is None:
            result.pop(key, None)
        else:
            result[key] = apply_merge_patch(result.get(key), item)
    return result


def apply_server_side(
    live: Any, configuration: Any, manager: str, managed: ManagedFields
) -> tuple[Any, ManagedFields]:
    """Return an object with a configuration applied, and the fields that each manager then has."""
    before, wanted = dict(_leaf_fields(live)), dict(_leaf_fields(configuration))
    taken = {field for field in wanted if field not in before or before[field] != wanted[field]}
    others = {other: fields - taken for other, fields in managed.items() if other != manager}
    result = apply_merge_patch(live, configuration)
    for field in managed.get(manager, frozenset()).difference(wanted, *others.values()):
        patch: Any = None
        for key in reversed(field):
            patch = {key: patch}
        result = apply_merge_patch(result, patch)
    return result, {**others, manager: frozenset(wanted)}


def _leaf_fields(value: Any, at: FieldPath = ()) -> Iterator[tuple[FieldPath, Any]]:
    """Yield the path and the value of each field that has no fields of its own."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaf_fields(item, (*at, key))
    else:
        yield at, value
