"""What others do to a mirror's objects, or refuse to write, takes nothing away that is called."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from eurekube_provider.core.errors import KubernetesError, RegistryUnreachable
from eurekube_provider.core.mirror_addresses import AddressPolicy, own_addresses
from eurekube_provider.core.model import Port
from eurekube_provider.core.objects import ATTACH_ANNOTATION
from eurekube_provider.core.registry import Failing, Unread, Well
from eurekube_provider.kube.access import MIRRORS
from eurekube_provider.operator.watches import trim_service
from tests.unit.operator.mirror.stage import KEY, Api, Object, Stage, instance, one


class ChoosyApi(Api):
    """Refuses to create some objects.

    :ivar refused: the status by the name of a Service, or by the plural of a kind.
    """

    def __init__(self) -> None:
        super().__init__()
        self.refused: dict[str, int] = {}

    def request(self, method: str, path: str, _: object = None, body: Any = None, **more: object) -> Any:
        """Carry out a write as Kubernetes does."""
        if method == "POST":
            for refused in (body["metadata"]["name"], path.rpartition("/")[2]):
                if refused in self.refused:
                    raise KubernetesError("refused", status_code=self.refused[refused])
        return super().request(method, path, _, body, **more)


def changed_by_others(stage: Stage, path: str, **metadata: Any) -> Object:
    """Change an object's metadata; the watch tells of it."""
    item = copy.deepcopy(stage.api.objects[path])
    item["metadata"] |= {"resourceVersion": "99", **metadata}
    stage.api.objects[path] = item
    group = stage.objects.slices if "/endpointslices/" in path else stage.objects.services
    one(group).take("MODIFIED", copy.deepcopy(item))
    return item


def slice_path(stage: Stage) -> str:
    """Where the only slice is."""
    (path,) = (path for path in stage.api.objects if "/endpointslices/" in path)
    return path


def opted_in(name: str = "rating") -> Object:
    """A person's Service to which the mirror may add."""
    annotations = {ATTACH_ANNOTATION: KEY[1]}
    metadata = {"namespace": "shop", "name": name, "labels": {}, "annotations": annotations}
    return {"metadata": metadata, "spec": {"ports": [{"name": "http"}]}}


@pytest.mark.parametrize(("status", "count"), [(403, 8), (403, 20), (400, 9), (500, 1), (500, 2)])
def test_what_is_refused_each_time_starves_no_other(status: int, count: int) -> None:
    """A full quota, or a webhook that is gone: the last application of the alphabet has its turn, too."""
    stage = Stage(api=(api := ChoosyApi()), pattern="*", allow=["*"])
    stage.source.listed = [instance(1, "zeta")]
    stage.reconcile()
    names = [f"app-{number:02}" for number in range(count)]
    api.refused = dict.fromkeys(names, status)
    stage.source.listed = [instance(2, "zeta"), *(instance(10 + at, name) for at, name in enumerate(names))]
    stage.source.gone = {("ZETA", "vm-1")}
    for _ in range(count + 1):
        with pytest.raises(KubernetesError, match="refused"):
            stage.reconcile()
    assert stage.shows("zeta") == {"192.0.2.2": True}
    api.refused.clear()
    report = stage.reconcile().report
    assert report is not None
    assert [each.service for each in report.services] == [*names, "zeta"]


@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize("spec", [{"application": "review"}, {"pattern": "*", "allow": ["*"]}])
def test_a_service_whose_annotation_was_taken_off_stays(spec: dict[str, Any], is_listed: bool) -> None:
    """It has the annotation again; another Service of its name would have another address."""
    stage = Stage(**spec)
    stage.source.listed = [instance(1)]
    stage.reconcile()
    before = changed_by_others(stage, "/api/v1/namespaces/shop/services/review", annotations={})
    stage.source.listed = [instance(1), instance(2)] if is_listed else []
    stage.reconcile()
    after = stage.service()
    assert after is not None
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert stage.shows() == ({"192.0.2.1": True} | ({"192.0.2.2": True} if is_listed else {}))
    assert after["metadata"]["annotations"]["eurekube.io/application"] == "REVIEW"


def test_a_service_of_which_nothing_tells_the_application_stays() -> None:
    """With a pattern anybody's name might be meant."""
    stage = Stage(pattern="*", allow=["*"])
    stage.source.listed = [instance(1)]
    stage.reconcile()
    stage.source.listed = []
    changed_by_others(stage, slice_path(stage), annotations={})
    changed_by_others(stage, "/api/v1/namespaces/shop/services/review", annotations={})
    stage.reconcile()
    assert stage.shows() == {"192.0.2.1": True}


@pytest.mark.parametrize("attached", [False, True])
def test_another_application_takes_the_service_over(attached: bool) -> None:
    """Without another address, and without the endpoints of the one before it."""
    place: dict[str, Any] = {"attachTo": "rating"} if attached else {"serviceName": "rating"}
    stage = Stage(application="review", **place)
    if attached:
        stage.persons["shop", "rating"] = opted_in()
    stage.source.listed = [instance(1), instance(2, "other")]
    stage.reconcile()
    before = copy.deepcopy(stage.service("rating"))
    stage.edited(application="other", **place)
    stage.reconcile()
    after = stage.service("rating")
    assert (after or {}).get("metadata", {}).get("uid") == (before or {}).get("metadata", {}).get("uid")
    assert stage.shows("rating") == {"192.0.2.2": True}
    stage.reconcile()
    assert stage.api.writes == []


def test_slices_come_before_a_ports_new_name() -> None:
    """Where they are refused, the Service keeps the name by which it finds those that it has."""
    stage = Stage(api=(api := ChoosyApi()), application="review")
    stage.source.listed = [instance(1)]
    stage.reconcile()
    api.refused = {"endpointslices": 403}
    stage.edited(application="review", portName="web")
    with pytest.raises(KubernetesError, match="refused"):
        stage.reconcile()
    service = stage.service()
    assert service is not None
    assert [each["name"] for each in service["spec"]["ports"]] == ["http"]
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
    """Each port has a slice already, and both change."""
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


@pytest.mark.parametrize(("opts_out", "shows"), [(False, {"192.0.2.1": True}), (True, {})])
def test_what_was_attached_stays_until_it_has_another_place(opts_out: bool, shows: dict[str, bool]) -> None:
    """Unless the Service's owner wants it no more."""
    stage = Stage(application="review", attachTo="rating")
    stage.persons["shop", "rating"] = opted_in()
    stage.source.listed = [instance(1)]
    stage.reconcile()
    stage.persons["shop", "review"] = {"metadata": {"namespace": "shop", "name": "review", "labels": {}}}
    if opts_out:
        stage.persons["shop", "rating"] = {"metadata": {"namespace": "shop", "name": "rating", "labels": {}}}
    stage.edited(application="review")
    assert "left alone" in stage.problem("NameTaken")
    assert stage.shows("rating") == shows
    del stage.persons["shop", "review"]
    stage.reconcile()
    assert (stage.shows("rating"), stage.shows()) == ({}, {"192.0.2.1": True})


def test_a_mirror_that_is_deleted_alone_leaves_its_services() -> None:
    """`kubectl delete --cascade=orphan` says so by a finalizer of Kubernetes' own."""
    stage = Stage()
    stage.source.listed = [instance(1)]
    stage.reconcile()
    stage.api.objects[MIRRORS.path(*KEY)]["metadata"]["finalizers"].append("orphan")
    stage.deleted()
    stage.reconcile()
    assert stage.shows() == {"192.0.2.1": True}
    assert stage.service() is not None
    assert stage.api.objects[MIRRORS.path(*KEY)]["metadata"]["finalizers"] == ["orphan"]


def test_others_finalizers_stay_on_a_slice() -> None:
    """It is replaced as a whole."""
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
    """An address that became a pod's own is called no more, though its instance vanished, or its name did."""
    stage = Stage()
    stage.addresses["vm.example"] = ("192.0.2.1",)
    stage.source.listed = [instance(1, address=host)]
    stage.reconcile()
    assert stage.shows() == {"192.0.2.1": True}
    stage.addresses.clear()
    if host == "192.0.2.1":
        stage.source.listed = []
    stage.policy = AddressPolicy(stage.policy.allowed, own=frozenset({"192.0.2.1"}))
    stage.reconcile()
    assert stage.shows() == {}


def test_an_address_with_an_interface_is_refused() -> None:
    """The API server refuses the whole slice for it, and it would pass for none of the cluster's own."""
    stage = Stage()
    stage.source.listed = [instance(1, address="2001:db8::1%eth0"), instance(2, address="2001:db8::2")]
    assert "names an interface" in stage.problem("AddressRefused")
    assert stage.shows() == {"2001:db8::2": True}


def test_an_instance_with_an_endless_id_is_refused() -> None:
    """A slice that names it is too large for the API server's store."""
    stage = Stage()
    stage.source.listed = [replace(instance(1), instance_id="v" * 1_000_000), instance(2)]
    assert "has an id of 1000000 characters" in stage.problem("AddressRefused")
    assert stage.shows() == {"192.0.2.2": True}


def test_both_addresses_of_a_dual_stack_service_are_the_clusters_own() -> None:
    """Kubernetes before 1.33 has no ServiceCIDRs that would say so."""
    spec = {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "fd00::1"]}
    service = trim_service({"metadata": {"namespace": "shop", "name": "review"}, "spec": spec})
    assert own_addresses([service], []) == {"10.0.0.1", "fd00::1"}


def test_while_eureka_is_silent_the_time_of_what_vanished_stands_still() -> None:
    """Eureka may come back empty: who has had no time to register again goes on to be called."""
    stage = Stage(application="review", holdSeconds=300)
    stage.source.listed = [instance(1), instance(2)]
    stage.reconcile()
    stage.source.listed = [instance(2)]
    stage.reconcile()
    stage.source.state = Failing(RegistryUnreachable("no answer"), 0.0)
    for _ in range(4):
        stage.now += 100.0
        stage.reconcile()
    stage.source.state, stage.source.listed = Well(), []
    assert stage.reconcile().expired == ()
    assert stage.shows() == {"192.0.2.1": True, "192.0.2.2": True}
    stage.now += 299.0
    assert stage.reconcile().expired == ()
    stage.now += 1.0
    assert stage.reconcile().expired == ("REVIEW vm-1", "REVIEW vm-2")
    assert stage.shows() == {}


@pytest.mark.parametrize("state", [Unread(), Failing(RegistryUnreachable("no answer"), 0.0)])
def test_a_service_that_opts_out_is_left_though_eureka_is_silent(state: Any) -> None:
    """The machines may be gone with Eureka, and its owner has them called no more."""
    stage = Stage(application="review", attachTo="rating")
    stage.persons["shop", "rating"] = opted_in()
    stage.source.listed = [instance(1)]
    stage.reconcile()
    stage.source.state = state
    stage.reconcile()
    assert stage.shows("rating") == {"192.0.2.1": True}
    stage.persons.pop(("shop", "rating"))  # not known, which is no word of a person
    stage.reconcile()
    assert stage.shows("rating") == {"192.0.2.1": True}
    service = opted_in()
    service["metadata"]["annotations"] = {}
    stage.persons["shop", "rating"] = service
    stage.reconcile()
    assert stage.shows("rating") == {}


def test_a_name_that_resolves_no_more_is_told_and_keeps_its_addresses() -> None:
    """What is shown is of the last good answer, however old that is by now."""
    stage = Stage()
    stage.source.listed = [instance(1, address="vm-1.example")]
    stage.addresses["vm-1.example"] = ("192.0.2.1",)
    assert stage.problem("Unresolvable") == ""
    stage.failures["vm-1.example"] = "Name or service not known"
    told = stage.problem("Unresolvable")
    assert "'vm-1.example'" in told
    assert "(Name or service not known): the addresses that it had are kept" in told
    assert stage.shows() == {"192.0.2.1": True}
    stage.failures.clear()
    assert stage.problem("Unresolvable") == ""


@pytest.mark.parametrize("state", [Unread(), Failing(RegistryUnreachable("no answer"), 0.0), Well()])
@pytest.mark.parametrize("eureka", ["default", "nowhere"])
def test_a_deleted_mirror_goes_whatever_becomes_of_its_eureka(state: Any, eureka: str) -> None:
    """Its finalizer would hold up its namespace: nothing of Eureka's is needed to take away what it made."""
    stage = Stage(application="review")
    stage.source.listed = [instance(1)]
    stage.reconcile()
    stage.source.state, stage.source.is_silent = state, True
    stage.edited(application="review", eureka=eureka)
    stage.reconcile()
    assert stage.shows() == {"192.0.2.1": True}
    stage.deleted()
    stage.reconcile()
    assert stage.service() is None
    assert stage.shows() == {}
    assert stage.api.objects[MIRRORS.path(*KEY)]["metadata"]["finalizers"] == []
