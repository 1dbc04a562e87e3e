"""Makes the pages of docs/ ready for the site generator: `make site`.

A site has nothing beside its pages. So links that lead to other files of the repository become links to where
REPOSITORY_URL says that it is, such as https://github.com/<owner>/<name>/blob/main; without it, their words.
Decisions are listed by their titles, which a folder on a forge does by itself.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
OUT = ROOT / "build" / "docs"
LINK = re.compile(r"(?<!!)\[((?:[^\]\[]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def page_for_the_site(page: Path, repository_url: str = "") -> str:
    """A page's text, in which no link leaves the site but to the repository's own address."""

    def link(found: re.Match[str]) -> str:
        words, target = found.groups()
        path = (page.parent / target.partition("#")[0]).resolve()
        if re.match(r"[a-z]+:|#", target) or (path.is_relative_to(DOCS) and path.is_file()):
            return found[0]
        if path == DOCS / "decisions":
            return f"[{words}]({os.path.relpath(path / 'index.md', page.parent)})"
        if not repository_url:
            return words
        return f"[{words}]({repository_url.rstrip('/')}/{path.relative_to(ROOT)})"

    parts = re.split(
        r"(^ *```.*?^ *```$|`[^`\n]+`(?!\]))", page.read_text(encoding="utf-8"), flags=re.M | re.S
    )
    return "".join(_code(part) if number % 2 else LINK.sub(link, part) for number, part in enumerate(parts))


def _code(part: str) -> str:
    """A block as it is; in a name of a table no escaped bar, whose backslash the generator would show."""
    return part if part.lstrip().startswith("```") else part.replace("\\|", "|")


def decisions_page() -> str:
    """The decisions by their titles."""
    lines = ["# Decisions\n", "What was decided otherwise than one would expect, and why.\n"]
    for path in sorted((DOCS / "decisions").glob("*.md")):
        title = path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
        lines += [f"- [{title}]({path.name})"]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write all pages into build/docs."""
    shutil.rmtree(OUT, ignore_errors=True)
    shutil.copytree(DOCS, OUT)
    for page in DOCS.rglob("*.md"):
        text = page_for_the_site(page, os.environ.get("REPOSITORY_URL", ""))
        (OUT / page.relative_to(DOCS)).write_text(text, encoding="utf-8")
    (OUT / "decisions" / "index.md").write_text(decisions_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
