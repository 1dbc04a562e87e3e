"""The EurekaSyncers that are derived from one for all Services of its namespace."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from eurekube_provider.core.brake import RELEASE_BRAKE_ANNOTATION
from eurekube_provider.core.derived_syncer import derived_syncer
from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.identity import ClusterOwner
from eurekube_provider.core.objects import Object
from eurekube_provider.core.plan import Action, Change
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.registry import REGISTER_BEFORE_READY_ANNOTATION
from eurekube_provider.core.syncer import FINALIZER, FORCE_DELETE_ANNOTATION
from eurekube_provider.dev.kubernetes.patches import apply_merge_patch
from eurekube_provider.kube.access import KubeAccess
from eurekube_provider.operator.derived_syncers import (
    DELETION_DELAY_SECONDS,
    REFUSED_SPEC_RETRY_SECONDS,
    RETRY_SECONDS,
    DerivedSyncerController,
    merge_patch,
)
from eurekube_provider.operator.drain_check import DrainCheck
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.reports import SyncerResult
from eurekube_provider.operator.sources import ClusterCache
from eurekube_provider.operator.status import syncer_status
from tests.unit.operator.parts import CLUSTER
from tests.unit.operator.scene import Scene
from tests.unit.operator.test_drain_check import of_deployment

PARENT, RATING, REVIEW = ("shop", "all"), ("shop", "all.rating"), ("shop", "all.review")
SYNC = "eurekube.io/sync"


class Api(KubeAccess):
    """A Kubernetes API whose writes come back as a watch's events.

    :ivar requests: the writes, as method and name.
    :ivar refuses: returns the status of an answer other than a success; 0 for a success.
    :ivar stores: returns an object as it is stored, e.g. changed by a webhook.
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.later: list[tuple[SyncerKey, float]] = []
        self.concerned: list[SyncerKey] = []
        self.refuses: Callable[[str, str, Any], int] = lambda *_: 0
        self.stores: Callable[[dict[str, Any]], dict[str, Any]] = lambda item: item
        self.live: dict[str, dict[str, Any]] = {}
        self.refused: list[tuple[str, str]] = []
        self._version = 1
        self.sources = ClusterCache(
            self,
            CLUSTER,
            (),
            self.concerned.append,
            enqueue_later=lambda key, seconds: self.later.append((key, seconds)),
        )
        for group in (self.sources.syncers, self.sources.services, self.sources.slices):
            (reflector,) = group.reflectors
            reflector.replace_from_list([{"metadata": {"resourceVersion": "1"}, "items": []}])
        self.derived = self.restarted()

    def restarted(self) -> DerivedSyncerController:
        """The parts of another process."""
        self.derived = DerivedSyncerController(self, self.sources, self._refuse)
        return self.derived

    def _refuse(self, service: Object, why: Problem) -> None:
        self.refused.append((service["metadata"]["name"], why.text))

    def request(
        self, method: str, path: str, query: Any = None, body: Any = None, *_: Any, **__: Any
    ) -> dict[str, Any]:
        """Answer a read; or carry out a write, and have the watch tell of it."""
        if query:  # of a Service by its name, as the API server has it
            found = self.live.get(query["fieldSelector"].removeprefix("metadata.name="))
            return {"items": [found] if found else []}
        name = path.rpartition("/")[2] if method != "POST" else body["metadata"]["name"]
        if method == "GET":
            return self.item(("shop", name))
        self.requests.append(f"{method} {name}")
        if code := self.refuses(method, name, body):
            raise KubernetesError(f"the Kubernetes API answered {code}: {name} is invalid", status_code=code)
        before = self.sources.syncers.get("shop", name)
        if method == "POST":
            item = {**body, "metadata": {**body["metadata"], "uid": f"uid-{name}"}}
        elif method == "DELETE":
            assert before is not None
            item = apply_merge_patch(before, {"metadata": {"deletionTimestamp": "2027-01-15T08:00:00Z"}})
        else:
            assert before is not None
            item = self.stores(apply_merge_patch(before, body))
            if item == before:
                return dict(before)
        return self.put(item)

    def put(self, item: dict[str, Any]) -> dict[str, Any]:
        """There is a syncer, or it has changed."""
        self._version += 1
        item = {**item, "metadata": {**item["metadata"], "resourceVersion": str(self._version)}}
        (syncers,) = self.sources.syncers.reflectors
        syncers.apply_event("MODIFIED", item)
        return item

    def gone(self, key: SyncerKey) -> None:
        """A syncer is gone."""
        (syncers,) = self.sources.syncers.reflectors
        syncers.apply_event("DELETED", {"metadata": {"namespace": key[0], "name": key[1]}})

    def parent(self, *, more: dict[str, Any] | None = None, **spec: Any) -> None:
        """The namespace's syncer."""
        metadata = {"namespace": "shop", "name": "all", "uid": "u", "finalizers": [FINALIZER], **(more or {})}
        wanted = {"mode": "pod", "selector": {"services": "Annotated"}, **spec}
        self.put({"metadata": metadata, "spec": wanted})

    def service(self, name: str = "rating", *, lives: bool = True, **annotations: Any) -> None:
        """A Service; ``lives`` is how the API server has it, past what is watched."""
        written = {SYNC if key == "sync" else f"eurekube.io/{key}": one for key, one in annotations.items()}
        item = {
            "metadata": {"namespace": "shop", "name": name, "uid": name, "annotations": written},
            "spec": {},
        }
        (services,) = self.sources.services.reflectors
        services.apply_event("MODIFIED", item)
        if lives:
            self.live[name] = item

    def no_service(self, name: str = "rating") -> None:
        """The Service is gone."""
        (services,) = self.sources.services.reflectors
        services.apply_event("DELETED", {"metadata": {"namespace": "shop", "name": name}})
        self.live.pop(name, None)

    def item(self, key: SyncerKey = RATING) -> dict[str, Any]:
        """A syncer as it is."""
        found = self.sources.syncers.get(*key)
        assert found is not None
        return copy.deepcopy(dict(found))

    def sync_with_service(self, key: SyncerKey = RATING) -> list[str]:
        """Bring it in line; returns what was asked for."""
        self.requests.clear()
        self.derived.sync_with_service(key)
        return list(self.requests)

    def reason(self) -> str:
        """Return the reason of the namespace's syncer's Synced."""
        report = self.reconcile().report
        assert report is not None
        return report.synced.reason

    def reconcile(self) -> SyncerResult:
        """Look at all."""
        self.requests.clear()
        return self.derived.reconcile_namespace_syncer(self.item(PARENT))


class Clock:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now = time.monotonic()

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replace the clock of derived syncers."""
    made = Clock()
    monkeypatch.setattr("eurekube_provider.operator.derived_syncers.time.monotonic", lambda: made.now)
    return made


def given(annotations: dict[str, Any]) -> dict[str, Any]:
    """Annotations whose names are no words of Python."""
    return annotations


@pytest.fixture
def api() -> Api:
    """With a namespace's syncer."""
    made = Api()
    made.parent(annotations=["application", "port", "metadata", "mode"], healthCheckPath="/health")
    return made


def test_a_service_joins_by_an_annotation(api: Api) -> None:
    """Its syncer has the spec of the namespace's, and is named after both; nothing is asked for twice."""
    api.service()
    assert api.sync_with_service() == []
    api.service(sync="pod", port="8080")
    assert RATING in api.concerned
    assert api.sync_with_service() == ["POST all.rating"]
    assert api.item()["spec"] == {
        "mode": "pod",
        "selector": {"service": "rating"},
        "application": "rating",
        "port": 8080,
        "healthCheckPath": "/health",
    }
    assert api.item()["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "eurekube.io/v1alpha1",
            "kind": "EurekaSyncer",
            "name": "all",
            "uid": "u",
            "controller": True,
        }
    ]
    assert api.sync_with_service() == []
    assert api.restarted().sync_with_service(RATING) is None


def test_what_changes_is_passed_on(api: Api) -> None:
    """Of the namespace's syncer and of the Service; what is given no more is taken out."""
    api.service(sync="true", **given({"metadata.team": "a", "metadata.tier": "web"}))
    api.sync_with_service()
    assert api.item()["spec"]["metadata"] == {"team": "a", "tier": "web"}
    api.service(sync="service", **given({"metadata.team": "b"}))
    assert api.sync_with_service() == ["PATCH all.rating"]
    assert (api.item()["spec"]["metadata"], api.item()["spec"]["mode"]) == ({"team": "b"}, "service")
    api.parent(
        annotations=["mode"], paused=True, more={"annotations": {REGISTER_BEFORE_READY_ANNOTATION: "yes"}}
    )
    assert RATING in api.reconcile().syncers_to_reconcile
    assert api.sync_with_service() == ["PATCH all.rating"]
    assert api.item()["spec"] == {
        "mode": "service",
        "selector": {"service": "rating"},
        "application": "rating",
        "paused": True,
    }
    assert api.item()["metadata"]["annotations"] == {REGISTER_BEFORE_READY_ANNOTATION: "yes"}
    assert api.sync_with_service() == []


def test_nothing_is_made_before_the_finalizer(api: Api) -> None:
    """Or the namespace's syncer could be gone before what was made for it."""
    api.parent(more={"finalizers": []})
    api.service(sync="true")
    assert api.sync_with_service() == []
    result = api.reconcile()
    assert (api.requests[-1], result.syncers_to_reconcile) == ("PATCH all", frozenset())


def test_a_person_lets_a_service_leave_at_once(api: Api) -> None:
    """By ``false``; its syncer deregisters what it has."""
    api.service(sync="true")
    api.sync_with_service()
    api.service(sync="false")
    assert api.sync_with_service() == ["DELETE all.rating"]
    assert api.sync_with_service() == []


@pytest.mark.parametrize("lost", ["annotation", "Service"])
def test_a_service_that_says_nothing_leaves_after_a_minute(api: Api, lost: str, clock: Clock) -> None:
    """As when a chart loses its annotations, or a list is incomplete; a Service that is back has stayed.

    The namespace's syncer says so meanwhile.
    """
    lose = api.no_service if lost == "Service" else api.service
    api.service(sync="true")
    api.sync_with_service()
    lose()
    assert api.sync_with_service() == []
    assert any(key == RATING and seconds > DELETION_DELAY_SECONDS - 1 for key, seconds in api.later)
    assert api.reason() == "Leaving"
    clock.wait(DELETION_DELAY_SECONDS - 1)
    assert api.sync_with_service() == []
    api.service(sync="true")
    api.sync_with_service()
    assert api.reason() == "Joining"
    lose()
    assert api.sync_with_service() == []
    clock.wait(DELETION_DELAY_SECONDS - 1)
    assert api.sync_with_service() == []
    clock.wait(2)
    assert api.sync_with_service() == ["DELETE all.rating"]


def test_a_service_that_is_there_after_all_does_not_leave(api: Api) -> None:
    """The watched copy may be old: the API server is asked before instances leave."""
    api.service(sync="true")
    api.sync_with_service()
    api.service(lives=False, sync="false")
    assert api.sync_with_service() == []
    api.service(sync="false")
    assert api.sync_with_service() == ["DELETE all.rating"]


BAD = {
    "port": "80 80",
    "application": "",
    "metadata.eurekube.owner": "cluster/a/b/c",
    "sync": "pods",
}


@pytest.mark.parametrize("annotation", BAD)
def test_a_bad_value_refuses_that_service_alone(api: Api, annotation: str) -> None:
    """It is refused once, and counted; the other Service joins."""
    api.refuses = lambda _method, _name, body: 422 if (body.get("spec") or {}).get("port") == "80 80" else 0
    api.service(**given({"sync": "true", annotation: BAD[annotation]}))
    api.service("review", sync="true")
    api.sync_with_service()
    assert api.sync_with_service(REVIEW) == ["POST all.review"]
    assert api.sources.syncers.get(*RATING) is None
    assert api.sync_with_service() == []  # not even what the API server refused is sent again
    ((name, refused),) = api.refused
    assert (name, "invalid" in refused or annotation in refused) == ("rating", True)
    report = api.reconcile().report
    assert report is not None
    assert report.service_counts is not None
    assert (report.service_counts.total, report.service_counts.refused, report.is_ready) == (2, 1, False)
    assert report.synced.reason == "ServiceRefused"
    api.parent(annotations=["mode"])  # which does not list it any more
    listed = annotation in ("port", "application", "metadata.eurekube.owner")
    assert RATING in api.reconcile().syncers_to_reconcile
    assert api.sync_with_service() == (["POST all.rating"] if listed else [])
    api.service(sync="true")
    assert api.sync_with_service() == ([] if listed else ["POST all.rating"])


def test_a_bad_value_keeps_what_was_good_before(api: Api) -> None:
    """But for a pause of the namespace's syncer, which holds for all."""
    api.service(sync="true", port="http")
    api.sync_with_service()
    before = api.item()["spec"]
    api.service(sync="true", port="")
    assert api.sync_with_service() == []
    assert api.item()["spec"] == before
    api.parent(annotations=["port"], paused=True)
    assert api.sync_with_service() == ["PATCH all.rating"]
    assert api.item()["spec"] == {**before, "paused": True}


def test_a_pause_reaches_a_service_that_the_api_server_refuses(api: Api) -> None:
    """The refused spec is sent once, and the pause by itself, each way."""
    api.refuses = lambda _method, _name, body: 422 if body["spec"].get("port") == "80 80" else 0
    api.service(sync="true", port="http")
    api.sync_with_service()
    before = api.item()["spec"]
    api.service(sync="true", port="80 80")
    assert api.sync_with_service() == ["PATCH all.rating"]
    api.parent(annotations=["port"], paused=True)
    assert api.sync_with_service() == ["PATCH all.rating", "PATCH all.rating"]
    assert api.item()["spec"] == {**before, "paused": True}
    api.parent(annotations=["port"], paused=False)
    api.sync_with_service()
    assert api.item()["spec"] == {**before, "paused": False}
    api.sync_with_service()
    assert api.item()["spec"] == {**before, "paused": False}
    assert [name for name, _ in api.refused] == ["rating"]


def test_an_older_crd_lets_nothing_leave(api: Api, clock: Clock) -> None:
    """It drops the field that makes a syncer a namespace's; derived syncers stay as they are."""
    api.service(sync="true")
    api.sync_with_service()
    api.parent(selector={})
    assert api.sync_with_service() == []
    clock.wait(DELETION_DELAY_SECONDS + 1)
    assert api.sync_with_service() == []


@pytest.mark.parametrize("spec", [{"paused": True}, {"policy": "UpsertOnly"}])
def test_a_syncer_that_must_not_remove_keeps_a_service_that_left(
    api: Api, clock: Clock, spec: dict[str, Any]
) -> None:
    """A pause keeps everything; with UpsertOnly a person's ``false`` still takes the Service out."""
    api.service(sync="true")
    api.sync_with_service()
    api.parent(**spec)
    api.no_service()
    api.sync_with_service()
    assert {**api.item()["spec"], **spec} == api.item()["spec"]
    clock.wait(DELETION_DELAY_SECONDS + 1)
    assert api.sync_with_service() == []
    assert api.reason() != "Leaving"
    api.service(sync="false")
    assert api.sync_with_service() == ([] if "paused" in spec else ["DELETE all.rating"])
    if "paused" in spec:
        api.service()
        api.parent()
        api.sync_with_service()
        clock.wait(DELETION_DELAY_SECONDS - 1)
        assert api.sync_with_service() == []  # the minute begins with the end of the pause


def test_after_a_failure_of_the_api_server_one_write_is_tried(api: Api, clock: Clock) -> None:
    """Each may wait for a time-out, and the registry's workers with it."""
    names = [f"s-{number}" for number in range(3)]
    for name in names:
        api.service(name, sync="true")
    api.refuses = lambda *_: 500
    with pytest.raises(KubernetesError):
        api.derived.sync_with_service(("shop", "all.s-0"))
    assert api.sync_with_service(("shop", "all.s-1")) == []
    assert (("shop", "all.s-1"), RETRY_SECONDS) in api.later
    api.later.clear()
    assert api.sync_with_service(("shop", "all.s-0")) == []
    assert api.later == [(("shop", "all.s-0"), 2 * RETRY_SECONDS)]  # after the others
    clock.wait(RETRY_SECONDS)
    with pytest.raises(KubernetesError):
        api.derived.sync_with_service(("shop", "all.s-1"))
    assert api.sync_with_service(("shop", "all.s-2")) == []
    api.refuses = lambda _method, name, _body: 403 if name == "all.s-0" else 0
    clock.wait(RETRY_SECONDS)
    with pytest.raises(KubernetesError):
        api.derived.sync_with_service(("shop", "all.s-0"))
    assert api.sync_with_service(("shop", "all.s-2")) == ["POST all.s-2"]  # a refusal is an answer
    api.refuses = lambda *_: 0
    clock.wait(RETRY_SECONDS)
    for name in names[:2]:
        assert api.sync_with_service(("shop", f"all.{name}")) == [f"POST all.{name}"]


def test_a_spec_that_a_webhook_changes_is_not_sent_at_each_event(api: Api, clock: Clock) -> None:
    """The Service is refused with that reason, and the write is tried again after a minute."""
    api.service(sync="true")
    api.sync_with_service()
    api.stores = lambda item: apply_merge_patch(item, {"spec": {"homePagePath": "/hook"}})
    api.service(sync="service")
    assert api.sync_with_service() == ["PATCH all.rating"]
    assert api.sync_with_service() == []
    report = api.reconcile().report
    assert report is not None
    assert (report.synced.reason, report.synced.remedy) == (
        "ServiceRefused",
        "exempt EurekaSyncers from that webhook, or upgrade the CRD",
    )
    clock.wait(REFUSED_SPEC_RETRY_SECONDS)
    assert api.sync_with_service() == ["PATCH all.rating"]
    api.stores = lambda item: item
    clock.wait(REFUSED_SPEC_RETRY_SECONDS)
    assert api.sync_with_service() == ["PATCH all.rating"]
    assert api.reason() == "Joining"
    api.service(sync="false")
    assert api.sync_with_service() == ["DELETE all.rating"]


def test_a_refused_service_leaves_at_once(api: Api) -> None:
    """A refusal of its spec does not hold up a person's ``false``."""
    api.refuses = lambda _method, _name, body: 422 if body.get("spec", {}).get("port") == "80 80" else 0
    api.service(sync="true", port="http")
    api.sync_with_service()
    api.service(sync="true", port="80 80")
    api.sync_with_service()
    api.service(sync="false")
    assert api.sync_with_service() == ["DELETE all.rating"]


def test_a_copy_under_another_name_is_a_persons_own(api: Api) -> None:
    """It holds up no deletion, and is not counted."""
    api.service(sync="true")
    api.sync_with_service()
    item = api.item()
    api.put({**item, "metadata": {**item["metadata"], "name": "rating", "uid": "copy"}})
    assert api.sources.derived_syncers_of(PARENT) == [RATING]
    assert api.sources.parent_of(("shop", "rating")) is None


def test_services_that_were_not_read_are_reported() -> None:
    """The status does not go on saying Ready."""
    api = Api()
    api.parent()
    api.sources.services = ClusterCache(api, CLUSTER, (), api.concerned.append).services
    report = api.reconcile().report
    assert report is not None
    assert (report.is_ready, report.is_synced, report.ready.reason) == (None, False, "NamespaceNotRead")


def test_a_failed_change_keeps_what_is_served(api: Api, clock: Clock) -> None:
    """It is reconciled as it stands, and changed later; of one that is not there the status says why."""
    api.service(sync="true")
    api.sync_with_service()
    api.refuses = lambda *_: 403
    for said in ("service", "false"):
        api.service(sync=said)
        api.later.clear()
        assert api.derived.sync_with_service(RATING) is None
        assert (RATING, RETRY_SECONDS) in api.later
        assert api.sync_with_service() == []  # not sent again at once
        clock.wait(RETRY_SECONDS)
    assert api.reason() == "KubernetesError"
    api.later.clear()
    api.sync_with_service()
    assert PARENT not in [key for key, _ in api.later]
    api.service("review", sync="true")
    with pytest.raises(KubernetesError):
        api.derived.sync_with_service(REVIEW)
    report = api.reconcile().report
    assert report is not None
    assert (report.is_ready, report.synced.reason) == (False, "KubernetesError")
    assert api.refused == []
    api.refuses = lambda *_: 0
    clock.wait(RETRY_SECONDS)
    assert api.sync_with_service(REVIEW) == ["POST all.review"]


def test_a_persons_own_syncer_is_left_alone(api: Api) -> None:
    """One that is called as a derived one would be."""
    spec = {"mode": "pod", "selector": {"app": "rating"}}
    api.put({"metadata": {"namespace": "shop", "name": "all.rating", "uid": "mine"}, "spec": spec})
    api.service(sync="true")
    assert api.derived.sync_with_service(RATING) is None
    assert api.item()["spec"] == spec
    assert "not derived" in api.refused[0][1]
    api.service(sync="false")
    assert api.derived.sync_with_service(RATING) is None
    assert api.requests == []


def test_a_deleted_one_takes_all_with_it(api: Api) -> None:
    """Its finalizer goes after the last of them."""
    for name in ("rating", "review"):
        api.service(name, sync="true")
        api.sync_with_service(("shop", f"all.{name}"))
    api.parent(more={"deletionTimestamp": "2027-01-15T08:00:00Z"})
    result = api.reconcile()
    assert (set(result.syncers_to_reconcile), result.completed_deletion) == ({RATING, REVIEW}, None)
    assert api.requests == []
    assert (api.sync_with_service(), api.sync_with_service(REVIEW)) == (
        ["DELETE all.rating"],
        ["DELETE all.review"],
    )
    api.gone(RATING)
    assert api.reconcile().completed_deletion is None
    api.gone(REVIEW)
    assert api.reconcile().completed_deletion is not None
    assert api.requests[-1] == "PATCH all"
    assert api.sync_with_service() == []


def test_a_forced_end_is_passed_on(api: Api) -> None:
    """Where Eureka does not answer, each is let go as well."""
    api.service(sync="true")
    api.sync_with_service()
    more = {"deletionTimestamp": "2027-01-15T08:00:00Z", "annotations": {FORCE_DELETE_ANNOTATION: "now"}}
    api.parent(more=more)
    assert api.sync_with_service() == ["PATCH all.rating", "DELETE all.rating"]
    assert FORCE_DELETE_ANNOTATION in api.item()["metadata"]["annotations"]


def test_a_deletion_that_hangs_can_be_forced_later(api: Api) -> None:
    """The annotation of the namespace's syncer reaches derived ones whose deletion has begun."""
    api.service(sync="true")
    api.sync_with_service()
    api.parent(more={"deletionTimestamp": "2027-01-15T08:00:00Z"})
    assert api.sync_with_service() == ["DELETE all.rating"]
    assert api.reason() == "Leaving"
    assert api.sync_with_service() == []
    more = {"deletionTimestamp": "2027-01-15T08:00:00Z", "annotations": {FORCE_DELETE_ANNOTATION: "now"}}
    api.parent(more=more)
    assert api.sync_with_service() == ["PATCH all.rating"]
    assert api.sync_with_service() == []


def test_what_is_orphaned_becomes_a_persons_own(api: Api) -> None:
    """With ``kubectl delete --cascade=orphan`` nothing is deleted, and they are waited for."""
    api.service(sync="true")
    api.sync_with_service()
    more = {"deletionTimestamp": "2027-01-15T08:00:00Z", "finalizers": [FINALIZER, "orphan"]}
    api.parent(more=more)
    assert api.sync_with_service() == []
    assert api.reconcile().completed_deletion is None
    free = api.item()
    del free["metadata"]["ownerReferences"]
    api.put(free)
    assert api.reconcile().completed_deletion is not None
    assert api.sync_with_service() == []


def test_the_brake_is_released_for_all_that_are_held(api: Api) -> None:
    """And for nobody's next hold: the others get no annotation, and the namespace's loses its own."""
    for name in ("rating", "review"):
        api.service(name, sync="true")
        api.sync_with_service(("shop", f"all.{name}"))
    api.put({**api.item(), "status": {"conditions": [_condition("Braked", "True")]}})
    api.parent(more={"annotations": {RELEASE_BRAKE_ANNOTATION: "now"}})
    api.reconcile()
    assert RELEASE_BRAKE_ANNOTATION in api.item()["metadata"]["annotations"]
    assert RELEASE_BRAKE_ANNOTATION not in (api.item(REVIEW)["metadata"].get("annotations") or {})
    assert RELEASE_BRAKE_ANNOTATION not in (api.item(PARENT)["metadata"].get("annotations") or {})


def test_a_release_ends_the_wait_of_a_service_that_left(api: Api) -> None:
    """It leaves no annotation, which would release a later hold of the same Service."""
    api.service(sync="true")
    api.sync_with_service()
    api.service()
    assert api.sync_with_service() == []
    api.parent(more={"annotations": {RELEASE_BRAKE_ANNOTATION: "now"}})
    assert RATING in api.reconcile().syncers_to_reconcile
    assert RELEASE_BRAKE_ANNOTATION not in (api.item()["metadata"].get("annotations") or {})
    assert api.sync_with_service() == ["DELETE all.rating"]


def _condition(kind: str, status: str, reason: str = "x") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": "why", "lastTransitionTime": ""}


def test_counts_and_the_worst(api: Api) -> None:
    """Ready is that of the worst; five are named."""
    api.parent(selector={"services": "All"})
    states = {
        "a": ("True", "True"),
        "b": ("False", "False"),
        "c": ("Unknown", "False"),
        "d": ("True", "False"),
        "e": ("False", "False"),
        "f": ("False", "False"),
        "g": ("False", "False"),
    }
    for name, (ready, synced) in states.items():
        api.service(name)
        api.sync_with_service(("shop", f"all.{name}"))
        conditions = [_condition("Ready", ready, "NoPort"), _condition("Synced", synced, "NoPort")]
        item = api.item(("shop", f"all.{name}"))
        api.put({**item, "status": {"conditions": conditions, "desired": 2, "registered": 1}})
    report = api.reconcile().report
    assert report is not None
    assert report.service_counts is not None
    assert (report.is_ready, report.is_synced, report.synced.reason) == (False, False, "NoPort")
    assert (report.desired, report.registered) == (14, 7)
    status = report.service_counts.to_status_fields()
    assert status["applications"] == {"total": 7, "ready": 2, "synced": 1, "refused": 0, "braked": 0}
    assert [one["service"] for one in status["worst"]] == ["b", "e", "f", "g", "c"]


def test_none_that_joins_is_well(api: Api) -> None:
    """Nothing is meant to be found."""
    api.service()
    report = api.reconcile().report
    assert report is not None
    assert (report.is_ready, report.ready.message) == (True, "no Service of namespace shop joins")


def test_amerge_patch_makes_one_of_another() -> None:
    """Whatever is new, changed or gone, at any depth."""
    before = {"a": 1, "b": {"x": 1, "y": 2}, "c": [1], "d": "gone"}
    after = {"a": 1, "b": {"y": 3}, "c": [2], "e": {}}
    assert apply_merge_patch(before, merge_patch(before, after)) == after


class Namespace(Scene):
    """Three Services of a namespace's syncer, beside one that has a syncer of its own.

    :ivar registered: how many instances each of the three registered.
    """

    NAMES = ("a", "b", "c")

    def __init__(self, pods: int, *, settings: dict[str, Any] | None = None, **spec: Any) -> None:
        super().__init__()
        self.configure(**(settings or {}))
        self.sources = self.played.sources
        (self.syncers,) = self.sources.syncers.reflectors
        (services,) = self.sources.services.reflectors
        metadata = {"namespace": "shop", "name": "rating", "annotations": {SYNC: "false"}}
        services.apply_event("MODIFIED", {"metadata": metadata, "spec": {}})
        for name in self.NAMES:
            self.played.slice(name, *(f"10.0.{ord(name)}.{number}" for number in range(pods)))
        parent = self.parent(**spec)
        self.registered = {name: len(self.derive(parent, name)) for name in self.NAMES}

    def parent(self, name: str = "all", services: str = "All", **spec: Any) -> dict[str, Any]:
        """Create a namespace's syncer, and return it."""
        metadata = {"namespace": "shop", "name": name, "uid": f"uid-{name}", "finalizers": [FINALIZER]}
        wanted = {"mode": "pod", "selector": {"services": services}, **spec}
        item = {"metadata": metadata, "spec": wanted}
        self.syncers.apply_event("ADDED", item)
        return item

    def derive(self, parent: dict[str, Any], name: str) -> list[Change]:
        """Create the syncer of a Service, and reconcile it; return the requests that were sent."""
        service = self.sources.service("shop", name)
        assert service is not None
        item = derived_syncer(parent, service)
        key = ("shop", item["metadata"]["name"])
        item["metadata"] |= {"finalizers": [FINALIZER], "uid": "/".join(key), "generation": 1}
        self.syncers.apply_event("ADDED", item)
        sent = self.reconcile(key)
        self.syncers.apply_event(
            "MODIFIED", {**item, "status": syncer_status(item, self.report, datetime.now(UTC))}
        )
        return sent

    def loses_all(self, name: str) -> int:
        """A Service loses its pods, unseen; how many leave Eureka."""
        (slices,) = self.sources.slices.reflectors
        (before,) = self.sources.slices_of_service("shop", name)
        slices.apply_event("MODIFIED", {**before, "endpoints": []})
        return len(self.reconcile(("shop", f"all.{name}")))


def test_the_last_of_all_is_braked() -> None:
    """Three Services join and lose their one pod within a minute: the third pod is held."""
    namespace = Namespace(1)
    assert [namespace.loses_all(name) for name in namespace.NAMES] == [1, 1, 0]
    assert "all Services of shop/all" in namespace.report.problems["Braked"].message


def test_one_of_many_is_braked_by_itself() -> None:
    """As if it had a syncer of its own."""
    namespace = Namespace(2)
    assert namespace.loses_all("b") == 0
    assert "all 2 instances would go" in namespace.report.problems["Braked"].message


@pytest.mark.parametrize(
    ("spec", "settings", "remedy"),
    [
        (
            {"application": "{namespace}-{service}"},
            {"strict_names": True, "publish": frozenset({("shop", "shop-a"), ("shop", "shop-c")})},
            "--publish shop=shop-b",
        ),
        ({}, {"reserve": frozenset({("other", "b")})}, "--reserve shop=b"),
    ],
    ids=["strict names", "reserved"],
)
def test_a_name_that_is_not_allowed_refuses_one_service(
    spec: dict[str, Any], settings: dict[str, Any], remedy: str
) -> None:
    """A derived syncer needs the same rights to names as a person's; the namespace's syncer counts the
    Service that lacks them.
    """
    namespace = Namespace(1, settings=settings, **spec)
    assert namespace.registered == {"a": 1, "b": 0, "c": 1}
    namespace.reconcile(("shop", "all"))
    services = namespace.report.service_counts
    assert services is not None
    status = services.to_status_fields()
    assert status["applications"] == {"total": 3, "ready": 2, "synced": 2, "refused": 0, "braked": 0}
    assert [(one["service"], one["reason"]) for one in status["worst"]] == [("b", "NotAllowed")]
    assert (namespace.ready(), remedy in namespace.report.ready.text) == ((False, "NotAllowed"), True)


def test_the_first_of_two_namespaces_syncers_keeps_a_service() -> None:
    """The second one's derived syncer has a conflict and changes nothing until the first one's hands over."""
    namespace = Namespace(2)
    before = namespace.played.registry.known_instances(application="B")
    (services,) = namespace.sources.services.reflectors
    metadata = {"namespace": "shop", "name": "b", "annotations": {SYNC: "true"}}
    services.apply_event("MODIFIED", {"metadata": metadata, "spec": {}})
    second = namespace.parent("others", "Annotated")
    assert namespace.derive(second, "b") == []
    assert (namespace.report.is_synced, namespace.report.synced.reason) == (False, "Conflict")
    assert namespace.played.registry.known_instances(application="B") == before
    namespace.reconcile(("shop", "others"))
    assert (namespace.report.is_synced, namespace.report.synced.reason) == (False, "Conflict")
    first = namespace.sources.syncers.get("shop", "all.b")
    assert first is not None
    deleted = {**first["metadata"], "deletionTimestamp": "2027-01-15T08:00:00Z"}
    namespace.syncers.apply_event("MODIFIED", {**first, "metadata": deleted})
    owner = str(ClusterOwner(CLUSTER.name, "shop", "others.b"))
    sent = [(one.action, one.instance.owner) for one in namespace.reconcile(("shop", "all.b"))]
    assert sent == [(Action.UPDATE, owner)] * 2
    assert namespace.reconcile(("shop", "others.b")) == []
    assert (namespace.report.is_synced, namespace.report.registered) == (True, 2)


class Pods:
    """An API server whose pods end as soon as they are deleted."""

    def get(self, path: str, query: dict[str, str]) -> dict[str, Any]:
        """Return the list of pods with the requested name."""
        assert path == "/api/v1/namespaces/shop/pods"
        assert query.keys() == {"fieldSelector"}
        return {"items": [of_deployment("x", "abc")]}


def test_a_drain_that_is_too_short_is_reported_of_that_service_alone() -> None:
    """DrainTooShort is in the status of the derived syncer whose pods were checked."""
    namespace = Namespace(1)
    changed: list[SyncerKey] = []
    pods: Any = Pods()
    drains = namespace.played.drain_check = DrainCheck(pods, namespace.sources, 120, changed.append)
    namespace.configure()
    item = namespace.sources.syncers.get("shop", "all.b")
    assert item is not None
    drains.check_now(namespace.sources.parse_spec(item))
    assert changed == [("shop", "all.b")]
    for name in namespace.NAMES:
        namespace.reconcile(("shop", f"all.{name}"))
        assert ("DrainTooShort" in namespace.report.problems) is (name == "b")


def test_an_event_of_one_service_costs_no_more_among_many(api: Api) -> None:
    """Five hundred in one syncer are looked at one by one, and summed up once in a second."""
    api.parent(selector={"services": "All"})
    for number in range(500):
        api.service(f"s-{number}")
        api.sync_with_service(("shop", f"all.s-{number}"))
    key = ("shop", "all.s-7")
    alone = Api()
    alone.parent(selector={"services": "All"})
    alone.service("s-7")
    alone.sync_with_service(key)
    of_many, of_one = (_seconds(partial(one.derived.sync_with_service, key)) for one in (api, alone))
    assert of_many < 10 * of_one
    api.concerned.clear()
    api.service("s-7", sync="true")
    assert set(api.concerned) == {key}
    assert {one for one, _ in api.later} <= {PARENT}
    assert _seconds(api.reconcile) < 500 * 20 * of_one


def _seconds(done: Callable[[], object]) -> float:
    """The shortest of ten."""
    found = []
    for _ in range(10):
        started = time.perf_counter()
        done()
        found.append(time.perf_counter() - started)
    return min(found)
