"""A check for broken links in the documentation: to missing files, or to headings that a page lacks.

Only targets in the repository are checked: a check must not depend on other people's servers.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINK_PATTERN = re.compile(
    r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)|\b(?:src|href)=\"([^\"]+)\""
)
FENCED_CODE_PATTERN = re.compile(r"^( *)(```+|~~~+).*?^\1\2[^\S\n]*$", re.MULTILINE | re.DOTALL)
HEADING_PATTERN = re.compile(r"^#{1,6} +(.+?)(?: +#+)?$", re.MULTILINE)


def list_markdown_files() -> list[Path]:
    """Return all Markdown files of the repository that git tracks or does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted(path for path in (ROOT / line for line in listed.splitlines()) if path.exists())


def remove_code(text: str) -> str:
    """Return the text without its code, in which brackets are no links."""
    return re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", FENCED_CODE_PATTERN.sub("", text))


def heading_anchor(heading: str) -> str:
    """Return a heading's anchor, as forges and site generators make it: small letters, words joined by
    hyphens.
    """
    said = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
    return re.sub(r"[^\w\- ]", "", said.strip().lower()).replace(" ", "-")


def find_anchors(text: str) -> set[str]:
    """Return the anchors of a page after ``#``; the second heading of one name ends in ``-1``."""
    found: set[str] = set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text))
    counts: dict[str, int] = {}
    for heading in HEADING_PATTERN.findall(FENCED_CODE_PATTERN.sub("", text)):
        name = heading_anchor(heading)
        seen = counts.get(name, 0)
        found.add(f"{name}-{seen}" if seen else name)
        counts[name] = seen + 1
    return found


def find_link_targets(text: str) -> list[str]:
    """Return the targets of a page's links and pictures."""
    return [one or other for one, other in LINK_PATTERN.findall(remove_code(text))]


def find_broken_links(page: Path) -> list[str]:
    """Return a sentence for each broken link of a page."""
    found = []
    text = page.read_text(encoding="utf-8")
    for target in find_link_targets(text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        where = f"{page.relative_to(ROOT)}: {target}"
        if not path.is_relative_to(ROOT):
            found.append(f"{where} leaves the repository")
        elif not path.exists():
            found.append(f"{where} is not there")
        elif anchor and (
            path.suffix != ".md" or anchor not in find_anchors(path.read_text(encoding="utf-8"))
        ):
            found.append(f"{where} names a heading that is not there")
    return found


def main() -> None:
    """Print the broken links of all pages; exit with 1 if there are any."""
    found = [one for page in list_markdown_files() for one in find_broken_links(page)]
    print(*found, sep="\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
