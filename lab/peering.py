"""Three Eureka servers that are peers, with a proxy on every way, so that each can be disturbed alone.

::

    client -- fronts[0] -- servers[0] -- links[0, 1] -- servers[1] ...

A reader of a server's true content goes past the proxies, to `servers[0].url`.
"""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import requests

from eurekube_provider.core.model import Instance
from lab.eureka import EUREKA_PASSWORD, EUREKA_USER, EurekaOptions, EurekaServer, require_java
from lab.eureka_package import provide_eureka
from lab.listing import list_in_one_request
from lab.ports import HOST, free_ports
from lab.processes import kill_all
from lab.proxy import Proxy

SERVER_COUNT = 3

QUICK_EVICTION_SETTINGS = {
    # A lease that lapses shall be seen to do so, and soon.
    "eureka.server.enable-self-preservation": "false",
    "eureka.server.eviction-interval-timer-in-ms": "500",
    # By default 200 ms, which a busy machine may need.
    "eureka.server.peer-node-connect-timeout-ms": "1000",
    "eureka.server.peer-node-read-timeout-ms": "2000",
}

Key = tuple[str, str]


class PeeredEurekas:
    """The servers and their proxies: `with PeeredEurekas(directory) as eureka:`.

    They ask for no password, since Spring Security would spend a tenth of a second of CPU on each request. A
    client that sends a password all the same is not refused, so that tests can find it in a log. A server
    that is started again is empty (`EurekaServer.start_with_registry_copy` starts one that is not).
    """

    def __init__(self, log_directory: Path, settings: Mapping[str, str] = QUICK_EVICTION_SETTINGS) -> None:
        java = require_java()
        package = provide_eureka(java, "2025.0")
        ports = free_ports(SERVER_COUNT)
        # A witness lists all that three servers hold, many times a second: see `list_in_one_request`.
        options = EurekaOptions(settings, security="none", uncached_lists=True, register_with_eureka=False)
        self.fronts = [Proxy(port) for port in ports]
        self.links = {
            (source, target): Proxy(ports[target])
            for source, target in itertools.permutations(range(SERVER_COUNT), 2)
        }
        self.servers = [
            EurekaServer(
                number=number,
                ports=[
                    port if target == number else self.links[number, target].port
                    for target, port in enumerate(ports)
                ],
                options=options,
                package=package,
                java=java,
                log_directory=log_directory,
            )
            for number in range(SERVER_COUNT)
        ]
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.auth = (EUREKA_USER, EUREKA_PASSWORD)

    def __enter__(self) -> Self:
        try:
            self.launch()
            for server in self.servers:
                server.wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def launch(self) -> None:
        """Start all proxies and servers side by side, without waiting for them."""
        for proxy in self._proxies:
            proxy.start()
        for server in self.servers:
            server.launch()

    def stop(self) -> None:
        """Kill all servers, and stop the proxies."""
        kill_all(self.servers)
        for proxy in self._proxies:
            proxy.stop()
        self._session.close()

    @property
    def _proxies(self) -> list[Proxy]:
        return [*self.fronts, *self.links.values()]

    @property
    def urls(self) -> list[str]:
        """URLs for clients, which lead through the proxies."""
        return [f"http://{HOST}:{front.port}/eureka" for front in self.fronts]

    def heal(self) -> None:
        """Let the proxies pass everything on, and have every server run."""
        for proxy in self._proxies:
            proxy.heal()
        for server in self.servers:
            server.resume()
            server.launch()
        for server in self.servers:
            server.wait_until_ready()

    def peer_proxies_of_server(self, number: int) -> list[Proxy]:
        """Return the proxies between one server and the others, in both directions."""
        return [link for ends, link in self.links.items() if number in ends]

    def isolate_server(self, number: int) -> None:
        """Cut one server off from the other servers, but not from clients."""
        for link in self.peer_proxies_of_server(number):
            link.refuse()

    def list_instances(self, number: int) -> dict[Key, Instance]:
        """Return the instances that a server holds, past its caches."""
        return {one.key: one for one in list_in_one_request(self.servers[number].url, self._session)}
