"""The schema as it is committed and served; ``scripts/provider_schema.py`` makes it.

Where the package was released is known to its metadata alone, which ``hatch_build.py`` writes.
"""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

from eurekube_provider.version import __version__

COMMITTED = Path(__file__).with_name("schema.json")


def served_schema(repository: str | None = None) -> str:
    """The schema of the package, as JSON.

    :param repository: the URL of the repository that released it, by default what the installed package says;
        without one the schema names no place to get anything from.
    """
    text = COMMITTED.read_text(encoding="utf-8")
    repository = _repository() if repository is None else repository
    if not repository:
        return text
    places = {
        "homepage": repository,
        "repository": repository,
        "logoUrl": f"{repository}/raw/v{__version__}/docs/images/logo.svg",
        "pluginDownloadURL": f"{repository}/releases/download/v{__version__}",
    }
    return json.dumps({**json.loads(text), **places}, indent=2, ensure_ascii=False) + "\n"


def _repository() -> str:
    """The repository that released the installed package; empty where it was not released."""
    try:
        urls = metadata("eurekube-provider").get_all("Project-URL") or ()
    except PackageNotFoundError:  # a copy that nobody installed
        return ""
    return next((each.partition(", ")[2] for each in urls if each.startswith("Source, ")), "")
