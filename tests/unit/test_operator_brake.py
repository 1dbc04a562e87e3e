"""The operator's brake: whose hold it is, and how a person ends it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bench.registry import OWNER, instances
from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.identity import Cluster, parse_owner, pod_instance_id
from eurekube_provider.core.plan import Plan, plan
from eurekube_provider.eureka.view import View
from eurekube_provider.operator.brake import RELEASE_ANNOTATION, Brake

KEY = ("shop", "rating")


class Sources:
    """Nobody was seen terminating."""

    def said_goodbye(self, pod: str, namespace: str) -> bool:
        """Whether a pod was seen terminating."""
        return not (pod and namespace)


class Access:
    """An API that looks back at the brake while it is asked, as a slow one has others do."""

    def __init__(self) -> None:
        self.brake: Brake | None = None
        self.bodies: list[Any] = []
        self.error: KubernetesError | None = None

    def request(self, method: str, path: str, body: Any, content_type: str) -> Any:
        """Take a patch."""
        assert (method, path.rpartition("/")[2], content_type) == (
            "PATCH",
            "rating",
            "application/merge-patch+json",
        )
        assert self.brake is not None
        self.brake.forget(("shop", "other"))  # would wait for ever, were the brake's lock held
        self.bodies.append(body)
        if self.error:
            raise self.error
        return {}


def brake(access: Access, *views: View) -> Brake:
    """A brake over these registries."""
    owner = parse_owner(OWNER)
    assert owner is not None
    access.brake = Brake(Cluster(OWNER.split("/")[1], "uid"), views, access)  # type: ignore[arg-type]
    return access.brake


def view(count: int) -> View:
    """A registry with so many instances of the owner."""
    result = View()
    for instance in instances(count):
        result.registered(instance)
    return result


def all_gone(count: int) -> Plan:
    """All of so many instances vanish."""
    return plan((), instances(count), OWNER)


def syncer(**annotations: str) -> dict[str, Any]:
    """The syncer with these annotations."""
    return {"metadata": {"namespace": "shop", "name": "rating", "annotations": annotations}}


@pytest.mark.parametrize("error", [None, KubernetesError("forbidden", status_code=403)])
def test_a_person_releases_it(error: KubernetesError | None) -> None:
    """The annotation lets the removals go at once and is taken off, with no lock held."""
    access = Access()
    access.error = error
    checked = brake(access, view(3))
    steps, hold = checked.check(KEY, syncer(), all_gone(3), OWNER, Sources())  # type: ignore[arg-type]
    assert hold is not None
    assert (steps.changes, access.bodies) == ((), [])
    released = syncer(**{RELEASE_ANNOTATION: "now"})
    steps, hold = checked.check(KEY, released, all_gone(3), OWNER, Sources())  # type: ignore[arg-type]
    assert (len(steps.changes), hold) == (3, None)
    assert access.bodies == [{"metadata": {"annotations": {RELEASE_ANNOTATION: None}}}]


def test_an_annotation_waits_for_a_hold() -> None:
    """Where nothing is held back it is left alone."""
    access = Access()
    released = syncer(**{RELEASE_ANNOTATION: "now"})
    steps, hold = brake(access, view(3)).check(KEY, released, Plan(), OWNER, Sources())  # type: ignore[arg-type]
    assert (steps, hold, access.bodies) == (Plan(), None, [])


def test_what_is_tried_again_counts_once() -> None:
    """One removal that Eureka does not take is not the whole operator's."""
    access = Access()
    brakes, there = brake(access, view(13)), instances(13)
    for number in (0,) * 12 + (1, 2):
        steps = plan([one for one in there if one is not there[number]], there, OWNER)
        assert brakes.check(KEY, {"metadata": {}}, steps, OWNER, Sources())[1] is None  # type: ignore[arg-type]


def test_all_registries_count() -> None:
    """What an owner has elsewhere is left to callers: three of six are not all."""
    access = Access()
    elsewhere = view(6)
    for instance in instances(3):
        elsewhere.gone(instance.key)
    steps, hold = brake(access, view(3), elsewhere).check(
        KEY,
        syncer(),
        all_gone(3),
        OWNER,
        Sources(),  # type: ignore[arg-type]
    )
    assert (len(steps.changes), hold) == (3, None)


@pytest.mark.parametrize("pod", ["rating-1", "rating.1", "10.0.0.1", "2001:db8::1"])
def test_a_goodbye_is_looked_up_by_what_the_id_says(pod: str) -> None:
    """Pod, or address where there is none, and namespace, whatever signs they have."""
    asked: list[tuple[str, str]] = []

    class Remembering(Sources):
        def said_goodbye(self, pod: str, namespace: str) -> bool:
            asked.append((pod, namespace))
            return True

    instance_id = pod_instance_id(pod, "shop", OWNER.split("/")[1], "rating", 8080)
    there = [replace(one, instance_id=instance_id) for one in instances(1)]
    held = view(0)
    for one in there:
        held.registered(one)
    brake(Access(), held).check(KEY, {"metadata": {}}, plan([], there, OWNER), OWNER, Remembering())  # type: ignore[arg-type]
    assert asked == [(pod, "shop")]
