"""No link of the documentation leads nowhere, and the check that says so finds the ones that do."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import links


@pytest.mark.parametrize("page", links.pages(), ids=lambda page: str(page.relative_to(links.ROOT)))
def test_each_link_leads_somewhere(page: Path) -> None:
    """Within the repository: to a file that is there and, of a page, to a heading that it has."""
    assert links.complaints(page) == []


def test_dead_links_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing file, a missing heading, and a way out of the repository; what stands in code is no link."""
    monkeypatch.setattr(links, "ROOT", tmp_path)
    (tmp_path / "there.md").write_text("# A heading, `quoted`\n\n```\n# no heading\n```\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[good](there.md#a-heading-quoted) [gone](gone.md) [bad](there.md#no-heading) [out](../x.md)\n"
        "![picture](gone.png) `[code](code.md)` [web](https://example.com/x)\n\n```\n[block](block.md)\n```\n"
    )
    assert links.complaints(page) == [
        "page.md: gone.md is not there",
        "page.md: there.md#no-heading names a heading that is not there",
        "page.md: ../x.md leaves the repository",
        "page.md: gone.png is not there",
    ]


def test_equal_headings_are_distinguished() -> None:
    """The second one's anchor has a number."""
    assert links.anchors("# Two\n## Two\n") == {"two", "two-1"}
