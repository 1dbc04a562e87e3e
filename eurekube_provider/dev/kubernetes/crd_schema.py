"""Pruning, defaults and checks of custom objects by their CRD's structural schema.

``x-kubernetes-validations`` (CEL), ``allOf``, ``anyOf``, ``oneOf`` and ``not`` are not evaluated, so that a
real API server refuses more.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]

_JSON_TYPE_BY_PYTHON_TYPE = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
_BOUNDS_BY_TYPE: Mapping[str, tuple[str, str, Callable[[Any], float]]] = {
    "integer": ("minimum", "maximum", float),
    "number": ("minimum", "maximum", float),
    "string": ("minLength", "maxLength", len),
    "array": ("minItems", "maxItems", len),
    "object": ("minProperties", "maxProperties", len),
}


def prune_and_set_defaults(value: Any, schema: Schema) -> Any:
    """Return ``value`` without the fields that the schema does not know, and with its defaults."""
    if isinstance(value, list):
        return [prune_and_set_defaults(item, schema.get("items") or {}) for item in value]
    if not isinstance(value, dict):
        return value
    result = {}
    for key, item in value.items():
        below = _field_schema(schema, key)
        if below is None and schema.get("x-kubernetes-preserve-unknown-fields"):
            result[key] = item
        elif below is not None and (item is not None or below.get("nullable") or "default" not in below):
            result[key] = prune_and_set_defaults(item, below)
    for key, below in (schema.get("properties") or {}).items():
        if key not in result and "default" in below:
            result[key] = prune_and_set_defaults(copy.deepcopy(below["default"]), below)
    return result


def schema_violations(value: Any, schema: Schema, path: str = "") -> Iterator[str]:
    """Yield a sentence about each field that the schema does not allow; ``path`` is that of ``value``."""
    found = _JSON_TYPE_BY_PYTHON_TYPE.get(type(value), "null")
    shown = f"{path}: Invalid value: {json.dumps(value)}"
    kinds = {"integer", "string"} if schema.get("x-kubernetes-int-or-string") else {schema.get("type")}
    if value is None and schema.get("nullable"):
        return
    if not kinds & {found, None} and (found, kinds) != ("integer", {"number"}):
        yield f'{path}: Invalid value: "{found}": must be of type {" or ".join(map(str, kinds))}'
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: Unsupported value: {json.dumps(value)}: supported values: {schema['enum']}"
    if "pattern" in schema and found == "string" and not re.search(schema["pattern"], value):
        yield f"{shown}: should match '{schema['pattern']}'"
    if found in _BOUNDS_BY_TYPE:
        least, most, size = _BOUNDS_BY_TYPE[found]
        if not schema.get(least, -1e300) <= size(value) <= schema.get(most, 1e300):
            yield f"{shown}: {least} is {schema.get(least)}, {most} is {schema.get(most)}"
    if isinstance(value, dict):
        at = f"{path}." if path else ""
        yield from (f"{at}{key}: Required value" for key in schema.get("required") or () if key not in value)
        for key, item in value.items():
            yield from schema_violations(item, _field_schema(schema, key) or {}, f"{at}{key}")
    elif isinstance(value, list):
        keys, list_type = (schema.get(f"x-kubernetes-list-{one}") for one in ("map-keys", "type"))
        identities = [[item.get(key) for key in keys] if keys else item for item in value]
        for index, item in enumerate(value):
            if list_type in ("map", "set") and identities[index] in identities[:index]:
                yield f"{path}[{index}]: Duplicate value: {json.dumps(item)}"
            yield from schema_violations(item, schema.get("items") or {}, f"{path}[{index}]")


def _field_schema(schema: Schema, key: str) -> Schema | None:
    found = (schema.get("properties") or {}).get(key, schema.get("additionalProperties"))
    return found if isinstance(found, Mapping) else None
