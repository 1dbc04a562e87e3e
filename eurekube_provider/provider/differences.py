"""The difference between two versions of a resource, property by property, as a preview shows it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from eurekube_provider.provider.protocol import provider_pb2 as proto
from eurekube_provider.registrations.defaults import with_defaults
from eurekube_provider.registrations.members import ID_BASE_PROPERTY
from eurekube_provider.registrations.names import INSTANCES_PROPERTY, to_camel_case
from eurekube_provider.registrations.properties import (
    BOOKKEEPING_NAMES,
    ID_IS_DEFAULT_PROPERTY,
    PROPERTIES,
    Properties,
)

_NAMES_COMPARED_BY_KEY = ("metadata", INSTANCES_PROPERTY)

_NAMES_NEVER_WRITTEN_BY_PROGRAM = (ID_IS_DEFAULT_PROPERTY, ID_BASE_PROPERTY, "service_url")
"""Properties that the check adds, beside defaults, and that no program writes."""

_PROPERTIES_BY_NAME = {each.name: each for each in PROPERTIES}


def detailed_diff(olds: Properties, news: Properties, replaces: Iterable[str]) -> dict[str, Any]:
    """Return the added, removed and changed inputs, by Pulumi's paths.

    Properties that the check fills in are left out, since an import has only those that a program must write.
    Leftovers of an earlier run are left out, too, since the provider reports them in words.

    :param olds: the inputs of the last update.
    :param replaces: the names of the properties that need a new registration.
    """
    replacing = set(replaces)
    kinds = proto.PropertyDiff
    found: dict[str, Any] = {}
    for path, before, after in _iterate_differences(olds, news):
        if path[0] in BOOKKEEPING_NAMES:
            continue
        is_new = path[0] in replacing
        if not is_new and (
            (before is None and _is_filled_in_by_check(path, news))
            or (after is None and _is_filled_in_by_check(path, olds))
        ):
            continue
        # Pulumi cannot write a key that ends with a backslash: the path is cut before it.
        shown = tuple(itertools.takewhile(lambda key: not key.endswith("\\"), path))
        if before is None and shown == path:
            kind = kinds.ADD_REPLACE if is_new else kinds.ADD
        elif after is None and shown == path:
            kind = kinds.DELETE_REPLACE if is_new else kinds.DELETE
        else:
            kind = kinds.UPDATE_REPLACE if is_new else kinds.UPDATE
        found[_pulumi_path(shown)] = proto.PropertyDiff(kind=kind, inputDiff=True)
    for name in replacing - {path.split(".")[0] for path in found}:
        found.setdefault(to_camel_case(name), proto.PropertyDiff(kind=kinds.UPDATE_REPLACE, inputDiff=True))
    return found


def _is_filled_in_by_check(path: tuple[str, ...], properties: Properties) -> bool:
    """Return whether the check derived a property from others: no program need write it."""
    name, *within = path
    if within:
        return False
    if name in _NAMES_NEVER_WRITTEN_BY_PROGRAM or (
        name == "instance_id" and with_defaults(properties)[ID_IS_DEFAULT_PROPERTY]
    ):
        return True
    described = _PROPERTIES_BY_NAME.get(name)
    if described is None:
        return False
    others = {key: item for key, item in properties.items() if key != name}
    default = described.default if described.derive is None else described.derive(others, others)
    return default is not None and properties[name] == default


def _iterate_differences(
    olds: Mapping[str, Any], news: Mapping[str, Any], within: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Yield the path of each property that differs, with its old and its new value."""
    for key in sorted({*olds, *news}):
        before, after = olds.get(key), news.get(key)
        if before == after:
            continue
        path = (*within, key)
        is_deeper = (
            path[0] in _NAMES_COMPARED_BY_KEY and isinstance(before, Mapping) and isinstance(after, Mapping)
        )
        if is_deeper:
            yield from _iterate_differences(before or {}, after or {}, path)
        else:
            yield path, before, after


def _pulumi_path(path: tuple[str, ...]) -> str:
    """Return a path in Pulumi's notation: ``instances["vm-1"].hostName``."""
    first, *rest = path
    names = [to_camel_case(first)]
    for depth, key in enumerate(rest, start=1):
        if first == INSTANCES_PROPERTY and depth == 2:
            names.append(f".{to_camel_case(key)}")
        elif key.isidentifier():
            names.append(f".{key}")
        else:
            escaped = key.replace('"', '\\"')
            names.append(f'["{escaped}"]')
    return "".join(names)
