"""Links of the documentation lead to existing targets, and the check finds dead ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import links


@pytest.mark.parametrize(
    "page", links.list_markdown_files(), ids=lambda page: str(page.relative_to(links.ROOT))
)
def test_each_link_leads_somewhere(page: Path) -> None:
    """Each link of a page leads to a file of the repository and, where given, to a heading in it."""
    assert links.find_broken_links(page) == []


def test_dead_links_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check reports missing files, missing headings and targets outside the repository, and ignores
    links in code.
    """
    monkeypatch.setattr(links, "ROOT", tmp_path)
    (tmp_path / "there.md").write_text("# A heading, `quoted`\n\n```\n# no heading\n```\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[good](there.md#a-heading-quoted) [gone](gone.md) [bad](there.md#no-heading) [out](../x.md)\n"
        "![picture](gone.png) `[code](code.md)` [web](https://example.com/x)\n\n```\n[block](block.md)\n```\n"
    )
    assert links.find_broken_links(page) == [
        "page.md: gone.md is not there",
        "page.md: there.md#no-heading names a heading that is not there",
        "page.md: ../x.md leaves the repository",
        "page.md: gone.png is not there",
    ]


def test_equal_headings_are_distinguished() -> None:
    """The second of two equal headings has a numbered anchor."""
    assert links.find_anchors("# Two\n## Two\n") == {"two", "two-1"}
