"""A syncer's status: transition times of conditions, and its writes by a thread of their own."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock

import pytest

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.plan import PlanOutcome
from eurekube_provider.core.problem import Problem
from eurekube_provider.kube.rate_limiter import RateLimiter
from eurekube_provider.operator import status as module
from eurekube_provider.operator.conditions import SyncerReport
from eurekube_provider.operator.status import StatusPublisher, StatusWriter, syncer_status
from lab.waiting import wait_until

EARLIER = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LATER = datetime(2026, 1, 2, 3, 5, 0, tzinfo=UTC)
SYNCED = SyncerReport(
    is_ready=True,
    ready=Problem("Synced", "all well"),
    is_synced=True,
    synced=Problem("Synced", "all well"),
    application="RATING",
    desired=2,
    registered=2,
)
THEIRS = Problem("Conflict", "theirs")
CONFLICT = SyncerReport(
    is_ready=False,
    ready=THEIRS,
    is_synced=False,
    synced=THEIRS,
    desired=2,
    registered=1,
    refused=1,
    problems={"Conflict": THEIRS},
)


def syncer(status: dict[str, Any] | None = None, generation: int = 1, name: str = "rating") -> dict[str, Any]:
    """Return a syncer with this status."""
    return {"metadata": {"namespace": "shop", "name": name, "generation": generation}, "status": status}


def condition(status: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return the status' condition of this type."""
    (found,) = [item for item in status["conditions"] if item["type"] == kind]
    return dict(found)


def test_the_first_status() -> None:
    """A syncer without a status gets a complete one."""
    assert syncer_status(syncer(), SYNCED, EARLIER) == {
        "observedGeneration": 1,
        "conditions": [
            {
                "type": kind,
                "status": "True",
                "reason": "Synced",
                "message": "all well",
                "observedGeneration": 1,
                "lastTransitionTime": "2026-01-02T03:04:05Z",
            }
            for kind in ("Ready", "Synced")
        ],
        "application": "RATING",
        "instances": "2/2",
        "desired": 2,
        "registered": 2,
        "refused": 0,
        "names": [],
        "lastSyncTime": "2026-01-02T03:04:05Z",
    }


def test_a_transition_time_is_kept_while_nothing_turns() -> None:
    """``lastTransitionTime`` changes with a condition's status, not with its reason or generation."""
    before = syncer_status(syncer(), SYNCED, EARLIER)
    same = syncer_status(syncer(before, generation=2), SYNCED, LATER)
    assert condition(same, "Ready")["lastTransitionTime"] == "2026-01-02T03:04:05Z"
    assert condition(same, "Ready")["observedGeneration"] == 2
    turned = syncer_status(syncer(before), CONFLICT, LATER)
    assert condition(turned, "Ready")["lastTransitionTime"] == "2026-01-02T03:05:00Z"


def test_a_problem_is_a_condition_of_its_own() -> None:
    """Ready turns False, and a condition named after the problem turns True with its message."""
    status = syncer_status(syncer(), CONFLICT, EARLIER)
    assert condition(status, "Ready")["status"] == "False"
    assert condition(status, "Conflict")["status"] == "True"
    assert condition(status, "Conflict")["message"] == "theirs"
    assert "lastSyncTime" not in status
    assert (status["instances"], status["refused"]) == ("1/2", 1)


def test_a_problem_that_is_over_is_resolved() -> None:
    """A solved problem's condition turns False with the reason Resolved; a problem that never occurred has
    no condition.
    """
    before = syncer_status(syncer(), CONFLICT, EARLIER)
    after = syncer_status(syncer(before), SYNCED, LATER)
    resolved = condition(after, "Conflict")
    assert (resolved["status"], resolved["reason"]) == ("False", "Resolved")
    assert resolved["lastTransitionTime"] == "2026-01-02T03:05:00Z"
    assert [item["type"] for item in after["conditions"]] == ["Ready", "Synced", "Conflict", "Reconciling"]


def test_what_is_not_known_yet_stays_as_it_is() -> None:
    """A new leader leaves a problem's condition unchanged until it has examined that problem itself."""
    short = replace(SYNCED, problems={"DrainTooShort": Problem("DrainTooShort", "20 s")})
    before = syncer_status(syncer(), short, EARLIER)
    after = syncer_status(
        syncer(before, 2), replace(SYNCED, unchecked_condition_types=frozenset({"DrainTooShort"})), LATER
    )
    assert condition(after, "DrainTooShort") == condition(before, "DrainTooShort")
    unchecked = replace(SYNCED, unchecked_condition_types=frozenset({"DrainTooShort"}))
    never = syncer_status(syncer(), unchecked, EARLIER)
    assert [item["type"] for item in never["conditions"]] == ["Ready", "Synced"]


def test_long_messages_are_cut() -> None:
    """A message is cut to the length that the API server accepts."""
    long = replace(CONFLICT, ready=Problem("Conflict", "x" * 100_000))
    assert len(condition(syncer_status(syncer(), long, EARLIER), "Ready")["message"]) <= 32768


class Access:
    """An API server that records writes; a test may have it fail or wait."""

    def __init__(self) -> None:
        self.written: list[tuple[str, dict[str, Any]]] = []
        self.sent: list[dict[str, Any]] = []
        self.error: Exception | None = None
        self.asked = 0
        self.go_on = threading.Event()
        self.go_on.set()

    def request(
        self, method: str, path: str, query: Any = None, body: Any = None, content_type: str = ""
    ) -> Any:
        """Record a write, or raise the error that a test has set."""
        assert (method, query, content_type) == ("PATCH", None, "application/merge-patch+json")
        self.asked += 1
        self.sent.append(body["status"])
        self.go_on.wait(5)
        if self.error:
            raise self.error
        self.written.append((path, body["status"]))
        return {"metadata": {"resourceVersion": str(1000 + self.asked)}}


def test_only_the_newest_is_written() -> None:
    """Of several reports during a write only the last one is written."""
    access = Access()
    access.go_on.clear()
    writer = StatusWriter(access)  # type: ignore[arg-type]
    writer.start()
    writer.queue_report(syncer(), SYNCED)
    wait_until(lambda: access.asked == 1, "the first write", 5)
    writer.queue_report(syncer(), SYNCED)
    writer.queue_report(syncer(), CONFLICT)
    access.go_on.set()
    writer.stop()
    assert [status["registered"] for _, status in access.written] == [2, 1]
    path = "/apis/eurekube.io/v1alpha1/namespaces/shop/eurekasyncers/rating/status"
    assert {written for written, _ in access.written} == {path}


def test_what_stands_there_already_is_not_written() -> None:
    """A status that differs only in the time of the last reconcile is not written."""
    access = Access()
    writer = StatusWriter(access)  # type: ignore[arg-type]
    writer.start()
    writer.queue_report(syncer(syncer_status(syncer(), SYNCED, EARLIER)), SYNCED)
    writer.stop()
    assert access.written == []


def test_what_we_wrote_is_known_before_the_watch_brings_it() -> None:
    """A second equal report causes no write, although the reported object still has its old status."""
    access = Access()
    writer = StatusWriter(access)  # type: ignore[arg-type]
    writer.start()
    writer.queue_report(syncer(), SYNCED)
    wait_until(lambda: access.written, "the first write", 5)
    writer.queue_report(syncer(), SYNCED)
    writer.stop()
    assert len(access.written) == 1


def test_what_was_perhaps_written_is_written_over() -> None:
    """After a write without an answer the next status is written even if it equals the last confirmed one."""
    access = Access()
    writer = StatusWriter(access)  # type: ignore[arg-type]
    writer.start()
    writer.queue_report(syncer(), SYNCED)
    wait_until(lambda: access.written, "the first write", 5)
    access.error = KubernetesError("no answer")
    writer.queue_report(syncer(), CONFLICT)
    wait_until(lambda: access.asked == 2, "the write that is lost", 5)
    access.error = None
    writer.queue_report(syncer(), SYNCED)
    writer.stop()
    assert [status["registered"] for _, status in access.written] == [2, 2]


def test_an_unexpected_error_loses_no_status(monkeypatch: pytest.MonkeyPatch) -> None:
    """A status whose write ended with an error of any kind is written later, without another report."""
    monkeypatch.setattr(module, "UNEXPECTED_ERROR_RETRY_SECONDS", 0.6)
    access = Access()
    access.error = RuntimeError("a fault")
    writer = StatusWriter(access)  # type: ignore[arg-type]
    writer.start()
    writer.queue_report(syncer(), SYNCED)
    wait_until(lambda: access.asked == 1, "the write that fails", 5)
    access.error = None
    wait_until(lambda: access.written, "the write after it", 10)
    writer.stop()
    assert [status["registered"] for _, status in access.written] == [2]


def test_a_syncer_that_is_gone_is_no_error() -> None:
    """A write that is answered with 404 is not repeated."""
    access = Access()
    access.error = KubernetesError("gone", status_code=404)
    writer = StatusWriter(access)  # type: ignore[arg-type]
    writer.start()
    writer.queue_report(syncer(), SYNCED)
    wait_until(lambda: access.asked == 1, "the write", 5)
    writer.stop()
    assert access.asked == 1


def test_a_stop_does_not_hammer_an_api_that_refuses() -> None:
    """During the stop a failed write is repeated at most once, and the stop does not wait for it."""
    access = Access()
    access.error = KubernetesError("away", status_code=503)
    writer = StatusWriter(access)  # type: ignore[arg-type]
    writer.start()
    writer.queue_report(syncer(), SYNCED)
    wait_until(lambda: access.asked == 1, "the first try", 5)
    started = time.monotonic()
    writer.stop()
    asked, elapsed = access.asked, time.monotonic() - started
    access.error = None  # lets the thread end
    assert asked <= 3
    assert elapsed < 2


def test_a_turn_does_not_wait_for_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts that keep changing are written at growing intervals; a condition that changes is written
    soon.
    """
    monkeypatch.setattr(module, "SHORTEST_INTERVAL_SECONDS", 0.1)
    monkeypatch.setattr(module, "LONGEST_INTERVAL_SECONDS", 1000.0)
    access = Access()
    writer = StatusWriter(access)  # type: ignore[arg-type]
    writer.start()
    for count in range(6):
        writer.queue_report(syncer(), replace(SYNCED, registered=count))
        wait_until(lambda: len(access.written) > count, "the write", 30)  # noqa: B023
    began = time.monotonic()
    writer.queue_report(syncer(), replace(SYNCED, registered=6))
    writer.queue_report(syncer(), CONFLICT)
    wait_until(lambda: len(access.written) == 7, "the turn", 30)
    assert time.monotonic() - began < 3.2, "counts would have waited for this time"
    writer.queue_report(syncer(), replace(CONFLICT, registered=0))
    writer.stop()
    assert [status["registered"] for _, status in access.written] == [0, 1, 2, 3, 4, 5, 1, 0]


def started_with_first_statuses(access: Access, names: Collection[str]) -> StatusWriter:
    """Start a writer, and return it once it has written a first status of each syncer."""
    writer = StatusWriter(access)  # type: ignore[arg-type]
    writer.start()
    for name in names:
        writer.queue_report(syncer(name=name), SYNCED)
    wait_until(lambda: len(access.written) == len(names), "the first ones", 30)
    return writer


@pytest.fixture
def counts_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have mere counts wait for ever after the first write."""
    monkeypatch.setattr(module, "COUNTS_PAUSE_TO_WRITE_RATIO", 1e9)
    monkeypatch.setattr(module, "LONGEST_COUNTS_PAUSE_SECONDS", 1000.0)


@pytest.mark.usefixtures("counts_wait")
def test_conditions_do_not_wait_for_the_counts_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a write all syncers' counts pause; a changed condition is written meanwhile, with its counts."""
    monkeypatch.setattr(module, "SHORTEST_INTERVAL_SECONDS", 0.001)
    access = Access()
    writer = started_with_first_statuses(access, "ab")
    for name in "ab":
        writer.queue_report(syncer(name=name), replace(SYNCED, registered=1))
    time.sleep(0.1)
    assert len(access.written) == 2
    writer.queue_report(syncer(name="b"), replace(CONFLICT, registered=0))
    wait_until(lambda: len(access.written) == 3, "the condition", 30)
    time.sleep(0.1)
    writer.stop()
    assert [(path.split("/")[-2], status["registered"]) for path, status in access.written[2:]] == [
        ("b", 0),
        ("a", 1),
    ]


@pytest.mark.usefixtures("counts_wait")
def test_counts_do_not_wait_for_ever_for_the_conditions_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one syncer's condition goes on to change, another one's counts are written after a while."""
    monkeypatch.setattr(module, "LONGEST_COUNTS_WAIT_SECONDS", 0.3)
    access = Access()
    writer = started_with_first_statuses(access, "a")
    writer.queue_report(syncer(name="a"), replace(SYNCED, registered=1))
    turns = 0

    def turn_and_look() -> bool:
        nonlocal turns
        turns += 1
        writer.queue_report(syncer(name=f"b{turns}"), CONFLICT if turns % 2 else SYNCED)
        return any("/a/" in path for path, _ in access.written[1:])

    wait_until(turn_and_look, "the counts", 30)
    assert len(access.written) > 2
    writer.stop()


@pytest.mark.usefixtures("counts_wait")
def test_a_condition_that_another_writer_changed_is_put_right_soon() -> None:
    """A status that was overwritten is no mere count, though this writer wrote the same before."""
    access = Access()
    writer = started_with_first_statuses(access, "ab")
    theirs = {"metadata": {"namespace": "shop", "name": "a", "generation": 1, "resourceVersion": "5000"}}
    assert writer.is_overwritten({**theirs, "status": syncer_status(syncer(name="a"), CONFLICT, EARLIER)})
    began = time.monotonic()
    writer.queue_report({**theirs, "status": syncer_status(syncer(name="a"), CONFLICT, EARLIER)}, SYNCED)
    wait_until(lambda: len(access.written) == 3, "the repair", 30)
    assert time.monotonic() - began < 5
    writer.stop()


def test_counts_of_all_syncers_go_on_after_the_pause() -> None:
    """Counts that wait are written in the end, each syncer's newest."""
    access = Access()
    names = [str(number) for number in range(5)]
    writer = started_with_first_statuses(access, names)
    for registered in (1, 0):
        for name in names:
            writer.queue_report(syncer(name=name), replace(SYNCED, registered=registered))
    wait_until(lambda: len(access.written) == 10, "the counts", 30)
    writer.stop()
    assert [status["registered"] for _, status in access.written[5:]] == [0] * 5


def test_a_write_that_ends_under_another_leader_is_not_remembered() -> None:
    """A remembered write would hide that the other leader has changed the status since."""
    access = Access()
    access.go_on.clear()
    writer = StatusWriter(access)  # type: ignore[arg-type]
    writer.start()
    writer.queue_report(syncer(), SYNCED)
    wait_until(lambda: access.asked == 1, "the write", 5)
    writer.on_leadership_lost()
    access.go_on.set()
    wait_until(lambda: access.written, "its end", 5)
    writer.queue_report(syncer(syncer_status(syncer(), CONFLICT, EARLIER)), SYNCED)
    wait_until(lambda: len(access.written) == 2, "the second write", 5)
    writer.stop()


def test_a_syncer_that_is_gone_takes_no_other_ones_write_along() -> None:
    """Forgetting one syncer during another syncer's write does not lose that write's result."""
    access = Access()
    writer = StatusWriter(access)  # type: ignore[arg-type]
    writer.start()
    writer.queue_report(syncer(), SYNCED)
    wait_until(lambda: access.written, "the first write", 5)
    access.go_on.clear()
    writer.queue_report(syncer(), CONFLICT)
    wait_until(lambda: access.asked == 2, "the second write", 5)
    writer.forget(("shop", "another"))
    access.go_on.set()
    wait_until(lambda: len(access.written) == 2, "its end", 5)
    writer.queue_report(syncer(syncer_status(syncer(), CONFLICT, EARLIER)), SYNCED)
    wait_until(lambda: len(access.written) == 3, "the third write", 5)
    writer.stop()


def standing(status: dict[str, Any], version: int) -> dict[str, Any]:
    """Return the syncer with this status and resource version, as the watch delivers it."""
    found = syncer(status)
    found["metadata"]["resourceVersion"] = str(version)
    return found


def test_a_late_status_of_another_replica_is_written_over() -> None:
    """A killed leader's write may arrive after this leader's; a newer status with another content counts
    as overwritten.
    """
    access = Access()
    writer = StatusWriter(access)  # type: ignore[arg-type]
    writer.start()
    assert not writer.is_overwritten(standing(syncer_status(syncer(), CONFLICT, EARLIER), 8))
    writer.queue_report(standing({}, 7), SYNCED)
    wait_until(lambda: access.written, "the first write", 5)
    theirs = syncer_status(syncer(), CONFLICT, EARLIER)
    ours = access.sent[0]
    wait_until(lambda: writer.is_overwritten(standing(theirs, 1009)), "a newer one", 5)
    assert not writer.is_overwritten(standing(theirs, 1000)), "it is older than what was written"
    assert not writer.is_overwritten(standing(ours, 1009)), "it says the same"
    writer.queue_report(standing(theirs, 1009), SYNCED)
    wait_until(lambda: len(access.written) == 2, "the second write", 5)
    writer.stop()


def test_a_late_status_over_one_that_was_found_right_is_written_over() -> None:
    """A new leader that found the status right, and wrote nothing, still notices a later foreign one."""
    access = Access()
    writer = StatusWriter(access)  # type: ignore[arg-type]
    writer.start()
    writer.queue_report(standing(syncer_status(syncer(), SYNCED, EARLIER), 7), SYNCED)
    theirs = standing(syncer_status(syncer(), CONFLICT, EARLIER), 8)
    wait_until(lambda: writer.is_overwritten(theirs), "the first report", 5)
    writer.forget(("shop", "rating"))
    assert not writer.is_overwritten(theirs)
    writer.stop()
    assert not access.written


def test_a_status_that_was_forgotten_is_written_over_one_out_of_a_backup() -> None:
    """The restored syncer has an older version than the one that was written last."""
    access = Access()
    writer = StatusWriter(access)  # type: ignore[arg-type]
    writer.start()
    writer.queue_report(standing({}, 7), SYNCED)
    wait_until(lambda: access.written, "the first write", 5)
    restored = standing(syncer_status(syncer(), CONFLICT, EARLIER), 5)
    writer.forget(("shop", "rating"))
    writer.queue_report(restored, SYNCED)
    wait_until(lambda: len(access.written) == 2, "the second write", 5)
    writer.stop()


def test_the_status_that_is_being_written_is_ours() -> None:
    """The watch may deliver the operator's own status before the write is answered; it does not count as
    foreign.
    """
    access = Access()
    writer = StatusWriter(access)  # type: ignore[arg-type]
    writer.start()
    writer.queue_report(standing(syncer_status(syncer(), SYNCED, EARLIER), 7), SYNCED)
    theirs = standing(syncer_status(syncer(), replace(SYNCED, registered=1), EARLIER), 1009)
    wait_until(lambda: writer.is_overwritten(theirs), "the first report", 5)
    access.go_on.clear()
    writer.queue_report(standing(syncer_status(syncer(), SYNCED, EARLIER), 7), CONFLICT)
    wait_until(lambda: access.asked == 1, "the write", 5)
    assert not writer.is_overwritten(standing(access.sent[0], 1001))
    assert writer.is_overwritten(theirs)
    access.go_on.set()
    writer.stop()


def test_thousands_at_once_cost_as_much_each_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work for one report does not grow with the number of other syncers that wait."""
    monkeypatch.setattr(RateLimiter, "pause_after_write", staticmethod(lambda _: None))
    access = Access()
    writer = StatusWriter(access)  # type: ignore[arg-type]
    began = time.process_time()
    for number in range(5000):
        writer.queue_report(syncer(name=str(number)), SYNCED)
    writer.start()
    wait_until(lambda: len(access.written) == 5000, "all of them", 60)
    assert time.process_time() - began < 1.5
    writer.stop()


def test_one_outage_is_one_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """However the sentences on an outage differ, an Event is recorded once in ten minutes, and one at the
    end.
    """
    now = [0.0]
    monkeypatch.setattr(module, "time", Mock(monotonic=lambda: now[0]))
    events = Mock()
    publisher = StatusPublisher(events, Mock())

    def noted(*sentences: str) -> list[str]:
        events.reset_mock()
        for one in sentences:
            away = Problem("EurekaUnreachable", one)
            report = replace(SYNCED, is_synced=False, problems={away.reason: away})
            publisher.publish_reconcile(syncer(), report if one else SYNCED, PlanOutcome(), 0.0)
        return [call.args[2] for call in events.record.call_args_list]

    assert noted("refused", "no answer within 5 s", "no answer since noon") == ["EurekaUnreachable"]
    now[0] = 601.0
    assert noted("no answer since noon", "still none") == ["EurekaUnreachable"]
    assert noted("", "", "refused") == ["EurekaReachable", "EurekaUnreachable"]
