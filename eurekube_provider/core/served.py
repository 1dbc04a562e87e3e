"""Checks that an operator serves a syncer, by the renewals of its instances in Eureka. Pure.

A status outlives the operator that wrote it. In a namespace that no operator watches any more, or whose name
is misspelt in the settings, the status would go on saying that all is well while the instances lapse.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from eurekube_provider.core.condition_types import Reason, SyncerCondition
from eurekube_provider.core.derived_syncer import is_namespace_syncer
from eurekube_provider.core.identity import CLUSTER_UID_KEY, Cluster, ClusterOwner, parse_owner
from eurekube_provider.core.model import Instance
from eurekube_provider.core.objects import Object, conditions_of, is_being_deleted
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.wording import format_count

UNRENEWED_LIMIT_SECONDS = 90
"""Seconds without a renewal after which an instance counts as not served: a lease's default duration."""

MAX_INSTANCES_READ_UNCACHED = 2
"""How many of a syncer's instances are read past caches to see whether somebody renews them."""

NOT_SERVED_REMEDY = (
    "add the namespace to --watch-namespace of an operator, or start one that watches it; delete the syncer"
    " first if it is not needed any more"
)


def last_renewed_unix(one: Instance) -> float | None:
    """Return the Unix time at which an instance was last renewed or written; None where no server says so."""
    if one.lease_ends_ms is None:
        return None
    # A lease that was never renewed says when it was registered, without its duration.
    renewed = one.lease_ends_ms / 1000 - one.lease.duration_seconds
    written = max(one.last_dirty_timestamp_ms or 0, one.last_updated_timestamp_ms or 0) / 1000
    return max(renewed, written)


def syncers_not_watched(items: Iterable[Object], namespaces: Collection[str]) -> list[Object]:
    """Return the syncers, without deleted ones, that are in none of these namespaces; no syncer if no
    namespace is given, which means all.
    """
    if not namespaces:
        return []
    return [
        one for one in items if one["metadata"]["namespace"] not in namespaces and not is_being_deleted(one)
    ]


def filter_instances_of_syncer(
    item: Object, cluster: Cluster, instances: Iterable[Instance]
) -> list[Instance]:
    """Return a syncer's instances, under whatever name of its cluster."""
    key = (item["metadata"]["namespace"], item["metadata"]["name"])
    found = []
    for one in instances:
        owner = parse_owner(one.owner)
        if not isinstance(owner, ClusterOwner) or (owner.namespace, owner.syncer) != key:
            continue
        if one.metadata.get(CLUSTER_UID_KEY, cluster.uid) == cluster.uid:
            found.append(one)
    return found


def not_served_problem(
    item: Object, there: Sequence[Instance], now: float, *, had_instances_there: bool
) -> Problem | None:
    """Return the problem that no operator seems to serve a syncer; None where nothing speaks for that.

    :param there: some of the syncer's instances in Eureka, as they were just read.
    :param now: Unix time.
    :param had_instances_there: True if the syncer is known to have had instances at this Eureka: else another
        operator may register it at another one.
    """
    if is_namespace_syncer(item):
        return None  # it has nothing itself, and those that are derived from it tell
    status = item.get("status") or {}
    registered = status.get("registered") or 0
    times = [at for one in there if (at := last_renewed_unix(one)) is not None]
    if there and (not times or now - max(times) <= UNRENEWED_LIMIT_SECONDS):
        return None
    if not there and not (registered and had_instances_there):
        return None
    if there:
        said = f"nobody has renewed its instances in Eureka for {now - max(times):.0f} s"
    else:
        said = f"its status counts {format_count(registered)} in Eureka, and none is there any more"
    return Problem(Reason.NOT_SERVED, f"no operator serves it: {said}", NOT_SERVED_REMEDY)


def status_says_not_served(item: Object) -> bool:
    """Return whether a syncer's status says that no operator serves it."""
    return conditions_of(item).get(SyncerCondition.SYNCED, {}).get("reason") == Reason.NOT_SERVED


def not_served_status_patch(item: Object, why: Problem, stamp: str) -> dict[str, object] | None:
    """Return the conditions for a syncer that no operator serves (Ready and Synced become Unknown); None
    where its status says so already.

    :param stamp: the time now, as RFC 3339.
    """
    before = conditions_of(item)
    kinds = (SyncerCondition.READY, SyncerCondition.SYNCED)
    if not before or status_says_not_served(item):
        return None
    changed = {
        kind: {
            **before.get(kind, {"type": kind}),
            "status": "Unknown",
            "reason": why.reason,
            "message": why.text,
            "lastTransitionTime": stamp,
        }
        for kind in kinds
    }
    rest = [one for kind, one in before.items() if kind not in kinds]
    return {"conditions": [*changed.values(), *rest]}
