"""The YAML that comes with the package: the CRDs and the alerts, from the only place where each is written.

They come with the wheel inside of the package; in a checkout they lie beside it.
"""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml

from eurekube_provider.core.errors import ConfigurationError

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's where PyYAML has it, ten times as fast: each run of a program with an operator reads the CRDs."""


def crd_documents() -> list[dict[str, Any]]:
    """The CustomResourceDefinitions, each as its YAML says.

    :raises ConfigurationError: see :func:`documents`.
    """
    return documents("crds", "crds")


def documents(packaged: str, beside: str) -> list[dict[str, Any]]:
    """All YAML documents of a directory, in the order of the files' names.

    :param packaged: where the wheel has it, in the package.
    :param beside: where a checkout has it.
    :raises ConfigurationError: the package was installed without it.
    """
    return [
        document
        for text in texts(packaged, beside)
        for document in yaml.load_all(text, Loader=Loader)
        if document
    ]


def texts(packaged: str, beside: str) -> list[str]:
    """The YAML files of a directory as they are, in the order of their names; see :func:`documents`."""
    files = sorted(_directory(packaged, beside).iterdir(), key=lambda entry: entry.name)
    return [file.read_text("utf-8") for file in files if file.name.endswith((".yaml", ".yml"))]


def _directory(packaged: str, beside: str) -> Traversable:
    package = resources.files("eurekube_provider")
    for directory in (package / packaged, Path(__file__).parents[2] / beside):
        if directory.is_dir():
            return directory
    raise ConfigurationError(f"this installation of eurekube-provider lacks its {packaged}: install it again")
