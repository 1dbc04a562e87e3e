"""The caches of a server with production settings: its lists are up to half a minute old.

One worker runs all of these tests, for both release trains: while they wait, others use the processors.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import requests

from eurekube_provider.cli.main import main
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.model import FindInstance, Instance, Status
from eurekube_provider.dev.eureka.cluster import EurekaCluster as Model
from eurekube_provider.dev.eureka.documents import ServerRequest
from eurekube_provider.dev.eureka.response_caches import READ_ONLY_COPY_INTERVAL_MS
from eurekube_provider.dev.eureka.virtual_clock import MODEL_START_MS, Clock
from eurekube_provider.doctor.reader import read_eureka
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.eureka_registry import EurekaRegistry
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.registry.registry_fetcher import RegistryFetcher
from eurekube_provider.registrations.members import check_application
from eurekube_provider.resources.application import ApplicationProvider
from eurekube_provider.resources.lookups import get_application
from eurekube_provider.stateless.render import RenderedStack
from eurekube_provider.stateless.stack_registrations import RenderedRegistrations
from lab.proxy import Proxy
from lab.waiting import wait_until
from tests.contract.conftest import WAIT_SECONDS, Server, document, one, rating
from tests.contract.plugin import Plugin, plugins
from tests.contract.test_model import LENGTH, TOGETHER, difference, drawn, seeds
from tests.eureka_servers import Servers, Train, clock, run_servers

CACHE_SECONDS = 30
"""Interval at which a server copies one cache into the other, in seconds, at each half minute of its
clock.
"""


@pytest.fixture(scope="module")
def cached(spring_cloud: Train) -> Iterator[Servers]:
    """Start a server with caches as in production."""
    with run_servers(spring_cloud) as running:
        yield running


@pytest.fixture(scope="module")
def compared(spring_cloud: Train) -> Iterator[Servers]:
    """Start a second server with production caches and no other test's instances, because answers contain
    the number of all instances.
    """
    with run_servers(spring_cloud) as running:
        yield running


def ids(server: Server, path: str) -> list[str]:
    """Return the ids in an application's list; empty for a 404."""
    answer = server.send("GET", path)
    return (
        []
        if answer.status_code == 404
        else [found["instanceId"] for found in answer.json()["application"]["instance"]]
    )


@pytest.mark.slow
def test_lists_are_up_to_half_a_minute_old(cached: Servers, http: requests.Session, app: str) -> None:
    """A list that was read before lacks new registrations for up to 30 s; the read of one instance never
    does.
    """
    server, path = Server(cached.eureka_urls[0], http), f"/apps/{app.upper()}"
    assert ids(server, path) == []
    server.register(document(app))
    assert ids(server, path) == []
    assert server.status(app) == "UP"
    clock.wait_until(lambda: ids(server, path) == [one(app)], "the list", 60)


def test_a_list_still_has_what_was_removed(cached: Servers, http: requests.Session, app: str) -> None:
    """A list that was read before still shows a removed instance for up to 30 s; the read of one instance
    is a 404.
    """
    server, path = Server(cached.eureka_urls[0], http), f"/apps/{app.upper()}"
    server.register(document(app))
    clock.wait_until(lambda: ids(server, path) == [one(app)], "the list", 60)
    server.cancel(app)
    assert server.get(app) is None
    assert ids(server, path) == [one(app)]


def test_one_instance_is_read_past_the_caches(cached: Servers, app: str) -> None:
    """A read by application and id, or by id alone, shows a new instance and not a removed one, whatever
    lists show.
    """
    peer, sent = Peer(cached.eureka_urls[0], Connection((cached.eureka_urls[0],))), rating(app)
    before = {found.key for found in peer.list_instances()}
    peer.register(sent)
    assert {found.key for found in peer.list_instances()} == before
    for found in (peer.read(*sent.key), peer.find_by_id(sent.instance_id)):
        assert found is not None
        assert found.key == sent.key
    peer.deregister(*sent.key)
    assert (peer.read(*sent.key), peer.find_by_id(sent.instance_id)) == (None, None)
    peer.close()


@pytest.mark.slow
def test_followed_deltas_are_the_list(cached: Servers, app: str) -> None:
    """An old delta brings no removed instance back; once the caches were copied the reader asks for deltas
    only, and always agrees with the list.
    """
    connection = Connection((cached.eureka_urls[0],))
    peers, peer = Peers(connection), Peer(cached.eureka_urls[0], connection)
    lists: list[bytes] = []
    seen: set[frozenset[tuple[tuple[str, str], str | None]]] = set()
    reader = peers.peers[0]
    list_unless = reader.list_if_changed

    def counted(fingerprint: bytes, find_known: FindInstance) -> tuple[bytes, list[Instance] | None]:
        lists.append(fingerprint)
        return list_unless(fingerprint, find_known)

    reader.list_if_changed = counted  # type: ignore[method-assign,assignment]
    started = {peer.url: peer.read_status().started_timestamp_ms or 0}
    chance, listing = random.Random(1), RegistryFetcher(peers)  # noqa: S311 - a test
    instances = [replace(rating(app), instance_id=f"{app}-{number}") for number in range(6)]
    peer.register(instances[0])
    assert peer.read_delta_if_changed(b"") is not None
    peer.deregister(*instances[0].key)
    begin = clock.time() // CACHE_SECONDS * CACHE_SECONDS
    while (now := clock.time() - begin) < 3 * CACHE_SECONDS - 2:
        listed = {found.key: found for found in peer.list_instances()}
        lists.clear()
        found = {found.key: found for found in listing.read(started, in_doubt=False)}
        since_copy = (clock.time() - begin) % CACHE_SECONDS
        if since_copy > 2 and now % CACHE_SECONDS > 2:  # list and delta are copied one after the other
            assert found == listed
            if now > CACHE_SECONDS:
                assert not lists
        if 2 < since_copy < CACHE_SECONDS - 2:
            change(peer, chance.choice(instances), chance)
        clock.sleep(1)
        seen.add(frozenset((key, one.metadata.get("a")) for key, one in found.items()))
    assert len(seen) > 2
    for instance in instances:
        peer.deregister(*instance.key)
    for client in (peer, peers):
        client.close()


def change(peer: Peer, instance: Instance, chance: random.Random) -> None:
    """Change an instance in one of several ways."""
    match chance.randrange(6):
        case 0 | 1 | 2:
            at = chance.randrange(3) + int(clock.time() * 1000)
            peer.register(replace(instance, metadata={"a": str(at)}, last_dirty_timestamp_ms=at))
        case 3:
            peer.deregister(*instance.key)
        case 4:
            peer.set_status(instance, Status.OUT_OF_SERVICE)
        case _:
            peer.clear_status(instance)


ORDINARY = {"/eureka/apps", "/eureka/apps/delta"}
"""Paths of the lists that Java clients read as JSON anyway, so that reading them adds no list to the
cache.
"""


def test_nothing_that_we_do_leaves_a_list_behind(
    cached: Servers,
    http: requests.Session,
    app: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No code of ours makes a server cache a further list: it would never forget the list, and render it
    every 30 s.
    """
    (server,) = cached.eurekas
    for path in sorted(ORDINARY):
        Server(server.url, http).send("GET", path.removeprefix("/eureka"))
    held = server.count_cached_answers()
    assert held >= len(ORDINARY)
    with Proxy(server.port, keeps_heads=True) as front, plugins(tmp_path) as start:
        url = f"http://127.0.0.1:{front.port}/eureka"
        monkeypatch.setenv("EUREKA_URL", url)
        with_an_application(start(ApplicationProvider()), url, app)
        with_an_application(start(ApplicationProvider()), url, f"{app}-again")
        without_an_engine(url, app)
        by_hand(url, app)
        assert get_application(f"{app}-nobody").instances == ()
        with closing(Peers(Connection((url,)))) as peers:
            assert read_eureka("default", peers, []).server_count == 1
        leaders(url)
        asked = [head.splitlines()[0].split() for head in front.heads]
        assert len(asked) > 50
        lists = {target for method, target, _ in asked if method == "GET" and is_list(target)}
        assert lists <= ORDINARY
        for head in front.heads:
            if head.split()[1] in ORDINARY:
                assert "accept: application/json\r\n" in f"{head.lower()}\r\n"
                assert "x-eureka-accept" not in head.lower()
    # Of each list there may be an old answer beside the new one.
    assert server.count_cached_answers() <= held + len(ORDINARY)


def is_list(target: str) -> bool:
    """Return whether the response caches answer a request, as they do for all but single instances."""
    words = target.partition("?")[0].removeprefix("/eureka").strip("/").split("/")
    is_one = (words[0], len(words)) in {("apps", 3), ("instances", 2)}
    return words[0] not in ("", "status") and not is_one


def with_an_application(plugin: Plugin, url: str, app: str) -> None:
    """Create, read, update and delete an application with the provider, as ``pulumi up``, ``refresh``,
    ``drift`` and ``destroy`` do.
    """
    news = {
        "application": app,
        "port": 8080,
        "instances": {key: {"host_name": f"192.0.2.{number}"} for number, key in enumerate("abc", 1)},
        "renewer": "eurekube",
        "service_url": url,
        "owner": f"stack/organization/shop/dev/{app}",
    }
    inputs = plugin.check(news)
    state = plugin.create(inputs)
    for _ in range(5):
        assert plugin.read(state)[1] == state
    fewer = {"a": {"host_name": "192.0.2.9"}, "b": {"host_name": "192.0.2.2"}}
    state = plugin.update(state, plugin.check({**news, "instances": fewer}, inputs))
    assert set(plugin.read(state)[1]["instances"]) == {"a", "b"}
    plugin.delete(state)
    assert plugin.read(state)[0] == ""


def without_an_engine(url: str, app: str) -> None:
    """Run ``eurekube apply`` and ``eurekube remove`` on a stack's registrations."""
    connections = {"default": Connection((url,))}
    properties = {
        "application": app,
        "port": 8080,
        "instances": {"a": {"host_name": "192.0.2.1"}},
        "renewer": "self",
        "service_url": url,
        "owner": "stack/organization/shop/dev/rating",
    }
    checked = check_application({}, properties).properties
    stack = ("shop", "dev", "organization")
    rendered = RenderedStack(*stack, [], {}, {"rating": checked}, None, None, connections, frozenset())
    registries = RenderedRegistrations(rendered, lambda _: None)
    registries.preview()
    registries.register()
    registries.remove_unrendered()
    registries.remove_all()


def by_hand(url: str, app: str) -> None:
    """Run ``eurekube drain`` and ``undrain`` on an instance that no list shows yet."""
    peer = Peer(url, Connection((url,)))
    peer.register(rating(app))
    for command in (("drain", "--no-wait"), ("undrain",)):
        assert main([*command, one(app), "--eureka-url", url]) == 0
    peer.deregister(*rating(app).key)
    peer.close()


def leaders(url: str) -> None:
    """Have a registry begin and stop to lead three times."""
    registry = EurekaRegistry(Peers(Connection((url,))), Cluster("lab", "u"), "operator", 0.2)
    registry.start()
    wait_until(lambda: registry.reachability.has_been_read, "the first reading", WAIT_SECONDS)
    for _ in range(3):
        registry.start_leading(0)
        registry.stand_by()
    registry.stop()


@pytest.mark.real_server("the model behind it is compared with real servers here")
def test_caches_of_the_model(compared: Servers, http: requests.Session, spring_cloud: Train) -> None:
    """The model's lists are as old as a real server's, before and after its caches are copied."""
    server = Server(compared.eureka_urls[0], http)
    sequences = [drawn(seed, LENGTH) for seed in seeds(spring_cloud, TOGETHER)]
    _wait_for_tick()
    # Both clocks are one second after a tick.
    clock = Clock(MODEL_START_MS - MODEL_START_MS % READ_ONLY_COPY_INTERVAL_MS + 1000)
    model = Model(["model"], clock)
    for half in (slice(0, LENGTH // 2), slice(LENGTH // 2, LENGTH)):
        for commands, sequence in sequences:
            for request in sequence[half]:
                found = difference(server, model, "model", commands, request)
                assert not found, found
        before = time.monotonic()
        _wait_for_tick()
        assert time.monotonic() - before < CACHE_SECONDS, "the machine was too slow to compare"
        clock.advance(READ_ONLY_COPY_INTERVAL_MS)
    for commands, _ in sequences:
        for app in commands.apps:
            request = ServerRequest("GET", ("apps", app), headers={"Accept": "application/json"})
            assert not difference(server, model, "model", commands, request)


def _wait_for_tick() -> None:
    """Wait until a second after the server copies its caches, which it does at each half minute."""
    time.sleep(CACHE_SECONDS - time.time() % CACHE_SECONDS + 1)
