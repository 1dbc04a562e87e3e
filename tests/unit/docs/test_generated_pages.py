"""Generated parts of the documentation agree with the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.generated_pages import ROOT, render_pages, replace_table
from scripts.measured import quoted_figures

PAGES = render_pages()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_nothing_has_drifted(path: Path) -> None:
    """Each generated page has the text that `make reference` would write."""
    said = f"run make reference: {path.relative_to(ROOT)} is old"
    assert path.read_text(encoding="utf-8") == PAGES[path], said


@pytest.mark.parametrize(
    ("page", "figure"), [(page, one) for page, figures in quoted_figures().items() for one in figures]
)
def test_a_figure_in_a_sentence_is_what_was_measured_last(page: str, figure: str) -> None:
    """Each measured figure that a page quotes is the latest one."""
    assert figure in (ROOT / "docs" / page).read_text(encoding="utf-8")


def test_a_table_is_found_by_its_first_cell() -> None:
    """The table with this first cell is replaced and the text around it stays; without one an error is
    raised.
    """
    page = "before\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nafter\n"
    assert replace_table(page, "a", "| a |\n") == "before\n\n| a |\n\nafter\n"
    with pytest.raises(LookupError, match=r"begins with '\| c \|'"):
        replace_table(page, "c", "| c |\n")
