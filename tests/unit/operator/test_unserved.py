"""The search for syncers in unwatched namespaces that no operator serves."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from eurekube_provider.core.identity import CLUSTER_UID_KEY, OWNER_KEY, Cluster
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.operator.unserved import UnservedSyncerSearch
from tests.registries.memory import MemoryConnection, MemoryRegistry
from tests.unit.core.test_served import syncer

NOW = 1_800_000_000.0
KEY = ("pay", "billing")


class Api:
    """An API server with syncers, which records the writes of their statuses."""

    def __init__(self, *items: dict[str, Any]) -> None:
        self.items = {one["metadata"]["namespace"]: one for one in items}
        self.patched: list[str] = []

    def pages(self, path: str) -> Iterator[dict[str, Any]]:
        """List all syncers."""
        assert path == "/apis/eurekube.io/v1alpha1/eurekasyncers"
        yield {"items": list(self.items.values())}

    def request(self, method: str, path: str, body: dict[str, Any], content_type: str) -> dict[str, Any]:
        """Write a status."""
        assert (method, content_type) == ("PATCH", "application/merge-patch+json")
        namespace = path.split("/")[5]
        self.patched.append(namespace)
        item = self.items[namespace]
        assert body["metadata"]["resourceVersion"] == item["metadata"]["resourceVersion"]
        self.items[namespace] = {**item, "status": {**item["status"], **body["status"]}}
        return self.items[namespace]


class Events:
    """A recorder that keeps each Event's namespace and reason."""

    def __init__(self) -> None:
        self.published: list[tuple[str, str]] = []

    def record(self, regarding: dict[str, Any], _kind: object, reason: str, _note: str) -> None:
        """Keep an Event's namespace and reason."""
        self.published.append((regarding["metadata"]["namespace"], reason))


class Scene:
    """An operator of the namespace ``shop`` that searches when a test calls it."""

    def __init__(self, *dropped: str, namespaces: tuple[str, ...] = ("shop",)) -> None:
        self.api = Api(syncer("shop", resourceVersion="1"), syncer("pay", resourceVersion="1"))
        self.events, self.connection = Events(), MemoryConnection()
        registry = MemoryRegistry.from_connection(self.connection, Cluster("east", "uid-1"), "", 15.0)
        registry.start()
        access: Any = self.api
        events: Any = self.events
        self.unserved = UnservedSyncerSearch(
            namespaces,
            Cluster("east", "uid-1"),
            access,
            {"default": registry},
            events,
            lambda _: dropped,
            lambda: True,
        )

    def renewed(self, at: float) -> None:
        """Register an instance of the syncer ``pay/billing`` that was renewed at this time."""
        metadata = {OWNER_KEY: "cluster/east/pay/billing", CLUSTER_UID_KEY: "uid-1"}
        id_ = "a.pay.east:billing:80"
        made = Instance("billing", id_, "10.0.0.1", "10.0.0.1", Port(80), metadata=metadata)
        self.connection.put(replace(made, lease_ends_ms=int((at + 90) * 1000)))


def test_what_somebody_renews_is_served() -> None:
    """A syncer whose instances are renewed is served by another operator of the same cluster."""
    scene = Scene("pay")
    for seconds in (0, 30, 60, 90, 120):
        scene.renewed(NOW + seconds - 20)
        assert scene.unserved.search_and_report(NOW + seconds) == {}
    assert (scene.api.patched, scene.unserved.unserved_count) == ([], 0)


def test_an_unrenewed_instance_is_reported_with_status_unknown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log reports the syncer at once, its status and an Event after a lease, also if its instances
    have lapsed.
    """
    scene = Scene()
    scene.renewed(NOW - 100)
    with caplog.at_level(logging.WARNING):
        assert list(scene.unserved.search_and_report(NOW)) == [KEY]
    assert [one.message for one in caplog.records] == [
        "found a syncer that no operator serves, reporting it in its status if that lasts"
    ]
    assert (scene.api.patched, scene.unserved.unserved_count) == ([], 1)
    scene.connection.held.clear()
    assert list(scene.unserved.search_and_report(NOW + 60)) == [KEY]
    assert scene.api.patched == []
    for seconds in (90, 120):
        assert list(scene.unserved.search_and_report(NOW + seconds)) == [KEY]
    assert scene.api.patched == ["pay"]
    assert scene.events.published == [("pay", "NotServed")]


def test_who_is_served_elsewhere_is_left_alone() -> None:
    """A syncer whose status another operator has restored is served at a Eureka that this operator does
    not know.
    """
    scene = Scene("pay")
    healthy = scene.api.items["pay"]
    scene.unserved.search_and_report(NOW)
    scene.unserved.search_and_report(NOW + 90)
    assert scene.api.patched == ["pay"]
    scene.api.items["pay"] = healthy
    for seconds in (120, 150, 300):
        assert scene.unserved.search_and_report(NOW + seconds) == {}
    assert scene.api.patched == ["pay"]


def test_what_this_operator_never_had_is_not_missed() -> None:
    """A syncer without instances in this operator's Eureka may be registered at another one."""
    scene = Scene()
    for seconds in (0, 90, 180):
        assert scene.unserved.search_and_report(NOW + seconds) == {}
    assert scene.api.patched == []


def test_a_namespace_that_was_watched_before_is_said_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    """The log names the dropped namespace once, with its syncers."""
    scene = Scene("pay", "empty")
    scene.renewed(NOW - 5)
    with caplog.at_level(logging.WARNING):
        scene.unserved.search_and_report(NOW)
        scene.unserved.search_and_report(NOW + 30)
    (record,) = caplog.records
    assert (vars(record)["namespace"], vars(record)["syncers"]) == ("pay", "billing")


def test_a_namespace_that_may_be_misspelt_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """A watched namespace without a syncer is logged once, if an unwatched one of a similar name has
    syncers.
    """
    scene = Scene(namespaces=("shop", "pey"))
    with caplog.at_level(logging.WARNING):
        scene.unserved.search_and_report(NOW)
        scene.unserved.search_and_report(NOW + 30)
    (record,) = caplog.records
    assert vars(record)["namespace"] == "pey"
    assert vars(record)["hint"] == "--watch-namespace pay"
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        Scene(namespaces=("shop", "empty")).unserved.search_and_report(NOW)
        Scene(namespaces=("shop", "pay", "pey")).unserved.search_and_report(NOW)
    assert caplog.records == []
