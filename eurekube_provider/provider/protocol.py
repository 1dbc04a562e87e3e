"""Pulumi's messages and services, without the rest of its SDK.

The CLI starts the plugin anew for the schema and to serve. A large part of a start was the import of the SDK,
whose package imports all of itself; the generated modules need nothing of it. They are loaded
under their own names: where a component needs the SDK later, it finds the same ones.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pulumi.runtime.proto import (
        engine_pb2,
        engine_pb2_grpc,
        plugin_pb2,
        provider_pb2,
        provider_pb2_grpc,
        status_pb2,
    )
else:
    _NAME = "pulumi.runtime.proto"

    def _loaded(name: str) -> ModuleType:
        """A generated module; packages of its parents' names stand in for them meanwhile.

        In an SDK whose generated modules need more of it they come with all of it.
        """
        if "pulumi" not in sys.modules:
            with suppress(ImportError, AttributeError):  # the latter without an SDK
                return _alone(name)
        return import_module(f"{_NAME}.{name}")

    def _alone(name: str) -> ModuleType:
        parents = [_NAME.rsplit(".", depth)[0] for depth in (2, 1, 0)]
        folder = Path(find_spec("pulumi").submodule_search_locations[0], "runtime", "proto")
        try:
            for parent in parents:
                sys.modules[parent] = ModuleType(parent)
                sys.modules[parent].__path__ = [str(folder)]
            return import_module(f"{_NAME}.{name}")
        finally:
            for parent in parents:
                del sys.modules[parent]

    engine_pb2 = _loaded("engine_pb2")
    engine_pb2_grpc = _loaded("engine_pb2_grpc")
    plugin_pb2 = _loaded("plugin_pb2")
    provider_pb2 = _loaded("provider_pb2")
    provider_pb2_grpc = _loaded("provider_pb2_grpc")
    status_pb2 = _loaded("status_pb2")

__all__ = [
    "engine_pb2",
    "engine_pb2_grpc",
    "plugin_pb2",
    "provider_pb2",
    "provider_pb2_grpc",
    "status_pb2",
]
