"""Eurekube joins Netflix Eureka and Kubernetes: the public names, and nothing else.

They are loaded on first use, so that the operator never loads Pulumi, and Pulumi's plugin process no
Kubernetes client, only because they share this package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from eurekube_provider.version import __version__

if TYPE_CHECKING:
    from eurekube_provider.resources.instance import (
        EurekaInstance,
        EurekaInstanceArgs,
        EurekaInstanceArgsDict,
    )
    from eurekube_provider.resources.operator import EurekubeOperator, EurekubeOperatorArgs
    from eurekube_provider.resources.syncer import EurekaSyncer, EurekaSyncerArgs

__all__ = [
    "EurekaInstance",
    "EurekaInstanceArgs",
    "EurekaInstanceArgsDict",
    "EurekaSyncer",
    "EurekaSyncerArgs",
    "EurekubeOperator",
    "EurekubeOperatorArgs",
    "__version__",
]

_MODULES = {
    "EurekaInstance": "instance",
    "EurekaInstanceArgs": "instance",
    "EurekaInstanceArgsDict": "instance",
    "EurekaSyncer": "syncer",
    "EurekaSyncerArgs": "syncer",
    "EurekubeOperator": "operator",
    "EurekubeOperatorArgs": "operator",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"eurekube_provider.resources.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
