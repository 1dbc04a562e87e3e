"""Custom objects by their CRD's structural schema: pruned, filled with defaults, and checked.

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

_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
_BOUNDS: tuple[tuple[str, str, tuple[str, ...], Callable[[Any], float]], ...] = (
    ("minimum", "maximum", ("integer", "number"), float),
    ("minLength", "maxLength", ("string",), len),
    ("minItems", "maxItems", ("array",), len),
    ("minProperties", "maxProperties", ("object",), len),
)


def completed(value: Any, schema: Schema) -> Any:
    """Return ``value`` without the fields that the schema does not know, and with its defaults."""
    if isinstance(value, list):
        return [completed(item, schema.get("items") or {}) for item in value]
    if not isinstance(value, dict):
        return value
    result = {}
    for key, item in value.items():
        below = _below(schema, key)
        is_absent = item is None and "default" in (below or {}) and not (below or {}).get("nullable")
        if below is not None and not is_absent:
            result[key] = completed(item, below)
        elif schema.get("x-kubernetes-preserve-unknown-fields"):
            result[key] = item
    for key, below in (schema.get("properties") or {}).items():
        if key not in result and "default" in below:
            result[key] = completed(copy.deepcopy(below["default"]), below)
    return result


def wrong_fields(value: Any, schema: Schema, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path of each field that the schema does not allow, and what is wrong there.

    :param path: the field that ``value`` stands in; empty for a whole object.
    """
    found, shown = _TYPES.get(type(value), "null"), json.dumps(value)
    kinds = ("integer", "string") if schema.get("x-kubernetes-int-or-string") else (schema.get("type"),)
    if kinds == ("number",):
        kinds = ("integer", "number")
    if value is None and schema.get("nullable"):
        return
    if kinds != (None,) and found not in kinds:
        wanted = " or ".join(map(str, kinds))
        yield path, f'Invalid value: "{found}": {path} in body must be of type {wanted}: "{found}"'
        return
    if "enum" in schema and value not in schema["enum"]:
        listed = ", ".join(json.dumps(one) for one in schema["enum"])
        yield path, f"Unsupported value: {shown}: supported values: {listed}"
    if "pattern" in schema and found == "string" and not re.search(schema["pattern"], value):
        yield path, f"Invalid value: {shown}: {path} in body should match '{schema['pattern']}'"
    for least, most, types, size in _BOUNDS:
        if found in types and not schema.get(least, -1e300) <= size(value) <= schema.get(most, 1e300):
            bounds = ", ".join(f"{one} {schema[one]}" for one in (least, most) if one in schema)
            yield path, f"Invalid value: {shown}: {path} in body must have {bounds}"
    if isinstance(value, dict):
        for key in schema.get("required") or ():
            if key not in value:
                yield f"{path}.{key}".lstrip("."), "Required value"
        for key, item in value.items():
            yield from wrong_fields(item, _below(schema, key) or {}, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list):
        keys = schema.get("x-kubernetes-list-map-keys")
        identities = [[item.get(key) for key in keys] if keys else item for item in value]
        for index, item in enumerate(value):
            if (
                schema.get("x-kubernetes-list-type") in ("map", "set")
                and identities[index] in identities[:index]
            ):
                yield f"{path}[{index}]", f"Duplicate value: {json.dumps(item)}"
            yield from wrong_fields(item, schema.get("items") or {}, f"{path}[{index}]")


def _below(schema: Schema, key: str) -> Schema | None:
    """Return the schema of a field; None where the field is not known."""
    found = (schema.get("properties") or {}).get(key, schema.get("additionalProperties"))
    return found if isinstance(found, Mapping) else None
