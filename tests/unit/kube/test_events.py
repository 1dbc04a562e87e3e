"""Kubernetes Events: written in the background, once, in a form that the API accepts."""

from __future__ import annotations

import threading
import time
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.kube import events as module
from eurekube_provider.kube.events import EventRecorder, EventType
from eurekube_provider.kube.rate_limiter import LONGEST_STOP_DELAY_SECONDS, RateLimiter
from eurekube_provider.operator.dry_run import RunReport
from eurekube_provider.operator.run import longest_final_write_seconds
from lab.waiting import wait_until

SYNCER = {
    "apiVersion": "eurekube.io/v1alpha1",
    "kind": "EurekaSyncer",
    "metadata": {"namespace": "shop", "name": "rating", "uid": "u-1"},
}


class Access:
    """A fake API that records Events or refuses them."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.came: list[float] = []
        self.error: KubernetesError | None = None
        self.answers = threading.Event()
        self.answers.set()

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Record an Event."""
        assert (method, path) == ("POST", "/apis/events.k8s.io/v1/namespaces/shop/events")
        assert self.answers.wait(60)
        self.came.append(time.monotonic())
        self.events.append(body)
        if self.error:
            raise self.error
        return {}


def recorder(access: Access) -> EventRecorder:
    """Return a started recorder of the operator's pod ``pod-1``."""
    result = EventRecorder(access, "eurekube.io/operator", "pod-1")  # type: ignore[arg-type]
    result.start()
    return result


def test_an_event() -> None:
    """An Event names the object, the operator, what happened, and whether a person should act."""
    access = Access()
    events = recorder(access)
    events.record(SYNCER, EventType.WARNING, "Conflict", "theirs")
    events.stop()
    (event,) = access.events
    assert event["regarding"] == {
        "apiVersion": "eurekube.io/v1alpha1",
        "kind": "EurekaSyncer",
        "namespace": "shop",
        "name": "rating",
        "uid": "u-1",
    }
    assert event["metadata"]["namespace"] == "shop"
    assert event["metadata"]["name"].startswith("rating.")
    assert (event["type"], event["reason"], event["note"]) == ("Warning", "Conflict", "theirs")
    assert (event["reportingController"], event["reportingInstance"]) == ("eurekube.io/operator", "pod-1")
    assert event["eventTime"].endswith("Z")


def test_what_repeats_is_written_once() -> None:
    """A repeated note about an object is one Event; another note, reason or object is a new one."""
    access = Access()
    events = recorder(access)
    for _ in range(3):
        events.record(SYNCER, EventType.NORMAL, "Registered", "1 instance")
    events.record(SYNCER, EventType.NORMAL, "Registered", "2 instances")
    events.record(SYNCER, EventType.NORMAL, "Deregistered", "1 instance")
    other = {**SYNCER, "metadata": {"namespace": "shop", "name": "order", "uid": "u-2"}}
    events.record(other, EventType.NORMAL, "Registered", "1 instance")
    events.stop()
    assert len(access.events) == 4
    assert len({event["metadata"]["name"] for event in access.events}) == 4


def test_an_object_whose_notes_change_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a reason's notes about one object only so many are written for a while; others' are written soon."""
    access = Access()
    events = recorder(access)
    for number in range(20 * module.MOST_NOTES_OF_REASON):
        events.record(SYNCER, EventType.WARNING, "NotAllowed", f"name {number}")
    events.record(SYNCER, EventType.WARNING, "Conflict", "theirs")
    other = {**SYNCER, "metadata": {"namespace": "shop", "name": "order", "uid": "u-2"}}
    events.record(other, EventType.WARNING, "NotAllowed", "name 0")
    monkeypatch.setattr(module, "REPEAT_SUPPRESSION_SECONDS", 0.0)
    events.record(SYNCER, EventType.WARNING, "NotAllowed", "name 0")
    events.stop(30)
    counts = Counter((event["regarding"]["name"], event["reason"]) for event in access.events)
    assert counts == {
        ("rating", "NotAllowed"): module.MOST_NOTES_OF_REASON + 1,
        ("rating", "Conflict"): 1,
        ("order", "NotAllowed"): 1,
    }


def test_long_notes_are_cut() -> None:
    """Notes are cut to 1024 bytes and names to 253, the API's limits."""
    access = Access()
    events = recorder(access)
    long = {**SYNCER, "metadata": {"namespace": "shop", "name": f"{'x' * 199}-{'x' * 53}", "uid": "u"}}
    events.record(long, EventType.NORMAL, "Registered", "y" * 2000)
    events.record(long, EventType.NORMAL, "Registered", "é" * 1000)
    events.record(long, EventType.NORMAL, "Registered", "z" * 1024)
    events.stop()
    event, accented, whole = access.events
    assert len(event["note"].encode()) == 1024
    assert event["note"].endswith("y…")
    assert len(accented["note"].encode()) == 1023
    assert accented["note"].endswith("é…")
    assert whole["note"] == "z" * 1024
    assert len(event["metadata"]["name"]) <= 253
    assert event["metadata"]["name"].startswith(f"{'x' * 199}.")  # not -., which the API refuses


def test_an_event_that_is_refused_stops_nothing() -> None:
    """After a refused Event the next one is still sent."""
    access = Access()
    access.error = KubernetesError("forbidden", status_code=403)
    events = recorder(access)
    events.record(SYNCER, EventType.NORMAL, "Registered", "1 instance")
    events.record(SYNCER, EventType.NORMAL, "Registered", "2 instances")
    events.stop()
    assert len(access.events) == 2


def test_what_is_counted_is_added_up() -> None:
    """The first count is an Event at once; counts that follow soon are added up in a second Event."""
    access = Access()
    events = recorder(access)
    for count in (1, 2, 3):
        events.record_instance_count(SYNCER, "Registered", count, "of RATING registered")
    events.record_instance_count(SYNCER, "Deregistered", 1, "of RATING deregistered")
    events.stop()
    assert [(event["reason"], event["note"]) for event in access.events] == [
        ("Registered", "1 instance of RATING registered"),
        ("Deregistered", "1 instance of RATING deregistered"),
        ("Registered", "5 instances of RATING registered"),
    ]


def test_a_sum_does_not_wait_for_the_next_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum is written after a while by itself, and the first count after a quiet time is an Event at
    once.
    """
    monkeypatch.setattr(module, "SHORTEST_SUM_INTERVAL_SECONDS", 0.05)
    access = Access()
    events = recorder(access)
    events.record_instance_count(SYNCER, "Registered", 1, "registered")
    events.record_instance_count(SYNCER, "Registered", 1, "registered")
    wait_until(lambda: len(access.events) == 2, "the sum", 10)
    time.sleep(0.2)  # twice the interval of 0.1 s in which nothing came
    began = time.monotonic()
    events.record_instance_count(SYNCER, "Registered", 1, "registered")
    wait_until(lambda: len(access.events) == 3, "a new Event", 10)
    assert time.monotonic() - began < 5
    events.stop()
    assert {event["note"] for event in access.events} == {"1 instance registered"}


def test_a_count_that_goes_on_is_reported_more_and_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """While counts continue, the time between two sums doubles up to a limit."""
    monkeypatch.setattr(module, "SHORTEST_SUM_INTERVAL_SECONDS", 0.2)
    monkeypatch.setattr(module, "LONGEST_SUM_INTERVAL_SECONDS", 0.6)
    access = Access()
    events = recorder(access)
    for number in range(5):
        events.record_instance_count(SYNCER, "Registered", 1, "registered")
        events.record_instance_count(SYNCER, "Registered", 1, "registered")
        wait_until(lambda: len(access.events) > number, "the next sum", 10)  # noqa: B023
    events.stop()
    pauses = [later - earlier for earlier, later in pairwise(access.came)]
    assert all(pause >= least for pause, least in zip(pauses, (0.1, 0.3, 0.5, 0.5), strict=True)), pauses
    assert sum(pauses) < 5


def test_thousands_at_once_cost_as_much_each_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 Events of 5000 syncers, which a first look at a large cluster makes, take less than 2 s of
    CPU time.
    """
    monkeypatch.setattr(RateLimiter, "pause_after_write", staticmethod(lambda _: None))
    access = Access()
    events = EventRecorder(access, "eurekube.io/operator", "pod-1")  # type: ignore[arg-type]
    began = time.process_time()
    for number in range(5000):
        one = {**SYNCER, "metadata": {"namespace": "shop", "name": "rating", "uid": str(number)}}
        events.record_instance_count(one, "Registered", 1, "of RATING registered")
        events.record(one, EventType.WARNING, "Conflict", "theirs")
    events.start()
    wait_until(lambda: len(access.events) == 10_000, "all of them", 60)
    assert time.process_time() - began < 2.0
    events.stop()


def test_a_single_look_waits_for_its_events() -> None:
    """A run with ``--once`` waits long for its Events to be written, while a running operator stops soon."""
    once, goes_on = RunReport(is_once=True, is_dry=False), RunReport(is_once=False, is_dry=True)
    written, not_written = threading.Event(), threading.Event()
    written.set()
    assert [longest_final_write_seconds(each, not_written) for each in (None, goes_on)] == [
        LONGEST_STOP_DELAY_SECONDS,
        LONGEST_STOP_DELAY_SECONDS,
    ]
    assert longest_final_write_seconds(once, written) == LONGEST_STOP_DELAY_SECONDS
    patience = longest_final_write_seconds(once, not_written)
    assert patience >= 10 * LONGEST_STOP_DELAY_SECONDS

    access, answers = Access(), threading.Event()
    access.answers = answers
    events = recorder(access)
    for number in range(3):
        events.record(SYNCER, EventType.NORMAL, "Registered", f"{number} instances")
    events.stop(0.01)
    assert len(access.events) < 3
    threading.Timer(0.1, answers.set).start()
    events.stop(patience)
    assert len(access.events) == 3
