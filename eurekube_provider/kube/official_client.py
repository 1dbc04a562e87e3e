"""The parts of the official Kubernetes client that are used, without modules that hardly any process needs.

The client imports ``requests`` for two cases: a kubeconfig with an OIDC token that has expired, and commands
in pods, by web sockets. Its ``ApiClient`` makes typed objects of answers, by pydantic; a kubeconfig is read
without it. With what they need themselves, these modules take 18 MiB, more than a quarter of an operator
without instances. So they are imported when they are used.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


def _late_class(module: str, name: str) -> Callable[..., Any]:
    def make(*given: Any, **more: Any) -> Any:
        return getattr(importlib.import_module(module), name)(*given, **more)

    return make


class _LateModule(ModuleType):
    """A module that is imported when one of its names is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or sys.modules.get(self.__name__) is self:
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)


_oauth = ModuleType("requests_oauthlib")
_oauth.OAuth2Session = _late_class(_oauth.__name__, "OAuth2Session")  # type: ignore[attr-defined]
_typed = ModuleType("kubernetes.client.api_client")
_typed.ApiClient = _late_class(_typed.__name__, "ApiClient")  # type: ignore[attr-defined]
_stand_ins = {
    module.__name__: module
    for module in (_oauth, _typed, _LateModule("kubernetes.stream"))
    if module.__name__ not in sys.modules
}
sys.modules |= _stand_ins
try:
    from kubernetes import client, config
    from kubernetes.client import rest
    from kubernetes.utils.keepalive import tcp_keepalive_socket_options
finally:
    for _name in _stand_ins:
        del sys.modules[_name]
if _typed.__name__ in _stand_ins:
    vars(client).pop("ApiClient", None)  # kept there since kubernetes.config asked for it

__all__ = ["client", "config", "rest", "tcp_keepalive_socket_options"]
