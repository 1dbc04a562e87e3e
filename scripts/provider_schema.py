"""The schema of the package, made from the descriptions of the properties.

``make properties`` writes it to ``schema.json``, which is committed and served: SDKs are generated from it,
and a test compares it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, get_args, get_type_hints

from eurekube_provider.provider.configuration import CONFIGURATION_KEYS
from eurekube_provider.provider.listing import QUERY_ARGUMENT_DESCRIPTIONS_BY_TOKEN
from eurekube_provider.provider.served_schema import COMMITTED_SCHEMA_FILE
from eurekube_provider.registrations.discovered import FoundEndpoint, FoundInstance
from eurekube_provider.registrations.members import ID_BASE_PROPERTY, SHARED_PROPERTY_NAMES
from eurekube_provider.registrations.names import to_camel_case, with_camel_case_names
from eurekube_provider.registrations.properties import PROPERTIES, Property, PropertyScope
from eurekube_provider.version import __version__
from scripts.component_schema import component_resources, component_types

_SCHEMA_TYPES: Mapping[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    dict: {"type": "object", "additionalProperties": {"type": "string"}},
}
_STRING_TYPE, _BOOLEAN_TYPE, _STRING_MAP_TYPE = (_SCHEMA_TYPES[each] for each in (str, bool, dict))

_OUTPUT_ONLY_PROPERTIES = ("service_url", "owner")

_COMMON_OUTPUTS = {
    "owner": (
        _STRING_TYPE,
        "Whom the registration belongs to: `stack/<organization>/<project>/<stack>/<name>`.",
    ),
    "service_url": (_STRING_TYPE, "The URLs of the Eureka that it is registered at."),
    "incarnation": (_STRING_TYPE, "What tells it from another one that the same resource made in its place."),
}
_INSTANCE_OUTPUTS = {
    **_COMMON_OUTPUTS,
    "overridden_status": (_STRING_TYPE, "The status that a person, or this program, has set over its own."),
    "last_updated": (_STRING_TYPE, "When it was last changed, ISO 8601."),
    "seen_owner": (_STRING_TYPE, "Whom Eureka names as its owner, where that is another one than `owner`."),
}
_APPLICATION_OUTPUTS = {
    **_COMMON_OUTPUTS,
    ID_BASE_PROPERTY: (_STRING_TYPE, "The end of every default id."),
    "instance_ids": (_STRING_MAP_TYPE, "By key the id of each instance in Eureka."),
    "statuses": (
        _STRING_MAP_TYPE,
        "By key what Eureka holds in place of UP, or of the status that is asked for.",
    ),
    "held_by_others": (_STRING_MAP_TYPE, "By key whom an instance belongs to that was taken from us."),
    "created": (_STRING_TYPE, "When it was made, ISO 8601."),
}

_REQUIRED_OUTPUTS = (
    *(each.name for each in PROPERTIES if each.is_required),
    "instance_id",
    "ip_address",
    "vip_address",
    "secure_vip_address",
    "status",
    "overridden_status",
)
"""Outputs that every state of an Instance has, so that no SDK makes them optional."""

_REQUIRED_APPLICATION_OUTPUTS = {"instances", "idBase", "instanceIds", "statuses", "heldByOthers"}
"""Outputs that every state of an Application has, besides those that all its instances share."""


def make_schema() -> dict[str, Any]:
    """Return the schema as JSON values."""
    return {
        "name": "eurekube",
        "displayName": "Eurekube",
        "version": __version__,
        "description": "Registrations in Netflix Eureka, owned by Pulumi stacks and renewed by an operator.",
        "keywords": [
            *("pulumi", "eurekube", "eureka", "netflix", "spring-cloud", "service-discovery"),
            *("category/network", "kind/native"),
        ],
        "license": "Apache-2.0",
        "publisher": "Eurekube",
        "meta": {"moduleFormat": "(.*)"},
        "config": {"variables": _configuration_schema()},
        "types": _type_schemas(),
        "provider": {
            "description": "One Eureka, and how to reach it. What a provider that a program makes does not"
            " say is taken from the environment (`EUREKA_URL`, `EUREKA_USER` ...) only where it names no "
            "`url`.",
            "inputProperties": _configuration_schema(),
        },
        "resources": {
            "eurekube:index:Instance": _resource_schema(
                "One registration in Eureka that this stack owns and an operator renews.",
                [each for each in PROPERTIES if each.name not in _OUTPUT_ONLY_PROPERTIES],
                _INSTANCE_OUTPUTS,
                type_="eurekube:index:Instance",
                alias="pulumi-python:dynamic/eurekube:EurekaInstance",
            ),
            "eurekube:index:Application": _application_schema(),
            **component_resources(),
        },
        "functions": _function_schemas(),
        "language": {
            "python": {"pyproject": {"enabled": True}, "respectSchemaVersion": True},
            "nodejs": {"packageName": "@eurekube/pulumi", "respectSchemaVersion": True},
            "go": {
                "importBasePath": "eurekube/sdk/go/eurekube",
                "generateResourceContainerTypes": True,
                "respectSchemaVersion": True,
            },
            "csharp": {"respectSchemaVersion": True},
            "java": {"basePackage": "io", "buildFiles": "maven"},
        },
    }


def schema_text() -> str:
    """Return the text of the schema file."""
    return json.dumps(make_schema(), indent=2, ensure_ascii=False) + "\n"


def _configuration_schema() -> dict[str, Any]:
    kinds = {
        "string": _STRING_TYPE,
        "boolean": _BOOLEAN_TYPE,
        "connections": {
            "type": "object",
            "additionalProperties": {"type": "object", "additionalProperties": _STRING_TYPE},
        },
        "abandonedUrls": {"type": "array", "items": _STRING_TYPE},
    }
    found: dict[str, Any] = {}
    for name, key in CONFIGURATION_KEYS.items():
        found[name] = {**(kinds.get(name) or kinds[key.type]), "description": key.description}
        if key.is_secret or name == "connections":
            found[name]["secret"] = True
    return found


def _type_schemas() -> dict[str, Any]:
    types: dict[str, Any] = {}
    for each in PROPERTIES:
        if each.choices:
            types[_type_name(each)] = {
                "type": "string",
                "enum": [{"name": _enum_member_name(value), "value": value} for value in each.choices],
            }
    own = [
        each
        for each in PROPERTIES
        if each.scope in (PropertyScope.ONE_INSTANCE, PropertyScope.INSTANCE_OR_APPLICATION)
    ]
    types["eurekube:index:ApplicationInstance"] = {
        "type": "object",
        "description": "One instance of an Application; what is not said here is the application's.",
        "properties": {to_camel_case(each.name): _property_schema(each) for each in own},
        "required": ["hostName"],
    }
    for name, (description, properties) in _LOOKUP_RESULT_TYPES.items():
        types[name] = {
            "type": "object",
            "description": description,
            "properties": properties,
            "required": sorted(properties),
        }
    return types | component_types()


def _enum_member_name(value: str) -> str:
    """Return an SDK's name of a choice, such as ``OutOfService``; each language changes it to its own
    form.
    """
    return "".join(part.capitalize() for part in value.split("_"))


def _type_name(each: Property) -> str:
    name = to_camel_case(each.name)
    return f"eurekube:index:{name[0].upper()}{name[1:]}"


def _property_schema(each: Property, *, as_output: bool = False) -> dict[str, Any]:
    """Return the schema of one property; as an output, a status may be any that Eureka knows.

    A default is described, but not part of the schema: an SDK would send it with each resource, where the
    check could not tell it from a person's value, and the engine would keep its name in each state.
    """
    summary = with_camel_case_names(each.description).replace("**", "").replace(", see below", "").strip()
    default = each.default_text or ("" if each.default in (None, {}) else f"`{_default_text(each.default)}`")
    description = ". ".join(
        part[0].upper() + part[1:]
        for part in (summary, f"default: {with_camel_case_names(default)}" if default else "")
        if part
    )
    kind = (
        {"$ref": f"#/types/{_type_name(each)}"}
        if each.choices and not as_output
        else _SCHEMA_TYPES[each.type]
    )
    found = {**kind, "description": f"{description}." if description else ""}
    if not as_output and each.name in ("application", "instance_id"):
        found["willReplaceOnChanges"] = True
    return found


def _resource_schema(
    description: str,
    described: list[Property],
    only_reported: Mapping[str, Any],
    *,
    type_: str,
    alias: str,
) -> dict[str, Any]:
    outputs = {to_camel_case(each.name): _property_schema(each, as_output=True) for each in described}
    outputs |= {
        to_camel_case(name): {**kind, "description": text} for name, (kind, text) in only_reported.items()
    }
    inputs = {to_camel_case(each.name): _property_schema(each) for each in described}
    return {
        "description": description,
        "properties": outputs,
        "required": sorted({to_camel_case(name) for name in _REQUIRED_OUTPUTS} & outputs.keys()),
        "inputProperties": inputs,
        "requiredInputs": sorted(
            to_camel_case(each.name) for each in described if each.is_required and not each.default_text
        ),
        "aliases": [{"type": alias}],
        "listInputs": {
            "type": "object",
            "properties": {
                name: {**_STRING_TYPE, "description": meaning}
                for name, meaning in QUERY_ARGUMENT_DESCRIPTIONS_BY_TOKEN[type_].items()
            },
        },
    }


def _application_schema() -> dict[str, Any]:
    shared = [
        each
        for each in PROPERTIES
        if each.scope is not PropertyScope.ONE_INSTANCE and each.name not in _OUTPUT_ONLY_PROPERTIES
    ]
    found = _resource_schema(
        "Many registrations of one application that this stack owns and an operator renews.",
        shared,
        _APPLICATION_OUTPUTS,
        type_="eurekube:index:Application",
        alias="pulumi-python:dynamic/eurekube:EurekaApplication",
    )
    instances = {
        "type": "object",
        "additionalProperties": {"$ref": "#/types/eurekube:index:ApplicationInstance"},
        "description": "By keys of the program's own, without slash and space, what is particular to each"
        " instance.",
    }
    found["inputProperties"]["instances"] = instances
    found["properties"]["instances"] = instances
    for side in ("inputProperties", "properties"):
        # No member of a class in C# may have the name of that class.
        found[side]["application"]["language"] = {"csharp": {"name": "ApplicationName"}}
    found["requiredInputs"] = ["application", "instances"]
    own = {to_camel_case(name) for name in SHARED_PROPERTY_NAMES}  # of an instance
    found["required"] = sorted({*found["required"], *_REQUIRED_APPLICATION_OUTPUTS} - own)
    return found


_FOUND_INSTANCE_TYPE = "eurekube:index:FoundInstance"
_FOUND_ENDPOINT_TYPE = "eurekube:index:FoundEndpoint"


def _lookup_result_schema(kind: type[Any], **description: str) -> dict[str, Any]:
    """Return the schema of a lookup result's fields; ``description`` describes some of them."""
    found: dict[str, Any] = {}
    for name, hint in get_type_hints(kind).items():
        values = get_args(hint)[1:]  # of a map
        type_ = (
            {"type": "object", "additionalProperties": _SCHEMA_TYPES[values[0]]}
            if values
            else _SCHEMA_TYPES[hint]
        )
        found[to_camel_case(name)] = {
            **type_,
            **({"description": description[name]} if name in description else {}),
        }
    return found


_LOOKUP_RESULT_TYPES: Mapping[str, tuple[str, dict[str, Any]]] = {
    _FOUND_INSTANCE_TYPE: (
        "One instance as Eureka holds it.",
        _lookup_result_schema(
            FoundInstance,
            status="Its own, or the one that a person set over it.",
            owner="Who registered it, empty where no Eurekube did.",
        ),
    ),
    _FOUND_ENDPOINT_TYPE: (
        "One address of a Service.",
        _lookup_result_schema(FoundEndpoint, name="The pod's name, else the address."),
    ),
}


def _function_schemas() -> dict[str, Any]:
    connection = {
        **_STRING_TYPE,
        "description": "The name of another Eureka of the provider's configuration.",
    }

    def many(name: str) -> dict[str, Any]:
        return {"type": "array", "items": {"$ref": f"#/types/{name}"}}

    def function(
        description: str, inputs: Mapping[str, Any], required: list[str], outputs: Mapping[str, Any]
    ) -> Any:
        optional = {"instance"}
        offline = {
            "$ref": "pulumi.json#/Any",
            "description": "What it answers in an offline preview, which asks nobody: an object with the"
            " names of its outputs. What is left out there is nothing, and {} is nothing at all. Without it,"
            " such a preview fails.",
        }
        properties = {**inputs, "offline": offline}
        return {
            "description": description,
            "inputs": {"type": "object", "properties": properties, "required": required},
            "outputs": {
                "type": "object",
                "properties": outputs,
                "required": sorted(outputs.keys() - optional),
            },
        }

    return {
        "eurekube:index:getApplication": function(
            "What Eureka's list has of an application, up to half a minute old.",
            {"name": _STRING_TYPE, "connection": connection},
            ["name"],
            {
                "name": _STRING_TYPE,
                "instances": many(_FOUND_INSTANCE_TYPE),
                "up": {**many(_FOUND_INSTANCE_TYPE), "description": "Those that callers are sent to."},
            },
        ),
        "eurekube:index:getInstance": function(
            "One instance as Eureka holds it at this moment.",
            {"application": _STRING_TYPE, "instanceId": _STRING_TYPE, "connection": connection},
            ["application", "instanceId"],
            {
                "exists": {**_BOOLEAN_TYPE, "description": "Whether Eureka holds it."},
                "instance": {"$ref": f"#/types/{_FOUND_INSTANCE_TYPE}"},
            },
        ),
        "eurekube:index:getEndpoints": function(
            "A Service's endpoints in a cluster, so that a program can register them.",
            {
                "service": _STRING_TYPE,
                "namespace": _STRING_TYPE,
                "kubeconfig": _STRING_TYPE,
                "context": _STRING_TYPE,
            },
            ["service", "namespace"],
            {
                "namespace": _STRING_TYPE,
                "service": _STRING_TYPE,
                "endpoints": many(_FOUND_ENDPOINT_TYPE),
                "ready": {**many(_FOUND_ENDPOINT_TYPE), "description": "Those that callers can be sent to."},
            },
        ),
    }


def _default_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    COMMITTED_SCHEMA_FILE.write_text(schema_text(), encoding="utf-8")
