"""A clone's first check of types begins with what another clone's check has left."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts.type_check import check


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache folder."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("EUREKUBE_CACHE", str(folder))
    return folder


def mypy(code: int = 0) -> list[str]:
    """In place of mypy: writes one more line into its cache, and ends with ``code``."""
    program = (
        "import sys, pathlib; folder = pathlib.Path('.mypy_cache'); folder.mkdir(exist_ok=True);"
        f"(folder / 'known').open('a').write('checked '); sys.exit({code})"
    )
    return [sys.executable, "-S", "-c", program]


def clone(folder: Path) -> Path:
    """An empty one."""
    folder.mkdir()
    return folder


def known(project: Path) -> str:
    """Return the leftovers of its checks."""
    return (project / ".mypy_cache" / "known").read_text()


def test_the_first_check_begins_with_what_another_clone_left(tmp_path: Path) -> None:
    """And those after it with its own."""
    one, other = clone(tmp_path / "one"), clone(tmp_path / "other")
    assert check(one, mypy()) == 0
    assert check(one, mypy()) == 0
    assert check(other, mypy()) == 0
    assert known(one) == "checked " * 2
    assert known(other) == "checked " * 2
    assert check(other, mypy()) == 0
    assert known(other) == "checked " * 3


def test_a_check_that_fails_says_so_and_leaves_nothing_to_others(tmp_path: Path) -> None:
    """Nobody begins with what was left half made."""
    one, other = clone(tmp_path / "one"), clone(tmp_path / "other")
    assert check(one, mypy(1)) == 1
    assert check(other, mypy()) == 0
    assert known(other) == "checked "


def test_without_a_cache_folder_types_are_checked_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only slower."""
    for name in ("EUREKUBE_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    assert check(clone(tmp_path / "one"), mypy(2)) == 2
