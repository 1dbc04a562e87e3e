"""What the documentation has from the code is what the code says now."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.generated_pages import ROOT, pages, put_table

PAGES = pages()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_nothing_has_drifted(path: Path) -> None:
    """`make reference` would write the same bytes."""
    said = f"run make reference: {path.relative_to(ROOT)} is old"
    assert path.read_text(encoding="utf-8") == PAGES[path], said


def test_a_table_is_found_by_its_first_cell() -> None:
    """The text around it stays; without such a table nothing is written."""
    page = "before\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nafter\n"
    assert put_table(page, "a", "| a |\n") == "before\n\n| a |\n\nafter\n"
    with pytest.raises(LookupError, match=r"begins with '\| c \|'"):
        put_table(page, "c", "| c |\n")
