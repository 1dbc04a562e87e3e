"""Eureka servers, asked in plain HTTP, so that our client's assumptions are tested without our client.

``tests.eureka_servers`` has the two kinds of servers. A test marked ``real_server`` says why it needs real
ones; it is left out with ``--eureka=dev``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote
from zlib import crc32

import pytest
import requests

from eurekube_provider.core.model import Instance, Port
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol.peer import Peer
from lab.eureka import FAST_LIST_SETTINGS
from lab.listing import LONGEST_LIST_DELAY_SECONDS, Key, list_keys_uncached
from tests.eureka_servers import DEVELOPMENT, TRAINS, Servers, Train, clock, run_servers

WAIT_SECONDS = 60
"""Longest time for what a server normally does within a second, in seconds, on a busy machine."""
DATA_CENTER = {"@class": "com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo", "name": "MyOwn"}

Document = dict[str, Any]


def one(app: str) -> str:
    """Return the id of an application's only instance; it differs between applications, since overrides
    are stored by id alone.
    """
    return f"one.{app.lower()}"


def document(app: str, instance_id: str = "", /, **fields: Any) -> Document:
    """Return a registration as a client sends it; a field that is None is left out."""
    result = {
        "instanceId": instance_id or one(app),
        "app": app.upper(),
        "hostName": "10.0.0.1",
        "ipAddr": "10.0.0.1",
        "status": "UP",
        "overriddenStatus": "UNKNOWN",
        "port": {"$": 8080, "@enabled": "true"},
        "securePort": {"$": 443, "@enabled": "false"},
        "vipAddress": app,
        "secureVipAddress": app,
        "dataCenterInfo": DATA_CENTER,
        "metadata": {},
        **fields,
    }
    return {key: value for key, value in result.items() if value is not None}


def rating(app: str, instance_id: str = "", /, **fields: Any) -> Instance:
    """Return an instance with the same content as :func:`document`."""
    return Instance(app, instance_id or one(app), "10.0.0.1", "10.0.0.1", Port(8080), **fields)


class Server:
    """One server as any HTTP client sees it: methods return the status code, or the data that the server
    holds.
    """

    def __init__(self, url: str, session: requests.Session) -> None:
        self.url = url
        self._session = session

    def send(self, method: str, path: str, **arguments: Any) -> requests.Response:
        """Send one request that asks for JSON."""
        headers = {"Accept": "application/json", **arguments.pop("headers", {})}
        return self._session.request(method, self.url + path, headers=headers, timeout=30, **arguments)

    def register(self, registered: Document, app: str | None = None, **headers: str) -> int:
        """Send ``POST /apps/{APP}``; return the status code."""
        path = f"/apps/{app or registered['app']}"
        return self.send("POST", path, json={"instance": registered}, headers=headers).status_code

    def renew(self, app: str, instance_id: str = "", **query: Any) -> int:
        """Send ``PUT /apps/{APP}/{id}``; return the status code."""
        return self.send("PUT", _path(app, instance_id), params=query).status_code

    def cancel(self, app: str, instance_id: str = "") -> int:
        """Send ``DELETE /apps/{APP}/{id}``; return the status code."""
        return self.send("DELETE", _path(app, instance_id)).status_code

    def put_status(self, app: str, value: str | None, instance_id: str = "") -> int:
        """Send ``PUT /apps/{APP}/{id}/status``; return the status code."""
        path = f"{_path(app, instance_id)}/status"
        return self.send("PUT", path, params={"value": value} if value else {}).status_code

    def delete_status(self, app: str, value: str | None = None, instance_id: str = "") -> int:
        """Send ``DELETE /apps/{APP}/{id}/status``; return the status code."""
        path = f"{_path(app, instance_id)}/status"
        return self.send("DELETE", path, params={"value": value} if value else {}).status_code

    def get(self, app: str, instance_id: str = "") -> Document | None:
        """Return the answer to ``GET /apps/{APP}/{id}``, which is not cached; None for a 404."""
        answer = self.send("GET", _path(app, instance_id))
        if answer.status_code == 404:
            return None
        assert answer.status_code == 200
        return dict(answer.json()["instance"])

    def status(self, app: str, instance_id: str = "") -> str | None:
        """Return the status of an instance at the server; None for a 404."""
        held = self.get(app, instance_id)
        return None if held is None else str(held["status"])

    def overridden(self, app: str, instance_id: str = "") -> tuple[str, str]:
        """Return the status and the overridden status of an instance at the server."""
        held = self.get(app, instance_id)
        assert held is not None
        return held["status"], held["overriddenStatus"]

    def held(self, app: str = "") -> list[Key]:
        """Return application and id of all instances, or of an application's, including those whose lease
        has lapsed.
        """
        return list_keys_uncached(self.url, app)

    def of_application(self, app: str) -> list[Document]:
        """Return an application's instances by ``GET /apps/{APP}``."""
        answer = self.send("GET", f"/apps/{app.upper()}")
        assert answer.status_code == 200
        found = answer.json()["application"]["instance"]
        return found if isinstance(found, list) else [found]

    def batch(self, *items: Document) -> requests.Response:
        """Send ``POST /peerreplication/batch/``."""
        return self.send("POST", "/peerreplication/batch/", json={"replicationList": list(items)})

    def codes(self, *items: Document) -> list[int]:
        """Send a batch; return the status code of each item."""
        answer = self.batch(*items)
        assert answer.status_code == 200
        return [item["statusCode"] for item in answer.json()["responseList"]]


def wait_until_listed(peer: Peer, *instances: Instance) -> None:
    """Let the servers' time pass until a server lists these instances."""
    keys = {one.key for one in instances}
    clock.wait_until(
        lambda: keys <= {one.key for one in peer.list_instances()},
        f"the list of {peer.url}",
        LONGEST_LIST_DELAY_SECONDS,
    )


def wait_everywhere(peers: Peers, *instances: Instance) -> None:
    """Let the servers' time pass until each server lists these instances."""
    for peer in peers.peers:
        wait_until_listed(peer, *instances)


def item(action: str, app: str, instance_id: str = "", **fields: Any) -> Document:
    """Return one item of a batch."""
    return {"action": action, "appName": app.upper(), "id": instance_id or one(app), **fields}


def _path(app: str, instance_id: str) -> str:
    return f"/apps/{app.upper()}/{quote(instance_id or one(app), safe='')}"


def body(answer: requests.Response) -> Any:
    """Return an answer's JSON."""
    return json.loads(answer.text)


@pytest.fixture(scope="session")
def http() -> Iterator[requests.Session]:
    """Return a session that ignores proxies and netrc of the environment."""
    with requests.Session() as session:
        session.trust_env = False
        yield session


SHELLS = ("dynamic", "native")
"""Names of the two Pulumi providers."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests that need a release train on each train, or once on development servers.

    With development servers a test runs for both providers. With real servers it runs for one of them, chosen
    by the test's name, since both share the code that talks to a server; a test that needs real servers runs
    for both.
    """
    is_development = metafunc.config.getoption("eureka") == DEVELOPMENT
    chosen = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "shell" in metafunc.fixturenames and "shell" not in chosen:
        needs_both = is_development or metafunc.definition.get_closest_marker("real_server")
        number = crc32(metafunc.definition.name.encode()) % len(SHELLS)
        shells = SHELLS if needs_both else SHELLS[number : number + 1]
        metafunc.parametrize("shell", shells, indirect=True, scope="module")
    if "spring_cloud" in metafunc.fixturenames:
        trains = (DEVELOPMENT,) if is_development else TRAINS
        metafunc.parametrize("spring_cloud", trains, indirect=True, scope="session")


@pytest.fixture(scope="module")
def shell(request: pytest.FixtureRequest) -> str:
    """Return the name of one of the two Pulumi providers."""
    return str(request.param)


@pytest.fixture(scope="session")
def spring_cloud(request: pytest.FixtureRequest) -> Train:
    """Return each supported release train, or the development server."""
    train: Train = request.param
    return train


@pytest.fixture(scope="session")
def one_train(request: pytest.FixtureRequest) -> Train:
    """Return the release train for tests that need only one, or the development server."""
    return DEVELOPMENT if request.config.getoption("eureka") == DEVELOPMENT else TRAINS[0]


@pytest.fixture(scope="session")
def shared(one_train: Train, request: pytest.FixtureRequest) -> Iterator[Servers]:
    """Return one server that the whole run shares, whose lists are as fresh as its reads."""
    if one_train == DEVELOPMENT:
        with run_servers(one_train, is_quick=True) as running:
            yield running
    else:
        yield request.getfixturevalue("lab")


@pytest.fixture(scope="package")
def single(spring_cloud: Train) -> Iterator[Servers]:
    """Return one server without peers."""
    with run_servers(spring_cloud) as running:
        yield running


@pytest.fixture
def server(single: Servers, http: requests.Session) -> Server:
    """Return a plain HTTP client of the server without peers."""
    return Server(single.eureka_urls[0], http)


@pytest.fixture
def peer(single: Servers) -> Iterator[Peer]:
    """Return our client of the server without peers."""
    (url,) = single.eureka_urls
    client = Peer(url, Connection((url,)))
    yield client
    client.close()


@pytest.fixture(scope="package")
def three(spring_cloud: Train) -> Iterator[Servers]:
    """Start three servers that are peers, whose lists are a second old at most.

    A server waits 5 s for a peer's answer: after the default, 0.2 s, it would repeat a request that a busy
    peer has already carried out, perhaps after a later change.
    """
    settings = {**FAST_LIST_SETTINGS, "eureka.server.peer-node-read-timeout-ms": "5000"}
    with run_servers(spring_cloud, 3, settings=settings) as running:
        yield running


@pytest.fixture(scope="package")
def evicting(spring_cloud: Train) -> Iterator[Servers]:
    """Start a server that evicts lapsed leases five times a second, never preserves itself, and lists each
    write at once.

    By default a server evicts once a minute, if at all.
    """
    settings = {
        "eureka.server.enable-self-preservation": "false",
        "eureka.server.eviction-interval-timer-in-ms": "200",
    }
    with run_servers(spring_cloud, is_quick=True, uncached_lists=True, settings=settings) as running:
        yield running


@pytest.fixture(scope="package")
def uncached(spring_cloud: Train) -> Iterator[Servers]:
    """Start one server whose lists show each write at once instead of after half a minute."""
    with run_servers(spring_cloud, is_quick=True, uncached_lists=True) as running:
        yield running


@pytest.fixture
def quick(evicting: Servers, http: requests.Session) -> Server:
    """Return a plain HTTP client of the server that evicts quickly."""
    return Server(evicting.eureka_urls[0], http)


@pytest.fixture
def servers(three: Servers, http: requests.Session) -> list[Server]:
    """Return plain HTTP clients of the three servers."""
    return [Server(url, http) for url in three.eureka_urls]


@pytest.fixture
def peers(three: Servers) -> Iterator[Peers]:
    """Return our client of the three servers, with a time-out that suits a busy machine."""
    client = Peers(Connection(tuple(three.eureka_urls), read_timeout_seconds=WAIT_SECONDS))
    yield client
    client.close()


@pytest.fixture
def app(unique_name: str) -> str:
    """Return the name of an application that no other test uses."""
    return unique_name
