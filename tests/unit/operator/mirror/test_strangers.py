"""Changes that people and other programs make to a mirror's Services and EndpointSlices, and how the
mirror reacts.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from eurekube_provider.core.errors import KubernetesError, RegistryUnreachable
from eurekube_provider.core.objects import MIRROR_LABEL, SERVICE_NAME_LABEL
from eurekube_provider.core.registry import Failing, NeverRead
from tests.unit.operator.mirror.others import changed_by_others, slice_path
from tests.unit.operator.mirror.stage import Object, Stage, instance, one

SERVICE = "/api/v1/namespaces/shop/services/review"
SILENT = Failing(RegistryUnreachable("no answer"), 0.0)


def take_label_off(stage: Stage, path: str = SERVICE, *, is_reported: bool = True) -> None:
    """Take the mirror's label off a Service, as a person does.

    :param is_reported: True if the watch of all Services has reported it.
    """
    item = copy.deepcopy(stage.api.objects[path])
    item["metadata"]["labels"] = {"team": "a"}
    item["metadata"]["resourceVersion"] = "99"
    stage.api.objects[path] = item
    one(stage.objects.services).apply_event("DELETED", item)
    if is_reported:
        stage.persons["shop", item["metadata"]["name"]] = item


def references(stage: Stage, path: str = SERVICE) -> list[str]:
    """Return the kinds of a Service's owners."""
    return [each["kind"] for each in stage.api.objects[path]["metadata"].get("ownerReferences") or ()]


@pytest.mark.parametrize("state", [None, SILENT, NeverRead()])
def test_a_service_that_a_person_took_over_is_theirs(state: Any) -> None:
    """The mirror removes its owner reference before its slices, or Kubernetes would delete the Service
    with the mirror.
    """
    stage = Stage()
    stage.source.listed = [instance(1)]
    stage.reconcile()
    stage.source.state = state or stage.source.state
    take_label_off(stage)
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
    """A person keeps editing the Service, so that the write conflicts; the next reconcile succeeds."""
    stage = Stage(pattern="*", allow=["R*", "Z*"])
    stage.source.listed = [instance(1), instance(2, "zone")]
    stage.reconcile()
    take_label_off(stage)
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
    """A deleted mirror drops its owner reference from a taken-over Service, also if it was paused or no watch
    has reported the take-over.
    """
    stage = Stage(application="review")
    stage.source.listed = [instance(1)]
    stage.reconcile()
    take_label_off(stage, is_reported=False)
    stage.edited(application="review", **spec)
    if spec:
        stage.reconcile()
        assert references(stage) == ["EurekaMirror"]
    stage.deleted()
    stage.reconcile()
    assert references(stage) == []
    assert stage.api.writes[-1] == "PATCH eurekamirrors/legacy", "the finalizer goes last"
    assert stage.api.writes[-2] == "PATCH services/review"


def test_a_mirror_stays_while_a_taken_over_service_would_go_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deleted mirror keeps its finalizer while the API server refuses to take its owner reference off a
    person's Service.
    """
    stage = Stage(application="review")
    stage.source.listed = [instance(1)]
    stage.reconcile()
    take_label_off(stage, is_reported=True)
    stage.deleted()
    answer = stage.api.request

    def refuse_patches_of_services(method: str, path: str, *rest: Any, **named: Any) -> Object:
        if method == "PATCH" and "/services/" in path:
            raise KubernetesError("a webhook says no", status_code=403)
        return answer(method, path, *rest, **named)

    with monkeypatch.context() as patched:
        patched.setattr(stage.api, "request", refuse_patches_of_services)
        with pytest.raises(KubernetesError, match="webhook"):
            stage.reconcile()
    assert "PATCH eurekamirrors/legacy" not in stage.api.writes
    stage.reconcile()
    assert references(stage) == []


def test_a_service_that_was_given_to_another_mirror_is_left() -> None:
    """The deletion of a mirror does not delete a Service whose label names another mirror by now."""
    stage = Stage()
    stage.source.listed = [instance(1)]
    stage.reconcile()
    item = changed_by_others(stage, SERVICE, labels={MIRROR_LABEL: "other"})
    stage.deleted()
    stage.reconcile()
    assert stage.api.objects[SERVICE]["spec"] == item["spec"]
    assert references(stage) == []


def test_a_slice_that_was_given_to_another_service_is_replaced() -> None:
    """When somebody labels a mirror's slice for another Service, the mirror makes a new slice, then
    deletes the old one.
    """
    stage = Stage()
    stage.source.listed = [instance(1)]
    stage.reconcile()
    path = slice_path(stage)
    item = copy.deepcopy(stage.api.objects[path])
    item["metadata"]["labels"][SERVICE_NAME_LABEL] = "pods"
    one(stage.objects.slices).apply_event("MODIFIED", stage.api.edited(path, item))
    stage.reconcile()
    assert [each.split()[0] for each in stage.api.writes] == ["POST", "DELETE"]
    assert (stage.shows(), stage.shows("pods")) == ({"192.0.2.1": True}, {})
    stage.reconcile()
    assert stage.api.writes == []


def test_a_slice_that_is_deleted_while_eureka_is_frozen_is_restored() -> None:
    """The slice is rebuilt from the last reading of Eureka; no other endpoint changes."""
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
    one(stage.objects.slices).apply_event("DELETED", item)
    report = stage.reconcile().report
    assert report is not None
    assert stage.shows() == {"192.0.2.2": True}
    assert (report.ready, list(report.problems)) == (1, ["SourceUnreachable"])


def test_a_replica_that_has_shown_nothing_restores_nothing() -> None:
    """A new leader adds no endpoint while Eureka is silent: its predecessor may have read that the
    instance left.
    """
    stage = Stage()
    stage.source.listed = [instance(1)]
    stage.reconcile()
    stage.reconciler.on_leadership_lost()
    stage.source.state = SILENT
    stage.source.listed = [instance(1), instance(2)]
    stage.reconcile()
    assert stage.shows() == {"192.0.2.1": True}


@pytest.mark.parametrize("target", [{}, {"targetRef": {"kind": "Pod", "name": "a"}}])
def test_an_endpoint_that_somebody_added_goes_at_once(target: Object) -> None:
    """An endpoint without an instance is removed and reported as ForeignEndpoints, not held as a vanished
    instance.
    """
    stage = Stage()
    stage.source.listed = [instance(1)]
    stage.reconcile()
    path = slice_path(stage)
    item = copy.deepcopy(stage.api.objects[path])
    item["endpoints"].append({"addresses": ["192.0.2.66"], "conditions": {"ready": True}, **target})
    one(stage.objects.slices).apply_event("MODIFIED", stage.api.edited(path, item))
    report = stage.reconcile().report
    assert report is not None
    assert stage.shows() == {"192.0.2.1": True}
    assert report.held == 0
    assert "192.0.2.66" in report.problems["ForeignEndpoints"].message
    assert stage.problem("ForeignEndpoints") == ""


def test_a_selector_on_a_mirrored_service_is_reported() -> None:
    """Each reconcile reports the selector and the slices that Kubernetes writes for it, until the selector
    is gone.
    """
    stage = Stage()
    stage.source.listed = [instance(1)]
    stage.reconcile()
    item = copy.deepcopy(stage.api.objects[SERVICE])
    item["spec"]["selector"] = {"app": "review"}
    one(stage.objects.services).apply_event("MODIFIED", stage.api.edited(SERVICE, item))
    stage.others_slices["shop", "review"] = [{"metadata": {"namespace": "shop", "name": "review-x7k2p"}}]
    for _ in range(2):
        report = stage.reconcile().report
        assert report is not None
        reported = report.problems["ForeignEndpoints"]
        assert "app=review" in reported.message
        assert "review-x7k2p" in reported.message
        assert (report.synced_condition[0], report.ready_condition[0]) == (False, True)
        assert stage.api.writes == []


def flood(stage: Stage, count: int) -> None:
    """Have Eureka list this many applications beside the mirrored one."""
    stage.source.listed = [instance(1), *(instance(2, f"a-{number:03}") for number in range(count))]


def services(stage: Stage) -> list[str]:
    """Return the names of all Services."""
    return sorted(path.rpartition("/")[2] for path in stage.api.objects if "/services/" in path)


def test_new_services_have_a_bound() -> None:
    """Existing Services are still updated or renamed; the applications that wait for a Service are
    counted.
    """
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
    """Without a bound one anonymous client caused 608 Services within seconds."""
    stage = Stage(pattern="*", allow=["A-*"])
    flood(stage, 608)
    assert "358 applications wait" in stage.problem("TooManyServices")
    assert len(services(stage)) == 250


@pytest.mark.parametrize("allow", [["*"], ["REVIEW", "*?"]])
def test_a_list_that_allows_all_makes_no_new_service(allow: list[str]) -> None:
    """The CRD refuses a new allow list of ``*`` alone; a mirror that has one keeps and updates its
    existing Services.
    """
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
