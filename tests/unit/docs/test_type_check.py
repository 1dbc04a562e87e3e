"""The first type check of a clone starts with the mypy cache of another clone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts.type_check import check_types


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set the user's cache folder to one of the test's own."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("EUREKUBE_CACHE", str(folder))
    return folder


def mypy(code: int = 0) -> list[str]:
    """Return a command in place of mypy, which adds to its cache and ends with ``code``."""
    program = (
        "import sys, pathlib; folder = pathlib.Path('.mypy_cache'); folder.mkdir(exist_ok=True);"
        f"(folder / 'known').open('a').write('checked '); sys.exit({code})"
    )
    return [sys.executable, "-S", "-c", program]


def clone(folder: Path) -> Path:
    """Make an empty clone."""
    folder.mkdir()
    return folder


def cache_content(project: Path) -> str:
    """Return the content of a clone's mypy cache."""
    return (project / ".mypy_cache" / "known").read_text()


def test_the_first_check_begins_with_what_another_clone_left(tmp_path: Path) -> None:
    """A clone's first check starts with another clone's cache, its later ones with its own."""
    one, other = clone(tmp_path / "one"), clone(tmp_path / "other")
    assert check_types(one, mypy()) == 0
    assert check_types(one, mypy()) == 0
    assert check_types(other, mypy()) == 0
    assert cache_content(one) == "checked " * 2
    assert cache_content(other) == "checked " * 2
    assert check_types(other, mypy()) == 0
    assert cache_content(other) == "checked " * 3


def test_a_check_that_fails_says_so_and_leaves_nothing_to_others(tmp_path: Path) -> None:
    """A failed check returns its exit code and shares no cache."""
    one, other = clone(tmp_path / "one"), clone(tmp_path / "other")
    assert check_types(one, mypy(1)) == 1
    assert check_types(other, mypy()) == 0
    assert cache_content(other) == "checked "


def test_without_a_cache_folder_types_are_checked_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a cache folder types are checked without a shared cache."""
    for name in ("EUREKUBE_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    assert check_types(clone(tmp_path / "one"), mypy(2)) == 2
