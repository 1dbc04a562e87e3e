"""README.md as the text of the package's page on an index, where its relative links do not work.

With REPOSITORY_URL, such as https://github.com/<owner>/<name>, the links lead to the release's files. Without
it, links become plain words, and pictures are left out.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[((?:[^\]\[]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def long_description(readme: str, repository: str, version: str) -> str:
    """Return the README for a reader who has none of the repository's files."""

    def link(found: re.Match[str]) -> str:
        mark, words, target = found.groups()
        if re.match(r"[a-z]+:|#", target):
            return found[0]
        if repository:
            return f"{mark}[{words}]({repository}/{'raw' if mark else 'blob'}/v{version}/{target})"
        return "" if mark else words

    parts = re.split(r"(^```.*?^```$)", readme, flags=re.M | re.S)
    return "".join(part if part.startswith("```") else _LINK.sub(link, part) for part in parts)


class PackagePage(MetadataHookInterface):
    """A build hook that adds the readme and, where it is known, the repository's URL to the metadata."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the readme and the URLs to the metadata from pyproject.toml; hatchling calls this method."""
        root = Path(self.root)
        repository = os.environ.get("REPOSITORY_URL", "").partition("/blob/")[0].rstrip("/")
        (version,) = re.findall(
            r'^__version__ = "(.+)"$', (root / "eurekube_provider" / "version.py").read_text(), re.M
        )
        readme = (root / "README.md").read_text(encoding="utf-8")
        text = long_description(readme, repository, version)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        if repository:
            metadata["urls"] = {
                "Source": repository,
                "Changelog": f"{repository}/blob/v{version}/CHANGELOG.md",
            }
