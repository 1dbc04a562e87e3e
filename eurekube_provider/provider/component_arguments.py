"""Names and types of components' arguments, read from their classes, for programs in other languages."""

from __future__ import annotations

import types
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import pulumi


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
