"""Registrations of pods' own Eureka clients: how they are recognized, remembered, and found to be over."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from eurekube_provider.core.identity import OWNER_KEY
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.core.plan import Action, RefusalReason, plan
from eurekube_provider.core.self_registered import (
    MAX_REGISTRATIONS_IN_STATUS,
    SelfRegistration,
    dead_registrations_problem,
    find_pods_to_verify,
    find_self_registered_instances,
    is_unchanged_and_unrenewed,
    merge_self_registrations,
    read_self_registrations,
    to_status_entries,
    unreadable_instances_problem,
)

OWNER = "cluster/eks/shop/rating"
DEPLOYED = "rating-6b5774c5df-6shm5"
ADDRESS = "10.0.0.5"


def wanted(pod: str = DEPLOYED, address: str = ADDRESS, place: str = "shop.eks") -> Instance:
    """Return the instance that a syncer wants for a pod."""
    instance_id = f"{pod}.{place}:rating:8080"
    return Instance("rating", instance_id, address, address, Port(8080), metadata={OWNER_KEY: OWNER})


def itself(
    instance_id: str = "own", host: str = "host", address: str = ADDRESS, port: int = 8080
) -> Instance:
    """Return an instance that registered itself."""
    return Instance("rating", instance_id, host, address, Port(port))


@dataclass(frozen=True)
class Row:
    """A registration by a client, and how it relates to a pod.

    :ivar own: True if the pod was seen to have its address for itself.
    :ivar beside: another pod that the syncer wants.
    :ivar is_twin: True if it is recognised.
    :ivar stays_alone: True if the syncer does not register the pod beside it.
    """

    unowned: Instance
    pod: str = DEPLOYED
    own: bool = False
    beside: Instance | None = None
    is_twin: bool = True
    stays_alone: bool = True


ROWS = {
    "at the pod's address and port": Row(itself()),
    "at another port of an address that is the pod's own": Row(
        itself(port=9090), own=True, stays_alone=False
    ),
    "at another port of an address that may be its node's": Row(itself(port=9090), is_twin=False),
    "at another port of an address that two endpoints share": Row(
        itself(port=9090), own=True, beside=wanted("rating-6b5774c5df-bbbbb"), is_twin=False
    ),
    "at another port, and DOWN": Row(replace(itself(port=9090), status=Status.DOWN), own=True, is_twin=False),
    "at another address": Row(itself(address="10.0.0.6"), own=True, is_twin=False),
    "loopback, with the pod's name as id": Row(itself(DEPLOYED, address="127.0.0.1"), stays_alone=False),
    "loopback, with the pod's name in a Spring id": Row(
        itself(f"{DEPLOYED}:rating:9090", address="127.0.0.1", port=9090), stays_alone=False
    ),
    "loopback, with the pod's name as host name": Row(
        itself(host=DEPLOYED, address="::1"), stays_alone=False
    ),
    "a second network's address, with a made-up pod's name": Row(
        itself(host=DEPLOYED, address="172.17.0.2"), stays_alone=False
    ),
    "the pod's name and its address, at another port": Row(
        itself(host=DEPLOYED, port=9090), stays_alone=False
    ),
    "a StatefulSet's pod at its address": Row(
        itself(host="rating-0", port=9090), pod="rating-0", stays_alone=False
    ),
    "a StatefulSet's pod at loopback": Row(
        itself(host="rating-0", address="127.0.0.1"), pod="rating-0", stays_alone=False
    ),
    "another cluster's pod of a StatefulSet": Row(
        itself(host="rating-0", address="10.9.0.1"), pod="rating-0", is_twin=False
    ),
    "a StatefulSet's pod by its whole name": Row(
        itself(host="rating-0.rating.shop.svc.cluster.local", address="127.0.0.1"),
        pod="rating-0",
        stays_alone=False,
    ),
    "another namespace's pod of a StatefulSet": Row(
        itself(host="rating-0.rating.test.svc.cluster.local", address="127.0.0.1"),
        pod="rating-0",
        is_twin=False,
    ),
    "an ordinal of five digits": Row(
        itself(host="rating-24567", address="10.9.0.1"), pod="rating-24567", is_twin=False
    ),
    "an endpoint without a pod": Row(itself(port=9090), pod=ADDRESS, own=True, is_twin=False),
    "a whole Service": Row(itself(port=9090), pod="rating.svc", own=True, is_twin=False),
    "loopback, and DOWN": Row(
        replace(itself(DEPLOYED, address="127.0.0.1"), status=Status.DOWN), is_twin=False
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_what_a_pod_registered_itself(name: str) -> None:
    """A syncer does not register a pod whose own client has registered it at the same address and port; a pod
    whose client registered another port is registered, too.
    """
    row = ROWS[name]
    want = wanted(row.pod)
    desired = [want, *([row.beside] if row.beside else [])]
    own = {(row.pod, ADDRESS)} if row.own else set()
    self_registered_by_key = find_self_registered_instances(desired, [row.unowned], own)
    assert self_registered_by_key == ({want.key: row.unowned} if row.is_twin else {})
    steps = plan([want], [row.unowned], OWNER, self_registered_by_key=self_registered_by_key)
    reported = [*steps.refusals, *steps.duplicates]
    assert [one.reason for one in reported] == [RefusalReason.SELF_REGISTERED] * row.is_twin
    stays_alone = row.is_twin and row.stays_alone
    assert [change.action for change in steps.changes] == [Action.REGISTER] * (not stays_alone)
    settled = plan([want], [want, row.unowned], OWNER, self_registered_by_key=self_registered_by_key)
    assert (settled.changes, len(settled.duplicates)) == ((), row.is_twin)


def test_which_pods_are_to_be_asked_for() -> None:
    """Pods are read if a foreign instance is UP at their address, unless two pods share the address."""
    one, two = wanted(), wanted("rating-6b5774c5df-bbbbb", "10.0.0.6")
    unowned = [itself(port=9090), replace(itself("b", address="10.0.0.6"), status=Status.DOWN)]
    assert find_pods_to_verify([one, two], unowned) == {(DEPLOYED, ADDRESS)}
    assert find_pods_to_verify([one, two, wanted("rating-6b5774c5df-ccccc")], unowned) == set()
    assert find_pods_to_verify([wanted(ADDRESS), wanted("rating.svc", "10.0.0.7")], unowned) == set()


def test_what_a_pod_registered_is_remembered_while_it_stands() -> None:
    """The syncer's status keeps the registration when the pod is gone, until the instance leaves Eureka or
    moves.
    """
    want, own = wanted(), itself()
    seen = merge_self_registrations({want.key: own}, (), [want], [own])
    assert seen == (SelfRegistration("own", ADDRESS, DEPLOYED, ADDRESS),)
    before = read_self_registrations({"status": {"selfRegistered": to_status_entries(seen)}})
    assert before == seen
    assert merge_self_registrations({}, before, [], [own]) == seen
    assert merge_self_registrations({want.key: own}, before, [want], [own]) == seen
    assert merge_self_registrations({}, before, [], []) == ()
    assert merge_self_registrations({}, before, [], [itself(address="10.0.0.9")]) == ()
    assert read_self_registrations({}) == ()


def test_no_more_is_remembered_than_a_status_holds() -> None:
    """If there are too many registrations, those of dead pods are kept first."""
    pods = [wanted(f"rating-6b5774c5df-{number}", f"10.0.1.{number}") for number in range(120)]
    own = {one.key: itself(f"own-{one.ip_address}", address=one.ip_address) for one in pods}
    dead = SelfRegistration("dead", "10.0.0.9", "rating-1", "10.0.0.9")
    unowned = [*own.values(), itself("dead", address="10.0.0.9")]
    seen = merge_self_registrations(own, [dead], pods, unowned)
    assert (seen[0], len(seen)) == (dead, MAX_REGISTRATIONS_IN_STATUS)


def test_nothing_is_remembered_that_a_status_cannot_hold() -> None:
    """An id or an address of another's choice is as long as the CRD says, or left out."""
    crd = yaml.safe_load((Path(__file__).parents[3] / "crds" / "eurekasyncers.eurekube.io.yaml").read_text())
    status = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    fields = status["properties"]["selfRegistered"]["items"]["properties"]
    longest_id, longest_address = (fields[name]["maxLength"] for name in ("instanceId", "address"))
    want = wanted()
    for own, is_kept in (
        (itself("a" * longest_id), True),
        (itself("a" * (longest_id + 1)), False),
        (itself(address="a" * longest_address), True),
        (itself(address="a" * (longest_address + 1)), False),
    ):
        assert bool(merge_self_registrations({want.key: own}, (), [want], [own])) is is_kept


def test_an_instance_is_over_when_nobody_renews_it() -> None:
    """An instance is not over if a server gives no lease, or if the instance was registered again or at
    another address.
    """
    first = replace(itself(), lease_ends_ms=100_000, last_dirty_timestamp_ms=1)
    assert is_unchanged_and_unrenewed(first, first)
    assert is_unchanged_and_unrenewed(replace(first, lease_ends_ms=101_000), first)
    assert not is_unchanged_and_unrenewed(replace(first, lease_ends_ms=130_000), first)
    assert not is_unchanged_and_unrenewed(replace(first, lease_ends_ms=None), first)
    assert not is_unchanged_and_unrenewed(first, replace(first, lease_ends_ms=None))
    assert not is_unchanged_and_unrenewed(replace(first, last_dirty_timestamp_ms=2), first)
    assert not is_unchanged_and_unrenewed(replace(first, ip_address="10.0.0.6"), first)


def test_the_dead_are_named() -> None:
    """The message names each registration with its pod."""
    one = SelfRegistration("own", ADDRESS, DEPLOYED, ADDRESS)
    problem = dead_registrations_problem([one], "RATING", "a pod has its address")
    assert problem.reason == "DeadSelfRegistered"
    assert (
        f"RATING own at {ADDRESS} of pod {DEPLOYED} registered itself, and is an endpoint no more"
        in problem.message
    )
    assert problem.message.endswith("; a pod has its address")
    assert (
        "themselves, and are endpoints no more"
        in dead_registrations_problem([one, one], "RATING", "").message
    )


def test_what_cannot_be_read_is_named() -> None:
    """With the reason, on one line; where there is nothing of that kind, nothing is wrong."""
    problem = unreadable_instances_problem(
        [replace(itself("theirs"), unreadable="node /a/theirs:\nit is no object")]
    )
    assert problem is not None
    assert problem.reason == "UnreadableInstance"
    assert problem.message.endswith("RATING theirs (node /a/theirs: it is no object)")
    assert unreadable_instances_problem([]) is None
