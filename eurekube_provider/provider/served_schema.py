"""The package's schema, as ``scripts/provider_schema.py`` makes it, and as the engine gets it: with the
repository of the release, which only the package's metadata name.
"""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

from eurekube_provider.version import __version__

COMMITTED_SCHEMA_FILE = Path(__file__).with_name("schema.json")


def package_schema_json(repository: str | None = None) -> str:
    """Return the schema of the package, as JSON, with the places of downloads in a repository's URL, by
    default that of the installed package; with an empty one without them.
    """
    text = COMMITTED_SCHEMA_FILE.read_text(encoding="utf-8")
    repository = _repository_url() if repository is None else repository
    if not repository:
        return text
    places = {
        "homepage": repository,
        "repository": repository,
        "logoUrl": f"{repository}/raw/v{__version__}/docs/images/logo.svg",
        "pluginDownloadURL": f"{repository}/releases/download/v{__version__}",
    }
    return json.dumps({**json.loads(text), **places}, indent=2, ensure_ascii=False) + "\n"


def _repository_url() -> str:
    """Return the URL of the repository that released the installed package; empty for an unreleased one."""
    try:
        urls = metadata("eurekube-provider").get_all("Project-URL") or ()
    except PackageNotFoundError:  # a copy that nobody installed
        return ""
    return next((each.partition(", ")[2] for each in urls if each.startswith("Source, ")), "")
