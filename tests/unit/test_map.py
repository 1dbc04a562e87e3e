"""The usual changes that ``python -m tests.map`` shows apply to the present code and pass their tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.map.change import ROOT, DoesNotApply, Edit, changes
from tests.map.copy import Copy


def test_all_usual_changes_can_be_made_and_pass_their_tests(tmp_path: Path) -> None:
    """All usual changes apply together in a copy and pass; moved lines require an update of the changes."""
    assert Copy(tmp_path).tried(*changes()) == ""


def test_a_change_without_one_of_its_files_fails(tmp_path: Path) -> None:
    """A usual change without one of its files fails its tests, so that each shown file is necessary."""
    change = next(one for one in changes() if one.name == "condition")
    copy = Copy(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.py") if path.is_file()}
    assert "FAILED" in copy.tried(change.without("docs/reference/conditions.md"))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.py") if path.is_file()} == before


def test_a_property_of_an_instance_touches_at_most_four_sources() -> None:
    """A new property of an instance edits at most four sources, a new registry two lines outside its own
    folder.
    Generated files do not count.
    """
    sources = {change.name: change.sources for change in changes()}
    assert len(sources["instance_property"]) <= 4
    assert list(sources["registry"].values()) == [2]


def test_what_a_command_writes_is_there_and_so_is_the_command() -> None:
    """Each generated file of a change, and the make target that writes it, exists."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for change in changes():
        assert change.written.keys() <= change.files.keys()
        assert [file for file in change.written if not (ROOT / file).is_file()] == []
        assert {f"make {target}" for target in targets} >= set(change.written.values())


@pytest.mark.parametrize("times", [0, 2])
def test_an_edit_that_does_not_fit_says_so(times: int) -> None:
    """An edit whose lines occur in a file not at all or twice raises, and changes only its own lines
    otherwise.
    """
    edit = Edit("x.py", "old\n", "new\n")
    with pytest.raises(DoesNotApply, match=rf"x\.py has these lines {times} times"):
        edit.applied("old\n" * times)
    assert edit.applied("1\nold\n2\n") == "1\nnew\n2\n"
