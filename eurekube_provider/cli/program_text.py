"""The text of a program that asks for given registrations, and the file for ``pulumi import`` beside it.

Texts that anyone registered in Eureka become quoted text here, never code, a comment or a reference.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from eurekube_provider.registrations.names import rename_properties, to_camel_case
from eurekube_provider.registrations.properties import Properties

INDENT = "    "


@dataclass(frozen=True, slots=True)
class ProgramResource:
    """One resource of a program.

    :ivar kind: ``Instance`` or ``Application``.
    :ivar id: the id for ``pulumi import``.
    :ivar properties: the properties that a person would write, in snake case.
    """

    kind: str
    name: str
    id: str
    properties: Properties


def native_python_program(resources: Iterable[ProgramResource]) -> str:
    """Return a program for the SDK that ``pulumi package add`` makes."""
    lines = ["import pulumi_eurekube as eurekube", ""]
    for each in resources:
        given = [f"{INDENT}{key}={_python_literal(value, 1)},\n" for key, value in each.properties.items()]
        lines.append(f"eurekube.{each.kind}(\n{INDENT}{_python_string(each.name)},\n{''.join(given)})")
    return "\n".join(lines) + "\n"


def dynamic_python_program(resources: Sequence[ProgramResource]) -> str:
    """Return a program for the dynamic provider, which needs no plugin."""
    kinds = sorted({f"Eureka{each.kind}" for each in resources})
    lines = [f"from eurekube_provider import {', '.join(kinds)}", ""]
    for each in resources:
        given = _python_literal(each.properties, 1)
        lines.append(f"Eureka{each.kind}(\n{INDENT}{_python_string(each.name)},\n{INDENT}{given},\n)")
    return "\n".join(lines) + "\n"


def native_yaml_resources(resources: Iterable[ProgramResource]) -> str:
    """Return the resources for Pulumi.yaml below ``runtime: yaml``."""
    made = {
        each.name: {
            "type": f"eurekube:{each.kind}",
            "properties": _escape_pulumi_references(rename_properties(each.properties, to_camel_case)),
        }
        for each in resources
    }
    text: str = yaml.safe_dump({"resources": made}, sort_keys=False, allow_unicode=False)
    return text


def format_import_file(resources: Iterable[ProgramResource]) -> str:
    """Return the input of ``pulumi import --file``."""
    found = [{"type": f"eurekube:index:{each.kind}", "name": each.name, "id": each.id} for each in resources]
    return json.dumps({"resources": found}, indent=2) + "\n"


def unique_resource_name(text: str, taken: Iterable[str] = ()) -> str:
    """Return a resource name made from ``text`` that is not among ``taken``."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-.") or "unnamed"
    used, number, result = set(taken), 2, name
    while result in used:
        result, number = f"{name}-{number}", number + 1
    return result


def _python_string(text: str) -> str:
    """Return a text as a Python literal; only ASCII, so that no character can be mistaken for another."""
    escaped = text.encode("unicode_escape").decode("ascii").replace('"', '\\"')
    return f'"{escaped}"'


def _python_literal(value: Any, depth: int) -> str:
    if isinstance(value, Mapping):
        if not value:
            return "{}"
        inner = INDENT * (depth + 1)
        items = (
            f"{inner}{_python_string(str(key))}: {_python_literal(item, depth + 1)},\n"
            for key, item in value.items()
        )
        return f"{{\n{''.join(items)}{INDENT * depth}}}"
    return _python_string(value) if isinstance(value, str) else repr(value)


def _escape_pulumi_references(value: Any) -> Any:
    """Return a value whose texts have each ``${`` escaped, so that Pulumi finds no reference."""
    if isinstance(value, Mapping):
        return {key: _escape_pulumi_references(item) for key, item in value.items()}
    return value.replace("${", "$${") if isinstance(value, str) else value
