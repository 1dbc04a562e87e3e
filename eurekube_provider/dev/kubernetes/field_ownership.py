"""Patches: merge patches, and server-side apply as with ``force=true``.

Who applies a configuration manages its fields: the paths of keys that lead to its values, a list as a whole.
What
its manager applied before and nobody else applies goes. What plain writes change has no manager.

Source: kubernetes.io, Server-Side Apply.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from eurekube_provider.dev.kubernetes.served_kinds import Object

FieldPath = tuple[str, ...]
ManagedFields = Mapping[str, frozenset[FieldPath]]
"""The fields of an object by who applied them."""

_OF_WRITERS = ("annotations", "finalizers", "labels", "ownerReferences")


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


def applied(
    live: Object, configuration: Object, manager: str, managed: ManagedFields
) -> tuple[Object, ManagedFields]:
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


def _fields(item: Object) -> Iterator[tuple[FieldPath, Any]]:
    """Yield the fields of an object that may have managers, and their values."""
    metadata = {key: one for key, one in item["metadata"].items() if key in _OF_WRITERS}
    rest = {key: one for key, one in item.items() if key not in ("apiVersion", "kind", "metadata")}
    yield from _leaves({**rest, "metadata": metadata}, ())


def _leaves(value: Any, at: FieldPath) -> Iterator[tuple[FieldPath, Any]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, (*at, key))
    elif at != ("metadata",):
        yield at, value
