"""The components in the package's schema, made from the classes of their arguments.

``make properties`` needs it; the plugin serves the committed schema.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any

from eurekube_provider.core.wording import camel_case
from eurekube_provider.provider.component_arguments import Shape, names_within, shapes_of
from eurekube_provider.resources.mirror_component import EurekaMirrorArgs
from eurekube_provider.resources.operator_component.operator_arguments import EurekubeOperatorArgs
from eurekube_provider.resources.syncer_component import EurekaSyncerArgs


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a component.

    :ivar name: the name in Python.
    :ivar description: the description, with names as in Python.
    :ivar default: the default, or None where it has none that a schema can express.
    """

    name: str
    description: str
    shape: Shape
    is_required: bool
    is_secret: bool
    default: Any = None


def arguments_of(kind: type[Any]) -> tuple[Argument, ...]:
    """Return the arguments of a class, including inherited ones."""
    descriptions, shapes = _descriptions(kind), shapes_of(kind)
    return tuple(
        Argument(
            item.name,
            descriptions.get(item.name, ""),
            shapes[item.name],
            is_required=item.default is MISSING and item.default_factory is MISSING,
            is_secret=bool(item.metadata.get("secret")),
            default=item.default if isinstance(item.default, str | int | bool) else None,
        )
        for item in fields(kind)
    )


def _descriptions(kind: type[Any]) -> dict[str, str]:
    """Return the description of each attribute from the classes' docstrings."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if not is_dataclass(each):
            continue
        parts = re.split(r"^\s*:ivar (\w+):", each.__doc__ or "", flags=re.MULTILINE)
        for name, text in zip(parts[1::2], parts[2::2], strict=True):
            found[name] = " ".join(text.split())
    return found


_TEXT = {"type": "string"}
_TYPES: Mapping[str, dict[str, Any]] = {
    "string": _TEXT,
    "integer": {"type": "integer"},
    "boolean": {"type": "boolean"},
    "port": {"oneOf": [{"type": "integer"}, _TEXT]},
}

_PREFIXES: Mapping[type[Any], str] = {
    EurekaMirrorArgs: "Mirror",
    EurekubeOperatorArgs: "Operator",
    EurekaSyncerArgs: "Syncer",
}
"""Prefix of the type names of a component's arguments, by the class of its arguments."""


def component_resources() -> dict[str, Any]:
    """Return the components as resources of the schema."""
    return {
        "eurekube:index:Operator": _component(
            EurekubeOperatorArgs,
            "Everything that an operator needs in its cluster: Deployment, rights, CRDs, Service, and what is"
            " asked for beside. It needs the Kubernetes provider, of `providers` or the stack's own.",
            {
                "namespace": "Where the operator lives; there as soon as the namespace is.",
                "serviceAccount": "The name of its ServiceAccount.",
                "operatorName": "Whom registrations name as their renewer.",
            },
            "eurekube:index:EurekubeOperator",
        ),
        "eurekube:index:Mirror": _component(
            EurekaMirrorArgs,
            "Asks an operator to show applications registered in Eureka as Services of the cluster. Make it"
            " depend on its operator, which serves its finalizer and needs `mirrors`.",
            {"name": "The object's name.", "namespace": "The object's namespace."},
            "eurekube:index:EurekaMirror",
        ),
        "eurekube:index:Syncer": _component(
            EurekaSyncerArgs,
            "Asks an operator to keep a Service's endpoints in Eureka. Make it depend on its operator, which"
            " serves its finalizer, so that the syncer goes first.",
            {"name": "The object's name.", "namespace": "The object's namespace."},
            "eurekube:index:EurekaSyncer",
        ),
    }


def component_types() -> dict[str, Any]:
    """Return the types that the components' arguments use."""
    types: dict[str, Any] = {}
    for kind, prefix in _PREFIXES.items():
        for each in arguments_of(kind):
            _collect(each.shape, _type_name(prefix, each.name), types)
    return types


def _component(kind: type[Any], description: str, outputs: Mapping[str, str], alias: str) -> dict[str, Any]:
    prefix = _PREFIXES[kind]
    arguments = sorted(arguments_of(kind), key=lambda each: each.name)
    return {
        "description": description,
        "isComponent": True,
        "properties": {name: {**_TEXT, "description": text} for name, text in outputs.items()},
        "required": sorted(outputs),
        "inputProperties": {camel_case(each.name): _property(each, prefix) for each in arguments},
        "requiredInputs": sorted(camel_case(each.name) for each in arguments if each.is_required),
        "aliases": [{"type": alias}],
    }


def _property(each: Argument, prefix: str) -> dict[str, Any]:
    found = {
        **_type(each.shape, _type_name(prefix, each.name)),
        "description": _description(each.description),
    }
    if each.default is not None:
        found["default"] = each.default
    if each.is_secret:
        found["secret"] = True
    return found


def _type(shape: Shape, name: str) -> dict[str, Any]:
    if shape.choices:
        return {"$ref": f"#/types/{name}"}
    if shape.of is not None:
        return {"$ref": f"#/types/{_object_name(shape.of)}"}
    if shape.items is not None:
        inner = _type(shape.items, name)
        if shape.kind == "list":
            return {"type": "array", "items": inner}
        return {"type": "object", "additionalProperties": inner}
    return _TYPES[shape.kind]


def _collect(shape: Shape, name: str, types: dict[str, Any]) -> None:
    if shape.choices:
        types[name] = {"type": "string", "enum": [{"value": value} for value in shape.choices]}
    if shape.items is not None:
        _collect(shape.items, name, types)
    if shape.of is not None:
        arguments = arguments_of(shape.of)
        types[_object_name(shape.of)] = {
            "type": "object",
            "description": _description((shape.of.__doc__ or "").split("\n\n")[0]),
            "properties": {camel_case(each.name): _property(each, "") for each in arguments},
            "required": sorted(camel_case(each.name) for each in arguments if each.is_required),
        }


def _type_name(prefix: str, argument: str) -> str:
    name = camel_case(argument)
    return f"eurekube:index:{prefix}{name[0].upper()}{name[1:]}"


_OBJECTS = {
    "EurekaSecretArgs": "EurekaSecret",
    "EurekaConnectionArgs": "EurekaConnection",
    "PodTolerationArgs": "PodToleration",
    "TargetArgs": "RefreshTarget",
}


def _object_name(kind: type[Any]) -> str:
    return f"eurekube:index:{_OBJECTS[kind.__name__]}"


_NAMES = {name for kind in _PREFIXES for name in names_within(kind) if "_" in name}


def _description(docstring: str) -> str:
    """Return a docstring's text in a form that suits every language."""
    text = " ".join(docstring.split()).replace("``", "`")
    text = re.sub(r"\w+", lambda found: camel_case(found[0]) if found[0] in _NAMES else found[0], text)
    text = text.replace("`True`", "`true`").replace("`False`", "`false`")
    return text[:1].upper() + text[1:]
