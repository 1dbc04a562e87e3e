"""A mirrored Service keeps its endpoints while it changes ports, is refused, or Eureka is silent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eurekube_provider.core.address_policy import AddressPolicy
from eurekube_provider.core.errors import KubernetesError, RegistryUnreachable
from eurekube_provider.core.model import Port, Status
from eurekube_provider.core.registry import Failing, Healthy
from tests.unit.operator.mirror.others import ChoosyApi, changed_by_others, slice_path
from tests.unit.operator.mirror.stage import KEY, Api, Stage, instance, one

SERVICE = "/api/v1/namespaces/shop/services/review"


class UnpatchableApi(Api):
    """An API server in memory whose webhook refuses each patch of a Service with ``status``; 0 for none."""

    status = 0

    def request(self, method: str, path: str, query: object = None, body: Any = None, **more: object) -> Any:
        """Refuse a patch of a Service; carry out any other write as Kubernetes does."""
        if self.status and method == "PATCH" and "/services/" in path:
            raise KubernetesError("refused", status_code=self.status)
        return super().request(method, path, query, body, **more)


def port_names(stage: Stage) -> list[str]:
    """Return the names of the ports of the mirror's one Service, which must exist."""
    service = stage.service()
    assert service is not None
    return [each["name"] for each in service["spec"]["ports"]]


def test_slices_come_before_a_ports_new_name() -> None:
    """While the API server refuses new slices, the Service keeps the old port name, which its existing
    slices use.
    """
    stage = Stage(api=(api := ChoosyApi()), application="review")
    stage.source.listed = [instance(1)]
    stage.reconcile()
    api.refused = {"endpointslices": 403}
    stage.edited(application="review", portName="web")
    with pytest.raises(KubernetesError, match="refused"):
        stage.reconcile()
    assert port_names(stage) == ["http"]
    assert stage.shows() == {"192.0.2.1": True}
    api.refused.clear()
    stage.reconcile()
    assert [each.split("/")[0] for each in stage.api.writes] == [
        "POST endpointslices",
        "PATCH services",
        "DELETE endpointslices",
    ]
    assert stage.shows() == {"192.0.2.1": True}


def test_an_instance_is_at_its_new_port_before_it_leaves_the_old_one() -> None:
    """When an instance's port changes and each port has a slice, the slice of the new port is written
    first.
    """
    stage = Stage()
    old, new = Port(8080), Port(8081)
    stage.source.listed = [replace(instance(number), port=old) for number in (1, 2)]
    stage.source.listed += [replace(instance(3), port=new)]
    stage.reconcile()
    paths = {
        item["ports"][0]["port"]: "/".join(path.split("/")[-2:])
        for path, item in stage.api.objects.items()
        if "/endpointslices/" in path
    }
    for before, after in ((old, new), (new, old)):
        stage.source.listed[0] = replace(stage.source.listed[0], port=after)
        stage.reconcile()
        assert stage.api.writes == [f"PUT {paths[after.number]}", f"PUT {paths[before.number]}"]


@pytest.mark.parametrize("status", [403, 500])
def test_a_slice_that_is_refused_keeps_no_other_from_eureka(status: int) -> None:
    """While a quota refuses new slices, instances leave the slices that stand; an instance whose new place is
    refused stays where it was.
    """
    stage = Stage(api=(api := ChoosyApi()))
    moves = [replace(instance(number), port=Port(8081)) for number in (4, 5)]
    stage.source.listed = [*(instance(number) for number in (1, 2, 3)), *moves]
    stage.reconcile()
    api.refused = {"endpointslices": status}
    stage.source.listed = [
        replace(instance(2), status=Status.OUT_OF_SERVICE),
        *(replace(instance(number), port=Port(8082)) for number in (4, 9)),
    ]
    stage.source.gone = {("REVIEW", "vm-1"), ("REVIEW", "vm-5")}
    with pytest.raises(KubernetesError, match="refused"):
        stage.reconcile()
    shown = {"192.0.2.2": False, "192.0.2.3": True, "192.0.2.4": True, "192.0.2.5": True}
    assert stage.shows() == shown, "vm-5 shares a slice with vm-4, which has no other place"
    stage.now += 301.0
    with pytest.raises(KubernetesError, match="refused"):
        stage.reconcile()
    assert "192.0.2.3" not in stage.shows(), "the time of what vanished without proof goes on"
    api.refused.clear()
    stage.reconcile()
    assert stage.shows() == {"192.0.2.2": False, "192.0.2.4": True, "192.0.2.9": True}


@pytest.mark.parametrize("status", [403, 422, 500])
def test_a_service_that_is_refused_keeps_its_slices_with_eureka(status: int) -> None:
    """While a webhook refuses a change of the Service, such as another port, its slices follow Eureka."""
    stage = Stage(api=(api := UnpatchableApi()))
    stage.source.listed = [instance(1), instance(2)]
    stage.reconcile()
    api.status = status
    secure = replace(instance(3), secure_port=Port(8443))
    stage.source.listed, stage.source.gone = [instance(2), secure], {("REVIEW", "vm-1")}
    with pytest.raises(KubernetesError, match="refused"):
        stage.reconcile()
    assert stage.shows() == {"192.0.2.2": True, "192.0.2.3": True}
    stage.edited(application="review", portName="web")
    with pytest.raises(KubernetesError, match="refused"):
        stage.reconcile()
    assert port_names(stage) == ["http"]
    called = {
        each["addresses"][0]
        for path, item in api.objects.items()
        if "/endpointslices/" in path and any(port["name"] == "http" for port in item["ports"])
        for each in item["endpoints"]
    }
    assert called == {"192.0.2.2", "192.0.2.3"}, "the Service finds endpoints by the name that it has"
    api.status = 0
    stage.reconcile()
    assert stage.shows() == {"192.0.2.2": True, "192.0.2.3": True}


def test_a_service_that_could_not_be_made_again_is_not_deleted() -> None:
    """While a webhook or a quota refuses new Services, the mirror keeps the one that another form is to
    replace.
    """
    stage = Stage(api=(api := ChoosyApi()))
    stage.source.listed = [instance(1)]
    stage.reconcile()
    uid = (stage.service() or {})["metadata"]["uid"]
    api.refused = {"services": 403}
    stage.edited(application="review", headless=True)
    with pytest.raises(KubernetesError, match="refused"):
        stage.reconcile()
    assert (stage.service() or {})["metadata"]["uid"] == uid
    assert stage.shows() == {"192.0.2.1": True}
    api.refused.clear()
    stage.reconcile()
    assert (stage.service() or {})["spec"]["clusterIP"] == "None"
    assert [path for path in api.objects if "/services/" in path] == [SERVICE]


def test_others_finalizers_stay_on_a_slice() -> None:
    """The mirror replaces the whole slice with PUT, and keeps a finalizer that somebody else put on it."""
    stage = Stage()
    stage.source.listed = [instance(1)]
    stage.reconcile()
    path = slice_path(stage)
    changed_by_others(stage, path, finalizers=["example.com/mine"])
    stage.source.listed += [instance(2)]
    stage.reconcile()
    assert len(stage.shows()) == 2
    assert stage.api.objects[path]["metadata"]["finalizers"] == ["example.com/mine"]


@pytest.mark.parametrize("host", ["192.0.2.1", "vm.example"])
def test_what_is_kept_is_refused_as_well(host: str) -> None:
    """An endpoint that the mirror keeps for a vanished instance or an unresolvable name is removed when a pod
    gets its address.
    """
    stage = Stage()
    stage.addresses["vm.example"] = ("192.0.2.1",)
    stage.source.listed = [instance(1, address=host)]
    stage.reconcile()
    assert stage.shows() == {"192.0.2.1": True}
    stage.addresses.clear()
    if host == "192.0.2.1":
        stage.source.listed = []
    stage.policy = AddressPolicy(stage.policy.allowed_networks, cluster_addresses=frozenset({"192.0.2.1"}))
    stage.reconcile()
    assert stage.shows() == {}


def test_an_address_with_an_interface_is_refused() -> None:
    """The API server would refuse a whole slice with ``2001:db8::1%eth0``, and the check for the cluster's
    own
    addresses would not recognize it.
    """
    stage = Stage()
    stage.source.listed = [instance(1, address="2001:db8::1%eth0"), instance(2, address="2001:db8::2")]
    assert "names an interface" in stage.problem("AddressRefused")
    assert stage.shows() == {"2001:db8::2": True}


def test_an_instance_with_an_endless_id_is_refused() -> None:
    """A slice that contains an id of a million characters would be too large for the API server."""
    stage = Stage()
    stage.source.listed = [replace(instance(1), instance_id="v" * 1_000_000), instance(2)]
    assert "has an id of 1000000 characters" in stage.problem("AddressRefused")
    assert stage.shows() == {"192.0.2.2": True}


def test_time_of_vanished_instances_stops_while_eureka_is_silent() -> None:
    """The hold time of vanished instances starts anew after a silence of Eureka, which may come back
    empty.
    """
    stage = Stage(application="review", holdSeconds=300)
    stage.source.listed = [instance(1), instance(2), instance(3)]
    stage.reconcile()
    stage.source.listed = [instance(2), instance(3)]
    stage.reconcile()
    stage.source.state = Failing(RegistryUnreachable("no answer"), 0.0)
    for _ in range(4):
        stage.now += 100.0
        stage.reconcile()
    stage.source.state, stage.source.listed = Healthy(), [instance(3)]
    assert stage.reconcile().expired_instance_names == ()
    assert stage.shows() == {"192.0.2.1": True, "192.0.2.2": True, "192.0.2.3": True}
    stage.now += 299.0
    assert stage.reconcile().expired_instance_names == ()
    stage.now += 1.0
    assert stage.reconcile().expired_instance_names == ("REVIEW vm-1", "REVIEW vm-2")
    assert stage.shows() == {"192.0.2.3": True}


def test_time_of_vanished_instances_begins_when_a_restarted_server_may_list_them_again() -> None:
    """The hold time of what a restarted server does not list begins after the time in which instances may
    register there again.
    """
    stage = Stage(application="review", holdSeconds=60)
    stage.source.listed = [instance(1), instance(2), instance(3)]
    stage.reconcile()
    stage.source.listed = [instance(2), instance(3)]
    stage.source.was_restarted_lately = True
    for _ in range(8):
        stage.reconcile()
        stage.now += 15.0
    stage.source.was_restarted_lately = False
    stage.now += 44.0
    assert stage.reconcile().expired_instance_names == ()
    assert stage.shows() == {"192.0.2.1": True, "192.0.2.2": True, "192.0.2.3": True}
    stage.now += 1.0
    assert stage.reconcile().expired_instance_names == ("REVIEW vm-1",)


def test_a_lost_name_is_reported_and_keeps_its_addresses() -> None:
    """A host name that no longer resolves keeps the addresses of the last good answer, and Unresolvable is
    reported.
    """
    stage = Stage()
    stage.source.listed = [instance(1, address="vm-1.example")]
    stage.addresses["vm-1.example"] = ("192.0.2.1",)
    assert stage.problem("Unresolvable") == ""
    stage.failures["vm-1.example"] = "Name or service not known"
    reported = stage.problem("Unresolvable")
    assert "'vm-1.example'" in reported
    assert "(Name or service not known): the addresses that it had are kept" in reported
    assert stage.shows() == {"192.0.2.1": True}
    stage.failures.clear()
    assert stage.problem("Unresolvable") == ""


def test_a_service_that_is_removed_as_soon_as_it_stands_is_made_again() -> None:
    """The next reconcile sees the deletion, and creates the Service again instead of trusting its earlier
    decision.
    """
    stage = Stage(application="review")
    stage.reconcile()
    one(stage.objects.services).apply_event("DELETED", stage.api.objects.pop(SERVICE))
    stage.reconcile()
    assert stage.api.writes == ["POST services/review"]


def test_a_silent_eureka_stops_no_round_of_the_other_mirrors() -> None:
    """Each Eureka has a worker thread: while one counts Services again, another one may record another
    mirror's Service.
    """
    stage = Stage(application="review")
    stage.source.listed = [instance(1)]
    stage.reconcile()
    applications = stage.reconciler.applications

    class Meanwhile(tuple[str, str]):
        """A key whose comparison records another mirror's Service, as another worker may at that moment."""

        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            applications._held[("shop", "other"), "zone"] = {}
            return super().__eq__(other)

        __hash__ = tuple.__hash__

    applications.restart_hold_times(Meanwhile(KEY))
