"""The parts of the documentation that are generated from the code: `make reference`. A test compares them.

Fields come from the CRDs, conditions, Events, metrics and errors from their definitions, figures from
`bench/results`; pictures are drawn.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml

from bench import report
from eurekube_provider.comparison.seen_remedies import (
    REMEDY_BY_FINDING_NAME,
    REMEDY_BY_OBSERVED_REASON,
    FindingName,
    ObservedReason,
)
from eurekube_provider.core import errors
from eurekube_provider.core.condition_types import (
    AWAITING_OPERATOR_REASON,
    MirrorReason,
    Reason,
    RefreshCondition,
    RefreshReason,
    SyncerCondition,
)
from eurekube_provider.core.event_reasons import (
    MirrorEvent,
    PodEvent,
    RefreshEvent,
    ServiceEvent,
    SyncerEvent,
)
from eurekube_provider.core.gate import GateReason
from eurekube_provider.core.mirror_conditions import MIRROR_REMEDIES, MirrorCondition
from eurekube_provider.core.remedies import REFRESH_REMEDIES, SYNCER_REMEDIES
from eurekube_provider.operator.triggers.targets import StackRunOutcome
from eurekube_provider.operator.web.metrics import METRIC_DEFINITIONS
from scripts import drawings, registry_docs, scale_tables
from scripts.measured import comparison_table, measured_table, missed_bars_table
from tests.nightly import read_groups

ROOT = Path(__file__).parents[1]


def fields_page() -> str:
    """Return ``docs/reference/fields.md``: each field of each custom resource."""
    parts = [
        "# Fields of the custom resources\n",
        "<!-- Written by `make reference` from crds/; do not edit. -->\n",
        (
            "What the API server checks. How the fields work together: [EurekaSyncer](syncer.md), "
            "[EurekaMirror](../guides/mirror.md), [StackRefresh](../guides/triggers.md).\n"
        ),
    ]
    for path in sorted((ROOT / "crds").glob("*.yaml")):
        definition = yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]
        for version in definition["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            parts.append(f"## {definition['names']['kind']}\n")
            parts.append(f"`{definition['group']}/{version['name']}`. {schema['description']}\n")
            parts.append("| field of `spec` | type | default | meaning |\n|---|---|---|---|")
            parts.extend(_table_row(*cells) for cells in _field_rows(schema["properties"]["spec"], ""))
            rules = list(_validation_rules(schema["properties"]["spec"], "spec"))
            if rules:
                parts.append(
                    "\nThe API server refuses, with these sentences:\n\n| at | sentence |\n|---|---|"
                )
                parts.extend(_table_row(f"`{where}`", said) for where, said in rules)
            parts.append("")
    return "\n".join(parts)


def _field_rows(schema: Mapping[str, Any], above: str) -> Iterator[tuple[str, ...]]:
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        where = f"{above}{name}"
        default = "required" if name in required else _default_text(field.get("default"))
        yield f"`{where}`", _type_text(field), default, " ".join(field.get("description", "").split())
        yield from _field_rows(field, f"{where}.")
        yield from _field_rows(field.get("items", {}), f"{where}[].")


def _type_text(field: Mapping[str, Any]) -> str:
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if field.get("x-kubernetes-int-or-string"):
        return "integer or string"
    said = str(field.get("type", ""))
    if said == "array":
        said = f"list of {_type_text(field['items'])}"
    elif isinstance(field.get("additionalProperties"), dict):
        said = f"map of {_type_text(field['additionalProperties'])}"
    bounds = [
        f"{words} {field[key]}"
        for key, words in (
            ("minimum", "from"),
            ("maximum", "to"),
            ("maxLength", "characters up to"),
            ("maxItems", "items up to"),
            ("maxProperties", "keys up to"),
        )
        if key in field
    ]
    return ", ".join([said, *bounds])


def _default_text(default: object) -> str:
    return "" if default is None else f"`{json.dumps(default).strip(chr(34))}`"


def _validation_rules(schema: Mapping[str, Any], where: str) -> Iterator[tuple[str, str]]:
    for rule in schema.get("x-kubernetes-validations", ()):
        yield where, " ".join(rule["message"].split())
    for name, field in schema.get("properties", {}).items():
        yield from _validation_rules(field, f"{where}.{name}")


def errors_page() -> str:
    """Return ``docs/reference/errors.md``: the errors that Eurekube raises on purpose."""
    parts = [
        "# Errors\n",
        "<!-- Written by `make reference` from eurekube_provider/core/errors.py; do not edit. -->\n",
        (
            "Whatever Eurekube raises on purpose is an `EurekubeError` of `eurekube_provider.core.errors`. "
            "Its text says what was tried, on what and where, what came back, and what to do. No credential "
            "is in it. The operator shows errors as [conditions](conditions.md), in its "
            "[log](logs.md) and on its [status page](web.md); a stack's run as the resource's error.\n"
        ),
        "| error | a kind of | means |\n|---|---|---|",
    ]
    module = ast.parse(inspect.getsource(errors))
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            said = (ast.get_docstring(node) or "").partition("\n\n")[0].replace("``", "`")
            bases = ", ".join(f"`{ast.unparse(base)}`" for base in node.bases)
            parts.append(_table_row(f"`{node.name}`", bases, " ".join(said.split())))
    return "\n".join(parts) + "\n"


def conditions_page() -> str:
    """Return ``docs/reference/conditions.md``: the conditions, reasons and Events of each custom resource."""
    parts = [
        "# Conditions and Events\n",
        "<!-- Written by `make reference` from the enumerations of the names; do not edit. -->\n",
        (
            "Until an operator looks at an object, `Ready` is Unknown with the reason "
            f"`{AWAITING_OPERATOR_REASON}`. Afterwards `Ready` and `Synced` are always there. Any other "
            "condition appears when it first holds. The first of those that keep the object from being "
            "in sync is the reason of `Synced`, too. When one is over, it is False with the reason "
            "`Resolved`. If something is wrong, the message ends with what fixes it, and the operator "
            "writes a warning Event of the same name, once in ten minutes; none of a syncer's pause, nor "
            "of what passes by itself.\n"
        ),
    ]
    for kind, page, remedies, tables in _CONDITION_TABLES:
        parts.append(f"## {kind}\n\nMore: [{page.rpartition('/')[2].removesuffix('.md')}]({page}).\n")
        for first_cell, names in tables.items():
            fixed = [
                (name, meaning, remedies.get(name, "")) for name, meaning in _read_name_docstrings(names)
            ]
            has_remedies = any(remedy for *_, remedy in fixed)
            head = [first_cell, "meaning", "what fixes it"][: 3 if has_remedies else 2]
            parts.append(_table_row(*head) + "\n" + "|---" * len(head) + "|")
            parts.extend(_table_row(f"`{name}`", *cells[: len(head) - 1]) for name, *cells in fixed)
            parts.append("")
    return "\n".join(parts)


_CONDITION_TABLES: tuple[tuple[str, str, Mapping[str, str], Mapping[str, type[StrEnum]]], ...] = (
    (
        "EurekaSyncer",
        "syncer.md",
        SYNCER_REMEDIES,
        {
            "condition": SyncerCondition,
            "reason of Ready and Synced": Reason,
            "Event": SyncerEvent,
            "Event about a pod": PodEvent,
            "Event about a Service": ServiceEvent,
            "reason of a pod's condition `eurekube.io/callers-know`": GateReason,
        },
    ),
    (
        "EurekaMirror",
        "../guides/mirror.md",
        MIRROR_REMEDIES,
        {"condition": MirrorCondition, "reason of Ready and Synced": MirrorReason, "Event": MirrorEvent},
    ),
    (
        "StackRefresh",
        "../guides/triggers.md",
        REFRESH_REMEDIES,
        {
            "condition": RefreshCondition,
            "reason of Ready and Synced": RefreshReason,
            "outcome of a run": StackRunOutcome,
            "Event": RefreshEvent,
        },
    ),
    (
        "Beside the conditions",
        "cli-look.md",
        {**REMEDY_BY_OBSERVED_REASON, **REMEDY_BY_FINDING_NAME},
        {
            "reason of an application or a mirror": ObservedReason,
            "trouble of a Eureka or the operator": FindingName,
        },
    ),
)


def _read_name_docstrings(names: type[StrEnum]) -> Iterator[tuple[str, str]]:
    """Yield each name of an enumeration with the docstring below it.

    :raises LookupError: a name has no docstring.
    """
    (node,) = (each for each in ast.parse(inspect.getsource(names)).body if isinstance(each, ast.ClassDef))
    for statement, following in itertools.pairwise([*node.body, ast.Pass()]):
        if isinstance(statement, ast.Assign):
            name = ast.literal_eval(statement.value)
            said = getattr(getattr(following, "value", None), "value", None)
            if not isinstance(said, str):
                raise LookupError(f"{names.__name__}: no docstring says what {name} means")
            yield name, " ".join(said.replace("``", "`").split())


def metrics_table() -> str:
    """Return the table of metrics for docs/reference/web.md."""
    rows = ["| metric | type | labels | says |", "|---|---|---|---|"]
    for metric in METRIC_DEFINITIONS.values():
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        said = re.sub(r" (?:Labels? [^.]*|No labels)\.$", "", metric.help)
        rows.append(_table_row(f"`{metric.name}`", metric.kind, labels, said))
    return "\n".join(rows) + "\n"


def _table_row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def real_servers_table() -> str:
    """Return the table of tests that need real servers, by their reasons."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").glob("*/test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            name = path.name
            marks: list[ast.AST] = [node]
            if isinstance(node, ast.FunctionDef):
                name = node.name if node.name.startswith("test_") else path.name
                marks = [*node.decorator_list]
            for mark in (one for each in marks for one in ast.walk(each)):
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.real_server":
                    found.setdefault(ast.literal_eval(mark.args[0]), []).append(f"`{name}`")
    rows = (_table_row(why, ", ".join(names)) for why, names in sorted(found.items()))
    return "\n".join(["| because | tests |", "|---|---|", *rows, ""])


def nightly_tests_table() -> str:
    """Return the table of the tests that run each night only, with the reason of each group."""
    rows = (
        _table_row(group.reason, ", ".join(f"`{pattern}`" for pattern in group.patterns))
        for group in read_groups()
    )
    return "\n".join(["| left to the night because | tests |", "|---|---|", *rows, ""])


def replace_table(page: str, first_cell: str, table: str) -> str:
    """Return the page with its table that begins with this cell replaced by another one."""
    pattern = rf"^\| {re.escape(first_cell)} \|.*?\n(?!\|)"
    new, count = re.subn(pattern, lambda _: table, page, count=1, flags=re.DOTALL | re.MULTILINE)
    if count != 1:
        raise LookupError(f"there is no table that begins with '| {first_cell} |'")
    return new


def _page_with_table(path: Path, first_cell: str, table: Callable[[], str]) -> str:
    return replace_table(path.read_text(encoding="utf-8"), first_cell, table())


def render_pages() -> dict[Path, str]:
    """Return the text of each generated page, and of each page with a generated table."""
    reference = ROOT / "docs" / "reference"
    scale = ROOT / "docs" / "guides" / "scale.md"
    compared, weaknesses = (ROOT / "docs" / "about" / f"{name}.md" for name in ("comparison", "weaknesses"))
    return {
        reference / "fields.md": fields_page(),
        reference / "errors.md": errors_page(),
        reference / "conditions.md": conditions_page(),
        reference / "dev-eureka.md": _page_with_table(
            reference / "dev-eureka.md", "because | tests", real_servers_table
        ),
        ROOT / "docs" / "project" / "nightly-tests.md": _page_with_table(
            ROOT / "docs" / "project" / "nightly-tests.md", "left to the night because", nightly_tests_table
        ),
        reference / "web.md": _page_with_table(reference / "web.md", "metric", metrics_table),
        ROOT / "README.md": _page_with_table(ROOT / "README.md", "measured", measured_table),
        compared: _page_with_table(compared, "measured", comparison_table),
        weaknesses: _page_with_table(weaknesses, "not held", missed_bars_table),
        scale: replace_table(
            _page_with_table(scale, "one operator, instances", scale_tables.operator_table),
            "one Eureka server, instances",
            scale_tables.server_table(),
        ),
        **report.render_pages(),
        **registry_docs.render_pages(),
        **{drawings.IMAGES_FOLDER / f"{one.name}.svg": one.svg() for one in drawings.draw_all()},
    }


def main() -> None:
    """Write all generated pages."""
    for path, text in render_pages().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
