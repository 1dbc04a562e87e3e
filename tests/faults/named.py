"""A further Eureka server, which is no peer of the others and has its own connection name at the
operators.
"""

from __future__ import annotations

from pathlib import Path

import requests

from eurekube_provider.core.model import Instance
from lab.eureka import EurekaOptions, EurekaServer, require_java
from lab.eureka_package import provide_eureka
from lab.listing import list_in_one_request
from lab.peering import QUICK_EVICTION_SETTINGS
from lab.ports import HOST, free_ports
from lab.proxy import Proxy
from tests.faults.expected import Key


class NamedEureka:
    """The further Eureka server, and the proxy between it and the operators."""

    def __init__(self, log_directory: Path) -> None:
        java = require_java()
        self.server = EurekaServer(
            number=0,
            ports=free_ports(1),
            # The witness lists all that it holds, many times a second: see `list_in_one_request`.
            options=EurekaOptions(
                QUICK_EVICTION_SETTINGS, security="none", uncached_lists=True, register_with_eureka=False
            ),
            package=provide_eureka(java, "2025.0"),
            java=java,
            log_directory=log_directory / "named",
        )
        self.server.name = "eureka-named"
        self.front = Proxy(self.server.port)
        self._session = requests.Session()
        self._session.trust_env = False

    @property
    def url(self) -> str:
        """Return the URL for operators."""
        return f"http://{HOST}:{self.front.port}/eureka"

    def launch(self) -> None:
        """Start server and proxy without waiting until they are ready."""
        self.front.start()
        self.server.launch()

    def stop(self) -> None:
        """Kill the server, and stop the proxy."""
        self.server.kill()
        self.front.stop()
        self._session.close()

    def heal(self) -> None:
        """Let the proxy pass everything, and start the server if it does not run."""
        self.front.heal()
        self.server.resume()
        self.server.start()

    def list_instances(self) -> dict[Key, Instance]:
        """Return the server's instances, read past its caches."""
        return {one.key: one for one in list_in_one_request(self.server.url, self._session)}
