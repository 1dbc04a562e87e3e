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

from eurekube_provider.core.quoting import HIDDEN
from eurekube_provider.registrations.names import INSTANCES, camel, renamed, snake
from eurekube_provider.registrations.properties import Properties
from eurekube_provider.registrations.secret_values import SECRET, SIGNATURE, as_secret, is_secret
from eurekube_provider.registrations.values import UNKNOWN

OUTPUT = "d0e6a833031e9bbcd3f4e8bde6ca49a4"
"""The mark of a value that may be unknown or a secret; sdk/go/common/resource/sig of pulumi/pulumi."""

UNKNOWN_TEXT = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""The text that the engine sends for an unknown value."""

_MESSAGES = frozenset({"args", "inputs", "news", "old_inputs", "olds", "properties"})
"""Fields of a request that may hold secrets."""

_SHORTEST = 4
"""The least length of a secret that is hidden in sentences; a shorter text occurs in any sentence by
chance.
"""

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Received:
    """Properties that the engine sent.

    :ivar properties: plain values under the names of ``registrations``, with
        :data:`~eurekube_provider.registrations.values.UNKNOWN` for unknown ones.
    :ivar secrets: the paths of the secrets.
    """

    properties: Properties
    secrets: frozenset[Path] = field(default_factory=frozenset)

    def is_secret(self, name: str) -> bool:
        """Return whether a property is a secret, or contains one."""
        return any(path[0] == name for path in self.secrets)


def received(message: Any) -> Received:
    """Read the properties in an engine's message, also those of a state that the dynamic provider wrote."""
    properties: Properties = {}
    structured: Properties = {}
    for key, item in message.fields.items():
        value = _python_value(item)
        if value is None or key.startswith("__"):
            continue
        if isinstance(value, dict | list):
            structured[key] = value
        else:
            properties[snake(key)] = _our_value(value)
    secrets: set[Path] = set()
    for key, item in structured.items():
        _find_secrets(item, (snake(key),), secrets)
    properties |= renamed({key: _our_value(item) for key, item in structured.items()}, snake)
    return Received(properties, frozenset(secrets))


def sent(properties: Mapping[str, Any], secrets: Iterable[Path] = ()) -> Any:
    """Return a message with these properties, in which the values at ``secrets`` are wrapped."""
    wanted = renamed(
        {key: _engine_value(item) for key, item in properties.items() if item is not None}, camel
    )
    # The outermost first: what lies within a secret needs no wrapping of its own.
    for path in sorted(secrets, key=len):
        _wrap(wanted, _camel_path(path))
    message: Any = struct_pb2.Struct()  # type: ignore[attr-defined]
    message.update(wanted)
    return message


def with_secrets(message: Any, names: Container[str]) -> Any:
    """Return a copy of a message whose properties of these names are secrets; unknown values stay as they
    are.
    """
    copied: Any = struct_pb2.Struct()  # type: ignore[attr-defined]
    copied.CopyFrom(message)
    for key, item in message.fields.items():
        if camel(key) in names and not is_secret(plain := _python_value(item)) and plain != UNKNOWN_TEXT:
            copied.update({key: as_secret(plain)})
    return copied


def hidden(text: str, request: Any) -> str:
    """Return a sentence in which the secret texts of a request's messages are hidden."""
    found: set[str] = set()
    for name in _MESSAGES.intersection(request.DESCRIPTOR.fields_by_name.keys()):
        for item in getattr(request, name).fields.values():
            _find_texts(_python_value(item), found, within_secret=False)
    for each in sorted(found, key=len, reverse=True):
        if len(each) >= _SHORTEST:
            text = re.sub(rf"(?<!\w){re.escape(each)}(?!\w)", HIDDEN, text, flags=re.IGNORECASE)
    return text


def _find_texts(value: Any, found: set[str], *, within_secret: bool) -> None:
    if isinstance(value, Mapping):
        kind = value.get(SIGNATURE)
        if kind in (SECRET, OUTPUT):
            is_hidden = within_secret or kind == SECRET or bool(value.get("secret"))
            _find_texts(value.get("value"), found, within_secret=is_hidden)
            return
        for item in value.values():
            _find_texts(item, found, within_secret=within_secret)
    elif within_secret and isinstance(value, str):
        found.add(value.strip())


def _python_value(value: Any) -> Any:
    """Return a protobuf value as a Python value; its numbers are floats."""
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return {key: _python_value(item) for key, item in value.struct_value.fields.items()}
    if kind == "list_value":
        return [_python_value(item) for item in value.list_value.values]
    return None if kind in (None, "null_value") else getattr(value, kind)


def _camel_path(path: Path) -> Path:
    """Return a path with the engine's names, also for the properties of an instance."""
    if path[0] == INSTANCES and len(path) > 2:
        return (*path[:2], camel(path[2]), *path[3:])
    return (camel(path[0]), *path[1:])


def _our_value(value: Any) -> Any:
    if isinstance(value, str):
        return UNKNOWN if value == UNKNOWN_TEXT else value
    if isinstance(value, Mapping):
        kind = value.get(SIGNATURE)
        if kind in (SECRET, OUTPUT):
            return _our_value(value["value"]) if "value" in value else UNKNOWN
        return {key: _our_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_our_value(item) for item in value]
    return value


def _find_secrets(value: Any, path: Path, found: set[Path]) -> None:
    if not isinstance(value, Mapping):
        return
    kind = value.get(SIGNATURE)
    if kind == SECRET or (kind == OUTPUT and value.get("secret")):
        found.add(path)
    elif kind == OUTPUT:
        _find_secrets(value.get("value"), path, found)
    elif kind is None:
        for key, item in value.items():
            is_named = len(path) == 2 and path[0] == INSTANCES
            _find_secrets(item, (*path, snake(key) if is_named else key), found)


def _engine_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _engine_value(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_engine_value(item) for item in value]
    return UNKNOWN_TEXT if value is UNKNOWN else value


def _wrap(properties: dict[str, Any], path: Path) -> None:
    inside: Any = properties
    for name in path[:-1]:
        inside = inside.get(name) if isinstance(inside, dict) else None
        if not isinstance(inside, dict) or is_secret(inside):
            return
    if isinstance(inside, dict) and path[-1] in inside:
        inside[path[-1]] = as_secret(inside[path[-1]])
