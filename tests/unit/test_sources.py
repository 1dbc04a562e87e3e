"""What is kept of the cluster's objects, and which syncers a change concerns."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kubernetes import client

from eurekube_provider.core.mapping import Cluster, Mode, Syncer, desired_instances
from eurekube_provider.kube.access import KubeAccess
from eurekube_provider.operator.sources import Sources, trim_service, trim_slice, trim_syncer
from tests.unit import strategies

Object = dict[str, Any]

_names = st.sampled_from(["rating", "order"])


@given(st.sampled_from(Mode), strategies.services(_names), strategies.slices(_names))
def test_what_is_left_out_means_nothing(mode: Mode, services: list[Object], slices: list[Object]) -> None:
    """The mapping finds the same in the kept fields as in the whole objects, and trimming twice is once."""
    syncer, cluster = Syncer("shop", "x", mode, "shop", "rating"), Cluster("eks", "uid")
    kept_services, kept_slices = [trim_service(one) for one in services], [trim_slice(one) for one in slices]
    assert desired_instances(syncer, kept_services, kept_slices, cluster) == desired_instances(
        syncer, services, slices, cluster
    )
    assert [trim_service(one) for one in kept_services] == kept_services
    assert [trim_slice(one) for one in kept_slices] == kept_slices


def test_field_managers_are_left_out() -> None:
    """A syncer is kept whole, but for the list of who wrote which field."""
    syncer: Object = {"metadata": {"name": "a", "managedFields": [{}], "uid": "u"}, "spec": {"mode": "pod"}}
    assert trim_syncer(syncer) == {"metadata": {"name": "a", "uid": "u"}, "spec": {"mode": "pod"}}


class Told:
    """Sources that are fed by hand, and whom they told."""

    def __init__(self) -> None:
        self.concerned: list[tuple[str, str]] = []
        self.changed: list[tuple[str, str]] = []
        access = KubeAccess(client.ApiClient(client.Configuration(host="http://127.0.0.1:1")))
        self.sources = Sources(access, (), self.concerned.append, self.changed.append)

    def syncer(self, old: Object | None, new: Object | None) -> list[tuple[str, str]]:
        """Whom a change of a syncer concerns."""
        return self._after(lambda: self.sources._syncer_changed(old, new))

    def service(self, old: Object | None, new: Object | None) -> list[tuple[str, str]]:
        """Whom a change of a Service concerns."""
        return self._after(lambda: self.sources._service_changed(old, new))

    def _after(self, change: Any) -> list[tuple[str, str]]:
        self.concerned.clear()
        change()
        return sorted(self.concerned)


def syncer(
    name: str = "rating", app: str = "rating", namespace: str | None = None, **metadata: Any
) -> Object:
    """A syncer in ``team``."""
    selector = {"app": app, **({"namespace": namespace} if namespace else {})}
    return {
        "metadata": {"namespace": "team", "name": name, "uid": "u", **metadata},
        "spec": {"mode": "pod", "selector": selector},
    }


def service(name: str, app: str | None = None, namespace: str = "team") -> Object:
    """A Service."""
    return {"metadata": {"namespace": namespace, "name": name, "labels": {"app": app} if app else {}}}


def test_a_syncer_concerns_itself() -> None:
    """A new, changed or deleted syncer is looked at."""
    told = Told()
    key = ("team", "rating")
    assert told.syncer(None, syncer()) == [key]
    assert told.syncer(syncer(), syncer(app="other")) == [key]
    assert told.syncer(syncer(app="other"), syncer(app="other", deletionTimestamp="now")) == [key]
    assert told.syncer(syncer(app="other"), None) == [key]


def test_our_own_status_is_no_reason_to_look() -> None:
    """A change of status or version comes from ourselves."""
    told = Told()
    told.syncer(None, syncer())
    assert told.syncer(syncer(), {**syncer(resourceVersion="2"), "status": {"desired": 1}}) == []


def test_a_service_concerns_those_who_select_it() -> None:
    """By label or name, in the namespace that a syncer selects in."""
    told = Told()
    told.syncer(None, syncer("one"))
    told.syncer(None, syncer("two"))
    told.syncer(None, syncer("away", namespace="shop"))
    assert told.service(None, service("rating")) == [("team", "one"), ("team", "two")]
    assert told.service(None, service("x", app="rating", namespace="shop")) == [("team", "away")]
    assert told.service(None, service("rating", app="other")) == []


def test_a_relabelled_service_concerns_both_sides() -> None:
    """A Service that changes its label leaves one syncer and comes to another."""
    told = Told()
    told.syncer(None, syncer("one", app="a"))
    told.syncer(None, syncer("two", app="b"))
    assert told.service(service("x", app="a"), service("x", app="b")) == [("team", "one"), ("team", "two")]


def test_a_syncer_that_selects_elsewhere_is_left_in_peace() -> None:
    """After its selector changed, or it was deleted, the old Service concerns it no more."""
    told = Told()
    told.syncer(None, syncer())
    told.syncer(syncer(), syncer(app="other"))
    assert told.service(None, service("rating")) == []
    assert told.service(None, service("other")) == [("team", "rating")]
    told.syncer(syncer(app="other"), None)
    assert told.service(None, service("other")) == []
    assert told.changed == [("team", "rating"), ("team", "other"), ("team", "other")]
