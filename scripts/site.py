"""The pages of docs/, prepared for the site generator: `make site`.

A site has no files besides its pages. So links to other files of the repository become links below
REPOSITORY_URL, such as https://github.com/<owner>/<name>/blob/main; without it, plain words. An index lists
the decisions by title, as a forge does by itself for a folder.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
OUT_FOLDER = ROOT / "build" / "docs"
LINK_PATTERN = re.compile(r"(?<!!)\[((?:[^\]\[]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def prepare_page(page: Path, repository_url: str = "") -> str:
    """Return a page's text with each link into the repository changed to the repository's address, or to
    plain words.
    """

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
    return "".join(
        _unescape_inline_code(part) if number % 2 else LINK_PATTERN.sub(link, part)
        for number, part in enumerate(parts)
    )


def _unescape_inline_code(part: str) -> str:
    """Return a code block unchanged, and inline code with its escaped bars unescaped: the generator would
    show the backslashes.
    """
    return part if part.lstrip().startswith("```") else part.replace("\\|", "|")


def decisions_index() -> str:
    """Return an index of the decisions by title."""
    lines = ["# Decisions\n", "What was decided otherwise than one would expect, and why.\n"]
    for path in sorted((DOCS / "decisions").glob("*.md")):
        title = path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
        lines += [f"- [{title}]({path.name})"]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write all prepared pages into build/docs."""
    shutil.rmtree(OUT_FOLDER, ignore_errors=True)
    shutil.copytree(DOCS, OUT_FOLDER)
    for page in DOCS.rglob("*.md"):
        text = prepare_page(page, os.environ.get("REPOSITORY_URL", ""))
        (OUT_FOLDER / page.relative_to(DOCS)).write_text(text, encoding="utf-8")
    (OUT_FOLDER / "decisions" / "index.md").write_text(decisions_index(), encoding="utf-8")


if __name__ == "__main__":
    main()
