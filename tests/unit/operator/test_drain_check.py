"""The check of how long a syncer's pods serve after their deletion, and how few pods it reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.syncer import READINESS_GATE, Mode, Selector, Syncer
from eurekube_provider.operator import drain_check
from eurekube_provider.operator.drain_check import (
    DrainCheck,
    PodDrainFinding,
    judge_pod_drain,
    pods_of_workloads,
)
from lab.waiting import wait_until
from tests.unit import held

Object = dict[str, Any]
SYNCER = Syncer("shop", "rating", Mode.POD, Selector("shop", "rating"), "rating")
KEY = ("shop", "rating")


def endpoint(number: int, pod: str | None = None, kind: str = "Pod", **conditions: bool) -> Object:
    """Return an endpoint as the operator keeps it."""
    target = {"targetRef": {"kind": kind, "name": pod}} if pod else {}
    return {"addresses": [f"10.0.0.{number}"], "conditions": conditions, **target}


def pod(
    name: str, owner: tuple[str, str] | None = None, template: str = "", slept: int = 0, **more: Any
) -> Object:
    """Return a pod with one container, whose preStop sleeps for ``slept`` seconds."""
    hook = {"lifecycle": {"preStop": {"sleep": {"seconds": slept}}}} if slept else {}
    references = [{"kind": owner[0], "name": owner[1], "controller": True}] if owner else []
    return {
        "metadata": {
            "namespace": "shop",
            "name": name,
            "ownerReferences": references,
            "labels": {"pod-template-hash": template} if template else {},
            **more,
        },
        "spec": {
            "terminationGracePeriodSeconds": slept + 30,
            "containers": [{"name": "main", "ports": [{"containerPort": 8080}], **hook}],
        },
    }


def of_deployment(name: str, template: str, slept: int = 0) -> Object:
    """Return a pod of the Deployment ``rating``."""
    return pod(f"rating-{template}-{name}", ("ReplicaSet", f"rating-{template}"), template, slept)


OF_RATING = {"labels": {"kubernetes.io/service-name": "rating"}}


class World:
    """A cluster with one syncer and its pods, which records the pods read and the reports made."""

    def __init__(self) -> None:
        self.slices: list[Object] = []
        self.pods: dict[str, Object] = {}
        self._numbers: dict[str, int] = {}
        self.asked: list[str] = []
        self.checked: list[tuple[str, str]] = []
        self.error: Exception | None = None
        self.syncers: dict[tuple[str, str], Object] = {KEY: {}}
        self.drains = DrainCheck(self, FakeSources(self), 120, self.checked.append)  # type: ignore[arg-type]
        self.drains.start()

    def has(self, *pods: Object, others: int = 0) -> None:
        """Replace the endpoints by those of these pods, and ``others`` without a pod."""
        self.pods = {one["metadata"]["name"]: one for one in pods}
        numbers = (self._numbers.setdefault(name, len(self._numbers)) for name in self.pods)
        endpoints = [endpoint(*both) for both in zip(numbers, self.pods, strict=True)]
        of_others = [endpoint(100 + number) for number in range(others)]
        self.slices = [{"metadata": OF_RATING, "endpoints": [*endpoints, *of_others]}]

    def get(self, path: str, query: dict[str, str]) -> Object:
        """Return the list of pods with the requested name."""
        assert path == "/api/v1/namespaces/shop/pods"
        name = query["fieldSelector"].removeprefix("metadata.name=")
        self.asked.append(name)
        if self.error:
            raise self.error
        return {"items": [self.pods[name]] if name in self.pods else []}

    def looks(self, syncer: Syncer = SYNCER) -> list[str]:
        """Run the check once; return the names of the pods that it read."""
        self.asked.clear()
        self.drains.check_now(syncer)
        return list(self.asked)


class FakeSources:
    """The part of the operator's sources that the check uses."""

    def __init__(self, world: World) -> None:
        self._world = world

    @property
    def syncers(self) -> FakeSources:
        """The syncers, which this object serves itself."""
        return self

    def get(self, *key: str) -> Object | None:
        """Return a syncer, or None."""
        return self._world.syncers.get((key[0], key[1]))

    def select_services(self, selector: Selector) -> tuple[list[Object], list[Object]]:
        """Return the Services and EndpointSlices behind a selector."""
        assert selector == SYNCER.selector
        return [{"metadata": {"namespace": "shop", "name": "rating"}}], self._world.slices


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Yield a world in which the check waits for almost no time."""
    monkeypatch.setattr(drain_check, "CHECK_DELAY_SECONDS", 0.02)
    monkeypatch.setattr(drain_check, "SECONDS_BETWEEN_POD_READS", 0.0)
    made = World()
    yield made
    made.drains.stop()


def test_what_is_too_short_is_named_with_the_change_that_fixes_it() -> None:
    """The message names the workload, the seconds that it serves and needs, and the settings to write."""
    assert judge_pod_drain(of_deployment("x", "abc", slept=20), 120) == PodDrainFinding(
        "a rolling update loses calls: pods of Deployment shop/rating serve for 20 s after their deletion"
        " began, and 120 s are needed; container main serves on for 20 s when its pod is deleted, and callers"
        " may call it for 120 s more: let a preStop sleep for 120 s, and set terminationGracePeriodSeconds"
        " to 150"
    )


@pytest.mark.parametrize(
    ("one", "subject", "applies_to_whole_workload"),
    [
        (of_deployment("x", "abc"), "Deployment shop/rating", True),
        (pod("a", ("ReplicaSet", "rating-abc")), "ReplicaSet shop/rating-abc", False),
        (
            pod("a", ("ReplicaSet", "rating-abc"), labels={"rollouts-pod-template-hash": "abc"}),
            "ReplicaSet shop/rating-abc",
            True,
        ),
        (pod("rating-0", ("StatefulSet", "rating")), "StatefulSet shop/rating", False),
        (pod("a"), "Pod shop/a", False),
    ],
)
def test_pods_are_named_by_their_workload(one: Object, subject: str, applies_to_whole_workload: bool) -> None:
    """The message names the Deployment or other workload that a person edits, or the pod if it has none."""
    known = judge_pod_drain(one, 120)
    assert f"pods of {subject} serve for 0 s" in known.problem_sentence
    assert known.applies_to_whole_workload is applies_to_whole_workload


def test_nothing_is_said_of_pods_that_drain_or_go() -> None:
    """A pod that serves long enough, or that is being deleted already, is no problem."""
    assert judge_pod_drain(of_deployment("x", "abc", slept=120), 120).problem_sentence == ""
    assert judge_pod_drain(of_deployment("x", "abc", slept=20), 20).problem_sentence == ""
    assert judge_pod_drain(pod("a", deletionTimestamp="now"), 120).problem_sentence == ""


def test_min_ready_seconds_are_not_judged() -> None:
    """A Deployment with ``minReadySeconds: 0``, as with the readiness gate, has no problem by that."""
    gated = of_deployment("x", "abc", slept=120)
    gated["spec"]["readinessGates"] = [{"conditionType": READINESS_GATE}]
    assert judge_pod_drain(gated, 120).problem_sentence == ""


def test_pods_are_told_apart_by_workload() -> None:
    """Each workload's pods come by number, then by address, without terminating ones."""
    slices: list[Object] = [
        {"endpoints": [endpoint(9, "db-10"), endpoint(2, "db-2"), endpoint(3, "db-11", terminating=True)]},
        {"endpoints": [endpoint(4, "web-6b-z"), endpoint(5, "web-6b-c"), endpoint(6, "alone")]},
        {"endpoints": None},
    ]
    assert pods_of_workloads(slices) == (
        [
            [("alone", "10.0.0.6")],
            [("db-2", "10.0.0.2"), ("db-10", "10.0.0.9")],
            [("web-6b-c", "10.0.0.5"), ("web-6b-z", "10.0.0.4")],
        ],
        False,
    )
    found = pods_of_workloads([{"endpoints": [endpoint(1), endpoint(2, "n", kind="Node")]}])
    assert found == ([], True)


def test_many_workloads_are_sampled() -> None:
    """A hundred pods without owners behind one Service cause few requests."""
    pods, _ = pods_of_workloads([{"endpoints": [endpoint(n, f"pod{n}") for n in range(100)]}])
    assert len(pods) == drain_check.MOST_WORKLOADS_PER_SYNCER


def test_one_pod_speaks_for_its_replica_set(world: World) -> None:
    """A thousand pods of a ReplicaSet, or a change among them, cost no request beyond the first."""
    many = [of_deployment(f"{n:04}", "abc") for n in range(1000)]
    world.has(*many[:500])
    assert world.looks() == ["rating-abc-0499"]
    assert "Deployment shop/rating" in str(world.drains.problem_sentence(KEY))
    world.has(*many[499:])
    assert world.looks() == []
    world.has(*many[200:700])
    assert world.looks() == []
    world.has(*many[500:])  # it speaks for the others while it lives
    assert world.looks() == ["rating-abc-0999"]


def test_a_rollout_that_fixes_it_is_seen_to_its_end(world: World) -> None:
    """The problem lasts as long as one old pod exists; each change of the problem is reported once."""
    old, new = of_deployment("x", "abc", slept=20), of_deployment("y", "def", slept=120)
    assert world.drains.problem_sentence(KEY) is None
    world.has(old)
    world.looks()
    world.has(old, new)
    assert world.looks() == ["rating-def-y"]
    assert "serve for 20 s" in str(world.drains.problem_sentence(KEY))
    assert world.checked == [KEY]
    world.has(new)
    assert world.looks() == []
    assert (world.drains.problem_sentence(KEY), world.checked) == ("", [KEY, KEY])


def test_a_stateful_set_is_read_at_both_ends(world: World) -> None:
    """The StatefulSet's first and last pod are read; a pod with an old name and a new address is read
    again.
    """
    both = [pod(f"db-{n}", ("StatefulSet", "db"), slept=20) for n in range(3)]
    world.has(*both)
    assert world.looks() == ["db-2", "db-0"]
    world.has(*(pod(f"db-{n}", ("StatefulSet", "db"), slept=120) for n in range(3)))
    for one in world.slices[0]["endpoints"]:
        one["addresses"] = [f"{one['addresses'][0]}0"]
    assert world.looks() == ["db-2", "db-0"]
    assert world.drains.problem_sentence(KEY) == ""


def test_endpoints_that_are_no_pods_say_nothing(world: World) -> None:
    """An endpoint that was written by hand, or whose pod does not exist, is no problem."""
    world.has(others=2)
    assert world.looks() == []
    assert world.drains.problem_sentence(KEY) == ""
    world.has(of_deployment("x", "abc"))
    world.pods = {}
    assert world.looks() == ["rating-abc-x"]
    assert world.looks() == []
    assert world.drains.problem_sentence(KEY) == ""


def test_a_workload_that_is_scaled_to_zero_is_not_fixed_by_that(world: World) -> None:
    """The earlier problem stays while there is no pod."""
    world.has(of_deployment("x", "abc"))
    world.looks()
    world.has()
    world.looks()
    assert world.drains.problem_sentence(KEY)


def test_mode_service_needs_no_drain(world: World) -> None:
    """Callers hold the Service's address, which outlives pods."""
    world.has(of_deployment("x", "abc"))
    world.looks()
    assert world.looks(replace(SYNCER, mode=Mode.SERVICE)) == []
    assert world.drains.problem_sentence(KEY) == ""


def test_nothing_is_kept_of_a_syncer_that_is_gone(world: World) -> None:
    """A syncer that is deleted while its pods are read leaves no result in memory, either."""
    world.has(of_deployment("x", "abc"))
    world.looks()
    world.drains.forget(KEY)
    world.syncers.clear()
    world.looks()
    assert world.drains.problem_sentence(KEY) is None
    world.syncers[KEY] = {}
    assert world.looks() == ["rating-abc-x"]


def test_changes_are_looked_at_together(world: World) -> None:
    """A hundred changes cause one check, on another thread, after a pause."""
    world.has(of_deployment("x", "abc"))
    for _ in range(100):
        world.drains.check_soon(SYNCER)
    wait_until(lambda: world.checked == [KEY], "a look", 10)
    assert world.asked == ["rating-abc-x"]


@pytest.mark.parametrize("error", [KubernetesError("forbidden", status_code=403), RuntimeError("a fault")])
def test_a_pod_that_cannot_be_read_is_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A read that fails for whatever reason is repeated until it is answered; till then nothing is known."""
    monkeypatch.setattr(drain_check, "RETRY_SECONDS", 0.05)
    world.has(of_deployment("x", "abc"))
    world.error = error
    world.drains.check_soon(SYNCER)
    wait_until(lambda: len(world.asked) > 1, "another try", 10)
    assert world.drains.problem_sentence(KEY) is None
    world.error = None
    wait_until(lambda: world.drains.problem_sentence(KEY), "an answer", 10)


def test_a_caller_that_wants_no_check_gets_none() -> None:
    """With 0 seconds needed no pod is read, and an earlier problem counts as resolved."""
    off = DrainCheck(None, None, 0, [].append)  # type: ignore[arg-type]
    off.start()
    name = f"unseen-{id(off)}"
    off.check_soon(replace(SYNCER, name=name))
    assert (off.problem_sentence(KEY), off.liveness()) == ("", [])
    assert name not in {text for text, _ in held.texts(off)}
