"""Errors for missing optional packages, which name the extra to install.

The core registers and looks up in Eureka. The parts that talk to Kubernetes, the operator and some commands
need more packages, see ``[project.optional-dependencies]`` of pyproject.toml.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from eurekube_provider.core.errors import ConfigurationError

ExtraName = Literal["kubernetes", "operator", "cli", "demo"]

_OPTIONAL_MODULES = frozenset(
    {"jinja2", "kubernetes", "prometheus_client", "pulumi", "pulumi_kubernetes", "rich"}
)
"""Modules that only extras install; the package ``eurekube-operator`` does not install Pulumi."""


class MissingExtra(ConfigurationError):
    """The error where a part of the program needs a package that this installation does not have."""


@contextmanager
def require_extra(extra: ExtraName, what: str) -> Iterator[None]:
    """Turn a failed import within the block into an error that names the missing extra.

    :param what: the part that needs the extra, as the subject of a sentence.
    :raises MissingExtra: in place of the failed import.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in _OPTIONAL_MODULES:
            raise
        raise MissingExtra(
            f"{what} needs the package {module.replace('_', '-')}, which is not installed:"
            f" pip install 'eurekube-provider[{extra}]'"
        ) from None
