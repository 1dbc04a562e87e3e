"""Tests use public names only, as other code does.

Lint (``SLF001``) refuses ``thing._private``. These tests also refuse private names in strings, as in
``monkeypatch.setattr(thing, "_private", ...)``, and private names that are imported.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
OURS = ("bench", "eurekube_provider", "lab", "tests")

PATCHES = frozenset({"delattr", "getattr", "object", "patch", "replace", "setattr"})
"""Functions that take an attribute's name: among others ``patch.object``, and ``replace`` of the explorer."""

PRIVATE = re.compile(r"(?:\w+\.)*_[A-Za-z]\w*(?:\.\w+)*")

REMAIN: dict[tuple[str, str], str] = {
    ("explore/operator/world.py", "_send"): "one wire for each request and watch of the client, below its own"
    " handling of errors, which is explored",
}
"""Private names that tests use, with the reason."""

EXCUSED: dict[str, str] = {"unit/resources/test_instance.py": "Pulumi tells a type's token nowhere else"}
"""Test modules with a ``noqa`` for a private member, with the reason."""


def privates(source: str) -> Iterator[str]:
    """Yield the private names of this repository that a module patches, looks up or imports."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            given = [one.value for one in node.args[:2] if isinstance(one, ast.Constant)]
            if called in PATCHES:
                yield from (one for one in given if isinstance(one, str) and PRIVATE.fullmatch(one))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in OURS:
            yield from (one.name for one in node.names if PRIVATE.fullmatch(one.name))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('monkeypatch.setattr(thing, "_run", None)', ["_run"]),
        (
            'monkeypatch.setattr("eurekube_provider.eureka.protocol.peer._run", None)',
            ["eurekube_provider.eureka.protocol.peer._run"],
        ),
        ('patch.object(Peer, "_request")', ["_request"]),
        ("from eurekube_provider.eureka.registry.repair import Repair, _Removal", ["_Removal"]),
        ('getattr(function, "__defaults__"); monkeypatch.setattr(peer, "read", None)', []),
        ("from tests.mutants import __main__", []),
    ],
)
def test_what_counts_as_private(source: str, found: list[str]) -> None:
    """A name with one leading underscore counts as private if it is patched, looked up, or imported from this
    repository.
    """
    assert list(privates(source)) == found


def test_tests_name_no_privates() -> None:
    """Tests use only the listed private names, and each listed one is still used."""
    found = {
        (str(path.relative_to(TESTS)), name)
        for path in TESTS.rglob("*.py")
        for name in privates(path.read_text(encoding="utf-8"))
    }
    assert found - REMAIN.keys() == set(), "give the thing a parameter or a public name"
    assert REMAIN.keys() - found == set(), "this is over: take it off the list"


def test_lint_refuses_private_members() -> None:
    """Lint checks every folder for private members, and only the listed modules have an exception."""
    lint = tomllib.loads((TESTS.parent / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"][
        "lint"
    ]
    assert "SLF" in lint["select"]
    assert [glob for glob, codes in lint["per-file-ignores"].items() if "SLF001" in codes] == []
    mark = "noqa: " + "SLF001"
    found = {path for path in TESTS.rglob("*.py") if mark in path.read_text(encoding="utf-8")}
    assert {str(path.relative_to(TESTS)) for path in found} == EXCUSED.keys()
