"""docs/reference/syncer.md has the fields of the custom resource EurekaSyncer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from eurekube_provider.resources.files import crd_documents

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "syncer.md").read_text(encoding="utf-8")


def properties(schema: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield all fields of a schema, nested ones by their dotted names."""
    for name, one in schema["properties"].items():
        if "properties" in one:
            yield from properties(one, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def test_each_field_of_the_spec_has_a_row() -> None:
    """The table has exactly one row for each field of the spec, by its dotted name, in the CRD's order."""
    (document,) = (crd for crd in crd_documents() if crd["spec"]["names"]["kind"] == "EurekaSyncer")
    schema = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    table = PAGE.partition("## Fields")[2].partition("\n## ")[0].partition("### ")[0]
    assert re.findall(r"^\| `([\w.]+)` \|", table, re.MULTILINE) == list(properties(schema))
