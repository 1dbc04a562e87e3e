"""The CRDs, from the only place where their schema is written: ``crds/`` of the repository."""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml

from eurekube_provider.core.errors import ConfigurationError


def crd_documents() -> list[dict[str, Any]]:
    """The CustomResourceDefinitions, each as its YAML says, in the order of their files' names.

    They come with the wheel as ``eurekube_provider/crds``; in a checkout they lie beside the package.

    :raises ConfigurationError: the package was installed without them.
    """
    documents: list[dict[str, Any]] = []
    for file in sorted(_directory().iterdir(), key=lambda entry: entry.name):
        if file.name.endswith((".yaml", ".yml")):
            documents += [document for document in yaml.safe_load_all(file.read_text("utf-8")) if document]
    return documents


def _directory() -> Traversable:
    package = resources.files("eurekube_provider")
    beside = Path(__file__).parents[2] / "crds"
    for directory in (package / "crds", beside):
        if directory.is_dir():
            return directory
    raise ConfigurationError("this installation of eurekube-provider lacks its CRDs: install it again")
