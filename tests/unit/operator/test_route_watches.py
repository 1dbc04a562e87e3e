"""The watches of Ingresses, Gateways and HTTPRoutes: when they run, whom they concern, how they fail."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import pytest
from kubernetes import client

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.syncer import Advertise, Mode, Selector, Syncer
from eurekube_provider.kube import reflector
from eurekube_provider.kube.access import KubeAccess
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.route_watches import RouteWatches
from eurekube_provider.operator.sources import ClusterCache
from lab.waiting import wait_until
from tests.unit.operator.parts import CLUSTER
from tests.unit.operator.quiet_api import QuietApi

BOTH = (Advertise.INGRESS, Advertise.GATEWAY)
KEY = ("shop", "rating")


def syncer(advertise: Advertise, mode: Mode = Mode.SERVICE) -> Syncer:
    """Return a syncer of the namespace ``shop``."""
    return Syncer("shop", "rating", mode, Selector("shop", "rating"), "rating", advertise=advertise)


INGRESS, GATEWAY, CLUSTER_IP = map(syncer, (Advertise.INGRESS, Advertise.GATEWAY, Advertise.CLUSTER_IP))

Made = Callable[..., RouteWatches]


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[QuietApi]:
    """Return an API server with empty lists."""
    quiet = QuietApi(monkeypatch)
    yield quiet
    quiet.end()


@pytest.fixture
def concerned() -> list[SyncerKey]:
    """Return the list of syncers that are reported as concerned."""
    return []


@pytest.fixture
def made(api: QuietApi, concerned: list[SyncerKey]) -> Iterator[Made]:  # noqa: ARG001 - answers what is made
    """Return a function that makes watches, which end with the test."""
    every: list[RouteWatches] = []

    def make(allowed: Collection[Advertise] = BOTH, namespaces: Sequence[str] = ()) -> RouteWatches:
        access = KubeAccess(client.Configuration(host="http://127.0.0.1:1"))
        every.append(
            RouteWatches(access, namespaces, allowed, concerned.append, lambda key, _: concerned.append(key))
        )
        return every[-1]

    yield make
    for one in every:
        for watch in one.groups.values():
            watch.stop()


def watched(watches: RouteWatches) -> dict[str, list[str | None]]:
    """Return the namespaces that are watched, by kind; None for all."""
    found = {kind: [one.namespace for one in watch.reflectors] for kind, watch in watches.groups.items()}
    return {kind: sorted(places, key=str) for kind, places in found.items() if places}


def read(watches: RouteWatches, wanted: Syncer) -> None:
    """Wait until all that a syncer needs has been read."""
    wait_until(lambda: watches.routes(wanted) is not None, "the first lists", 20.0)


def item(name: str, namespace: str = "shop", **spec: Any) -> dict[str, Any]:
    """Return an Ingress."""
    return {"metadata": {"namespace": namespace, "name": name}, "spec": spec}


def test_only_what_a_syncer_needs_is_watched(made: Made) -> None:
    """A kind is watched while a syncer asks for it, and where the operator watches."""
    watches = made(namespaces=("shop", "infra"))
    watches.watch_needed_kinds(KEY, CLUSTER_IP)
    watches.watch_needed_kinds(("shop", "pods"), syncer(Advertise.INGRESS, Mode.POD))
    assert watched(watches) == {}
    watches.watch_needed_kinds(KEY, INGRESS)
    assert watched(watches) == {"ingresses": ["infra", "shop"]}
    watches.watch_needed_kinds(("shop", "other"), INGRESS)
    watches.watch_needed_kinds(KEY, GATEWAY)
    assert watched(watches) == {kind: ["infra", "shop"] for kind in ("ingresses", "gateways", "httproutes")}
    watches.watch_needed_kinds(("shop", "other"), None)
    assert watched(watches) == {kind: ["infra", "shop"] for kind in ("gateways", "httproutes")}
    watches.watch_needed_kinds(KEY, CLUSTER_IP)
    assert watched(watches) == {}
    everywhere = made()
    everywhere.watch_needed_kinds(KEY, INGRESS)
    assert watched(everywhere) == {"ingresses": [None]}


@pytest.mark.parametrize("allowed", [(), (Advertise.GATEWAY,)])
def test_what_is_not_allowed_is_not_watched(
    made: Made, api: QuietApi, allowed: tuple[Advertise, ...]
) -> None:
    """Without ``--advertise-from`` the operator asks for nothing that it has no right to."""
    watches = made(allowed)
    watches.watch_needed_kinds(KEY, INGRESS)
    assert (watched(watches), watches.routes(INGRESS), watches.failure_text(INGRESS)) == ({}, None, "")
    assert api.lists["ingresses"] == 0


def test_a_change_concerns_the_syncers_that_need_the_kind(
    made: Made, api: QuietApi, concerned: list[SyncerKey]
) -> None:
    """Each of them may have the host of the object that changed, whatever its namespace; others have none."""
    watches = made(namespaces=("shop", "infra"))
    api.lists_answer.clear()
    for name in ("a", "b"):
        watches.watch_needed_kinds(("shop", name), INGRESS)
    watches.watch_needed_kinds(("shop", "c"), GATEWAY)
    api.lists_answer.set()
    read(watches, INGRESS)
    read(watches, GATEWAY)
    wait_until(lambda: len(concerned) == 8, "the first lists of three kinds in two namespaces", 20.0)
    assert set(concerned) == {("shop", "a"), ("shop", "b"), ("shop", "c")}
    concerned.clear()
    (infra,) = (one for one in watches.groups["ingresses"].reflectors if one.namespace == "infra")
    infra.apply_event("ADDED", item("web", "infra"))
    assert sorted(concerned) == [("shop", "a"), ("shop", "b")]
    routes = watches.routes(INGRESS)
    assert routes is not None
    assert [one["metadata"]["name"] for one in routes.ingresses] == ["web"]
    concerned.clear()
    (routes_of_shop,) = (one for one in watches.groups["httproutes"].reflectors if one.namespace == "shop")
    routes_of_shop.apply_event("ADDED", item("web"))
    assert concerned == [("shop", "c")]


def test_a_kind_that_is_not_installed(made: Made, api: QuietApi) -> None:
    """Nothing is taken for read, and the reason names the CRD; the watch of the other kind goes on."""
    api.refuse("httproutes", 404)
    watches = made()
    watches.watch_needed_kinds(KEY, GATEWAY)
    watches.watch_needed_kinds(("shop", "other"), INGRESS)
    wait_until(lambda: bool(watches.failure_text(GATEWAY)), "the answer", 20.0)
    assert watches.routes(GATEWAY) is None
    assert "does not know the kind httproutes.gateway.networking.k8s.io" in watches.failure_text(GATEWAY)
    read(watches, INGRESS)
    assert watches.failure_text(INGRESS) == ""


def test_a_kind_that_may_not_be_read(made: Made, api: QuietApi) -> None:
    """The API server's refusal is the reason."""
    api.refuse("ingresses", 403)
    watches = made(namespaces=("shop",))
    watches.watch_needed_kinds(KEY, INGRESS)
    wait_until(lambda: bool(watches.failure_text(INGRESS)), "the answer", 20.0)
    assert watches.routes(INGRESS) is None
    assert watches.failure_text(INGRESS) == "ingresses cannot be read"


def test_a_kind_that_may_not_be_read_any_more(
    made: Made, api: QuietApi, concerned: list[SyncerKey], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy is old, which a syncer says once the denial has lasted."""
    monkeypatch.setattr(reflector, "DENIAL_SETTLE_SECONDS", 0.0)
    watches = made(namespaces=("shop", "infra"))
    watches.watch_needed_kinds(KEY, INGRESS)
    read(watches, INGRESS)
    wait_until(lambda: len(concerned) == 2, "the first lists", 20.0)
    api.refuse("ingresses", 403)
    wait_until(lambda: len(concerned) == 4, "the denials", 20.0)
    assert watches.routes(INGRESS) is None
    assert watches.failure_text(INGRESS) == "ingresses cannot be read"


def test_another_namespace_that_may_not_be_read(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops no syncer of a namespace that may be read, and does not count as read."""
    answered = KubeAccess.pages

    def pages(access: KubeAccess, path: str, *rest: Any, **more: Any) -> Iterator[dict[str, Any]]:
        if "/gone/" in path:
            raise KubernetesError("gone", status_code=403)
        return answered(access, path, *rest, **more)

    monkeypatch.setattr(KubeAccess, "pages", pages)
    watches = made(namespaces=("shop", "gone"))
    watches.watch_needed_kinds(KEY, GATEWAY)
    read(watches, GATEWAY)
    routes = watches.routes(GATEWAY)
    assert routes is not None
    assert (
        routes.was_namespace_read("shop"),
        routes.was_namespace_read("gone"),
        routes.was_namespace_read("other"),
    ) == (
        True,
        False,
        False,
    )


def test_a_syncer_waits_for_what_is_not_read(api: QuietApi) -> None:
    """The syncer's problem has the reason of the failed list; the operator itself counts as started."""
    api.refuse("gateways", 404)
    access = KubeAccess(client.Configuration(host="http://127.0.0.1:1"))
    sources = ClusterCache(access, CLUSTER, (), lambda _: None, advertise_from=[Advertise.GATEWAY])
    sources.start()
    spec = {"mode": "service", "selector": {"app": "rating"}, "advertise": "Gateway"}
    (syncers,), (services,) = sources.syncers.reflectors, sources.services.reflectors
    metadata = {"namespace": "shop", "name": "rating"}
    wait_until(lambda: sources.is_synced, "the first lists", 20.0)
    api.lists_answer.clear()
    syncers.apply_event("ADDED", {"metadata": metadata, "spec": spec})
    services.apply_event("ADDED", {"metadata": metadata, "spec": {"ports": [{"port": 80}]}})
    assert not sources.is_synced, "a single pass waits for an answer"
    api.lists_answer.set()
    wait_until(lambda: sources.is_synced, "the answers", 20.0)
    desired = sources.desired(GATEWAY)
    (problem,) = desired.problems
    assert (problem.reason, desired.has_unread_objects, desired.may_be_incomplete) == (
        "RoutesNotRead",
        True,
        True,
    )
    assert "gateways.gateway.networking.k8s.io: install its CRD" in problem.message
    assert sources.is_synced_or_forbidden
    assert "reflector-gateways-all" in [loop.name for loop in sources.liveness()]
    sources.stop()
