"""The local copies of what mirrors made: who is informed, and when."""

from __future__ import annotations

from typing import Any

from eurekube_provider.core.objects import MIRROR_LABEL
from eurekube_provider.operator.mirror.mirror_objects import MirrorKey, MirrorObjects
from tests.unit.operator.mirror.stage import KEY, Api, one


def page(*items: dict[str, Any]) -> list[dict[str, Any]]:
    """A list of one page."""
    return [{"metadata": {"resourceVersion": "1"}, "items": list(items)}]


def test_what_was_deleted_before_an_answer_came_stays_deleted() -> None:
    """Else endpoints would be added for ever to what a person makes in the place of a mirror's Service."""
    objects = MirrorObjects(Api(), (), lambda _: None)  # type: ignore[arg-type]

    def service(version: int, uid: str = "1") -> dict[str, Any]:
        labels = {MIRROR_LABEL: KEY[1]}
        metadata = {"namespace": KEY[0], "name": "review", "uid": uid, "labels": labels}
        return {"metadata": {**metadata, "resourceVersion": str(version)}}

    watch = one(objects.services)
    watch.take("ADDED", service(11))
    watch.take("DELETED", service(13))
    objects.wrote(objects.services, service(12))
    assert objects.services_of(KEY) == {}
    objects.wrote(objects.services, service(14, "2"))
    objects.removed(objects.services, service(12))
    assert objects.services_of(KEY) == {"review": service(14, "2")}


def test_mirrors_are_looked_at_as_soon_as_all_is_listed() -> None:
    """Each first list may be the last that a mirror waited for; later ones tell of what differs alone."""
    concerned: list[MirrorKey] = []
    objects = MirrorObjects(Api(), (), concerned.append)  # type: ignore[arg-type]
    mirror = {"metadata": {"namespace": "shop", "name": "legacy", "uid": "1"}, "spec": {"application": "a"}}
    one(objects.mirrors).take_list(page(mirror))
    assert not objects.are_known_of("shop")
    for group in (objects.services, objects.slices):
        concerned.clear()
        one(group).take_list(page())
        assert concerned == [KEY]
    assert objects.are_known_of("shop")
    concerned.clear()
    one(objects.slices).take_list(page())
    assert concerned == []
