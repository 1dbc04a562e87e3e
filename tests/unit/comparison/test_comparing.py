"""Comparison of Kubernetes with Eureka: states, reasons and order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eurekube_provider.comparison.comparing import (
    Comparison,
    InstanceCount,
    KubernetesInventory,
    compare,
    plan_syncers,
)
from eurekube_provider.comparison.managers import ManagerKind
from eurekube_provider.comparison.reported_state import SyncState
from eurekube_provider.comparison.seen_remedies import REMEDY_BY_OBSERVED_REASON
from eurekube_provider.core.model import Status
from eurekube_provider.core.problem import Problem
from tests.unit.comparison.samples import CLUSTER, WELL, derived, desired_of, instance, syncer, world


def condition(kind: str, status: str, reason: str) -> dict[str, str]:
    """Return a condition."""
    return {"type": kind, "status": status, "reason": reason, "message": f"{reason} it is"}


def status(ready: str, synced: str, reason: str) -> dict[str, Any]:
    """Return a status as an operator writes it."""
    return {"conditions": [condition("Ready", ready, reason), condition("Synced", synced, reason)]}


def one_of(found: list[Comparison]) -> Comparison:
    """Return the only comparison."""
    (one,) = found
    return one


def test_what_is_as_it_should_be() -> None:
    """A syncer whose instances all agree is synced, without a problem."""
    there = [instance("rating", 0), instance("rating", 1)]
    one = one_of(compare(world(syncer("rating"), ready=(True, True)), {"default": there}))
    assert (one.application, str(one.manager), one.state) == (
        "RATING",
        "syncer shop/rating",
        SyncState.SYNCED,
    )
    assert (one.kubernetes, one.eureka) == (InstanceCount(2, 2), InstanceCount(2, 2))
    assert (one.problem, one.differing_count) == (None, 0)


def test_an_id_with_a_former_name_of_the_cluster_is_as_it_should_be() -> None:
    """An instance whose id has the cluster's former name counts as in sync: it keeps its id until its pod
    ends.
    """
    earlier = instance("rating", 0, instance_id="rating-0.shop.earlier:rating:8080")
    kubernetes, there = world(syncer("rating"), ready=(True, True)), [earlier, instance("rating", 1)]
    assert one_of(compare(kubernetes, {"default": there})).state is SyncState.SYNCED
    assert not plan_syncers(kubernetes, {"default": there})["shop", "rating"].steps


@pytest.mark.parametrize(
    ("said", "state", "reason"),
    [
        (status("False", "False", "NoMatchingService"), SyncState.NOT_READY, "NoMatchingService"),
        (status("True", "False", "Conflict"), SyncState.NOT_SYNCED, "Conflict"),
        (status("Unknown", "False", "Braked"), SyncState.NOT_KNOWN, "Braked"),
        ({}, SyncState.NOT_KNOWN, "NotLookedAt"),
    ],
)
def test_what_the_operator_says_counts(said: dict[str, Any], state: SyncState, reason: str) -> None:
    """A syncer's conditions give the comparison's state, reason and message."""
    one = one_of(compare(world(syncer("rating", said)), {"default": [instance("rating")]}))
    assert one.problem is not None
    assert (one.state, one.problem.reason) == (state, reason)
    assert one.problem.message


def test_what_the_operator_has_not_seen_yet_is_seen() -> None:
    """Differences are reported even if the syncer's conditions are fine."""
    there = [instance("rating", 0, Status.DOWN)]
    one = one_of(compare(world(syncer("rating"), ready=(True, True)), {"default": there}))
    assert (one.state, one.differing_count) == (SyncState.NOT_SYNCED, 2)
    said = "1 instance: not in Eureka; 1 instance: status: DOWN -> UP"
    assert one.problem == Problem("Differs", said, REMEDY_BY_OBSERVED_REASON["Differs"])
    assert (one.kubernetes, one.eureka) == (InstanceCount(2, 2), InstanceCount(1, 0))


def test_ready_endpoints_that_nobody_registered_are_the_worst() -> None:
    """Ready endpoints without any instance, at a syncer that no operator has read, are the state
    NOT_READY.
    """
    one = one_of(compare(world(syncer("rating", {})), {"default": []}))
    assert one.state is SyncState.NOT_READY
    said = "no operator has looked at it yet, and callers find none of its ready endpoints"
    assert one.problem == Problem("NotLookedAt", said, REMEDY_BY_OBSERVED_REASON["NotLookedAt"])


def test_a_deleted_syncer_and_one_that_is_gone() -> None:
    """Instances of a syncer that is being deleted, or is gone, are reported as such."""
    there = [instance("rating"), instance("order")]
    found = compare(world(syncer("rating", deleted=True)), {"default": there})
    assert [(str(one.manager), one.problem and one.problem.reason) for one in found] == [
        ("syncer shop/order", "NoSuchSyncer"),
        ("syncer shop/rating", "Deleted"),
    ]


def test_syncers_of_namespaces_that_are_not_looked_at_are_left_out() -> None:
    """Instances of syncers in namespaces that were not read are left out."""
    there = [instance("order"), instance("order", 1, owner=None, instance_id="d")]
    found = compare(world(namespaces=("shop-2",)), {"default": there})
    assert [str(one.manager) for one in found] == ["itself"]


def test_what_befalls_several_instances_is_said_once() -> None:
    """A reason common to several instances is given once in the message."""
    item = syncer("rating", status("True", "False", "Conflict"))
    others = [instance("rating", number, owner="cluster/lab/shop/other") for number in (0, 1)]
    (ours,) = (
        one
        for one in compare(world(item, ready=(True, True)), {"default": others})
        if one.manager.name == "shop/rating"
    )
    assert ours.problem is not None
    assert (ours.problem.reason, ours.problem.message.count("belongs to")) == ("Conflict", 1)


def test_what_others_keep_is_not_compared() -> None:
    """Instances of stacks, other clusters, unknown owners and applications themselves are listed by their
    manager, and not compared.
    """
    there = [
        instance("rating"),
        instance("rating", 1, owner="stack/acme/shop/dev/r", instance_id="a"),
        instance("rating", 2, owner="cluster/eks-2/shop/rating", instance_id="b"),
        instance("rating", 3, owner="mirror/eu/rating", instance_id="c"),
        instance("rating", 4, owner=None, instance_id="d"),
        instance("cart", 0, Status.DOWN, owner=None),
    ]
    found = compare(world(syncer("rating")), {"default": there})
    assert [(one.application, str(one.manager), one.state) for one in found] == [
        ("CART", "itself", SyncState.NOT_READY),
        ("RATING", "syncer shop/rating", SyncState.SYNCED),
        ("RATING", "syncer shop/rating of cluster eks-2", SyncState.NOT_COMPARED),
        ("RATING", "stack acme/shop/dev", SyncState.NOT_COMPARED),
        ("RATING", "mirror/eu/rating", SyncState.NOT_COMPARED),
        ("RATING", "itself", SyncState.NOT_COMPARED),
    ]
    assert {one.manager.kind for one in found} == set(ManagerKind)


def test_with_one_world_alone() -> None:
    """Eureka alone shows the manager of each instance; Kubernetes alone shows the syncers' status."""
    alone = one_of(compare(None, {"default": [instance("rating")]}))
    assert (str(alone.manager), alone.state, alone.kubernetes) == (
        "syncer shop/rating of cluster lab",
        SyncState.NOT_COMPARED,
        None,
    )
    said = {**status("True", "True", "Synced"), "registered": 3}
    one = one_of(compare(world(syncer("rating", said)), {}))
    assert (one.state, one.kubernetes, one.eureka) == (
        SyncState.SYNCED,
        InstanceCount(1, 1),
        InstanceCount(3),
    )


def test_each_eureka_is_compared_by_itself() -> None:
    """A syncer is compared with its own Eureka only; its instances at another one are reported there."""
    item = syncer("rating", eureka="eu")
    found = compare(world(item), {"default": [instance("rating")], "eu": []})
    assert [(one.eureka_name, one.state, one.eureka) for one in found] == [
        ("eu", SyncState.NOT_SYNCED, InstanceCount(0, 0)),
        ("default", SyncState.NOT_COMPARED, InstanceCount(1, 1)),
    ]


@pytest.mark.parametrize(
    ("item", "ready", "held", "changes"),
    [
        (syncer("rating"), (True,), "", ["update", "deregister"]),
        (
            syncer("rating", paused=True),
            (True,),
            "the syncer is paused: nothing is changed",
            ["update", "deregister"],
        ),
        (
            syncer("rating", status("False", "False", "NotAllowed")),
            (True,),
            "NotAllowed: NotAllowed it is",
            [],
        ),
        (
            syncer("rating", status("True", "False", "Braked")),
            (True,),
            "removals are held back: Braked it is",
            ["update", "deregister"],
        ),
        (
            syncer("rating", deleted=True),
            (True,),
            "the syncer is being deleted",
            ["deregister", "deregister"],
        ),
        (syncer("rating", port="grpc"), (True,), "nothing is removed in doubt", []),
        (syncer("rating", policy="UpsertOnly"), (True,), "", ["update"]),
        (syncer("rating", onTermination="OutOfService"), (True, None), "", ["update", "set-status"]),
    ],
)
def test_plans_and_what_holds_them(
    item: dict[str, Any], ready: tuple[bool | None, ...], held: str, changes: list[str]
) -> None:
    """A plan has the operator's own changes, and the rule that would prevent them, if any."""
    there = [instance("rating", 0, Status.DOWN), instance("rating", 1)]
    (planned,) = plan_syncers(world(item, ready=ready), {"default": there}).values()
    sentence = planned.hold_reason.message if planned.hold_reason else ""
    assert sentence.startswith(held)
    assert bool(sentence) == bool(held)
    actions = [str(change.action) for change in planned.steps.changes]
    assert sorted(set(actions), key=actions.index) == sorted(set(changes), key=changes.index)


def test_two_operators_of_one_cluster_under_different_names() -> None:
    """Each syncer is compared under the cluster name that its own operator uses."""
    renamed = [
        instance(
            "cart",
            number,
            owner="cluster/other/shop/cart",
            instance_id=f"cart-{number}.shop.other:cart:8080",
        )
        for number in (0, 1)
    ]
    older = instance("rating", 7, owner="cluster/older/shop/rating", instance_id="o")
    gone = instance("gone", owner="cluster/other/shop/gone")
    there = {"default": [instance("rating"), instance("rating", 1), *renamed, older, gone]}
    names = {("shop", "cart"): "other", ("shop", "gone"): "other"}
    seen = world(syncer("rating"), syncer("cart"), ready=(True, True), cluster_names=names)
    assert [(one.application, str(one.manager), one.state, one.eureka) for one in compare(seen, there)] == [
        ("GONE", "syncer shop/gone", SyncState.NOT_SYNCED, InstanceCount(1, 1)),
        ("CART", "syncer shop/cart", SyncState.SYNCED, InstanceCount(2, 2)),
        ("RATING", "syncer shop/rating", SyncState.SYNCED, InstanceCount(2, 2)),
        ("RATING", "syncer shop/rating of cluster older", SyncState.NOT_COMPARED, InstanceCount(1, 1)),
    ]
    planned = plan_syncers(seen, there)
    assert planned["shop", "cart"].owner == "cluster/other/shop/cart"
    assert not planned["shop", "cart"].steps


def test_everything_is_plain_json() -> None:
    """A comparison becomes plain JSON, with differences grouped by cause."""
    kubernetes = KubernetesInventory(
        CLUSTER, [syncer("rating")], {("shop", "rating"): desired_of(syncer("rating"), True, True, True)}
    )
    one = one_of(compare(kubernetes, {"default": []})).to_dict()
    (group,) = one["groups"]
    assert group["cause"] == "not in Eureka"
    assert len(group["instances"]) == 3
    assert one["keeper"] == {"kind": "syncer", "name": "shop/rating"}


def test_what_cannot_be_read_beside_syncers_is_told_from_what_is_not_up() -> None:
    """With the reason that the registry's reader found."""
    odd = instance("vm", owner=None, status=Status.UNKNOWN, unreadable="it is no object")
    (one,) = compare(None, {"default": [odd]})
    assert one.state is SyncState.NOT_READY
    assert str(one.problem) == "UnreadableInstance: 1 of 1 cannot be read: it is no object"
    (one,) = compare(None, {"default": [odd, instance("vm", 1, owner=None)]})
    assert one.problem is None


NAMESPACE = {"selector": {"services": "All"}}


@pytest.mark.parametrize(
    ("status_", "deleted", "state"),
    [
        ({**WELL, "applications": {"refused": 0}}, False, None),
        ({**status("False", "False", "NoPort"), "applications": {"refused": 0}}, False, None),
        ({**status("True", "False", "ServiceRefused"), "applications": {"refused": 1}}, False, "not synced"),
        ({}, False, "not known"),
        (WELL, True, "not synced"),
    ],
)
def test_a_namespaces_syncer_is_shown_where_no_other_tells(
    status_: dict[str, Any], deleted: bool, state: str | None
) -> None:
    """A derived syncer reports the fault of its Service; a refused Service has no derived syncer."""
    item = syncer("all", status_, deleted, **NAMESPACE)
    found = compare(KubernetesInventory(CLUSTER, [item]), {"default": []})
    assert [(one.application, str(one.state)) for one in found] == ([("*", state)] if state else [])
    assert not plan_syncers(KubernetesInventory(CLUSTER, [item]), {"default": []})["shop", "all"].steps


def test_derived_syncers_are_compared_each_by_itself() -> None:
    """Each has its own row, instances and plan, and the difference of one is not the other's."""
    each = world(derived("rating"), derived("order"))
    parent = syncer("all", {**WELL, "applications": {"refused": 0}}, selector=NAMESPACE["selector"])
    kubernetes = replace(each, syncers=[parent, *each.syncers])
    there = [
        instance("rating", owner="cluster/lab/shop/all.rating"),
        instance("order", 0, Status.DOWN, owner="cluster/lab/shop/all.order"),
    ]
    found = compare(kubernetes, {"default": there})
    assert [(one.application, str(one.manager), one.state, one.eureka) for one in found] == [
        ("ORDER", "syncer shop/all.order", SyncState.NOT_SYNCED, InstanceCount(1, 0)),
        ("RATING", "syncer shop/all.rating", SyncState.SYNCED, InstanceCount(1, 1)),
    ]
    plans = plan_syncers(kubernetes, {"default": there})
    assert {key: len(one.steps.changes) for key, one in plans.items()} == {
        ("shop", "all"): 0,
        ("shop", "all.rating"): 0,
        ("shop", "all.order"): 1,
    }
