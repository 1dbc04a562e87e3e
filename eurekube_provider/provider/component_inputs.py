"""Conversion of a component's inputs, from a program in any language, to the component's own arguments.

A value that may be known later becomes an output. Values that decide which objects the component makes must
be known; while one is unknown in a preview, no object can be previewed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi.output import Unknown
from pulumi.runtime import rpc

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.wording import camel_case
from eurekube_provider.provider.component_arguments import ArgumentType, argument_types
from eurekube_provider.provider.wire import UNKNOWN_TEXT
from eurekube_provider.registrations.secret_values import OUTPUT_SIGNATURE, SECRET_SIGNATURE, SIGNATURE_KEY


@dataclass(slots=True)
class ComponentInputs:
    """The arguments of one component.

    :ivar values: the values by the schema's names, also within objects.
    :ivar unknown_paths: paths of values that must be known and are not, as programs write them.
    :ivar plain_argument_names: arguments taken as plain values, whose dependencies the component gets.
    """

    values: dict[str, Any] = field(default_factory=dict)
    unknown_paths: list[str] = field(default_factory=list)
    plain_argument_names: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, arguments_class: type[Any], message: Any, sdk_inputs: Mapping[str, Any]) -> ComponentInputs:
        """Read a request's inputs: ``message`` as the engine sent them, ``sdk_inputs`` as the SDK reads them.

        :raises ConfigurationError: a value is of a wrong kind, or is a secret that would stand in clear.
        """
        shapes = {camel_case(argument): shape for argument, shape in argument_types(arguments_class).items()}
        found = cls()
        for name, value in message.fields.items():
            shape = shapes.get(name)
            if shape is not None:
                _refuse_wrong_kind(shape, value, name)
            if shape is None or shape.may_be_output:
                found.values[name] = sdk_inputs.get(name)
            else:
                found.plain_argument_names.append(name)
                read = found._read_known_or_note_path(shape, value, name)
                if read is not None:
                    found.values[name] = read
        return found

    def _read_known_or_note_path(
        self, shape: ArgumentType, message: Any, where: str, *, within_secret: bool = False
    ) -> Any:
        """Return an argument that must be known; if it is not, add its path to ``unknown_paths``."""
        value, is_secret = _unwrap(message)
        is_secret = is_secret or within_secret
        kind = value.WhichOneof("kind") if value is not None else None
        if value is None:
            self.unknown_paths.append(where)
        if kind in (None, "null_value"):
            return None
        if shape.kind in ("list", "map", "object"):
            found = {
                key: self._read_nested(part or _TEXT, item, place, within_secret=is_secret)
                for key, part, item, place in _parts(shape, value, where)
            }
            if shape.kind == "list":
                return list(found.values())
            return {key: item for key, item in found.items() if item is not None}
        if is_secret:
            raise ConfigurationError(
                f"{where} must not be a secret: it stands in clear in objects of the cluster, or names them"
            )
        read = _as_whole_number(_deserialize(value))
        return str(read) if shape.kind == "string" and kind == "number_value" else read

    def _read_nested(self, shape: ArgumentType, message: Any, where: str, *, within_secret: bool) -> Any:
        """Return a value within a list, map or object; it may be unknown where its type allows an output."""
        if not shape.may_be_output:
            return self._read_known_or_note_path(shape, message, where, within_secret=within_secret)
        read = _deserialize(message)
        if rpc.is_rpc_secret(read):
            return pulumi.Output.secret(rpc.unwrap_rpc_secret(read))
        if isinstance(read, Unknown):
            return pulumi.Output.from_input(read)
        if within_secret and read is not None:
            return pulumi.Output.secret(read)
        return _as_whole_number(read)


_TEXT = ArgumentType("string")

_WORDS_AND_PROTOBUF_KINDS_BY_KIND: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "string": ("a text", ("string_value", "number_value")),  # YAML lets a program leave out the quotes
    "integer": ("a whole number", ("number_value",)),
    "boolean": ("true or false", ("bool_value",)),
    "port": ("a number or a name", ("number_value", "string_value")),
    "list": ("a list", ("list_value",)),
    "map": ("a map", ("struct_value",)),
    "object": ("an object", ("struct_value",)),
}
"""The words for each kind of argument in errors, and its kinds of protobuf values."""


def _refuse_wrong_kind(shape: ArgumentType, message: Any, where: str) -> None:
    """Refuse a value of a wrong kind, which some languages let a program write; accept unknown values."""
    value, _ = _unwrap(message)
    kind = value.WhichOneof("kind") if value is not None else None
    if kind in (None, "null_value"):
        return
    called, kinds = _WORDS_AND_PROTOBUF_KINDS_BY_KIND[shape.kind]
    if kind not in kinds:
        raise ConfigurationError(f"{where} must be {called}")
    for _, part, item, place in _parts(shape, value, where):
        if part is not None:
            _refuse_wrong_kind(part, item, place)


def _parts(
    shape: ArgumentType, value: Any, where: str
) -> Iterator[tuple[str | int, ArgumentType | None, Any, str]]:
    """Yield the parts of a list, map or object: key, type, value and path; of an unknown key no type."""
    for number, item in enumerate(value.list_value.values):
        yield number, shape.item_type, item, f"{where}[{number}]"
    known: Mapping[str, ArgumentType] = {}
    if shape.arguments_class is not None:
        known = {camel_case(name): each for name, each in argument_types(shape.arguments_class).items()}
    for key, item in value.struct_value.fields.items():
        yield key, shape.item_type or known.get(key), item, f"{where}.{key}"


def _deserialize(value: Any) -> Any:
    """Return a protobuf value as the SDK reads it."""
    kind = value.WhichOneof("kind")
    if kind in (None, "null_value"):
        return None
    return rpc.deserialize_property(getattr(value, kind), keep_unknowns=True)


def _unwrap(message: Any) -> tuple[Any, bool]:
    """Return a value without its marks, None if it is unknown, and True if it is a secret."""
    is_secret = False
    while message.WhichOneof("kind") == "struct_value":
        fields = message.struct_value.fields
        kind = fields[SIGNATURE_KEY].string_value if SIGNATURE_KEY in fields else ""
        if kind not in (SECRET_SIGNATURE, OUTPUT_SIGNATURE):
            break
        is_secret = (
            is_secret or kind == SECRET_SIGNATURE or ("secret" in fields and fields["secret"].bool_value)
        )
        if "value" not in fields:
            return None, is_secret
        message = fields["value"]
    if message.WhichOneof("kind") == "string_value" and message.string_value == UNKNOWN_TEXT:
        return None, is_secret
    return message, is_secret


def _as_whole_number(value: Any) -> Any:
    """Return a float without a fraction as an integer, since the engine sends every number as a float."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
