"""Development servers over HTTP: passing time, peers and ports."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.dev.eureka.serving import EurekaServers

PATH = "/apps/RATING/rating-1"


@pytest.fixture
def session() -> Iterator[requests.Session]:
    """Yield a session that asks for JSON and ignores proxies of the environment."""
    with requests.Session() as made:
        made.trust_env = False
        made.headers["Accept"] = "application/json"
        yield made


def register(session: requests.Session, url: str, **fields: Any) -> None:
    """Register one instance."""
    instance = {
        "instanceId": "rating-1",
        "app": "RATING",
        "hostName": "10.0.0.1",
        "ipAddr": "10.0.0.1",
        "dataCenterInfo": {"@class": "com.netflix.appinfo.MyDataCenterInfo", "name": "MyOwn"},
        **fields,
    }
    assert session.post(f"{url}/apps/RATING", json={"instance": instance}).status_code == 204


def listed(session: requests.Session, url: str) -> int:
    """Return the number of applications that a server lists."""
    return len(session.get(f"{url}/apps").json()["applications"]["application"])


def test_a_quick_server_lists_at_once_and_evicts_by_its_clock(session: requests.Session) -> None:
    """A quick server lists a registration at once, and evicts an instance whose lease ends by the server's
    clock.
    """
    with EurekaServers(quick=True) as servers:
        (url,) = servers.urls
        assert listed(session, url) == 0
        register(session, url)
        assert listed(session, url) == 1
        servers.advance(88)
        assert session.put(url + PATH).status_code == 200
        assert listed(session, url) == 1
        servers.advance(182)  # a renewed lease lives twice as long
        assert listed(session, url) == 0
        assert session.put(url + PATH).status_code == 404


def test_a_server_has_the_caches_of_a_real_one_by_default(session: requests.Session) -> None:
    """By default a list is up to 30 s old, while a read of one instance is not cached."""
    with EurekaServers() as servers:
        (url,) = servers.urls
        assert listed(session, url) == 0
        with servers.lock:
            # Just after a copy of the cache, so that none comes before the list is read.
            servers.advance(30 - servers.cluster.clock.now_ms % 30_000 / 1000)
        register(session, url)
        assert session.get(url + PATH).status_code == 200
        assert listed(session, url) == 0
        servers.advance(31)
        assert listed(session, url) == 1


def test_time_passes_by_itself(session: requests.Session) -> None:
    """Peers replicate after half a second of real time."""
    with EurekaServers(3, quick=True) as servers:
        notified = threading.Event()
        others = [servers.cluster.servers[url].registry for url in servers.urls[1:]]
        register(session, servers.urls[0])
        while not notified.wait(0.02):
            with servers.lock:
                if all(registry.get("RATING", "rating-1") for registry in others):
                    notified.set()
        assert [session.get(url + PATH).status_code for url in servers.urls] == [200, 200, 200]


def test_a_server_that_is_down_answers_nothing(session: requests.Session) -> None:
    """A server that is down closes connections, the others answer, and it answers again when it is up."""
    with EurekaServers(2) as servers:
        down, other = servers.urls
        assert listed(session, down) == 0
        servers.cluster.down.add(down)
        with pytest.raises(requests.ConnectionError):
            session.get(f"{down}/apps")
        assert listed(session, other) == 0
        servers.cluster.down.clear()
        assert listed(session, down) == 0


def test_ports_are_taken_and_given_back() -> None:
    """A port in use raises an error that names it; a stop frees the ports."""
    with EurekaServers(2) as servers:
        ports = [int(url.split(":")[2].removesuffix("/eureka")) for url in servers.urls]
        with pytest.raises(ConfigurationError, match=rf"127\.0\.0\.1:{ports[0]} .*another port"):
            EurekaServers(ports=ports[:1])
    with EurekaServers(2, ports=ports) as servers:
        assert servers.urls == [f"http://127.0.0.1:{port}/eureka" for port in ports]


def test_each_server_has_a_port_or_none_has() -> None:
    """Two ports for three servers raise an error."""
    with pytest.raises(ConfigurationError, match="3 servers cannot have 2 ports"):
        EurekaServers(3, ports=(8761, 8762))
