"""The names and types of components' arguments, read from their classes.

They serve to read the inputs of programs in other languages; the schema also has descriptions and defaults.
"""

from __future__ import annotations

import types
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import pulumi


@dataclass(frozen=True, slots=True)
class Shape:
    """The type of an argument's value.

    :ivar kind: ``string``, ``integer``, ``boolean``, ``port`` (a number or a name), ``list``, ``map``,
        ``object``.
    :ivar is_later: True if the value may be an output, known after the program has run.
    :ivar items: the type of the items of a list or a map.
    :ivar of: the class of an object's arguments.
    :ivar choices: the allowed values of a string, where they are few.
    """

    kind: str
    is_later: bool = False
    items: Shape | None = None
    of: type[Any] | None = None
    choices: tuple[str, ...] = ()


def shapes_of(kind: type[Any]) -> dict[str, Shape]:
    """Return the type of each argument of a class, inherited ones included."""
    # The SDK's Input names Output and its variable as texts.
    hints = get_type_hints(kind, localns={"Output": pulumi.Output, "T": TypeVar("T")})
    return {item.name: _shape(hints[item.name]) for item in fields(kind)}


def _shape(hint: Any) -> Shape:
    options = [each for each in _options(hint) if each is not types.NoneType]
    later = [
        each for each in options if get_origin(each) in (pulumi.Output, Awaitable) or _is_awaitable(each)
    ]
    is_later = bool(later)
    plain = [each for each in options if each not in later]
    classes = [each for each in plain if isinstance(each, type) and is_dataclass(each)]
    if classes:
        return Shape("object", is_later, of=classes[0])
    choices = next((get_args(each) for each in plain if get_origin(each) is Literal), ())
    if choices:
        return Shape("string", is_later, choices=choices)
    for each in plain:
        origin = get_origin(each)
        if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
            return Shape("map", is_later, items=_shape(get_args(each)[1]))
        if origin is not None and isinstance(origin, type) and issubclass(origin, Sequence):
            return Shape("list", is_later, items=_shape(get_args(each)[0]))
    kinds = {each for each in plain if each in _KINDS}
    if kinds == {int, str}:
        return Shape("port", is_later)
    (kind,) = kinds
    return Shape(_KINDS[kind], is_later)


_KINDS: Mapping[Any, str] = {str: "string", int: "integer", bool: "boolean"}


def _options(hint: Any) -> list[Any]:
    """Return the members of a union, at any depth."""
    if get_origin(hint) in (Union, types.UnionType):
        return [each for member in get_args(hint) for each in _options(member)]
    return [hint]


def _is_awaitable(hint: Any) -> bool:
    origin = get_origin(hint)
    return isinstance(origin, type) and issubclass(origin, Awaitable)


def names_within(kind: type[Any]) -> frozenset[str]:
    """Return the names of a class's arguments and of all nested arguments."""
    found: set[str] = set()
    for name, argument in shapes_of(kind).items():
        found.add(name)
        shape: Shape | None = argument
        while shape is not None:
            if shape.of is not None:
                found |= names_within(shape.of)
            shape = shape.items
    return frozenset(found)
