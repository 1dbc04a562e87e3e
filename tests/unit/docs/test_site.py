"""The documentation site: its navigation, its links, and the scripts that it carries."""

from __future__ import annotations

import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from scripts import site, site_links, site_scripts


def pages_in(nav: Any) -> set[str]:
    """Return the pages in a navigation, at any depth."""
    if isinstance(nav, str):
        return {nav}
    values = nav.values() if isinstance(nav, dict) else nav
    return {page for one in values for page in pages_in(one)}


def test_each_page_is_in_the_navigation() -> None:
    """The navigation has every page and no other; decisions are reached by their list."""
    nav = tomllib.loads((site.ROOT / "zensical.toml").read_text())["project"]["nav"]
    pages = {str(path.relative_to(site.DOCS)) for path in site.DOCS.rglob("*.md")}
    pages = {page for page in pages if not page.startswith("decisions/")} | {"decisions/index.md"}
    assert pages_in(nav) == pages


BLOB = "https://forge.example.com/o/n/blob/main"


@pytest.mark.parametrize(("repository", "expected"), [("", "README"), (BLOB, f"[README]({BLOB}/README.md)")])
def test_a_link_out_of_the_site_is_words_or_an_address(
    repository: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link to a file outside the pages becomes a URL of the repository, or plain text if that is not known;
    other links stay.
    """
    for name in ("docs/guides/page.md", "docs/guides/other.md", "docs/decisions/0001-a.md", "README.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setattr(site, "ROOT", tmp_path)
    monkeypatch.setattr(site, "DOCS", tmp_path / "docs")
    page = tmp_path / "docs" / "guides" / "page.md"
    page.write_text(
        "[there](other.md#x), [README](../../README.md), `[a](../../b)`, [out](https://example.com), "
        "[why](../decisions)"
    )
    stay = "`[a](../../b)`, [out](https://example.com), [why](../decisions/index.md)"
    assert site.prepare_page(page, repository) == f"[there](other.md#x), {expected}, {stay}"


def test_a_bar_in_code_of_a_table_has_no_backslash(tmp_path: Path) -> None:
    """In a table's code the backslash before a bar, which a forge needs, is removed for the site."""
    page = tmp_path / "page.md"
    page.write_text("| `a\\|b` | c\\|d |\n\n```sh\ngrep 'x\\|y'\n```\n")
    assert site.prepare_page(page) == "| `a|b` | c\\|d |\n\n```sh\ngrep 'x\\|y'\n```\n"


MERMAID = "https://cdn.example.com/mermaid@12/dist/mermaid.min.js"
BUNDLE = f'load("{MERMAID}");svg("http://www.w3.org/2000/svg")'


def test_the_site_carries_what_draws_its_diagrams() -> None:
    """The generator's script is changed to load the site's own Mermaid, and nothing else from other hosts."""
    ask = "ask(`https://api.example.com/${name}`)"
    script = f'{BUNDLE};other("https://cdn.example.com/lightbox.css");{ask}'
    assert site_scripts.replace_foreign_addresses(script) == (
        'load(new URL("assets/javascripts/mermaid.min.js",__md_scope).href);'
        f'svg("http://www.w3.org/2000/svg");other("data:,");{ask}'
    )


@pytest.mark.parametrize("script", ["load(x)", BUNDLE * 2])
def test_another_generator_is_not_changed_blindly(script: str) -> None:
    """A generator's script that does not load Mermaid exactly once is refused."""
    with pytest.raises(site_scripts.UnexpectedContent, match="names Mermaid's address"):
        site_scripts.replace_foreign_addresses(script)


def test_another_mermaid_is_refused(tmp_path: Path) -> None:
    """A Mermaid file with another SHA-256 than its authors' is refused."""
    with zipfile.ZipFile(tmp_path / "mermaidx-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(site_scripts.MERMAID_IN_PACKAGE, "alert(1)")
    with pytest.raises(site_scripts.UnexpectedContent, match="has the SHA-256"):
        site_scripts.read_mermaid_script(tmp_path)


def test_what_scripts_and_styles_would_load_is_found(tmp_path: Path) -> None:
    """URLs of other hosts in scripts and styles are reported, except XML namespaces."""
    (tmp_path / "bundle.0.min.js").write_text(BUNDLE)
    (tmp_path / "site.css").write_text("a{background:url(//cdn.example.com/x.png)}b{background:url(y.png)}")
    assert site_links.find_broken_links(tmp_path) == [
        f"bundle.0.min.js: {MERMAID} is loaded from elsewhere",
        "site.css: //cdn.example.com/x.png is loaded from elsewhere",
    ]


def test_dead_links_of_the_built_site_are_found(tmp_path: Path) -> None:
    """Dead links of the built site are reported, and resources from other hosts; links to other hosts are
    allowed.
    """
    (tmp_path / "start").mkdir()
    (tmp_path / "style.css").touch()
    (tmp_path / "start" / "index.html").write_text(
        '<link rel="stylesheet" href="../style.css"><h2 id="here">Here</h2>'
        '<a href="..">up</a><a href="#here">here</a><a href="#gone">gone</a><a href="/style.css">style</a>'
    )
    (tmp_path / "index.html").write_text(
        '<script src="https://cdn.example.com/x.js"></script><img src="data:image/png;base64,AA">'
        '<a href="https://example.com/">web</a><a href="start/#here">good</a>'
        '<a href="start/#there">bad</a><img src="gone.png">'
    )
    assert site_links.find_broken_links(tmp_path) == [
        "index.html: gone.png is not there",
        "index.html: https://cdn.example.com/x.js is loaded from elsewhere",
        "index.html: start/#there names a heading that is not there",
        "start/index.html: #gone names a heading that is not there",
    ]
