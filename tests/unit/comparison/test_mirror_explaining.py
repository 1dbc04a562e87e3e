"""Reasons for which an instance is not called through its mirrored Service."""

from __future__ import annotations

from typing import Any

import pytest

from eurekube_provider.comparison.mirror_explaining import (
    MirrorExplanation,
    MirrorInventory,
    ServiceUse,
    explain_mirrors,
)
from eurekube_provider.core.model import Instance, Port, Status
from tests.unit.comparison.samples import CLUSTER, mirror, mirror_slice, mirror_status

NOW = 1_780_000_000.0


def vm(number: int, address: str = "", status: Status = Status.UP, **more: Any) -> Instance:
    """Return an instance of REVIEW on a machine."""
    return Instance(
        "review", f"vm-{number}", "h", address or f"192.0.2.{number}", Port(8080), status=status, **more
    )


def explained(
    *there: Instance, item: Any = None, slices: tuple[Any, ...] = (), own: frozenset[str] = frozenset()
) -> MirrorExplanation:
    """Return the explanation of the mirror of REVIEW."""
    world = MirrorInventory([item or mirror("review", mirror_status()), mirror("order")], slices, own)
    (found,) = explain_mirrors(world, CLUSTER, "REVIEW", there, NOW)
    return found


def test_each_instance_says_whether_it_is_called() -> None:
    """Instances that are not called come first with their reason; one that vanished without proof is still
    held.
    """
    slices = (
        mirror_slice("review", ("vm-1", "192.0.2.1", True), ("vm-2", "192.0.2.2", False)),
        mirror_slice("other", ("vm-3", "192.0.2.3", True)),
        mirror_slice("review", ("vm-3", "192.0.2.3", True), application="ORDER"),
        mirror_slice("review", ("vm-9", "192.0.2.9", True)),
    )
    found = explained(vm(1), vm(2, status=Status.DOWN), vm(3), slices=slices)
    assert found.service == "review"
    assert [(one.instance_id, one.use) for one in found.instances] == [
        ("vm-3", ServiceUse.LEFT_OUT),
        ("vm-2", ServiceUse.NOT_CALLED),
        ("vm-9", ServiceUse.HELD),
        ("vm-1", ServiceUse.CALLED),
    ]
    whys = [one.why for one in found.instances]
    assert "has not shown it yet" in whys[0]
    assert whys[1] == "it is DOWN, and only what is UP is called"
    assert "until a server says that it left, for 300 s at most" in whys[2]
    assert whys[3] == ""
    assert [one.instance_id for one in found.limited_to_instances(["vm-2"]).instances] == ["vm-2"]
    assert found.to_dict()["instances"][1]["shown"] == "not called"


def test_what_the_service_cannot_call_says_why() -> None:
    """A ready endpoint that the operator reports as NotCalled is explained by its words."""
    said = "REVIEW vm-1 is not called at 192.0.2.1: the Service review has no IPv4 address"
    slices = (mirror_slice("review", ("vm-1", "192.0.2.1", True), ("vm-2", "192.0.2.2", True)),)
    found = explained(
        vm(1), vm(2), item=mirror("review", mirror_status(NotCalled=said)), slices=slices
    ).instances
    assert [(one.instance_id, one.use) for one in found] == [
        ("vm-1", ServiceUse.NOT_CALLED),
        ("vm-2", ServiceUse.CALLED),
    ]
    assert "has no IPv4 address" in found[0].why


@pytest.mark.parametrize(
    ("one", "status", "why"),
    [
        (vm(1, metadata={"eurekube.owner": "cluster/lab/shop/review"}), {}, "never mirrored"),
        (vm(1, metadata={"eurekube.owner": "cluster/eu/shop/review"}), {}, "includeOtherClusters"),
        (Instance("review", "vm-1", "h", "192.0.2.1", Port(0, enabled=False)), {}, "NoPort: it has no port"),
        (vm(1, "127.0.0.1"), {}, "AddressRefused: it is at 127.0.0.1, which is a loopback address"),
        (vm(1, "10.0.0.7"), {}, "own Services or pods"),
        (
            vm(1),
            {"AddressRefused": "REVIEW vm-1 is at 192.0.2.1, which is in no network; and 4 more"},
            "AddressRefused: it is at 192.0.2.1, which is in no network",
        ),
        (
            vm(1, "vm-1.example"),
            {"Unresolvable": "REVIEW vm-1 is at 'vm-1.example', a name that could not be resolved"},
            "Unresolvable: it is at 'vm-1.example'",
        ),
        (vm(1, "vm-1.example"), {}, "has not shown it yet"),
        (vm(1, "192.0.2.5"), {}, "is shown for vm-5 already"),
        (vm(1), {"SourceUnreachable": "no answer"}, "its mirror is not synced: SourceUnreachable: no answer"),
        (vm(1), {"NameTaken": "somebody's"}, "NameTaken: somebody's"),
    ],
)
def test_what_is_left_out_says_why(one: Instance, status: dict[str, Any], why: str) -> None:
    """An instance left out has its reason, in the words of the operator's status where there are any."""
    slices = (mirror_slice("review", ("vm-5", "192.0.2.5", True)),)
    item = mirror("review", mirror_status(**status))
    found = explained(one, item=item, slices=slices, own=frozenset({"10.0.0.7"}))
    shown = next(each for each in found.instances if each.instance_id == "vm-1")
    assert shown.use is ServiceUse.LEFT_OUT
    assert why in shown.why


def test_what_the_brake_keeps_is_explained_by_it() -> None:
    """An endpoint kept by the brake gets the brake's reason; a hand-written one is named as such."""
    slices = (mirror_slice("review", ("vm-1", "192.0.2.1", True), ("", "192.0.2.9", True)),)
    item = mirror("review", mirror_status(Braked="1 came from elsewhere"))
    found = {one.instance_id: one.why for one in explained(item=item, slices=slices).instances}
    assert found["vm-1"] == "Eureka does not list it: 1 came from elsewhere"
    assert "by hand" in found[""]


def test_a_mirror_that_cannot_be_read_says_so() -> None:
    """The explanation of an instance under a mirror with an invalid spec gives the spec's problem."""
    item = mirror("x", mirror_status(InvalidSpec="two names"), pattern="*")
    found = explained(vm(1), item=item)
    assert "two names" in found.instances[0].why
