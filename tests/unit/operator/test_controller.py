"""What the controller does with one syncer, on real parts that ask no server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from eurekube_provider.core.errors import (
    ConfigurationError,
    KubernetesError,
    LeadershipLost,
    RegistryUnreachable,
)
from eurekube_provider.core.identity import ClusterOwner
from eurekube_provider.core.mapping import Desired
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.objects import Problem
from eurekube_provider.core.plan import Action, Change, Outcome, Plan
from eurekube_provider.core.registry import Failing
from eurekube_provider.core.reservations import Reservations
from eurekube_provider.core.syncer import Syncer
from eurekube_provider.eureka import reachability
from eurekube_provider.eureka.apply import apply
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.eureka_registry import EurekaRegistry
from eurekube_provider.eureka.reachability import Reachability
from eurekube_provider.kube.access import KubeAccess
from eurekube_provider.operator import deletion, ownership_transfer, unresponsive
from eurekube_provider.operator.controller import WORKERS, Controller
from eurekube_provider.operator.deletion import FINALIZER
from eurekube_provider.operator.dry_run import Ledger, RecordedRegistry
from eurekube_provider.operator.index import SyncerKey
from lab.waiting import wait_until
from tests.unit.fake_eureka import FakeEureka, FakeServers
from tests.unit.operator.parts import CLUSTER, Told

KEY = ("shop", "rating")
WEB: list[dict[str, Any]] = [{"name": "web", "port": 8080}]
BOTH = [*WEB, {"name": "metrics", "port": 9090}]
READY, TERMINATING = {"ready": True}, {"ready": False, "terminating": True}


CarryOut = Callable[[Plan, str, EurekaRegistry], Outcome]


class Scene:
    """A syncer, its Service and endpoints; what would be sent to Eureka is taken as done."""

    def __init__(self, **spec: Any) -> None:
        self.told = Told(("default", "elsewhere"))
        self.elsewhere = self.told.registries["elsewhere"]
        self.sent: list[Change] = []
        controller = self.told.controller
        controller._sources = self.told.sources
        self.carry_out: CarryOut = self._taken_as_done
        for registry in (self.told.registry, self.elsewhere):
            registry.reachability.read()
            registry.apply = self._applies_at(registry)  # type: ignore[method-assign,assignment]
        sources = self.told.sources
        self.concerned: list[tuple[str, str]] = []
        sources._concerned = self.concerned.append
        for group in (sources.syncers, sources.services, sources.slices):
            for reflector in group.reflectors:
                reflector._synced.set()
        self.spec = {"mode": "pod", "selector": {"app": "rating"}, **spec}
        self.told.syncer("rating")
        self.edited()
        (services,) = sources.services.reflectors
        service = {"namespace": "shop", "name": "rating", "labels": {"app": "rating"}}
        services.take("ADDED", {"metadata": service, "spec": {}})

    def edited(self, *, status: dict[str, Any] | None = None, **spec: Any) -> None:
        """The syncer as it is from now on."""
        self.spec |= spec
        (syncers,) = self.told.sources.syncers.reflectors
        metadata = {"namespace": "shop", "name": "rating", "uid": "u", "finalizers": [FINALIZER]}
        kind = {"apiVersion": "eurekube.io/v1alpha1", "kind": "EurekaSyncer"}
        status = status or {}
        self.syncer: dict[str, Any] = {**kind, "metadata": metadata, "spec": self.spec, "status": status}
        syncers.take("MODIFIED", self.syncer)

    def serves(self, **pods: dict[str, bool]) -> None:
        """Its endpoints are registered, and what was sent for it is forgotten."""
        self.endpoints(WEB, **pods)
        self.look()
        self.sent.clear()

    def endpoints(self, ports: list[dict[str, Any]], **pods: dict[str, bool]) -> None:
        """The slice is so now."""
        (slices,) = self.told.sources.slices.reflectors
        endpoints = [
            {
                "addresses": [f"10.0.0.{number}"],
                "conditions": conditions,
                "targetRef": {"kind": "Pod", "name": name},
            }
            for number, (name, conditions) in enumerate(pods.items(), 1)
        ]
        labels = {"kubernetes.io/service-name": "rating"}
        metadata = {"namespace": "shop", "name": "rating-1", "labels": labels}
        slices.take(
            "MODIFIED",
            {"metadata": metadata, "addressType": "IPv4", "ports": ports, "endpoints": endpoints},
        )

    def look(self) -> list[Change]:
        """What a look at the syncer sends."""
        self.sent.clear()
        self.told.controller._reconcile(KEY)
        return list(self.sent)

    def real(self) -> FakeEureka:
        """Carry out from now on, at a server's stand-in."""
        eureka, registry = FakeEureka(), self.told.registry
        (peer,) = registry.peers.peers
        registry.peers.peers = FakeServers({peer.url: eureka})(Connection.parse(peer.url)).peers

        def carry_out(steps: Plan, owner: str, registry: EurekaRegistry) -> Outcome:
            self.sent += steps.changes
            return apply(steps, owner, registry.peers, registry)

        self.carry_out = carry_out
        return eureka

    def ready(self) -> tuple[bool | None, str]:
        """What the last look says of the condition Ready."""
        report = self.told.controller.looks[KEY].report
        return report.is_ready, report.reason

    def renewed(self, registry: EurekaRegistry | None = None) -> set[str]:
        """The pods whose instances are renewed."""
        held = (registry or self.told.registry).renewals.held()
        return {instance.instance_id.partition(".")[0] for instance in held}

    def _applies_at(self, registry: EurekaRegistry) -> Callable[[Plan, str], Outcome]:
        return lambda steps, owner: self.carry_out(steps, owner, registry)

    def _taken_as_done(self, steps: Plan, _owner: str, registry: EurekaRegistry) -> Outcome:
        for change in steps.changes:
            if change.action is Action.DEREGISTER:
                registry.leaving(change.instance)
                registry.gone(change.instance)
            else:
                registry.registered(change.instance)
        self.sent += steps.changes
        return Outcome(steps.changes)


@pytest.mark.parametrize("is_looked_at", [True, False])
def test_in_doubt_what_said_goodbye_goes_and_the_rest_stays(is_looked_at: bool) -> None:
    """A port that cannot be chosen says nothing of pods that were seen terminating, looked at then or not."""
    scene = Scene()
    scene.endpoints(WEB, a=READY, b=READY, c=READY)
    scene.look()
    assert scene.renewed() == {"a", "b", "c"}
    scene.endpoints(BOTH, a=READY, b=READY, c=READY)
    assert scene.look() == []
    scene.endpoints(BOTH, a=TERMINATING, b=TERMINATING, c=READY)
    if is_looked_at:
        scene.look()
    scene.endpoints(BOTH, d=READY)
    scene.look()
    assert scene.renewed() == {"c"}


REFUSED: dict[str, dict[str, Any]] = {
    "UnknownEureka": {"eureka": "defualt"},
    "NotAllowed": {"application": "orders"},
    "unreadable": {"mode": "pods"},
}


@pytest.mark.parametrize("is_looked_at", [True, False])
@pytest.mark.parametrize("refused", REFUSED)
def test_what_said_goodbye_leaves_a_refused_syncer(refused: str, is_looked_at: bool) -> None:
    """The rest stays and is renewed, nothing is registered, and Ready says why."""
    scene = Scene()
    scene.endpoints(WEB, a=READY, b=READY, c=READY)
    scene.look()
    scene.edited(**REFUSED[refused])
    assert scene.look() == []
    scene.concerned.clear()
    scene.endpoints(WEB, a=TERMINATING, b=TERMINATING, c=READY)
    assert scene.concerned == [KEY]
    if is_looked_at:
        scene.look()
    scene.endpoints(WEB, d=READY)  # c vanished without a goodbye
    scene.look()
    assert scene.renewed() == {"c"}
    assert scene.ready() == (False, "UnknownEureka" if refused == "UnknownEureka" else "NotAllowed")
    report = scene.told.controller.looks[KEY].report
    assert "Eureka holds 1 instance of RATING (1 UP)" in report.message
    assert report.registered == 1


@pytest.mark.parametrize(
    ("limit", "renewed"), [({"paused": True}, {"a", "b"}), ({"policy": "UpsertOnly"}, {"b"})]
)
def test_a_refused_syncer_removes_no_more_than_it_may(limit: dict[str, Any], renewed: set[str]) -> None:
    """A paused one changes nothing, and with UpsertOnly what said goodbye may lapse."""
    scene = Scene(**limit)
    scene.edited(paused=False)
    scene.endpoints(WEB, a=READY, b=READY)
    scene.look()
    scene.edited(eureka="nowhere", **limit)
    scene.endpoints(WEB, a=TERMINATING, b=READY)
    assert scene.look() == []
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
def test_what_eureka_forgot_of_what_is_kept_comes_back(keeps: str, is_restarted: bool) -> None:
    """As it stood, where the same endpoint is still ready; what a person removed does not."""
    scene = Scene()
    scene.endpoints(WEB, a=READY, b=READY, c=READY, d=READY)
    scene.look()
    registry = scene.told.registry
    registry.restarts.notice = lambda *_: frozenset()  # type: ignore[method-assign]
    if is_restarted:
        registry.restarts._seen_at = time.monotonic()
    scene.edited(**KEEPS[keeps])
    assert scene.look() == []
    scene.endpoints(WEB, a=READY, b={"ready": False}, d=READY, c=READY)  # c and d have other addresses now
    held = registry.view.owned(str(ClusterOwner(CLUSTER.name, *KEY)))
    registry.missing(held, None)
    assert registry.view.owned(held[0].owner or "") == []
    (kept,) = [one for one in held if one.instance_id.startswith("a.")]
    assert [(one.action, one.instance) for one in scene.look()] == (
        [(Action.REGISTER, kept)] if is_restarted else []
    )
    assert scene.look() == []


def test_what_was_forgotten_is_not_kept_for_who_wants_it_no_more() -> None:
    """Who is let in registers what it wants; what it does not is put back for it at no later time."""
    scene = Scene()
    scene.endpoints(WEB, a=READY, b=READY)
    scene.look()
    registry = scene.told.registry
    held = registry.view.owned(str(ClusterOwner(CLUSTER.name, *KEY)))
    registry.restarts._seen_at = time.monotonic()
    registry.missing(held, None)
    scene.edited(application="stars")
    scene.told.controller._admission._settings = replace(
        scene.told.controller._settings, publish=frozenset({("shop", "stars")})
    )
    assert {one.instance.application for one in scene.look()} == {"STARS"}
    scene.edited(eureka="nowhere")
    assert scene.look() == []


@pytest.mark.parametrize(
    "answer", [[], [{"metadata": {"name": "b"}}], None], ids=["gone", "there", "no answer"]
)
@pytest.mark.parametrize("keeps", ["UnknownEureka", "in doubt", "paused"])
def test_a_pod_that_ended_unseen_leaves_who_registers_nothing(
    keeps: str, answer: list[Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only where fellows of it are there still, and the API server has no pod of that name."""
    asked: list[Any] = []

    def get(_: object, path: str, query: dict[str, str]) -> dict[str, Any]:
        asked.append((path, query["fieldSelector"]))
        if answer is None:
            raise KubernetesError("no answer")
        return {"items": answer}

    monkeypatch.setattr(KubeAccess, "get", get)
    scene = Scene()
    scene.endpoints(WEB, a=READY, b=READY)
    scene.look()
    scene.edited(**KEEPS[keeps])
    scene.endpoints(WEB, a=READY)
    may_go = keeps != "paused"
    found = [(one.action, one.instance.instance_id[0]) for one in scene.look()]
    assert found == ([(Action.DEREGISTER, "b")] if may_go and answer == [] else [])
    assert asked == ([("/api/v1/namespaces/shop/pods", "metadata.name=b")] if may_go else [])
    scene.endpoints(WEB, c=READY)
    assert scene.look() == [], "none of its fellows says that the slices are whole"


def watched(controller: Controller) -> bool:
    """Look for what is silent, as its thread does."""
    controller._silence.look()
    return True


def test_an_eureka_that_hangs_is_said_while_changes_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only when the requests have timed out; what a look ends with is said after that."""
    monkeypatch.setattr(unresponsive, "TELL_AFTER_SECONDS", 0.05)
    monkeypatch.setattr(reachability, "SILENT_AFTER_SECONDS", 0.05)
    scene = Scene()
    scene.endpoints(WEB, a=READY)
    scene.look()
    controller, (peer,) = scene.told.controller, scene.told.registry.peers.peers
    hangs, carry_out = threading.Event(), scene.carry_out

    def hang(steps: Plan, owner: str, registry: EurekaRegistry) -> Outcome:
        peer.traffic.begin()
        assert hangs.wait(20)
        peer.traffic.count("GET", "200", 0.0)
        return carry_out(steps, owner, registry)

    scene.carry_out = hang
    scene.endpoints(WEB, a=READY, b=READY)
    looking = threading.Thread(target=scene.look)
    looking.start()
    try:
        wait_until(lambda: watched(controller) and scene.ready()[1] == "EurekaUnreachable", "it", 10)
        report = controller.looks[KEY].report
        assert (report.is_ready, report.sync_reason) == (False, "EurekaUnreachable")
        assert f"{peer.url} was asked and has not answered since" in report.message
        assert "Eureka holds 1 instance of RATING (1 UP)" in report.message
    finally:
        hangs.set()
        looking.join()
    assert scene.ready() == (True, "Synced")
    controller._silence.look()
    assert scene.ready() == (True, "Synced")


def test_an_eureka_that_hangs_is_said_of_all_its_syncers(monkeypatch: pytest.MonkeyPatch) -> None:
    """All are looked at as soon as it is silent for seconds, and again when it is heard."""
    monkeypatch.setattr(reachability, "SILENT_AFTER_SECONDS", 0.05)
    monkeypatch.setattr(reachability, "LONG_SILENCE_SECONDS", 0.05)
    scene = Scene()
    scene.endpoints(WEB, a=READY)
    scene.look()
    registry = scene.told.registry
    changes: list[bool] = []
    watch = unresponsive.UnresponsiveWatch(
        {"default": registry},
        changed=lambda _: changes.append(isinstance(registry.condition(), Failing)),
    )
    (peer,) = registry.peers.peers
    watch.look()
    peer.traffic.begin()

    def is_noticed() -> bool:
        watch.look()
        return bool(changes)

    wait_until(is_noticed, "trouble", 10)
    watch.look()
    scene.look()
    assert (changes, scene.ready()) == ([True], (False, "EurekaUnreachable"))
    peer.traffic.count("GET", "none", 5.0)  # timed out, and asked again
    peer.traffic.begin()
    watch.look()
    peer.traffic.count("GET", "200", 0.1)
    watch.look()
    scene.look()
    assert (changes, scene.ready()) == ([True, False], (True, "Synced"))


@pytest.mark.parametrize("was_read", [True, False])
def test_an_eureka_that_hangs_is_said_before_it_was_taken_over(
    was_read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody looks at its syncers until then; once that is over the first look says what there is."""
    monkeypatch.setattr(reachability, "SILENT_AFTER_SECONDS", 0.05)
    monkeypatch.setattr(reachability, "LONG_SILENCE_SECONDS", 60.0)
    scene, answers = Scene(), threading.Event()
    controller, registry = scene.told.controller, scene.told.registry
    scene.endpoints(WEB, a=READY, b=READY)
    if was_read:
        scene.look()
    else:
        registry.reachability = Reachability(registry.peers)
        scene.edited(status={"registered": 7})
    (peer,) = registry.peers.peers
    registry.take_over = lambda _: answers.wait(20)  # type: ignore[method-assign,assignment]
    peer.traffic.begin()
    controller._queue.pause()
    controller.take_over()
    try:
        time.sleep(0.1)
        controller._silence.look()
        assert was_read or KEY not in controller.looks  # who stands by says nothing
        controller.lead()
        wait_until(lambda: watched(controller) and scene.ready()[1] == "EurekaUnreachable", "it", 10)
        report = controller.looks[KEY].report
        assert f"{peer.url} was asked and has not answered since" in report.message
        if was_read:
            assert "by what is known, Eureka holds 2 instances of RATING (2 UP)" in report.message
            assert report.registered == 2
        else:
            assert "what Eureka holds is not known before it was read" in report.message
            assert report.message.endswith("wanted there: 2 instances of RATING")
            assert (report.desired, report.registered) == (2, 7)
    finally:
        peer.traffic.count("GET", "200", 0.1)
        answers.set()
    wait_until(lambda: "default" in controller._taken_over, "the take-over", 10)
    registry.reachability.read()
    scene.look()
    controller._silence.look()
    assert scene.ready() == (True, "Synced")


def test_with_upsert_only_what_stays_at_another_eureka_lapses() -> None:
    """Once it stands where the syncer wants it now."""
    scene = Scene(policy="UpsertOnly")
    scene.endpoints(WEB, a=READY)
    scene.look()
    scene.edited(eureka="elsewhere")
    scene.look()
    assert (scene.renewed(), scene.renewed(scene.elsewhere)) == (set(), {"a"})
    owner = Syncer.from_object(scene.syncer).owner(CLUSTER)
    assert scene.told.registry.view.owned(owner)


RENAMED = ("shop", "ratings")


def renamed(scene: Scene, **spec: Any) -> None:
    """Another syncer for the same endpoints, which is refused as long as the first one is there."""
    (syncers,) = scene.told.sources.syncers.reflectors
    metadata = {"namespace": "shop", "name": "ratings", "uid": "v", "finalizers": [FINALIZER]}
    syncers.take("ADDED", {**scene.syncer, "metadata": metadata, "spec": {**scene.spec, **spec}})
    scene.told.controller._reconcile(RENAMED)
    assert scene.sent == []
    assert "Conflict" in scene.told.controller.looks[RENAMED].report.problems


def deleted(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one is being deleted."""
    monkeypatch.setattr(deletion, "set_finalizer", lambda *_, **__: None)
    (syncers,) = scene.told.sources.syncers.reflectors
    before: dict[str, Any] = scene.syncer["metadata"]
    metadata = {**before, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    syncers.take("MODIFIED", {**scene.syncer, "metadata": metadata})


def test_a_renamed_syncer_leaves_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the other one wants is never taken out: it passes as it stands, a person's status included."""
    scene = Scene()
    scene.endpoints(WEB, a=READY, b=READY, c=READY)
    scene.look()
    view = scene.told.registry.view
    old, new = (str(ClusterOwner(CLUSTER.name, *key)) for key in (KEY, RENAMED))
    held = {one.instance_id.partition(".")[0]: one for one in view.owned(old)}
    by_a_person = replace(held["b"], status=Status.OUT_OF_SERVICE, overridden_status=Status.OUT_OF_SERVICE)
    view.registered(by_a_person)
    scene.sent.clear()
    renamed(scene, policy="UpsertOnly")
    scene.endpoints(WEB, a=READY, b=READY)
    deleted(scene, monkeypatch)
    sent = {(one.action, one.instance.instance_id.partition(".")[0]) for one in scene.look()}
    assert sent == {(Action.UPDATE, "a"), (Action.UPDATE, "b"), (Action.DEREGISTER, "c")}
    after = {one.instance_id.partition(".")[0]: one for one in view.owned(new)}
    assert {pod: one.status for pod, one in after.items()} == {"a": Status.UP, "b": Status.OUT_OF_SERVICE}
    assert scene.renewed() == {"a", "b"}
    assert scene.told.parts.queue.get() == RENAMED
    scene.sent.clear()
    scene.told.controller._reconcile(RENAMED)
    assert [one.action for one in scene.sent] == []
    assert scene.told.controller.looks[RENAMED].report.is_synced


@pytest.mark.parametrize("policy", ["Sync", "UpsertOnly"])
def test_what_a_syncer_gives_up_passes_to_who_wants_it(policy: str) -> None:
    """It lives on, and asks for something else: nothing that another one wants is taken out or may lapse."""
    scene = Scene(policy=policy)
    scene.endpoints(WEB, a=READY, b=READY)
    scene.look()
    old, new = (str(ClusterOwner(CLUSTER.name, *key)) for key in (KEY, RENAMED))
    scene.sent.clear()
    renamed(scene)
    scene.edited(application="stars")
    scene.told.controller._admission._settings = replace(
        scene.told.controller._settings, publish=frozenset({("shop", "stars")})
    )
    found = scene.look()
    assert [one.action for one in found] == [Action.UPDATE] * 2 + [Action.REGISTER] * 2
    view = scene.told.registry.view
    assert {one.application for one in view.owned(old)} == {"STARS"}
    assert {one.instance_id.partition(".")[0] for one in view.owned(new)} == {"a", "b"}
    assert len(scene.told.registry.renewals) == 4
    assert scene.told.parts.queue.get() == RENAMED


@pytest.mark.parametrize("spec", [{"paused": True}, {"port": "none"}])
def test_a_syncer_that_is_not_sure_gives_nothing_away(spec: dict[str, Any]) -> None:
    """It is paused, or cannot tell what it wants: what it has stays its own."""
    scene = Scene()
    scene.serves(a=READY)
    renamed(scene)
    scene.edited(**{"mode": "service", **spec})
    assert scene.look() == []
    owner = str(ClusterOwner(CLUSTER.name, *KEY))
    assert len(scene.told.registry.view.owned(owner)) == 1


def test_a_dry_run_shows_what_passes_to_another_syncer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And does not say that it would leave."""
    scene = Scene()
    scene.serves(a=READY, b=READY)
    renamed(scene)
    scene.endpoints(WEB, a=READY)
    deleted(scene, monkeypatch)
    ledger = Ledger(is_once=True, is_dry=True)
    recorded = {name: RecordedRegistry(one, name, ledger) for name, one in scene.told.registries.items()}
    scene.told.registry.apply = recorded["default"].apply  # type: ignore[method-assign]
    scene.elsewhere.apply = recorded["elsewhere"].apply  # type: ignore[method-assign]
    scene.look()
    scene.look()
    old, new = (str(ClusterOwner(CLUSTER.name, *key)) for key in (KEY, RENAMED))
    ledger.print({KEY: old}, frozenset({KEY}))
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
    """Of two instances one is read as the syncer's only while the other one is handed over."""
    scene = Scene()
    scene.serves(a=READY, b=READY)
    renamed(scene)
    view = scene.told.registry.view
    (late,) = [one for one in view.application("rating") if one.instance_id.startswith("b.")]
    view.gone(late.key)
    if is_deleted:
        deleted(scene, monkeypatch)
    else:
        scene.edited(selector={"app": "none"})
    released: list[bool] = []
    monkeypatch.setattr(deletion, "set_finalizer", lambda *_, **__: released.append(True))
    carry_out = scene.carry_out

    def finds(steps: Plan, owner: str, registry: EurekaRegistry) -> Outcome:
        if not scene.sent:
            view.registered(late)
        return carry_out(steps, owner, registry)

    scene.carry_out = finds
    looks = [scene.look()]
    assert view.get(late.key) is not None
    queue = scene.told.parts.queue
    assert KEY in {queue.get() for _ in range(queue.depth)}
    scene.carry_out = carry_out
    looks.append(scene.look())
    assert [one.action for look in looks for one in look] == [Action.UPDATE] * 2
    owners = {one.owner for one in view.application("rating")}
    assert owners == {str(ClusterOwner(CLUSTER.name, *RENAMED))}
    assert released == ([True] if is_deleted else [])


@pytest.mark.parametrize("is_read", [True, False])
@pytest.mark.parametrize("waits_at_once", [True, False])
def test_what_another_syncer_may_want_waits_until_that_is_known(
    waits_at_once: bool, is_read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pods are being read for the first time; where they cannot be read, it passes as it stands."""
    monkeypatch.setattr(ownership_transfer, "SUCCESSOR_SECONDS", 20.0 if is_read else 0.5)
    scene = Scene()
    scene.told.controller._successors._waits_at_once = waits_at_once
    scene.serves(a=READY)
    (syncers,) = scene.told.sources.syncers.reflectors
    metadata = {"namespace": "shop", "name": "ratings", "uid": "v", "finalizers": [FINALIZER]}
    labels = {"metadataFromPodLabels": ["version"]}
    syncers.take("ADDED", {**scene.syncer, "metadata": metadata, "spec": {**scene.spec, **labels}})
    pods = scene.told.sources._pods._reflectors["shop"]
    deleted(scene, monkeypatch)
    released: list[Any] = []
    monkeypatch.setattr(deletion, "set_finalizer", lambda *_, **__: released.append(True))
    if is_read:
        threading.Timer(0.5, pods._synced.set).start()
    found = scene.look()
    if not waits_at_once:
        assert (found, released, scene.renewed()) == ([], [], {"a"})
        while not found:
            assert scene.told.parts.queue.get() in (KEY, RENAMED)
            scene.told.parts.queue.done(KEY)
            found = scene.look()
    pods.stop()
    assert [one.action for one in found] == [Action.UPDATE]
    assert released == [True]
    assert scene.renewed() == {"a"}
    scene.told.controller._reconcile(RENAMED)
    (held,) = scene.told.registry.view.owned(str(ClusterOwner(CLUSTER.name, *RENAMED)))
    assert held.status is Status.UP


def test_a_wait_that_ran_out_shortens_no_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the pods of another syncer cannot be read for a while, and then again."""
    scene, now = Scene(), 0.0
    waits = scene.told.controller._successors
    unread = Desired(problems=(Problem("PodsNotRead", "not yet"),))
    monkeypatch.setattr(ownership_transfer, "elapsed_seconds", lambda: now)
    monkeypatch.setattr(waits, "_wanted_by", lambda *_: unread)
    awaited = {}
    for now in (0.0, 4.0, 6.0, 20.0, 100.0, 104.0, 106.0):
        awaited[now] = waits._is_awaited(RENAMED, scene.told.registry, scene.told.sources)
    assert [at for at, waits_on in awaited.items() if waits_on] == [0.0, 4.0, 100.0, 104.0]


@pytest.mark.parametrize("spec", [{"paused": True}, {"eureka": "elsewhere"}])
def test_nothing_passes_to_a_syncer_that_does_not_register_it(
    spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deleted syncer's instances leave; what stood in the way of others is looked at again at once."""
    scene = Scene()
    scene.serves(a=READY)
    renamed(scene)
    (syncers,) = scene.told.sources.syncers.reflectors
    other = syncers.get(*RENAMED)
    assert other is not None
    syncers.take("MODIFIED", {**other, "spec": {**other["spec"], **spec}})
    deleted(scene, monkeypatch)
    assert [one.action for one in scene.look()] == [Action.DEREGISTER]
    assert scene.told.parts.queue.get(spec.get("eureka", "default")) == RENAMED


@pytest.mark.parametrize("is_handed_over", [True, False])
def test_a_deletion_ends_no_renewal_of_another_syncers(
    is_handed_over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two syncers want the same: the one that goes is looked at again and again, and the other one is not."""
    scene = Scene()
    eureka = scene.real()
    scene.serves(a=READY, b=READY)
    renamed(scene)
    if is_handed_over:
        deleted(scene, monkeypatch)
        scene.look()  # what then fails, say to let the finalizer go, is tried again
    else:
        monkeypatch.setattr(deletion, "set_finalizer", lambda *_, **__: None)
        (syncers,) = scene.told.sources.syncers.reflectors
        other = syncers.get(*RENAMED)
        assert other is not None
        syncers.take("MODIFIED", {**other, "metadata": {**other["metadata"], "deletionTimestamp": "x"}})
    for key in (RENAMED, KEY) if is_handed_over else (RENAMED,):
        scene.told.controller._reconcile(key)
    assert scene.renewed() == {"a", "b"}
    heir = RENAMED if is_handed_over else KEY
    assert {one.owner for one in eureka.held.values()} == {str(ClusterOwner(CLUSTER.name, *heir))}


def test_what_cannot_be_handed_over_keeps_nothing_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """One Eureka refuses: nothing is taken out there, and what the syncer left elsewhere goes anyway."""
    scene = Scene()
    scene.endpoints(WEB, a=READY)
    scene.look()
    owner = Syncer.from_object(scene.syncer).owner(CLUSTER)
    for instance in scene.told.registry.view.owned(owner):
        scene.elsewhere.view.registered(instance)
    scene.sent.clear()
    renamed(scene)
    deleted(scene, monkeypatch)
    carry_out = scene.carry_out

    def fails(steps: Plan, owner: str, registry: EurekaRegistry) -> Outcome:
        if registry is scene.elsewhere:
            return carry_out(steps, owner, registry)
        return Outcome.of(steps.changes, [RegistryUnreachable("away")] * len(steps.changes))

    scene.carry_out = fails
    with pytest.raises(RegistryUnreachable, match="away"):
        scene.look()
    assert scene.elsewhere.view.owned(owner) == []
    assert len(scene.told.registry.view.owned(owner)) == 1


def test_who_comes_to_lead_waits_for_nodes_as_well() -> None:
    """An address of a node that is gone must not come back by an old copy."""
    scene = Scene(mode="service", advertise="NodePort")
    sources = scene.told.sources
    nodes = sources._nodes._reflectors[None]
    nodes.stop()  # the test says from now on how far it is
    nodes._thread.join()
    listed = [one for group in sources._groups.values() for one in group.reflectors]
    for reflector in (*listed, nodes):
        reflector._synced.set()
        reflector._current_from = time.monotonic()
    found = [sources.is_current]
    nodes._current_from = None
    found.append(sources.is_current)
    nodes._hurried.clear()
    sources.hurry()
    assert nodes._hurried.is_set()
    nodes._denied, nodes._asks_anew = 403, False
    found.append(sources.is_current)
    assert found == [True, False, True]
    assert [loop.name for loop in sources.liveness()] == ["reflector-nodes-all"]


def test_a_former_leader_says_nothing_of_its_last_look() -> None:
    """What it last saw is over, and would stand in its metrics until it leads again."""
    scene = Scene()
    scene.endpoints(WEB, a=READY)
    scene.look()
    history = scene.told.controller.history
    assert (set(history.last), set(history.succeeded_at())) == ({KEY}, {KEY})
    recent = history.recent()
    scene.told.controller.stand_by()
    assert (history.last, history.succeeded_at()) == ({}, {})
    assert history.recent() == recent


OTHERS = ("other", "rating")
"""A syncer of another namespace that publishes the same name."""


def others(scene: Scene) -> list[Instance]:
    """What it has in Eureka, at an address of its own."""
    theirs = [
        replace(one, ip_address="10.1.0.1") for one in scene.told.instances(OTHERS, 1, registered=False)
    ]
    for one in theirs:
        scene.told.registry.view.registered(one)
    return theirs


def test_a_namespace_does_not_take_the_name_of_another() -> None:
    """A label on one's own Service is not enough: nothing is registered, and the status says whose it is."""
    scene = Scene()
    theirs = others(scene)
    scene.endpoints(WEB, a=READY)
    assert scene.look() == []
    found = scene.told.controller.history.last[KEY].report
    assert found.sync_reason == "Conflict"
    assert "instances of other/rating" in found.problems["Conflict"]
    assert "--reserve other=rating,shop=rating" in found.problems["Conflict"]
    for one in theirs:
        scene.told.registry.view.gone(one.key)
    assert len(scene.look()) == 1


def test_a_vip_address_is_a_name_as_well() -> None:
    """Callers look it up: an application of one's own with another's VIP address would be called for it."""
    scene = Scene(application="mine", vipAddress="mine,rating")
    scene.told.controller._settings = replace(
        scene.told.controller._settings, publish=frozenset({("*", "*")})
    )
    scene.told.controller._admission._settings = scene.told.controller._settings
    others(scene)
    scene.endpoints(WEB, a=READY)
    assert scene.look() == []


@pytest.mark.parametrize(
    "status",
    [
        {"names": ["rating"]},
        {"application": "RATING", "lastSyncTime": "2026-01-02T03:04:05Z"},
    ],
)
def test_namespaces_that_share_a_name_already_go_on(status: dict[str, Any]) -> None:
    """Also after all was scaled to zero, or an Eureka lost its memory; an older operator's status will do."""
    scene = Scene()
    scene.edited(status=status)
    others(scene)
    scene.endpoints(WEB, a=READY)
    assert len(scene.look()) == 1
    assert scene.told.controller.history.last[KEY].report.names == frozenset({"rating"})


def test_who_is_called_by_a_name_may_register_more() -> None:
    """What stands in Eureka counts, whatever the status says."""
    scene = Scene()
    scene.endpoints(WEB, a=READY)
    scene.look()
    others(scene)
    scene.endpoints(WEB, a=READY, b=READY)
    assert len(scene.look()) == 1


def test_a_name_is_not_claimed_by_nothing() -> None:
    """A syncer without an instance would else be let in before the one whose name it is."""
    scene = Scene()
    scene.endpoints(WEB)
    scene.look()
    assert scene.told.controller.history.last[KEY].report.names == frozenset()


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
    """The namespaces of a name share it, and no other may have it, whoever comes first."""
    for is_taken in (True, False):
        scene = Scene()
        scene.told.controller._admission._reservations = Reservations(frozenset(pairs))
        if is_taken:
            others(scene)
        scene.endpoints(WEB, a=READY)
        assert len(scene.look()) == is_let_in


def test_what_is_registered_under_a_name_that_is_reserved_now_stays() -> None:
    """Configuration that forgets somebody costs no call: nothing is added, and nothing is taken out."""
    scene = Scene()
    scene.endpoints(WEB, a=READY)
    scene.look()
    scene.told.controller._admission._reservations = Reservations(frozenset({("other", "rating")}))
    scene.endpoints(WEB, a=READY, b=READY)
    assert scene.look() == []
    assert scene.renewed() == {"a"}
    assert scene.told.controller.history.last[KEY].report.sync_reason == "NotAllowed"


def test_an_eureka_that_comes_and_goes_concerns_its_own_syncers() -> None:
    """And whoever has something left there; those of other Eurekas have nothing to do with it."""
    scene = Scene()
    moved = scene.told.syncer("moved")
    other = scene.told.syncer("other", spec={"mode": "pod", "selector": {"app": "x"}, "eureka": "elsewhere"})
    controller, queue = scene.told.controller, scene.told.parts.queue
    (left,) = scene.told.instances(moved, 1, registered=False)
    scene.elsewhere.view.registered(left)
    controller.registry_concerned("elsewhere")
    assert (queue.get("default"), queue.get("elsewhere")) == (moved, other)
    assert queue.depth == 0


class Apart:
    """A controller that runs, with two Eurekas of which one hangs until it is freed."""

    def __init__(self) -> None:
        self.told = Told(("default", "hanging"))
        self.freed = threading.Event()
        self.looked_at: list[SyncerKey] = []
        self.controller = self.told.controller
        self.controller._sources = self.told.sources
        self.controller._reconcile = self._reconcile  # type: ignore[method-assign]
        for name, registry in self.told.registries.items():
            registry.reachability.read()
            hangs = name == "hanging"
            registry.take_over = self._frees if hangs else (lambda _: None)  # type: ignore[method-assign,assignment]
        self.controller.start(self.told.sources)

    def syncers(self, eureka: str, count: int) -> list[SyncerKey]:
        """So many syncers that name an Eureka."""
        spec = {"mode": "pod", "selector": {"app": "x"}, "eureka": eureka}
        return [self.told.syncer(f"{eureka}-{number}", spec=spec) for number in range(count)]

    def lead(self) -> None:
        """Take over and lead."""
        self.controller.take_over()
        self.controller.lead()

    def end(self) -> float:
        """Stop; how many seconds that took."""
        started = time.monotonic()
        self.controller.stop()
        return time.monotonic() - started

    def _frees(self, _: int) -> None:
        self.freed.wait()

    def _reconcile(self, key: SyncerKey) -> None:
        if self.controller._own.registry is self.told.registries["hanging"]:
            self.freed.wait(60.0)
        self.looked_at.append(key)


@pytest.fixture
def apart() -> Iterator[Apart]:
    """Ended by the test."""
    made = Apart()
    yield made
    made.freed.set()
    made.end()


def test_an_eureka_that_hangs_holds_up_its_own_syncers_only(apart: Apart) -> None:
    """Though there are more of them than workers; and the rest is looked at when it goes on."""
    apart.freed.set()
    apart.lead()
    wait_until(lambda: apart.controller.is_idle, "a start", 30.0)
    apart.freed.clear()
    stuck, well = apart.syncers("hanging", 2 * WORKERS), apart.syncers("default", 20)
    apart.controller.all_concerned()
    wait_until(lambda: set(well) <= set(apart.looked_at), "those that answer", 30.0)
    assert not set(stuck) & set(apart.looked_at)
    for _ in range(2):
        apart.told.registries["hanging"].reachability.failed(RegistryUnreachable("hangs"))
    assert apart.end() < 5.0  # the next leader waits for this one's end
    apart.freed.set()


def test_an_eureka_that_hangs_is_taken_over_by_itself(apart: Apart) -> None:
    """The others' syncers are looked at before it answers, and its own as soon as it does."""
    stuck, well = apart.syncers("hanging", 3), apart.syncers("default", 3)
    apart.lead()
    wait_until(lambda: set(well) <= set(apart.looked_at), "those that answer", 30.0)
    assert not apart.controller.is_idle
    assert not set(stuck) & set(apart.looked_at)
    apart.freed.set()
    wait_until(lambda: set(stuck) <= set(apart.looked_at), "the rest", 30.0)


def test_nobody_is_looked_at_where_the_operator_must_not_work(apart: Apart) -> None:
    """Another cluster of our name was found at the first read, which was that of the take-over."""
    stuck, well = apart.syncers("hanging", 3), apart.syncers("default", 3)
    apart.lead()
    apart.told.registries["hanging"].reachability.refuse(ConfigurationError("in use by another cluster"))
    apart.freed.set()
    wait_until(lambda: set(well) <= set(apart.looked_at), "the others", 30.0)
    wait_until(
        lambda: not any(thread.name == "take-over-hanging" for thread in threading.enumerate()), "it", 30.0
    )
    assert "hanging" not in apart.controller._taken_over
    assert not set(stuck) & set(apart.looked_at)


def test_who_lost_the_lease_meanwhile_takes_nothing_over(apart: Apart) -> None:
    """The Eureka that answers too late is neither renewed at nor looked at."""
    stuck = apart.syncers("hanging", 3)
    stood_by: list[str] = []
    registry = apart.told.registries["hanging"]
    registry.stand_by = lambda: stood_by.append("again")  # type: ignore[method-assign]
    apart.lead()
    apart.controller.pause()
    apart.controller.stand_by()
    apart.freed.set()
    wait_until(lambda: len(stood_by) == 2, "the late one's end", 30.0)
    assert not set(stuck) & set(apart.looked_at)


def test_a_take_over_of_a_former_term_ends_what_it_began() -> None:
    """Its Eureka answers when another replica leads already, and renews there."""
    told, done = Told(), list[str]()
    controller, registry = told.controller, told.registry
    controller._sources = told.sources
    registry.take_over = lambda _: done.append("takes over")  # type: ignore[method-assign,assignment]
    registry.stand_by = lambda: done.append("stands by")  # type: ignore[method-assign]
    controller._term, controller._leads, controller._stands_by = 2, True, True
    controller._take_over(1, "default", 0)
    assert (done, controller._taken_over) == (["takes over", "stands by"], set())
    controller._take_over(2, "default", 0)
    assert controller._taken_over == {"default"}


def test_what_a_deleted_syncer_left_at_two_eurekas() -> None:
    """Where one of them is away the other one is cleaned up all the same, and at once."""
    scene = Scene()
    scene.endpoints(WEB, a=READY, b=READY)
    scene.look()
    owner = Syncer.from_object(scene.syncer).owner(CLUSTER)
    for instance in scene.told.registry.view.owned(owner):
        scene.elsewhere.view.registered(instance)
    for _ in range(2):
        scene.told.registry.reachability.failed(RegistryUnreachable("hangs"))
    controller = scene.told.controller
    controller._own.registry = scene.elsewhere
    scene.told.removed(KEY)
    scene.sent.clear()
    with pytest.raises(RegistryUnreachable, match="hangs"):
        controller._reconcile(KEY)
    assert (len(scene.sent), scene.elsewhere.view.owned(owner)) == (2, [])
    assert len(scene.told.registry.view.owned(owner)) == 2
    assert controller.lane_of(KEY) == "default"


def test_who_may_not_write_looks_at_nothing() -> None:
    """Another replica may lead by now: neither a finalizer nor a registration is begun."""
    scene = Scene()
    scene.endpoints(WEB, a=READY)
    may_write = scene.told.controller._may_write
    scene.told.controller._may_write = lambda: False
    with pytest.raises(LeadershipLost):
        scene.look()
    assert scene.sent == []
    scene.told.controller._may_write = may_write
    assert [one.action for one in scene.look()] == [Action.REGISTER]


@pytest.mark.parametrize("is_deleted", [False, True])
def test_nothing_is_changed_before_the_registry_was_read(
    is_deleted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands there is not known: nothing is registered, and no deleted syncer let go as clean."""
    scene = Scene()
    scene.endpoints(WEB, a=READY)
    if is_deleted:
        deleted(scene, monkeypatch)
    scene.told.registry.reachability = Reachability(scene.told.registry.peers)
    with pytest.raises(RegistryUnreachable, match="has not been read yet"):
        scene.look()
    assert scene.sent == []


def test_a_syncer_whose_namespace_cannot_be_read_is_not_deleted() -> None:
    """It is not in our copy, and may be in the cluster: what it has stays, and is renewed."""
    scene = Scene()
    scene.endpoints(WEB, a=READY)
    scene.look()
    scene.told.removed(KEY)
    (syncers,) = scene.told.sources.syncers.reflectors
    syncers._synced.clear()
    for instance in scene.told.registry.renewals.held():
        scene.told.registry.renewals.remove(instance.key)
    assert scene.look() == []
    assert scene.renewed() == {"a"}
    syncers._synced.set()
    assert [one.action for one in scene.look()] == [Action.DEREGISTER]


def test_a_namespace_that_was_not_read_says_nothing_of_its_endpoints() -> None:
    """Its slices have not been listed: there seem to be none, and what is registered stays."""
    scene = Scene()
    scene.endpoints(WEB, a=READY, b=READY)
    scene.look()
    scene.endpoints(WEB)
    (slices,) = scene.told.sources.slices.reflectors
    slices._synced.clear()
    assert scene.look() == []
    assert scene.renewed() == {"a", "b"}
    assert scene.told.controller.looks[KEY].report.sync_reason == "NamespaceNotRead"


def test_a_paused_syncer_changes_nothing() -> None:
    """Neither what comes nor what says goodbye; what stands there is renewed."""
    scene = Scene()
    scene.endpoints(WEB, a=READY, b=READY)
    scene.look()
    scene.edited(paused=True)
    scene.endpoints(WEB, a=TERMINATING, b=READY, c=READY)
    assert scene.look() == []
    assert scene.renewed() == {"a", "b"}


def test_what_a_paused_syncer_had_comes_back_as_it_stood() -> None:
    """Where Eureka forgot it: not as the syncer would have it now, nor what it never registered."""
    scene = Scene()
    scene.endpoints(WEB, a=READY, b=READY)
    scene.look()
    registry = scene.told.registry
    held = registry.view.owned(str(ClusterOwner(CLUSTER.name, *KEY)))
    scene.edited(paused=True, metadata={"color": "red"})
    scene.endpoints(WEB, a=READY, b=TERMINATING, c=READY)
    registry.restarts._seen_at = time.monotonic()
    registry.missing(held, None)
    (kept,) = [one for one in held if one.instance_id.startswith("a.")]
    assert [(one.action, one.instance) for one in scene.look()] == [(Action.REGISTER, kept)]
    assert "1 changes wait" in scene.told.controller.looks[KEY].report.message  # to register c
    assert scene.look() == []
    assert scene.renewed() == {"a"}


def test_what_moves_to_another_eureka_is_missed_by_nobody() -> None:
    """It leaves the first one only once it stands at the second; with UpsertOnly it is left there."""
    scene = Scene()
    scene.endpoints(WEB, a=READY)
    scene.look()
    scene.edited(eureka="elsewhere", policy="UpsertOnly")
    assert [one.action for one in scene.look()] == [Action.REGISTER]
    owner = Syncer.from_object(scene.syncer).owner(CLUSTER)
    (moved,) = scene.elsewhere.view.owned(owner)
    scene.elsewhere.view.gone(moved.key)
    scene.edited(policy="Sync")
    carry_out = scene.carry_out

    def refused(steps: Plan, owner: str, registry: EurekaRegistry) -> Outcome:
        """No registration is taken."""
        return carry_out(Plan(steps.of(Action.DEREGISTER)), owner, registry)

    scene.carry_out = refused
    scene.look()
    assert len(scene.told.registry.view.owned(owner)) == 1
    scene.carry_out = carry_out
    assert [one.action for one in scene.look()] == [Action.REGISTER, Action.DEREGISTER]
    assert scene.told.registry.view.owned(owner) == []


def test_what_is_left_at_another_eureka_is_under_the_brake() -> None:
    """The syncer moved, and its source broke: what still stands at the first Eureka is held back, too."""
    scene = Scene()
    scene.endpoints(WEB, a=READY, b=READY)
    scene.look()
    scene.edited(eureka="elsewhere")
    scene.endpoints(WEB)
    assert scene.look() == []
    assert "Braked" in scene.told.controller.looks[KEY].report.problems
    assert scene.renewed() == {"a", "b"}


@pytest.mark.parametrize(
    ("spec", "flag"),
    [
        ({"application": "billing"}, "--publish shop=billing"),
        ({"vipAddress": "rating,billing"}, "--publish shop=billing"),
        ({"selector": {"app": "rating", "namespace": "other"}}, "--cross-namespace shop=other"),
    ],
)
def test_what_a_syncer_may_not_publish(spec: dict[str, Any], flag: str) -> None:
    """Another name than its Service's, or another namespace's Services, unless the configuration lets it."""
    scene = Scene(**spec)
    scene.endpoints(WEB, a=READY)
    assert scene.look() == []
    assert scene.told.controller.looks[KEY].report.sync_reason == "NotAllowed"
    assert flag in scene.told.controller.looks[KEY].report.problems["NotAllowed"]
