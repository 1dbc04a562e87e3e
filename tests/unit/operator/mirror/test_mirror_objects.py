"""The mirrors' copies of the objects that they made: when a change is taken, and who is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from eurekube_provider.core.objects import MIRROR_LABEL, MIRROR_SLICE_MANAGER, SLICE_MANAGED_BY_LABEL
from eurekube_provider.operator.mirror.mirror_objects import MirrorKey, MirrorObjects
from lab.waiting import wait_until
from tests.unit.operator.mirror.stage import KEY, Api, one


def page(*items: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a list answer of one page with these items."""
    return [{"metadata": {"resourceVersion": "1"}, "items": list(items)}]


def test_what_was_deleted_before_an_answer_came_stays_deleted() -> None:
    """A late answer to a write does not bring back a Service whose deletion the watch has reported: a person
    may make another one of its name.
    """
    objects = MirrorObjects(Api(), (), lambda _: None)  # type: ignore[arg-type]

    def service(version: int, uid: str = "1") -> dict[str, Any]:
        labels = {MIRROR_LABEL: KEY[1]}
        metadata = {"namespace": KEY[0], "name": "review", "uid": uid, "labels": labels}
        return {"metadata": {**metadata, "resourceVersion": str(version)}}

    watch = one(objects.services)
    watch.apply_event("ADDED", service(11))
    watch.apply_event("DELETED", service(13))
    objects.put_written(objects.services, service(12))
    assert objects.services_of(KEY) == {}
    objects.put_written(objects.services, service(14, "2"))
    objects.remove_deleted(objects.services, service(12))
    assert objects.services_of(KEY) == {"review": service(14, "2")}


def test_mirrors_are_looked_at_as_soon_as_all_is_listed() -> None:
    """Each first list triggers a reconcile of every mirror; later lists trigger only what they change."""
    concerned: list[MirrorKey] = []
    objects = MirrorObjects(Api(), (), concerned.append)  # type: ignore[arg-type]
    mirror = {"metadata": {"namespace": "shop", "name": "legacy", "uid": "1"}, "spec": {"application": "a"}}
    one(objects.mirrors).replace_from_list(page(mirror))
    assert not objects.are_listed_in("shop")
    for group in (objects.services, objects.slices):
        concerned.clear()
        one(group).replace_from_list(page())
        assert concerned == [KEY]
    assert objects.are_listed_in("shop")
    concerned.clear()
    one(objects.slices).replace_from_list(page())
    assert concerned == []


class Asked:
    """An API server without objects that records the label selector of each list, by kind."""

    def __init__(self) -> None:
        self.labels: dict[str, str] = {}

    def pages(self, path: str, *, query: dict[str, str], **_: object) -> Iterator[dict[str, Any]]:
        """Return an empty list."""
        self.labels[path.rpartition("/")[2]] = query.get("labelSelector", "")
        yield from page()

    def watch(self, *_: object) -> Iterator[dict[str, Any]]:
        """Report no change."""
        yield from ()


def test_only_what_mirrors_made_is_read() -> None:
    """Of Services and EndpointSlices, of which a cluster has many, only the mirrors' own are copied whole."""
    asked = Asked()
    objects = MirrorObjects(asked, (), lambda _: None)  # type: ignore[arg-type]
    objects.start()
    wait_until(lambda: len(asked.labels) == 3, "the lists", 20.0)
    objects.stop()
    assert asked.labels == {
        "eurekamirrors": "",
        "services": MIRROR_LABEL,
        "endpointslices": f"{SLICE_MANAGED_BY_LABEL}={MIRROR_SLICE_MANAGER}",
    }
