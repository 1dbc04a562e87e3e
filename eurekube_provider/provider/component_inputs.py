"""Conversion of a component's inputs, from a program in any language, to the component's own arguments.

A value that may be known later becomes an output. Values that decide which objects the component makes must
be known; while one is unknown in a preview, no object can be previewed.
"""

from __future__ import annotations

import types
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import pulumi
from pulumi.output import Unknown
from pulumi.runtime import rpc

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.wording import camel_case
from eurekube_provider.provider.wire import UNKNOWN_TEXT
from eurekube_provider.registrations.secret_values import OUTPUT_SIGNATURE, SECRET_SIGNATURE, SIGNATURE_KEY


@dataclass(frozen=True, slots=True)
class ArgumentType:
    """The type of an argument's value.

    :ivar kind: ``string``, ``integer``, ``boolean``, ``port`` (a number or a name), ``list``, ``map``,
        ``object``.
    :ivar may_be_output: True if the value may be an output, known after the program has run.
    :ivar item_type: the type of the items of a list or a map.
    :ivar arguments_class: the class of an object's arguments.
    :ivar choices: the allowed values of a string, where they are few.
    """

    kind: str
    may_be_output: bool = False
    item_type: ArgumentType | None = None
    arguments_class: type[Any] | None = None
    choices: tuple[str, ...] = ()


def argument_types(arguments_class: type[Any]) -> dict[str, ArgumentType]:
    """Return the type of each argument of a class, inherited ones included."""
    # The SDK's Input names Output and its variable as texts.
    hints = get_type_hints(arguments_class, localns={"Output": pulumi.Output, "T": TypeVar("T")})
    return {item.name: _argument_type(hints[item.name]) for item in fields(arguments_class)}


def _argument_type(hint: Any) -> ArgumentType:
    options = [each for each in _union_members(hint) if each is not types.NoneType]
    plain = [each for each in options if not _is_generic(each, (pulumi.Output, Awaitable))]
    may_be_output = plain != options
    classes = [each for each in plain if isinstance(each, type) and is_dataclass(each)]
    if classes:
        return ArgumentType("object", may_be_output, arguments_class=classes[0])
    choices = next((get_args(each) for each in plain if get_origin(each) is Literal), ())
    if choices:
        return ArgumentType("string", may_be_output, choices=choices)
    for each in plain:
        if _is_generic(each, Mapping):
            return ArgumentType("map", may_be_output, item_type=_argument_type(get_args(each)[1]))
        if _is_generic(each, Sequence):
            return ArgumentType("list", may_be_output, item_type=_argument_type(get_args(each)[0]))
    kinds = {each for each in plain if each in _KINDS_BY_TYPE}
    if kinds == {int, str}:
        return ArgumentType("port", may_be_output)
    (kind,) = kinds
    return ArgumentType(_KINDS_BY_TYPE[kind], may_be_output)


_KINDS_BY_TYPE: Mapping[Any, str] = {str: "string", int: "integer", bool: "boolean"}


def _union_members(hint: Any) -> list[Any]:
    """Return the members of a union, at any depth."""
    if get_origin(hint) in (Union, types.UnionType):
        return [each for member in get_args(hint) for each in _union_members(member)]
    return [hint]


def _is_generic(hint: Any, classes: type[Any] | tuple[type[Any], ...]) -> bool:
    origin = get_origin(hint)
    return isinstance(origin, type) and issubclass(origin, classes)


def nested_argument_names(arguments_class: type[Any]) -> frozenset[str]:
    """Return the names of a class's arguments and of all nested arguments."""
    found: set[str] = set()
    for name, argument in argument_types(arguments_class).items():
        found.add(name)
        shape: ArgumentType | None = argument
        while shape is not None:
            if shape.arguments_class is not None:
                found |= nested_argument_names(shape.arguments_class)
            shape = shape.item_type
    return frozenset(found)


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
