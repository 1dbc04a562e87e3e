"""Two clusters of one name would take each other's instances for their own."""

import itertools
from collections.abc import Sequence

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.identity import CLUSTER_UID_KEY, Cluster
from eurekube_provider.core.model import Instance
from eurekube_provider.eureka.peers import Peers


def refuse_namesake(peers: Peers, cluster: Cluster, listed: Sequence[Instance]) -> None:
    """Look whether another cluster uses our name: on every server that answers.

    One that was restarted a moment ago holds nothing yet, and may be the one that ``listed`` is from.

    :raises ConfigurationError: it does.
    """
    lists: list[Sequence[Instance]] = [listed]
    if len(peers.peers) > 1:
        answers, _ = peers.each(lambda peer: peer.list_instances())
        lists += answers.values()
    for instance in itertools.chain.from_iterable(lists):
        uid = instance.metadata.get(CLUSTER_UID_KEY)
        if uid and uid != cluster.uid and cluster.syncer_of(instance.owner) is not None:
            raise ConfigurationError(
                f"the cluster name {cluster.name!r} is in use by another cluster:"
                f" {instance.application} {instance.instance_id} has UID {uid}, this cluster has"
                f" {cluster.uid}. Set another --cluster-name; or, if this cluster was rebuilt"
                " and the other is gone, --take-over-cluster true"
            )
