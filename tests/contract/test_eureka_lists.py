"""Lists come from caches: they suggest, and prove nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import requests

from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peer import Peer
from lab import Lab
from lab.eureka import SpringCloud
from lab.waiting import wait_until
from tests.contract.conftest import Server, document, one, rating

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def cached(spring_cloud: SpringCloud) -> Iterator[Lab]:
    """A server with its caches as in production."""
    with Lab(eureka=1, kubernetes=False, quick_view=False, spring_cloud=spring_cloud) as running:
        yield running


def ids(server: Server, path: str) -> list[str]:
    """The instances of an application's list, empty for a 404."""
    answer = server.send("GET", path)
    return (
        []
        if answer.status_code == 404
        else [found["instanceId"] for found in answer.json()["application"]["instance"]]
    )


@pytest.mark.slow
def test_lists_are_up_to_half_a_minute_old(cached: Lab, http: requests.Session, app: str) -> None:
    """A list that was asked for before lacks for up to 30 s what was registered since; a read never does."""
    server, path = Server(cached.eureka_urls[0], http), f"/apps/{app.upper()}"
    assert ids(server, path) == []
    server.register(document(app))
    assert ids(server, path) == []
    assert server.status(app) == "UP"
    wait_until(lambda: ids(server, path) == [one(app)], "the list", 35)


def test_a_list_still_has_what_was_removed(cached: Lab, http: requests.Session, app: str) -> None:
    """The same holds for a removal: a 404 of the read is true, and the list is not."""
    server, path = Server(cached.eureka_urls[0], http), f"/apps/{app.upper()}"
    server.register(document(app))
    wait_until(lambda: ids(server, path) == [one(app)], "the list", 35)
    server.cancel(app)
    assert server.get(app) is None
    assert ids(server, path) == [one(app)]


def test_one_instance_is_read_past_the_caches(cached: Lab, app: str) -> None:
    """By application and id, or by its id alone: what no list shows yet, or shows still."""
    peer, sent = Peer(cached.eureka_urls[0], Connection((cached.eureka_urls[0],))), rating(app)
    before = {found.key for found in peer.list_instances()}
    peer.register(sent)
    assert {found.key for found in peer.list_instances()} == before
    for found in (peer.read(*sent.key), peer.find(sent.instance_id)):
        assert found is not None
        assert found.key == sent.key
    peer.deregister(*sent.key)
    assert (peer.read(*sent.key), peer.find(sent.instance_id)) == (None, None)
    peer.close()


def test_lists_through_our_client(peer: Peer, app: str) -> None:
    """The whole registry is listed."""
    sent = rating(app)
    peer.register(sent)
    wait_until(lambda: sent.key in [found.key for found in peer.list_instances()], "the whole list", 20)


def test_lists_tell_of_overrides(server: Server, app: str) -> None:
    """A list has the overridden status: what a person set is seen without reading one by one."""
    server.register(document(app))
    server.put_status(app, "OUT_OF_SERVICE")
    (listed,) = server.listed(app)
    assert (listed["status"], listed["overriddenStatus"]) == ("OUT_OF_SERVICE", "OUT_OF_SERVICE")


def test_every_url_form_of_the_service(single: Lab, app: str) -> None:
    """``/eureka`` and ``/eureka/v2`` are the same registry."""
    plain, second = (
        Peer(url, Connection((url,))) for url in (single.eureka_urls[0], f"{single.eureka_urls[0]}/v2")
    )
    plain.register(rating(app))
    found = second.read(app, one(app))
    plain.close()
    second.close()
    assert found is not None


def test_a_list_stays_the_same_until_something_changes(peer: Peer, app: str) -> None:
    """A server makes its list once: renewals do not change a byte of it, a removal does."""
    sent = rating(app)
    peer.register(sent)
    fingerprint, listed = peer.list_unless(b"")
    assert sent.key in [found.key for found in listed or ()]
    assert peer.renew(sent)
    assert peer.list_unless(fingerprint) == (fingerprint, None)
    assert peer.deregister(*sent.key)
    newer, listed = peer.list_unless(fingerprint)
    assert newer != fingerprint
    assert listed is not None
    assert sent.key not in [found.key for found in listed]
