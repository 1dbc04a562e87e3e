"""Conversion of a component's inputs, from a program in any language, to the component's own arguments.

A value that may be known later becomes an output, with its secrecy and its dependencies. Values that decide
which objects the component makes must be known; while one is unknown in a preview, no object can be
previewed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi.output import Unknown
from pulumi.runtime import rpc

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.wording import camel_case
from eurekube_provider.provider.component_arguments import Shape, shapes_of
from eurekube_provider.provider.wire import OUTPUT, UNKNOWN_TEXT
from eurekube_provider.registrations.secret_values import SECRET, SIGNATURE


@dataclass(slots=True)
class ComponentInputs:
    """The arguments of one component.

    :ivar given: the values by the schema's names, also within objects.
    :ivar unknown: paths of values that must be known and are not, as programs write them.
    :ivar awaited: the arguments that were taken as plain values: the component gets their dependencies.
    """

    given: dict[str, Any] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    awaited: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, kind: type[Any], message: Any, later: Mapping[str, Any]) -> ComponentInputs:
        """Read a request's inputs.

        :param kind: the class of the component's arguments.
        :param message: the inputs as the engine sent them.
        :param later: the same inputs as the SDK reads them, with outputs.
        :raises ConfigurationError: a value is of a wrong kind, or is a secret that would stand in clear in
            the objects.
        """
        shapes = {camel_case(argument): shape for argument, shape in shapes_of(kind).items()}
        found = cls()
        for name, value in message.fields.items():
            shape = shapes.get(name)
            if shape is not None:
                _refuse_another_kind(shape, value, name)
            if shape is None or shape.is_later:
                found.given[name] = later.get(name)
            else:
                found.awaited.append(name)
                read = found._read(shape, value, name)
                if read is not None:
                    found.given[name] = read
        return found

    def _read(self, shape: Shape, message: Any, where: str, *, within_secret: bool = False) -> Any:
        """Return a value whose outermost part must be known.

        :param within_secret: True if a secret contains the value.
        """
        value, is_secret = _unwrapped(message)
        is_secret = is_secret or within_secret
        kind = value.WhichOneof("kind") if value is not None else None
        if value is None:
            self.unknown.append(where)
        if kind in (None, "null_value"):
            return None
        if kind == "struct_value" and (shape.of is not None or shape.kind == "map"):
            shapes = _shapes(shape)
            found = {
                key: self._inner(shapes(key), item, f"{where}.{key}", within_secret=is_secret)
                for key, item in value.struct_value.fields.items()
            }
            return {key: item for key, item in found.items() if item is not None}
        if kind == "list_value" and shape.items is not None:
            return [
                self._inner(shape.items, item, f"{where}[{number}]", within_secret=is_secret)
                for number, item in enumerate(value.list_value.values)
            ]
        if is_secret:
            raise ConfigurationError(
                f"{where} must not be a secret: it stands in clear in objects of the cluster, or names them"
            )
        read = _as_whole_number(_deserialized(value))
        return str(read) if shape.kind == "string" and kind == "number_value" else read

    def _inner(self, shape: Shape, message: Any, where: str, *, within_secret: bool) -> Any:
        """Return a value within a list, map or object that is known."""
        if not shape.is_later:
            return self._read(shape, message, where, within_secret=within_secret)
        read = _deserialized(message)
        if rpc.is_rpc_secret(read):
            return pulumi.Output.secret(rpc.unwrap_rpc_secret(read))
        if isinstance(read, Unknown):
            return pulumi.Output.from_input(read)
        if within_secret and read is not None:
            return pulumi.Output.secret(read)
        return _as_whole_number(read)


_KINDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "string": ("a text", ("string_value", "number_value")),  # YAML lets a program leave out the quotes
    "integer": ("a whole number", ("number_value",)),
    "boolean": ("true or false", ("bool_value",)),
    "port": ("a number or a name", ("number_value", "string_value")),
    "list": ("a list", ("list_value",)),
    "map": ("a map", ("struct_value",)),
    "object": ("an object", ("struct_value",)),
}
"""The name and the protobuf fields of each kind of argument."""


def _refuse_another_kind(shape: Shape, message: Any, where: str) -> None:
    """Refuse a value of a wrong kind, which some languages let a program write; unknown values are checked
    once they are known.

    :raises ConfigurationError: the value is of another kind than its argument.
    """
    value, _ = _unwrapped(message)
    kind = value.WhichOneof("kind") if value is not None else None
    if kind in (None, "null_value"):
        return
    called, kinds = _KINDS[shape.kind]
    if kind not in kinds:
        raise ConfigurationError(f"{where} must be {called}")
    if kind == "list_value" and shape.items is not None:
        for number, item in enumerate(value.list_value.values):
            _refuse_another_kind(shape.items, item, f"{where}[{number}]")
    if kind == "struct_value":
        shapes = _shapes(shape)
        known = None if shape.of is None else set(map(camel_case, shapes_of(shape.of)))
        for key, item in value.struct_value.fields.items():
            if known is None or key in known:
                _refuse_another_kind(shapes(key), item, f"{where}.{key}")


def _shapes(shape: Shape) -> Callable[[str], Shape]:
    """Return a function from key to type for a map or an object; an unknown key counts as a string here."""
    if shape.of is None:
        return lambda _: shape.items or Shape("string")
    known = {camel_case(name): each for name, each in shapes_of(shape.of).items()}
    return lambda key: known.get(key, Shape("string"))


def _deserialized(value: Any) -> Any:
    """Return a protobuf value as the SDK reads it."""
    kind = value.WhichOneof("kind")
    if kind in (None, "null_value"):
        return None
    return rpc.deserialize_property(getattr(value, kind), keep_unknowns=True)


def _unwrapped(message: Any) -> tuple[Any, bool]:
    """Return a value without its marks as output or secret, and whether it is a secret; None for an
    unknown value.
    """
    is_secret = False
    while message.WhichOneof("kind") == "struct_value":
        fields = message.struct_value.fields
        kind = fields[SIGNATURE].string_value if SIGNATURE in fields else ""
        if kind not in (SECRET, OUTPUT):
            break
        is_secret = is_secret or kind == SECRET or ("secret" in fields and fields["secret"].bool_value)
        if "value" not in fields:
            return None, is_secret
        message = fields["value"]
    if message.WhichOneof("kind") == "string_value" and message.string_value == UNKNOWN_TEXT:
        return None, is_secret
    return message, is_secret


def _as_whole_number(value: Any) -> Any:
    """Return a float without a fraction as an integer, since the engine sends every number as a float."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
