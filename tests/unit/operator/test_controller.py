"""The controller: the order and times of reconciles, and their reports."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from eurekube_provider.core.errors import ConfigurationError, RegistryUnreachable
from eurekube_provider.core.plan import Action, Plan, PlanOutcome
from eurekube_provider.core.registry import Failing
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.eureka_registry import EurekaRegistry
from eurekube_provider.eureka.registry.reachability import Reachability
from eurekube_provider.operator import reconciler, unresponsive
from eurekube_provider.operator.conditions import SyncerReport
from eurekube_provider.operator.controller import WORKERS_PER_EUREKA
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.reports import SyncerResult
from lab.waiting import wait_until
from tests.unit.operator.parts import CLUSTER, PlayedOperator
from tests.unit.operator.scene import KEY, READY, TERMINATING, WEB, Scene


class Running:
    """A running controller with one syncer, whose Eureka a test plays."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(unresponsive, "CHECK_INTERVAL_SECONDS", 0.02)
        self.scene = Scene()
        self.controller = self.scene.played.controller
        self.registry = self.scene.played.registry
        for one in self.scene.played.registries.values():
            monkeypatch.setattr(one, "start_leading", lambda _: None)

    def start(self) -> None:
        """Start the workers and take over; the replica does not lead yet."""
        self.controller.start()
        self.controller.start_renewals()

    def report(self) -> SyncerReport | None:
        """Return the syncer's last report, or None."""
        last = self.controller.history.last.get(KEY)
        return last.report if last else None

    def says(self, reason: str) -> bool:
        """Return True if the last report gives this reason of Ready."""
        said = self.report()
        return said is not None and said.ready.reason == reason

    def has(self, reason: str) -> bool:
        """Return True if the last report has a problem of this reason."""
        said = self.report()
        return said is not None and reason in said.problems


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """Yield a controller, and stop it when the test ends."""
    made = Running(monkeypatch)
    yield made
    made.controller.stop()


@pytest.mark.parametrize(
    ("cluster", "is_ours"), [(CLUSTER.name, True), ("earlier", True), ("another", False)]
)
def test_a_change_under_a_former_cluster_name_concerns_its_syncer(cluster: str, *, is_ours: bool) -> None:
    """A change to an instance under a former cluster name triggers a reconcile of its syncer, another
    cluster's does not.
    """
    played = PlayedOperator()
    played.previous_cluster_names = ("earlier",)
    played.controller.enqueue_syncer_of_owner(f"cluster/{cluster}/shop/rating")
    assert bool(played.queue.depth) is is_ours


def test_a_failed_reconcile_claims_no_renewals_of_what_was_not_read(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """An operator that never read Eureka renews nothing, and its log does not say that it does."""

    def fail(*_: object) -> PlanOutcome:
        raise RegistryUnreachable("answered 503")

    running.scene.endpoints(WEB, a=READY)
    running.scene.carry_out = fail
    running.start()
    running.controller.lead()
    wait_until(lambda: "failed to reconcile a syncer" in caplog.text, "the failure", 10)
    assert "retrying: its instances that were read are renewed" in caplog.text


def test_an_eureka_that_hangs_is_said_while_changes_wait_for_it(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EurekaUnreachable is reported before the requests time out; the reconcile's own report follows."""
    monkeypatch.setattr(unresponsive, "REPORT_AFTER_SECONDS", 0.05)
    monkeypatch.setattr(windows, "SILENCE_SECONDS", 0.05)
    scene = running.scene
    scene.endpoints(WEB, a=READY)
    running.start()
    running.controller.lead()
    wait_until(lambda: running.says("Synced"), "the first", 10)
    (peer,) = running.registry.peers.peers
    hangs, carry_out = threading.Event(), scene.carry_out

    def hang(steps: Plan, owner: str, registry: EurekaRegistry) -> PlanOutcome:
        peer.traffic.note_request_begins()
        assert hangs.wait(20)
        peer.traffic.note_request_ended("GET", "200", 0.0)
        return carry_out(steps, owner, registry)

    scene.carry_out = hang
    scene.endpoints(WEB, a=READY, b=READY)
    try:
        wait_until(lambda: running.says("EurekaUnreachable"), "it", 10)
        report = running.report()
        assert report is not None
        assert (report.is_ready, report.synced.reason) == (False, "EurekaUnreachable")
        assert f"{peer.url} was asked and has not answered since" in report.ready.text
        assert "Eureka holds 1 instance of RATING (1 UP)" in report.ready.text
    finally:
        hangs.set()
    wait_until(lambda: running.says("Synced"), "its end", 10)
    wait_until(lambda: running.controller.is_idle, "no more", 10)
    assert running.says("Synced")


def _refused(scene: Scene) -> None:
    """Make the syncer name an unknown Eureka while a pod terminates, so that an instance is removed."""
    scene.edited(eureka="nowhere")
    scene.endpoints(WEB, a=TERMINATING)


def _deleted(scene: Scene) -> None:
    """Mark the syncer as deleted, so that its instances are removed."""
    (syncers,) = scene.played.sources.syncers.reflectors
    metadata = {**scene.syncer["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    syncers.apply_event("MODIFIED", {**scene.syncer, "metadata": metadata})


def _moved(scene: Scene) -> None:
    """Leave an instance of the syncer at another Eureka, from which it is removed."""
    (left,) = scene.played.instances(KEY, 1, registered=False)
    scene.elsewhere.table.store_written_and_return_previous(left)
    scene.endpoints(WEB, a=READY)
    scene.edited(metadata={"color": "red"})


@pytest.mark.parametrize("change", [_refused, _deleted, _moved])
def test_an_eureka_that_hangs_is_said_whatever_is_changed(
    change: Callable[[Scene], None], running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hanging Eureka is reported for a syncer that is refused, deleted, or has instances left at another
    Eureka.
    """
    monkeypatch.setattr(unresponsive, "REPORT_AFTER_SECONDS", 0.05)
    monkeypatch.setattr(windows, "SILENCE_SECONDS", 0.05)
    monkeypatch.setattr(reconciler, "set_finalizer", lambda *_, **__: True)
    scene, hangs = running.scene, threading.Event()
    scene.endpoints(WEB, a=READY)
    running.start()
    running.controller.lead()
    wait_until(lambda: running.says("Synced") and running.controller.is_idle, "the first", 10)
    carry_out = scene.carry_out

    def hang(steps: Plan, owner: str, registry: EurekaRegistry) -> PlanOutcome:
        if steps.of(Action.DEREGISTER):
            (peer,) = registry.peers.peers
            peer.traffic.note_request_begins()
            assert hangs.wait(20)
            peer.traffic.note_request_ended("GET", "200", 0.0)
        return carry_out(steps, owner, registry)

    scene.carry_out = hang
    change(scene)
    try:
        wait_until(lambda: running.has("EurekaUnreachable"), "it", 10)
    finally:
        hangs.set()
    wait_until(lambda: not running.has("EurekaUnreachable") and running.controller.is_idle, "its end", 10)


def test_an_eureka_that_hangs_is_said_while_it_is_read(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Eureka that hangs during the read before the plan is reported."""
    monkeypatch.setattr(unresponsive, "REPORT_AFTER_SECONDS", 0.05)
    monkeypatch.setattr(windows, "SILENCE_SECONDS", 0.05)
    scene, answers = running.scene, threading.Event()
    scene.endpoints(WEB, a=READY)
    running.start()
    running.controller.lead()
    wait_until(lambda: running.says("Synced") and running.controller.is_idle, "the first", 10)
    (peer,) = running.registry.peers.peers

    def refresh(*_: object, **__: object) -> None:
        peer.traffic.note_request_begins()
        assert answers.wait(20)
        peer.traffic.note_request_ended("GET", "200", 0.0)

    monkeypatch.setattr(running.registry, "refresh", refresh)
    scene.endpoints(WEB, a=READY, b=READY)
    try:
        wait_until(lambda: running.says("EurekaUnreachable"), "it", 10)
    finally:
        answers.set()
    wait_until(lambda: running.says("Synced"), "its end", 10)


def test_an_eureka_that_hangs_is_said_of_all_its_syncers(monkeypatch: pytest.MonkeyPatch) -> None:
    """All syncers of a Eureka are reconciled when it has been silent for seconds, and again when it
    answers.
    """
    monkeypatch.setattr(windows, "SILENCE_SECONDS", 0.05)
    monkeypatch.setattr(windows, "LONG_SILENCE_SECONDS", 0.05)
    scene = Scene()
    scene.endpoints(WEB, a=READY)
    scene.reconcile()
    registry = scene.played.registry
    changes: list[bool] = []
    watch = unresponsive.UnresponsiveEurekaWatch(
        {"default": registry},
        on_changed=lambda _: changes.append(isinstance(registry.condition(), Failing)),
    )
    (peer,) = registry.peers.peers
    watch.check_and_report()
    peer.traffic.note_request_begins()

    def is_noticed() -> bool:
        watch.check_and_report()
        return bool(changes)

    wait_until(is_noticed, "trouble", 10)
    watch.check_and_report()
    scene.reconcile()
    assert (changes, scene.ready()) == ([True], (False, "EurekaUnreachable"))
    peer.traffic.note_request_ended("GET", "none", 5.0)  # timed out, and asked again
    peer.traffic.note_request_begins()
    watch.check_and_report()
    peer.traffic.note_request_ended("GET", "200", 0.1)
    watch.check_and_report()
    scene.reconcile()
    assert (changes, scene.ready()) == ([True, False], (True, "Synced"))


@pytest.mark.parametrize("was_read", [True, False])
def test_an_eureka_that_hangs_is_said_before_it_was_taken_over(
    was_read: bool, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader reports a silent Eureka although its syncers are not reconciled before the take-over ends."""
    monkeypatch.setattr(windows, "SILENCE_SECONDS", 0.05)
    monkeypatch.setattr(windows, "LONG_SILENCE_SECONDS", 60.0)
    scene, answers, registry = running.scene, threading.Event(), running.registry
    scene.endpoints(WEB, a=READY, b=READY)
    if was_read:
        scene.reconcile()
    else:
        registry.reachability = Reachability(registry.peers)
        scene.edited(status={"registered": 7})
    (peer,) = registry.peers.peers
    monkeypatch.setattr(registry, "start_leading", lambda _: answers.wait(20))
    peer.traffic.note_request_begins()
    running.start()
    try:
        time.sleep(0.2)
        assert running.report() is None  # who stands by says nothing
        running.controller.lead()
        wait_until(lambda: running.says("EurekaUnreachable"), "it", 10)
        report = running.report()
        assert report is not None
        assert f"{peer.url} was asked and has not answered since" in report.ready.text
        if was_read:
            assert "by what is known, Eureka holds 2 instances of RATING (2 UP)" in report.ready.text
            assert report.registered == 2
        else:
            assert "the operator has not read Eureka yet, and changes nothing until then" in report.ready.text
            assert "it will register 2 instances of RATING; to fix it: start Eureka" in report.ready.text
            assert (report.desired, report.registered) == (2, 7)
    finally:
        peer.traffic.note_request_ended("GET", "200", 0.1)
        registry.reachability.note_read_and_check_first()
        answers.set()
    wait_until(lambda: running.says("Synced"), "the take-over", 10)
    wait_until(lambda: running.controller.is_idle, "no more", 10)
    assert running.says("Synced")


def test_a_former_leader_says_nothing_of_its_last_reconcile(running: Running) -> None:
    """A former leader forgets its last reports, which would stay in its metrics until it leads again."""
    running.scene.endpoints(WEB, a=READY)
    running.start()
    running.controller.lead()
    history = running.controller.history
    wait_until(lambda: running.says("Synced") and running.controller.is_idle, "it", 10)
    assert {key: one.succeeded_at is not None for key, one in history.last.items()} == {KEY: True}
    recent = history.recent_changes()
    wait_until(running.controller.pause_and_check_idle, "all that was begun", 10)
    running.controller.stand_by()
    assert history.last == {}
    assert history.recent_changes() == recent


def test_an_eureka_that_comes_and_goes_concerns_its_own_syncers() -> None:
    """Syncers that name the Eureka or have instances left there are reconciled, others are not."""
    scene = Scene()
    moved = scene.played.syncer("moved")
    other = scene.played.syncer(
        "other", spec={"mode": "pod", "selector": {"app": "x"}, "eureka": "elsewhere"}
    )
    controller, queue = scene.played.controller, scene.played.parts.queue
    assert {queue.get("default") for _ in range(2)} | {queue.get("elsewhere")} == {KEY, moved, other}
    for key in (KEY, moved, other):
        queue.done(key)
    (left,) = scene.played.instances(moved, 1, registered=False)
    scene.elsewhere.table.store_written_and_return_previous(left)
    controller.enqueue_syncers_of_eureka("elsewhere")
    assert (queue.get("default"), queue.get("elsewhere")) == (moved, other)
    assert queue.depth == 0


class Apart:
    """A running controller with two Eurekas, one of which hangs until a test frees it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.played = PlayedOperator(("default", "hanging"))
        self.freed = threading.Event()
        self.looked_at: list[SyncerKey] = []
        self.controller = self.played.controller
        monkeypatch.setattr(self.played.reconciler, "decide", self._decide)
        for name, registry in self.played.registries.items():
            registry.reachability.note_read_and_check_first()
            waits = self.freed.wait if name == "hanging" else (lambda: None)
            monkeypatch.setattr(registry, "start_leading", lambda _, waits=waits: waits())
        self.controller.start()

    def syncers(self, eureka: str, count: int) -> list[SyncerKey]:
        """Add this number of syncers that name a Eureka."""
        spec = {"mode": "pod", "selector": {"app": "x"}, "eureka": eureka}
        return [self.played.syncer(f"{eureka}-{number}", spec=spec) for number in range(count)]

    def lead(self) -> None:
        """Take over and lead."""
        self.controller.start_renewals()
        self.controller.lead()

    def end(self) -> float:
        """Stop the controller; return how many seconds that took."""
        started = time.monotonic()
        self.controller.stop()
        return time.monotonic() - started

    def has_taken_over(self, name: str) -> bool:
        """Return True if the thread that takes over a Eureka has ended."""
        return not any(thread.name == f"take-over-{name}" for thread in threading.enumerate())

    def _decide(self, key: SyncerKey, served: str) -> SyncerResult:
        if served == "hanging":
            self.freed.wait(60.0)
        self.looked_at.append(key)
        return SyncerResult()


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[Apart]:
    """Yield a controller with two Eurekas, and stop it when the test ends."""
    made = Apart(monkeypatch)
    yield made
    made.freed.set()
    made.end()


def test_an_eureka_that_hangs_holds_up_its_own_syncers_only(apart: Apart) -> None:
    """More syncers than workers hang at one Eureka; those of the other Eureka are reconciled."""
    apart.freed.set()
    apart.lead()
    wait_until(lambda: apart.controller.is_idle, "a start", 30.0)
    apart.freed.clear()
    stuck, well = apart.syncers("hanging", 2 * WORKERS_PER_EUREKA), apart.syncers("default", 20)
    wait_until(lambda: set(well) <= set(apart.looked_at), "those that answer", 30.0)
    assert not set(stuck) & set(apart.looked_at)
    for _ in range(2):
        apart.played.registries["hanging"].reachability.note_failure_and_check_lasting(
            RegistryUnreachable("hangs")
        )
    assert apart.end() < 5.0  # the next leader waits for this one's end
    apart.freed.set()


def test_an_eureka_that_hangs_is_taken_over_by_itself(apart: Apart) -> None:
    """Syncers of other Eurekas are reconciled before the hanging one answers, its own as soon as it does."""
    stuck, well = apart.syncers("hanging", 3), apart.syncers("default", 3)
    apart.lead()
    wait_until(lambda: set(well) <= set(apart.looked_at), "those that answer", 30.0)
    assert not apart.controller.is_idle
    assert not set(stuck) & set(apart.looked_at)
    apart.freed.set()
    wait_until(lambda: set(stuck) <= set(apart.looked_at), "the rest", 30.0)


def test_nobody_is_reconciled_where_the_operator_must_not_work(apart: Apart) -> None:
    """The take-over's first read found another cluster of the same name at one Eureka, whose syncers are
    not reconciled.
    """
    stuck, well = apart.syncers("hanging", 3), apart.syncers("default", 3)
    apart.lead()
    apart.played.registries["hanging"].reachability.note_misconfiguration(
        ConfigurationError("in use by another cluster")
    )
    apart.freed.set()
    wait_until(lambda: set(well) <= set(apart.looked_at), "the others", 30.0)
    wait_until(lambda: apart.has_taken_over("hanging"), "it", 30.0)
    assert not apart.controller.is_idle
    assert not set(stuck) & set(apart.looked_at)


def test_who_lost_the_lease_meanwhile_takes_nothing_over(
    apart: Apart, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Eureka that answers after the Lease was lost is neither renewed at nor reconciled."""
    stuck = apart.syncers("hanging", 3)
    stood_by: list[str] = []
    monkeypatch.setattr(apart.played.registries["hanging"], "stand_by", lambda: stood_by.append("again"))
    apart.lead()
    apart.controller.pause_and_check_idle()
    apart.controller.stand_by()
    apart.freed.set()
    wait_until(lambda: len(stood_by) == 2, "the late one's end", 30.0)
    assert not set(stuck) & set(apart.looked_at)


def test_a_take_over_of_a_former_term_ends_nothing_of_the_next(
    apart: Apart, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Eureka hangs while the replica loses the Lease and leads again: the new term takes it over."""
    stuck = apart.syncers("hanging", 3)
    stood_by: list[str] = []
    monkeypatch.setattr(apart.played.registries["hanging"], "stand_by", lambda: stood_by.append("once"))
    apart.lead()
    apart.controller.pause_and_check_idle()
    apart.controller.stand_by()
    apart.lead()
    apart.freed.set()
    wait_until(lambda: set(stuck) <= set(apart.looked_at), "the new term", 30.0)
    wait_until(lambda: apart.has_taken_over("hanging"), "both", 30.0)
    assert stood_by == ["once"]
