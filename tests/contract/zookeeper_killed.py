"""A process that carries out one task in ZooKeeper, and may be killed meanwhile: see test_zookeeper_killed.

``python -m tests.contract.zookeeper_killed URL WORK``
"""

from __future__ import annotations

import sys
from dataclasses import replace

from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.core.plan import plan
from eurekube_provider.core.registry import NeverRead
from eurekube_provider.zookeeper.connection import ZooKeeperConnection
from eurekube_provider.zookeeper.zookeeper_registry import ZooKeeperRegistry
from lab.waiting import wait_until

CLUSTER, OWNER = Cluster("lab", "uid-1"), "cluster/lab/shop/rating"
SECONDS = 30.0


def instance(name: str, owner: str | None = OWNER, vip_address: str = "Rating") -> Instance:
    """Return an instance of an owner."""
    metadata = {"eurekube.owner": owner, "eurekube.cluster-uid": CLUSTER.uid} if owner else {}
    address, port = "10.0.0.1", Port(8080)
    return Instance(
        "RATING", name, address, address, port, vip_address=vip_address, metadata=metadata, status=Status.UP
    )


STAYS = instance("stays")
MOVED = replace(STAYS, vip_address="Stars", secure_vip_address="")
COLORED = replace(STAYS, metadata={**STAYS.metadata, "color": "red"})

WORKS: dict[str, tuple[list[Instance], list[Instance]]] = {
    "register the first of a service": ([], [STAYS]),
    "register another one": ([STAYS], [STAYS, instance("comes")]),
    "write": ([STAYS], [COLORED]),
    "remove": ([STAYS, instance("goes")], [STAYS]),
    "replace": ([STAYS, instance("goes")], [COLORED, instance("comes")]),
    "move to another name": ([STAYS], [MOVED]),
    "let lapse": ([STAYS, instance("goes")], [STAYS]),
}
"""Tasks by name: the instances that exist before, and those that are wanted."""


def lead(url: str, work: str) -> None:
    """Begin to lead, and bring the registry to the wanted instances, as the next leader does."""
    _, wanted = WORKS[work]
    to = ZooKeeperConnection.from_settings({"url": url}.get)
    registry = ZooKeeperRegistry(to, CLUSTER, "operator", 15.0, check_cluster=True)
    registry.start()
    try:
        wait_until(lambda: not isinstance(registry.condition(), NeverRead), "the first reading", SECONDS)
        registry.start_leading(0)
        known = registry.known_instances(owner=OWNER)
        if work == "let lapse":
            leaving = [one for one in known if one.key not in {each.key for each in wanted}]
            for one in leaving:
                registry.let_lapse(one)
            wait_until(
                lambda: len(registry.known_instances(owner=OWNER)) == len(wanted), "the removal", SECONDS
            )
        else:
            outcome = registry.apply(plan(wanted, known, OWNER), OWNER)
            if outcome.failures:
                raise SystemExit(str(outcome.failures))
    finally:
        registry.stop()


if __name__ == "__main__":
    lead(*sys.argv[1:])
