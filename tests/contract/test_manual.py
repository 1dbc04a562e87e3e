"""A drain by hand on three servers that are peers, some of which may not answer."""

from __future__ import annotations

import signal
import sys
import time
from subprocess import PIPE, Popen
from urllib.parse import urlsplit

import pytest

from eurekube_provider.core.errors import RegistryRejected, RegistryUnreachable
from eurekube_provider.core.identity import LEAVING_KEY
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.overrides import (
    clear_overrides,
    find_named_instances,
    read_statuses,
    set_out_of_service,
    unix_time_since_none_up,
)
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.writer import Writer
from lab.proxy import Proxy
from lab.waiting import wait_until
from tests.contract.conftest import WAIT_SECONDS, rating, wait_everywhere
from tests.eureka_servers import Servers


def test_out_on_every_server_and_back(peers: Peers, app: str) -> None:
    """Each server is set OUT_OF_SERVICE and back, and answers for itself; the time counts from when the
    status was set.
    """
    mine, other = rating(app, f"mine.{app}"), rating(app, f"other.{app}")
    for one in (mine, other):
        for peer in peers.peers:
            peer.register(one)
    wait_everywhere(peers, mine, other)
    assert [one.instance_id for one in find_named_instances(peers, app.title()).registered] == [
        f"mine.{app}",
        f"other.{app}",
    ]
    (found,) = find_named_instances(peers, f"mine.{app}").registered
    assert unix_time_since_none_up(peers, [found]) is None
    before = time.time()
    (standing,) = set_out_of_service(peers, [found])
    assert set(standing.statuses.values()) == {Status.OUT_OF_SERVICE}
    assert len(standing.statuses) == 3
    assert (standing.urls_where_up, standing.failures, any(standing.statuses.values())) == ([], {}, True)
    since = unix_time_since_none_up(peers, [found])
    assert since is not None
    assert abs(since - before) < 30
    set_out_of_service(peers, [found])  # twice changes nothing, and the time goes on
    again = unix_time_since_none_up(peers, [found])
    assert again is not None
    assert abs(again - since) < 30  # as near as a busy server tells its time
    Writer(peers).register(mine)
    assert set(read_statuses(peers, [found])[0].statuses.values()) == {Status.OUT_OF_SERVICE}
    assert set(read_statuses(peers, [other])[0].statuses.values()) == {Status.UP}

    (standing,) = clear_overrides(peers, [found])
    assert set(standing.statuses.values()) == {Status.UP}

    def is_cleared() -> bool:
        """Return whether every server shows UP without an override; a busy server may repeat an override
        to a peer for half a minute.
        """
        there = peers.read_everywhere(*found.key)[0].values()
        assert [one and one.status for one in there] == [Status.UP] * 3
        return not any(one and one.is_overridden for one in there) or not clear_overrides(peers, [found])

    wait_until(is_cleared, "no override anywhere", 60.0)
    for peer in peers.peers:
        peer.deregister(*mine.key)


def test_who_says_down_stays_down_and_who_leaves_goes_on(single: Servers, app: str) -> None:
    """After an undrain an instance that registered DOWN is DOWN, and one that its stack removes stays
    OUT_OF_SERVICE.
    """
    peers = Peers(Connection(tuple(single.eureka_urls)))
    down, leaving = rating(app, f"down.{app}"), rating(app, f"leaving.{app}", metadata={LEAVING_KEY: "true"})
    for one in (down, leaving):
        for peer in peers.peers:
            peer.register(one)
    set_out_of_service(peers, [down, leaving])
    for peer in peers.peers:
        peer.register(rating(app, f"down.{app}", status=Status.DOWN))
    standings = clear_overrides(peers, [down, leaving])
    peers.close()
    assert [set(one.statuses.values()) for one in standings] == [{Status.DOWN}, {Status.OUT_OF_SERVICE}]


def test_a_down_that_somebody_set_is_taken_off(single: Servers, app: str) -> None:
    """A DOWN that a person set over an instance is gone after an undrain: a server would keep it for good,
    whatever a renewal says.
    """
    peers = Peers(Connection(tuple(single.eureka_urls)))
    one = rating(app)
    for peer in peers.peers:
        peer.register(one)
        peer.set_status(one, Status.DOWN)
    (standing,) = clear_overrides(peers, [one])
    assert all(peer.renew(one) for peer in peers.peers)
    (held, _) = peers.read_everywhere(*one.key)
    peers.close()
    assert set(standing.statuses.values()) == {Status.UP}
    assert {each and each.status for each in held.values()} == {Status.UP}


@pytest.mark.parametrize("ended_by", [signal.SIGKILL, signal.SIGINT], ids=lambda one: one.name)
def test_an_undrain_that_ends_between_its_two_requests(
    single: Servers, app: str, ended_by: signal.Signals
) -> None:
    """If an undrain ends between its two requests the instance is UP by an override, and the same command
    clears that.
    """
    url = urlsplit(single.eureka_urls[0])
    peers = Peers(Connection((url.geturl(),)))
    first, second = (rating(app, f"{name}.{app}", status=Status.OUT_OF_SERVICE) for name in ("one", "two"))
    for one in (first, second):
        Writer(peers).register(one)
    assert url.port is not None
    with Proxy(url.port, keeps_heads=True) as front, Popen(_undrain(front, first)) as calm:
        assert calm.wait(WAIT_SECONDS) == 0
        lines = [head.partition("\r\n")[0] for head in front.heads]
        (setting,) = [at for at, line in enumerate(lines) if line.startswith("PUT") and "value=UP" in line]
        assert lines[setting + 1].startswith("DELETE")
        front.hang_after(setting + 1)
        with Popen(_undrain(front, second), stderr=PIPE, text=True) as ended:
            wait_until(lambda: front.hanging_request_count, "what is to clear UP again", WAIT_SECONDS)
            ended.send_signal(ended_by)
            said = ended.communicate(timeout=WAIT_SECONDS)[1]
        front.heal()
        assert _status(peers, second) == (Status.UP, Status.UP)
        if ended_by is signal.SIGINT:
            assert (ended.returncode, "the same command goes on" in said) == (1, True)
        with Popen(_undrain(front, second)) as again:
            assert again.wait(WAIT_SECONDS) == 0
    assert _status(peers, second) == _status(peers, first) == (Status.UP, Status.UNKNOWN)
    for one in (first, second):
        peers.peers[0].deregister(*one.key)
    peers.close()


def _undrain(front: Proxy, one: Instance) -> list[str]:
    url = f"http://127.0.0.1:{front.port}/eureka"
    return [
        sys.executable,
        "-m",
        "eurekube_provider.cli.main",
        "undrain",
        one.instance_id,
        "--eureka-url",
        url,
    ]


def _status(peers: Peers, one: Instance) -> tuple[Status, Status]:
    held = peers.read(*one.key)
    assert held is not None
    return held.status, held.overridden_status


def test_what_is_not_there(peers: Peers, app: str) -> None:
    """The error for an unknown name suggests a similar one."""
    Writer(peers).register(orders := rating(f"{app}-orders"))
    wait_everywhere(peers, orders)
    with pytest.raises(RegistryRejected, match=f"did you mean {app.upper()}-ORDERS"):
        find_named_instances(peers, f"{app}-order")


def test_servers_that_are_away(three: Servers, app: str) -> None:
    """If one of two servers is away the result says so; if both are the command raises."""
    half = Peers(Connection((three.eureka_urls[0], "http://127.0.0.1:9/eureka")))
    nobody = Peers(Connection(("http://127.0.0.1:9/eureka",)))
    one = rating(app)
    Writer(half).register(one)
    (standing,) = set_out_of_service(half, [one])
    assert list(standing.failures) == ["http://127.0.0.1:9/eureka"]
    assert list(standing.statuses.values()) == [Status.OUT_OF_SERVICE]
    assert unix_time_since_none_up(half, [one]) is None
    for ask in (lambda: set_out_of_service(nobody, [one]), lambda: find_named_instances(nobody, app)):
        with pytest.raises(RegistryUnreachable):
            ask()
    half.close()
    nobody.close()
