"""When mirrors are reconciled, and what they report."""

from __future__ import annotations

import copy
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.core.networks import parse_networks
from eurekube_provider.core.objects import ATTACH_MIRROR_ANNOTATION, MIRROR_LABEL
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.kube.access import ENDPOINT_SLICES, MIRRORS, SERVICES
from eurekube_provider.operator.mirror.mirror_status import must_write_status
from eurekube_provider.operator.mirror.mirrors import MirrorController
from eurekube_provider.operator.settings import Settings
from lab.waiting import wait_until
from tests.unit.operator.mirror.stage import Api, Source, instance, one
from tests.unit.operator.parts import URL, PlayedOperator

Object = dict[str, Any]


class Events:
    """A recorder that keeps each Event's reason and note."""

    def __init__(self) -> None:
        self.recorded: list[tuple[str, str]] = []

    def record(self, _: Object, __: object, reason: str, note: str) -> None:
        """Keep an Event's reason and note."""
        self.recorded.append((reason, note))


class Scene:
    """MirrorController over an API server and a Eureka in memory, with watches that report nothing."""

    def __init__(self, *, is_dry: bool = False, is_listed: bool = True) -> None:
        self.api, self.source, self.events = Api(), Source(), Events()
        self.written: list[tuple[str, list[str]]] = []
        self.watched = PlayedOperator().sources
        if is_listed:
            self.list_persons()
        settings = Settings(
            {"default": Connection.parse(URL)},
            mirrors=True,
            mirror_cidrs=parse_networks(["192.0.2.0/24"]),
        )
        self.lists = 0
        self.mirrors = MirrorController(
            settings,
            Cluster("eks", "uid"),
            cast("Any", self),
            cast("Any", self.events),
            self.watched,
            {"default": self.source},
            lambda key, _, writes: self.written.append((key[1], writes)),
            is_dry=is_dry,
        )

    def list_persons(self) -> None:
        """Complete the list of Services and slices that no mirror made; it is empty."""
        for group in (self.watched.services, self.watched.slices):
            one(group).replace_from_list([{"metadata": {"resourceVersion": "1"}, "items": []}])

    def request(self, *given: Any, **more: Any) -> Object:
        """Pass a write to the API server."""
        return self.api.request(*given, **more)

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Object:
        """Read one object from the API server, or list those that a query selects."""
        return self.api.get(path, query)

    def pages(
        self, path: str, *_: object, query: Mapping[str, str] | None = None, **__: object
    ) -> Iterator[Object]:
        """List the objects of a kind; a list with a query is counted as one that begins a watch."""
        self.lists += query is not None
        items = [
            copy.deepcopy(item)
            for where, item in self.api.objects.items()
            if where.rpartition("/")[0].endswith(path.rpartition("/")[2])
            and (path == MIRRORS.path() or query is not None)
        ]
        yield {"metadata": {"resourceVersion": "1"}, "items": items}

    def watch(self, *_: object, **__: object) -> Iterator[Object]:
        """Yield bookmarks only."""
        while True:
            time.sleep(0.05)
            yield {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "1"}}}

    def made(self, name: str = "review", **spec: Any) -> None:
        """Store a EurekaMirror, as a person who creates one does."""
        metadata = {"namespace": "shop", "name": name, "uid": name, "resourceVersion": "1", "generation": 1}
        item: Object = {
            "apiVersion": "eurekube.io/v1alpha1",
            "kind": "EurekaMirror",
            "metadata": {**metadata, "finalizers": ["eurekube.io/mirror"]},
            "spec": spec or {"application": "review"},
        }
        self.api.objects[MIRRORS.path("shop", name)] = item

    def end(self) -> None:
        """Stop the mirrors, and wait until their watches end: a later test may replace the clock under
        them.
        """
        self.mirrors.stop()
        wait_until(
            lambda: not any(one.is_alive for one in self.mirrors.objects.liveness()), "the watches' end", 10.0
        )

    def status(self, name: str = "review") -> Object:
        """Return a mirror's status as the API server holds it."""
        found: Object = self.api.objects[MIRRORS.path("shop", name)].get("status") or {}
        return found

    def says(self, kind: str, name: str = "review") -> str:
        """Return the status of a mirror's condition, empty if it has none."""
        conditions = self.status(name).get("conditions") or ()
        return next((str(each["status"]) for each in conditions if each["type"] == kind), "")


@pytest.fixture
def scene() -> Iterator[Scene]:
    """Yield a scene with one mirror."""
    found = Scene()
    found.made()
    yield found
    found.end()


def test_nothing_is_written_before_this_replica_leads(scene: Scene) -> None:
    """Once the replica leads it writes all, and each reading of Eureka triggers another reconcile."""
    scene.source.listed = [instance(1)]
    scene.mirrors.start()
    wait_until(lambda: scene.mirrors.objects.are_listed_in("shop"), "the lists", 10.0)
    scene.source.was_read()
    time.sleep(0.2)
    assert scene.api.writes == []
    scene.mirrors.lead()
    wait_until(lambda: scene.says("Ready") == "True", "Ready", 10.0)
    assert scene.mirrors.write_counts == {("services", "create"): 1, ("endpointslices", "create"): 1}
    assert scene.status()["services"] == [
        {"application": "REVIEW", "name": "review", "endpoints": 1, "ready": 1, "held": 0}
    ]
    scene.source.listed += [instance(2)]
    scene.source.was_read()
    wait_until(lambda: scene.status()["ready"] == 2, "the second one", 10.0)
    (report,) = scene.mirrors.reports().values()
    assert report.ready == 2
    assert all(each.is_alive for each in scene.mirrors.liveness())
    wait_until(scene.mirrors.pause_and_check_idle, "the end of what was begun", 10.0)
    scene.mirrors.stand_by()
    assert scene.mirrors.reports() == {}


def test_what_is_wrong_is_reported(scene: Scene) -> None:
    """Conditions and Events report it; a failed write is reported, too, and retried."""
    scene.source.listed = [instance(1, address="198.51.100.1")]
    scene.mirrors.start()
    scene.mirrors.lead()
    wait_until(lambda: scene.says("AddressRefused") == "True", "AddressRefused", 10.0)
    assert {reason for reason, _ in scene.events.recorded} == {"AddressRefused"}
    scene.source.listed = [instance(1)]
    scene.source.was_read()
    wait_until(lambda: scene.says("AddressRefused") == "False", "its end", 10.0)
    scene.source.listed = [instance(1), instance(2)]
    scene.api.fails = KubernetesError("the API is full", status_code=507)
    scene.source.was_read()
    wait_until(lambda: "KubernetesError" in dict(scene.events.recorded), "the Event", 10.0)
    wait_until(lambda: scene.status()["ready"] == 2 and scene.says("Synced") == "True", "the retry", 10.0)


def test_a_service_that_opts_in_concerns_its_mirror(scene: Scene) -> None:
    """A Service that opts in or out triggers a reconcile of its mirror at once, without a reading of
    Eureka.
    """
    scene.made("beside", application="review", attachTo="rating")
    scene.source.listed = [instance(1)]
    scene.mirrors.start()
    scene.mirrors.lead()
    wait_until(lambda: scene.says("NotAttached", "beside") == "True", "NotAttached", 10.0)
    rating: Object = {
        "metadata": {
            "namespace": "shop",
            "name": "rating",
            "annotations": {ATTACH_MIRROR_ANNOTATION: "beside"},
        },
        "spec": {"ports": [{"name": "http", "port": 80}]},
    }
    one(scene.watched.services).apply_event("ADDED", rating)
    wait_until(lambda: scene.says("Ready", "beside") == "True", "Ready", 10.0)
    one(scene.watched.services).apply_event(
        "MODIFIED", {**rating, "metadata": {"namespace": "shop", "name": "rating"}}
    )
    wait_until(lambda: scene.says("NotAttached", "beside") == "True", "NotAttached again", 10.0)
    named = [path for path in scene.api.objects if "/endpointslices/rating" in path]
    assert named == []
    assert SERVICES.path("shop", "rating") not in scene.api.objects
    assert ENDPOINT_SLICES.path("shop") not in scene.api.objects


@pytest.mark.parametrize("is_dry", [False, True])
def test_a_single_pass_tells_what_is_written(is_dry: bool) -> None:
    """A single pass reports each mirror once; in a dry run it reports the writes without carrying them
    out.
    """
    scene = Scene(is_dry=is_dry)
    scene.made()
    scene.source.listed = [instance(1)]
    scene.mirrors.start()
    keys = scene.mirrors.reconcile_all_once(threading.Event(), time.monotonic() + 10.0)
    scene.end()
    assert keys == [("shop", "review")]
    name, writes = scene.written[0]
    assert name == "review"
    assert [each.split("-")[0] for each in writes] == ["+ Service review", "+ EndpointSlice review"]
    written = [each for each in scene.api.writes if not each.endswith("/status")]
    assert [each.split("-")[0] for each in written] == (
        [] if is_dry else ["POST services/review", "POST endpointslices/review"]
    )


@pytest.mark.parametrize("is_dry", [False, True])
def test_a_single_pass_resolves_host_names(is_dry: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A single pass waits for the lookups of host names, and shows the instances; it says so of a name that
    does not resolve.
    """

    def getaddrinfo(name: str, *_: object) -> list[Any]:
        time.sleep(0.2)
        if name == "vm-2":
            raise socket.gaierror(socket.EAI_AGAIN, "timed out")
        return [(None, None, 6, "", ("192.0.2.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    scene = Scene(is_dry=is_dry)
    scene.made()
    scene.source.listed = [Instance("review", f"vm-{one}", f"vm-{one}", "", Port(8080)) for one in (1, 2)]
    scene.mirrors.start()
    scene.mirrors.reconcile_all_once(threading.Event(), time.monotonic() + 10.0)
    (report,) = scene.mirrors.reports().values()
    scene.end()
    assert report.ready == 1
    assert [each.split("-")[0] for _, writes in scene.written for each in writes][
        -1
    ] == "+ EndpointSlice review"
    assert "vm-1" not in report.problems["Unresolvable"].message
    assert "could not be resolved ([Errno" in report.problems["Unresolvable"].message


def test_a_dry_run_removes_and_changes_nothing() -> None:
    """A dry run leaves existing Services and slices as they are, and reports what it would remove."""
    scene = Scene()
    scene.made()
    scene.source.listed = [instance(1)]
    scene.mirrors.start()
    scene.mirrors.reconcile_all_once(threading.Event(), time.monotonic() + 10.0)
    scene.end()
    dry = Scene(is_dry=True)
    dry.api.objects = dict(scene.api.objects)
    dry.made(application="review", serviceName="reviews", port=81)
    dry.source.listed = [instance(1), instance(2)]
    dry.mirrors.start()
    dry.mirrors.reconcile_all_once(threading.Event(), time.monotonic() + 10.0)
    dry.end()
    writes = [each.partition("-")[0] for each in dry.written[0][1] if not each.startswith("-")]
    assert writes == ["+ Service reviews", "+ EndpointSlice reviews"]
    assert "- Service review" in dry.written[0][1]
    assert [each for each in dry.api.writes if not each.endswith("/status")] == []


def test_a_status_is_written_for_its_news_only() -> None:
    """A newer ``lastReadTime`` alone is written only when it is five minutes newer."""
    old = {"ready": 1, "lastReadTime": "2026-01-01T00:00:00Z"}
    assert not must_write_status(old, {**old, "lastReadTime": "2026-01-01T00:04:59Z"})
    assert must_write_status(old, {**old, "lastReadTime": "2026-01-01T00:05:00Z"})
    assert must_write_status(old, {**old, "ready": 2})
    assert must_write_status({"ready": 1}, old)
    assert not must_write_status({"ready": 1}, {"ready": 1})


def test_nothing_leaves_a_service_that_was_not_listed_yet() -> None:
    """Slices that an earlier operator added to a person's Service stay until the persons' Services have
    been listed.
    """
    scene = Scene(is_listed=False)
    slices = f"{ENDPOINT_SLICES.path('shop')}/rating-1"
    labels = {"kubernetes.io/service-name": "rating", MIRROR_LABEL: "beside"}
    metadata = {"namespace": "shop", "name": "rating-1", "uid": "1", "resourceVersion": "1", "labels": labels}
    scene.api.objects[slices] = {"metadata": metadata, "addressType": "IPv4", "ports": [], "endpoints": []}
    scene.made("beside", application="review", attachTo="rating")
    scene.source.listed = [instance(1)]
    scene.mirrors.start()
    scene.mirrors.lead()
    wait_until(lambda: scene.mirrors.objects.are_listed_in("shop"), "the lists", 10.0)
    time.sleep(1.5)
    assert [each for each in scene.api.writes if "DELETE" in each] == []
    scene.list_persons()
    wait_until(lambda: slices not in scene.api.objects, "its end, since there is none", 10.0)
    scene.end()


def test_a_deleted_mirror_keeps_its_finalizer_until_its_slices_were_listed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slice in a Service that a person took over belongs to that Service, and would stay with it."""
    path = f"{ENDPOINT_SLICES.path('shop')}/rating-1"
    labels = {"kubernetes.io/service-name": "rating", MIRROR_LABEL: "review"}
    metadata = {"namespace": "shop", "name": "rating-1", "uid": "1", "resourceVersion": "1", "labels": labels}
    scene.api.objects[path] = {"metadata": metadata, "addressType": "IPv4", "ports": [], "endpoints": []}
    scene.made("review")
    scene.api.objects[MIRRORS.path("shop", "review")]["metadata"]["deletionTimestamp"] = (
        "2026-01-01T00:00:00Z"
    )
    may_list, pages = threading.Event(), scene.pages

    def late_pages(path: str, *given: Any, **more: Any) -> Iterator[Object]:
        if path == ENDPOINT_SLICES.path(None):
            may_list.wait(10.0)
        return pages(path, *given, **more)

    monkeypatch.setattr(scene, "pages", late_pages)
    scene.mirrors.start()
    scene.mirrors.lead()
    wait_until(lambda: scene.mirrors.objects.services.is_synced_or_forbidden, "the Services", 10.0)
    time.sleep(1.5)
    assert scene.api.writes == []
    may_list.set()
    wait_until(lambda: any("PATCH" in one for one in scene.api.writes), "the finalizer's end", 10.0)
    assert path not in scene.api.objects


def test_a_slice_whose_name_is_taken_gets_the_next_one(scene: Scene) -> None:
    """When somebody takes the labels off a mirror's slice, the mirror makes one of another name and
    reports the old one.
    """
    scene.source.listed = [instance(1)]
    scene.mirrors.start()
    scene.mirrors.lead()
    wait_until(lambda: scene.says("Ready") == "True", "Ready", 10.0)
    (path,) = (path for path in scene.api.objects if "/endpointslices/" in path)
    item = scene.api.objects[path]
    item["metadata"]["labels"] = {}
    one(scene.mirrors.objects.slices).apply_event("DELETED", item)
    wait_until(lambda: scene.says("ForeignEndpoints") == "True", "what is reported", 20.0)
    assert f"{path.rpartition('/')[2]}" in dict(scene.events.recorded)["ForeignEndpoints"]
    assert path.replace("-0", "-1") in scene.api.objects
    assert "KubernetesError" not in dict(scene.events.recorded)
    del scene.api.objects[path]
    scene.source.was_read()
    wait_until(lambda: scene.says("ForeignEndpoints") != "True", "its end", 10.0)


def test_a_conflict_that_lasts_is_reported(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes that keep failing with 409 are reported; a single conflict is not."""
    monkeypatch.setattr("eurekube_provider.operator.mirror.mirrors.CONFLICT_REPORT_RETRY_DELAY_SECONDS", 0.6)
    send = scene.api.request

    def request(method: str, path: str, *given: Any, **more: Any) -> Any:
        if method == "POST":
            raise KubernetesError("changed", status_code=409, reason="Conflict")
        return send(method, path, *given, **more)

    monkeypatch.setattr(scene.api, "request", request)
    scene.source.listed = [instance(1)]
    scene.mirrors.start()
    scene.mirrors.lead()
    wait_until(lambda: scene.says("Synced") == "False", "what is wrong", 20.0)
    assert "KubernetesError" in dict(scene.events.recorded)


def test_what_a_refusal_leaves_is_reported(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one application's slice is refused, an operator that begins to lead reports the Services and
    endpoints that stand.
    """
    scene.source.listed = [instance(1)]
    scene.mirrors.start()
    scene.mirrors.reconcile_all_once(threading.Event(), time.monotonic() + 10.0)
    assert scene.status()["ready"] == 1
    after = Scene()
    after.api.objects = scene.api.objects
    send = after.api.request

    def request(method: str, *given: Any, **more: Any) -> Any:
        if method == "POST":
            raise KubernetesError("exceeded quota", status_code=403)
        return send(method, *given, **more)

    monkeypatch.setattr(after.api, "request", request)
    after.source.listed = [instance(1), replace(instance(2), port=Port(9090))]
    after.mirrors.start()
    after.mirrors.reconcile_all_once(threading.Event(), time.monotonic() + 10.0)
    wait_until(lambda: after.says("Synced") == "False", "the refusal", 10.0)
    after.end()
    status = after.status()
    assert (status["mirrored"], status["ready"], after.says("Ready")) == (1, 1, "True")
    assert [one["application"] for one in status["services"]] == ["REVIEW"]


def test_many_host_names_are_no_fight(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that are resolved one after the other make few writes, and no pause as after a fight."""

    def getaddrinfo(name: str, *_: object) -> list[Any]:
        number = int(name.removeprefix("vm-"))
        time.sleep(0.01 * number)
        return [(None, None, 6, "", (f"192.0.2.{number}", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    numbers = range(1, 61)
    scene.source.listed = [Instance("review", f"vm-{one}", f"vm-{one}", "", Port(8080)) for one in numbers]

    def count_shown() -> int:
        slices = [item for path, item in scene.api.objects.items() if "/endpointslices/" in path]
        return sum(len(item["endpoints"]) for item in slices)

    scene.mirrors.start()
    scene.mirrors.lead()
    wait_until(lambda: count_shown() == len(numbers), "all of them", 20.0)
    assert sum(scene.mirrors.write_counts.values()) <= 12


def test_a_fight_with_a_webhook_ends(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A webhook changes the ports of each new slice; the mirror gives up creating slices after a few
    attempts.
    """
    send = scene.api.request

    def request(method: str, path: str, query: object = None, body: Any = None, **more: object) -> Any:
        if method == "POST" and path.endswith("/endpointslices"):
            ports = [{**each, "appProtocol": "http"} for each in body["ports"]]
            body = {**body, "ports": ports}
        return send(method, path, query, body, **more)

    monkeypatch.setattr(scene.api, "request", request)
    scene.source.listed = [instance(1)]
    scene.mirrors.start()
    scene.mirrors.lead()
    wait_until(lambda: scene.says("Ready") == "True", "Ready", 10.0)
    time.sleep(2.0)
    creations = scene.mirrors.write_counts["endpointslices", "create"]
    assert creations <= 8
    time.sleep(1.0)
    assert scene.mirrors.write_counts["endpointslices", "create"] == creations
    scene.source.was_read()
    wait_until(
        lambda: scene.mirrors.write_counts["endpointslices", "create"] > creations, "the next reading's", 10.0
    )
