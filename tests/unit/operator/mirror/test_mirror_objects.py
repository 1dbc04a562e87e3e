"""The mirrors' copies of the objects that they made: when a change is taken, and who is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.mirror import APPLICATION_ANNOTATION, mirrored_application
from eurekube_provider.core.objects import (
    MIRROR_LABEL,
    MIRROR_SLICE_MANAGER,
    SERVICE_NAME_LABEL,
    SLICE_MANAGED_BY_LABEL,
)
from eurekube_provider.operator.mirror.mirror_objects import MirrorKey, MirrorObjects
from eurekube_provider.operator.sources import ClusterCache
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


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["one", "two", "three"]),
        st.sampled_from(["legacy", "other"]),
        st.sampled_from(["review", "rating"]),
        st.sampled_from(["REVIEW", "RATING", ""]),
        st.booleans(),
    ),
    max_size=12,
)


@given(CHANGES)
def test_slices_are_found_by_service_and_by_application(
    changes: list[tuple[str, str, str, str, bool]],
) -> None:
    """Whatever changes in a slice, it is found where it belongs now; what belongs where nothing changed stays
    the same object.
    """
    objects = MirrorObjects(Api(), (), lambda _: None)  # type: ignore[arg-type]
    stands: dict[str, dict[str, Any]] = {}
    before: dict[str, tuple[Any, ...]] = {}
    for version, (name, mirror, service, application, is_there) in enumerate(changes, 1):
        labels = {MIRROR_LABEL: mirror, SERVICE_NAME_LABEL: service}
        metadata = {"namespace": "shop", "name": name, "labels": labels, "resourceVersion": str(version)}
        item: dict[str, Any] = {
            "metadata": {**metadata, "annotations": {APPLICATION_ANNOTATION: application}}
        }
        old = stands.pop(name, None)
        if is_there:
            stands[name] = item
        one(objects.slices).apply_event("MODIFIED" if is_there else "DELETED", item)
        ours = [each for each in stands.values() if each["metadata"]["labels"][MIRROR_LABEL] == KEY[1]]
        by_service, by_application = objects.slices_of(KEY), objects.slices_by_application(KEY)
        assert sorted(objects.slice_names_of(KEY)) == sorted(each["metadata"]["name"] for each in ours)
        assert {place: list(those) for place, those in by_service.items()} == grouped(
            ours, lambda each: each["metadata"]["labels"][SERVICE_NAME_LABEL]
        )
        assert {place: list(those) for place, those in by_application.items()} == grouped(
            ours, mirrored_application
        )
        for place in by_service.keys() & before.keys():
            if all(each["metadata"]["labels"][SERVICE_NAME_LABEL] != place for each in (item, old or item)):
                assert by_service[place] is before[place]
        before = by_service


def grouped(
    items: list[dict[str, Any]], place_of: Callable[[dict[str, Any]], str]
) -> dict[str, list[dict[str, Any]]]:
    """Return the items by their place, in their order."""
    found: dict[str, list[dict[str, Any]]] = {}
    for item in items:
        found.setdefault(place_of(item), []).append(item)
    return found


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


def test_the_slices_of_mirrors_are_copied_once() -> None:
    """The copy of all other EndpointSlices lacks those of mirrors: each of their changes is read once."""
    asked = Asked()
    sources = ClusterCache(asked, Cluster("eks", "uid"), (), lambda _: None)  # type: ignore[arg-type]
    sources.slices.start()
    wait_until(lambda: bool(asked.labels), "the list", 20.0)
    sources.slices.stop()
    assert asked.labels == {"endpointslices": f"{SLICE_MANAGED_BY_LABEL}!={MIRROR_SLICE_MANAGER}"}
