"""Documents for contributors name existing packages and modules, and the code keeps their rules."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "eurekube_provider"
MODULES = sorted(PACKAGE.rglob("*.py"))

REFERENCE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):`~?\.?([\w.]+)`")
"""Pattern of a reference to code in a docstring."""

BESIDE_THE_PACKAGE = {
    "examples": "examples",
    "bench": "bench",
    "docs": "scripts",
    "faults": "tests/faults",
    "lab": "lab",
}
"""Folders of unit tests that test code outside the package, with the folder of that code."""

OF_NO_MODULE = {
    "docs/test_syncer_page.py": "holds a page that nothing writes",
    "docs/test_public_reports.py": "holds a page that nothing writes",
    "testing/test_guide.py": "executes a page",
    "cli/test_strange_servers.py": "has all commands at servers that are broken, slow or others'",
    "operator/mirror/test_brake.py": "has the mirror's guard and its reconcilers together",
    "operator/mirror/test_strangers.py": "has all that people and other clients do to a mirror",
    "operator/mirror/test_fixed_point.py": "has syncers and mirrors of two clusters together",
    "operator/mirror/test_last_round.py": "has what a round keeps for the next one",
    "operator/test_bounded_memory.py": "has all that an operator remembers",
}
"""Test modules that test no single module, with the reason."""


def layers() -> list[set[str]]:
    """Return the packages by import-linter's layers, from top to bottom."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    contract = next(one for one in settings["contracts"] if one["type"] == "layers")
    written = [{name.strip() for name in line.split("|")} for line in contract["layers"]]
    return [names for names in written if names != {"version"}]


def test_contributing_has_the_packages_in_the_order_of_their_layers() -> None:
    """CONTRIBUTING.md lists exactly the packages, in the order of their layers from top to bottom."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"^\| `eurekube_provider/(\w+)` \|", text, re.MULTILINE)
    places = {name: place for place, names in enumerate(layers()) for name in names}
    assert sorted(named) == sorted(places)
    assert [places[name] for name in named] == sorted(places.values())


def test_the_architecture_has_the_packages_and_their_layers() -> None:
    """The architecture page's table and picture have every package, and the picture's arrows lead to lower
    layers.
    """
    page = (ROOT / "docs" / "project" / "architecture.md").read_text()
    places = {name: place for place, names in enumerate(layers()) for name in names}
    assert set(places) <= set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    picture = page.partition("flowchart TD\n")[2].partition("```")[0]
    assert set(re.findall(r"\w+", picture)) == set(places)
    for line in picture.splitlines():
        parts = [set(re.findall(r"\w+", part)) for part in line.split("-->")]
        for above, below in pairwise(parts):
            assert max(places[name] for name in above) < min(places[name] for name in below), line


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/project/architecture.md"])
def test_the_files_that_contributors_read_of_are_there(page: str) -> None:
    """Each path in a code span exists below the repository, the package or the unit tests."""
    for name in re.findall(r"`([\w/]+/[\w./]*)`", (ROOT / page).read_text()):
        assert any((root / name).exists() for root in (ROOT, PACKAGE, ROOT / "tests" / "unit")), name


def test_each_test_module_has_the_name_of_what_it_tests() -> None:
    """A test module has the name of the module that it tests, except the listed ones; tests directly in
    tests/unit are about the repository.
    """
    unit = ROOT / "tests" / "unit"
    astray = set()
    for path in unit.rglob("test_*.py"):
        room, *within = path.relative_to(unit).parts
        if within:
            folder = ROOT / BESIDE_THE_PACKAGE.get(room, f"eurekube_provider/{room}")
            tested = folder.joinpath(*within).with_name(path.stem.removeprefix("test_"))
            if not tested.with_suffix(".py").exists() and not tested.is_dir():
                astray.add(str(path.relative_to(unit)))
    assert astray == OF_NO_MODULE.keys()


def identifiers(source: str) -> Iterator[str]:
    """Yield all names that a module defines, imports or uses."""
    for node in ast.walk(ast.parse(source)):
        for field in ("id", "attr", "name", "arg", "asname"):
            name = getattr(node, field, None)
            if isinstance(name, str):
                yield name.rpartition(".")[2]


def test_what_a_docstring_names_is_there() -> None:
    """Each name that a docstring references exists in the code."""
    names = {path: set(identifiers(path.read_text(encoding="utf-8"))) for path in MODULES}
    every = set[str]().union(*names.values(), (path.stem for path in MODULES))
    found = set()
    for path in MODULES:
        for named in REFERENCE.findall(path.read_text(encoding="utf-8")):
            first, *within = named.split(".")
            if first == PACKAGE.name:
                place = PACKAGE
                while within and ((place / within[0]).is_dir() or (place / f"{within[0]}.py").is_file()):
                    place /= within.pop(0)
                is_there = names.get(place.with_suffix(".py"), set()).issuperset(within)
            else:
                is_there = first == "pulumi" or every.issuperset((first, *within))
            if not is_there:
                found.add(f"{path.relative_to(PACKAGE)}: {named}")
    assert found == set()


def test_nothing_but_the_plan_decides_what_is_changed() -> None:
    """Only core/plan.py makes a Change of an instance, except where one is made only to be described."""
    making = re.compile(r"\bChange\(Action\.\w+(?:[^()]|\([^()]*\))*\)(?!\.describe\(\))")
    found = {
        str(path.relative_to(PACKAGE)) for path in MODULES if making.search(path.read_text(encoding="utf-8"))
    }
    assert found == {"core/plan.py"}
