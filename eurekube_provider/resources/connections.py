"""How to reach Eureka, as a stack's configuration and the environment say.

One precedence for the program, the dynamic provider and the command line: the configuration wins over the
environment. Credentials are found anew each time, and never enter properties or state.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping

from eurekube_provider.eureka.connection import Connection
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

    The keys are ``url``, ``user``, ``password``, ``token``, ``caFile``, ``clientCertificate``, ``clientKey``,
    ``proxy`` and ``zone``; of the environment EUREKA_URL, EUREKA_CA_FILE and so on.

    :param service_url: use these URLs, of a state say, with the credentials that are configured today.
    :raises ConfigurationError: no URL, one that is none, credentials of two kinds, a file that is not there.
    """

    def known(key: str, variable: str) -> str | None:
        return setting(key) or environment.get(variable) or None

    url = known("url", "EUREKA_URL") or ""
    user, password = known("user", "EUREKA_USER"), known("password", "EUREKA_PASSWORD")
    if user is None and "@" in url:
        written = Connection.parse(url)
        user, password = written.user, written.password
    return Connection.parse(
        service_url or url,
        user,
        password,
        known("caFile", "EUREKA_CA_FILE"),
        token=known("token", "EUREKA_TOKEN"),
        client_certificate=known("clientCertificate", "EUREKA_CLIENT_CERTIFICATE"),
        client_key=known("clientKey", "EUREKA_CLIENT_KEY"),
        proxy=known("proxy", "EUREKA_PROXY"),
        zone=None if service_url else known("zone", "EUREKA_ZONE"),  # the state's URLs are in order already
    )


def shared_peers(connection: Connection) -> Peers:
    """The one :class:`Peers` of this process for ``connection``: its pooled sessions serve every thread."""
    with _lock:
        if connection not in _peers:
            _peers[connection] = Peers(connection)
        return _peers[connection]
