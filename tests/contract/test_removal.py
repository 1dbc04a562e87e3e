"""A stack's registration that servers give back to each other while the stack removes it."""

from __future__ import annotations

import time

import pytest

from eurekube_provider.core.identity import OWNER_KEY, RENEWER_KEY
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol import batch
from eurekube_provider.eureka.writer import Writer
from eurekube_provider.registrations.desired import DesiredState, Registration
from eurekube_provider.registrations.lifecycle import delete
from eurekube_provider.registrations.values import OnConflict
from tests.eureka_servers import clock

OWNER = "stack/org/demo/dev/vm"


@pytest.mark.parametrize("drain_seconds", [0, 2], ids=["at once", "after a drain"])
def test_what_a_forwarded_renewal_brings_back_is_removed_again(
    peers: Peers, app: str, drain_seconds: int
) -> None:
    """A forwarded renewal may give a removed registration back to a server; the second look finds and
    removes it.
    """
    instance = Instance(
        application=app,
        instance_id=f"vm.dev.demo:{app}:8080",
        host_name="192.0.2.10",
        ip_address="192.0.2.10",
        port=Port(8080),
        metadata={OWNER_KEY: OWNER, RENEWER_KEY: "eurekube"},
        last_dirty_timestamp_ms=int(time.time() * 1000),
    )
    Writer(peers).register(instance)
    alone = {instance.instance_id: Registration(instance)}
    urls = peers.connection.service_urls
    registration = DesiredState(
        app.upper(),
        OWNER,
        urls,
        "default",
        OnConflict.FAIL,
        drain_seconds,
        "eurekube",
        alone,
        has_members=False,
    )
    drained: list[set[Status]] = []
    brought_back: list[Instance] = []
    last = peers.read(*instance.key)

    def give_back(seconds: float) -> None:
        """Register the removed instance at one server, as a peer's forwarded renewal does."""
        nonlocal last
        clock.sleep(seconds)  # of the second look: until the removal itself was forwarded, too
        found, _ = peers.ask_all_or_raise(lambda peer: peer.read(*instance.key))
        if brought_back:
            return
        standing = [one for one in found.values() if one is not None]
        if standing:  # in the drain
            last = standing[0]
            drained.append({one.status for one in standing})
            assert len(standing) == len(peers.peers)
            return
        assert last is not None
        assert seconds >= windows.RENEWAL_REPLICATION_SECONDS / 2
        peers.peers[2].send_batch([batch.registration_item(last)])
        brought_back.append(last)
        assert any(peers.read_everywhere(*instance.key)[0].values())

    removal = delete(registration, peers, wait=give_back)
    assert [one.key for one in removal.removed] == [instance.key]
    assert drained == [{Status.OUT_OF_SERVICE}] * bool(drain_seconds)
    assert len(brought_back) == 1
    assert brought_back[0].is_leaving is bool(drain_seconds)
    assert not any(peers.read_everywhere(*instance.key)[0].values())
