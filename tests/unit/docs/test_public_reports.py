"""docs/project/public-reports.md names existing tests, and each report once."""

from __future__ import annotations

import ast
import re

import pytest

from scripts.generated_pages import ROOT

PAGE = (ROOT / "docs" / "project" / "public-reports.md").read_text(encoding="utf-8")
ROWS = [line.split(" | ") for line in PAGE.splitlines() if line.startswith("| [")]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row[0])[3:40])
def test_a_report_has_a_test(row: list[str]) -> None:
    """The test in the last column of a row exists."""
    assert len(row) == 4
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", row[3])
    assert named
    for file, function in named:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert function in functions, f"{file} has no {function}"


def test_each_report_stands_once() -> None:
    """No link to a report occurs twice."""
    links = re.findall(r"\((https://\S+)\)", PAGE)
    assert len(links) == len(set(links))
    assert all("/issues/" in link or "/pull/" in link or "/discussions/" in link for link in links)
