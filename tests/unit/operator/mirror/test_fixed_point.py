"""Syncers and mirrors of two clusters at one Eureka come to rest, and register nothing of each other in a
circle.
"""

from __future__ import annotations

from eurekube_provider.core.identity import ClusterOwner, parse_owner
from eurekube_provider.core.model import Status
from tests.unit.operator.mirror.two_clusters import OneCluster, TwoClusters

SEEDS = 40


def test_syncers_and_mirrors_come_to_rest() -> None:
    """From any start and in any order, reconciles come to rest, again after changes; no mirror shows its own
    cluster's registrations.
    """
    for seed in range(SEEDS):
        scene = TwoClusters(seed)
        for _ in range(2):
            assert scene.come_to_rest(), seed
            for cluster in scene.clusters:
                assert _echoes(scene, cluster) == [], seed
                assert _taken_back(scene, cluster) == [], seed
                assert _missing(scene, cluster) == [], seed
            scene.change()


def _echoes(scene: TwoClusters, cluster: OneCluster) -> list[str]:
    """Return mirrored endpoints that this cluster registered itself, or another cluster that the mirror
    excludes.
    """
    owners = {one.instance_id: parse_owner(one.owner) for one in scene.eureka.listed()}
    includes = {
        item["metadata"]["name"]: item["spec"].get("includeOtherClusters")
        for item in cluster.of_kind("eurekamirrors")
    }
    return [
        f"{name} shows {endpoint.instance_id}"
        for name, endpoint in cluster.shown()
        if isinstance(owner := owners.get(endpoint.instance_id), ClusterOwner)
        and (owner.cluster == cluster.cluster.name or not includes[name])
    ]


def _taken_back(scene: TwoClusters, cluster: OneCluster) -> list[str]:
    """Return registrations of this cluster's syncers at addresses that none of its pods has."""
    pods = cluster.pods()
    return [
        one.instance_id
        for one in scene.eureka.listed()
        if (one.owner or "").startswith(f"cluster/{cluster.cluster.name}/") and one.ip_address not in pods
    ]


def _missing(scene: TwoClusters, cluster: OneCluster) -> list[str]:
    """Return instances that are UP but missing from their mirrored Service, and endpoints that Eureka does
    not list.
    """
    up = {one.instance_id for one in scene.eureka.listed() if one.status is Status.UP and not one.owner}
    named = {one.instance_id: one.application for one in scene.eureka.listed()}
    services = {
        item["metadata"]["annotations"]["eurekube.io/application"]
        for item in cluster.of_kind("services")
        if "eurekube.io/mirror" in item["metadata"]["labels"]
    }
    called = {endpoint.instance_id for _, endpoint in cluster.shown() if endpoint.is_ready}
    wanted = {one for one in up if named[one] in services}
    return sorted((wanted - called) | {one for one in called if one not in named})
