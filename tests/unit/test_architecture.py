"""The documents for contributors name the packages and modules that there are, each name once.

What they promise of sizes and first sentences holds as well.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "eurekube_provider"
MODULES = sorted(PACKAGE.rglob("*.py"))

MOST_LINES = 400
MOST_MODULES_OF_OPERATOR = 25
"""In its own folder: `web`, `triggers` and `mirror` are folders of their own."""

LEANING = re.compile(
    r'^ *r?"""(See\b|The same([,.;:]| (with|of|where|for|as|without|in|to|until|at|while|over|when|by)\b))',
    re.MULTILINE,
)
"""How a docstring begins that says nothing without another one."""

FRAGMENT = re.compile(r'^ *r?"""(Of|As many|So does|So often|Likewise)\b', re.MULTILINE)
"""How a docstring begins that is half a sentence, whose subject is the name above it."""


REFERENCE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):`~?\.?([\w.]+)`")
"""How a docstring names something of the code."""

BESIDE_THE_PACKAGE = {"bench": "bench", "docs": "scripts", "faults": "tests/faults", "lab": "lab"}
"""Folders of the unit tests that are about none of the package's, and what they are about."""

OF_NO_MODULE = {
    "docs/test_syncer_page.py": "holds a page that nothing writes",
    "operator/mirror/test_fixed_point.py": "has syncers and mirrors of two clusters together",
    "operator/test_bounded_memory.py": "has all that an operator remembers",
}
"""Test modules in these folders that are about no module alone, and why not."""

POINTING = re.compile(
    r"(((How|When|Where|Whether|Why) )?(it|they|those|these|this(?= (may|one|with|as|and)))\b(?!:)"
    r"|Its\b|Their\b|As\b|By\b|With(out)?\b|(On|In|From)\b"
    r"|(Another|Somebody|Nobody|Nothing) (else )?(may|has|had|is|leads|renews|writes|reads|was)\b)",
    re.IGNORECASE,
)
"""How a docstring begins that points at something that it does not name."""


def layers() -> list[set[str]]:
    """The packages as import-linter holds them, from top to bottom."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    contract = next(one for one in settings["contracts"] if one["type"] == "layers")
    written = [{name.strip() for name in line.split("|")} for line in contract["layers"]]
    return [names for names in written if names != {"version"}]


def test_contributing_has_the_packages_in_the_order_of_their_layers() -> None:
    """From top to bottom; no more and no less."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"^\| `eurekube_provider/(\w+)` \|", text, re.MULTILINE)
    places = {name: place for place, names in enumerate(layers()) for name in names}
    assert sorted(named) == sorted(places)
    assert [places[name] for name in named] == sorted(places.values())


def test_the_architecture_has_the_packages_and_their_layers() -> None:
    """Each in the table; and an arrow of the picture goes downwards."""
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
    """In code spans, from the root of the repository, of the package or of the unit tests."""
    for name in re.findall(r"`([\w/]+/[\w./]*)`", (ROOT / page).read_text()):
        assert any((root / name).exists() for root in (ROOT, PACKAGE, ROOT / "tests" / "unit")), name


def test_no_two_classes_have_one_name() -> None:
    """Whoever reads a name knows which one is meant; an underscore is no other name."""
    places = defaultdict(list)
    for path in MODULES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")].append(str(path.relative_to(PACKAGE)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_two_modules_have_one_name() -> None:
    """Whoever searches for a file finds one."""
    counts = Counter(path.name for path in MODULES if not path.name.startswith("__"))
    assert [name for name, count in counts.items() if count > 1] == []


def test_each_test_module_has_the_name_of_what_it_tests() -> None:
    """Whoever has a module finds its tests; what is beside the folders is about the repository."""
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


def test_no_module_is_longer_than_a_reader_takes_in() -> None:
    """As CONTRIBUTING says."""
    lines = {str(path.relative_to(PACKAGE)): len(path.read_text().splitlines()) for path in MODULES}
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}


def test_the_operator_has_few_modules() -> None:
    """What is one more thing for it to do gets a folder."""
    names = {path.stem for path in (PACKAGE / "operator").glob("*.py")} - {"__init__", "__main__"}
    assert len(names) <= MOST_MODULES_OF_OPERATOR, sorted(names)


@pytest.mark.parametrize(
    ("docstring", "is_leaning"),
    [
        ("The same, read.", True),
        ("The same of a StackRefresh.", True),
        ("See Fault.", True),
        ("The same faults give the same sequence.", False),
        ("Seen from a client.", False),
    ],
)
def test_which_docstrings_lean_on_another_one(docstring: str, is_leaning: bool) -> None:
    """By their first words."""
    assert (LEANING.search(f'def f() -> int:\n    """{docstring}"""\n') is not None) == is_leaning


@pytest.mark.parametrize("folder", ["bench", "eurekube_provider", "lab", "scripts", "tests"])
def test_each_docstring_begins_with_a_sentence_that_stands_alone(folder: str) -> None:
    """None needs the one before it, or another module, to be understood."""
    found = {
        f"{path.relative_to(ROOT)}: {leaning[0]}"
        for path in (ROOT / folder).rglob("*.py")
        for leaning in LEANING.finditer(path.read_text())
    }
    assert found == set()


def test_no_docstring_of_the_package_is_half_a_sentence() -> None:
    """It is shown without the name that it would go on from."""
    found = [str(path.relative_to(ROOT)) for path in MODULES if FRAGMENT.search(path.read_text())]
    assert found == []


@pytest.mark.parametrize(
    ("docstring", "is_pointing"),
    [
        ("It was read, and answers.", True),
        ("Whether it runs.", True),
        ("With our mark.", True),
        ("Its thread.", True),
        ("The thread that reads.", False),
        ("Whether the registry was read, and answers.", False),
        ("Item by item.", False),
    ],
)
def test_which_docstrings_point_at_something(docstring: str, is_pointing: bool) -> None:
    """By their first words."""
    assert (POINTING.match(docstring) is not None) == is_pointing


def test_no_docstring_of_the_package_points_at_what_it_does_not_name() -> None:
    """Whoever reads it in a list, or in an editor's hint, has nothing else to go by."""
    found = {
        f"{path.relative_to(PACKAGE)}: {docstring.splitlines()[0]}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if (docstring := ast.get_docstring(node)) and POINTING.match(docstring)
    }
    assert found == set()


def identifiers(source: str) -> Iterator[str]:
    """All names that a module defines, imports or uses."""
    for node in ast.walk(ast.parse(source)):
        for field in ("id", "attr", "name", "arg", "asname"):
            name = getattr(node, field, None)
            if isinstance(name, str):
                yield name.rpartition(".")[2]


def test_what_a_docstring_names_is_there() -> None:
    """A name of the code that was changed since would send a reader to nothing."""
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
    """No change of an instance is made elsewhere, but to be put into words."""
    making = re.compile(r"\bChange\(Action\.\w+(?:[^()]|\([^()]*\))*\)(?!\.describe\(\))")
    found = {
        str(path.relative_to(PACKAGE)) for path in MODULES if making.search(path.read_text(encoding="utf-8"))
    }
    assert found == {"core/plan.py"}
