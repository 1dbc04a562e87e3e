"""A check of the built site for broken links and for content loaded from other hosts: a part of `make site`.

`scripts/links.py` checks the pages as they are written; this script checks the generator's output.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from scripts.site_scripts import FOREIGN_ADDRESS_PATTERN

SITE = Path(__file__).parents[1] / "site"


class _PageLinks(HTMLParser):
    """The anchors of a page, its links, and the addresses that it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attrs if value}
        self.places |= {found[name] for name in ("id", "name") if name in found}
        leads = {found[name] for name in ("href", "src") if name in found}
        self.links |= leads
        if tag != "a":
            self.loaded |= leads


def find_broken_links(site: Path = SITE) -> list[str]:
    """Return a sentence for each broken link, and for each address of another host that the site loads.

    Pages, the site's own scripts and its style sheets are checked. Mermaid's script has addresses of licences
    only.
    """
    pages = {path: _PageLinks(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        where = path.relative_to(site)
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.loaded and parts.scheme in ("", "http", "https"):
                    found.append(f"{where}: {link} is loaded from elsewhere")
                continue
            target = _resolve_link(site, path, unquote(parts.path))
            if not target.exists():
                found.append(f"{where}: {link} is not there")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].places:
                found.append(f"{where}: {link} names a heading that is not there")
    for path in sorted([*site.rglob("bundle.*.js"), *site.rglob("*.css")]):
        text = path.read_text(encoding="utf-8")
        addresses = {one[0].strip("\"'`") for one in FOREIGN_ADDRESS_PATTERN.finditer(text)}
        if path.suffix == ".css":
            addresses |= set(re.findall(r"url\(\s*[\"']?((?:https?:)?//[^\"')]+)", text))
        found += [f"{path.relative_to(site)}: {one} is loaded from elsewhere" for one in sorted(addresses)]
    return found


def _resolve_link(site: Path, page: Path, path: str) -> Path:
    """Return the file that a path of the site leads to."""
    if not path:
        return page
    target = site / path.lstrip("/") if path.startswith("/") else (page.parent / path).resolve()
    return target / "index.html" if target.is_dir() else target


def main() -> int:
    """Print all complaints; return 1 if there are any."""
    if not (SITE / "index.html").is_file():
        print("site: there is none to look at", file=sys.stderr)
        return 1
    found = find_broken_links()
    for sentence in found:
        print(f"site: {sentence}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
