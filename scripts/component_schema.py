"""The components in the package's schema, made from the classes of their arguments.

``make properties`` needs it; the plugin serves the committed schema.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any

from eurekube_provider.core.wording import camel_case
from eurekube_provider.provider.component_inputs import ArgumentType, argument_types, nested_argument_names
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
    shape: ArgumentType
    is_required: bool
    is_secret: bool
    default: Any = None


def arguments_of(kind: type[Any]) -> tuple[Argument, ...]:
    """Return the arguments of a class, including inherited ones."""
    descriptions, shapes = _descriptions(kind), argument_types(kind)
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


_STRING_TYPE = {"type": "string"}
_SCHEMA_TYPES: Mapping[str, dict[str, Any]] = {
    "string": _STRING_TYPE,
    "integer": {"type": "integer"},
    "boolean": {"type": "boolean"},
    "port": {"oneOf": [{"type": "integer"}, _STRING_TYPE]},
}

_TYPE_PREFIXES: Mapping[type[Any], str] = {
    EurekaMirrorArgs: "Mirror",
    EurekubeOperatorArgs: "Operator",
    EurekaSyncerArgs: "Syncer",
}
"""Prefix of the type names of a component's arguments, by the class of its arguments."""


def component_resources() -> dict[str, Any]:
    """Return the components as resources of the schema."""
    return {
        "eurekube:index:Operator": _component_schema(
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
        "eurekube:index:Mirror": _component_schema(
            EurekaMirrorArgs,
            "Asks an operator to show applications registered in Eureka as Services of the cluster. Make it"
            " depend on its operator, which serves its finalizer and needs `mirrors`.",
            {"name": "The object's name.", "namespace": "The object's namespace."},
            "eurekube:index:EurekaMirror",
        ),
        "eurekube:index:Syncer": _component_schema(
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
    for kind, prefix in _TYPE_PREFIXES.items():
        for each in arguments_of(kind):
            _collect_types(each.shape, _type_name(prefix, each.name), types)
    return types


def _component_schema(
    kind: type[Any], description: str, outputs: Mapping[str, str], alias: str
) -> dict[str, Any]:
    prefix = _TYPE_PREFIXES[kind]
    arguments = sorted(arguments_of(kind), key=lambda each: each.name)
    return {
        "description": description,
        "isComponent": True,
        "properties": {name: {**_STRING_TYPE, "description": text} for name, text in outputs.items()},
        "required": sorted(outputs),
        "inputProperties": {camel_case(each.name): _property_schema(each, prefix) for each in arguments},
        "requiredInputs": sorted(camel_case(each.name) for each in arguments if each.is_required),
        "aliases": [{"type": alias}],
    }


def _property_schema(each: Argument, prefix: str) -> dict[str, Any]:
    found = {
        **_type_schema(each.shape, _type_name(prefix, each.name)),
        "description": _adapt_docstring(each.description),
    }
    if each.default is not None:
        found["default"] = each.default
    if each.is_secret:
        found["secret"] = True
    return found


def _type_schema(shape: ArgumentType, name: str) -> dict[str, Any]:
    if shape.choices:
        return {"$ref": f"#/types/{name}"}
    if shape.arguments_class is not None:
        return {"$ref": f"#/types/{_object_type_name(shape.arguments_class)}"}
    if shape.item_type is not None:
        inner = _type_schema(shape.item_type, name)
        if shape.kind == "list":
            return {"type": "array", "items": inner}
        return {"type": "object", "additionalProperties": inner}
    return _SCHEMA_TYPES[shape.kind]


def _collect_types(shape: ArgumentType, name: str, types: dict[str, Any]) -> None:
    if shape.choices:
        types[name] = {"type": "string", "enum": [{"value": value} for value in shape.choices]}
    if shape.item_type is not None:
        _collect_types(shape.item_type, name, types)
    if shape.arguments_class is not None:
        arguments = arguments_of(shape.arguments_class)
        types[_object_type_name(shape.arguments_class)] = {
            "type": "object",
            "description": _adapt_docstring((shape.arguments_class.__doc__ or "").split("\n\n")[0]),
            "properties": {camel_case(each.name): _property_schema(each, "") for each in arguments},
            "required": sorted(camel_case(each.name) for each in arguments if each.is_required),
        }


def _type_name(prefix: str, argument: str) -> str:
    name = camel_case(argument)
    return f"eurekube:index:{prefix}{name[0].upper()}{name[1:]}"


_OBJECT_TYPE_NAMES = {
    "EurekaSecretArgs": "EurekaSecret",
    "EurekaConnectionArgs": "EurekaConnection",
    "PodTolerationArgs": "PodToleration",
    "TargetArgs": "RefreshTarget",
}


def _object_type_name(kind: type[Any]) -> str:
    return f"eurekube:index:{_OBJECT_TYPE_NAMES[kind.__name__]}"


_NESTED_ARGUMENT_NAMES = {
    name for kind in _TYPE_PREFIXES for name in nested_argument_names(kind) if "_" in name
}


def _adapt_docstring(docstring: str) -> str:
    """Return a docstring's text for all languages: names in camel case, ``true`` instead of ``True``."""
    text = " ".join(docstring.split()).replace("``", "`")
    text = re.sub(
        r"\w+", lambda found: camel_case(found[0]) if found[0] in _NESTED_ARGUMENT_NAMES else found[0], text
    )
    text = text.replace("`True`", "`true`").replace("`False`", "`false`")
    return text[:1].upper() + text[1:]
