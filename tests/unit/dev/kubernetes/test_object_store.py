"""Versions and changes of the object store, and how long a watch can be resumed."""

from __future__ import annotations

import time
from typing import Any

import pytest

from eurekube_provider.dev.kubernetes import object_store
from eurekube_provider.dev.kubernetes.object_store import ApiRefusal, ObjectStore, build_object_filter


def item(name: str, /, **labels: str) -> dict[str, Any]:
    """Return an object of the namespace shop."""
    return {"metadata": {"namespace": "shop", "name": name, "labels": labels}}


def put(store: ObjectStore, storage: str, name: str) -> None:
    """Store an object under the store's lock."""
    with store.changed:
        store.put(storage, item(name))


def everything(_: object) -> bool:
    """Select every object."""
    return True


def test_who_comes_back_late_has_to_list_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch from a version older than the kept changes is refused with 410."""
    monkeypatch.setattr(object_store, "MAX_KEPT_CHANGES", 3)
    store = ObjectStore()
    version = store.version
    for number in range(4):
        put(store, "pods", f"pod-{number}")
    with pytest.raises(ApiRefusal) as raised:
        list(store.watch("pods", version, everything, 0))
    assert raised.value.status["code"] == 410
    reported = [
        (kind, one["metadata"].get("name")) for kind, one in store.watch("pods", version + 1, everything, 0)
    ]
    assert reported == [("ADDED", "pod-1"), ("ADDED", "pod-2"), ("ADDED", "pod-3"), ("BOOKMARK", None)]


def test_a_quiet_watch_is_reported_where_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch without changes gets bookmarks with the store's current version."""
    monkeypatch.setattr(object_store, "BOOKMARK_INTERVAL_SECONDS", 0.05)
    store = ObjectStore()
    put(store, "pods", "one")
    watch = store.watch("services", 1000, everything, 30)
    kind, mark = next(watch)
    assert (kind, mark) == ("BOOKMARK", {"metadata": {"resourceVersion": "1001"}})
    put(store, "services", "web")
    assert next(one for one in watch if one[0] != "BOOKMARK")[1]["metadata"]["name"] == "web"


def test_a_closed_store_ends_a_watch_at_once() -> None:
    """``close`` ends a watch at once, whatever its time-out."""
    store = ObjectStore()
    watch = store.watch("pods", 0, everything, 600)
    put(store, "pods", "one")
    began = time.monotonic()
    assert next(watch)[0] == "ADDED"
    store.close()
    assert list(watch) == []
    assert time.monotonic() - began < 60


@pytest.mark.parametrize(
    ("selector", "is_selected"),
    [
        ("", True),
        ("a=1", True),
        ("a==1,b", True),
        ("a!=2,c!=1", True),
        ("a=2", False),
        ("a!=1", False),
        ("c", False),
        ("b=", False),
    ],
)
def test_which_labels_fit(selector: str, is_selected: bool) -> None:
    """A label selector compares values, or requires that a label exists; no label is unlike any value."""
    selects = build_object_filter("shop", {"labelSelector": selector})
    assert selects(item("one", a="1", b="2")) is is_selected
    assert not build_object_filter("other", {"labelSelector": selector})(item("one", a="1", b="2"))


@pytest.mark.parametrize("selector", ["a!1", "!a", "a in (1,2)", "a notin (1)", "a=1;b"])
def test_a_selector_that_is_not_supported_is_refused(selector: str) -> None:
    """An unsupported label selector is refused, and not understood as another one."""
    with pytest.raises(ApiRefusal, match="is not supported"):
        build_object_filter("shop", {"labelSelector": selector})
