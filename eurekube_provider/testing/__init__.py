"""A kit for tests of programs and services that register in Eureka: docs/guides/testing.md.

Every pytest run of an environment with this package imports this module. So the names are loaded on first
use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eurekube_provider.testing.eureka import Eureka, StartEureka
    from eurekube_provider.testing.mocks import EurekubeMocks

__all__ = ["Eureka", "EurekubeMocks", "StartEureka"]

_MODULE_NAME_BY_EXPORT = {"Eureka": "eureka", "EurekubeMocks": "mocks", "StartEureka": "eureka"}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used (PEP 562)."""
    if name not in _MODULE_NAME_BY_EXPORT:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_NAME_BY_EXPORT[name]}"), name)
