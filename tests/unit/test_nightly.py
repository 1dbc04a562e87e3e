"""tests/nightly.toml names tests that exist, and leaves a test of each file to each change."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nightly import is_nightly, read_groups

TESTS = Path(__file__).parents[1]


def function_names() -> Iterator[str]:
    """Yield the id of each function in the test modules, without parameters."""
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                for one in node.body:
                    if isinstance(one, ast.FunctionDef):
                        yield f"{path.relative_to(TESTS.parent)}::{node.name}::{one.name}"
            elif isinstance(node, ast.FunctionDef) and node.col_offset == 0:
                yield f"{path.relative_to(TESTS.parent)}::{node.name}"


NAMES = [name for name in function_names() if name.rpartition("::")[2].startswith("test_")]
PATTERNS = [pattern for group in read_groups() for pattern in group.patterns]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_each_pattern_names_a_test(pattern: str) -> None:
    """A pattern, without its parameters, matches the id of an existing test."""
    function = pattern.partition(r"\[")[0].removesuffix(".*")
    assert any(re.match(function, name) for name in NAMES)


def test_ids_are_compared_from_their_beginning() -> None:
    """A test is nightly only if its id begins with a match."""
    assert not is_nightly("tests/unit/test_nightly.py::test_ids_are_compared_from_their_beginning")
    assert not is_nightly("see tests/contract/test_eureka_register.py::test_x[2025.0]")
