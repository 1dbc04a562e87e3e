"""The tasks that a replica starts and ends as it wins and loses the Lease, and the check for a second
operator.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kubernetes import client

from eurekube_provider.core.errors import ConfigurationError, EurekubeError, KubernetesError
from eurekube_provider.kube.access import KubeAccess
from eurekube_provider.kube.reflector import WATCH_SETTLE_SECONDS
from eurekube_provider.operator.leadership import (
    CLOCK_TOLERANCE_SECONDS,
    SUSPENDED_AFTER_SECONDS,
    DuplicateOperatorCheck,
    Leadership,
    find_lease_namespace,
)
from lab.waiting import wait_until


class Candidate:
    """An elector whose state the tests set."""

    def __init__(self) -> None:
        self.term = 0
        self.lease_loss_count = 0
        self.holds = self.no_replica_can_lead = self.is_renewed_by_another = False
        self.failure: KubernetesError | None = None
        self.holder, self.lease_name = "pod-1", "ops/eurekube-leader"
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")

    def may_write(self) -> bool:
        return self.holds


class LeaderTasks:
    """Tasks of a leader that record their calls, and are idle when a test says so."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.is_idle = True
        self.knows_all = True

    def pause_and_check_idle(self) -> bool:
        if not self.done or self.done[-1] != "pause":
            self.done.append("pause")
        return self.is_idle

    def start_renewals(self) -> None:
        self.done.append("renew")

    def is_cluster_copy_current(self) -> bool:
        return self.knows_all

    def lead(self) -> None:
        self.done.append("lead")

    def stand_by(self) -> None:
        self.done.append("stand by")


@pytest.fixture
def elector() -> Candidate:
    return Candidate()


@pytest.fixture
def leadership(elector: Candidate) -> Leadership:
    return Leadership(elector)  # type: ignore[arg-type]


def step(leadership: Leadership, elector: Candidate | None, tasks: LeaderTasks) -> list[str]:
    """Return the calls that one look at the Lease causes."""
    tasks.done.clear()
    leadership.apply_election_state(elector, tasks)  # type: ignore[arg-type]
    return list(tasks.done)


def test_a_term_begins_when_all_of_the_one_before_has_ended(
    leadership: Leadership, elector: Candidate
) -> None:
    """While work of an earlier term is under way, the replica writes nothing, although it holds the Lease."""
    tasks = LeaderTasks()
    tasks.is_idle = False
    assert step(leadership, elector, tasks) == ["pause"]
    elector.holds, elector.term = True, 1
    assert step(leadership, elector, tasks) == ["pause"]
    assert not leadership.may_write()
    tasks.is_idle = True
    assert step(leadership, elector, tasks) == ["pause", "renew", "lead"]
    assert leadership.may_write()
    assert step(leadership, elector, tasks) == []


def test_who_knows_only_what_was_renews_and_waits(leadership: Leadership, elector: Candidate) -> None:
    """A new leader whose watches broke renews, but writes nothing: an outdated copy would remove recent
    pods.
    """
    tasks = LeaderTasks()
    tasks.knows_all = False
    elector.holds, elector.term = True, 1
    assert step(leadership, elector, tasks) == ["pause", "renew"]
    assert step(leadership, elector, tasks) == ["pause"]
    assert not leadership.may_write()
    tasks.knows_all = True
    assert step(leadership, elector, tasks) == ["pause", "lead"]
    assert leadership.may_write()


def test_a_lease_that_is_late_pauses_and_keeps_renewing(leadership: Leadership, elector: Candidate) -> None:
    """When the Lease was not renewed in time and no other holder was read, the replica pauses; then it
    leads a new term.
    """
    tasks = LeaderTasks()
    elector.holds, elector.term = True, 1
    step(leadership, elector, tasks)
    elector.holds = False
    assert not leadership.may_write()
    assert step(leadership, elector, tasks) == ["pause"]
    elector.holds, elector.term = True, 2
    assert not leadership.may_write()
    assert step(leadership, elector, tasks) == ["pause", "renew", "lead"]
    assert leadership.may_write()


def test_another_holder_ends_the_renewals(leadership: Leadership, elector: Candidate) -> None:
    """A replica that lost the Lease stands by, also if it holds the Lease again when it notices the loss."""
    tasks = LeaderTasks()
    elector.holds, elector.term = True, 1
    step(leadership, elector, tasks)
    elector.term, elector.lease_loss_count = 2, 1
    assert step(leadership, elector, tasks) == ["pause", "stand by"]
    assert not leadership.may_write()
    assert step(leadership, elector, tasks) == ["pause", "renew", "lead"]
    assert leadership.may_write()


def test_who_stands_by_renews_while_nobody_can_lead(leadership: Leadership, elector: Candidate) -> None:
    """While the API server is out of reach a standby replica renews, until the API is back or another
    replica leads.
    """
    tasks = LeaderTasks()
    assert step(leadership, elector, tasks) == ["pause"]
    elector.no_replica_can_lead = True
    assert step(leadership, elector, tasks) == ["pause", "renew"]
    assert step(leadership, elector, tasks) == ["pause"]
    assert not leadership.may_write()
    elector.no_replica_can_lead = False
    assert step(leadership, elector, tasks) == ["pause", "stand by"]
    assert step(leadership, elector, tasks) == ["pause"]
    elector.no_replica_can_lead = True
    assert step(leadership, elector, tasks) == ["pause", "renew"]
    elector.no_replica_can_lead, elector.holds, elector.term = False, True, 1
    assert step(leadership, elector, tasks) == ["pause", "renew", "lead"]
    assert leadership.may_write()
    elector.lease_loss_count, elector.holds = 1, False
    assert step(leadership, elector, tasks) == ["pause", "stand by"]
    assert step(leadership, elector, tasks) == ["pause"]


def test_nothing_is_written_on_the_way_out(leadership: Leadership, elector: Candidate) -> None:
    """After ``close`` nothing may be written, although the Lease is released later."""
    elector.holds, elector.term = True, 1
    step(leadership, elector, LeaderTasks())
    leadership.forbid_changes()
    assert not leadership.may_write()
    assert elector.calls == []
    leadership.release_lease()
    assert elector.calls == ["stop"]


def test_the_only_replica_leads_until_it_stops() -> None:
    """Without an election the replica leads at once, and uses no Lease."""
    leadership, tasks, stop = Leadership(None), LeaderTasks(), threading.Event()
    thread = threading.Thread(target=leadership.run_tasks, args=(tasks, stop))
    thread.start()
    wait_until(
        lambda: tasks.done == ["pause", "renew", "lead"] and leadership.may_write(), "it to lead", 10.0
    )
    stop.set()
    thread.join(timeout=10.0)
    assert not thread.is_alive()
    leadership.forbid_changes()
    leadership.release_lease()
    assert not leadership.may_write()


@pytest.mark.parametrize("has_lease", [True, False])
def test_a_replica_that_was_suspended_reads_first(elector: Candidate, *, has_lease: bool) -> None:
    """A process that was suspended begins anew, with or without a Lease: it writes nothing until its watches
    brought what changed meanwhile, and its copy is current.
    """
    now = [0.0]
    elector.holds, elector.term = True, 1
    leadership = Leadership(elector if has_lease else None, clock=lambda: now[0])  # type: ignore[arg-type]
    tasks = LeaderTasks()

    def look(seconds_later: float) -> list[str]:
        now[0] += seconds_later
        return step(leadership, elector if has_lease else None, tasks)

    assert look(0.0) == ["pause", "renew", "lead"]
    assert look(SUSPENDED_AFTER_SECONDS - 1) == []
    assert leadership.may_write()
    now[0] += 60.0
    assert not leadership.may_write()
    assert look(0.0) == ["pause"]
    assert not leadership.may_write()
    tasks.knows_all = False
    assert look(WATCH_SETTLE_SECONDS) == ["pause", "renew"]
    assert not leadership.may_write()
    tasks.knows_all = True
    assert look(0.1) == ["pause", "lead"]
    assert leadership.may_write()
    assert look(0.1) == []


def test_a_long_beginning_is_no_suspension(elector: Candidate) -> None:
    """A replica with many syncers takes its time to begin a term, and does not begin the term again."""
    now = [0.0]

    class ManySyncers(LeaderTasks):
        def lead(self) -> None:
            super().lead()
            now[0] += 2 * SUSPENDED_AFTER_SECONDS

    elector.holds, elector.term = True, 1
    leadership, tasks = Leadership(elector, clock=lambda: now[0]), ManySyncers()  # type: ignore[arg-type]
    assert step(leadership, elector, tasks) == ["pause", "renew", "lead"]
    assert step(leadership, elector, tasks) == []
    assert leadership.may_write()


NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Leases(KubeAccess):
    """An API server with some Leases of the operator's name."""

    def __init__(self, **leases: dict[str, Any]) -> None:
        super().__init__(client.Configuration(host="http://127.0.0.1:1"))
        self.leases = leases
        self.error: KubernetesError | None = None
        self.asked: list[Mapping[str, str] | None] = []

    def get(self, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the list of all Leases, or the operator's own Lease."""
        if path == "/apis/coordination.k8s.io/v1/namespaces/default/leases/eurekube-leader":
            if "default" not in self.leases:
                raise KubernetesError("not found", status_code=404)
            return self.leases["default"]
        assert path == "/apis/coordination.k8s.io/v1/leases"
        self.asked.append(query)
        if self.error:
            raise self.error
        return {
            "items": [
                {"metadata": {"namespace": namespace, "name": "eurekube-leader"}, "spec": spec}
                for namespace, spec in self.leases.items()
            ]
        }


def held(seconds_ago: float = 1.0, holder: str = "eurekube-0_1") -> dict[str, Any]:
    """Return a Lease's spec, renewed this number of seconds ago."""
    renewed = (NOW - timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}


def check_of(
    access: KubeAccess, period_seconds: float = 60.0, stop: threading.Event | None = None
) -> DuplicateOperatorCheck:
    """Return the check for duplicate operators, with this operator's Lease in the namespace ``default``."""
    found = (stop or threading.Event()).set
    return DuplicateOperatorCheck(access, "default", "eurekube-leader", period_seconds, found, lambda: NOW)


def test_an_operator_that_leads_elsewhere_is_found() -> None:
    """The error names the holder, its Lease, and the flags that help."""
    access = Leases(eurekube=held())
    with pytest.raises(ConfigurationError) as refused:
        check_of(access).require_no_duplicate()
    said = str(refused.value)
    assert "eurekube-0_1 leads in this cluster by the Lease eurekube/eurekube-leader" in said
    assert "--lease-namespace eurekube" in said
    assert "--operator-name" in said
    assert access.asked == [{"fieldSelector": "metadata.name=eurekube-leader"}]


@pytest.mark.parametrize(
    "leases",
    [
        {},
        {"default": held()},
        {"eurekube": held(holder="")},
        {"eurekube": held(15 + CLOCK_TOLERANCE_SECONDS)},
        {"eurekube": {}},
        {"eurekube": {"holderIdentity": "a", "renewTime": "yesterday"}},
    ],
)
def test_nobody_leads_elsewhere(leases: dict[str, Any]) -> None:
    """The operator's own Lease, a released Lease, and one that expired long ago are no second operator."""
    check_of(Leases(**leases)).require_no_duplicate()


def test_a_lease_that_is_renewed_is_held_whatever_its_clock_says() -> None:
    """A Lease that changes between two looks is held, even if its holder's clock is hours wrong."""
    access = Leases(eurekube=held(7200))
    check = check_of(access)
    check.require_no_duplicate()
    check.require_no_duplicate()
    access.leases["eurekube"] = held(7190)
    with pytest.raises(ConfigurationError, match="leads in this cluster"):
        check.require_no_duplicate()


def test_who_may_not_list_leases_must_say_where_its_own_is() -> None:
    """An operator that cannot list Leases refuses to start, unless its own Lease exists in the given
    namespace.
    """
    access = Leases()
    access.error = KubernetesError("GET leases: forbidden", status_code=403)
    with pytest.raises(ConfigurationError, match="--lease-namespace default"):
        check_of(access).require_no_duplicate()
    access.leases["default"] = held()
    check_of(access).require_no_duplicate()  # it has served so far, and goes on


def test_one_that_comes_later_ends_this_operator() -> None:
    """The check is repeated and stops this operator when a second one leads; a failure of the API does not
    stop it.
    """
    access, stop = Leases(), threading.Event()
    access.error = KubernetesError("GET leases: no answer")
    check = check_of(access, 0.01, stop)
    check.start()
    wait_until(lambda: len(access.asked) > 1, "two looks", 10.0)
    assert not stop.is_set()
    access.leases["eurekube"] = held()
    access.error = None
    wait_until(stop.is_set, "the end", 10.0)
    assert "eurekube/eurekube-leader" in str(check.refusal)


def test_work_that_is_done_once_waits_for_the_lease(leadership: Leadership, elector: Candidate) -> None:
    """A single pass may write once it holds the Lease, and fails if it loses the Lease before its end."""
    timer = threading.Timer(0.1, lambda: vars(elector).update(holds=True, term=1))
    timer.start()
    assert leadership.wait_for_lease(threading.Event(), 60.0)
    assert (leadership.may_write(), elector.calls) == (True, ["start"])
    leadership.require_lease()
    elector.holds = False
    with pytest.raises(EurekubeError, match=r"not all was done, since the Lease ops/eurekube-leader"):
        leadership.require_lease()


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"is_renewed_by_another": True}, "pod-1 leads and renews the Lease ops/eurekube-leader"),
        ({}, r"could not be taken .pod-1 holds it.*--without-lease"),
        ({"failure": KubernetesError("no right", status_code=403)}, r"no right.*--without-lease"),
    ],
)
def test_work_that_is_done_once_gives_way(
    leadership: Leadership, elector: Candidate, state: dict[str, Any], words: str
) -> None:
    """A single pass fails without a write while another replica renews the Lease."""
    vars(elector).update(state)
    with pytest.raises(EurekubeError, match=words):
        leadership.wait_for_lease(threading.Event(), 0.0)
    assert not leadership.may_write()


def test_one_time_work_may_be_stopped_or_have_no_election(leadership: Leadership) -> None:
    """A stop ends the wait for the Lease; without an election a single pass does not wait."""
    stop = threading.Event()
    stop.set()
    assert not leadership.wait_for_lease(stop, 60.0)
    alone = Leadership(None)
    assert alone.wait_for_lease(stop, 60.0)
    alone.require_lease()


class Listing:
    """An API server that lists a Lease in each of these namespaces, or raises an error."""

    def __init__(self, *namespaces: str, error: KubernetesError | None = None) -> None:
        self._items = [{"metadata": {"namespace": one, "name": "eurekube-leader"}} for one in namespaces]
        self._error = error

    def get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Return the list of Leases."""
        assert (path, query["fieldSelector"]) == (
            "/apis/coordination.k8s.io/v1/leases",
            "metadata.name=eurekube-leader",
        )
        if self._error:
            raise self._error
        return {"items": self._items}


def test_the_lease_of_an_operator_that_runs_elsewhere_is_found() -> None:
    """A command outside the cluster finds the operator's namespace by its Lease; several Leases are an
    error.
    """

    def found(listing: Any) -> str:
        return find_lease_namespace(listing, "default", "eurekube-leader")

    assert found(Listing()) == "default"
    assert found(Listing("eureka-system")) == "eureka-system"
    with pytest.raises(ConfigurationError, match="in the namespaces a, b: name the operator's"):
        found(Listing("b", "a"))
    with pytest.raises(ConfigurationError, match="name its namespace with --lease-namespace"):
        found(Listing(error=KubernetesError("no", status_code=403)))
    with pytest.raises(KubernetesError):
        found(Listing(error=KubernetesError("no answer")))


@pytest.mark.parametrize("state", [{"holds": True, "term": 1}, {"is_renewed_by_another": True}])
def test_who_leads_or_reads_that_another_does_is_settled(
    leadership: Leadership, elector: Candidate, state: dict[str, Any]
) -> None:
    """The callback runs once, when this replica leads or sees another one renew the Lease, not before."""
    settled: list[str] = []
    stop, tasks = threading.Event(), LeaderTasks()
    follows = (tasks, stop, lambda: settled.append("settled"))
    thread = threading.Thread(target=leadership.run_tasks, args=follows, daemon=True)
    thread.start()
    wait_until(lambda: bool(elector.calls), "the start", 10.0)
    stop.wait(0.2)
    assert settled == []
    vars(elector).update(state)
    wait_until(lambda: bool(settled), "the end of waiting", 10.0)
    stop.wait(0.2)
    assert settled == ["settled"]
    stop.set()
    thread.join()
