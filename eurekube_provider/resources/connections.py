"""How to reach Eureka, as a stack's configuration and the environment say.

One precedence for the program, the dynamic provider and the command line: the configuration wins over the
environment. Credentials are found anew each time, and never enter properties or state.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping

from eurekube_provider.eureka.connection import Connection, from_environment
from eurekube_provider.eureka.peers import Peers

NAMESPACE = "eurekube"
"""The namespace of the configuration keys, whatever the project's name: ``eurekube:url``."""

Setting = Callable[[str], str | None]
"""Looks up a key of the configuration, without its namespace."""

_peers: dict[Connection, Peers] = {}
_lock = threading.Lock()


def configured_connection(
    setting: Setting, environment: Mapping[str, str] = os.environ, service_url: str | None = None
) -> Connection:
    """The connection that the configuration and the environment describe.

    The keys are the names of :meth:`Connection.configured` in camelCase: ``url``, ``user``, ``password``,
    ``token``, ``caFile`` and so on; of the environment EUREKA_URL, EUREKA_CA_FILE and so on.

    :param service_url: use these URLs, of a state say, with the credentials that are configured today.
    :raises ConfigurationError: no URL, one that is none, credentials of two kinds, a file that is not there.
    """
    said: dict[str, str | None] = {}

    def known(name: str) -> str | None:
        if name not in said:
            said[name] = setting(_camel(name)) or from_environment(name, environment)
        return said[name]

    url = known("url") or ""
    if known("user") is None and "@" in url:
        written = Connection.parse(url)
        said |= {"user": written.user, "password": written.password}
    if service_url:
        said |= {"url": service_url, "zone": None}  # the state's URLs are in order already
    return Connection.configured(known)


def _camel(name: str) -> str:
    first, *others = name.split("-")
    return first + "".join(word.capitalize() for word in others)


def shared_peers(connection: Connection) -> Peers:
    """The one :class:`Peers` of this process for ``connection``: its pooled sessions serve every thread."""
    with _lock:
        if connection not in _peers:
            _peers[connection] = Peers(connection)
        return _peers[connection]
