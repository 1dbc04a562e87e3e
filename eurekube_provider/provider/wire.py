"""Conversion of properties between Pulumi's engine and ``registrations``: names, unknown values and secrets.

The engine wraps secrets. Their paths are kept beside the plain properties, and properties that go back are
wrapped at the same paths. Source: sdk/go/common/resource/plugin/rpc.go of pulumi/pulumi.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import struct_pb2

from eurekube_provider.core.quoting import REDACTION_PLACEHOLDER, encodable
from eurekube_provider.registrations.names import (
    INSTANCES_PROPERTY,
    rename_properties,
    to_camel_case,
    to_snake_case,
)
from eurekube_provider.registrations.properties import Properties
from eurekube_provider.registrations.secret_values import (
    OUTPUT_SIGNATURE,
    SECRET_SIGNATURE,
    SIGNATURE_KEY,
    as_secret,
    is_secret,
    secret_texts,
)
from eurekube_provider.registrations.values import UNKNOWN

UNKNOWN_TEXT = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""The text that the engine sends for an unknown value."""

_MESSAGE_FIELDS_WITH_SECRETS = frozenset({"args", "inputs", "news", "old_inputs", "olds", "properties"})
"""Fields of the engine's requests that may hold secrets."""

_MIN_HIDDEN_LETTERS = 4
"""The least length of a secret that is hidden; a shorter text occurs in any sentence by chance."""

PropertyPath = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReceivedProperties:
    """Properties that the engine sent.

    :ivar properties: plain values under the names of ``registrations``, with
        :data:`~eurekube_provider.registrations.values.UNKNOWN` for unknown ones.
    :ivar secrets: the paths of the secrets.
    """

    properties: Properties
    secrets: frozenset[PropertyPath] = field(default_factory=frozenset)

    def contains_secret(self, name: str) -> bool:
        """Return whether a property is a secret, or contains one."""
        return any(path[0] == name for path in self.secrets)

    def shows_any_of(self, paths: Iterable[PropertyPath]) -> bool:
        """Return whether the value at one of the paths is there, and is no secret."""
        for path in paths:
            inside: Any = self.properties
            for name in path:
                inside = inside.get(name) if isinstance(inside, Mapping) else None
            is_secret = any(path[:depth] in self.secrets for depth in range(1, len(path) + 1))
            if inside is not None and not is_secret:
                return True
        return False


def decode_properties(message: Any) -> ReceivedProperties:
    """Convert an engine's message to properties, also that of a state that the dynamic provider wrote."""
    properties: Properties = {}
    secrets: set[PropertyPath] = set()
    for key, item in message.fields.items():
        value = _to_python_value(item)
        if value is not None and not key.startswith("__"):
            _collect_secret_paths(value, (to_snake_case(key),), secrets)
            properties[key] = _from_engine_value(value)
    return ReceivedProperties(rename_properties(properties, to_snake_case), frozenset(secrets))


def encode_properties(properties: Mapping[str, Any], secrets: Iterable[PropertyPath] = ()) -> Any:
    """Convert properties to a message for the engine, in which the values at ``secrets`` are wrapped."""
    wanted = rename_properties(
        {key: _to_engine_value(item) for key, item in properties.items() if item is not None}, to_camel_case
    )
    # The outermost first: what lies within a secret needs no wrapping of its own.
    for path in sorted(secrets, key=len):
        _wrap_secret(wanted, _camel_path(path))
    message: Any = struct_pb2.Struct()  # type: ignore[attr-defined]
    message.update(wanted)
    return message


def mark_secrets(message: Any, names: Container[str]) -> Any:
    """Return a copy of a message whose properties of these names are secrets; unknown ones stay."""
    copied: Any = struct_pb2.Struct()  # type: ignore[attr-defined]
    copied.CopyFrom(message)
    for key, item in message.fields.items():
        if (
            to_camel_case(key) in names
            and not is_secret(plain := _to_python_value(item))
            and plain != UNKNOWN_TEXT
        ):
            copied.update({key: as_secret(plain)})
    return copied


def hide_secrets(text: str, request: Any) -> str:
    """Return a sentence in which the secret texts of a request's messages are hidden."""
    found: set[str] = set()
    for name in _MESSAGE_FIELDS_WITH_SECRETS.intersection(request.DESCRIPTOR.fields_by_name.keys()):
        for item in getattr(request, name).fields.values():
            found.update(text.strip() for text in secret_texts(_to_python_value(item)))
    for each in sorted(found, key=len, reverse=True):
        if len(each) >= _MIN_HIDDEN_LETTERS:
            text = re.sub(
                rf"(?<!\w){re.escape(each)}(?!\w)", REDACTION_PLACEHOLDER, text, flags=re.IGNORECASE
            )
    return text


def _to_python_value(value: Any) -> Any:
    """Return a protobuf value as a Python value; its numbers are floats."""
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return {key: _to_python_value(item) for key, item in value.struct_value.fields.items()}
    if kind == "list_value":
        return [_to_python_value(item) for item in value.list_value.values]
    return None if kind in (None, "null_value") else getattr(value, kind)


def _camel_path(path: PropertyPath) -> PropertyPath:
    """Return a path with the engine's names, also for the properties of an instance."""
    if path[0] == INSTANCES_PROPERTY and len(path) > 2:
        return (*path[:2], to_camel_case(path[2]), *path[3:])
    return (to_camel_case(path[0]), *path[1:])


def _from_engine_value(value: Any) -> Any:
    if isinstance(value, str):
        return UNKNOWN if value == UNKNOWN_TEXT else value
    if isinstance(value, Mapping):
        kind = value.get(SIGNATURE_KEY)
        if kind in (SECRET_SIGNATURE, OUTPUT_SIGNATURE):
            return _from_engine_value(value["value"]) if "value" in value else UNKNOWN
        return {key: _from_engine_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_from_engine_value(item) for item in value]
    return value


def _collect_secret_paths(value: Any, path: PropertyPath, found: set[PropertyPath]) -> None:
    if not isinstance(value, Mapping):
        return
    kind = value.get(SIGNATURE_KEY)
    if kind == SECRET_SIGNATURE or (kind == OUTPUT_SIGNATURE and value.get("secret")):
        found.add(path)
    elif kind == OUTPUT_SIGNATURE:
        _collect_secret_paths(value.get("value"), path, found)
    elif kind is None:
        for key, item in value.items():
            is_named = len(path) == 2 and path[0] == INSTANCES_PROPERTY
            _collect_secret_paths(item, (*path, to_snake_case(key) if is_named else key), found)


def _to_engine_value(value: Any) -> Any:
    if value is UNKNOWN:
        return UNKNOWN_TEXT
    if isinstance(value, Mapping):
        return {encodable(key): _to_engine_value(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_to_engine_value(item) for item in value]
    return encodable(value) if isinstance(value, str) else value


def _wrap_secret(properties: dict[str, Any], path: PropertyPath) -> None:
    inside: Any = properties
    for name in path[:-1]:
        inside = inside.get(name) if isinstance(inside, dict) else None
        if not isinstance(inside, dict) or is_secret(inside):
            return
    if isinstance(inside, dict) and path[-1] in inside:
        inside[path[-1]] = as_secret(inside[path[-1]])
