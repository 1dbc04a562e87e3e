"""Detection of another cluster with the same name, by asking all servers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eurekube_provider.core.identity import CLUSTER_UID_KEY, OWNER_KEY, Cluster
from eurekube_provider.core.registry import Healthy, Misconfigured, NeverRead
from eurekube_provider.eureka.eureka_registry import EurekaRegistry
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol import batch
from eurekube_provider.eureka.protocol.peer import Peer
from lab.waiting import wait_until
from tests.contract.conftest import WAIT_SECONDS, rating, wait_until_listed

pytestmark = pytest.mark.slow


def registry(peers: Peers, cluster: Cluster) -> EurekaRegistry:
    """Return a registry as an operator of this cluster starts with it, with connections of its own."""
    return EurekaRegistry(Peers(peers.connection), cluster, "operator", 1.0, check_cluster=True)


def test_a_name_that_only_one_server_knows_is_in_use(peers: Peers, app: str) -> None:
    """A cluster name counts as used if only the last server knows it: the first one may have lost its
    memory.
    """
    last: Peer = peers.peers[-1]
    metadata = {OWNER_KEY: f"cluster/{app}/shop/{app}", CLUSTER_UID_KEY: "uid-of-the-lost-one"}
    left_over = replace(rating(app), metadata=metadata)
    (answer,) = last.send_batch([batch.registration_item(left_over)])  # a batch is not forwarded
    assert answer.status_code == 200
    wait_until_listed(last, left_over)
    assert peers.peers[0].read(*left_over.key) is None

    rebuilt = registry(peers, Cluster(app, "uid-of-the-new-one"))
    rebuilt.start()
    wait_until(lambda: rebuilt.condition() != NeverRead(), "the first read", WAIT_SECONDS)
    rebuilt.stop()
    assert isinstance(refused := rebuilt.condition(), Misconfigured)
    assert "uid-of-the-lost-one" in str(refused.why)

    same = registry(peers, Cluster(app, "uid-of-the-lost-one"))
    same.start()
    wait_until(lambda: same.condition() != NeverRead(), "the first read", WAIT_SECONDS)
    same.stop()
    assert same.condition() == Healthy()
