"""Reconciles of one syncer, on real parts that ask no server."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from eurekube_provider.core.brake import BRAKE_HOLD_SECONDS, LOSS_WINDOW_SECONDS, RELEASE_BRAKE_ANNOTATION
from eurekube_provider.core.decision import NEXT_OWNER_POLL_SECONDS, REPLICATION_WAIT_SECONDS
from eurekube_provider.core.errors import (
    KubernetesError,
    LeadershipLost,
    RegistryUnreachable,
)
from eurekube_provider.core.identity import CLUSTER_UID_KEY, OWNER_KEY, ClusterOwner
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.core.objects import (
    KUBERNETES_SLICE_MANAGER,
    SERVICE_NAME_LABEL,
    SLICE_MANAGED_BY_LABEL,
)
from eurekube_provider.core.plan import Action, Plan, PlanOutcome
from eurekube_provider.core.syncer import FINALIZER, FORCE_DELETE_ANNOTATION, Syncer
from eurekube_provider.eureka.eureka_registry import EurekaRegistry
from eurekube_provider.eureka.registry.reachability import LASTING_FAILURE_COUNT, Reachability
from eurekube_provider.eureka.registry.restart_detection import RestartDetection
from eurekube_provider.kube import reflector
from eurekube_provider.kube.access import KubeAccess
from eurekube_provider.operator import heirs, reconciler, registries, sources
from eurekube_provider.operator.dry_run import RecordingRegistry, RunReport
from eurekube_provider.operator.ended_pods import MOST_PODS_READ_PER_RECONCILE
from eurekube_provider.operator.registries import Registries
from lab.waiting import wait_until
from tests.unit.operator.parts import CLUSTER
from tests.unit.operator.quiet_api import QuietApi
from tests.unit.operator.scene import BOTH, KEY, READY, TERMINATING, WEB, Scene


@pytest.mark.parametrize("is_looked_at", [True, False])
def test_in_doubt_what_was_seen_terminating_goes_and_the_rest_stays(is_looked_at: bool) -> None:
    """While a Service's port is ambiguous, instances of pods seen terminating leave, also if no reconcile
    ran meanwhile.
    """
    scene = Scene()
    scene.endpoints(WEB, a=READY, b=READY, c=READY)
    scene.reconcile()
    assert scene.renewed() == {"a", "b", "c"}
    scene.endpoints(BOTH, a=READY, b=READY, c=READY)
    assert scene.reconcile() == []
    scene.endpoints(BOTH, a=TERMINATING, b=TERMINATING, c=READY)
    if is_looked_at:
        scene.reconcile()
    scene.endpoints(BOTH, d=READY)
    scene.reconcile()
    assert scene.renewed() == {"c"}


@pytest.mark.parametrize("is_seen_terminating", [True, False])
def test_a_500_to_one_registration_keeps_no_ended_pod(
    is_seen_terminating: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a server answers one pod's registration with 500, a terminating pod leaves and an unready one is
    DOWN; one that only vanished stays.
    """
    scene = Scene()
    eureka = scene.real()
    scene.endpoints(WEB, a=READY, b=READY)
    scene.reconcile()
    register = eureka.register

    def refuse(one: Instance, *more: Any, **others: Any) -> None:
        if one.instance_id.startswith("c."):
            raise RegistryUnreachable("answered 500", status_code=500)
        register(one, *more, **others)

    monkeypatch.setattr(eureka, "register", refuse)
    if is_seen_terminating:
        scene.endpoints(WEB, a=TERMINATING, b={"ready": False}, c=READY)
    else:
        scene.endpoints(WEB, x={"ready": False}, b={"ready": False}, c=READY)
    scene.reconcile()
    held = {one.instance_id.partition(".")[0]: one.status for one in eureka.held.values()}
    assert ("a" in held) is not is_seen_terminating
    assert held["b"] is Status.DOWN
    assert "c" not in held
    assert isinstance(scene.result.error, RegistryUnreachable)


REFUSED: dict[str, dict[str, Any]] = {
    "UnknownEureka": {"eureka": "defualt"},
    "NotAllowed": {"application": "orders"},
    "unreadable": {"mode": "pods"},
}


@pytest.mark.parametrize("is_looked_at", [True, False])
@pytest.mark.parametrize("refused", REFUSED)
def test_what_was_seen_terminating_leaves_a_refused_syncer(refused: str, is_looked_at: bool) -> None:
    """A refused syncer's other instances stay and are renewed, no new one is registered, and Ready gives
    the reason.
    """
    scene = Scene()
    scene.configure(strict_names=True)
    scene.endpoints(WEB, a=READY, b=READY, c=READY)
    scene.reconcile()
    scene.edited(**REFUSED[refused])
    assert scene.reconcile() == []
    scene.concerned.clear()
    scene.endpoints(WEB, a=TERMINATING, b=TERMINATING, c=READY)
    assert scene.concerned == [KEY]
    if is_looked_at:
        scene.reconcile()
    scene.endpoints(WEB, d=READY)  # c vanished without being seen terminating
    scene.reconcile()
    assert scene.renewed() == {"c"}
    assert scene.ready() == (False, "UnknownEureka" if refused == "UnknownEureka" else "NotAllowed")
    report = scene.report
    assert "Eureka holds 1 instance of RATING (1 UP)" in report.ready.text
    assert report.registered == 1


@pytest.mark.parametrize(
    ("limit", "renewed"), [({"paused": True}, {"a", "b"}), ({"policy": "UpsertOnly"}, {"b"})]
)
def test_a_refused_syncer_removes_no_more_than_it_may(limit: dict[str, Any], renewed: set[str]) -> None:
    """A refused syncer that is paused changes nothing; with UpsertOnly, instances of terminating pods are
    left to lapse.
    """
    scene = Scene(**limit)
    scene.edited(paused=False)
    scene.endpoints(WEB, a=READY, b=READY)
    scene.reconcile()
    scene.edited(eureka="nowhere", **limit)
    scene.endpoints(WEB, a=TERMINATING, b=READY)
    assert scene.reconcile() == []
    assert scene.renewed() == renewed


KEEPS: dict[str, dict[str, Any]] = {
    **REFUSED,
    "in doubt": {"port": "none"},
    "paused": {"paused": True},
    "paused, and in doubt": {"paused": True, "port": "none"},
    "paused, and refused": {"paused": True, "eureka": "nowhere"},
}


@pytest.mark.parametrize("is_restarted", [True, False])
@pytest.mark.parametrize("keeps", KEEPS)
def test_what_eureka_forgot_of_what_is_kept_comes_back(
    keeps: str, is_restarted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart of Eureka, a refused or paused syncer registers instances whose endpoint is unchanged
    and ready; instances that somebody removed stay away.
    """
    scene = Scene()
    scene.configure(strict_names=True)
    scene.endpoints(WEB, a=READY, b=READY, c=READY, d=READY)
    scene.reconcile()
    registry = scene.played.registry
    registry.restarts.detect_restarts = lambda *_: frozenset()  # type: ignore[method-assign]
    monkeypatch.setattr(RestartDetection, "may_have_lost_memory", is_restarted)
    scene.edited(**KEEPS[keeps])
    assert scene.reconcile() == []
    scene.endpoints(WEB, a=READY, b={"ready": False}, d=READY, c=READY)  # c and d have other addresses now
    held = registry.table.instances_of_owner(str(ClusterOwner(CLUSTER.name, *KEY)))
    registry.repair.instances_missing(held, None)
    assert registry.table.instances_of_owner(held[0].owner or "") == []
    (kept,) = [one for one in held if one.instance_id.startswith("a.")]
    assert [(one.action, one.instance) for one in scene.reconcile()] == (
        [(Action.REGISTER, kept)] if is_restarted else []
    )
    assert scene.reconcile() == []


def test_what_eureka_forgot_at_host_ports_comes_back_beside_one_that_is_not_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After Eureka lost its memory a paused syncer restores instances at its nodes' addresses, though the
    endpoint of another one is not ready.
    """
    api = QuietApi(monkeypatch)
    ports = [{"containerPort": 8080, "hostPort": 30080}]
    for number, name in enumerate("abc", 1):
        metadata = {"namespace": "shop", "name": name, "resourceVersion": "1"}
        status = {"podIP": f"10.0.0.{number}", "hostIP": f"192.0.2.{number}"}
        pod = {"metadata": metadata, "spec": {"containers": [{"ports": ports}]}, "status": status}
        api.objects["pods"].append(pod)
    scene = Scene(advertise="HostPort")
    scene.endpoints(WEB, a=READY, b=READY, c=READY)
    wait_until(scene.reconcile, "the list of pods", 20)
    registry = scene.played.registry
    held = registry.table.instances_of_owner(str(ClusterOwner(CLUSTER.name, *KEY)))
    scene.edited(paused=True)
    scene.endpoints(WEB, a=READY, b=READY, c={"ready": False})
    registry.restarts.detect_restarts = lambda *_: frozenset()  # type: ignore[method-assign]
    monkeypatch.setattr(RestartDetection, "may_have_lost_memory", True)
    registry.repair.instances_missing(held, None)
    back = {one.instance.ip_address: one.action for one in scene.reconcile()}
    scene.played.sources.stop()
    api.end()
    assert back == dict.fromkeys(("192.0.2.1", "192.0.2.2"), Action.REGISTER)


def test_new_pods_are_registered_without_labels_that_nobody_may_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the operator may not list pods, new pods are registered without their labels, since the old ones
    leave meanwhile; instances keep the labels that they are registered with.
    """
    api = QuietApi(monkeypatch)
    for name in ("a", "b"):
        metadata = {"namespace": "shop", "name": name, "resourceVersion": "1", "labels": {"version": "1"}}
        api.objects["pods"].append({"metadata": metadata})
    scene = Scene(metadataFromPodLabels=["version"])
    scene.endpoints(WEB, a=READY, b=READY)
    wait_until(scene.reconcile, "the list of pods", 20)
    scene.played.sources.stop()
    api.refuse("pods", 403)
    others = Scene(metadataFromPodLabels=["version"])
    registry = scene.played.registry
    held = registry.table.instances_of_owner(str(ClusterOwner(CLUSTER.name, *KEY)))
    assert [one.metadata["version"] for one in held] == ["1", "1"]
    for one in held:
        others.played.registry.table.store_written_and_return_previous(one)
    others.endpoints(WEB, a={"ready": False, "terminating": True}, b=READY, c=READY)
    wait_until(lambda: others.played.sources.failures, "the refusal", 20)
    changes = {one.instance.instance_id.partition(".")[0]: one for one in others.reconcile()}
    assert {name: one.action for name, one in changes.items()} == {
        "a": Action.DEREGISTER,
        "c": Action.REGISTER,
    }
    assert "version" not in changes["c"].instance.metadata
    assert others.result.report is not None
    assert others.result.report.synced is not None
    assert others.result.report.synced.reason == "PodsNotRead"
    others.played.sources.stop()
    api.end()


@pytest.mark.parametrize("ends", [True, False])
def test_a_persons_status_comes_back_with_its_pod(ends: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """After Eureka lost its memory a person's OUT_OF_SERVICE is restored, unless the pod was replaced by
    one of its name.
    """
    scene = Scene()
    eureka, registry = scene.real(), scene.played.registry
    registry.restarts.detect_restarts = lambda *_: frozenset()  # type: ignore[method-assign]
    scene.endpoints(WEB, a=READY, b=READY)
    scene.reconcile()
    held = sorted(eureka.held.values(), key=lambda one: one.instance_id)
    out = {"status": Status.OUT_OF_SERVICE, "overridden_status": Status.OUT_OF_SERVICE}
    registry.table.store_written_and_return_previous(replace(held[0], **out))  # type: ignore[arg-type]
    eureka.held.clear()
    monkeypatch.setattr(RestartDetection, "may_have_lost_memory", True)
    registry.repair.instances_missing(held, None)
    if ends:
        scene.endpoints(WEB, b=READY)
        scene.reconcile()
    scene.endpoints(WEB, a=READY, b=READY)
    scene.reconcile()
    status = eureka.held[held[0].key].status
    assert status is (Status.UP if ends else Status.OUT_OF_SERVICE)


def test_what_was_forgotten_is_not_kept_for_who_wants_it_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A syncer with a new application name registers that, and never restores the forgotten instances of
    the old one.
    """
    scene = Scene()
    scene.endpoints(WEB, a=READY, b=READY)
    scene.reconcile()
    registry = scene.played.registry
    held = registry.table.instances_of_owner(str(ClusterOwner(CLUSTER.name, *KEY)))
    monkeypatch.setattr(RestartDetection, "may_have_lost_memory", True)
    registry.repair.instances_missing(held, None)
    scene.edited(application="stars")
    scene.configure(publish=frozenset({("shop", "stars")}))
    assert {one.instance.application for one in scene.reconcile()} == {"STARS"}
    scene.edited(eureka="nowhere")
    assert scene.reconcile() == []


@pytest.mark.parametrize(
    ("phases", "ends"),
    [([], True), (["Failed"], True), (["Succeeded"], True), (["Running"], False), (None, False)],
    ids=["gone", "evicted", "completed", "there", "no answer"],
)
@pytest.mark.parametrize("keeps", ["UnknownEureka", "in doubt", "paused"])
def test_a_pod_that_ended_unseen_leaves_who_registers_nothing(
    keeps: str, phases: list[str] | None, *, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused syncer deregisters a vanished pod if other pods of its slices are left and the API server
    has no such pod, or one whose containers have ended for good.
    """
    asked: list[Any] = []

    def get(_: object, path: str, query: dict[str, str]) -> dict[str, Any]:
        asked.append((path, query["fieldSelector"]))
        if phases is None:
            raise KubernetesError("no answer")
        return {"items": [{"metadata": {"name": "b"}, "status": {"phase": one}} for one in phases]}

    monkeypatch.setattr(KubeAccess, "get", get)
    scene = Scene()
    scene.endpoints(WEB, a=READY, b=READY)
    scene.reconcile()
    scene.edited(**KEEPS[keeps])
    scene.endpoints(WEB, a=READY)
    may_go = keeps != "paused"
    found = [(one.action, one.instance.instance_id[0]) for one in scene.reconcile()]
    assert found == ([(Action.DEREGISTER, "b")] if may_go and ends else [])
    assert asked == ([("/api/v1/namespaces/shop/pods", "metadata.name=b")] if may_go else [])
    scene.endpoints(WEB, c=READY)
    assert scene.reconcile() == [], "none of its siblings says that the slices are whole"


def others_pod(scene: Scene, address: str, name: str = "orders-1") -> None:
    """Add a ready pod of another Service, in another namespace, at this address."""
    (slices,) = scene.played.sources.slices.reflectors
    labels = {SERVICE_NAME_LABEL: "orders"}
    endpoint = {"addresses": [address], "conditions": READY, "targetRef": {"kind": "Pod", "name": name}}
    metadata = {"namespace": "other", "name": f"{name}-x", "labels": labels}
    slices.apply_event("MODIFIED", {"metadata": metadata, "ports": WEB, "endpoints": [endpoint]})


@pytest.mark.parametrize(
    ("pod", "is_proven"),
    [
        ({"status": {"podIP": "10.0.0.2"}}, True),
        ({"status": {"podIPs": [{"ip": "fd00::2"}, {"ip": "10.0.0.2"}]}}, True),
        ({"status": {"podIP": "10.0.0.2"}, "spec": {"hostNetwork": True}}, False),
        ({"status": {"podIP": "10.0.0.3"}}, False),
        ({"status": {"podIP": "10.0.0.2"}, "metadata": {"deletionTimestamp": "x"}}, False),
        (None, False),
    ],
    ids=["its own address", "its second address", "its node's", "another", "on its way out", "no answer"],
)
@pytest.mark.parametrize(
    ("keeps", "how"), [("NotAllowed", "removed"), ("paused", "lapses"), ("paused, and refused", "lapses")]
)
def test_an_address_that_another_applications_pod_has_by_now(
    keeps: str, how: str, pod: dict[str, Any] | None, is_proven: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When another Service's pod has an instance's address, and the API server confirms that, a refused
    syncer deregisters the instance; a paused one lets it lapse and reports it.
    """

    def get(_: object, _path: str, query: dict[str, str]) -> dict[str, Any]:
        if query["fieldSelector"] == "metadata.name=b":
            return {"items": [{"metadata": {"name": "b"}}]}
        assert query["fieldSelector"] == "metadata.name=orders-1"
        if pod is None:
            raise KubernetesError("no answer")
        return {"items": [{"metadata": {"name": "orders-1"}, **pod}]}

    monkeypatch.setattr(KubeAccess, "get", get)
    scene = Scene()
    scene.configure(strict_names=True)
    scene.set_endpoints(a=READY, b=READY)
    scene.edited(**KEEPS[keeps])
    scene.endpoints(WEB, a=READY)  # b was killed while nobody looked
    others_pod(scene, "10.0.0.2")
    sent = [(one.action, one.instance.instance_id[0]) for one in scene.reconcile()]
    assert sent == ([(Action.DEREGISTER, "b")] if is_proven and how == "removed" else [])
    assert scene.renewed() == ({"a"} if is_proven else {"a", "b"})
    if keeps == "paused":
        reported = "b.shop.lab:rating:8080, whose address the pod other/orders-1 has by now"
        assert (reported in scene.report.problems["Paused"].text) is is_proven
    assert scene.reconcile() == []


def test_the_next_pod_of_that_name_keeps_no_address_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A StatefulSet's pod came back at another address: a paused syncer stops renewing the instance at the
    old address, which another pod has.
    """
    there = {"items": [{"metadata": {"name": "orders-1"}, "status": {"podIP": "10.0.0.1"}}]}
    monkeypatch.setattr(KubeAccess, "get", lambda *_: there)
    scene = Scene()
    scene.set_endpoints(a=READY)
    scene.edited(paused=True)
    scene.endpoints(WEB, z=TERMINATING, a=READY)  # at 10.0.0.2
    others_pod(scene, "10.0.0.1")
    scene.reconcile()
    assert scene.renewed() == set()
    scene.edited(paused=False)
    assert [(one.action, one.instance.ip_address) for one in scene.reconcile()] == [
        (Action.UPDATE, "10.0.0.2")
    ]


@pytest.mark.parametrize(
    ("spec", "manager"),
    [
        ({}, KUBERNETES_SLICE_MANAGER),
        ({"notReady": "Remove"}, KUBERNETES_SLICE_MANAGER),
        ({}, "somebody.example.com"),
    ],
    ids=["Down", "Remove", "of somebody else's"],
)
def test_slices_that_are_packed_again_take_nothing_out(spec: dict[str, Any], manager: str) -> None:
    """Kubernetes rewrites slices one by one when a Service gets another port: pods missing in between are not
    removed.

    Removals are not held with ``notReady: Remove``, nor for slices of another controller, which may have
    different ports for good. An endpoint that is seen terminating or not ready is believed.
    """
    scene = Scene(**spec)
    (slices,) = scene.played.sources.slices.reflectors

    def packed(name: str, ports: list[dict[str, Any]], *pods: str, **conditions: dict[str, bool]) -> None:
        endpoints = [
            {
                "addresses": [f"10.0.0.{ord(pod)}"],
                "conditions": conditions.get(pod, READY),
                "targetRef": {"kind": "Pod", "name": pod},
            }
            for pod in pods
        ]
        labels = {SERVICE_NAME_LABEL: "rating", SLICE_MANAGED_BY_LABEL: manager}
        metadata = {"name": name, "namespace": "shop", "labels": labels}
        item = {"metadata": metadata, "addressType": "IPv4", "ports": ports, "endpoints": endpoints}
        slices.apply_event("MODIFIED", item)

    http = {"name": "http", "port": 8080}
    packed("one", [http], *"abcd")
    packed("two", [http], *"efgh")
    scene.reconcile()
    both = [http, {"name": "metrics", "port": 9090}]
    packed("one", both, *"efab")
    if spec or manager != KUBERNETES_SLICE_MANAGER:
        assert [change.action for change in scene.reconcile()] == [Action.DEREGISTER] * 2
        return
    assert scene.reconcile() == []
    assert bool(scene.result.held_removals)
    packed("two", both, *"cdgh")
    assert scene.reconcile() == []
    assert not scene.result.held_removals
    packed("one", [http], *"efab", e=TERMINATING, f={"ready": False})
    scene.reconcile()
    packed("one", [http], *"fa", f={"ready": False})
    assert [(change.action, change.instance.status) for change in scene.reconcile()] == []
    states = {one.instance_id[0]: one.status for one in scene.played.registry.table.known_instances()}
    assert states == {**dict.fromkeys("abcdgh", Status.UP), "f": Status.DOWN}


@pytest.mark.parametrize("keeps", ["UnknownEureka", "in doubt"])
def test_pods_that_live_unselected_hide_none_that_ended(keeps: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reconcile asks the API server about a few vanished pods; later ones ask about the rest, so that
    ended pods are found.
    """
    living = {f"a{number}" for number in range(2 * MOST_PODS_READ_PER_RECONCILE)}
    asked: set[str] = set()

    def get(_: object, _path: str, query: dict[str, str]) -> dict[str, Any]:
        name = query["fieldSelector"].removeprefix("metadata.name=")
        asked.add(name)
        return {"items": [{"metadata": {"name": name}}] if name in living else []}

    monkeypatch.setattr(KubeAccess, "get", get)
    scene = Scene()
    scene.endpoints(WEB, sibling=READY, z=READY, **dict.fromkeys(sorted(living), READY))
    scene.reconcile()
    scene.edited(**KEEPS[keeps])
    scene.endpoints(WEB, sibling=READY)
    for _ in range(3):
        scene.reconcile()
    assert asked == living | {"z"}
    assert scene.renewed() == living | {"sibling"}
    living.remove("a5")
    for _ in range(3):
        scene.reconcile()
    assert scene.renewed() == living | {"sibling"}


def test_with_upsert_only_what_stays_at_another_eureka_lapses() -> None:
    """An instance at the former Eureka is no longer renewed once it is registered at the new one."""
    scene = Scene(policy="UpsertOnly")
    scene.endpoints(WEB, a=READY)
    scene.reconcile()
    scene.edited(eureka="elsewhere")
    scene.reconcile()
    assert (scene.renewed(), scene.renewed(scene.elsewhere)) == ({"a"}, {"a"})  # it may be the same one
    scene.reconcile()
    assert (scene.renewed(), scene.renewed(scene.elsewhere)) == (set(), {"a"})
    owner = Syncer.from_object(scene.syncer).owner(CLUSTER)
    assert scene.played.registry.table.instances_of_owner(owner)


RENAMED = ("shop", "ratings")


def add_second_syncer(scene: Scene, **spec: Any) -> None:
    """Add a second syncer for the same endpoints, which conflicts with the first one."""
    (syncers,) = scene.played.sources.syncers.reflectors
    metadata = {"namespace": "shop", "name": "ratings", "uid": "v", "finalizers": [FINALIZER]}
    syncers.apply_event("ADDED", {**scene.syncer, "metadata": metadata, "spec": {**scene.spec, **spec}})
    scene.reconcile(RENAMED)
    assert scene.sent == []
    assert "Conflict" in scene.report.problems


def mark_deleted(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mark the first syncer as deleted."""
    monkeypatch.setattr(reconciler, "set_finalizer", lambda *_, **__: None)
    (syncers,) = scene.played.sources.syncers.reflectors
    before: dict[str, Any] = scene.syncer["metadata"]
    metadata = {**before, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    syncers.apply_event("MODIFIED", {**scene.syncer, "metadata": metadata})


def test_a_renamed_syncer_leaves_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deleted syncer hands the instances that a second syncer wants over unchanged, with a person's
    status.
    """
    scene = Scene()
    scene.endpoints(WEB, a=READY, b=READY, c=READY)
    scene.reconcile()
    view = scene.played.registry.table
    old, new = (str(ClusterOwner(CLUSTER.name, *key)) for key in (KEY, RENAMED))
    held = {one.instance_id.partition(".")[0]: one for one in view.instances_of_owner(old)}
    by_a_person = replace(held["b"], status=Status.OUT_OF_SERVICE, overridden_status=Status.OUT_OF_SERVICE)
    view.store_written_and_return_previous(by_a_person)
    scene.sent.clear()
    add_second_syncer(scene, policy="UpsertOnly")
    scene.endpoints(WEB, a=READY, b=READY)
    mark_deleted(scene, monkeypatch)
    sent = {(one.action, one.instance.instance_id.partition(".")[0]) for one in scene.reconcile()}
    assert sent == {(Action.UPDATE, "a"), (Action.UPDATE, "b"), (Action.DEREGISTER, "c")}
    after = {one.instance_id.partition(".")[0]: one for one in view.instances_of_owner(new)}
    assert {pod: one.status for pod, one in after.items()} == {"a": Status.UP, "b": Status.OUT_OF_SERVICE}
    assert scene.renewed() == {"a", "b"}
    assert RENAMED in scene.result.syncers_to_reconcile
    scene.sent.clear()
    scene.reconcile(RENAMED)
    assert [one.action for one in scene.sent] == []
    assert scene.report.is_synced


@pytest.mark.parametrize("policy", ["Sync", "UpsertOnly"])
def test_what_a_syncer_gives_up_passes_to_who_wants_it(policy: str) -> None:
    """A syncer that changes its application hands over the instances that a second syncer wants."""
    scene = Scene(policy=policy)
    scene.endpoints(WEB, a=READY, b=READY)
    scene.reconcile()
    old, new = (str(ClusterOwner(CLUSTER.name, *key)) for key in (KEY, RENAMED))
    scene.sent.clear()
    add_second_syncer(scene)
    scene.edited(application="stars")
    scene.configure(publish=frozenset({("shop", "stars")}))
    found = scene.reconcile()
    assert sorted(one.action for one in found) == [Action.REGISTER] * 2 + [Action.UPDATE] * 2
    view = scene.played.registry.table
    assert {one.application for one in view.instances_of_owner(old)} == {"STARS"}
    assert {one.instance_id.partition(".")[0] for one in view.instances_of_owner(new)} == {"a", "b"}
    assert len(scene.played.registry.renewals) == 4
    assert RENAMED in scene.result.syncers_to_reconcile


@pytest.mark.parametrize("spec", [{"paused": True}, {"port": "none"}])
def test_a_syncer_that_is_not_sure_gives_nothing_away(spec: dict[str, Any]) -> None:
    """A syncer that is paused or in doubt keeps its instances, although a second syncer wants them."""
    scene = Scene()
    scene.set_endpoints(a=READY)
    add_second_syncer(scene)
    scene.edited(**{"mode": "service", **spec})
    assert scene.reconcile() == []
    owner = str(ClusterOwner(CLUSTER.name, *KEY))
    assert len(scene.played.registry.table.instances_of_owner(owner)) == 1


def test_a_dry_run_shows_what_passes_to_another_syncer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The report shows the new owner, and no removal, for an instance that is handed over."""
    scene = Scene()
    scene.set_endpoints(a=READY, b=READY)
    add_second_syncer(scene)
    scene.endpoints(WEB, a=READY)
    mark_deleted(scene, monkeypatch)
    run_report = RunReport(is_once=True, is_dry=True)
    recorded = {
        name: RecordingRegistry(one, name, run_report) for name, one in scene.played.registries.items()
    }
    scene.played.registry.apply = recorded["default"].apply  # type: ignore[method-assign]
    scene.elsewhere.apply = recorded["elsewhere"].apply  # type: ignore[method-assign]
    scene.reconcile()
    scene.reconcile()
    old, new = (str(ClusterOwner(CLUSTER.name, *key)) for key in (KEY, RENAMED))
    run_report.print({KEY: old}, {}, frozenset({KEY}))
    assert capsys.readouterr().out.splitlines() == [
        f"{old}:",
        f"  ~ RATING a.shop.lab:rating:8080 metadata.eurekube.owner: {old} -> {new}",
        "  - RATING b.shop.lab:rating:8080",
        "  1 to update, 1 to deregister",
        "  would be released: it was deleted, and waits for an operator to let it go",
    ]


@pytest.mark.parametrize("is_deleted", [True, False])
def test_what_is_found_while_others_are_asked_is_offered_as_well(
    is_deleted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An instance that is first read while another one is handed over passes to the second syncer at the
    next reconcile.
    """
    scene = Scene()
    scene.set_endpoints(a=READY, b=READY)
    add_second_syncer(scene)
    view = scene.played.registry.table
    (late,) = [one for one in view.instances_of_application("rating") if one.instance_id.startswith("b.")]
    view.store_confirmed_absence(late.key)
    if is_deleted:
        mark_deleted(scene, monkeypatch)
    else:
        scene.edited(selector={"app": "none"})
    released: list[bool] = []
    monkeypatch.setattr(reconciler, "set_finalizer", lambda *_, **__: released.append(True))
    carry_out = scene.carry_out

    def finds(steps: Plan, owner: str, registry: EurekaRegistry) -> PlanOutcome:
        if not scene.sent:
            view.store_written_and_return_previous(late)
        return carry_out(steps, owner, registry)

    scene.carry_out = finds
    looks = [scene.reconcile()]
    assert view.get(late.key) is not None
    assert KEY in scene.result.syncers_to_reconcile
    scene.carry_out = carry_out
    looks.append(scene.reconcile())
    assert [one.action for look in looks for one in look] == [Action.UPDATE] * 2
    owners = {one.owner for one in view.instances_of_application("rating")}
    assert owners == {str(ClusterOwner(CLUSTER.name, *RENAMED))}
    assert released == ([True] if is_deleted else [])


@pytest.mark.parametrize(
    ("is_read", "asks"),
    [
        (True, {"metadataFromPodLabels": ["version"]}),
        (False, {"metadataFromPodLabels": ["version"]}),
        (False, {"advertise": "HostPort"}),
    ],
)
@pytest.mark.parametrize("waits_at_once", [True, False])
def test_what_another_syncer_may_want_waits_until_that_is_known(
    waits_at_once: bool, is_read: bool, asks: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deletion waits for the first list of pods, which tells what a second syncer wants; without a list the
    instance is handed over unchanged.
    """
    monkeypatch.setattr(heirs, "LONGEST_WAIT_SECONDS", 20.0 if is_read else 0.5)
    api = QuietApi(monkeypatch)
    api.lists_answer.clear()
    scene = Scene()
    scene.played.registry.refresh = lambda *_, **__: None  # type: ignore[method-assign]
    scene.reconciler = scene.played.configured(scene.played.parts.settings, reads_each_instance=waits_at_once)
    scene.set_endpoints(a=READY)
    (syncers,) = scene.played.sources.syncers.reflectors
    metadata = {"namespace": "shop", "name": "ratings", "uid": "v", "finalizers": [FINALIZER]}
    syncers.apply_event("ADDED", {**scene.syncer, "metadata": metadata, "spec": {**scene.spec, **asks}})
    mark_deleted(scene, monkeypatch)
    released: list[Any] = []
    monkeypatch.setattr(reconciler, "set_finalizer", lambda *_, **__: released.append(True))
    if is_read:
        threading.Timer(0.5, api.lists_answer.set).start()
    found = scene.reconcile()
    if not waits_at_once:
        assert (found, released, scene.renewed()) == ([], [], {"a"})
        while not found:
            assert scene.result.requeue_after_seconds is not None
            time.sleep(scene.result.requeue_after_seconds)
            found = scene.reconcile()
    scene.played.sources.stop()
    api.end()
    assert [one.action for one in found] == [Action.UPDATE]
    assert released == [True]
    assert scene.renewed() == {"a"}
    scene.reconcile(RENAMED)
    (held,) = scene.played.registry.table.instances_of_owner(str(ClusterOwner(CLUSTER.name, *RENAMED)))
    assert held.status is Status.UP


def test_a_wait_that_ran_out_shortens_no_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pods of a second syncer cannot be read twice, minutes apart: both times a removal waits for five
    seconds.
    """
    scene, now = Scene(), 0.0
    scene.set_endpoints(a=READY)
    scene.played.syncer("ratings", spec={**scene.spec, "metadataFromPodLabels": ["version"]})
    monkeypatch.setattr(heirs, "boot_clock_seconds", lambda: now)
    scene.edited(selector={"app": "none"})
    awaited = {}
    scene.configure()
    scene.carry_out = lambda steps, *_: PlanOutcome.of(
        steps.changes, [RegistryUnreachable("away")] * len(steps.changes)
    )
    for now in (0.0, 4.0, 6.0, 20.0, 100.0, 104.0, 106.0):
        scene.reconcile()
        awaited[now] = scene.result.requeue_after_seconds == NEXT_OWNER_POLL_SECONDS
    scene.played.sources.stop()
    assert [at for at, waits_on in awaited.items() if waits_on] == [0.0, 4.0, 100.0, 104.0]


@pytest.mark.parametrize("spec", [{"paused": True}, {"eureka": "elsewhere"}])
def test_nothing_passes_to_a_syncer_that_does_not_register_it(
    spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deleted syncer's instances leave if the second syncer is paused or names another Eureka; the second
    is reconciled at once.
    """
    scene = Scene()
    scene.set_endpoints(a=READY)
    add_second_syncer(scene)
    (syncers,) = scene.played.sources.syncers.reflectors
    other = syncers.get(*RENAMED)
    assert other is not None
    syncers.apply_event("MODIFIED", {**other, "spec": {**other["spec"], **spec}})
    mark_deleted(scene, monkeypatch)
    assert [one.action for one in scene.reconcile()] == [Action.DEREGISTER]
    assert RENAMED in scene.result.syncers_to_reconcile


@pytest.mark.parametrize("is_handed_over", [True, False])
def test_a_deletion_ends_no_renewal_of_another_syncers(
    is_handed_over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Repeated reconciles of a deleted syncer do not end the renewals of a second syncer with the same
    instances.
    """
    scene = Scene()
    eureka = scene.real()
    scene.set_endpoints(a=READY, b=READY)
    add_second_syncer(scene)
    if is_handed_over:
        mark_deleted(scene, monkeypatch)
        scene.reconcile()  # what then fails, say to let the finalizer go, is tried again
    else:
        monkeypatch.setattr(reconciler, "set_finalizer", lambda *_, **__: None)
        (syncers,) = scene.played.sources.syncers.reflectors
        other = syncers.get(*RENAMED)
        assert other is not None
        syncers.apply_event(
            "MODIFIED", {**other, "metadata": {**other["metadata"], "deletionTimestamp": "x"}}
        )
    for key in (RENAMED, KEY) if is_handed_over else (RENAMED,):
        scene.reconcile(key)
    assert scene.renewed() == {"a", "b"}
    heir = RENAMED if is_handed_over else KEY
    assert {one.owner for one in eureka.held.values()} == {str(ClusterOwner(CLUSTER.name, *heir))}


def test_nothing_moves_between_two_connections_to_one_eureka(monkeypatch: pytest.MonkeyPatch) -> None:
    """A removal at one connection would remove the instance at both; only instances of terminating pods
    are removed.
    """
    monkeypatch.setattr(registries, "REPLICATION_WAIT_SECONDS", 0.0)
    scene = Scene()
    both = (scene.played.registry, scene.elsewhere)
    eureka = scene.real(*both)
    scene.endpoints(WEB, a=READY, b=READY)
    scene.reconcile()
    for spec in ({}, {"metadata": {"color": "red"}}, {"eureka": "elsewhere"}, {"eureka": "default"}):
        for registry in both:
            registry.reader.process_list(list(eureka.held.values()), is_complete=True)
        scene.edited(**spec)
        assert all(change.action is not Action.DEREGISTER for change in scene.reconcile())
        assert {instance_id[0] for _, instance_id in eureka.held} == {"a", "b"}
        assert scene.result.syncers_to_reconcile == frozenset()
    scene.endpoints(WEB, a=TERMINATING, b=READY)
    scene.reconcile()
    assert {instance_id[0] for _, instance_id in eureka.held} == {"b"}


def test_a_move_waits_until_it_is_known_that_it_is_one() -> None:
    """Two connections may lead to one Eureka: a recent write may not be visible at the second, and silence
    proves nothing.
    """
    scene = Scene()
    scene.set_endpoints(a=READY)
    registry, elsewhere = scene.played.registry, scene.elsewhere
    (here,) = registry.table.instances_of_owner(str(ClusterOwner(CLUSTER.name, *KEY)))
    now = int(time.time() * 1000)
    elsewhere.table.store_written_and_return_previous(replace(here, last_dirty_timestamp_ms=now - 60_000))

    def written(seconds_ago: float) -> list[Action]:
        stamp = now - int(seconds_ago * 1000)
        registry.table.store_written_and_return_previous(replace(here, last_dirty_timestamp_ms=stamp))
        return [change.action for change in scene.reconcile()]

    assert written(1.0) == []
    assert scene.result.requeue_after_seconds == REPLICATION_WAIT_SECONDS
    answers, elsewhere.refresh = elsewhere.refresh, silent  # type: ignore[method-assign]
    assert written(30.0) == []
    assert isinstance(scene.result.error, RegistryUnreachable)
    elsewhere.refresh = answers  # type: ignore[method-assign]
    for _ in range(LASTING_FAILURE_COUNT):
        elsewhere.reachability.note_failure_and_check_lasting(RegistryUnreachable("no server answers"))
    with pytest.raises(RegistryUnreachable):  # nor may it answer before what is decided is carried out
        Registries({"default": registry, "elsewhere": elsewhere}, "default", set()).lead_to_same_eureka(
            "default", "elsewhere", [here.key]
        )
    elsewhere.reachability.note_read_and_check_first()
    assert written(30.0) == [Action.DEREGISTER]


def test_what_is_not_registered_yet_moves_nowhere() -> None:
    """A Eureka that restarted empty gets all instances again, although another connection still lists
    them.
    """
    scene = Scene()
    both = (scene.played.registry, scene.elsewhere)
    eureka = scene.real(*both)
    scene.endpoints(WEB, a=READY, b=READY, c=READY, d=READY, e=READY)
    scene.reconcile()
    scene.elsewhere.reader.process_list(list(eureka.held.values()), is_complete=True)
    for key in list(eureka.held):
        scene.played.registry.table.store_confirmed_absence(key)
    eureka.held.clear()
    for _ in range(3):
        scene.reconcile()
        assert {instance_id[0] for _, instance_id in eureka.held} == set("abcde")


def silent(*_: Any, **__: Any) -> None:
    """Raise the error of a registry without a server that answers."""
    raise RegistryUnreachable("no server answers")


def test_what_cannot_be_handed_over_keeps_nothing_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """When one Eureka refuses the hand-over, its instances stay, and those left at another Eureka are
    removed.
    """
    scene = Scene()
    scene.endpoints(WEB, a=READY)
    scene.reconcile()
    owner = Syncer.from_object(scene.syncer).owner(CLUSTER)
    for instance in scene.played.registry.table.instances_of_owner(owner):
        scene.elsewhere.table.store_written_and_return_previous(instance)
    scene.sent.clear()
    add_second_syncer(scene)
    mark_deleted(scene, monkeypatch)
    carry_out = scene.carry_out

    def fails(steps: Plan, owner: str, registry: EurekaRegistry) -> PlanOutcome:
        if registry is scene.elsewhere:
            return carry_out(steps, owner, registry)
        return PlanOutcome.of(steps.changes, [RegistryUnreachable("away")] * len(steps.changes))

    scene.carry_out = fails
    scene.reconcile()
    assert "away" in str(scene.result.error)
    assert scene.elsewhere.table.instances_of_owner(owner) == []
    assert len(scene.played.registry.table.instances_of_owner(owner)) == 1


def test_who_comes_to_lead_waits_for_nodes_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new leader waits for a current list of nodes, so that no removed node's address comes back, or for
    its denial.
    """
    monkeypatch.setattr(reflector, "FIRST_RETRY_DELAY_SECONDS", 3600.0)
    monkeypatch.setattr(reflector, "LONGEST_RETRY_DELAY_SECONDS", 3600.0)
    api, scene = QuietApi(monkeypatch), Scene(mode="service", advertise="NodePort")
    sources = scene.played.sources
    sources.start()
    wait_until(lambda: api.lists["nodes"] and sources.is_current, "all lists", 20)
    assert "reflector-nodes-all" in [loop.name for loop in sources.liveness()]
    api.refuse("nodes", 500)
    wait_until(lambda: not sources.is_current, "the end of the watch", 20)
    lists = api.lists["nodes"]
    api.refuse("nodes", 403)
    sources.retry_now()
    wait_until(lambda: sources.is_current, "the denial", 20)
    assert api.lists["nodes"] == lists + 1
    sources.stop()
    api.end()


def test_a_service_without_an_address_is_down_while_none_is_ready() -> None:
    """An instance at the cluster IP stays while a load balancer's address is awaited, and is DOWN without
    a ready pod.
    """
    scene = Scene(mode="service")
    (services,) = scene.played.sources.services.reflectors
    service = {"metadata": {"namespace": "shop", "name": "rating", "labels": {"app": "rating"}}}
    spec = {"clusterIP": "10.96.0.9", "ports": WEB}
    services.apply_event("MODIFIED", {**service, "spec": spec})
    scene.set_endpoints(a=READY)
    services.apply_event("MODIFIED", {**service, "spec": {**spec, "type": "LoadBalancer"}})
    assert scene.reconcile() == []
    for pods, status in (({"a": {"ready": False}}, Status.DOWN), ({}, None), ({"b": READY}, Status.UP)):
        scene.endpoints(WEB, **pods)
        steps = [(one.action, one.instance.status, one.instance.ip_address) for one in scene.reconcile()]
        assert steps == ([(Action.UPDATE, status, "10.96.0.9")] if status else [])
        assert scene.report.ready.reason == ("InstancesUp" if status is Status.UP else "NoAddress")


def test_another_selected_services_instances_leave_after_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An earlier version registered the pods of both Services: the brake holds their removal for a minute.

    If as many pods come as go, the two Services have changed places, and the change is made at once.
    """
    scene = Scene()
    (services,) = scene.played.sources.services.reflectors
    (slices,) = scene.played.sources.slices.reflectors
    scene.set_endpoints(a=READY, b=READY, c=READY, d=READY)

    def canary(**pods: str) -> None:
        metadata = {"namespace": "shop", "name": "rating-canary", "labels": {"app": "rating"}}
        services.apply_event("MODIFIED", {"metadata": metadata, "spec": {"selector": {"track": "canary"}}})
        endpoints = [
            {"addresses": [address], "conditions": READY, "targetRef": {"kind": "Pod", "name": pod}}
            for pod, address in pods.items()
        ]
        labels = {"kubernetes.io/service-name": "rating-canary"}
        of_slice = {"namespace": "shop", "name": "rating-canary-1", "labels": labels}
        found = {"metadata": of_slice, "addressType": "IPv4", "ports": WEB, "endpoints": endpoints}
        slices.apply_event("MODIFIED", found)

    start = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: start + LOSS_WINDOW_SECONDS + 1)
    canary(c="10.0.0.3", d="10.0.0.4")
    scene.endpoints(WEB, a=READY, b=READY)
    assert scene.reconcile() == []
    assert "2 of 4 instances" in str(scene.report.problems["Braked"])
    assert len(scene.renewed()) == 4
    monkeypatch.setattr(time, "monotonic", lambda: start + LOSS_WINDOW_SECONDS + BRAKE_HOLD_SECONDS + 2)
    assert {one.instance.instance_id[0] for one in scene.reconcile()} == {"c", "d"}
    canary(a="10.0.0.1", b="10.0.0.2")
    scene.endpoints(WEB, e=READY, f=READY)
    assert len(scene.reconcile()) == 4


def test_a_rolling_update_with_ambiguous_services() -> None:
    """A new pod that replaces a registered one of the same Service is registered; the other Service's pods
    are not.
    """
    scene = Scene()
    (services,) = scene.played.sources.services.reflectors
    (slices,) = scene.played.sources.slices.reflectors
    service = {"metadata": {"namespace": "shop", "name": "rating", "labels": {"app": "rating"}}, "spec": {}}
    scene.set_endpoints(a=READY)
    services.apply_event("DELETED", service)
    active: dict[str, Any] = {}
    for name, address in (("active", "10.0.0.1"), ("preview", "10.0.1.1")):
        metadata: dict[str, Any] = {"namespace": "shop", "name": name, "labels": {"app": "rating"}}
        services.apply_event(
            "MODIFIED", {"metadata": metadata, "spec": {"ports": WEB, "selector": {"of": name}}}
        )
        metadata = {"namespace": "shop", "name": name, "labels": {SERVICE_NAME_LABEL: name}}
        target = {"kind": "Pod", "name": "a" if name == "active" else "green"}
        one = {"addresses": [address], "conditions": READY, "targetRef": target}
        found = {"metadata": metadata, "addressType": "IPv4", "ports": WEB, "endpoints": [one]}
        slices.apply_event("MODIFIED", found)
        if name == "active":
            active = found
    scene.endpoints(WEB)
    assert scene.reconcile() == []
    assert "AmbiguousService" in scene.report.problems
    ends = {**active["endpoints"][0], "conditions": TERMINATING}
    comes = {"addresses": ["10.0.0.2"], "conditions": READY, "targetRef": {"kind": "Pod", "name": "b"}}
    slices.apply_event("MODIFIED", {**active, "endpoints": [active["endpoints"][0], comes]})
    assert [(one.action, one.instance.ip_address) for one in scene.reconcile()] == [
        (Action.REGISTER, "10.0.0.2")
    ]
    slices.apply_event("MODIFIED", {**active, "endpoints": [ends, comes]})
    assert [one.action for one in scene.reconcile()] == [Action.DEREGISTER]
    assert scene.renewed() == {"b"}


OTHERS = ("other", "rating")
"""The key of a syncer of another namespace that registers the same application."""


def instances_of_other_syncer(scene: Scene) -> list[Instance]:
    """Register an instance of OTHERS at an address of its own, and return it."""
    theirs = [
        replace(one, ip_address="10.1.0.1") for one in scene.played.instances(OTHERS, 1, registered=False)
    ]
    for one in theirs:
        scene.played.registry.table.store_written_and_return_previous(one)
    return theirs


def test_a_namespace_does_not_take_the_name_of_another() -> None:
    """A syncer registers nothing under a name that another namespace's instances have; Conflict names
    their owner.
    """
    scene = Scene()
    theirs = instances_of_other_syncer(scene)
    scene.endpoints(WEB, a=READY)
    assert scene.reconcile() == []
    found = scene.report
    assert found.synced.reason == "Conflict"
    assert "instances of other/rating" in found.problems["Conflict"].text
    assert "--reserve other=rating,shop=rating" in found.problems["Conflict"].text
    for one in theirs:
        scene.played.registry.table.store_confirmed_absence(one.key)
    assert len(scene.reconcile()) == 1


def test_a_vip_address_is_a_name_as_well() -> None:
    """A syncer must not register its application with a VIP address that another namespace's application
    has.
    """
    scene = Scene(application="mine", vipAddress="mine,rating")
    scene.configure(publish=frozenset({("*", "*")}))
    instances_of_other_syncer(scene)
    scene.endpoints(WEB, a=READY)
    assert scene.reconcile() == []


@pytest.mark.parametrize(
    "status",
    [
        {"names": ["rating"]},
        {"application": "RATING", "lastSyncTime": "2026-01-02T03:04:05Z"},
    ],
)
def test_namespaces_that_share_a_name_already_go_on(status: dict[str, Any]) -> None:
    """A syncer whose status shows the name, also in an older operator's form, keeps it without instances
    in Eureka.
    """
    scene = Scene()
    scene.edited(status=status)
    instances_of_other_syncer(scene)
    scene.endpoints(WEB, a=READY)
    assert len(scene.reconcile()) == 1
    assert scene.report.claimed_names == frozenset({"rating"})


def test_who_is_called_by_a_name_may_register_more() -> None:
    """A syncer with instances of the name in Eureka may add more, although another namespace shares the
    name.
    """
    scene = Scene()
    scene.endpoints(WEB, a=READY)
    scene.reconcile()
    instances_of_other_syncer(scene)
    scene.endpoints(WEB, a=READY, b=READY)
    assert len(scene.reconcile()) == 1


def test_a_name_is_not_claimed_by_nothing() -> None:
    """A syncer that never had an instance has no claim to its application's name."""
    scene = Scene()
    scene.endpoints(WEB)
    scene.reconcile()
    assert scene.report.claimed_names == frozenset()


@pytest.mark.parametrize(
    ("pairs", "is_let_in"),
    [
        ({("shop", "rating"), ("other", "rating")}, True),
        ({("*", "*")}, True),
        ({("other", "rating")}, False),
        ({("other", "rat*"), ("*", "*")}, False),
    ],
)
def test_reserved_names(pairs: set[tuple[str, str]], is_let_in: bool) -> None:
    """A reserved name is shared by the namespaces it is reserved for, and closed to others, whoever
    registers first.
    """
    for is_taken in (True, False):
        scene = Scene()
        scene.configure(reserve=frozenset(pairs))
        if is_taken:
            instances_of_other_syncer(scene)
        scene.endpoints(WEB, a=READY)
        assert len(scene.reconcile()) == is_let_in


def test_what_is_registered_under_a_name_that_is_reserved_now_stays() -> None:
    """Instances of a namespace that a new reservation leaves out are kept, and none is added."""
    scene = Scene()
    scene.endpoints(WEB, a=READY)
    scene.reconcile()
    scene.configure(reserve=frozenset({("other", "rating")}))
    scene.endpoints(WEB, a=READY, b=READY)
    assert scene.reconcile() == []
    assert scene.renewed() == {"a"}
    assert scene.report.synced.reason == "NotAllowed"


def test_what_a_deleted_syncer_left_at_two_eurekas() -> None:
    """While one Eureka is unreachable, the instances at the other one are removed at once."""
    scene = Scene()
    scene.endpoints(WEB, a=READY, b=READY)
    scene.reconcile()
    owner = Syncer.from_object(scene.syncer).owner(CLUSTER)
    for instance in scene.played.registry.table.instances_of_owner(owner):
        scene.elsewhere.table.store_written_and_return_previous(instance)
    for _ in range(2):
        scene.played.registry.reachability.note_failure_and_check_lasting(RegistryUnreachable("hangs"))
    scene.played.removed(KEY)
    scene.reconcile(served="elsewhere")
    assert "hangs" in str(scene.result.error)
    assert (len(scene.sent), scene.elsewhere.table.instances_of_owner(owner)) == (2, [])
    assert len(scene.played.registry.table.instances_of_owner(owner)) == 2
    assert scene.played.controller.worker_group_of(KEY) == "default"


class Deletion:
    """A deleted syncer; a test sets the clock, and has Eureka or the API server fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.scene, self.now, self.api_fails = Scene(), 0.0, False
        self._taken = self.scene.carry_out
        self.scene.set_endpoints(a=READY)
        mark_deleted(self.scene, monkeypatch)
        self.released: list[float] = []
        self.away(is_away=True)
        monkeypatch.setattr(reconciler, "boot_clock_seconds", lambda: self.now)
        monkeypatch.setattr(reconciler, "set_finalizer", self.release)

    def away(self, *, is_away: bool) -> None:
        """Make every Eureka server unreachable from now on, or reachable again."""

        def fails(steps: Plan, *_: object) -> PlanOutcome:
            return PlanOutcome.of(steps.changes, [RegistryUnreachable("away")] * len(steps.changes))

        self.scene.carry_out = fails if is_away else self._taken

    def reconcile(self, now: float) -> str:
        """Reconcile the syncer at this time; return the note on what it left behind, if any."""
        self.now = now
        self.scene.reconcile()
        ended = self.scene.result.completed_deletion
        return ended.left_behind_note if ended else ""

    def release(self, *_: Any, **__: Any) -> None:
        """Record that the finalizer is removed, or fail as the API server."""
        if self.api_fails:
            raise KubernetesError("busy", status_code=503)
        self.released.append(self.now)


def test_a_deleted_syncer_waits_for_as_long_as_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The finalizer waits ten minutes for an unreachable Eureka, then goes, so that its namespace can be
    deleted.
    """
    deletion = Deletion(monkeypatch)
    deletion.reconcile(0)
    assert deletion.scene.result.requeue_after_seconds == 600.0
    assert deletion.reconcile(599) == ""
    assert deletion.released == []
    note = deletion.reconcile(601)
    assert deletion.released == [601]
    assert "Eureka could not be asked for 601 s (away); left behind: RATING a.shop.lab:rating:8080" in note
    assert deletion.scene.renewed() == set()


def test_a_round_that_waits_for_another_syncer_keeps_its_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reconcile that asks no Eureka does not restart the ten minutes."""
    deletion = Deletion(monkeypatch)
    deletion.reconcile(0)
    with monkeypatch.context() as patched:
        patched.setattr(heirs.NextOwnerSearch, "find_next_owners", lambda *_: None)
        deletion.reconcile(300)
    assert deletion.scene.result.error is None
    assert deletion.reconcile(599) == ""
    assert "Eureka could not be asked for 601 s" in deletion.reconcile(601)


def test_an_api_failure_at_the_release_keeps_the_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """When the API server fails to remove the finalizer, the next reconcile removes it."""
    deletion = Deletion(monkeypatch)
    deletion.reconcile(0)
    deletion.api_fails = True
    deletion.reconcile(601)
    assert isinstance(deletion.scene.result.error, KubernetesError)
    deletion.api_fails = False
    deletion.reconcile(602)
    assert deletion.released == [602]


@pytest.mark.parametrize("is_away", [False, True])
def test_a_wait_is_over_with_its_syncer(is_away: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later syncer of the same name waits the full ten minutes for Eureka."""
    deletion = Deletion(monkeypatch)
    deletion.reconcile(0)
    deletion.away(is_away=is_away)
    deletion.scene.played.removed(KEY)  # its finalizer was removed by hand
    deletion.reconcile(1)
    deletion.away(is_away=False)
    deletion.scene.edited()
    deletion.scene.set_endpoints(a=READY)
    deletion.away(is_away=True)
    mark_deleted(deletion.scene, monkeypatch)
    monkeypatch.setattr(reconciler, "set_finalizer", deletion.release)
    assert deletion.reconcile(6000) == ""
    assert deletion.released == []


def test_a_person_lets_a_deleted_syncer_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """The annotation ``eurekube.io/force-delete`` removes the finalizer at once; the instances left are no
    longer renewed.
    """
    deletion = Deletion(monkeypatch)
    scene = deletion.scene
    (syncers,) = scene.played.sources.syncers.reflectors
    annotations = {FORCE_DELETE_ANNOTATION: ""}
    metadata = {**scene.syncer["metadata"], "deletionTimestamp": "x", "annotations": annotations}
    syncers.apply_event("MODIFIED", {**scene.syncer, "metadata": metadata})
    assert "the annotation eurekube.io/force-delete asks for it" in deletion.reconcile(1)
    assert (deletion.released, scene.sent, scene.renewed()) == ([1], [], set())


@pytest.mark.parametrize("fails", [False, True])
def test_a_person_releases_the_brake(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The release annotation lets held removals go and is taken off."""
    bodies: list[Any] = []

    def request(_: object, method: str, path: str, **more: Any) -> None:
        assert (method, path.rpartition("/")[2]) == ("PATCH", "rating")
        bodies.append(more["body"])
        if fails:
            raise KubernetesError("forbidden", status_code=403)

    monkeypatch.setattr(KubeAccess, "request", request)
    scene = Scene()
    scene.set_endpoints(a=READY, b=READY)
    scene.endpoints(WEB)
    assert scene.reconcile() == []
    assert bodies == []
    (syncers,) = scene.played.sources.syncers.reflectors
    metadata = {**scene.syncer["metadata"], "annotations": {RELEASE_BRAKE_ANNOTATION: "now"}}
    syncers.apply_event("MODIFIED", {**scene.syncer, "metadata": metadata})
    assert [one.action for one in scene.reconcile()] == [Action.DEREGISTER] * 2
    assert bodies == [{"metadata": {"annotations": {RELEASE_BRAKE_ANNOTATION: None}}}]


def test_a_release_that_comes_too_late_releases_nothing_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release annotation that finds nothing held, as after the brake's minute, is taken off, once all that
    is desired is known: the next removals are held.
    """
    bodies: list[Any] = []
    monkeypatch.setattr(KubeAccess, "request", lambda *_, **more: bodies.append(more["body"]))
    scene = Scene()
    scene.set_endpoints(a=READY, b=READY)
    (syncers,) = scene.played.sources.syncers.reflectors
    metadata = {**scene.syncer["metadata"], "annotations": {RELEASE_BRAKE_ANNOTATION: "now"}}
    annotated = {**scene.syncer, "metadata": metadata}
    syncers.apply_event("MODIFIED", {**annotated, "spec": {**annotated["spec"], "paused": True}})
    assert scene.reconcile() == []
    assert bodies == [], "a paused syncer holds what nobody can tell yet"
    syncers.apply_event("MODIFIED", annotated)
    assert scene.reconcile() == []
    assert bodies == [{"metadata": {"annotations": {RELEASE_BRAKE_ANNOTATION: None}}}]
    syncers.apply_event("MODIFIED", scene.syncer)
    scene.endpoints(WEB)
    assert scene.reconcile() == []


def test_who_may_not_write_begins_nothing() -> None:
    """A replica that may no longer write neither adds a finalizer nor registers, since another one may
    lead.
    """
    scene = Scene()
    scene.endpoints(WEB, a=READY)
    scene.played.may_write = False
    with pytest.raises(LeadershipLost):
        scene.reconcile()
    assert scene.sent == []
    scene.played.may_write = True
    assert [one.action for one in scene.reconcile()] == [Action.REGISTER]


@pytest.mark.parametrize("is_deleted", [False, True])
def test_nothing_is_changed_before_the_registry_was_read(
    is_deleted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first reading of Eureka, no instance is registered and no finalizer is removed."""
    scene = Scene()
    scene.endpoints(WEB, a=READY)
    if is_deleted:
        mark_deleted(scene, monkeypatch)
    scene.played.registry.reachability = Reachability(scene.played.registry.peers)
    scene.reconcile()
    assert "has not been read yet" in str(scene.result.error)
    assert scene.sent == []


def test_a_syncer_whose_namespace_cannot_be_read_is_not_deleted() -> None:
    """A syncer missing from an incomplete list may exist in the cluster: its instances stay and are
    renewed.
    """
    scene = Scene(unread="syncers")
    scene.endpoints(WEB, a=READY)
    scene.reconcile()
    scene.played.removed(KEY)
    for instance in scene.played.registry.renewals.renewed_instances():
        scene.played.registry.renewals.remove(instance.key)
    assert scene.reconcile() == []
    assert scene.renewed() == {"a"}
    scene.read(scene.played.sources.syncers)
    assert [one.action for one in scene.reconcile()] == [Action.DEREGISTER]


@pytest.mark.parametrize("comes_back", [False, True])
def test_what_a_syncer_has_that_vanished_undeleted_stays_for_a_minute(
    monkeypatch: pytest.MonkeyPatch, *, comes_back: bool
) -> None:
    """The finalizer keeps a deleted syncer: without a deletion it vanishes by a restore from a backup alone,
    and its pods serve on.
    """
    scene = Scene()
    scene.endpoints(WEB, a=READY, b=READY)
    scene.reconcile()
    scene.played.vanished(KEY)
    assert scene.reconcile() == []
    assert scene.renewed() == {"a", "b"}
    if comes_back:
        scene.edited()
    monkeypatch.setattr(sources, "BRAKE_HOLD_SECONDS", 0.0)
    assert [one.action for one in scene.reconcile()] == ([] if comes_back else [Action.DEREGISTER] * 2)


def test_a_namespace_that_was_not_read_says_nothing_of_its_endpoints() -> None:
    """Before the first list of EndpointSlices the registered instances stay, and Synced says
    NamespaceNotRead.
    """
    scene = Scene(unread="slices")
    scene.played.instances(KEY, 2)
    scene.endpoints(WEB)
    assert scene.reconcile() == []
    assert scene.renewed() == {"rating-0", "rating-1"}
    assert scene.report.synced.reason == "NamespaceNotRead"


def test_what_a_paused_syncer_had_comes_back_as_it_stood(monkeypatch: pytest.MonkeyPatch) -> None:
    """After Eureka lost its memory a paused syncer restores its old instances, without its spec's later
    changes.
    """
    scene = Scene()
    scene.endpoints(WEB, a=READY, b=READY)
    scene.reconcile()
    registry = scene.played.registry
    held = registry.table.instances_of_owner(str(ClusterOwner(CLUSTER.name, *KEY)))
    scene.edited(paused=True, metadata={"color": "red"})
    scene.endpoints(WEB, a=READY, b=TERMINATING, c=READY)
    monkeypatch.setattr(RestartDetection, "may_have_lost_memory", True)
    registry.repair.instances_missing(held, None)
    (kept,) = [one for one in held if one.instance_id.startswith("a.")]
    assert [(one.action, one.instance) for one in scene.reconcile()] == [(Action.REGISTER, kept)]
    assert "1 changes wait" in scene.report.ready.text  # to register c
    assert scene.reconcile() == []
    assert scene.renewed() == {"a"}


def test_what_moves_to_another_eureka_is_missed_by_nobody() -> None:
    """An instance leaves the first Eureka once it is registered at the second; with UpsertOnly it is not
    removed.
    """
    scene = Scene()
    scene.endpoints(WEB, a=READY)
    scene.reconcile()
    scene.edited(eureka="elsewhere", policy="UpsertOnly")
    assert [one.action for one in scene.reconcile()] == [Action.REGISTER]
    owner = Syncer.from_object(scene.syncer).owner(CLUSTER)
    (moved,) = scene.elsewhere.table.instances_of_owner(owner)
    scene.elsewhere.table.store_confirmed_absence(moved.key)
    scene.edited(policy="Sync")
    carry_out = scene.carry_out

    def refused(steps: Plan, owner: str, registry: EurekaRegistry) -> PlanOutcome:
        """Carry out removals only, as a Eureka that refuses registrations."""
        return carry_out(Plan(steps.of(Action.DEREGISTER)), owner, registry)

    scene.carry_out = refused
    scene.reconcile()
    assert len(scene.played.registry.table.instances_of_owner(owner)) == 1
    scene.carry_out = carry_out
    assert [one.action for one in scene.reconcile()] == [Action.REGISTER]
    assert scene.result.requeue_after_seconds == REPLICATION_WAIT_SECONDS  # both may be the same one
    assert [one.action for one in scene.reconcile()] == [Action.DEREGISTER]
    assert scene.played.registry.table.instances_of_owner(owner) == []


@pytest.mark.parametrize(
    ("spec", "flag"),
    [
        ({"application": "billing"}, "--publish shop=billing"),
        ({"vipAddress": "rating,billing"}, "--publish shop=billing"),
        ({"selector": {"app": "rating", "namespace": "other"}}, "--cross-namespace shop=other"),
    ],
)
def test_what_a_syncer_may_not_publish(spec: dict[str, Any], flag: str) -> None:
    """With strict names, or for another namespace's Services, a syncer needs a flag that allows the name."""
    scene = Scene(**spec)
    scene.configure(strict_names=True)
    scene.endpoints(WEB, a=READY)
    assert scene.reconcile() == []
    assert scene.report.synced.reason == "NotAllowed"
    assert flag in scene.report.problems["NotAllowed"].text


def register_under(scene: Scene, name: str, *pods: str, uid: str = CLUSTER.uid) -> None:
    """Add this syncer's instances under another cluster name to Eureka, without renewals."""
    for number, pod in enumerate(pods, 1):
        address, owner = f"10.0.0.{number}", str(ClusterOwner(name, *KEY))
        metadata = {OWNER_KEY: owner, CLUSTER_UID_KEY: uid}
        id_ = f"{pod}.shop.{name}:rating:8080"
        made = Instance("rating", id_, address, address, Port(8080), metadata=metadata, vip_address="rating")
        scene.played.registry.table.store_written_and_return_previous(made)


def held_by(scene: Scene, name: str) -> set[str]:
    """Return the ids of the syncer's instances under a name of the cluster."""
    return {
        one.instance_id for one in scene.played.registry.known_instances(owner=str(ClusterOwner(name, *KEY)))
    }


def test_instances_of_a_former_cluster_name_keep_their_ids() -> None:
    """Instances under a former name get the present name as owner and are renewed; new pods' ids have the
    present name.
    """
    scene = Scene()
    scene.played.previous_cluster_names = ("earlier",)
    scene.endpoints(WEB, a=READY, b=READY, c=READY)
    register_under(scene, "earlier", "a", "b")
    assert {(one.action, one.instance.instance_id, one.adopts) for one in scene.reconcile()} == {
        (Action.REGISTER, "c.shop.lab:rating:8080", False),
        (Action.UPDATE, "a.shop.earlier:rating:8080", True),
        (Action.UPDATE, "b.shop.earlier:rating:8080", True),
    }
    assert scene.result.syncers_to_reconcile == {KEY}
    ids = {"a.shop.earlier:rating:8080", "b.shop.earlier:rating:8080", "c.shop.lab:rating:8080"}
    assert held_by(scene, CLUSTER.name) == ids
    assert {one.action for one in scene.reconcile()} <= {Action.UPDATE}  # whatever else differs
    assert scene.reconcile() == []
    assert held_by(scene, CLUSTER.name) == ids
    assert scene.renewed() == {"a", "b", "c"}
    assert scene.report.is_synced
    scene.endpoints(WEB, a=TERMINATING, b=READY, c=READY)
    (left,) = scene.reconcile()
    assert (left.action, left.instance.instance_id) == (Action.DEREGISTER, "a.shop.earlier:rating:8080")
    scene.played.previous_cluster_names = ()  # whatever a later process remembers
    assert scene.reconcile() == []


def test_what_a_paused_syncer_has_under_a_former_name_counts() -> None:
    """A paused syncer takes no instance over, but counts those under a former name as registered."""
    scene = Scene()
    scene.played.previous_cluster_names = ("earlier",)
    scene.endpoints(WEB, a=READY, b=READY)
    register_under(scene, "earlier", "a", "b")
    scene.edited(paused=True)
    assert scene.reconcile() == []
    assert (scene.report.is_ready, scene.report.registered) == (True, 2)


def test_what_another_name_of_the_cluster_owns_is_renewed_and_said() -> None:
    """Instances under a name that the settings do not list as a former one stay unchanged, and Conflict
    names the flag.
    """
    scene = Scene()
    scene.endpoints(WEB, a=READY, c=READY)
    register_under(scene, "earlier", "a", "b")
    register_under(scene, "foreign", "d", uid="uid-2")
    assert [one.instance.instance_id for one in scene.reconcile()] == []
    assert scene.renewed() == {"a"}
    problem = scene.report.problems["Conflict"]
    assert "2 instances of this syncer under another name of this cluster, earlier" in problem.message
    assert "--previous-cluster-name earlier" in problem.remedy
    assert (scene.report.refused, scene.report.is_synced) == (2, False)
    scene.endpoints(WEB, a=TERMINATING, c=READY)
    scene.reconcile()
    assert scene.renewed() == set()
