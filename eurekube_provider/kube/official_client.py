"""The parts of the official Kubernetes client that are used, without modules that hardly any process needs.

The client imports ``requests`` for two cases: a kubeconfig with an OIDC token that has expired, and commands
in pods, by web sockets. Its ``ApiClient`` makes typed objects of answers, by pydantic; a kubeconfig is read
without it. With what they need themselves, these modules take 18 MiB, more than a quarter of an operator
without instances. So they are imported when they are used.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


def _make_oauth_session(*arguments: Any, **options: Any) -> Any:
    """Return an ``OAuth2Session``, whose module is imported only now."""
    from requests_oauthlib import OAuth2Session  # type: ignore[import-untyped]

    return OAuth2Session(*arguments, **options)


def _make_api_client(*arguments: Any, **options: Any) -> Any:
    """Return an ``ApiClient``, whose module is imported only now."""
    from kubernetes.client.api_client import ApiClient

    return ApiClient(*arguments, **options)


class _LateModule(ModuleType):
    """A module that is imported when one of its names is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or sys.modules.get(self.__name__) is self:
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)


_oauth = ModuleType("requests_oauthlib")
_oauth.OAuth2Session = _make_oauth_session  # type: ignore[attr-defined]
_typed = ModuleType("kubernetes.client.api_client")
_typed.ApiClient = _make_api_client  # type: ignore[attr-defined]
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
