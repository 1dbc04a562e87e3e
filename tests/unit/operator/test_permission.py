"""The rules for names in Eureka: which syncers may use a name, what is reported, and how long a claim
holds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eurekube_provider.core.decision import BLOCKED_RECHECK_SECONDS
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.core.networks import parse_networks
from eurekube_provider.core.plan import Action
from eurekube_provider.core.syncer import FINALIZER, Advertise
from tests.unit.operator.scene import READY, WEB, Scene

REPORTED = "NameNotReserved"


def stranger(owner: str = "", name: str = "machine-1", **fields: Any) -> Instance:
    """Return an instance of RATING that no syncer of this cluster registered."""
    metadata = {"eurekube.owner": owner} if owner else {}
    made = Instance("rating", name, "192.0.2.7", "192.0.2.7", Port(8080), metadata=metadata)
    return replace(made, **fields)


def with_stranger(*others: Instance, **spec: Any) -> Scene:
    """Return a syncer with a ready pod, beside instances of others at its Eureka."""
    scene = Scene(**spec)
    for one in others or (stranger(),):
        scene.played.registry.table.store_written_and_return_previous(one)
    scene.endpoints(WEB, a=READY)
    return scene


@pytest.mark.parametrize(
    ("spec", "name"), [({"application": "stars"}, "stars"), ({"vipAddress": "rating,stars"}, "stars")]
)
def test_a_name_of_ones_own_is_allowed_and_reported(spec: dict[str, Any], name: str) -> None:
    """An application name that differs from its Services' is registered; NameNotReserved warns until the
    settings give the name to the namespace.
    """
    scene = Scene(**spec)
    scene.endpoints(WEB, a=READY)
    assert [one.action for one in scene.reconcile()] == [Action.REGISTER]
    scene.reconcile()
    assert f"'{name}' is not the name of its Services" in scene.report.problems[REPORTED].message
    assert f"--reserve shop={name}" in scene.report.problems[REPORTED].text
    assert scene.report.is_synced
    for given in ({"publish": frozenset({("shop", name)})}, {"reserve": frozenset({("shop", name)})}):
        scene.configure(**given)
        scene.reconcile()
        assert REPORTED not in scene.report.problems


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (stranger(), "what registered itself (e.g. RATING machine-1) has instances under the name 'rating'"),
        (stranger("stack/org/demo/dev/vm"), "the stack org/demo/dev has instances"),
        (stranger("cluster/east/other/rating"), "the syncer other/rating of cluster east has instances"),
        (stranger("other/form"), "other/form has instances"),
        (stranger("cluster/east/shop/rating"), ""),
        (stranger(application="ORDER", vip_address="orders"), ""),
    ],
)
def test_a_syncer_that_joins_others_is_warned(other: Instance, said: str) -> None:
    """NameNotReserved warns that callers reach another application of that name, too, unless the same
    namespace of another cluster registered it; Synced stays True.
    """
    scene = with_stranger(other)
    assert [one.action for one in scene.reconcile()] == [Action.REGISTER]
    scene.reconcile()
    report = scene.report
    assert (report.is_ready, report.is_synced) == (True, True)
    assert said in (report.problems[REPORTED].message if said else "")
    assert (REPORTED in report.problems) is bool(said)
    scene.configure(reserve=frozenset({("shop", "rating")}))
    scene.reconcile()
    assert REPORTED not in scene.report.problems


def test_a_vip_address_of_machines_is_joined_as_well() -> None:
    """NameNotReserved warns when a self-registered application has the syncer's VIP address."""
    scene = with_stranger(stranger(application="ORDER", vip_address="stars"), vipAddress="stars")
    scene.reconcile()
    scene.reconcile()
    assert (
        "what registered itself as another application has instances"
        in scene.report.problems[REPORTED].message
    )


@pytest.mark.parametrize("is_paused", [True, False])
def test_a_syncer_that_joins_nobody_is_not_warned(is_paused: bool) -> None:
    """A paused syncer without instances, or machines that are out of service, cause no warning."""
    scene = with_stranger(
        stranger(status=Status.UP if is_paused else Status.OUT_OF_SERVICE), paused=is_paused
    )
    scene.reconcile()
    scene.reconcile()
    assert REPORTED not in scene.report.problems


def test_machines_that_come_and_go_change_no_sentence() -> None:
    """A changed message would cause another Event."""
    scene = with_stranger(stranger(), stranger(name="machine-2"))
    scene.reconcile()
    before = scene.report.problems[REPORTED]
    scene.played.registry.table.store_written_and_return_previous(stranger(name="machine-3"))
    scene.reconcile()
    assert scene.report.problems[REPORTED] == before


def claimant(scene: Scene, **more: Any) -> None:
    """Add a syncer of another namespace whose status claims the name, with zero instances."""
    scene.played.syncer("rating", "other", status={"names": ["rating"]}, **more)


def test_a_claim_holds_at_zero_instances() -> None:
    """A syncer that is scaled to zero keeps its name; the name is free once the syncer is gone."""
    scene = Scene()
    claimant(scene)
    scene.endpoints(WEB, a=READY)
    assert scene.reconcile() == []
    problem = scene.report.problems["Conflict"]
    assert "other/rating, a syncer of another namespace, keeps that name as long as it exists" in problem.text
    assert "--reserve other=rating,shop=rating" in problem.text
    assert scene.result.requeue_after_seconds == BLOCKED_RECHECK_SECONDS
    scene.played.removed(("other", "rating"))
    assert len(scene.reconcile()) == 1


def test_a_claim_holds_while_its_syncer_is_being_deleted() -> None:
    """The deleted syncer's instances may still be in Eureka."""
    scene = Scene()
    metadata = {"namespace": "other", "name": "rating", "finalizers": [FINALIZER]}
    claimant(scene, metadata={**metadata, "deletionTimestamp": "2026-01-02T03:04:05Z"})
    scene.endpoints(WEB, a=READY)
    assert scene.reconcile() == []


@pytest.mark.parametrize("allowed", ["reserved", "claimed", "elsewhere", "own"])
def test_whom_a_claim_does_not_keep_out(allowed: str) -> None:
    """A claim admits syncers that share the name by the settings or their status, its own namespace's, and
    other Eurekas'.
    """
    scene = Scene()
    if allowed == "elsewhere":
        spec = {"mode": "pod", "selector": {"app": "rating"}, "eureka": "elsewhere"}
        claimant(scene, spec=spec)
    else:
        claimant(scene)
    if allowed == "reserved":
        scene.configure(reserve=frozenset({("other", "rating"), ("shop", "rating")}))
    if allowed == "claimed":
        scene.edited(status={"names": ["rating"]})
    if allowed == "own":
        scene.played.syncer("rating-2", status={"names": ["rating"]})
    scene.endpoints(WEB, a=READY)
    assert len(scene.reconcile()) == 1


BY_HAND: dict[str, Any] = {
    "advertise_cidrs": parse_networks(
        ["198.51.100.0/24", "10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "fe80::/10"]
    ),
    "cluster_cidrs": parse_networks(["10.42.0.0/16"]),
    "advertise_hosts": (".lb.example.com", "gate.example.com"),
}


@pytest.mark.parametrize(
    ("address", "refused"),
    [
        ("198.51.100.7", ""),
        ("10.1.2.3", ""),
        ("a.LB.example.com", ""),
        ("gate.example.com", ""),
        ("192.0.2.7", "--advertise-cidrs"),
        ("10.42.1.2", "this cluster's own Services or pods"),
        ("127.0.0.1", "loopback"),
        ("169.254.169.254", "link-local"),
        ("fe80::1", "link-local"),
        ("0251.0.0.1", "no address that all read alike"),
        ("lb.example.com", "--advertise-hosts"),
        ("a.gate.example.com", "--advertise-hosts"),
        ("evil-lb.example.com", "--advertise-hosts"),
        ("localhost", "--advertise-hosts"),
    ],
)
def test_an_address_by_hand(address: str, refused: str) -> None:
    """``spec.address`` must be in a network or a host that the settings allow, and must not be the
    cluster's own.
    """
    scene = Scene(mode="service", address=address)
    (services,) = scene.played.sources.services.reflectors
    metadata = {"namespace": "shop", "name": "rating", "labels": {"app": "rating"}}
    services.apply_event(
        "MODIFIED", {"metadata": metadata, "spec": {"ports": [{"name": "http", "port": 80}]}}
    )
    scene.endpoints(WEB, a=READY)
    assert scene.reconcile() == []
    assert scene.report.ready.reason == "NotAllowed"  # as long as the configuration says nothing
    scene.configure(**BY_HAND)
    registered = scene.reconcile()
    if refused:
        assert (registered, scene.report.ready.reason) == ([], "NotAllowed")
        assert refused in scene.report.ready.message
    else:
        (change,) = registered
        assert (change.instance.host_name, change.instance.port) == (address, Port(80))


@pytest.mark.parametrize(
    ("advertise", "allowed", "is_refused"),
    [
        ("Ingress", (), True),
        ("Gateway", (), True),
        ("Gateway", (Advertise.INGRESS,), True),
        ("Ingress", (Advertise.INGRESS,), False),
        ("Gateway", (Advertise.INGRESS, Advertise.GATEWAY), False),
        ("ClusterIP", (), False),
    ],
)
def test_an_address_of_an_ingress_or_a_gateway(
    advertise: str, allowed: tuple[Advertise, ...], is_refused: bool
) -> None:
    """The operator's configuration must allow it; else what is registered stays, with the option in the
    remedy.
    """
    scene = Scene(mode="service", advertise="ClusterIP")
    (services,) = scene.played.sources.services.reflectors
    metadata = {"namespace": "shop", "name": "rating", "labels": {"app": "rating"}}
    spec = {"clusterIP": "10.96.0.9", "ports": WEB}
    services.apply_event("MODIFIED", {"metadata": metadata, "spec": spec})
    scene.endpoints(WEB, a=READY)
    assert len(scene.reconcile()) == 1
    scene.configure(advertise_from=allowed)
    scene.edited(advertise=advertise)
    assert scene.reconcile() == []
    assert (scene.report.ready.reason == "NotAllowed") is is_refused
    if is_refused:
        assert f"--advertise-from {advertise}" in scene.report.ready.remedy
