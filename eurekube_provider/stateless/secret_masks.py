"""Secrets in the output of a stack's program: found by their marks, and hidden before printing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from pulumi.runtime import rpc

from eurekube_provider.core.quoting import REDACTION_PLACEHOLDER

KubernetesObject = dict[str, Any]
ValuePath = tuple[str | int, ...]
"""The path of a value in an object, as keys and indices."""


def secret_paths(value: Any, at: ValuePath = ()) -> Iterator[ValuePath]:
    """Yield the paths of the secrets in a resource's inputs."""
    if rpc.is_rpc_secret(value):
        yield at
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from secret_paths(item, (*at, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from secret_paths(item, (*at, number))


def mask_paths(value: Any, paths: Iterable[ValuePath]) -> Any:
    """Return ``value`` with the values at ``paths`` hidden."""
    below: dict[str | int, list[ValuePath]] = defaultdict(list)
    for place in paths:
        if not place:
            return _mask_everything(value)
        below[place[0]].append(place[1:])
    if isinstance(value, dict):
        return {key: mask_paths(item, below[key]) if key in below else item for key, item in value.items()}
    if isinstance(value, list):
        return [mask_paths(item, below[at]) if at in below else item for at, item in enumerate(value)]
    return value


def _mask_everything(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _mask_everything(item) for key, item in value.items()}
    return [_mask_everything(item) for item in value] if isinstance(value, list) else REDACTION_PLACEHOLDER


def mask_texts(value: Any, secrets: frozenset[str]) -> Any:
    """Return properties with each text hidden that contains one of ``secrets``, such as a derived address."""
    if isinstance(value, dict):
        return {key: mask_texts(item, secrets) for key, item in value.items()}
    if isinstance(value, str) and any(secret in value for secret in secrets):
        return REDACTION_PLACEHOLDER
    return value


def mask_secret_data(item: KubernetesObject) -> KubernetesObject:
    """Return an object; for a Secret, hide all values of its data, under ``data``: a cluster refuses text
    there that is no base64, so that applied output replaces no contents.
    """
    names = sorted({*(item.get("data") or ()), *(item.get("stringData") or ())})
    if item["kind"] != "Secret" or not names:
        return item
    rest = {key: value for key, value in item.items() if key != "stringData"}
    return {**rest, "data": dict.fromkeys(names, REDACTION_PLACEHOLDER)}
