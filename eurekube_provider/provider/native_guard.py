"""The guard of an operator as a resource of the native provider, which only the component makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf import empty_pb2

from eurekube_provider.core.identity import GUARD_TYPE, NATIVE_GUARD_TYPE
from eurekube_provider.provider.protocol import provider_pb2 as proto
from eurekube_provider.provider.wire import received, sent
from eurekube_provider.resources.guarded_operator import (
    changed,
    guard_id,
    guard_inputs,
    may_go,
)

DYNAMIC = "__provider"
"""A property that only states of a dynamic provider have."""


def is_guard(urn: str, type_: str) -> bool:
    """Return whether a request is about the guard of an operator."""
    return (type_ or urn.split("::")[2].rpartition("$")[2]) in (NATIVE_GUARD_TYPE, GUARD_TYPE)


def _check(request: Any) -> Any:
    """Accept the inputs unchanged: only the component writes this resource."""
    return proto.CheckResponse(inputs=request.news)


def _diff(request: Any) -> Any:
    """Compare the guard's properties; a change is an update."""
    olds, news = (guard_inputs(received(each).properties) for each in (request.olds, request.news))
    is_changed = bool(changed(olds, news)) or DYNAMIC in request.olds.fields
    some, none = proto.DiffResponse.DIFF_SOME, proto.DiffResponse.DIFF_NONE
    return proto.DiffResponse(changes=some if is_changed else none)


def _create(request: Any) -> Any:
    """Store the properties that the deletion needs; ask no cluster."""
    given = received(request.properties)
    properties = sent(guard_inputs(given.properties), given.secrets)
    id_ = "" if request.preview else guard_id(given.properties)
    return proto.CreateResponse(id=id_, properties=properties)


def _read(request: Any) -> Any:
    """Return the properties and inputs of the state, since no server knows the guard."""
    return proto.ReadResponse(id=request.id, properties=request.properties, inputs=request.inputs)


def _update(request: Any) -> Any:
    """Store the properties that the deletion needs."""
    given = received(request.news)
    return proto.UpdateResponse(properties=sent(guard_inputs(given.properties), given.secrets))


def _delete(request: Any) -> Any:
    """Refuse the deletion while the operator is needed.

    :raises OperatorStillNeeded: the operator is needed, or the cluster cannot be asked.
    """
    may_go(received(request.properties).properties)
    return empty_pb2.Empty()  # type: ignore[attr-defined]


ANSWERS: Mapping[str, Callable[[Any], Any]] = {
    "Check": _check,
    "Diff": _diff,
    "Create": _create,
    "Read": _read,
    "Update": _update,
    "Delete": _delete,
}
"""The function that answers each method of the provider for a guard."""
