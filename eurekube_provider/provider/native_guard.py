"""The native provider's answers for an operator's guard, a resource that only the component makes.

They are those of :class:`~eurekube_provider.resources.operator_guard.OperatorGuardProvider`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf import empty_pb2

from eurekube_provider.core.identity import DYNAMIC_OPERATOR_GUARD_TYPE, NATIVE_OPERATOR_GUARD_TYPE
from eurekube_provider.provider.native_resource import resource_type
from eurekube_provider.provider.protocol import provider_pb2 as proto
from eurekube_provider.provider.wire import decode_properties, encode_properties
from eurekube_provider.resources.guarded_operator import (
    guard_id,
    is_guard_changed,
    refuse_deletion_while_needed,
)

DYNAMIC_PROVIDER_PROPERTY = "__provider"
"""A property that only states of a dynamic provider have."""


def is_guard(request: Any) -> bool:
    """Return whether a request is about the guard of an operator."""
    return resource_type(request) in (NATIVE_OPERATOR_GUARD_TYPE, DYNAMIC_OPERATOR_GUARD_TYPE)


def _check(request: Any) -> Any:
    return proto.CheckResponse(inputs=request.news)


def _diff(request: Any) -> Any:
    olds, news = (decode_properties(each).properties for each in (request.olds, request.news))
    is_changed = is_guard_changed(olds, news) or DYNAMIC_PROVIDER_PROPERTY in request.olds.fields
    some, none = proto.DiffResponse.DIFF_SOME, proto.DiffResponse.DIFF_NONE
    return proto.DiffResponse(changes=some if is_changed else none)


def _create(request: Any) -> Any:
    given = decode_properties(request.properties)
    properties = encode_properties(given.properties, given.secrets)
    id_ = "" if request.preview else guard_id(given.properties)
    return proto.CreateResponse(id=id_, properties=properties)


def _read(request: Any) -> Any:
    """Return the properties and inputs of the state, since no server knows the guard."""
    return proto.ReadResponse(id=request.id, properties=request.properties, inputs=request.inputs)


def _update(request: Any) -> Any:
    given = decode_properties(request.news)
    return proto.UpdateResponse(properties=encode_properties(given.properties, given.secrets))


def _delete(request: Any) -> Any:
    refuse_deletion_while_needed(decode_properties(request.properties).properties)
    return empty_pb2.Empty()  # type: ignore[attr-defined]


ANSWER_FUNCTIONS_BY_METHOD: Mapping[str, Callable[[Any], Any]] = {
    "Check": _check,
    "Diff": _diff,
    "Create": _create,
    "Read": _read,
    "Update": _update,
    "Delete": _delete,
}
"""The function that answers each method of the provider for an operator's guard, by the method's name."""
