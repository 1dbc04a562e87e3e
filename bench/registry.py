"""Instances for benchmarks: so many, in applications of a hundred."""

from __future__ import annotations

from eurekube_provider.core.identity import CLUSTER_UID_KEY, OWNER_KEY
from eurekube_provider.core.model import Instance, Port

OWNER = "cluster/bench/shop/all"


def instances(count: int, *, port: int = 8080) -> list[Instance]:
    """``count`` instances, 100 an application."""
    return [instance(number, port) for number in range(count)]


def instance(number: int, port: int = 8080) -> Instance:
    """One of them; equal numbers give equal and distinct instances."""
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
