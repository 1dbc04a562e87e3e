"""The ``eureka`` fixture's servers: a clock that tests move, registrations and assertions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from eurekube_provider.core.errors import InvalidInstance
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.testing import Eureka, StartEureka


@pytest.fixture
def peers(eureka: Eureka) -> Peers:
    """Return this package's own client of the server."""
    return Peers(Connection((eureka.url,)))


def test_a_registration_is_seen_with_its_fields(eureka: Eureka, peers: Peers) -> None:
    """Assertions and clients see a registration with all its fields."""
    eureka.register("rating", "vm-1", "192.0.2.1", 8080, metadata={"tier": "1", "zone": "a"})
    eureka.assert_registered(
        "rating",
        {
            "vm-1": {
                "status": "UP",
                "host_name": "192.0.2.1",
                "ip_address": "192.0.2.1",
                "port": 8080,
                "vip_address": "rating",
                "zone": "a",
                "owner": "",
                "metadata": {"tier": "1"},
            }
        },
    )
    assert [one.key for one in peers.list_instances()] == [("RATING", "vm-1")]


def test_a_lease_ends_when_its_time_has_passed(eureka: Eureka, peers: Peers) -> None:
    """An instance that nobody renews is gone after 91 s of the moved clock."""
    eureka.register("rating", "vm-1", "192.0.2.1", 8080)
    begun = time.monotonic()
    eureka.advance(89)
    eureka.assert_registered("rating")
    eureka.advance(2)
    eureka.assert_not_registered("rating")
    assert peers.list_instances() == []
    assert time.monotonic() - begun < 60


def test_a_renewed_lease_lives_twice_as_long(eureka: Eureka, peers: Peers) -> None:
    """After a renewal a lease lasts twice its duration, as at Eureka."""
    eureka.register("rating", "vm-1", "192.0.2.1", 8080)
    held = peers.read("RATING", "vm-1")
    assert held is not None
    peers.peers[0].renew(held)
    eureka.advance(179)
    eureka.assert_registered("rating")
    eureka.advance(2)
    eureka.assert_not_registered("rating")


def test_servers_with_eurekas_own_settings_keep_what_lapsed(eureka_servers: StartEureka) -> None:
    """With Eureka's default settings self-preservation keeps instances that nobody renews."""
    real = eureka_servers(quick=False)
    real.register("rating", "vm-1", "192.0.2.1", 8080)
    real.advance(3600)
    real.assert_registered("rating")


def test_servers_replicate_to_each_other(eureka_servers: StartEureka) -> None:
    """A registration at the first of three servers reaches the others after a second of the moved or the
    real clock.
    """
    three = eureka_servers(3)
    three.register("rating", "vm-1", "192.0.2.1", 8080)
    with pytest.raises(AssertionError, match=f"RATING at {three.urls[1]}, {three.urls[2]} is not as"):
        three.assert_registered("rating")
    three.advance(1)
    three.assert_registered("rating", {"vm-1": {}})
    assert len(three.instances()) == 1

    three.register("rating", "vm-2", "192.0.2.2", 8080)
    three.wait_registered("rating", {"vm-1": {}, "vm-2": {}})


def after_a_moment(act: Callable[[], object]) -> threading.Timer:
    """Call a function in another thread after 0.1 s."""
    timer = threading.Timer(0.1, act)
    timer.start()
    return timer


def test_a_test_waits_for_what_another_thread_does(eureka: Eureka, peers: Peers) -> None:
    """``wait_registered`` and ``wait_not_registered`` wait for another thread's change."""
    acting = after_a_moment(lambda: eureka.register("rating", "vm-1", "192.0.2.1", 8080))
    eureka.wait_registered("rating", {"vm-1": {"port": 8080}})
    acting.join()
    acting = after_a_moment(lambda: peers.peers[0].deregister("RATING", "vm-1"))
    eureka.wait_not_registered("rating")
    acting.join()


def test_a_wait_is_bounded_and_ends_with_the_last_state(eureka: Eureka) -> None:
    """After its time-out a wait fails with the time waited and the last state."""
    eureka.register("rating", "vm-1", "192.0.2.1", 8080)
    with pytest.raises(
        AssertionError, match=r"(?s)after 0\.1 s: RATING at .*- vm-2: .*registered there: RATING \(1\)"
    ):
        eureka.wait_registered("rating", {"vm-1": {}, "vm-2": {}}, timeout_seconds=0.1)
    with pytest.raises(AssertionError, match=r"(?s)after 0 s: .*\+ vm-1: registered, not expected"):
        eureka.wait_not_registered("rating", timeout_seconds=0)


def test_what_no_server_could_hold_is_refused(eureka: Eureka) -> None:
    """An id with a slash, or a status that Eureka does not know, is refused."""
    with pytest.raises(InvalidInstance, match="instance_id"):
        eureka.register("rating", "a/b", "192.0.2.1", 8080)
    with pytest.raises(ValueError, match="'up' is not a valid Status"):
        eureka.register("rating", "vm-1", "192.0.2.1", 8080, status="up")
