"""The decision whether an operator serves a syncer, made from the syncer's instances in Eureka."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eurekube_provider.core.identity import CLUSTER_UID_KEY, OWNER_KEY, Cluster
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.core.served import (
    filter_instances_of_syncer,
    last_renewed_unix,
    not_served_problem,
    not_served_status_patch,
    status_says_not_served,
    syncers_not_watched,
)

NOW = 1_800_000_000.0
CLUSTER = Cluster("east", "uid-1")


def syncer(namespace: str = "pay", registered: int = 3, **metadata: Any) -> dict[str, Any]:
    """Return a syncer whose status is Ready and Synced."""
    conditions = [
        {"type": kind, "status": "True", "reason": "Synced", "message": "", "lastTransitionTime": "then"}
        for kind in ("Ready", "Synced")
    ]
    conditions.append({"type": "DrainTooShort", "status": "True", "reason": "NoPreStop"})
    return {
        "metadata": {"namespace": namespace, "name": "billing", **metadata},
        "status": {"registered": registered, "conditions": conditions},
    }


def renewed(seconds_ago: float, written_ago: float = 3600.0, cluster: str = "east") -> Instance:
    """Return an instance of the syncer that was renewed this number of seconds ago."""
    ends, written = (NOW - seconds_ago + 90) * 1000, (NOW - written_ago) * 1000
    metadata = {OWNER_KEY: f"cluster/{cluster}/pay/billing", CLUSTER_UID_KEY: "uid-1"}
    return Instance(
        "billing",
        f"a.pay.{cluster}:billing:80",
        "10.0.0.1",
        "10.0.0.1",
        Port(80),
        metadata=metadata,
        lease_ends_ms=int(ends),
        last_dirty_timestamp_ms=int(written),
    )


@pytest.mark.parametrize(
    ("there", "registered", "had_instances_there", "words"),
    [
        ([renewed(20)], 3, True, ""),
        ([renewed(200), renewed(20)], 3, True, ""),
        ([renewed(89)], 3, True, ""),
        ([renewed(120)], 3, False, "nobody has renewed its instances in Eureka for 120 s"),
        ([renewed(120, written_ago=10)], 3, False, ""),  # registered just now, and not renewed yet
        ([replace(renewed(120), lease_ends_ms=None)], 3, True, ""),  # this server does not say
        ([], 3, True, "its status counts 3 instances in Eureka, and none is there any more"),
        ([], 3, False, ""),  # another operator may register it at another Eureka
        ([], 0, True, ""),  # scaled to zero
    ],
)
def test_who_is_served(there: list[Instance], registered: int, had_instances_there: bool, words: str) -> None:
    """A syncer is served if somebody renews one of its instances."""
    why = not_served_problem(
        syncer(registered=registered), there, NOW, had_instances_there=had_instances_there
    )
    assert (why is not None) == bool(words)
    assert why is None or (words in why.message and "--watch-namespace" in why.remedy)


def test_a_namespaces_syncer_has_nothing_itself() -> None:
    """It counts the instances of derived syncers, which report by themselves."""
    item = {**syncer(registered=3), "spec": {"selector": {"services": "All"}}}
    assert not_served_problem(item, [], NOW, had_instances_there=True) is None


def test_a_status_says_no_more_that_all_is_well() -> None:
    """Ready and Synced turn Unknown once, with the reason NotServed; other conditions stay."""
    item = syncer()
    why = not_served_problem(item, [renewed(120)], NOW, had_instances_there=True)
    assert why is not None
    said = not_served_status_patch(item, why, "2026-01-31T12:00:00Z")
    assert said is not None
    changed = {**item, "status": {**item["status"], **said}}
    found = {one["type"]: (one["status"], one["reason"]) for one in changed["status"]["conditions"]}
    assert found == {
        "Ready": ("Unknown", "NotServed"),
        "Synced": ("Unknown", "NotServed"),
        "DrainTooShort": ("True", "NoPreStop"),
    }
    assert (status_says_not_served(item), status_says_not_served(changed)) == (False, True)
    assert not_served_status_patch(changed, why, "2026-01-31T12:01:00Z") is None
    assert not_served_status_patch({"metadata": item["metadata"]}, why, "") is None  # nobody ever looked


def test_which_syncers_and_instances_are_meant() -> None:
    """The syncers are those outside the watched namespaces; their instances count under any name of the
    cluster.
    """
    items = [syncer("shop"), syncer("pay"), syncer("old", deletionTimestamp="2026-01-31T12:00:00Z")]
    assert syncers_not_watched(items, ("shop",)) == [items[1]]
    assert syncers_not_watched(items, ()) == []
    ours, earlier = renewed(1), renewed(1, cluster="earlier")
    other = replace(ours, metadata={**ours.metadata, CLUSTER_UID_KEY: "uid-2"})
    assert filter_instances_of_syncer(items[1], CLUSTER, [ours, earlier, other]) == [ours, earlier]
    assert last_renewed_unix(ours) == NOW - 1
