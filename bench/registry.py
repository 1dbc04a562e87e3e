"""Instances for benchmarks, in applications of a hundred each."""

from __future__ import annotations

from collections.abc import Sequence

from eurekube_provider.core.identity import CLUSTER_UID_KEY, OWNER_KEY
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol import batch
from eurekube_provider.eureka.protocol.peer import Peer

OWNER = "cluster/bench/shop/all"


def make_instances(count: int, *, port: int = 8080) -> list[Instance]:
    """Return ``count`` instances, 100 in each application."""
    return [make_instance(number, port) for number in range(count)]


def make_instance(number: int, port: int = 8080) -> Instance:
    """Return the instance of a number; equal numbers give equal but distinct objects."""
    application = f"app-{number // 100}"
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    return Instance(
        application=application,
        instance_id=f"pod-{number}.shop.bench:{application}:{port}",
        host_name=address,
        ip_address=address,
        port=Port(port),
        metadata={OWNER_KEY: OWNER, CLUSTER_UID_KEY: "bench-uid", "zone": "zone-a"},
        home_page_url=f"http://{address}:{port}/",
    )


def renew_many(peers: Peers, held: Sequence[Instance]) -> dict[str, list[tuple[str, str]]]:
    """Renew many instances on every server, once.

    :returns: by server that answered, the keys that it does not hold.
    """

    def renew(peer: Peer) -> list[tuple[str, str]]:
        return [
            one.key
            for chunk in batch.chunks(held)
            for one, answer in zip(
                chunk, peer.send_batch(list(map(batch.heartbeat_item, chunk))), strict=True
            )
            if answer.status_code == 404
        ]

    return peers.ask_all_or_raise(renew)[0]
