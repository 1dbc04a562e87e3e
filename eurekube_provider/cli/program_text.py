"""The text of a program that asks for given registrations, and the file for ``pulumi import`` beside it.

Anyone who may register in Eureka chooses ids, host names and metadata: they all become quoted text here, and
never code, a comment or a reference.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from eurekube_provider.registrations.names import camel, renamed
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


def native_python(resources: Iterable[ProgramResource]) -> str:
    """Return a program for the SDK that ``pulumi package add`` makes."""
    lines = ["import pulumi_eurekube as eurekube", ""]
    for each in resources:
        given = [f"{INDENT}{key}={_literal(value, 1)},\n" for key, value in each.properties.items()]
        lines.append(f"eurekube.{each.kind}(\n{INDENT}{_quoted(each.name)},\n{''.join(given)})")
    return "\n".join(lines) + "\n"


def dynamic_python(resources: Sequence[ProgramResource]) -> str:
    """Return a program for the dynamic provider, which needs no plugin."""
    kinds = sorted({f"Eureka{each.kind}" for each in resources})
    lines = [f"from eurekube_provider import {', '.join(kinds)}", ""]
    for each in resources:
        given = _literal(each.properties, 1)
        lines.append(f"Eureka{each.kind}(\n{INDENT}{_quoted(each.name)},\n{INDENT}{given},\n)")
    return "\n".join(lines) + "\n"


def native_yaml(resources: Iterable[ProgramResource]) -> str:
    """Return the resources for Pulumi.yaml below ``runtime: yaml``."""
    made = {
        each.name: {
            "type": f"eurekube:{each.kind}",
            "properties": _without_references(renamed(each.properties, camel)),
        }
        for each in resources
    }
    text: str = yaml.safe_dump({"resources": made}, sort_keys=False, allow_unicode=False)
    return text


def import_file(resources: Iterable[ProgramResource]) -> str:
    """Return the input of ``pulumi import --file``."""
    found = [{"type": f"eurekube:index:{each.kind}", "name": each.name, "id": each.id} for each in resources]
    return json.dumps({"resources": found}, indent=2) + "\n"


def resource_name(text: str, taken: Iterable[str] = ()) -> str:
    """Return a resource name made from ``text`` that is not among ``taken``."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-.") or "unnamed"
    used, number, result = set(taken), 2, name
    while result in used:
        result, number = f"{name}-{number}", number + 1
    return result


def _quoted(text: str) -> str:
    """Return a text as a Python literal; only ASCII, so that no character can be mistaken for another."""
    escaped = text.encode("unicode_escape").decode("ascii").replace('"', '\\"')
    return f'"{escaped}"'


def _literal(value: Any, depth: int) -> str:
    if isinstance(value, Mapping):
        if not value:
            return "{}"
        inner = INDENT * (depth + 1)
        items = (f"{inner}{_quoted(str(key))}: {_literal(item, depth + 1)},\n" for key, item in value.items())
        return f"{{\n{''.join(items)}{INDENT * depth}}}"
    return _quoted(value) if isinstance(value, str) else repr(value)


def _without_references(value: Any) -> Any:
    """Return a value whose texts have each ``${`` escaped, so that Pulumi finds no reference."""
    if isinstance(value, Mapping):
        return {key: _without_references(item) for key, item in value.items()}
    return value.replace("${", "$${") if isinstance(value, str) else value
