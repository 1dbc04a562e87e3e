"""The writes of a mirror's reconcile, and the objects that it leaves alone."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from eurekube_provider.core.address_policy import AddressPolicy
from eurekube_provider.core.errors import KubernetesError, RegistryUnreachable
from eurekube_provider.core.mirror import LAST_READ_ANNOTATION
from eurekube_provider.core.mirror_source import UnlistedInstances
from eurekube_provider.core.model import InstanceKey, Port, Status
from eurekube_provider.core.networks import parse_networks
from eurekube_provider.core.objects import ATTACH_MIRROR_ANNOTATION, MIRROR_LABEL
from eurekube_provider.core.registry import Failing, Healthy, NeverRead
from eurekube_provider.kube.access import MIRRORS
from tests.unit.operator.mirror.others import ChoosyApi
from tests.unit.operator.mirror.stage import KEY, Api, Stage, instance, one


def test_an_application_becomes_a_service_and_slices() -> None:
    """A mirror needs two writes at first, and none while nothing changes, also when Eureka is read again."""
    stage = Stage()
    stage.source.listed = [instance(1), instance(2, status=Status.DOWN)]
    report = stage.reconcile().report
    assert [each.split("-")[0] for each in stage.api.writes[:2]] == [
        "POST services/review",
        "POST endpointslices/review",
    ]
    assert stage.shows() == {"192.0.2.1": True, "192.0.2.2": False}
    service = stage.service()
    assert service is not None
    assert "selector" not in service["spec"]
    assert service["metadata"]["labels"][MIRROR_LABEL] == "legacy"
    assert report is not None
    assert (report.endpoints, report.ready, report.ready_condition[0], report.synced_condition[0]) == (
        2,
        1,
        True,
        True,
    )
    stage.source.listed = [replace(each) for each in stage.source.listed]
    stage.reconcile()
    assert stage.api.writes == []
    stage.source.listed = [instance(1), instance(2)]
    stage.reconcile()
    assert [each.split("-")[0] for each in stage.api.writes] == ["PUT endpointslices/review"]


def test_a_named_application_has_its_service_before_it_has_instances() -> None:
    """The Service of a named application exists before its first instance, so that no resolver caches a
    negative answer, and stays after the last one.
    """
    stage = Stage()
    stage.reconcile()
    service = stage.service()
    assert service is not None
    assert [each["port"] for each in service["spec"]["ports"]] == [80]
    stage.source.listed = [instance(1, secure_port=Port(8443))]
    stage.reconcile()
    service = stage.service()
    assert service is not None
    assert [each["name"] for each in service["spec"]["ports"]] == ["http", "https"]
    stage.source.listed, stage.source.gone = [], {("REVIEW", "vm-1")}
    stage.reconcile()
    assert stage.shows() == {}
    after = stage.service()
    assert after is not None
    assert after["spec"] == service["spec"]


def test_many_applications_cost_writes_for_what_changes_alone() -> None:
    """200 applications with 5,000 instances take two writes each at first; then one changed instance takes
    one write.
    """
    stage = Stage(pattern="*", allow=["APP-*"])
    stage.policy = AddressPolicy(parse_networks(["10.0.0.0/8"]))
    stage.source.listed = [
        instance(number, f"app-{number % 200}", f"10.1.{number // 250}.{number % 250}")
        for number in range(5000)
    ]
    for writes in (400, 0):
        stage.reconcile()
        assert len(stage.api.writes) == writes
    stage.source.listed[7] = replace(stage.source.listed[7], status=Status.DOWN)
    stage.reconcile()
    assert len(stage.api.writes) == 1
    assert stage.api.writes[0].startswith("PUT endpointslices/app-7-")


def test_no_more_threads_write_than_applications_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of one application starts no thread, and one of two applications starts one: each start
    delays a write.
    """
    stage = Stage(writers=8, pattern="APP-*", allow=["APP-*"])
    stage.source.listed = [instance(number, f"app-{number}") for number in range(4)]
    for _ in range(2):  # the second reconcile sees what the first has written
        stage.reconcile()
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def noted(thread: threading.Thread) -> None:
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", noted)
    for changed in (1, 2):
        started.clear()
        for number in range(changed):
            before = stage.source.listed[number]
            status = Status.DOWN if before.status is Status.UP else Status.UP
            stage.source.listed[number] = replace(before, status=status)
        stage.reconcile()
        assert len(stage.api.writes) == changed
        assert len(started) == changed - 1
        stage.reconcile()


def test_what_changed_in_eureka_comes_first() -> None:
    """Slices that follow a change in Eureka are written before slices that somebody else spoiled, whatever
    their names.
    """
    stage = Stage(pattern="APP-*", allow=["APP-*"])
    names = ["app-a", "app-b", "app-c"]
    stage.source.listed = [instance(number, name) for number, name in enumerate(names, 1)]
    stage.reconcile()
    for path, item in stage.api.objects.items():
        if "/endpointslices/" in path:  # somebody empties all of them
            emptied = {**item, "endpoints": [], "metadata": {**item["metadata"], "resourceVersion": "99"}}
            stage.api.objects[path] = emptied
            one(stage.objects.slices).apply_event("MODIFIED", copy.deepcopy(emptied))
    stage.source.listed = [*stage.source.listed[:2], instance(4, "app-c")]
    stage.reconcile()
    written = [each.split("/")[1].rsplit("-", 2)[0] for each in stage.api.writes]
    assert written == ["app-c", "app-a", "app-b"]
    assert [stage.shows(name) for name in names] == [{f"192.0.2.{number}": True} for number in (1, 2, 4)]


def test_the_rest_is_looked_at_once_what_changed_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unchanged applications are examined after the changed ones are written: Python runs one thread at a
    time.
    """
    api = Api()
    stage = Stage(pattern="APP-*", allow=["APP-*"], writers=8, api=api)
    stage.source.listed = [instance(number, f"app-{number}") for number in range(1, 6)]
    for _ in range(2):
        stage.reconcile()
    applications, steps = stage.reconciler.applications, list[str]()
    decide, send = applications.decide_writes, api.request

    def decided(now: Any, application: str, *arguments: Any) -> Any:
        steps.append(application)
        return decide(now, application, *arguments)

    def request(*arguments: Any, **options: Any) -> Any:
        time.sleep(0.05)
        steps.append("written")
        return send(*arguments, **options)

    monkeypatch.setattr(applications, "decide_writes", decided)
    monkeypatch.setattr(api, "request", request)
    stage.source.listed = [*stage.source.listed[:3], instance(9, "app-4"), instance(8, "app-5")]
    stage.source.gone = {("APP-4", "vm-4"), ("APP-5", "vm-5")}
    stage.reconcile()
    assert steps == ["APP-4", "APP-5", "written", "written", "APP-1", "APP-2", "APP-3"]


def test_who_changed_waits_for_no_question_about_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changed applications are written before servers are asked about vanished instances, since a server
    may hang.
    """
    stage = Stage(pattern="APP-*", allow=["APP-*"])
    stage.source.listed = [instance(1, "app-a"), instance(2, "app-b"), instance(3, "app-c")]
    stage.reconcile()
    written: list[list[str]] = []
    ask = stage.source.look_up_unlisted

    def look_up_unlisted(keys: Iterable[InstanceKey]) -> UnlistedInstances:
        written.append([each.split()[1].split("-")[1] for each in stage.api.writes])
        return ask(keys)

    monkeypatch.setattr(stage.source, "look_up_unlisted", look_up_unlisted)
    stage.source.listed = [instance(2, "app-b"), instance(3, "app-c", status=Status.DOWN)]
    stage.reconcile()
    stage.source.listed = [instance(2, "app-b", status=Status.DOWN), instance(3, "app-c")]
    stage.reconcile()
    assert written == [["c"], ["b", "c"]]
    assert stage.shows("app-a") == {"192.0.2.1": True}


def test_a_removal_with_proof_is_done_at_once() -> None:
    """An endpoint goes at once when a server proves that its instance left; servers are asked about
    vanished ones only.
    """
    stage = Stage()
    stage.source.listed = [instance(1), instance(2)]
    stage.reconcile()
    assert stage.source.asked == []
    stage.source.listed, stage.source.gone = [instance(1)], {("REVIEW", "vm-2")}
    stage.reconcile()
    assert stage.shows() == {"192.0.2.1": True}
    assert stage.source.asked == [("REVIEW", "vm-2")]


def test_what_vanished_without_proof_is_held_for_its_time() -> None:
    """RemovalsHeld counts the held endpoints; after the hold time they go, and the result names them."""
    stage = Stage()
    stage.source.listed = [instance(1), instance(2), instance(3)]
    stage.reconcile()
    stage.source.listed = [instance(3)]
    for silent in (False, True):
        stage.source.is_silent = silent
        result = stage.reconcile()
        assert stage.api.writes == []
        assert result.report is not None
        assert result.report.held == 2
        assert "2 of REVIEW" in result.report.problems["RemovalsHeld"].text
        assert result.requeue_after_seconds is not None
        stage.now += 299.0
    stage.now -= 298.0
    result = stage.reconcile()
    assert stage.shows() == {"192.0.2.3": True}
    assert result.expired_instance_names == ("REVIEW vm-1", "REVIEW vm-2")


def test_what_another_server_holds_is_not_gone() -> None:
    """An instance missing from the list but held by another server stays for any time, with the status
    that server gives.
    """
    stage = Stage()
    stage.source.listed = [instance(1)]
    stage.reconcile()
    stage.source.listed, stage.source.hidden = [], [instance(1)]
    for _ in range(3):
        stage.now += 1000.0
        stage.reconcile()
        assert stage.shows() == {"192.0.2.1": True}
    stage.source.hidden = [instance(1, status=Status.OUT_OF_SERVICE)]
    stage.reconcile()
    assert stage.shows() == {"192.0.2.1": False}


def test_a_new_operator_goes_by_what_the_slices_say() -> None:
    """After a restart, endpoints in the slices whose instances are missing need proof before they are
    removed.
    """
    stage = Stage()
    stage.source.listed = [instance(1), instance(2)]
    stage.reconcile()
    stage.reconciler.on_leadership_lost()
    stage.source.listed = [instance(2)]
    assert "1 of REVIEW" in stage.problem("RemovalsHeld")
    assert stage.source.asked == [("REVIEW", "vm-1")]
    assert stage.shows() == {"192.0.2.1": True, "192.0.2.2": True}


@pytest.mark.parametrize(
    "state", [NeverRead(), NeverRead(RegistryUnreachable("no")), Failing(RegistryUnreachable("no"), 5.0)]
)
def test_an_eureka_that_does_not_answer_changes_nothing(state: Any) -> None:
    """While Eureka does not answer, only the annotation with the time of the last reading is written."""
    stage = Stage()
    stage.source.listed = [instance(1)]
    stage.reconcile()
    stage.source.listed, stage.source.state = [], state
    stage.source.read_at = 1_000_060.0
    assert "everything stays as it is" in stage.problem("SourceUnreachable")
    assert stage.shows() == {"192.0.2.1": True}
    service = stage.service()
    assert service is not None
    if isinstance(state, Failing):
        assert stage.api.writes == ["PATCH services/review"]
        assert service["metadata"]["annotations"][LAST_READ_ANNOTATION] == "1970-01-12T13:47:40Z"
    stage.reconcile()
    assert stage.api.writes == []


def test_a_moment_without_an_answer_is_not_reported() -> None:
    """A short failure of Eureka yields neither a report nor a write."""
    stage = Stage()
    stage.source.state = Failing(RegistryUnreachable("no"), 5.0, lasts=False)
    assert stage.reconcile().report is None
    assert stage.api.writes == []


def test_a_service_says_now_and_then_that_eureka_was_read() -> None:
    """The annotation is written every ten minutes only, since each write reaches every node."""
    stage = Stage()
    stage.reconcile()
    assert stage.source.read_at is not None
    for seconds, writes in ((300.0, 0), (300.0, 1), (15.0, 0)):
        stage.source.read_at += seconds
        stage.reconcile()
        assert len(stage.api.writes) == writes


def test_a_persons_service_is_left_alone() -> None:
    """A mirror reports NameTaken for a person's Service, also if only the API server knows it yet, or
    another mirror's.
    """
    stage = Stage()
    stage.source.listed = [instance(1)]
    stage.persons["shop", "review"] = {"metadata": {"namespace": "shop", "name": "review", "labels": {}}}
    assert "left alone" in stage.problem("NameTaken")
    assert stage.api.writes == []
    stage.persons.clear()
    theirs: dict[str, Any] = {"metadata": {"namespace": "shop", "name": "review", "uid": "x"}}
    stage.api.objects["/api/v1/namespaces/shop/services/review"] = theirs
    assert "created by somebody else" in stage.problem("NameTaken")
    assert (stage.api.writes, stage.service()) == ([], theirs)
    assert stage.shows() == {}
    del stage.api.objects["/api/v1/namespaces/shop/services/review"]
    assert stage.problem("NameTaken") == ""
    stage.edited("second", application="review")
    assert "the mirror legacy has it" in stage.problem("NameTaken", "second")
    assert stage.api.writes == []


@pytest.mark.parametrize(
    ("template", "reason"), [("{application}", "NameTaken"), ("1-{application}", "NoName")]
)
def test_an_earlier_service_follows_eureka_where_its_new_name_cannot_be_had(
    template: str, reason: str
) -> None:
    """An application that cannot have the Service that its mirror names now keeps its earlier one, which goes
    on following Eureka.
    """
    stage = Stage(pattern="*", allow=["REVIEW"], serviceName="new-{application}")
    stage.source.listed = [instance(1), instance(2)]
    stage.reconcile()
    stage.persons["shop", "review"] = {"metadata": {"namespace": "shop", "name": "review", "uid": "person"}}
    stage.edited(pattern="*", allow=["REVIEW"], serviceName=template)
    stage.source.listed, stage.source.gone = [instance(2), instance(3)], {instance(1).key}
    report = stage.reconcile().report
    assert stage.shows("new-review") == {"192.0.2.2": True, "192.0.2.3": True}
    assert report is not None
    assert [one.service for one in report.services] == ["new-review"]
    assert reason in report.problems


def test_a_name_that_no_service_can_have_is_not_called_taken() -> None:
    """An application whose name is no valid Service name is reported as NoName, not NameTaken."""
    stage = Stage(pattern="*", allow=["1-ORDER", "C"])
    stage.source.listed = [instance(1, "1-ORDER"), instance(2, "C")]
    stage.reconcile()
    assert stage.shows("c") == {"192.0.2.2": True}
    assert stage.problem("NameTaken") == ""
    assert "it must begin with a letter" in stage.problem("NoName")


def test_a_pattern_makes_a_service_for_each_application() -> None:
    """Applications must fit the pattern and the allow list; if two yield one Service name, the first keeps
    it.
    """
    stage = Stage(pattern="*", allow=["A_B", "A-B", "C"])
    stage.source.listed = [instance(1, "A_B"), instance(2, "D")]
    stage.reconcile()
    assert stage.shows("a-b") == {"192.0.2.1": True}
    stage.source.listed += [instance(3, "A-B"), instance(4, "C")]
    assert "only A_B is mirrored" in stage.problem("NameTaken")
    assert stage.shows("a-b") == {"192.0.2.1": True}
    assert stage.shows("c") == {"192.0.2.4": True}
    assert stage.service("d") is None
    stage.source.listed, stage.source.gone = [instance(1, "A_B")], {("C", "vm-4")}
    stage.reconcile()
    assert stage.service("c") is not None
    assert stage.shows("c") == {}


def test_what_a_person_asks_for_no_more_goes() -> None:
    """When the Service's name changes in the spec, the new Service is created before the old one is
    deleted.
    """
    stage = Stage()
    stage.source.listed = [instance(1)]
    stage.reconcile()
    stage.edited(application="review", serviceName="reviews")
    stage.reconcile()
    assert [each.split("/")[0] for each in stage.api.writes] == [
        "POST services",
        "POST endpointslices",
        "DELETE services",
        "DELETE endpointslices",
    ] or stage.api.writes[-1].startswith("PATCH")
    assert (stage.service(), stage.shows("reviews")) == (None, {"192.0.2.1": True})


def test_what_vanished_moves_to_the_new_name() -> None:
    """When a Service is renamed while its instance is missing from Eureka, the endpoint moves to the new
    Service.
    """
    stage = Stage()
    stage.source.listed = [instance(1)]
    stage.reconcile()
    stage.source.listed = []
    stage.edited(application="review", serviceName="reviews")
    stage.reconcile()
    assert (stage.service(), stage.shows("reviews")) == (None, {"192.0.2.1": True})


def test_a_service_keeps_its_name_until_the_next_one_is_free() -> None:
    """While the new name is taken, the old Service and its endpoints stay, since callers use its name."""
    stage = Stage()
    stage.source.listed = [instance(1)]
    stage.reconcile()
    stage.persons["shop", "taken"] = {"metadata": {"namespace": "shop", "name": "taken", "labels": {}}}
    stage.edited(application="review", serviceName="taken")
    assert "left alone" in stage.problem("NameTaken")
    assert stage.shows() == {"192.0.2.1": True}


def test_a_service_stays_while_another_mirror_has_its_next_name() -> None:
    """While another mirror has the Service of the new name, the old Service and its endpoints stay."""
    stage = Stage()
    stage.source.listed = [instance(1), instance(2, "order")]
    stage.reconcile()
    stage.edited("second", application="order", serviceName="taken")
    stage.reconcile("second")
    stage.edited(application="review", serviceName="taken")
    assert "the mirror second has it" in stage.problem("NameTaken")
    assert (stage.shows(), stage.shows("taken")) == ({"192.0.2.1": True}, {"192.0.2.2": True})


def test_another_form_is_another_service() -> None:
    """A headless Service replaces the one with a cluster IP, which cannot be changed in place."""
    stage = Stage()
    stage.source.listed = [instance(1)]
    stage.reconcile()
    stage.edited(application="review", headless=True)
    stage.reconcile()
    service = stage.service()
    assert service is not None
    assert service["spec"]["clusterIP"] == "None"
    assert stage.shows() == {"192.0.2.1": True}


def test_slices_are_added_to_a_service_that_opted_in() -> None:
    """The slices use the name of the annotated Service's only port, and go when none of several ports is
    named http.
    """
    stage = Stage(application="review", attachTo="rating")
    stage.source.listed = [instance(1)]
    assert "there is no such Service" in stage.problem("NotAttached")
    theirs: dict[str, Any] = {
        "metadata": {"namespace": "shop", "name": "rating", "labels": {}},
        "spec": {"ports": [{"name": "web", "port": 80}]},
    }
    stage.persons["shop", "rating"] = theirs
    assert ATTACH_MIRROR_ANNOTATION in stage.problem("NotAttached")
    assert stage.api.writes == []
    theirs["metadata"]["annotations"] = {ATTACH_MIRROR_ANNOTATION: "legacy"}
    stage.persons["shop", "rating"] = dict(theirs)
    assert stage.problem("NotAttached") == ""
    assert stage.shows("rating") == {"192.0.2.1": True}
    (item,) = (each for path, each in stage.api.objects.items() if "/endpointslices/" in path)
    assert item["ports"][0]["name"] == "web"
    assert item["metadata"]["ownerReferences"][0]["kind"] == "EurekaMirror"
    stage.persons["shop", "rating"] = {**theirs, "spec": {"ports": [{"name": "a"}, {"name": "b"}]}}
    assert "no port named http" in stage.problem("NotAttached")
    assert stage.shows("rating") == {}


def test_bad_instances_are_named_and_keep_no_other_away() -> None:
    """A name that stops resolving keeps its addresses, also after a restart of the operator."""
    stage = Stage()
    stage.source.listed = [instance(1), instance(2, address="10.0.0.1"), instance(3, address="vm-3.example")]
    report = stage.reconcile().report
    assert report is not None
    assert report.problems.keys() == {"AddressRefused", "Unresolvable"}
    assert stage.shows() == {"192.0.2.1": True}
    stage.addresses["vm-3.example"] = ("192.0.2.33",)
    result = stage.reconcile()
    assert result.requeue_after_seconds is not None
    assert stage.shows() == {"192.0.2.1": True, "192.0.2.33": True}
    stage.addresses.clear()
    stage.reconciler.on_leadership_lost()
    assert "vm-3.example" in stage.problem("Unresolvable")
    assert stage.shows() == {"192.0.2.1": True, "192.0.2.33": True}


def test_an_address_that_becomes_the_clusters_own_is_shown_no_more() -> None:
    """The endpoint goes, and AddressRefused is reported, when a Service or pod of the cluster gets its
    address.
    """
    stage = Stage()
    stage.source.listed = [instance(1)]
    stage.reconcile()
    stage.policy = AddressPolicy(parse_networks(["192.0.2.0/24"]), cluster_addresses=frozenset({"192.0.2.1"}))
    assert "own Services or pods" in stage.problem("AddressRefused")
    assert stage.shows() == {}


def test_a_host_name_that_is_elsewhere_is_reported() -> None:
    """HostNameDiffers warns that Spring's clients call another address than the Service; the mirror stays
    synced.
    """
    stage = Stage()
    stage.addresses |= {"same.example": ("192.0.2.1",), "other.example": ("192.0.2.66", "192.0.2.67")}
    stage.addresses |= {"six.example": ("2001:db8::9",)}
    names = ("same.example", "other.example", "six.example", "nowhere.example", "192.0.2.99", "")
    stage.source.listed = [replace(instance(number), host_name=name) for number, name in enumerate(names, 1)]
    stage.source.listed.append(
        replace(
            instance(9), host_name="other.example", metadata={"eurekube.owner": "cluster/eks/shop/review"}
        )
    )
    report = stage.reconcile().report
    assert report is not None
    assert list(report.problems) == ["HostNameDiffers"]
    assert report.problems["HostNameDiffers"].message == (
        "REVIEW vm-2 is called at 192.0.2.2 (ipAddr) by the Service, and by Spring's clients at other.example"
        " (hostName), which resolves to 192.0.2.66, 192.0.2.67 here"
    )
    assert (report.synced_condition[0], report.ready_condition[0]) == (True, True)
    assert stage.shows().keys() == {f"192.0.2.{number}" for number in range(1, 7)}


def test_our_own_registrations_make_no_service() -> None:
    """A pattern of ``*`` does not mirror applications that this cluster's syncers registered."""
    stage = Stage(pattern="*", allow=["R*"])
    stage.source.listed = [instance(1, metadata={"eurekube.owner": "cluster/eks/shop/review"})]
    stage.reconcile()
    assert stage.api.writes == []


def test_an_unreadable_or_paused_mirror_keeps_what_it_shows() -> None:
    """A mirror with an invalid spec, an unknown Eureka or a pause keeps its endpoints, and Synced gives
    the reason.
    """
    stage = Stage()
    stage.source.listed = [instance(1)]
    stage.reconcile()
    stage.source.listed = []
    for spec, reason in (
        ({}, "InvalidSpec"),
        ({"application": "review", "eureka": "nowhere"}, "UnknownEureka"),
        ({"application": "review", "paused": True}, "Paused"),
    ):
        stage.edited(**spec)
        report = stage.reconcile().report
        assert report is not None
        is_synced, said = report.synced_condition
        assert (is_synced, said.reason) == (False, reason)
        assert report.ready == 1
        assert stage.api.writes == []


def test_a_deleted_mirror_takes_its_own_away() -> None:
    """The mirror removes its Service and slices, then its finalizer; a second reconcile does nothing."""
    stage = Stage()
    stage.source.listed = [instance(1)]
    stage.reconcile()
    stage.deleted()
    stage.reconcile()
    assert stage.api.writes[-1] == "PATCH eurekamirrors/legacy"
    assert (stage.service(), stage.shows()) == (None, {})
    one(stage.objects.mirrors).apply_event("DELETED", {"metadata": {"namespace": "shop", "name": "legacy"}})
    assert stage.reconciler.reconcile(KEY).report is None


def test_a_mirror_goes_though_the_rights_in_its_namespace_went_first() -> None:
    """When a deletion ends with 403, as in a namespace that is being deleted, the finalizer goes all the
    same, and owner references remove the rest; a 429 is raised.
    """
    stage = Stage()
    stage.source.listed = [instance(1)]
    stage.reconcile()
    stage.deleted()
    stage.api.fails = KubernetesError("forbidden", status_code=403)
    stage.reconcile()
    assert stage.api.writes[-1] == "PATCH eurekamirrors/legacy"
    stage = Stage()
    stage.reconcile()
    stage.deleted()
    stage.api.fails = KubernetesError("busy", status_code=429)
    with pytest.raises(KubernetesError):
        stage.reconcile()


def test_the_finalizer_comes_before_anything_else() -> None:
    """A mirror gets its finalizer before it makes an object, so that its deletion cannot leave objects
    behind.
    """
    stage = Stage()
    item = dict(one(stage.objects.mirrors).get(*KEY))
    item["metadata"] = {**item["metadata"], "finalizers": []}
    stage.api.objects[MIRRORS.path(*KEY)] = item
    one(stage.objects.mirrors).apply_event("MODIFIED", item)
    stage.reconcile()
    assert stage.api.writes[0] == "PATCH eurekamirrors/legacy"


@pytest.mark.parametrize("becomes", [None, {"uid": "another"}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}])
def test_nothing_is_made_for_a_mirror_that_is_gone_already(becomes: dict[str, Any] | None) -> None:
    """A mirror that was deleted before it got its finalizer makes nothing, since nobody would remove it."""
    stage = Stage()
    item = dict(one(stage.objects.mirrors).get(*KEY))
    item["metadata"] = {**item["metadata"], "finalizers": []}
    one(stage.objects.mirrors).apply_event("MODIFIED", item)
    if becomes is None:
        del stage.api.objects[MIRRORS.path(*KEY)]
    else:
        stage.api.objects[MIRRORS.path(*KEY)] = {**item, "metadata": {**item["metadata"], **becomes}}
    stage.source.listed = [instance(1)]
    stage.reconcile()
    assert stage.api.writes == []


def test_a_write_that_fails_is_repeated_and_doubles_nothing() -> None:
    """Slice names are counted, not random: a repeated creation whose answer was lost meets the existing
    slice.
    """
    stage = Stage()
    stage.source.listed = [instance(1)]
    stage.api.fails = KubernetesError("busy", status_code=429)
    with pytest.raises(KubernetesError):
        stage.reconcile()
    stage.reconcile()
    assert stage.shows() == {"192.0.2.1": True}
    (item,) = stage.objects.slices_of(KEY)["review"]
    stage.objects.remove_deleted(stage.objects.slices, item)  # as if we had never heard of it
    with pytest.raises(KubernetesError, match="there is one"):
        stage.reconcile()


def test_what_somebody_changed_on_a_service_is_put_right() -> None:
    """The mirror restores its ports and labels, and keeps labels that others added."""
    stage = Stage()
    stage.reconcile()
    service = stage.service()
    assert service is not None
    service["metadata"]["labels"]["team"] = "a"
    service["spec"]["ports"] = [{"name": "x", "port": 1, "protocol": "TCP"}]
    service["metadata"]["resourceVersion"] = "99"
    one(stage.objects.services).apply_event("MODIFIED", service)
    stage.reconcile()
    assert stage.api.writes == ["PATCH services/review"]
    after = stage.service()
    assert after is not None
    assert after["metadata"]["labels"]["team"] == "a"
    assert [each["port"] for each in after["spec"]["ports"]] == [80]


@pytest.mark.parametrize("spec", [{"port": 81}, {"serviceName": "reviews"}])
@pytest.mark.parametrize("becomes", [{"labels": {"team": "a"}}, {"uid": "another"}])
def test_a_service_that_became_a_persons_is_not_written_to(
    becomes: dict[str, Any], spec: dict[str, Any]
) -> None:
    """A Service that lost the mirror's label or was created anew, unreported by the watch, is neither
    patched nor deleted.
    """
    stage = Stage()
    stage.source.listed = [instance(1)]
    stage.reconcile()
    path = "/api/v1/namespaces/shop/services/review"
    theirs = {**stage.api.objects[path]["metadata"], "resourceVersion": "99", **becomes}
    stage.api.objects[path] = item = {**stage.api.objects[path], "metadata": theirs}
    stage.edited(application="review", **spec)
    with pytest.raises(KubernetesError, match="changed meanwhile"):
        stage.reconcile()
    assert stage.service() == item


def test_slices_leave_a_service_that_a_person_took() -> None:
    """When a person takes the mirror's label off a Service, the mirror removes its slices and leaves the
    Service.
    """
    stage = Stage()
    stage.source.listed = [instance(1)]
    stage.reconcile()
    service = stage.service()
    assert service is not None
    one(stage.objects.services).apply_event("DELETED", service)
    stage.persons["shop", "review"] = service  # one of ours, of which one watch alone has reported
    stage.reconcile()
    assert stage.shows() == {"192.0.2.1": True}
    stage.persons["shop", "review"] = {"metadata": {"namespace": "shop", "name": "review", "labels": {}}}
    assert "left alone" in stage.problem("NameTaken")
    assert stage.shows() == {}
    assert stage.service() == service


class CrowdedApi(Api):
    """An API server that answers creations of Services only once so many are waiting, in reverse order.

    :ivar crowd: the barrier at which they wait; None if nothing waits.
    """

    def __init__(self) -> None:
        super().__init__()
        self.crowd: threading.Barrier | None = None
        self._lock = threading.Lock()

    def request(self, method: str, path: str, query: object = None, body: Any = None, **more: object) -> Any:
        """Carry out a write as Kubernetes does, after the wait."""
        if self.crowd is not None and method == "POST" and path.endswith("/services"):
            place = self.crowd.wait(30.0)
            if self.fails is not None:
                self.crowd = None  # nobody comes after it for whom the others would wait
            time.sleep(0.002 * place)  # answers come in another order than the questions
        with self._lock:
            return super().request(method, path, query, body, **more)


def crowded(**spec: Any) -> tuple[Stage, CrowdedApi]:
    """Return a mirror of sixteen applications, with eight writers and a CrowdedApi."""
    stage = Stage(writers=8, api=(api := CrowdedApi()), **spec)
    stage.source.listed = [instance(number, f"app-{number:02}") for number in range(1, 17)]
    api.crowd = threading.Barrier(8)
    return stage, api


def test_applications_wait_for_no_other_ones_writes() -> None:
    """Eight Services are requested before any is answered; each Service is created before its own slices."""
    stage, api = crowded(pattern="APP-*", allow=["APP-*"])
    report = stage.reconcile().report
    assert report is not None
    names = [f"app-{number:02}" for number in range(1, 17)]
    assert [each.service for each in report.services] == names
    assert len(api.writes) == 32
    for name in names:
        own = [each.split()[1] for each in api.writes if f"/{name}" in each]
        assert [each.split("/")[0] for each in own] == ["services", "endpointslices"]
        assert len(stage.shows(name)) == 1
    api.crowd = None
    stage.reconcile()
    assert stage.api.writes == []


def test_old_names_go_once_all_new_ones_stand() -> None:
    """Old Services are deleted after all new ones exist, so that an operator that dies between leaves every
    application callable.
    """
    stage, api = crowded(pattern="APP-*", allow=["APP-*"])
    stage.reconcile()
    stage.edited(pattern="APP-*", allow=["APP-*"], serviceName="{application}-of-old")
    stage.reconcile()
    methods = [each.split()[0] for each in api.writes]
    assert methods == ["POST"] * 32 + ["DELETE"] * 32


def test_a_write_that_fails_among_others_leaves_those_that_were_begun() -> None:
    """After a failure no further write begins; the next reconcile finds the written objects and makes the
    rest.
    """
    stage, api = crowded(pattern="APP-*", allow=["APP-*"])
    api.fails = KubernetesError("no answer")
    with pytest.raises(KubernetesError, match="no answer"):
        stage.reconcile()
    assert 7 <= sum(each.startswith("POST services/") for each in api.writes) < 16
    api.crowd = None
    stage.reconcile()
    assert all(len(stage.shows(f"app-{number:02}")) == 1 for number in range(1, 17))
    assert sum("/services/" in path for path in api.objects) == 16


class RefusingApi(Api):
    """An API server that refuses to create Services of some names.

    :ivar refused: the HTTP status of a refusal, by name; ``asked``: the names that were refused.
    """

    def __init__(self) -> None:
        super().__init__()
        self.refused: dict[str, int] = {}
        self.asked: list[str] = []

    def request(self, method: str, path: str, query: object = None, body: Any = None, **more: object) -> Any:
        """Refuse a creation that is listed in ``refused``; carry out any other write as Kubernetes does."""
        name = body["metadata"].get("name") if method == "POST" and path.endswith("/services") else None
        if name in self.refused:
            self.asked.append(name)
            raise KubernetesError(f"{name} refused", status_code=self.refused[name])
        return super().request(method, path, query, body, **more)


def test_an_application_that_is_refused_keeps_no_other_away() -> None:
    """When a quota or webhook refuses one application's Service, other applications still lose instances
    that left.
    """
    stage = Stage(api=(api := RefusingApi()), pattern="APP-*", allow=["APP-*"])
    stage.source.listed = [instance(1, "app-b"), instance(2, "app-b"), instance(3, "app-old")]
    stage.reconcile()
    stage.source.listed = [instance(1, "app-a"), instance(2, "app-b")]
    stage.source.gone = {("APP-B", "vm-1")}
    stage.edited(pattern="APP-[AB]", allow=["APP-*"])
    api.refused = {"app-a": 422}
    with pytest.raises(KubernetesError, match="app-a refused"):
        stage.reconcile()
    assert stage.shows("app-b") == {"192.0.2.2": True}
    assert stage.service("app-old") is not None  # what goes waits until all stands
    api.refused.clear()
    stage.reconcile()
    assert stage.shows("app-a") == {"192.0.2.1": True}
    assert stage.service("app-old") is None


@pytest.mark.parametrize(("status", "asked"), [(503, 1), (429, 1), (403, 8)])
def test_an_api_server_that_refuses_all_is_left_alone(status: int, asked: int) -> None:
    """A reconcile stops after the first 429 or 503, and after eight refusals with 403."""
    stage = Stage(api=(api := RefusingApi()), pattern="APP-*", allow=["APP-*"])
    names = [f"app-{number:02}" for number in range(1, 21)]
    stage.source.listed = [instance(number + 1, name) for number, name in enumerate(names)]
    api.refused = dict.fromkeys(names, status)
    with pytest.raises(KubernetesError, match="refused"):
        stage.reconcile()
    assert api.asked == names[:asked]


class DyingApi(Api):
    """An API server that carries out a number of writes and answers no other, as if the operator had died.

    :ivar left: how many writes are still carried out.
    """

    def __init__(self) -> None:
        super().__init__()
        self.left = 1000
        self._lock = threading.Lock()

    def request(self, method: str, path: str, query: object = None, body: Any = None, **more: object) -> Any:
        """Carry out a write as Kubernetes does while ``left`` allows it; raise afterwards."""
        with self._lock:
            self.left -= 1
            if self.left < 0:
                raise KubernetesError("no answer")
            return super().request(method, path, query, body, **more)


@pytest.mark.parametrize("left", range(0, 32, 3))
def test_wherever_it_dies_among_writes_all_goes_on_to_be_called(left: int) -> None:
    """If the operator dies while it renames every Service, each application keeps endpoints under its old
    or new name.
    """
    stage = Stage(writers=4, api=(api := DyingApi()), pattern="APP-*", allow=["APP-*"])
    stage.source.listed = [instance(number, f"app-{number}") for number in range(1, 9)]
    stage.reconcile()
    api.left = left
    stage.edited(pattern="APP-*", allow=["APP-*"], serviceName="{application}-new")
    with pytest.raises(KubernetesError, match="no answer"):
        stage.reconcile()
    called = [{**stage.shows(f"app-{number}"), **stage.shows(f"app-{number}-new")} for number in range(1, 9)]
    assert called == [{f"192.0.2.{number}": True} for number in range(1, 9)]
    api.left = 1000
    stage.reconciler.on_leadership_lost()
    stage.reconcile()
    assert [stage.shows(f"app-{number}-new") for number in range(1, 9)] == called
    assert sum("/services/" in path or "/endpointslices/" in path for path in api.objects) == 16


@pytest.mark.parametrize(("status", "count"), [(403, 8), (403, 20), (400, 9), (500, 1), (500, 2)])
def test_what_is_refused_each_time_starves_no_other(status: int, count: int) -> None:
    """With a full quota or a broken webhook, repeated reconciles reach even the last application of the
    alphabet.
    """
    stage = Stage(api=(api := ChoosyApi()), pattern="*", allow=["APP-*", "ZETA"])
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


def test_a_mirror_that_is_deleted_alone_leaves_its_services() -> None:
    """The finalizer ``orphan``, which ``kubectl delete --cascade=orphan`` sets, keeps the Services and
    slices.
    """
    stage = Stage()
    stage.source.listed = [instance(1)]
    stage.reconcile()
    stage.api.objects[MIRRORS.path(*KEY)]["metadata"]["finalizers"].append("orphan")
    stage.deleted()
    stage.reconcile()
    assert stage.shows() == {"192.0.2.1": True}
    assert stage.service() is not None
    assert stage.api.objects[MIRRORS.path(*KEY)]["metadata"]["finalizers"] == ["orphan"]


@pytest.mark.parametrize("state", [NeverRead(), Failing(RegistryUnreachable("no answer"), 0.0), Healthy()])
@pytest.mark.parametrize("eureka", ["default", "nowhere"])
def test_a_deleted_mirror_goes_whatever_becomes_of_its_eureka(state: Any, eureka: str) -> None:
    """A silent or unknown Eureka does not delay the deletion, whose finalizer would block the namespace."""
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


class DeafApi(Api):
    """An API server whose answer to the deletion of a Service is lost, once; its watches are late.

    :ivar has_deleted: False if the deletion is not carried out either.
    """

    def __init__(self, *, has_deleted: bool) -> None:
        super().__init__()
        self._has_deleted, self._is_lost = has_deleted, False

    def request(self, method: str, path: str, query: object = None, body: Any = None, **more: object) -> Any:
        """Carry the request out, unless it is the one that is lost."""
        if method != "DELETE" or "/services/" not in path or self._is_lost:
            return super().request(method, path, query, body, **more)
        self._is_lost = True
        if self._has_deleted:
            super().request(method, path, query, body, **more)
        raise KubernetesError("no answer")


@pytest.mark.parametrize("has_deleted", [True, False])
def test_a_deletion_without_an_answer_costs_no_service(*, has_deleted: bool) -> None:
    """A Service whose deletion got no answer is looked up before the next reconcile: the one that took its
    place is not deleted for it.
    """
    api = DeafApi(has_deleted=has_deleted)
    stage = Stage(api=api)
    stage.source.listed = [instance()]
    stage.reconcile()
    stage.edited(application="review", serviceName="reviews")
    with pytest.raises(KubernetesError, match="no answer"):
        stage.reconcile()
    assert (stage.service("review") is None) is has_deleted
    stage.edited(application="review")
    stage.reconcile()
    written = [one for one in api.writes if " services/" in one]
    assert written == [*(["POST services/review"] if has_deleted else []), "DELETE services/reviews"]
    assert stage.shows() == {"192.0.2.1": True}
    assert stage.service("reviews") is None


def test_a_deleted_mirror_is_cleaned_up_though_lists_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a deleted namespace the right to list may end first: a deletion without an answer does not keep the
    finalizer of a deleted mirror.
    """
    api = DeafApi(has_deleted=True)
    stage = Stage(api=api)
    stage.source.listed = [instance()]
    stage.reconcile()
    stage.edited(application="review", serviceName="reviews")
    with pytest.raises(KubernetesError, match="no answer"):
        stage.reconcile()

    def refuse(*_: object, **__: object) -> None:
        raise KubernetesError("forbidden", status_code=403)

    monkeypatch.setattr(api, "pages", refuse)
    with pytest.raises(KubernetesError, match="forbidden"):
        stage.reconcile()
    stage.deleted()
    stage.reconcile()
    assert stage.service() is None
    assert stage.service("reviews") is None
