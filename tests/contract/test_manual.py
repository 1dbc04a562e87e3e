"""A drain by hand on three servers that are peers, of which some may be away."""

from __future__ import annotations

import time

import pytest

from eurekube_provider.core.errors import RegistryRejected, RegistryUnreachable
from eurekube_provider.core.identity import LEAVING_KEY
from eurekube_provider.core.model import Status
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.overrides import (
    instances_named,
    out_since,
    put_back,
    read_statuses,
    take_out,
)
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.writer import Writer
from tests.contract.conftest import rating, wait_everywhere
from tests.eureka_servers import Servers


def test_out_on_every_server_and_back(peers: Peers, app: str) -> None:
    """Each says so by itself, whatever the others have told it; the time counts from when it was set."""
    mine, other = rating(app, f"mine.{app}"), rating(app, f"other.{app}")
    for one in (mine, other):
        for peer in peers.peers:
            peer.register(one)
    wait_everywhere(peers, mine, other)
    assert [one.instance_id for one in instances_named(peers, app.title())] == [f"mine.{app}", f"other.{app}"]
    (found,) = instances_named(peers, f"mine.{app}")
    assert out_since(peers, [found]) is None
    before = time.time()
    (standing,) = take_out(peers, [found])
    assert set(standing.statuses.values()) == {Status.OUT_OF_SERVICE}
    assert len(standing.statuses) == 3
    assert (standing.up_at, standing.failures, standing.is_gone) == ([], {}, False)
    since = out_since(peers, [found])
    assert since is not None
    assert abs(since - before) < 30
    take_out(peers, [found])  # twice changes nothing, and the time goes on
    again = out_since(peers, [found])
    assert again is not None
    assert abs(again - since) < 30  # as near as a busy server tells its time
    Writer(peers).register(mine)
    assert set(read_statuses(peers, [found])[0].statuses.values()) == {Status.OUT_OF_SERVICE}
    assert set(read_statuses(peers, [other])[0].statuses.values()) == {Status.UP}

    (standing,) = put_back(peers, [found])
    assert standing.is_up
    there = peers.read_everywhere(*found.key)[0].values()
    assert [one and (one.status, one.is_overridden) for one in there] == [(Status.UP, False)] * 3
    for peer in peers.peers:
        peer.deregister(*mine.key)


def test_who_says_down_stays_down_and_who_leaves_goes_on(single: Servers, app: str) -> None:
    """Over an override, and after it."""
    peers = Peers(Connection(tuple(single.eureka_urls)))
    down, leaving = rating(app, f"down.{app}"), rating(app, f"leaving.{app}", metadata={LEAVING_KEY: "true"})
    for one in (down, leaving):
        for peer in peers.peers:
            peer.register(one)
    take_out(peers, [down, leaving])
    for peer in peers.peers:
        peer.register(rating(app, f"down.{app}", status=Status.DOWN))
    standings = put_back(peers, [down, leaving])
    peers.close()
    assert [set(one.statuses.values()) for one in standings] == [{Status.DOWN}, {Status.OUT_OF_SERVICE}]


def test_what_is_not_there(peers: Peers, app: str) -> None:
    """The sentence names what comes near."""
    Writer(peers).register(orders := rating(f"{app}-orders"))
    wait_everywhere(peers, orders)
    with pytest.raises(RegistryRejected, match=f"did you mean {app.upper()}-ORDERS"):
        instances_named(peers, f"{app}-order")


def test_servers_that_are_away(three: Servers, app: str) -> None:
    """One of two is told of; both are an error."""
    half = Peers(Connection((three.eureka_urls[0], "http://127.0.0.1:9/eureka")))
    nobody = Peers(Connection(("http://127.0.0.1:9/eureka",)))
    one = rating(app)
    Writer(half).register(one)
    (standing,) = take_out(half, [one])
    assert list(standing.failures) == ["http://127.0.0.1:9/eureka"]
    assert list(standing.statuses.values()) == [Status.OUT_OF_SERVICE]
    assert out_since(half, [one]) is None
    for ask in (lambda: take_out(nobody, [one]), lambda: instances_named(nobody, app)):
        with pytest.raises(RegistryUnreachable):
            ask()
    half.close()
    nobody.close()
