"""Pulumi's plugin process, in which the dynamic provider runs: what it tells of our errors.

The SDK (since 3.26x) answers an exception with its whole traceback, in which the one sentence that a person
needs is the last line of thirty. Ours stand alone; anything else is a bug, and keeps its traceback.
"""

from __future__ import annotations

import sys
import traceback
from types import SimpleNamespace
from typing import Any

from eurekube_provider.core.errors import EurekubeError


def tell_sentences() -> None:
    """Let this process answer an :class:`EurekubeError` with its message alone.

    Does nothing outside of Pulumi's plugin process, and nothing to other providers' errors. Where a later
    SDK does it in another way, people see the traceback again, with the sentence in it.
    """
    plugin: Any = sys.modules.get("__main__")
    if hasattr(plugin, "_abort_with_traceback") and getattr(plugin, "traceback", None) is traceback:
        plugin.traceback = SimpleNamespace(format_exc=_told)


def _told() -> str:
    error = sys.exc_info()[1]
    return str(error) if isinstance(error, EurekubeError) else traceback.format_exc()
