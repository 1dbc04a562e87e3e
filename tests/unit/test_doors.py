"""Tests use what they test as others do: by its public names.

Lint (``SLF001``) refuses ``thing._private``. What it does not see is refused here: privates that are named in
a string, as in ``monkeypatch.setattr(thing, "_private", ...)``, and privates that are imported.
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
"""Calls that take the name of an attribute: ``patch.object``, and ``replace`` of the explorer."""

PRIVATE = re.compile(r"(?:\w+\.)*_[A-Za-z]\w*(?:\.\w+)*")

REMAIN: dict[tuple[str, str], str] = {
    ("explore/operator/world.py", "_send"): "one wire for each request and watch of the client, below its own"
    " handling of errors, which is explored",
}
"""Privates that tests name, and why they have to."""

EXCUSED: dict[str, str] = {"unit/resources/test_instance.py": "Pulumi tells a type's token nowhere else"}
"""Modules with a ``noqa`` for a private member, and why they have it."""


def privates(source: str) -> Iterator[str]:
    """Yield the private names of ours that a module patches, looks up or imports."""
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
    """Names with one underscore, of modules of this repository."""
    assert list(privates(source)) == found


def test_tests_name_no_privates() -> None:
    """None but those that are listed with their reason, and those are still there."""
    found = {
        (str(path.relative_to(TESTS)), name)
        for path in TESTS.rglob("*.py")
        for name in privates(path.read_text(encoding="utf-8"))
    }
    assert found - REMAIN.keys() == set(), "give the thing a parameter or a public name"
    assert REMAIN.keys() - found == set(), "this is over: take it off the list"


def test_lint_refuses_private_members() -> None:
    """No folder of tests is left out, and no line but those that are listed with their reason."""
    lint = tomllib.loads((TESTS.parent / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"][
        "lint"
    ]
    assert "SLF" in lint["select"]
    assert [glob for glob, codes in lint["per-file-ignores"].items() if "SLF001" in codes] == []
    mark = "noqa: " + "SLF001"
    found = {path for path in TESTS.rglob("*.py") if mark in path.read_text(encoding="utf-8")}
    assert {str(path.relative_to(TESTS)) for path in found} == EXCUSED.keys()
