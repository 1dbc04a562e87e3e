"""The CRDs and alerts of the package, read from YAML files.

A wheel has the files inside of the package; in a checkout they lie beside it.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from eurekube_provider.core.errors import ConfigurationError

YamlLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The YAML loader: libyaml's where there is one, ten times as fast; each operator's program reads CRDs."""


def crd_documents() -> list[dict[str, Any]]:
    """Return the CustomResourceDefinitions; raise as :func:`read_yaml_documents`."""
    return read_yaml_documents("crds", "crds")


def read_yaml_documents(in_package: str, in_checkout: str) -> list[dict[str, Any]]:
    """Return all YAML documents of a directory, by its path in a wheel's package and in a checkout; raise
    ConfigurationError where an installation lacks it.
    """
    return [
        document
        for text in read_yaml_texts(in_package, in_checkout)
        for document in yaml.load_all(text, Loader=YamlLoader)
        if document
    ]


def read_yaml_texts(in_package: str, in_checkout: str) -> list[str]:
    """Return the texts of a directory's YAML files by their names; see :func:`read_yaml_documents`."""
    package = resources.files("eurekube_provider")
    for directory in (package / in_package, Path(__file__).parents[2] / in_checkout):
        if directory.is_dir():
            files = sorted(directory.iterdir(), key=lambda entry: entry.name)
            return [file.read_text("utf-8") for file in files if file.name.endswith((".yaml", ".yml"))]
    raise ConfigurationError(
        f"this installation of eurekube-provider lacks its {in_package}: install it again"
    )
