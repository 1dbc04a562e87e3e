"""Registrations that pods made themselves: how the operator recognizes them, and removes those of dead
pods.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from eurekube_provider.core.decision import BLOCKED_RECHECK_SECONDS
from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.core.objects import MIRROR_SLICE_MANAGER, SLICE_MANAGED_BY_LABEL
from eurekube_provider.core.plan import Action
from eurekube_provider.core.self_registered import to_status_entries
from eurekube_provider.kube.access import KubeAccess
from eurekube_provider.operator import pod_registrations
from eurekube_provider.operator.pod_registrations import ABANDONED_AFTER_SECONDS, MOST_SINGLE_POD_READS
from tests.unit.operator.scene import KEY, READY, WEB
from tests.unit.operator.test_permission import REPORTED, stranger, with_stranger


class Pods:
    """An API server with the pods and EndpointSlices that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pods: list[dict[str, Any]] = []
        self.slices: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.fails = ""
        self.status_code: int | None = 403
        monkeypatch.setattr(KubeAccess, "get", lambda _, path, query: self._get(path, query))
        monkeypatch.setattr(KubeAccess, "pages", lambda _, path, **__: self._pages(path))

    def add(self, name: str, *addresses: str, **more: Any) -> None:
        """Add a running pod with these addresses."""
        spec, status = more.pop("spec", {}), more.pop("status", {})
        status = {"podIP": addresses[0], "podIPs": [{"ip": one} for one in addresses], **status}
        self.pods.append({"metadata": {"namespace": "shop", "name": name}, "spec": spec, "status": status})

    def _get(self, path: str, query: dict[str, str]) -> dict[str, Any]:
        field, _, value = query["fieldSelector"].partition("=")
        self._ask(f"{path}?{value}")
        if "," in value:  # which begins another selector
            raise KubernetesError("unable to parse requirement", status_code=400)
        if field == "metadata.name":
            return {"items": [one for one in self.pods if one["metadata"]["name"] == value]}
        return {"items": [one for one in self.pods if one["status"]["podIP"] == value]}

    def _pages(self, path: str) -> Iterator[dict[str, Any]]:
        self._ask(path)
        yield {"items": self.slices if path.endswith("endpointslices") else self.pods}

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if self.fails and self.fails in what:
            raise KubernetesError("forbidden", status_code=self.status_code)


@pytest.fixture
def pods(monkeypatch: pytest.MonkeyPatch) -> Pods:
    """Return an API server without pods."""
    return Pods(monkeypatch)


def itself(address: str = "10.0.0.1", port: int = 9090, **fields: Any) -> Instance:
    """Return the registration that a pod's own Eureka client made."""
    made = Instance("rating", "own", "host", address, Port(port), last_dirty_timestamp_ms=1)
    return replace(made, lease_ends_ms=100_000, **fields)


@pytest.mark.parametrize(
    ("spec", "addresses", "fails", "is_twin"),
    [
        ({}, ("10.0.0.1",), "", True),
        ({}, ("fd00::1", "10.0.0.1"), "", True),
        ({"hostNetwork": True}, ("10.0.0.1",), "", False),
        ({}, ("10.0.0.9",), "", False),
        ({}, ("10.0.0.1",), "pods", False),
        ({}, (), "", False),
    ],
    ids=["its own", "its second", "its node's", "another pod's", "not asked", "not there"],
)
def test_another_port_of_a_pods_own_address(
    spec: dict[str, Any], addresses: tuple[str, ...], fails: str, is_twin: bool, pods: Pods
) -> None:
    """SelfRegistered is reported if one read of the pod shows that the address is its own; both registrations
    stay, since callers may need either port.
    """
    if addresses:
        pods.add("a", *addresses, spec=spec)
    pods.fails = fails
    scene = with_stranger(itself())
    assert [one.action for one in scene.reconcile()] == [Action.REGISTER]
    scene.reconcile()
    assert ("SelfRegistered" in scene.report.problems) is is_twin
    assert (REPORTED in scene.report.problems) is not is_twin
    assert len(pods.asked) == 1
    if is_twin:
        assert "RATING own at 10.0.0.1:9090" in scene.report.problems["SelfRegistered"].text
        scene.endpoints(WEB)
        scene.reconcile()
        scene.endpoints(WEB, a=READY)
        scene.reconcile()
        assert pods.asked.count("/api/v1/namespaces/shop/pods?a") >= 2, "the next pod is asked for again"


def test_many_pods_are_asked_for_together(pods: Pods) -> None:
    """The operator reads one list of pods instead of sending a request for each."""
    names = [f"p{number}" for number in range(1, MOST_SINGLE_POD_READS + 3)]
    for number, name in enumerate(names, 1):
        pods.add(name, f"10.0.0.{number}")
    own = [replace(itself(f"10.0.0.{number}"), instance_id=name) for number, name in enumerate(names, 1)]
    scene = with_stranger(*own)
    scene.endpoints(WEB, **dict.fromkeys(names, READY))
    assert [one.action for one in scene.reconcile()] == [Action.REGISTER] * len(names)
    assert pods.asked == ["/api/v1/namespaces/shop/pods"]


def test_a_dead_pods_registration_at_a_reused_address(pods: Pods) -> None:
    """Self-preservation keeps a dead pod's registration UP; the next pod at its address is registered, too,
    and
    SelfRegistered is reported.
    """
    pods.add("a", "10.0.0.1")
    scene = with_stranger(replace(itself(port=9999), instance_id="old:rating:9999", host_name="old"))
    assert [one.action for one in scene.reconcile()] == [Action.REGISTER]
    assert scene.ready()[0] is True
    assert "RATING old:rating:9999 at 10.0.0.1:9999" in scene.report.problems["SelfRegistered"].text
    assert scene.reconcile() == []


def test_a_registration_at_loopback_keeps_nobody_from_the_pod(pods: Pods) -> None:
    """A pod that registered itself at 127.0.0.1 is reported, and registered by the syncer, since callers
    cannot reach it otherwise.
    """
    scene = with_stranger(replace(itself("127.0.0.1"), host_name="a"))
    assert [one.action for one in scene.reconcile()] == [Action.REGISTER]
    assert "RATING own at 127.0.0.1:9090" in scene.report.problems["SelfRegistered"].text
    assert pods.asked == []


class Dead:
    """A pod that registered itself and was killed; its registration stays at a server."""

    def __init__(self, pods: Pods, monkeypatch: pytest.MonkeyPatch, own: Instance, **spec: Any) -> None:
        self.now = 1000.0
        monkeypatch.setattr(pod_registrations, "boot_clock_seconds", lambda: self.now)
        self.pods = pods
        self.scene = scene = with_stranger(own, **spec)
        self.eureka = scene.real()
        self.own = self.eureka.held[own.key] = own
        scene.endpoints(WEB, b=READY, a=READY)
        scene.reconcile()
        assert "SelfRegistered" in scene.report.problems
        scene.edited(status={"selfRegistered": to_status_entries(scene.report.self_registered or ())})
        scene.endpoints(WEB, b=READY)

    def passes(self, seconds: float = ABANDONED_AFTER_SECONDS) -> bool:
        """Reconcile, and again after these seconds; return True if the dead pod's registration is still
        there.
        """
        self.scene.reconcile()
        self.now += seconds
        self.scene.reconcile()
        return self.own.key in self.eureka.held

    @property
    def sentence(self) -> str:
        """The text of DeadSelfRegistered in the last report."""
        return self.scene.report.problems["DeadSelfRegistered"].text


OPT_IN: dict[str, Any] = {"removeDeadSelfRegistered": True}


def dead(pods: Pods, monkeypatch: pytest.MonkeyPatch, own: Instance | None = None, **spec: Any) -> Dead:
    """Return a killed pod whose own registration is left."""
    return Dead(pods, monkeypatch, own or itself("10.0.0.2", 8080), **spec)


def test_what_a_dead_pod_registered_is_named_and_left(pods: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ``spec.removeDeadSelfRegistered`` the registration stays, and the syncer is reconciled again
    later.
    """
    found = dead(pods, monkeypatch)
    assert found.passes()
    assert "RATING own at 10.0.0.2 of pod a registered itself, and is an endpoint no more" in found.sentence
    assert "set spec.removeDeadSelfRegistered to true" in found.sentence
    assert found.scene.report.synced.reason == "DeadSelfRegistered"
    assert found.scene.result.requeue_after_seconds == BLOCKED_RECHECK_SECONDS
    assert REPORTED not in found.scene.report.problems


def test_what_a_dead_pod_registered_is_removed(pods: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``spec.removeDeadSelfRegistered`` a dead pod's registration is removed if no pod or
    EndpointSlice has its address.
    """
    found = dead(pods, monkeypatch, **OPT_IN)
    pods.add("b", "10.0.0.1", status={"hostIP": "192.0.2.1"})
    assert not found.passes()
    assert {"/api/v1/pods", "/apis/discovery.k8s.io/v1/endpointslices"} <= set(pods.asked)
    assert found.eureka.held.keys() == {("RATING", "b.shop.lab:rating:8080")}
    found.scene.reconcile()
    assert "DeadSelfRegistered" not in found.scene.report.problems
    assert found.scene.report.self_registered == ()


def test_an_address_that_is_none_stops_no_removal(pods: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a registration whose address is any text the API server is not asked by that text."""
    found = dead(pods, monkeypatch, replace(itself("here,there", 8080), host_name="a"), **OPT_IN)
    assert not found.passes()


def test_a_pod_that_died_is_known_to_the_next_operator(pods: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
    """The syncer's status names the registration; without that status a machine may own it, and it stays."""
    found = dead(pods, monkeypatch, **OPT_IN)
    found.scene.configure()
    assert not found.passes()
    found = dead(pods, monkeypatch, **OPT_IN)
    found.scene.edited(status={})
    assert found.passes()
    assert "DeadSelfRegistered" not in found.scene.report.problems


@pytest.mark.parametrize("status_code", [0, 403, None], ids=["answers", "refuses", "no answer"])
def test_no_event_asks_again(status_code: int | None, pods: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead pod causes requests to the API server and Eureka at long intervals, not whenever another pod
    becomes ready.
    """
    found = dead(pods, monkeypatch, **OPT_IN)
    pods.fails, pods.status_code = "" if status_code == 0 else "pods", status_code
    pods.asked.clear()
    found.scene.reconcile()
    before, asked = found.sentence, list(pods.asked)
    assert len(asked) == 1
    read = list[str]()
    usual = found.eureka.read

    def reads(application: str, instance_id: str) -> Instance | None:
        read.append(instance_id)
        return usual(application, instance_id)

    monkeypatch.setattr(found.eureka, "read", reads)
    found.scene.endpoints(WEB, d=READY)
    found.now += BLOCKED_RECHECK_SECONDS - 1
    assert Action.REGISTER in {one.action for one in found.scene.reconcile()}
    assert (found.sentence, pods.asked, "own" in read) == (before, asked, False)
    found.now += 1
    found.scene.reconcile()
    assert (len(pods.asked), "own" in read) == (2, True)


def test_who_gave_no_answer_is_not_asked_about_other_pods(
    pods: Pods, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a read without an answer the operator asks about no other pod: each request could hold a
    syncer up for 15 s.
    """
    found = dead(pods, monkeypatch)
    pods.fails, pods.status_code = "pods", None
    found.scene.reconcile()
    asked = list(pods.asked)
    found.scene.played.registry.table.store_written_and_return_previous(
        replace(itself("10.0.0.1"), instance_id="other")
    )
    found.scene.reconcile()
    assert pods.asked == asked
    assert "could not be asked for: forbidden" in found.sentence


DOUBTS = {
    "a pod has the address": "a pod or an EndpointSlice has its address",
    "a pod has it as its second": "a pod or an EndpointSlice has its address",
    "it is a node's": "a pod or an EndpointSlice has its address",
    "an EndpointSlice has it": "a pod or an EndpointSlice has its address",
    "the pods cannot be read": "could not be read: forbidden",
    "the EndpointSlices cannot be read": "could not be read: forbidden",
    "it was renewed": "once nobody has renewed it for a while",
    "it was registered again": "once nobody has renewed it for a while",
    "nobody says until when it lives": "once nobody has renewed it for a while",
    "no request can name it": "its id has a slash",
}


@pytest.mark.parametrize("doubt", DOUBTS)
def test_in_doubt_nothing_of_others_is_removed(
    doubt: str, pods: Pods, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dead pod's registration stays, and the message gives the reason for the doubt."""
    found = dead(pods, monkeypatch, **OPT_IN)
    slices = {"endpoints": [{"addresses": ["10.0.0.2"]}], "metadata": {"name": "s", "namespace": "other"}}
    if doubt == "a pod has the address":
        pods.add("c", "10.0.0.2")
    elif doubt == "a pod has it as its second":
        pods.add("c", "fd00::1", "10.0.0.2")
    elif doubt == "it is a node's":
        pods.add("c", "10.0.0.7", status={"hostIP": "10.0.0.2"})
    elif doubt == "an EndpointSlice has it":
        pods.slices = [slices]
    elif doubt == "the pods cannot be read":
        pods.fails = "/api/v1/pods"
    elif doubt == "the EndpointSlices cannot be read":
        pods.fails = "endpointslices"
    elif doubt == "no request can name it":
        odd = replace(found.own, unreadable="its id has a slash")
        found.scene.played.registry.table.store_read_instance(odd)
    elif doubt == "nobody says until when it lives":
        found.eureka.held[found.own.key] = replace(found.own, lease_ends_ms=None)
    found.scene.reconcile()
    if doubt == "it was renewed":
        found.eureka.held[found.own.key] = replace(found.own, lease_ends_ms=130_000)
    elif doubt == "it was registered again":
        found.eureka.held[found.own.key] = replace(found.own, last_dirty_timestamp_ms=2)
    found.now += ABANDONED_AFTER_SECONDS
    found.scene.reconcile()
    assert found.own.key in found.eureka.held
    assert DOUBTS[doubt] in found.sentence


def test_what_a_mirror_shows_proves_nothing(pods: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mirror's endpoint at the address does not prove that a pod lives, since it came from Eureka."""
    found = dead(pods, monkeypatch, **OPT_IN)
    labels = {SLICE_MANAGED_BY_LABEL: MIRROR_SLICE_MANAGER}
    metadata = {"name": "s", "namespace": "other", "labels": labels}
    pods.slices = [{"endpoints": [{"addresses": ["10.0.0.2"]}], "metadata": metadata}]
    assert not found.passes()


def test_what_is_renewed_at_the_last_moment_stays(pods: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every server is read before the removal; a renewed registration stays, and is reported as no
    Conflict.
    """
    found = dead(pods, monkeypatch, **OPT_IN)
    found.scene.reconcile()
    found.now += ABANDONED_AFTER_SECONDS
    alive = replace(found.own, lease_ends_ms=190_000)
    found.eureka.fails["read"] = [lambda usual: usual(), lambda _: alive]
    found.scene.reconcile()
    assert found.own.key in found.eureka.held
    assert "Conflict" not in found.scene.report.problems


def test_a_client_with_a_long_interval_has_its_time(pods: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that registered with an interval of two minutes gets more time to renew before its
    registration is removed.
    """
    own = itself("10.0.0.2", 8080)
    own = replace(own, lease=replace(own.lease, renewal_interval_seconds=120))
    found = dead(pods, monkeypatch, own, **OPT_IN)
    assert found.passes(159.0)
    assert not found.passes(22.0)


@pytest.mark.parametrize("spec", [{"paused": True}, {"policy": "UpsertOnly"}, {"port": "none"}])
def test_who_removes_nothing_removes_nothing_of_others(
    spec: dict[str, Any], pods: Pods, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A syncer that is paused, in doubt or UpsertOnly leaves a dead pod's registration."""
    found = dead(pods, monkeypatch, **OPT_IN)
    found.scene.edited(**spec, status=found.scene.syncer["status"])
    assert found.passes()


def test_an_evicted_pod_is_dead(pods: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays for days, and its status keeps an address that another pod may have."""
    found = dead(pods, monkeypatch, **OPT_IN)
    pods.add("a", "10.0.0.2", status={"phase": "Failed", "hostIP": "192.0.2.1"})
    assert not found.passes()


def test_a_pod_that_lives_on_unselected_is_not_dead(pods: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that lost its label is no endpoint any more, but still runs, and keeps its registration."""
    found = dead(pods, monkeypatch, **OPT_IN)
    pods.add("a", "10.0.0.2")
    assert found.passes()
    assert "DeadSelfRegistered" not in found.scene.report.problems


def test_a_pod_that_cannot_be_asked_for_is_reported_as_such(
    pods: Pods, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the pod cannot be read, its registration stays, and the message gives the reason."""
    found = dead(pods, monkeypatch)
    pods.fails = "pods?a"
    found.scene.reconcile()
    assert "whether the pod lives could not be asked for: forbidden" in found.sentence
    assert found.own.key in found.eureka.held


def test_what_a_machine_registered_is_never_a_dead_pods(pods: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine's registration stays, although no pod has its address and nobody renews it."""
    found = dead(pods, monkeypatch, **OPT_IN)
    machine = stranger(lease_ends_ms=100_000)
    found.scene.played.registry.table.store_written_and_return_previous(machine)
    found.eureka.held[machine.key] = machine
    assert not found.passes()
    assert machine.key in found.eureka.held


def test_what_is_known_of_pods_goes_with_their_syncer(pods: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
    """The knowledge of dead pods is dropped with the syncer; a new syncer of its name starts again."""
    found = dead(pods, monkeypatch, **OPT_IN)
    found.scene.reconcile()
    found.now += ABANDONED_AFTER_SECONDS
    item = found.scene.syncer
    found.scene.played.removed(KEY)
    found.scene.reconcile()
    (syncers,) = found.scene.played.sources.syncers.reflectors
    syncers.apply_event("ADDED", item)
    found.scene.reconcile()
    assert found.own.key in found.eureka.held
