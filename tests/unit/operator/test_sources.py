"""The operator's copy of the cluster's objects, and the syncers that a change concerns."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes import client

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.identity import Cluster, pod_instance_id
from eurekube_provider.core.mapping import desired_instances
from eurekube_provider.core.syncer import Advertise, Mode, Selector, Syncer
from eurekube_provider.kube import reflector
from eurekube_provider.kube.access import KubeAccess
from eurekube_provider.kube.reflector import DENIAL_SETTLE_SECONDS, ReflectorGroup
from eurekube_provider.operator.index import ServiceIndex
from eurekube_provider.operator.sources import ClusterCache
from eurekube_provider.operator.watches import (
    OnDemandWatches,
    trim_custom_resource,
    trim_node,
    trim_pod_to_labels,
    trim_service,
    trim_slice,
)
from lab.waiting import wait_until
from tests.unit import strategies
from tests.unit.operator.parts import CLUSTER
from tests.unit.operator.parts import PlayedOperator as RunningOperator

Object = dict[str, Any]

_names = st.sampled_from(["rating", "order"])


@given(
    st.sampled_from(Mode),
    st.sampled_from([one for one in Advertise if one is not Advertise.HOST_PORT]),
    strategies.services(_names),
    strategies.slices(_names),
)
def test_what_is_left_out_means_nothing(
    mode: Mode, advertise: Advertise, services: list[Object], slices: list[Object]
) -> None:
    """Trimmed Services and slices map to the same instances as whole ones, and trimming them again changes
    nothing.
    """
    syncer = Syncer("shop", "x", mode, Selector("shop", "rating"), "rating", advertise=advertise)
    cluster = Cluster("eks", "uid")
    kept_services, kept_slices = [trim_service(one) for one in services], [trim_slice(one) for one in slices]
    assert desired_instances(syncer, kept_services, kept_slices, cluster) == desired_instances(
        syncer, services, slices, cluster
    )
    assert [trim_service(one) for one in kept_services] == kept_services
    assert [trim_slice(one) for one in kept_slices] == kept_slices


@given(strategies.slices(_names), strategies.slices(_names))
def test_what_was_kept_before_does_not_matter(earlier: list[Object], later: list[Object]) -> None:
    """A slice is trimmed to the same result with or without an earlier copy of it."""
    for before, after in zip(earlier, later, strict=False):
        assert trim_slice(after, trim_slice(before)) == trim_slice(after)
        kept = trim_slice(after)
        again = trim_slice(deepcopy(after), kept)
        assert again == kept


@pytest.mark.parametrize(
    "changed",
    [
        {"addresses": ["10.0.0.9"]},
        {"conditions": {"ready": False, "terminating": True}},
        {"conditions": {}},
        {"targetRef": {"kind": "Pod", "name": "b"}},
        {"targetRef": {"kind": "Node", "name": "a"}},
        {"targetRef": None},
        {"zone": "zone-b"},
        {"zone": None},
        {"nodeName": "node-2"},
    ],
)
def test_only_an_endpoint_that_changed_is_kept_again(changed: Object) -> None:
    """Unchanged endpoints of a changed slice stay the same Python objects at any position, so that nobody
    compares them.
    """

    def slice_of(*endpoints: Object) -> Object:
        return {"metadata": {"namespace": "shop", "name": "x"}, "endpoints": deepcopy(list(endpoints))}

    def endpoint(number: int, **fields: object) -> Object:
        target = {"kind": "Pod", "name": "a", "uid": "u"}
        conditions = {"ready": True, "serving": True, "terminating": False}
        return {
            "addresses": [f"10.0.0.{number}"],
            "conditions": conditions,
            "targetRef": target,
            "zone": "zone-a",
            "nodeName": "node-1",
            **fields,
        }

    trim_slice(slice_of(*map(endpoint, range(50))))  # CPython shares keys after the first objects of a class
    before = trim_slice(slice_of(endpoint(1), endpoint(2)))
    for kept in before["endpoints"]:  # fields of one class take less than the same fields written as they are
        assert sys.getsizeof(kept) < sys.getsizeof(dict(kept))
    after = trim_slice(slice_of(endpoint(3), endpoint(1, **changed), endpoint(2)), before)
    assert after["endpoints"][2] is before["endpoints"][1]
    assert after["endpoints"][1] is not before["endpoints"][0]
    assert after == trim_slice(slice_of(endpoint(3), endpoint(1, **changed), endpoint(2)))


def test_field_managers_are_left_out() -> None:
    """A syncer is kept whole except for ``managedFields``."""
    syncer: Object = {"metadata": {"name": "a", "managedFields": [{}], "uid": "u"}, "spec": {"mode": "pod"}}
    assert trim_custom_resource(syncer) == {"metadata": {"name": "a", "uid": "u"}, "spec": {"mode": "pod"}}


class SourceChanges:
    """Sources that a test feeds by hand, and a record of the syncers they report."""

    def __init__(self) -> None:
        self.concerned: list[tuple[str, str]] = []
        self.changed: list[Object] = []
        self.is_overwritten = False
        self.forgotten: list[tuple[str, str]] = []
        self.sources = ClusterCache(
            KubeAccess(client.Configuration(host="http://127.0.0.1:1")),
            CLUSTER,
            (),
            self.concerned.append,
            lambda _: self.is_overwritten,
            forget_status=self.forgotten.append,
        )
        self.sources.follow_services(self.changed.append)

    def syncer(self, old: Object | None, new: Object | None) -> list[tuple[str, str]]:
        """Return the syncers that a change of a syncer concerns."""
        return self._change(self.sources.syncers, old, new)

    def service(self, old: Object | None, new: Object | None) -> list[tuple[str, str]]:
        """Return the syncers that a change of a Service concerns."""
        return self._change(self.sources.services, old, new)

    def _change(self, kind: ReflectorGroup, old: Object | None, new: Object | None) -> list[tuple[str, str]]:
        (copy,) = kind.reflectors
        if old is not None:
            copy.apply_event("MODIFIED", old)
        elif new is not None:
            copy.apply_event("DELETED", new)
        self.concerned.clear()
        self.changed.clear()
        if new is not None:
            copy.apply_event("MODIFIED" if old else "ADDED", new)
        elif old is not None:
            copy.apply_event("DELETED", old)
        return sorted(self.concerned)


def syncer(
    name: str = "rating", app: str = "rating", namespace: str | None = None, **metadata: Any
) -> Object:
    """Return a syncer in the namespace ``team``."""
    selector = {"app": app, **({"namespace": namespace} if namespace else {})}
    return {
        "metadata": {"namespace": "team", "name": name, "uid": "u", **metadata},
        "spec": {"mode": "pod", "selector": selector},
    }


def service(name: str, app: str | None = None, namespace: str = "team") -> Object:
    """Return a Service."""
    return {"metadata": {"namespace": namespace, "name": name, "labels": {"app": app} if app else {}}}


def test_a_syncer_concerns_itself() -> None:
    """A syncer that is new, changed or deleted is reconciled."""
    changes = SourceChanges()
    key = ("team", "rating")
    assert changes.syncer(None, syncer()) == [key]
    assert changes.syncer(syncer(), syncer(app="other")) == [key]
    assert changes.syncer(syncer(app="other"), syncer(app="other", deletionTimestamp="now")) == [key]
    assert changes.syncer(syncer(app="other"), None) == [key]


def test_our_own_status_is_no_reason_to_reconcile() -> None:
    """A change of a syncer's status or version, which the operator's own write causes, triggers no
    reconcile.
    """
    changes = SourceChanges()
    changes.syncer(None, syncer())
    assert changes.syncer(syncer(), {**syncer(resourceVersion="2"), "status": {"desired": 1}}) == []


def test_somebody_elses_status_is_a_reason_to_reconcile() -> None:
    """A status that differs from the operator's own, such as a killed leader's late write, triggers a
    reconcile.
    """
    changes = SourceChanges()
    changes.syncer(None, syncer())
    changes.is_overwritten = True
    before = syncer(resourceVersion="2")
    assert changes.syncer(before, {**syncer(resourceVersion="3"), "status": {"desired": 1}}) == [
        ("team", "rating")
    ]
    assert changes.syncer(before, syncer(resourceVersion="3")) == [], "a change of labels"


def test_a_status_out_of_a_backup_is_a_reason_to_reconcile() -> None:
    """After a restore of the API server a syncer's version is older than before: what was written to its
    status since is gone, and must be written again.
    """
    changes = SourceChanges()
    before = syncer(resourceVersion="20")
    changes.syncer(None, before)
    assert changes.syncer(before, {**syncer(resourceVersion="12"), "status": {"desired": 1}}) == [
        ("team", "rating")
    ]
    assert changes.forgotten == [("team", "rating")]


def test_a_service_concerns_those_who_select_it() -> None:
    """A syncer selects a Service by label or name, in the namespace of its selector."""
    changes = SourceChanges()
    changes.syncer(None, syncer("one"))
    changes.syncer(None, syncer("two"))
    changes.syncer(None, syncer("away", namespace="shop"))
    assert changes.service(None, service("rating")) == [("team", "one"), ("team", "two")]
    assert changes.service(None, service("x", app="rating", namespace="shop")) == [("team", "away")]
    assert changes.service(None, service("rating", app="other")) == []


def test_a_relabelled_service_concerns_both_sides() -> None:
    """A Service whose label changes triggers the syncer that it leaves and the one that it joins."""
    changes = SourceChanges()
    changes.syncer(None, syncer("one", app="a"))
    changes.syncer(None, syncer("two", app="b"))
    assert changes.service(service("x", app="a"), service("x", app="b")) == [("team", "one"), ("team", "two")]


def test_a_syncer_that_selects_elsewhere_is_left_in_peace() -> None:
    """After a syncer's selector changed or the syncer was deleted, the formerly selected Service triggers
    no reconcile.
    """
    changes = SourceChanges()
    changes.syncer(None, syncer())
    changes.syncer(syncer(), syncer(app="other"))
    assert changes.service(None, service("rating")) == []
    assert changes.service(None, service("other")) == [("team", "rating")]
    changes.syncer(syncer(app="other"), None)
    assert changes.service(None, service("other")) == []
    assert [one["metadata"]["name"] for one in changes.changed] == ["other"], "others hear of it"


def test_labels_select_too() -> None:
    """A Service triggers a syncer with ``matchLabels`` if it has, or had, all of those labels."""
    changes = SourceChanges()
    selecting: Object = {
        "metadata": {"namespace": "team", "name": "one", "uid": "u"},
        "spec": {
            "mode": "pod",
            "application": "x",
            "selector": {"matchLabels": {"tier": "web", "team": "a"}},
        },
    }
    changes.syncer(None, selecting)

    def labelled(**labels: str) -> Object:
        return {"metadata": {"namespace": "team", "name": "s", "labels": labels}}

    assert changes.service(None, labelled(tier="web")) == []
    assert changes.service(labelled(tier="web"), labelled(tier="web", team="a")) == [("team", "one")]
    assert changes.service(labelled(tier="web", team="a"), labelled(team="a")) == [("team", "one")]
    assert changes.service(labelled(team="a"), labelled(team="a", tier="db")) == []


def test_a_syncer_that_cannot_be_read_selects_nothing() -> None:
    """A syncer with an invalid spec is reconciled, so that its status gives the reason; no Service
    triggers it.
    """
    changes = SourceChanges()
    broken: Object = {"metadata": {"namespace": "team", "name": "x", "uid": "u"}, "spec": {"mode": "pod"}}
    assert changes.syncer(None, broken) == [("team", "x")]
    assert changes.service(None, service("x")) == []


class Counting(dict[str, Any]):
    """A dictionary that counts the reads of its items."""

    looks = 0

    def __getitem__(self, key: str) -> Any:
        Counting.looks += 1
        return super().__getitem__(key)


def test_a_look_costs_its_own_services_only() -> None:
    """A selection reads no Service or slice of other applications, however many the namespace has."""
    index = ServiceIndex()
    for number in range(200):
        name = f"other-{number}"
        index.update_service(None, Counting(service(name)))
        index.update_slice(
            None,
            Counting(
                metadata={
                    "namespace": "team",
                    "name": f"{name}-x",
                    "labels": {"kubernetes.io/service-name": name},
                }
            ),
        )
    own = service("rating")
    own_slice = {
        "metadata": {
            "namespace": "team",
            "name": "rating-x",
            "labels": {"kubernetes.io/service-name": "rating"},
        }
    }
    index.update_service(None, own)
    index.update_slice(None, own_slice)
    Counting.looks = 0
    assert index.services_and_slices(Selector("team", "rating")) == ([own], [own_slice])
    assert index.services_and_slices(Selector("elsewhere", "rating")) == ([], [])
    assert Counting.looks == 0
    index.update_slice(own_slice, None)
    index.update_service(own, None)
    assert index.services_and_slices(Selector("team", "rating")) == ([], [])


class Watched:
    """A reflector that only records whether it runs and whether its first list is complete."""

    def __init__(self, on_synced: Callable[[], None]) -> None:
        self.on_synced = on_synced
        self.is_synced = self.is_running = self.is_denied_after_list = False
        self.failure = None

    def start(self) -> None:
        """Record that the reflector runs."""
        self.is_running = True

    def stop(self) -> None:
        """Record that the reflector has ended."""
        self.is_running = False

    def sync(self) -> None:
        """Complete the first list, and report it."""
        self.is_synced = True
        self.on_synced()


def test_what_is_needed_on_demand_is_watched_only_then() -> None:
    """The first syncer that needs a namespace's pods starts their watch; the watch ends with the last one."""
    made: dict[str | None, Watched] = {}
    concerned: list[tuple[str, str]] = []

    def make(scope: str | None, on_synced: Callable[[], None]) -> Any:
        made[scope] = Watched(on_synced)
        return made[scope]

    pods = OnDemandWatches(make, concerned.append)
    one, two = ("team", "one"), ("team", "two")
    pods.set_needed_scopes(one, set())
    assert made == {}
    pods.set_needed_scopes(one, {"shop"})
    pods.set_needed_scopes(two, {"shop"})
    first = made["shop"]
    assert (first.is_running, pods.reflector("shop"), concerned) == (True, None, [])
    first.sync()
    assert sorted(concerned) == [one, two]
    assert id(pods.reflector("shop")) == id(first)
    first.is_denied_after_list = True
    assert pods.reflector("shop") is None, "an old copy"
    first.is_denied_after_list = False
    pods.set_needed_scopes(one, {"mall"})
    assert (first.is_running, made["mall"].is_running, pods.users_of("shop")) == (True, True, {two})
    pods.set_needed_scopes(two, set())
    assert (first.is_running, pods.reflector("shop")) == (False, None)
    pods.set_needed_scopes(two, {"shop"})
    assert made["shop"] is not first
    pods.stop()
    assert not any(reflector.is_running for reflector in made.values())


def test_of_pods_and_nodes_little_is_kept() -> None:
    """A pod's labels are kept, and a node's addresses, condition Ready, and marks that it is about to go."""
    pod = {"metadata": {"namespace": "shop", "name": "a", "labels": {"v": "1"}, "annotations": {"x": "y"}}}
    assert trim_pod_to_labels(pod) == {"metadata": {"namespace": "shop", "name": "a"}, "labels": {"v": "1"}}
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": "now"}
    node = {
        "metadata": {"name": "n", "labels": {}},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "10.64.0.1"}],
            "conditions": [ready, {"type": "DiskPressure", "status": "False"}],
            "images": [{}],
        },
    }
    assert trim_node(node) == {
        "metadata": {"name": "n"},
        "spec": {"taints": []},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "10.64.0.1"}],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    drained = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": "now"}
    excluded = {"node.kubernetes.io/exclude-from-external-load-balancers": ""}
    node["metadata"] = {"name": "n", "deletionTimestamp": "now", "labels": {"type": "gpu", **excluded}}
    node["spec"] = {"unschedulable": True, "taints": [drained, {"key": "gpu", "effect": "NoSchedule"}]}
    kept = trim_node(node)
    assert kept["metadata"] == {"name": "n", "deletionTimestamp": "now", "labels": excluded}
    assert kept["spec"] == {"unschedulable": True, "taints": [{"key": drained["key"]}]}


class TwoNamespaces(KubeAccess):
    """An API server without objects that denies lists in the namespace ``closed``, except of syncers."""

    def __init__(self) -> None:
        super().__init__(client.Configuration(host="http://127.0.0.1:1"))
        self.is_open = False
        self.ended = threading.Event()

    def request(self, method: str, path: str, *_: Any, **__: Any) -> Object:
        """Return an empty list, or raise 403."""
        if "/closed/" in path and not self.is_open and "eurekasyncers" not in path:
            raise KubernetesError(f"{method} {path}: forbidden", status_code=403)
        return {"metadata": {"resourceVersion": "1"}, "items": []}

    def watch(self, *_: Any, **__: Any) -> Iterator[Object]:
        """Report no change."""
        self.ended.wait(60)
        yield from ()


def test_a_namespace_that_may_not_be_read_stops_no_other() -> None:
    """The namespace is named with the reason, its syncers are in doubt, and it is read as soon as that is
    allowed.
    """
    access = TwoNamespaces()
    sources = ClusterCache(access, CLUSTER, ("open", "closed"), lambda _: None)

    def reasons(namespace: str) -> list[tuple[str, bool]]:
        wanted = Syncer(namespace, "x", Mode.POD, Selector(namespace, "rating"), "rating")
        desired = sources.desired(wanted)
        return [(problem.reason, desired.may_be_incomplete) for problem in desired.problems]

    assert not sources.is_synced_or_forbidden
    sources.start()
    try:
        wait_until(lambda: sources.is_synced_or_forbidden, "all but one namespace", 20)
        assert not sources.is_synced
        assert set(sources.unread_namespaces()) == {"closed"}
        assert "forbidden" in sources.unread_namespaces()["closed"]
        assert sources.knows_syncers_of("closed")
        assert reasons("open") == [("NoMatchingService", False)]
        assert reasons("closed") == [("NamespaceNotRead", True)]
        assert sources.is_current  # as far as we may know
        access.is_open = True
        sources.retry_now()
        wait_until(lambda: sources.is_synced, "the other one", 20)
        assert reasons("closed") == [("NoMatchingService", False)]
    finally:
        sources.stop()
        access.ended.set()


class Denying(TwoNamespaces):
    """The same API server, which ends each watch at once, and also denies what it refuses to list."""

    def watch(self, path: str, *_: Any, **__: Any) -> Iterator[Object]:
        """Report no change, or raise 403."""
        self.request("GET", path)
        time.sleep(0.01)
        yield from ()


def test_what_may_not_be_read_any_more_is_kept_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The syncers whose copy grows old are reconciled, and are in doubt, once a denial has lasted."""
    monkeypatch.setattr(reflector, "DENIAL_SETTLE_SECONDS", 0.3)
    monkeypatch.setattr(reflector, "LONGEST_RETRY_DELAY_SECONDS", 0.05)
    access, later = Denying(), list[tuple[tuple[str, str], float]]()
    access.is_open = True
    sources = ClusterCache(
        access,
        CLUSTER,
        ("open", "closed"),
        lambda _: None,
        enqueue_later=lambda key, seconds: later.append((key, seconds)),
    )
    for namespace in ("open", "closed"):
        sources.syncers.reflectors[namespace == "closed"].apply_event(
            "ADDED", {**syncer(), "metadata": {"namespace": namespace, "name": "rating", "uid": "u"}}
        )

    def reasons(namespace: str) -> list[tuple[str, bool]]:
        wanted = Syncer(namespace, "rating", Mode.POD, Selector(namespace, "rating"), "rating")
        desired = sources.desired(wanted)
        return [(problem.reason, desired.may_be_incomplete) for problem in desired.problems]

    known = [("NoMatchingService", False)]
    (slices,) = [one for one in sources.slices.reflectors if one.namespace == "closed"]
    for group in (sources.services, sources.slices):
        group.start()
    try:
        wait_until(lambda: sources.services.is_synced and sources.slices.is_synced, "the first lists", 20)
        access.is_open = False
        wait_until(lambda: later and slices.failure is not None, "the denial", 20)
        assert set(later) == {(("closed", "rating"), DENIAL_SETTLE_SECONDS)}
        assert (reasons("open"), reasons("closed")) == (known, known), "it may pass, as at a server's start"
        doubt = [("NamespaceNotRead", True), ("NoMatchingService", True)]
        wait_until(lambda: reasons("closed") == doubt, "the doubt", 20)
        with pytest.raises(KubernetesError, match=r"closed have not been read \(.*forbidden"):
            sources.select_services(Selector("closed", "rating"))
        assert reasons("open") == known
        access.is_open = True
        wait_until(lambda: reasons("closed") == known, "its end", 20)
    finally:
        sources.stop()
        access.ended.set()


def test_a_cluster_that_may_not_be_read_is_no_single_namespace() -> None:
    """If every list is denied the sources are not settled: a new replica must not replace one that works."""
    access = TwoNamespaces()
    sources = ClusterCache(access, CLUSTER, (), lambda _: None)
    for group in (sources.syncers, sources.services, sources.slices):
        group.reflectors[0].failure = KubernetesError("forbidden", status_code=403)
    assert not sources.is_synced_or_forbidden
    assert not sources.knows_syncers_of("open")


def test_only_what_syncers_select_counts_as_wanted() -> None:
    """The count of wanted instances, by which the operator chooses batches, leaves out endpoints that no
    syncer selects.
    """
    operator = RunningOperator()
    operator.syncer("rating")
    operator.syncer("order", spec={"mode": "service", "selector": {"app": "order"}, "eureka": "other"})
    operator.syncer("gone", metadata={"namespace": "shop", "name": "gone", "deletionTimestamp": "now"})
    operator.syncer("odd", spec={"mode": "pod"})
    (services,) = operator.sources.services.reflectors
    (slices,) = operator.sources.slices.reflectors
    for name, count in {"rating": 3, "order": 4, "foreign": 900, "gone": 5}.items():
        services.apply_event("ADDED", service(name, namespace="shop"))
        metadata = {"namespace": "shop", "name": name, "labels": {"kubernetes.io/service-name": name}}
        endpoints = [{"addresses": [f"10.0.0.{number}"]} for number in range(count)]
        slices.apply_event("ADDED", {"metadata": metadata, "endpoints": endpoints})
    assert operator.sources.estimate_wanted_by_eureka() == {"default": 3, "other": 1}
    assert sorted(operator.sources.syncers_at_eureka_or_being_deleted("other")) == [
        ("shop", "gone"),
        ("shop", "order"),
    ]
    assert sorted(operator.sources.syncers_at_eureka_or_being_deleted("default")) == [
        ("shop", "gone"),
        ("shop", "odd"),
        ("shop", "rating"),
    ]


@pytest.mark.parametrize("pod", ["rating-1", "rating.1", "10.0.0.1", "2001:db8::1"])
def test_what_terminates_is_looked_up_by_what_the_id_says(pod: str) -> None:
    """An instance's id yields namespace and pod, or address, also if they contain dots or colons."""
    sources = SourceChanges().sources
    (slices,) = sources.slices.reflectors
    target = {"kind": "Pod", "name": pod} if "rating" in pod else None
    leaves = {"addresses": ["10.0.0.1" if target else pod], "conditions": {"terminating": True}}
    metadata = {"namespace": "shop", "name": "s", "labels": {"kubernetes.io/service-name": "rating"}}
    endpoints = [{**leaves, "targetRef": target} if target else leaves]
    slices.apply_event(
        "ADDED", {"metadata": metadata, "addressType": "IPv4", "ports": [], "endpoints": endpoints}
    )
    seen = [
        sources.was_instance_seen_terminating(pod_instance_id(pod, namespace, CLUSTER.name, "rating", 8080))
        for namespace in ("shop", "other")
    ]
    assert seen == [True, False]


def pod_on_host(address: str, host: str) -> Object:
    """Return a pod with the host port 30080, as the API sends it."""
    ports = [{"containerPort": 8080, "hostPort": 30080}]
    status = {"podIP": address, "hostIP": host}
    return {
        "metadata": {"namespace": "shop", "name": "rating-0", "resourceVersion": "2"},
        "spec": {"containers": [{"ports": ports}]},
        "status": status,
    }


WHOLE, METADATA = "whole", "metadata"


class PodRequests:
    """The connections to an API server without objects, which records the requests for pods.

    :ivar asked: the namespaces whose pods were listed or watched, each with the part of a pod that was
        accepted.
    :ivar watched: those whose pods are watched now.
    """

    def __init__(self) -> None:
        self.asked: set[tuple[str, str]] = set()
        self.watched: list[tuple[str, str]] = []
        self.ended = threading.Event()

    def request(
        self, _method: str, url: str, *, headers: dict[str, str], preload_content: bool, **_: object
    ) -> PodAnswer:
        """Answer with an empty list, or with a watch that lasts."""
        parts = urlsplit(url).path.split("/")
        part = METADATA if "PartialObjectMetadata" in headers["Accept"] else WHOLE
        place = (parts[parts.index("namespaces") + 1] if "namespaces" in parts else "", part)
        answer = PodAnswer(self, place if parts[-1] == "pods" else None)
        if answer.place is not None:
            self.asked.add(answer.place)
            if not preload_content:
                self.watched.append(answer.place)
        return answer


@dataclass
class PodAnswer:
    """The answer to a list or a watch; ``place`` is None for other kinds than pods."""

    server: PodRequests
    place: tuple[str, str] | None
    status = 200
    data = b'{"metadata": {"resourceVersion": "1"}, "items": []}'

    def stream(self, *_: object, **__: object) -> Iterator[bytes]:
        """Yield bookmarks, after each of which a reflector ends if it was stopped."""
        events = getattr(self.server, "events", [])
        while not self.server.ended.wait(0.01):
            while events and self.place is not None:
                yield events.pop(0)
            yield b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "1"}}}\n'

    def close(self) -> None:
        """End the watch."""
        if self.place is not None:
            self.server.watched.remove(self.place)


@pytest.mark.parametrize(
    ("spec", "gate_namespaces", "watched"),
    [
        ({}, (), set()),
        ({}, ("a",), {("a", WHOLE)}),
        ({"metadataFromPodLabels": ["team"]}, (), {("shop", METADATA)}),
        ({"advertise": "HostPort"}, (), {("shop", WHOLE)}),
        ({"mode": "service"}, ("a", "b"), {("a", WHOLE), ("b", WHOLE)}),
    ],
)
def test_whole_pods_are_read_only_where_they_are_needed(
    spec: Object, gate_namespaces: tuple[str, ...], watched: set[tuple[str, str]]
) -> None:
    """Whole pods are read for gates in their namespaces, and for host ports in the syncer's target namespace,
    until the syncer goes; for pods' labels only metadata are read.
    """
    api = PodRequests()
    pool: Any = api
    configuration = client.Configuration(host="http://127.0.0.1:1")
    access = KubeAccess(configuration, pool=pool)
    sources = ClusterCache(access, CLUSTER, (), lambda _: None, gate_namespaces=gate_namespaces)
    sources.start()
    try:
        wait_until(lambda: sources.is_synced, "the first lists", 20)
        (syncers,) = sources.syncers.reflectors
        item = syncer(namespace="shop")
        syncers.apply_event("ADDED", {**item, "spec": {**item["spec"], **spec}})
        last = syncer("last", namespace="last")
        syncers.apply_event("ADDED", {**last, "spec": {**last["spec"], "metadataFromPodLabels": ["team"]}})
        expected = {*watched, ("last", METADATA)}
        wait_until(lambda: set(api.watched) == expected, "the watches of pods", 20)
        syncers.apply_event("DELETED", item)
        of_gates = {(namespace, WHOLE) for namespace in gate_namespaces}
        wait_until(lambda: set(api.watched) == {*of_gates, ("last", METADATA)}, "the end of a watch", 20)
        assert api.asked == expected
    finally:
        sources.stop()
        api.ended.set()


class PodsOfHosts(PodRequests):
    """The connections to an API server that lists and watches pods with host ports.

    :ivar listed: the pods in the list; ``single`` those that a read by name finds, None for no answer.
    :ivar events: watch events that are still to come.
    :ivar reads: the number of reads by name.
    """

    def __init__(self, listed: Sequence[Object] = (), single: Sequence[Object] | None = ()) -> None:
        super().__init__()
        self.listed, self.single = listed, single
        self.events: list[bytes] = []
        self.reads = 0

    def request(
        self, _method: str, url: str, *, headers: dict[str, str], preload_content: bool, **more: object
    ) -> PodAnswer:
        """Answer as another server does, with the pods."""
        answer = super().request(_method, url, headers=headers, preload_content=preload_content, **more)
        if answer.place is not None and preload_content:
            found: Sequence[Object] | None = self.listed
            if "fieldSelector" in url:
                self.reads += 1
                found = self.single
            if found is None:
                answer.status, answer.data = 500, b"{}"
            else:
                listing = {"metadata": {"resourceVersion": "1"}, "items": list(found)}
                answer.data = json.dumps(listing).encode()
        return answer


@contextmanager
def on_hosts(api: PodsOfHosts, concerned: Callable[[tuple[str, str]], None]) -> Iterator[ClusterCache]:
    """Watch a syncer for each of two Services that registers host ports, and a pod of the first Service."""
    pool: Any = api
    configuration = client.Configuration(host="http://127.0.0.1:1")
    sources = ClusterCache(KubeAccess(configuration, pool=pool), CLUSTER, (), concerned)
    sources.start()
    try:
        wait_until(lambda: sources.is_synced, "the first lists", 20)
        for number, name in enumerate(("rating", "order"), 1):
            for group, item in (
                (sources.syncers, syncer(name, app=name, namespace="shop")),
                (sources.services, service(name, namespace="shop")),
                (sources.slices, slice_of_pod(name, f"10.0.0.{number}")),
            ):
                (reflector,) = group.reflectors
                more = {"spec": {**item["spec"], "advertise": "HostPort"}} if group is sources.syncers else {}
                reflector.apply_event("ADDED", {**item, **more})
        wait_until(lambda: sources.is_synced, "the list of pods", 20)
        yield sources
    finally:
        sources.stop()
        api.ended.set()


def slice_of_pod(service_name: str, address: str) -> Object:
    """Return the EndpointSlice of a Service's one pod."""
    target = {"kind": "Pod", "name": f"{service_name}-0"}
    return {
        "metadata": {
            "namespace": "shop",
            "name": service_name,
            "labels": {"kubernetes.io/service-name": service_name},
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}, "targetRef": target}],
    }


def is_quiet(concerned: list[tuple[str, str]]) -> bool:
    """Return whether nothing is added to a list for a moment."""
    before = len(concerned)
    time.sleep(0.2)
    return len(concerned) == before


OURS = pod_on_host("10.0.0.1", "192.0.2.1")
BEFORE = pod_on_host("10.0.0.9", "192.0.2.9")


@pytest.mark.parametrize(
    ("listed", "single", "expected", "reads"),
    [
        ([OURS], [], ["192.0.2.1"], 0),
        ([BEFORE], [OURS], ["192.0.2.1"], 1),
        ([], [OURS], ["192.0.2.1"], 1),
        ([], [BEFORE], [], 1),
        ([], [], [], 1),
        ([], None, [], 1),
    ],
    ids=["watched", "an older pod is watched", "not watched yet", "another pod", "gone", "no answer"],
)
def test_a_pod_that_the_watch_lacks_is_asked_for(
    listed: list[Object], single: list[Object] | None, expected: list[str], reads: int
) -> None:
    """The operator asks the API server once for a pod with a host port that its watch has not brought yet."""
    with on_hosts(api := PodsOfHosts(listed, single), lambda _: None) as sources:
        asking = sources.parse_spec_or_none(sources.syncers.get("team", "rating"))
        assert asking is not None
        desired = sources.desired(asking)
    assert [one.ip_address for one in desired.instances] == expected
    assert desired.has_unread_pods is not bool(expected)
    assert api.reads == reads


def test_a_pod_concerns_the_syncers_whose_slices_list_it() -> None:
    """A pod's host ports concern the syncers of the Services that list the pod, and no other ones of its
    namespace; a pod that no Service lists concerns none.
    """
    concerned: list[tuple[str, str]] = []
    with on_hosts(api := PodsOfHosts(), concerned.append):
        wait_until(lambda: is_quiet(concerned), "the first lists to be told", 20)
        concerned.clear()
        job = {**BEFORE, "metadata": {**BEFORE["metadata"], "name": "job-1"}}
        unchanged = {**OURS, "metadata": {**OURS["metadata"], "labels": {"a": "b"}}}
        for kind, pod in (("ADDED", job), ("ADDED", OURS), ("MODIFIED", unchanged), ("DELETED", OURS)):
            api.events.append(json.dumps({"type": kind, "object": pod}).encode() + b"\n")
        wait_until(lambda: bool(concerned) and not api.events, "the events", 20)
    assert concerned == [("team", "rating")]


class FailingRoutes(PodRequests):
    """The connections to an API server that, once told to, fails to list and watch Ingresses."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = False

    def request(
        self, _method: str, url: str, *, headers: dict[str, str], preload_content: bool, **more: object
    ) -> PodAnswer:
        """Answer as another server does, with an error for Ingresses."""
        answer = super().request(_method, url, headers=headers, preload_content=preload_content, **more)
        if urlsplit(url).path.endswith("/ingresses"):
            answer.stream = self.watch_routes  # type: ignore[method-assign]
            if self.fails:
                answer.status, answer.data = 500, b"{}"
        return answer

    def watch_routes(self, *_: object, **__: object) -> Iterator[bytes]:
        """Yield bookmarks until the server fails."""
        while not (self.fails or self.ended.wait(0.01)):
            yield b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "1"}}}\n'


def test_a_list_of_routes_that_fails_keeps_no_replica_from_leading() -> None:
    """A replica may lead while the list of Ingresses fails; the syncers that need it take no old copy."""
    api = FailingRoutes()
    pool: Any = api
    configuration = client.Configuration(host="http://127.0.0.1:1")
    allowed = (Advertise.INGRESS,)
    sources = ClusterCache(
        KubeAccess(configuration, pool=pool), CLUSTER, (), lambda _: None, advertise_from=allowed
    )
    sources.start()
    try:
        wait_until(lambda: sources.is_synced, "the first lists", 20)
        (syncers,) = sources.syncers.reflectors
        item = syncer(namespace="shop")
        spec = {**item["spec"], "mode": "service", "advertise": "Ingress"}
        syncers.apply_event("ADDED", {**item, "spec": spec})
        (services,) = sources.services.reflectors
        services.apply_event("ADDED", service("rating", namespace="shop"))
        wait_until(lambda: sources.is_synced, "the list of Ingresses", 20)
        asking = sources.parse_spec_or_none(sources.syncers.get("team", "rating"))
        assert asking is not None
        wait_until(lambda: not sources.desired(asking).has_unread_objects, "the Ingresses", 20)
        api.fails = True
        wait_until(lambda: "ingresses" in sources.failures, "the failure", 20)
        sources.retry_now()
        wait_until(lambda: sources.is_current, "the right to lead", 20)
        assert sources.desired(asking).has_unread_objects
    finally:
        sources.stop()
        api.ended.set()
