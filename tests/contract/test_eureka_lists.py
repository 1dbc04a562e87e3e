"""Lists of a server come from caches, so that they may be old."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from dataclasses import replace

from eurekube_provider.core.model import EurekaLease, Instance, InstanceKey, Status
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.registry.registry_fetcher import RegistryFetcher
from tests.contract.conftest import Server, document, one, rating, wait_until_listed
from tests.eureka_servers import Servers


def test_lists_through_our_client(peer: Peer, app: str) -> None:
    """Our client lists the whole registry."""
    sent = rating(app)
    peer.register(sent)
    wait_until_listed(peer, sent)


def test_lists_tell_of_overrides(server: Server, app: str) -> None:
    """A list contains the overridden status, so that a person's status is seen without reading each
    instance.
    """
    server.register(document(app))
    server.put_status(app, "OUT_OF_SERVICE")
    (listed,) = server.of_application(app)  # which nobody asked for before, so that it is not old
    assert (listed["status"], listed["overriddenStatus"]) == ("OUT_OF_SERVICE", "OUT_OF_SERVICE")


def test_every_url_form_of_the_service(single: Servers, app: str) -> None:
    """``/eureka`` and ``/eureka/v2`` lead to the same registry."""
    plain, second = (
        Peer(url, Connection((url,))) for url in (single.eureka_urls[0], f"{single.eureka_urls[0]}/v2")
    )
    plain.register(rating(app))
    found = second.read(app, one(app))
    plain.close()
    second.close()
    assert found is not None


def test_a_list_stays_the_same_until_something_changes(quick: Server, app: str) -> None:
    """A server renders its list once: renewals change no byte of it, a removal does."""
    peer, sent = Peer(quick.url, Connection((quick.url,))), rating(app)
    peer.register(sent)
    fingerprint, listed = peer.list_if_changed(b"")
    assert sent.key in [found.key for found in listed or ()]
    assert peer.renew(sent)
    assert peer.list_if_changed(fingerprint) == (fingerprint, None)
    assert peer.deregister(*sent.key)
    newer, listed = peer.list_if_changed(fingerprint)
    assert newer != fingerprint
    assert listed is not None
    assert sent.key not in [found.key for found in listed]
    peer.close()


def test_what_deltas_tell_is_the_list_whenever_that_is_read(quick: Server, app: str) -> None:
    """The reader's deltas give the same instances as the list, even at the readings for which the list is
    due.
    """
    connection = Connection((quick.url,))
    peers, peer = Peers(connection), Peer(quick.url, connection)
    started = {peer.url: peer.read_status().started_timestamp_ms or 0}
    clock = itertools.count(0.0, 15.0)

    def of_this_test(instances: Iterable[Instance]) -> dict[InstanceKey, Instance]:
        """Return this test's instances, since the server may evict those of others at any moment."""
        return {each.key: each for each in instances if each.application == app.upper()}

    chance, listing = random.Random(1), RegistryFetcher(peers, lambda: next(clock))  # noqa: S311 - a test
    put_off = 0
    for _ in range(3 * int(windows.FULL_LIST_INTERVAL_SECONDS / 15.0)):
        for _ in range(3):
            number = chance.randrange(12)
            sent = replace(
                rating(app),
                instance_id=f"{app}-{number}",
                status=chance.choice([Status.UP, Status.DOWN]),
                lease=EurekaLease(30, 600),
                metadata={"number": str(number), "text": '{"instanceId":"', "more": '"leaseInfo":{}'},
            )
            if chance.random() < 0.3:
                peer.deregister(*sent.key)
            else:
                peer.register(sent)
        found = of_this_test(listing.read(started, in_doubt=False))
        assert found == of_this_test(peer.list_instances())
        if listing.has_deferred_list:
            put_off += 1
            assert of_this_test(listing.parse_deferred_list()) == found
    assert put_off == 2
    peers.close()
    peer.close()
