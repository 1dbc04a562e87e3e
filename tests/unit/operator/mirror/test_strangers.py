"""Acts of people and other programs on a mirror's Services and EndpointSlices, and its reports."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from eurekube_provider.core.errors import KubernetesError, RegistryUnreachable
from eurekube_provider.core.objects import MIRROR_LABEL, SERVICE_NAME_LABEL
from eurekube_provider.core.registry import Failing, Unread
from tests.unit.operator.mirror.others import changed_by_others, slice_path
from tests.unit.operator.mirror.stage import Object, Stage, instance, one

SERVICE = "/api/v1/namespaces/shop/services/review"
SILENT = Failing(RegistryUnreachable("no answer"), 0.0)


def taken_over(stage: Stage, path: str = SERVICE, *, is_reported: bool = True) -> None:
    """A person takes our label off a Service.

    :param is_reported: True if the watch of all Services has reported it.
    """
    item = copy.deepcopy(stage.api.objects[path])
    item["metadata"]["labels"] = {"team": "a"}
    item["metadata"]["resourceVersion"] = "99"
    stage.api.objects[path] = item
    one(stage.objects.services).take("DELETED", item)
    if is_reported:
        stage.persons["shop", item["metadata"]["name"]] = item


def references(stage: Stage, path: str = SERVICE) -> list[str]:
    """The kinds of a Service's owners."""
    return [each["kind"] for each in stage.api.objects[path]["metadata"].get("ownerReferences") or ()]


@pytest.mark.parametrize("state", [None, SILENT, Unread()])
def test_a_service_that_a_person_took_over_is_theirs(state: Any) -> None:
    """Kubernetes would delete it with the mirror by our owner reference, which goes before the slices do."""
    stage = Stage()
    stage.source.listed = [instance(1)]
    stage.reconcile()
    stage.source.state = state or stage.source.state
    taken_over(stage)
    owner = {"kind": "Team", "name": "a", "uid": "u"}
    stage.api.objects[SERVICE]["metadata"]["ownerReferences"].append(owner)
    stage.persons["shop", "review"] = copy.deepcopy(stage.api.objects[SERVICE])
    stage.reconcile()
    assert references(stage) == ["Team"]
    assert [each.split("/")[0] for each in stage.api.writes] == ["PATCH services", "DELETE endpointslices"]
    stage.persons["shop", "review"] = copy.deepcopy(stage.api.objects[SERVICE])
    stage.reconcile()
    assert stage.api.writes == []


def test_a_service_that_cannot_be_left_holds_up_no_other_application() -> None:
    """A person goes on to edit it: it is left by the next try."""
    stage = Stage(pattern="*", allow=["R*", "Z*"])
    stage.source.listed = [instance(1), instance(2, "zone")]
    stage.reconcile()
    taken_over(stage)
    stage.api.objects[SERVICE]["metadata"]["resourceVersion"] = "100"
    stage.persons["shop", "review"] = {
        **stage.api.objects[SERVICE],
        "metadata": {**stage.api.objects[SERVICE]["metadata"], "resourceVersion": "99"},
    }
    stage.source.listed = [instance(3), instance(4, "zone")]
    with pytest.raises(KubernetesError, match="changed meanwhile"):
        stage.reconcile()
    assert stage.shows("zone") == {"192.0.2.2": True, "192.0.2.4": True}
    stage.persons["shop", "review"] = copy.deepcopy(stage.api.objects[SERVICE])
    stage.reconcile()
    assert (references(stage), stage.shows()) == ([], {})


@pytest.mark.parametrize("spec", [{}, {"paused": True}, {"eureka": "nowhere"}])
def test_a_mirror_leaves_no_reference_behind(spec: dict[str, Any]) -> None:
    """It is deleted before any watch reported the person, or did nothing meanwhile."""
    stage = Stage(application="review")
    stage.source.listed = [instance(1)]
    stage.reconcile()
    taken_over(stage, is_reported=False)
    stage.edited(application="review", **spec)
    if spec:
        stage.reconcile()
        assert references(stage) == ["EurekaMirror"]
    stage.deleted()
    stage.reconcile()
    assert references(stage) == []
    assert stage.api.writes[-1] == "PATCH eurekamirrors/legacy", "the finalizer goes last"
    assert stage.api.writes[-2] == "PATCH services/review"


def test_a_service_that_was_given_to_another_mirror_is_left() -> None:
    """Its label names that one by now: the first mirror's end does not take it along."""
    stage = Stage()
    stage.source.listed = [instance(1)]
    stage.reconcile()
    item = changed_by_others(stage, SERVICE, labels={MIRROR_LABEL: "other"})
    stage.deleted()
    stage.reconcile()
    assert stage.api.objects[SERVICE]["spec"] == item["spec"]
    assert references(stage) == []


def test_a_slice_that_was_given_to_another_service_is_replaced() -> None:
    """Its name is not free, and the Service had no endpoint for good; it goes once there is another one."""
    stage = Stage()
    stage.source.listed = [instance(1)]
    stage.reconcile()
    path = slice_path(stage)
    item = copy.deepcopy(stage.api.objects[path])
    item["metadata"]["labels"][SERVICE_NAME_LABEL] = "pods"
    one(stage.objects.slices).take("MODIFIED", stage.api.edited(path, item))
    stage.reconcile()
    assert [each.split()[0] for each in stage.api.writes] == ["POST", "DELETE"]
    assert (stage.shows(), stage.shows("pods")) == ({"192.0.2.1": True}, {})
    stage.reconcile()
    assert stage.api.writes == []


def test_a_slice_that_is_deleted_while_eureka_is_frozen_is_restored() -> None:
    """From the last reading; nothing else is done, and nothing leaves."""
    stage = Stage()
    stage.source.listed = [instance(1), instance(2)]
    stage.reconcile()
    stage.source.state = SILENT
    stage.source.listed = [instance(2)]
    path = slice_path(stage)
    item = stage.api.objects[path]
    assert "everything stays" in stage.problem("SourceUnreachable")
    assert stage.shows() == {"192.0.2.1": True, "192.0.2.2": True}
    del stage.api.objects[path]
    one(stage.objects.slices).take("DELETED", item)
    report = stage.reconcile().report
    assert report is not None
    assert stage.shows() == {"192.0.2.2": True}
    assert (report.ready, list(report.problems)) == (1, ["SourceUnreachable"])


def test_a_replica_that_has_shown_nothing_restores_nothing() -> None:
    """The one before it may have read more of Eureka, such as that it left."""
    stage = Stage()
    stage.source.listed = [instance(1)]
    stage.reconcile()
    stage.reconciler.forget_all()
    stage.source.state = SILENT
    stage.source.listed = [instance(1), instance(2)]
    stage.reconcile()
    assert stage.shows() == {"192.0.2.1": True}


@pytest.mark.parametrize("target", [{}, {"targetRef": {"kind": "Pod", "name": "a"}}])
def test_an_endpoint_that_somebody_added_goes_at_once(target: Object) -> None:
    """It stands for no instance, and is not reported as one that Eureka lists no more."""
    stage = Stage()
    stage.source.listed = [instance(1)]
    stage.reconcile()
    path = slice_path(stage)
    item = copy.deepcopy(stage.api.objects[path])
    item["endpoints"].append({"addresses": ["192.0.2.66"], "conditions": {"ready": True}, **target})
    one(stage.objects.slices).take("MODIFIED", stage.api.edited(path, item))
    report = stage.reconcile().report
    assert report is not None
    assert stage.shows() == {"192.0.2.1": True}
    assert report.held == 0
    assert "192.0.2.66" in report.problems["ForeignEndpoints"].message
    assert stage.problem("ForeignEndpoints") == ""


def test_a_selector_on_a_mirrored_service_is_reported() -> None:
    """And the slices that Kubernetes writes for it; each round again, until it is gone."""
    stage = Stage()
    stage.source.listed = [instance(1)]
    stage.reconcile()
    item = copy.deepcopy(stage.api.objects[SERVICE])
    item["spec"]["selector"] = {"app": "review"}
    one(stage.objects.services).take("MODIFIED", stage.api.edited(SERVICE, item))
    stage.others_slices["shop", "review"] = [{"metadata": {"namespace": "shop", "name": "review-x7k2p"}}]
    for _ in range(2):
        report = stage.reconcile().report
        assert report is not None
        reported = report.problems["ForeignEndpoints"]
        assert "app=review" in reported.message
        assert "review-x7k2p" in reported.message
        assert (report.synced[0], report.is_ready[0]) == (False, True)
        assert stage.api.writes == []


def flood(stage: Stage, count: int) -> None:
    """One client registers so many applications, beside the one that is there."""
    stage.source.listed = [instance(1), *(instance(2, f"a-{number:03}") for number in range(count))]


def services(stage: Stage) -> list[str]:
    """The names of the Services that stand."""
    return sorted(path.rpartition("/")[2] for path in stage.api.objects if "/services/" in path)


def test_new_services_have_a_bound() -> None:
    """Existing Services stay and are updated, a renamed one is not new, and the others are counted."""
    stage = Stage(pattern="*", allow=["REVIEW", "A-*"], maxServices=3)
    stage.source.listed = [instance(1)]
    stage.reconcile()
    flood(stage, 600)
    assert "598 applications wait for a Service: 3 are the most" in stage.problem("TooManyServices")
    assert services(stage) == ["a-000", "a-001", "review"]
    stage.source.listed[0] = instance(9)
    stage.source.listed.append(instance(1))
    stage.edited(pattern="*", allow=["REVIEW", "A-*"], maxServices=1, serviceName="new-{application}")
    assert "598 applications wait" in stage.problem("TooManyServices")
    assert services(stage) == ["new-a-000", "new-a-001", "new-review"]
    assert stage.shows("new-review") == {"192.0.2.1": True, "192.0.2.9": True}


def test_the_bound_is_250_unless_a_mirror_says_otherwise() -> None:
    """One anonymous client made 608 Services within seconds."""
    stage = Stage(pattern="*", allow=["A-*"])
    flood(stage, 608)
    assert "358 applications wait" in stage.problem("TooManyServices")
    assert len(services(stage)) == 250


@pytest.mark.parametrize("allow", [["*"], ["REVIEW", "*?"]])
def test_a_list_that_allows_all_makes_no_new_service(allow: list[str]) -> None:
    """The CRD refuses it from now on; of a mirror that has it, what stands stays and is updated."""
    stage = Stage(pattern="*", allow=["REVIEW"])
    stage.source.listed = [instance(1)]
    stage.reconcile()
    stage.edited(pattern="*", allow=allow)
    flood(stage, 20)
    stage.source.listed.append(instance(3))
    reported = stage.problem("TooManyServices")
    assert "20 wait" in reported
    assert services(stage) == ["review"]
    assert stage.shows() == {"192.0.2.1": True, "192.0.2.3": True}
