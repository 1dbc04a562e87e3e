"""Runs and statuses of StackRefreshes, with an API server and a target that a test plays."""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kubernetes import client

from eurekube_provider.core.errors import KubernetesError, LeadershipLost
from eurekube_provider.core.syncer import Selector
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.kube.access import STACK_REFRESHES, KubeAccess
from eurekube_provider.kube.events import EventRecorder, EventType
from eurekube_provider.operator.settings import Settings
from eurekube_provider.operator.triggers import triggers as module
from eurekube_provider.operator.triggers.targets import (
    AutomationStack,
    StackRun,
    StackRunOutcome,
    StackRunResult,
    Target,
)
from eurekube_provider.operator.triggers.trigger_state import format_duration
from eurekube_provider.operator.triggers.triggers import StackRefreshController
from eurekube_provider.operator.web.overview import refresh_row_dicts
from eurekube_provider.runtime.clock import format_utc_time
from lab.waiting import wait_until

Object = dict[str, Any]
KEY = ("shop", "rating")
QUIET_SECONDS = 0.05


class Api(KubeAccess):
    """An API server with StackRefreshes, which can fail as for a replica without the Lease."""

    def __init__(self) -> None:
        super().__init__(client.Configuration(host="http://127.0.0.1:1"))
        self.items: dict[str, Object] = {}
        self.writes: list[Object] = []
        self.taken_off: list[Object] = []
        self.failure: KubernetesError | LeadershipLost | None = None
        self.failures = 0
        self.denies: int | None = None
        """HTTP status with which lists in the namespace ``closed`` are refused, or None."""
        self.over = threading.Event()

    def request(self, method: str, path: str, *_: Any, **more: Any) -> Object:
        """List or read StackRefreshes, or patch one's status or annotations."""
        if "/closed/" in path:
            if self.denies is not None:
                raise KubernetesError("denied", status_code=self.denies)
            return {"metadata": {"resourceVersion": "1"}, "items": []}
        if self.failure:
            self.failures += 1
            raise self.failure
        name = path.removesuffix("/status").rpartition("/")[2]
        if name == STACK_REFRESHES.plural:
            items = copy.deepcopy(list(self.items.values()))
            return {"metadata": {"resourceVersion": "1"}, "items": items}
        if name not in self.items:
            raise KubernetesError("not found", status_code=404)
        item = self.items[name]
        if method == "PATCH" and not path.endswith("/status"):
            self.taken_off.append(more["body"]["metadata"]["annotations"])
        elif method == "PATCH":
            status = copy.deepcopy(more["body"]["status"])
            self.writes.append(status)
            item["status"] = _merged(item.get("status") or {}, status)
        return copy.deepcopy(item)

    def watch(self, *_: Any, **__: Any) -> Iterator[Object]:
        """Report no change; tests pass changes to the reflector themselves."""
        self.over.wait(60)
        yield from ()


def _merged(old: Object, patch: Object) -> Object:
    result = {key: value for key, value in old.items() if key not in patch}
    for key, value in patch.items():
        if isinstance(value, dict):
            result[key] = _merged(old.get(key) or {}, value)
        elif value is not None:
            result[key] = value
    return result


class Events(EventRecorder):
    """A recorder that keeps each Event."""

    def __init__(self, api: Api) -> None:
        super().__init__(api, "c", "i")
        self.recorded: list[tuple[str, str, str]] = []

    def record(self, regarding: Any, kind: EventType, reason: str, note: str) -> None:
        """Keep an Event's kind, reason and note."""
        assert regarding["kind"] == "StackRefresh"
        self.recorded.append((str(kind), reason, note))


class Played:
    """Triggers of one replica, in a cluster of one Service, with a target that a test plays."""

    def __init__(
        self,
        api: Api | None = None,
        shortest_interval_seconds: float = QUIET_SECONDS,
        namespaces: tuple[str, ...] = (),
    ) -> None:
        self.api = api or Api()
        self.events = Events(self.api)
        self.addresses: list[str] = ["10.0.0.1"]
        self.services = ["rating"]
        self.unread = False
        self.looks: list[tuple[str, ...]] = []
        """The Service's addresses at each time that the triggers read them."""
        self.runs: list[StackRun] = []
        self.results: list[StackRunResult | Exception] = []
        self.gate = threading.Event()
        self.gate.set()
        target = Target(
            "prod",
            AutomationStack("prod", "/"),
            frozenset({"shop"}),
            shortest_debounce_seconds=QUIET_SECONDS,
            shortest_interval_seconds=shortest_interval_seconds,
        )
        connections = {"default": Connection.parse("http://h/e")}
        settings = Settings(connections, watch_namespaces=namespaces, targets={"prod": target})
        self.gone: set[tuple[str, str]] = set()
        self.triggers = StackRefreshController(
            settings,
            "eks",
            self.api,
            self.events,
            self._selected,
            {"prod": self._run},
            lambda pod, namespace: (pod, namespace) in self.gone,
        )

    def start(self) -> None:
        """Start the triggers, and wait for the first list."""
        self.api.over.clear()
        self.triggers.start()
        self.wait(self.is_settled, "the first list")

    def is_settled(self) -> bool:
        """Return True if all StackRefreshes that may be read are known."""
        return all(one.is_synced_or_forbidden for one in self.triggers.reflectors.reflectors)

    def stop(self) -> None:
        """Stop the triggers, as an operator does at its end."""
        self.triggers.close()
        self.api.over.set()
        self.triggers.join()

    def _selected(self, _: Selector) -> tuple[list[Object], list[Object]]:
        self.looks.append(tuple(self.addresses))
        if self.unread:
            raise KubernetesError("the Services have not been read")
        services = [{"metadata": {"namespace": "shop", "name": name, "labels": {}}} for name in self.services]
        labels = {"kubernetes.io/service-name": "rating"}
        endpoints = [{"addresses": [address], "conditions": {}} for address in self.addresses]
        metadata = {"namespace": "shop", "name": "rating-1", "labels": labels}
        return services, [{"metadata": metadata, "ports": [{"port": 80}], "endpoints": endpoints}]

    def _run(self, run: StackRun) -> StackRunResult:
        self.runs.append(run)
        while not self.gate.wait(0.02) and not run.cancelled.is_set():
            pass
        result = (
            self.results.pop(0)
            if self.results
            else StackRunResult(StackRunOutcome.CHANGED, "up: 1 created", {"create": 1})
        )
        if isinstance(result, Exception):
            raise result
        return result

    def put(self, _name: str = "rating", _annotations: Object | None = None, **spec: Any) -> None:
        """Create or change a StackRefresh, and report the change."""
        given = {"selector": {"app": "rating"}, "action": "Up", "target": "prod", **spec}
        old = self.api.items.get(_name)
        metadata = {
            "namespace": "shop",
            "name": _name,
            "uid": "u-1" if _name == "rating" else f"u-{_name}",
            "annotations": _annotations or {},
            "generation": old["metadata"]["generation"] + 1 if old else 1,
        }
        item = {
            "apiVersion": "eurekube.io/v1alpha1",
            "kind": "StackRefresh",
            "metadata": metadata,
            "spec": given,
        }
        if old and "status" in old:
            item["status"] = old["status"]
        self.api.items[_name] = item
        self.seen(_name)

    def seen(self, name: str = "rating") -> None:
        """Report a StackRefresh to the triggers, as the watch does."""
        reflector = self.triggers.reflectors.reflectors[0]
        reflector.apply_event("MODIFIED", copy.deepcopy(self.api.items[name]))

    def delete(self, name: str = "rating") -> None:
        """Delete a StackRefresh, and report the deletion."""
        (reflector,) = self.triggers.reflectors.reflectors
        reflector.apply_event("DELETED", self.api.items.pop(name))

    def scale(self, *addresses: str) -> None:
        """Replace the Service's addresses, and report the change."""
        self.addresses = list(addresses)
        self.touched()

    def touched(self) -> None:
        """Report a change of the Service."""
        self.triggers.service_changed({"metadata": {"namespace": "shop", "name": "rating", "labels": {}}})

    @property
    def status(self) -> Object:
        """The status that was written last."""
        return dict(self.api.items["rating"].get("status") or {})

    def condition(self, kind: str) -> tuple[str, str]:
        """Return status and reason of a condition."""
        found = {one["type"]: one for one in self.status.get("conditions", ())}
        return (found[kind]["status"], found[kind]["reason"]) if kind in found else ("", "")

    def wait(self, condition: Callable[[], object], what: str) -> None:
        """Wait until a condition holds, for at most 20 seconds."""
        wait_until(condition, what, 20)

    def wait_synced(self, runs: int) -> None:
        """Wait until this number of runs has succeeded and Synced is True."""
        self.wait(
            lambda: self.condition("Synced") == ("True", "Served") and self.status.get("runs") == runs,
            f"{runs} runs, and all served",
        )


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    """Yield a replica that leads, with short times."""
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.1)
    monkeypatch.setattr("eurekube_provider.core.schedule.FIRST_RETRY_SECONDS", 0.05)
    monkeypatch.setattr("eurekube_provider.operator.triggers.targets.DEFAULT_DEBOUNCE_SECONDS", QUIET_SECONDS)
    monkeypatch.setattr("eurekube_provider.operator.triggers.targets.DEFAULT_INTERVAL_SECONDS", QUIET_SECONDS)
    replica = Played()
    replica.start()
    replica.triggers.lead()
    yield replica
    replica.stop()


def test_a_new_one_runs_once_and_says_so(played: Played) -> None:
    """A new StackRefresh runs, since nobody knows whether the stack has the present addresses."""
    played.put()
    played.wait_synced(1)
    (run,) = played.runs
    assert (run.namespace, run.name, str(run.action), run.cluster) == ("shop", "rating", "Up", "eks")
    assert run.addresses == {"shop/rating": ("10.0.0.1:80",)}
    assert played.condition("Ready") == ("True", "Succeeded")
    status = played.status
    assert (status["observedGeneration"], status["services"], status["addresses"]) == (1, 1, 1)
    last = status["lastRun"]
    assert (last["outcome"], last["changes"], last["message"]) == ("Changed", {"create": 1}, "up: 1 created")
    assert (last["action"], last["target"], last["addresses"]) == ("Up", "prod", 1)
    assert last["startTime"] <= last["completionTime"]
    assert last["duration"].endswith("s")
    assert [(kind, reason) for kind, reason, _ in played.events.recorded] == [("Normal", "RunChanged")]


def test_a_change_of_the_addresses_runs(played: Played) -> None:
    """A change of the Service that leaves the addresses as they are starts no run."""
    played.put()
    played.wait_synced(1)
    played.touched()
    played.scale("10.0.0.1", "10.0.0.2")
    played.wait_synced(2)
    assert [run.addresses["shop/rating"] for run in played.runs] == [
        ("10.0.0.1:80",),
        ("10.0.0.1:80", "10.0.0.2:80"),
    ]
    writes, looks = len(played.api.writes), len(played.looks)
    played.touched()
    played.wait(
        lambda: len(played.looks) > looks and KEY not in played.triggers.next_run_times(), "the comparison"
    )
    assert (len(played.runs), len(played.api.writes)) == (2, writes)


def test_what_changes_during_a_run_comes_after_it(played: Played) -> None:
    """All changes during a run lead to one run after it; the status says Running meanwhile."""
    played.gate.clear()
    played.put()
    played.wait(lambda: played.runs, "the run")
    assert played.condition("Synced") == ("False", "Running")
    assert played.status["lastRun"]["outcome"] == "Running"
    assert "servedDigest" not in played.status
    for number in range(20):
        played.scale(f"10.0.1.{number}")
    played.gate.set()
    played.wait_synced(2)
    assert [run.addresses["shop/rating"] for run in played.runs] == [("10.0.0.1:80",), ("10.0.1.19:80",)]


def test_what_is_shown_of_one_is_what_the_leader_knows(played: Played) -> None:
    """The status page's row shows the last run and the time of the next one, unless the StackRefresh is
    paused.
    """
    played.put()
    played.wait_synced(1)
    (row,) = refresh_row_dicts(played.triggers)
    assert (row["name"], row["action"], row["target"]) == ("rating", "Up", "prod")
    assert (row["application"], row["addresses"]) == ("RATING", 1)
    assert (row["ready"], row["synced"], row["outcome"]) == (True, True, "Changed")
    assert row["lastRunAt"] == played.status["lastRun"]["startTime"]
    assert row["nextRunAt"] is None
    before = datetime.now(UTC)
    played.put(minIntervalSeconds=3600)
    played.scale("10.0.0.9")
    played.wait(lambda: refresh_row_dicts(played.triggers)[0]["nextRunAt"], "the next run")
    due = datetime.fromisoformat(refresh_row_dicts(played.triggers)[0]["nextRunAt"] or "")
    assert timedelta(minutes=55) < due - before < timedelta(minutes=61)
    played.put(minIntervalSeconds=3600, paused=True)
    played.wait(lambda: refresh_row_dicts(played.triggers)[0]["nextRunAt"] is None, "the pause")
    assert refresh_row_dicts(played.triggers)[0]["paused"]


def test_a_failed_run_is_shown_and_tried_again(played: Played) -> None:
    """Each retry has the same key and the next attempt number, until one succeeds."""
    locked = StackRunResult(StackRunOutcome.LOCKED, "ann@host works on it")
    played.results = [
        StackRunResult(StackRunOutcome.FAILED, "exit status 255"),
        RuntimeError("Bearer hidden"),
        locked,
    ]
    seen: list[tuple[str, str]] = []
    played.put()
    played.wait_synced(1)
    for write in played.api.writes:
        ready = next(one for one in write["conditions"] if one["type"] == "Ready")
        if ready["status"] == "False" and (ready["reason"], ready["message"]) not in seen:
            seen.append((ready["reason"], ready["message"]))
    assert seen == [
        ("Failed", "exit status 255"),
        ("Failed", "the run broke off (RuntimeError); the operator's log says where"),
        ("Locked", "ann@host works on it"),
    ]
    assert [run.attempt for run in played.runs] == [1, 2, 3, 4]
    assert len({run.idempotency_key for run in played.runs}) == 1
    assert (played.status["failures"], played.condition("Ready")) == (0, ("True", "Succeeded"))
    assert [(kind, reason) for kind, reason, _ in played.events.recorded] == [
        ("Warning", "RunFailed"),
        ("Warning", "RunFailed"),
        ("Warning", "StackLocked"),
        ("Normal", "RunChanged"),
    ]
    history = played.triggers.run_statistics()[KEY]
    assert history.outcomes == {
        StackRunOutcome.FAILED: 2,
        StackRunOutcome.LOCKED: 1,
        StackRunOutcome.CHANGED: 1,
    }


def test_the_next_thing_to_run_has_another_key(played: Played) -> None:
    """A later run has a new key, also if the addresses equal those of an earlier run."""
    played.put()
    played.wait_synced(1)
    played.scale("10.0.0.2")
    played.wait_synced(2)
    played.scale("10.0.0.1")
    played.wait_synced(3)
    assert len({run.idempotency_key for run in played.runs}) == 3


def test_another_action_is_another_thing_to_run(played: Played) -> None:
    """A changed ``spec.action`` starts a run, although the addresses are unchanged."""
    played.put()
    played.wait_synced(1)
    played.put(action="Preview")
    played.wait_synced(2)
    assert [str(run.action) for run in played.runs] == ["Up", "Preview"]
    assert played.status["observedGeneration"] == 2


def test_a_pause(played: Played) -> None:
    """During a pause nothing runs; after it one run covers all changes."""
    played.put(paused=True)
    played.wait(lambda: played.condition("Paused") == ("True", "Paused"), "Paused")
    played.scale("10.0.0.3")
    played.wait(lambda: played.looks[-1:] == [("10.0.0.3",)], "the comparison")
    assert (played.runs, played.condition("Synced")) == ([], ("False", "Pending"))
    played.put()
    played.wait_synced(1)
    assert played.condition("Paused") == ("False", "Resolved")
    assert [run.addresses["shop/rating"] for run in played.runs] == [("10.0.0.3:80",)]


@pytest.mark.parametrize(
    ("spec", "reason", "words"),
    [
        ({"target": "dev"}, "UnknownTarget", "has no target of that name; there are: prod"),
        ({"action": "Destroy"}, "NotAllowed", "must be Refresh, Up or Preview"),
        (
            {"selector": {"app": "rating", "namespace": "other"}},
            "NotAllowed",
            "--cross-namespace shop=other",
        ),
    ],
)
def test_what_may_not_run(played: Played, spec: Object, reason: str, words: str) -> None:
    """Ready and an Event give the reason of the refusal; once the spec is fixed, the StackRefresh runs."""
    played.put(**spec)
    played.wait(lambda: played.condition("Ready") == ("False", reason), reason)
    assert played.condition("Synced") == ("False", reason)
    ((kind, event, note),) = played.events.recorded
    assert (kind, event, words in note) == ("Warning", reason, True)
    assert played.runs == []
    played.put()
    played.wait_synced(1)
    assert played.condition("Ready") == ("True", "Succeeded")


def test_without_a_service_nothing_runs_at_first(played: Played) -> None:
    """A selector that never matched a Service, perhaps a typo, starts no run; a Service that vanishes
    later does.
    """
    played.services = []
    played.put()
    played.wait(lambda: played.condition("Ready") == ("False", "NoMatchingService"), "NoMatchingService")
    assert played.runs == []
    played.services = ["rating"]
    played.touched()
    played.wait_synced(1)
    played.services = []
    played.touched()
    played.wait_synced(2)
    assert played.runs[-1].addresses == {}


def test_after_a_restart_nothing_runs_that_was_served(played: Played) -> None:
    """The status keeps the served addresses; the new process neither runs nor writes."""
    played.put()
    played.wait_synced(1)
    played.stop()
    writes = len(played.api.writes)
    after = Played(played.api)
    after.seen()
    after.start()
    after.triggers.lead()
    after.wait(lambda: KEY in after.triggers.states(), "the StackRefresh to be known")
    after.wait(lambda: after.looks and KEY not in after.triggers.next_run_times(), "the comparison")
    assert (after.runs, len(after.api.writes)) == ([], writes)
    after.scale("10.0.0.7")
    after.wait_synced(2)
    after.stop()


def test_a_run_that_nobody_saw_end_is_run_again(played: Played) -> None:
    """The repeated run has the same key, by which a webhook's receiver or Pulumi's operator recognizes it."""
    played.put()
    played.wait_synced(1)
    played.gate.clear()
    played.scale("10.0.0.2")
    played.wait(lambda: len(played.runs) == 2, "the second run")
    played.stop()
    after = Played(played.api)
    after.addresses = played.addresses
    after.seen()
    after.start()
    after.triggers.lead()
    after.wait_synced(2)
    (run,) = after.runs
    assert (run.idempotency_key, run.attempt) == (played.runs[1].idempotency_key, 1)
    assert after.events.recorded[0][:2] == ("Warning", "RunCutOff")
    after.stop()


def test_who_leads_next_keeps_the_distance(played: Played) -> None:
    """The next leader continues the interval and the back-off that the status shows."""
    began = datetime.now(UTC) - timedelta(seconds=100)
    played.put()
    played.wait_synced(1)
    played.stop()
    status = played.api.items["rating"]["status"]
    status["lastRun"] |= {
        "startTime": format_utc_time(began.timestamp()),
        "completionTime": format_utc_time(began.timestamp()),
    }
    status |= {"failures": 12}
    del status["servedDigest"]
    after = Played(played.api)
    after.seen()
    after.start()
    after.triggers.lead()
    after.wait(lambda: KEY in after.triggers.next_run_times(), "the StackRefresh to be known")
    waits = (
        after.triggers.next_run_times()[KEY]
        - datetime.fromisoformat(format_utc_time(began.timestamp())).timestamp()
    )
    assert waits == pytest.approx(0.05 * 2**11, abs=0.1)
    after.stop()


def test_a_standby_runs_nothing(played: Played, caplog: pytest.LogCaptureFixture) -> None:
    """A replica that lost the Lease starts no run and writes nothing, not even the result of a run under
    way.
    """
    caplog.set_level(logging.INFO)
    played.put()
    played.wait_synced(1)
    played.gate.clear()
    played.scale("10.0.0.2")
    played.wait(lambda: len(played.runs) == 2, "the second run")
    played.triggers.stand_by()
    played.wait(lambda: not played.triggers.states(), "all to be forgotten")
    writes = len(played.api.writes)
    played.scale("10.0.0.3")
    played.gate.set()
    ended = "stack run succeeded, waiting for the next change"
    played.wait(lambda: caplog.messages.count(ended) == 2, "the run to end")
    assert (len(played.runs), len(played.api.writes)) == (2, writes)
    played.triggers.lead()
    played.wait_synced(2)
    assert played.runs[-1].addresses == {"shop/rating": ("10.0.0.3:80",)}


@pytest.mark.parametrize("failure", [KubernetesError("no answer"), LeadershipLost("another one leads")])
def test_nothing_runs_that_the_status_does_not_say(
    played: Played, failure: KubernetesError | LeadershipLost
) -> None:
    """A run begins only after the status was written, by which the next leader learns of it if this
    replica dies.
    """
    played.put()
    played.wait_synced(1)
    played.api.failure = failure
    played.scale("10.0.0.2")
    played.wait(lambda: played.api.failures, "the try")
    assert len(played.runs) == 1
    played.api.failure = None
    played.wait_synced(2)


def test_nothing_runs_for_services_that_were_not_read(played: Played) -> None:
    """Services that could not be read do not count as an empty set of addresses."""
    played.put()
    played.wait_synced(1)
    played.unread = True
    played.services = []
    looks = len(played.looks)
    played.touched()
    played.wait(lambda: len(played.looks) > looks, "the try")
    assert len(played.runs) == 1
    played.unread, played.services = False, ["rating"]
    played.wait(lambda: KEY not in played.triggers.next_run_times(), "the comparison")
    assert len(played.runs) == 1


def test_a_change_while_a_list_is_missing_is_not_lost(played: Played) -> None:
    """Nothing runs until all namespaces are listed or denied; then the change starts a run."""
    played.stop()
    both = Played(namespaces=("shop", "closed"))
    both.api.denies = 403
    both.start()
    both.triggers.lead()
    both.put()
    both.wait_synced(1)

    def is_settled() -> bool:
        both.triggers.reflectors.retry_now()
        return both.is_settled()

    both.api.denies = 401  # not that we may not read it: who we are
    both.wait(lambda: not is_settled(), "an answer that says nothing of rights")
    both.scale("10.0.0.2")
    time.sleep(2 * module.BATCH_WINDOW_SECONDS)
    assert len(both.runs) == 1
    both.api.denies = None
    both.wait(is_settled, "the other namespace")
    both.wait_synced(2)
    both.stop()


def test_a_deleted_one_is_forgotten(played: Played) -> None:
    """The state and the counts of a deleted StackRefresh are dropped."""
    played.put()
    played.wait_synced(1)
    assert set(played.triggers.states()) == set(played.triggers.run_statistics()) == {KEY}
    del played.api.items["rating"]
    (reflector,) = played.triggers.reflectors.reflectors
    reflector.apply_event("DELETED", {"metadata": {"namespace": "shop", "name": "rating"}})
    played.wait(lambda: not played.triggers.states(), "it to be forgotten")
    assert played.triggers.run_statistics() == {}


def test_one_that_is_gone_runs_nothing(played: Played) -> None:
    """A deleted StackRefresh starts no run, also if the watch has not reported the deletion yet."""
    played.put()
    played.wait_synced(1)
    del played.api.items["rating"]
    played.scale("10.0.0.2")
    played.wait(lambda: not played.triggers.states(), "it to be missed")
    assert len(played.runs) == 1


def test_the_thread_is_watched(played: Played) -> None:
    """The triggers' thread is among those whose standstill makes the operator unhealthy."""
    names = [loop.name for loop in played.triggers.liveness()]
    assert names == ["reflector-stackrefreshes-all", "triggers"]
    assert all(not loop.problem_sentence for loop in played.triggers.liveness())


def test_durations_as_kubectl_writes_them() -> None:
    """A duration is written in seconds with one decimal, longer ones in minutes and hours."""
    assert [format_duration(seconds) for seconds in (0.04, 4.21, 59.9, 123.4, 3723)] == [
        "0.0s",
        "4.2s",
        "59.9s",
        "2m3s",
        "1h2m3s",
    ]


def test_what_has_not_ended_is_waited_for(played: Played) -> None:
    """A pending run is asked for again with the same key and attempt, and counts as no failure."""
    pending = StackRunResult(
        StackRunOutcome.PENDING, "the Stack pulumi/prod has not ended a run within 600 s"
    )
    played.results = [pending, pending, StackRunResult(StackRunOutcome.SUCCEEDED, "ran")]
    played.put()
    played.wait_synced(1)
    assert [run.attempt for run in played.runs] == [1, 1, 1]
    assert len({run.idempotency_key for run in played.runs}) == 1
    conditions = [one for write in played.api.writes for one in write["conditions"]]
    reported = {(one["type"], one["status"], one["reason"], one["message"]) for one in conditions}
    assert ("Ready", "False", "Pending", pending.message) in reported
    assert (
        "Synced",
        "False",
        "Pending",
        "what the last run asked for has not ended; it is waited for",
    ) in reported
    assert {write["failures"] for write in played.api.writes} == {0}


def test_a_source_that_breaks_is_held_back(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    """When most addresses vanish without having been seen terminating, the run is held for a minute."""
    addresses = [f"10.0.0.{number}" for number in range(40)]
    played.addresses = addresses
    played.put()
    played.wait_synced(1)
    played.scale()
    played.wait(lambda: played.condition("Braked") == ("True", "Braked"), "Braked")
    assert played.condition("Synced") == ("False", "Braked")
    reported = next(one["message"] for one in played.status["conditions"] if one["type"] == "Braked")
    assert reported.startswith(
        "all 40 addresses would go, and 40 of them without having been seen terminating"
    )
    assert ("Warning", "Braked", reported) in played.events.recorded
    played.scale(*addresses)  # it is back
    played.wait(lambda: played.condition("Synced") == ("True", "Served"), "Served")
    assert played.condition("Braked") == ("False", "Resolved")
    assert len(played.runs) == 1
    monkeypatch.setattr("eurekube_provider.operator.triggers.entry.BRAKE_HOLD_SECONDS", 0.3)
    played.scale(*addresses[:12])
    played.wait(lambda: played.condition("Braked")[0] == "True", "Braked")
    played.wait_synced(2)
    assert len(played.runs[-1].addresses["shop/rating"]) == 12


def test_what_was_seen_terminating_is_not_held_back(played: Played) -> None:
    """A Deployment that is scaled to zero starts a run at once."""
    played.addresses = [f"10.0.0.{number}" for number in range(40)]
    played.put()
    played.wait_synced(1)
    played.gone = {(address, "shop") for address in played.addresses}
    played.scale()
    played.wait_synced(2)
    assert played.runs[-1].addresses == {"shop/rating": ()}
    assert played.condition("Braked") == ("", "")


def test_a_person_releases_the_brake(played: Played) -> None:
    """The annotation ``eurekube.io/release-brake`` lets the run begin, and is taken off."""
    played.addresses = ["10.0.0.1", "10.0.0.2"]
    played.put()
    played.wait_synced(1)
    played.scale()
    played.wait(lambda: played.condition("Braked")[0] == "True", "Braked")
    played.put(_annotations={"eurekube.io/release-brake": "now"})
    played.wait_synced(2)
    played.wait(lambda: played.api.taken_off == [{"eurekube.io/release-brake": None}], "the annotation to go")


def test_a_release_that_comes_too_late_releases_nothing_later(played: Played) -> None:
    """A release annotation that finds nothing held is taken off: the next suspicious change is held."""
    played.addresses = ["10.0.0.1", "10.0.0.2"]
    played.put()
    played.wait_synced(1)
    played.put(_annotations={"eurekube.io/release-brake": "now"})
    played.wait(lambda: played.api.taken_off == [{"eurekube.io/release-brake": None}], "the annotation to go")
    played.put(_annotations={})
    played.scale()
    played.wait(lambda: played.condition("Braked")[0] == "True", "Braked")
    assert len(played.runs) == 1


def test_who_leads_next_brakes_as_well(played: Played) -> None:
    """The next leader learns from the status how many addresses the last run had."""
    played.addresses = ["10.0.0.1", "10.0.0.2"]
    played.put()
    played.wait_synced(1)
    played.stop()
    after = Played(played.api)
    after.addresses = []
    after.seen()
    after.start()
    after.triggers.lead()
    after.wait(lambda: after.condition("Braked")[0] == "True", "Braked")
    assert after.runs == []
    after.stop()


def test_a_target_rests_no_matter_who_runs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target's shortest interval holds for all its StackRefreshes together, also for deleted and new
    ones.
    """
    monkeypatch.setattr("eurekube_provider.operator.triggers.targets.DEFAULT_DEBOUNCE_SECONDS", QUIET_SECONDS)
    played = Played(shortest_interval_seconds=0.6)
    played.start()
    played.triggers.lead()
    begun = time.monotonic()
    for name in ("rating", "b", "c"):
        played.put(name)
    played.wait(lambda: played.runs, "the first run")
    played.delete("c")
    played.put("d")
    played.wait(lambda: {run.name for run in played.runs} == {"rating", "b", "d"}, "all to run")
    assert time.monotonic() - begun >= 1.2
    played.stop()
    # So it does for the replica that leads next.
    after = Played(played.api, shortest_interval_seconds=3600.0)
    after.put("e")
    for name in ("rating", "b", "d"):
        after.seen(name)
    after.start()
    after.triggers.lead()
    after.wait(lambda: ("shop", "e") in after.triggers.next_run_times(), "what is due")
    assert after.triggers.next_run_times()["shop", "e"] > time.time() + 3000
    assert after.runs == []
    after.stop()
