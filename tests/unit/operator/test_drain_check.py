"""The check of the ends of the pods behind a syncer, and how little it reads for that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.syncer import Mode, Selector, Syncer
from eurekube_provider.operator import drain_check
from eurekube_provider.operator.drain_check import DrainCheck, PodDrainTime, judged, sample_pods
from lab.waiting import wait_until
from tests.unit import held

Object = dict[str, Any]
SYNCER = Syncer("shop", "rating", Mode.POD, Selector("shop", "rating"), "rating")
KEY = ("shop", "rating")


def endpoint(number: int, pod: str | None = None, kind: str = "Pod", **conditions: bool) -> Object:
    """An endpoint as it is kept."""
    target = {"targetRef": {"kind": kind, "name": pod}} if pod else {}
    return {"addresses": [f"10.0.0.{number}"], "conditions": conditions, **target}


def pod(
    name: str, owner: tuple[str, str] | None = None, template: str = "", slept: int = 0, **more: Any
) -> Object:
    """A pod whose one container sleeps so long in its preStop."""
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
    """A pod of the Deployment ``rating``."""
    return pod(f"rating-{template}-{name}", ("ReplicaSet", f"rating-{template}"), template, slept)


OF_RATING = {"labels": {"kubernetes.io/service-name": "rating"}}


class World:
    """A cluster with one syncer: what is behind it, who asked for which pod, and who was informed."""

    def __init__(self) -> None:
        self.slices: list[Object] = []
        self.pods: dict[str, Object] = {}
        self._numbers: dict[str, int] = {}
        self.asked: list[str] = []
        self.checked: list[tuple[str, str]] = []
        self.error: KubernetesError | None = None
        self.syncers: dict[tuple[str, str], Object] = {KEY: {}}
        self.drains = DrainCheck(self, Behind(self), 120, self.checked.append)  # type: ignore[arg-type]
        self.drains.start()

    def has(self, *pods: Object, others: int = 0) -> None:
        """These pods, and so many endpoints that are none."""
        self.pods = {one["metadata"]["name"]: one for one in pods}
        numbers = (self._numbers.setdefault(name, len(self._numbers)) for name in self.pods)
        endpoints = [endpoint(*both) for both in zip(numbers, self.pods, strict=True)]
        of_others = [endpoint(100 + number) for number in range(others)]
        self.slices = [{"metadata": OF_RATING, "endpoints": [*endpoints, *of_others]}]

    def get(self, path: str, query: dict[str, str]) -> Object:
        """A list of pods by their name."""
        assert path == "/api/v1/namespaces/shop/pods"
        name = query["fieldSelector"].removeprefix("metadata.name=")
        self.asked.append(name)
        if self.error:
            raise self.error
        return {"items": [self.pods[name]] if name in self.pods else []}

    def looks(self, syncer: Syncer = SYNCER) -> list[str]:
        """Have it look once; which pods it read."""
        self.asked.clear()
        self.drains.check(syncer)
        return list(self.asked)


class Behind:
    """The part of the sources that is asked."""

    def __init__(self, world: World) -> None:
        self._world = world

    @property
    def syncers(self) -> Behind:
        """The syncers."""
        return self

    def get(self, *key: str) -> Object | None:
        """A syncer."""
        return self._world.syncers.get((key[0], key[1]))

    def selected(self, selector: Selector) -> tuple[list[Object], list[Object]]:
        """Return the pods behind a selector."""
        assert selector == SYNCER.selector
        return [{"metadata": {"namespace": "shop", "name": "rating"}}], self._world.slices


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A world in which nothing takes long."""
    monkeypatch.setattr(drain_check, "LATER_SECONDS", 0.02)
    monkeypatch.setattr(drain_check, "PAUSE_SECONDS", 0.0)
    made = World()
    yield made
    made.drains.stop()


def test_what_is_too_short_is_named_with_the_change_that_fixes_it() -> None:
    """The workload, what it has, what it needs, and what to write where."""
    assert judged(of_deployment("x", "abc", slept=20), 120) == PodDrainTime(
        "a rolling update loses calls: pods of Deployment shop/rating serve for 20 s after their deletion"
        " began, and 120 s are needed; container main serves on for 20 s when its pod is deleted, and callers"
        " may call it for 120 s more: let a preStop sleep for 120 s, and set terminationGracePeriodSeconds"
        " to 150"
    )


@pytest.mark.parametrize(
    ("one", "subject", "speaks_for_all"),
    [
        (of_deployment("x", "abc"), "Deployment shop/rating", True),
        (pod("a", ("ReplicaSet", "rating-abc")), "ReplicaSet shop/rating-abc", True),
        (pod("rating-0", ("StatefulSet", "rating")), "StatefulSet shop/rating", False),
        (pod("a"), "Pod shop/a", False),
    ],
)
def test_pods_are_named_by_their_workload(one: Object, subject: str, speaks_for_all: bool) -> None:
    """That is what a person changes, where there is one."""
    known = judged(one, 120)
    assert f"pods of {subject} serve for 0 s" in known.problem
    assert known.speaks_for_all is speaks_for_all


def test_nothing_is_said_of_pods_that_drain_or_go() -> None:
    """Also where less is needed; a pod on its way out has been fixed, or will never be."""
    assert judged(of_deployment("x", "abc", slept=120), 120).problem == ""
    assert judged(of_deployment("x", "abc", slept=20), 20).problem == ""
    assert judged(pod("a", deletionTimestamp="now"), 120).problem == ""


def test_of_each_workload_the_first_and_the_last_pod_are_meant() -> None:
    """By number; of two with one name the address tells them apart; what goes is left out."""
    slices: list[Object] = [
        {"endpoints": [endpoint(9, "db-10"), endpoint(2, "db-2"), endpoint(3, "db-11", terminating=True)]},
        {"endpoints": [endpoint(4, "web-6b-z"), endpoint(5, "web-6b-c"), endpoint(6, "alone")]},
        {"endpoints": None},
    ]
    assert sample_pods(slices) == (
        [
            (("alone", "10.0.0.6"),) * 2,
            (("db-2", "10.0.0.2"), ("db-10", "10.0.0.9")),
            (("web-6b-c", "10.0.0.5"), ("web-6b-z", "10.0.0.4")),
        ],
        False,
    )
    assert sample_pods([{"endpoints": [endpoint(1), endpoint(2, "n", kind="Node")]}]) == ([], True)


def test_many_workloads_are_sampled() -> None:
    """A hundred pods without owners behind one Service are not a hundred requests."""
    pods, _ = sample_pods([{"endpoints": [endpoint(n, f"pod{n}") for n in range(100)]}])
    assert len(pods) == drain_check.MOST_WORKLOADS


def test_one_pod_speaks_for_its_replica_set(world: World) -> None:
    """A thousand more cost no further request, and neither does a change among them."""
    many = [of_deployment(f"{n:04}", "abc") for n in range(1000)]
    world.has(*many)
    assert world.looks() == ["rating-abc-0000"]
    assert "Deployment shop/rating" in str(world.drains.problem(KEY))
    world.has(*many[:500])
    assert world.looks() == []


def test_a_rollout_that_fixes_it_is_seen_to_its_end(world: World) -> None:
    """It holds as long as one of the old pods is there; every change of it is reported once."""
    old, new = of_deployment("x", "abc", slept=20), of_deployment("y", "def", slept=120)
    assert world.drains.problem(KEY) is None
    world.has(old)
    world.looks()
    world.has(old, new)
    assert world.looks() == ["rating-def-y"]
    assert "serve for 20 s" in str(world.drains.problem(KEY))
    assert world.checked == [KEY]
    world.has(new)
    assert world.looks() == []
    assert (world.drains.problem(KEY), world.checked) == ("", [KEY, KEY])


def test_a_stateful_set_is_read_at_both_ends(world: World) -> None:
    """Its pods keep their names; a new one has a new address."""
    both = [pod(f"db-{n}", ("StatefulSet", "db"), slept=20) for n in range(3)]
    world.has(*both)
    assert world.looks() == ["db-0", "db-2"]
    world.has(*(pod(f"db-{n}", ("StatefulSet", "db"), slept=120) for n in range(3)))
    for one in world.slices[0]["endpoints"]:
        one["addresses"] = [f"{one['addresses'][0]}0"]
    assert world.looks() == ["db-0", "db-2"]
    assert world.drains.problem(KEY) == ""


def test_endpoints_that_are_no_pods_say_nothing(world: World) -> None:
    """Written by hand, or of a pod that nobody knows."""
    world.has(others=2)
    assert world.looks() == []
    assert world.drains.problem(KEY) == ""
    world.has(of_deployment("x", "abc"))
    world.pods = {}
    assert world.looks() == ["rating-abc-x"]
    assert world.looks() == []
    assert world.drains.problem(KEY) == ""


def test_a_workload_that_is_scaled_to_zero_is_not_fixed_by_that(world: World) -> None:
    """The earlier knowledge of it stays."""
    world.has(of_deployment("x", "abc"))
    world.looks()
    world.has()
    world.looks()
    assert world.drains.problem(KEY)


def test_mode_service_needs_no_drain(world: World) -> None:
    """Callers hold the Service's address, which stays."""
    world.has(of_deployment("x", "abc"))
    world.looks()
    assert world.looks(replace(SYNCER, mode=Mode.SERVICE)) == []
    assert world.drains.problem(KEY) == ""


def test_nothing_is_kept_of_a_syncer_that_is_gone(world: World) -> None:
    """Also where it went while its pods were read."""
    world.has(of_deployment("x", "abc"))
    world.looks()
    world.drains.forget(KEY)
    world.syncers.clear()
    world.looks()
    assert world.drains.problem(KEY) is None
    world.syncers[KEY] = {}
    assert world.looks() == ["rating-abc-x"]


def test_changes_are_looked_at_together(world: World) -> None:
    """A while after the first of them, on another thread."""
    world.has(of_deployment("x", "abc"))
    for _ in range(100):
        world.drains.check_soon(SYNCER)
    wait_until(lambda: world.checked == [KEY], "a look", 10)
    assert world.asked == ["rating-abc-x"]


def test_a_pod_that_cannot_be_read_is_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The earlier knowledge stays; others are read meanwhile."""
    monkeypatch.setattr(drain_check, "RETRY_SECONDS", 0.05)
    world.has(of_deployment("x", "abc"))
    world.error = KubernetesError("forbidden", status_code=403)
    world.drains.check_soon(SYNCER)
    wait_until(lambda: len(world.asked) > 1, "another try", 10)
    assert world.drains.problem(KEY) is None
    world.error = None
    wait_until(lambda: world.drains.problem(KEY), "an answer", 10)


def test_a_caller_that_wants_no_check_gets_none() -> None:
    """With 0 nobody is asked, and what an earlier setting said is over."""
    off = DrainCheck(None, None, 0, [].append)  # type: ignore[arg-type]
    off.start()
    name = f"unseen-{id(off)}"
    off.check_soon(replace(SYNCER, name=name))
    assert (off.problem(KEY), off.liveness()) == ("", [])
    assert name not in {text for text, _ in held.texts(off)}
