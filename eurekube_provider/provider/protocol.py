"""Import of Pulumi's protobuf messages and services without the rest of its SDK.

The CLI starts the plugin once for the schema and again to serve. A large part of a start was the import of
the SDK, whose package imports all its modules; the generated modules need none of them. They are loaded under
their own names: a component that needs the SDK later finds the same modules. The time that this saves, and
the end of this arrangement: docs/decisions/0026-two-providers-and-one-way-between-them.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

__all__ = ["engine_pb2", "engine_pb2_grpc", "plugin_pb2", "provider_pb2", "provider_pb2_grpc", "status_pb2"]

_PARENT_PACKAGES = ("pulumi", "pulumi.runtime", "pulumi.runtime.proto")


@contextmanager
def _replace_parent_packages() -> Iterator[None]:
    """Within the context, have empty parent packages of the messages, unless the SDK is loaded or missing."""
    sdk = None if "pulumi" in sys.modules else find_spec("pulumi")
    if sdk is None or not sdk.submodule_search_locations:
        yield
        return
    folder = Path(sdk.submodule_search_locations[0], "runtime", "proto")
    for name in _PARENT_PACKAGES:
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__path__ = [str(folder)]
    try:
        yield
    finally:
        for name in _PARENT_PACKAGES:
            del sys.modules[name]


try:
    with _replace_parent_packages():
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
