"""Names that operators use for a cluster, read from the instances that they registered."""

from __future__ import annotations

from eurekube_provider.comparison.managers import cluster_names_by_syncer, find_cluster_name
from eurekube_provider.core.identity import Cluster
from tests.unit.comparison.samples import CLUSTER, instance


def test_the_name_that_an_operator_gave_its_cluster() -> None:
    """The cluster's name is taken from the owner of instances with the cluster's UID."""
    there = [instance("rating", metadata={"eurekube.cluster-uid": "uid-9"}), instance("order")]
    assert find_cluster_name("uid-1", there) == "lab"
    assert find_cluster_name("uid-2", there) is None
    assert find_cluster_name("", there) is None


def test_another_operators_name_of_the_same_cluster_does_not_count() -> None:
    """A name used by the operator of other namespaces does not count."""
    other = instance("order", owner="cluster/other/else/order")
    there = [other, instance("rating")]
    assert find_cluster_name("uid-1", there, ("shop",)) == "lab"
    assert find_cluster_name("uid-1", there, ("nowhere",)) is None


def test_syncers_of_an_operator_with_another_name() -> None:
    """Syncers registered only under another name of this cluster are found; other UIDs and stacks do not
    count.
    """
    there = [
        instance("rating", owner="cluster/older/shop/rating"),
        instance("rating"),
        instance("cart", owner="cluster/other/else/cart"),
        instance("order", owner="cluster/far/shop/order", metadata={"eurekube.cluster-uid": "uid-9"}),
        instance("vm", owner="stack/acme/shop/dev/vm"),
    ]
    assert cluster_names_by_syncer(CLUSTER, there) == {("else", "cart"): "other"}
    assert cluster_names_by_syncer(CLUSTER, reversed(there)) == {("else", "cart"): "other"}
    assert cluster_names_by_syncer(Cluster("lab", ""), there) == {}
