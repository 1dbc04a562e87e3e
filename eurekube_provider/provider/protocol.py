"""Pulumi's messages and services, without the rest of its SDK.

The CLI starts the plugin again for the schema and to serve. A large part of a start was the import of the
SDK, whose package imports all of itself; the generated modules need nothing of it. They are loaded under
their own names: where a component needs the SDK later, it finds the same ones. What that saves, and until
when it stays: docs/decisions/0026-two-providers-and-one-way-between-them.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

__all__ = [
    "engine_pb2",
    "engine_pb2_grpc",
    "plugin_pb2",
    "provider_pb2",
    "provider_pb2_grpc",
    "status_pb2",
]

_ABOVE = ("pulumi", "pulumi.runtime", "pulumi.runtime.proto")


@contextmanager
def _without_the_rest() -> Iterator[None]:
    """Have empty packages stand in for those above the messages, unless the SDK is loaded or is missing."""
    sdk = None if "pulumi" in sys.modules else find_spec("pulumi")
    if sdk is None or not sdk.submodule_search_locations:
        yield
        return
    folder = Path(sdk.submodule_search_locations[0], "runtime", "proto")
    for name in _ABOVE:
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__path__ = [str(folder)]
    try:
        yield
    finally:
        for name in _ABOVE:
            del sys.modules[name]


try:
    with _without_the_rest():
        from pulumi.runtime.proto import (
            engine_pb2,
            engine_pb2_grpc,
            plugin_pb2,
            provider_pb2,
            provider_pb2_grpc,
            status_pb2,
        )
except ImportError:  # the generated modules of this SDK need more of it
    from pulumi.runtime.proto import (
        engine_pb2,
        engine_pb2_grpc,
        plugin_pb2,
        provider_pb2,
        provider_pb2_grpc,
        status_pb2,
    )
