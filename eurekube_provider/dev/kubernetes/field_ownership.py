"""Patches, and who manages which fields of an object: merge patches and server-side apply.

A field is the path of keys that leads to it; lists are written as a whole. An applied configuration takes the
fields that it names, and those that its manager applied before and nobody else manages go.

Source: kubernetes.io, Server-Side Apply, where some lists are merged item by item.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from eurekube_provider.dev.kubernetes.refusals import Object

FieldPath = tuple[str, ...]

ManagedFields = Mapping[tuple[str, str], frozenset[FieldPath]]
"""The fields of each manager, by its name and ``Apply`` or ``Update``."""

_OF_WRITERS = ("annotations", "finalizers", "labels", "ownerReferences")


class ApplyConflict(Exception):
    """Others manage fields that a configuration would change.

    :ivar managers: their names, by field.
    """

    def __init__(self, managers: Mapping[FieldPath, str]) -> None:
        super().__init__("conflict")
        self.managers = managers


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
    live: Object, configuration: Object, manager: str, managed: ManagedFields, *, force: bool
) -> tuple[Object, ManagedFields]:
    """Return an object with a configuration applied, and who manages its fields then.

    :raises ApplyConflict: without ``force``, others manage fields that would change.
    """
    mine, before, wanted = (manager, "Apply"), dict(_fields(live)), dict(_fields(configuration))
    differing = {field for field in wanted if field not in before or before[field] != wanted[field]}
    others = {other: fields for other, fields in managed.items() if other != mine}
    conflicts = {field: name for (name, _), fields in others.items() for field in fields & differing}
    if conflicts and not force:
        raise ApplyConflict(conflicts)
    others = {other: fields - differing for other, fields in others.items()}
    result = merged(live, configuration)
    for field in managed.get(mine, frozenset()).difference(wanted, *others.values()):
        patch: Any = None
        for key in reversed(field):
            patch = {key: patch}
        result = merged(result, patch)
    return result, {**others, mine: frozenset(wanted)}


def written(live: Object, item: Object, manager: str, managed: ManagedFields) -> ManagedFields:
    """Return who manages the fields of ``item``, which a plain write made of ``live``."""
    mine, before, after = (manager, "Update"), dict(_fields(live)), dict(_fields(item))
    changed = {field for field in after if field not in before or before[field] != after[field]}
    left = {other: (fields - changed) & after.keys() for other, fields in managed.items()}
    return {**left, mine: left.get(mine, frozenset()) | changed}


def _fields(item: Object) -> Iterator[tuple[FieldPath, Any]]:
    """Yield the fields of an object that have managers, and their values."""
    metadata = {key: item["metadata"][key] for key in _OF_WRITERS if key in item["metadata"]}
    rest = {key: value for key, value in item.items() if key not in ("apiVersion", "kind", "metadata")}
    yield from _leaves({**rest, **({"metadata": metadata} if metadata else {})}, ())


def _leaves(value: Any, at: FieldPath) -> Iterator[tuple[FieldPath, Any]]:
    if not isinstance(value, dict) or not value:
        yield at, value
    else:
        for key, item in value.items():
            yield from _leaves(item, (*at, key))
