"""A mirror keeps instances that Eureka lacks, unless the Eureka that lacks them is the one that held them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from eurekube_provider.core.brake import RELEASE_BRAKE_ANNOTATION
from eurekube_provider.core.errors import KubernetesError, RegistryUnreachable
from eurekube_provider.core.mirror import SOURCE_ANNOTATION
from eurekube_provider.core.model import Status
from eurekube_provider.core.registry import Failing, Healthy
from eurekube_provider.kube.access import MIRRORS
from tests.unit.operator.mirror.others import ChoosyApi
from tests.unit.operator.mirror.stage import KEY, Source, Stage, instance, one

ONE, TWO, OTHER = "http://one:8761/eureka", "http://two:8761/eureka", "http://other:8761/eureka"
ALL = {("REVIEW", f"vm-{number}") for number in range(1, 40)}


def shown(stage: Stage, *numbers: int, url: str = ONE) -> Stage:
    """Have a mirror show instances of the Eureka at a URL."""
    stage.source.urls = (url,)
    stage.source.listed = [instance(number) for number in numbers]
    stage.reconcile()
    return stage


def move_to_servers(stage: Stage, *urls: str) -> None:
    """Make the connection name other servers, which never held any of the instances."""
    stage.source.urls, stage.source.listed, stage.source.absent = urls, [], {*ALL}
    stage.reconciler.on_leadership_lost()


def release_brake(stage: Stage) -> None:
    """Annotate the mirror to release the brake, as a person does."""
    item = copy.deepcopy(stage.api.objects[MIRRORS.path(*KEY)])
    item["metadata"]["annotations"] = {RELEASE_BRAKE_ANNOTATION: "now"}
    stage.api.objects[MIRRORS.path(*KEY)] = item
    one(stage.objects.mirrors).apply_event("MODIFIED", item)


def sources(stage: Stage) -> dict[str, list[str]]:
    """Return the endpoints' addresses, grouped by the Eureka that the slices' annotation names."""
    return {
        item["metadata"]["annotations"].get(SOURCE_ANNOTATION, ""): [
            each["addresses"][0] for each in item["endpoints"]
        ]
        for path, item in stage.api.objects.items()
        if "/endpointslices/" in path
    }


def test_another_eureka_empties_nothing_at_any_time() -> None:
    """Another Eureka lacks the instances because it never held them; the slices name the Eureka that did."""
    stage = shown(Stage(), 1, 2)
    move_to_servers(stage, OTHER)
    for _ in range(3):
        report = stage.reconcile().report
        assert report is not None
        assert stage.shows() == {"192.0.2.1": True, "192.0.2.2": True}
        assert stage.api.writes == []
        assert (report.held, report.synced_condition[0], report.synced_condition[1].reason) == (
            2,
            False,
            "Braked",
        )
        sentence = report.problems["Braked"].message
        assert ONE in sentence
        assert OTHER in sentence
        stage.now += 100_000.0
    assert stage.source.asked == [], "a server that never held them is asked nothing"


def test_what_is_seen_at_the_other_eureka_is_from_there() -> None:
    """Each slice names the Eureka of its endpoints; once the new Eureka has listed all of them, the mirror
    believes its removals.
    """
    stage = shown(Stage(), 1, 2, 3)
    move_to_servers(stage, OTHER)
    stage.source.listed = [instance(1)]
    stage.reconcile()
    assert sources(stage) == {ONE: ["192.0.2.2", "192.0.2.3"], OTHER: ["192.0.2.1"]}
    stage.source.listed = [instance(1), instance(2), instance(3, status=Status.DOWN)]
    stage.reconcile()
    stage.reconcile()
    assert stage.api.writes == []
    assert sources(stage).keys() == {OTHER}
    assert stage.shows() == {"192.0.2.1": True, "192.0.2.2": True, "192.0.2.3": False}
    stage.source.listed = [instance(1)]
    stage.reconcile()
    assert stage.shows() == {"192.0.2.1": True}


def test_a_mirror_that_reads_another_connection_empties_nothing() -> None:
    """The mirror keeps the endpoints while it reads another connection, and goes on when it reads the
    first one again.
    """
    stage = shown(Stage(), 1, 2)
    stage.sources["west"] = other = Source()
    other.urls, other.absent = (OTHER,), {*ALL}
    stage.edited(application="review", eureka="west")
    for _ in range(2):
        assert "came from" in stage.problem("Braked")
        stage.now += 5000.0
    stage.edited(application="review")
    assert stage.problem("Braked") == ""
    assert sources(stage) == {ONE: ["192.0.2.1", "192.0.2.2"]}
    stage.source.listed = [instance(1)]
    assert "1 of REVIEW" in stage.problem("RemovalsHeld"), "the time at the other one does not count"


def test_one_server_more_or_less_is_the_same_eureka() -> None:
    """A changed list of servers is the same Eureka if it shares a server with the old list."""
    stage = shown(Stage(), 1, 2)
    for urls, numbers in (((ONE, TWO), [1, 2]), ((TWO,), [1])):
        stage.source.urls, stage.source.listed = urls, [instance(number) for number in numbers]
        stage.source.absent = {*ALL}
        stage.reconcile()
        assert sources(stage) == {" ".join(sorted(urls)): [f"192.0.2.{number}" for number in numbers]}


def test_slices_of_an_earlier_version_are_of_the_eureka_that_is_read() -> None:
    """Slices without a source annotation count as from the current Eureka: an upgrade neither holds nor
    removes endpoints.
    """
    stage = shown(Stage(), 1, 2, url="")
    assert sources(stage).keys() == {""}
    stage.source.urls = (ONE,)
    report = stage.reconcile().report
    assert report is not None
    assert (report.problems, report.held) == ({}, 0)
    assert [each.split()[0] for each in stage.api.writes] == ["PUT"]
    assert sources(stage) == {ONE: ["192.0.2.1", "192.0.2.2"]}
    stage.source.listed, stage.source.absent = [instance(1)], {*ALL}
    stage.reconcile()
    assert stage.shows() == {"192.0.2.1": True}


@pytest.mark.parametrize(
    ("before", "left", "goes"),
    [(1, 0, False), (2, 0, False), (2, 1, True), (9, 1, True), (10, 4, False), (10, 5, True), (20, 9, False)],
)
def test_all_or_most_of_ten_do_not_go_by_absence_alone(before: int, left: int, goes: bool) -> None:
    """The mirror is braked when Eureka lacks all instances, or more than half of ten or more: another Eureka
    may answer at the same URL.
    """
    stage = shown(Stage(), *range(1, before + 1))
    stage.source.listed, stage.source.absent = stage.source.listed[:left], {*ALL}
    result = stage.reconcile()
    assert result.report is not None
    assert len(stage.shows()) == (left if goes else before)
    assert ("Braked" in result.report.problems) is not goes
    assert "RemovalsHeld" not in result.report.problems


def test_a_server_that_says_so_is_believed_of_all() -> None:
    """All endpoints go at once when a server says that it deregistered or evicted the instances."""
    stage = shown(Stage(), 1, 2)
    stage.source.listed, stage.source.gone = [], {*ALL}
    stage.reconcile()
    assert stage.shows() == {}


def test_half_an_hour_of_reading_is_believed() -> None:
    """The brake lets go after 30 minutes in which the same servers were read without a gap; a failed reading
    restarts the
    30 minutes.
    """
    stage = shown(Stage(application="review", holdSeconds=60), 1, 2)
    stage.source.listed, stage.source.absent = [], {*ALL}
    stage.reconcile()
    stage.now += 1799.0
    assert "without a gap" in stage.problem("Braked")
    stage.source.state = Failing(RegistryUnreachable("no answer"), 0.0)
    stage.reconcile()
    stage.source.state = Healthy()
    stage.reconcile()
    stage.now += 1799.0
    stage.reconcile()
    assert len(stage.shows()) == 2
    stage.now += 1.0
    assert stage.reconcile().expired_instance_names == ("REVIEW vm-1", "REVIEW vm-2")
    assert stage.shows() == {}


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_person_releases_once(is_elsewhere: bool) -> None:
    """The mirror takes the release annotation off before it removes the endpoints, so that no later
    removal is released.
    """
    stage = shown(Stage(), 1, 2)
    move_to_servers(stage, OTHER if is_elsewhere else ONE)
    stage.reconcile()
    release_brake(stage)
    stage.reconcile()
    assert stage.api.writes[0] == "PATCH eurekamirrors/legacy"
    assert stage.api.writes[1].startswith("DELETE endpointslices/")
    assert stage.shows() == {}
    assert stage.api.objects[MIRRORS.path(*KEY)]["metadata"]["annotations"] == {}


def test_a_release_that_comes_too_late_releases_nothing_later() -> None:
    """A release annotation that finds nothing held is taken off once Eureka answers: the next hold stands."""
    stage = shown(Stage(), 1, 2)
    stage.source.state = Failing(RegistryUnreachable("no answer"), since=0.0, lasts=True)
    release_brake(stage)
    stage.reconcile()
    assert "PATCH eurekamirrors/legacy" not in stage.api.writes, "what is held is not known yet"
    stage.source.state = Healthy()
    stage.reconcile()
    assert stage.api.writes == ["PATCH eurekamirrors/legacy"]
    item = stage.api.objects[MIRRORS.path(*KEY)]
    assert item["metadata"]["annotations"] == {}
    one(stage.objects.mirrors).apply_event("MODIFIED", copy.deepcopy(item))
    stage.source.listed, stage.source.absent = [], {*ALL}
    assert stage.problem("Braked")
    assert stage.shows() == {"192.0.2.1": True, "192.0.2.2": True}


def test_a_release_that_was_begun_is_finished() -> None:
    """When the API server refuses one removal, the next reconcile repeats it, although the annotation is
    gone.
    """
    stage = Stage(api=(api := ChoosyApi()), pattern="APP-*", allow=["APP-*"])
    stage.source.urls = (ONE,)
    stage.source.listed = [instance(1, "app-a"), instance(2, "app-b")]
    stage.reconcile()
    move_to_servers(stage, OTHER)
    stage.reconcile()
    release_brake(stage)
    item = api.objects[MIRRORS.path(*KEY)]
    real, api.fails = api.request, None

    def request(method: str, path: str, *given: Any, **more: Any) -> Any:
        if method == "DELETE" and "app-b" in path:
            raise KubernetesError("changed", status_code=409)
        return real(method, path, *given, **more)

    api.request = request  # type: ignore[method-assign]
    with pytest.raises(KubernetesError):
        stage.reconcile()
    api.request = real  # type: ignore[method-assign]
    one(stage.objects.mirrors).apply_event(
        "MODIFIED", {**item, "metadata": {**item["metadata"], "annotations": {}}}
    )
    stage.reconcile()
    assert (stage.shows("app-a"), stage.shows("app-b")) == ({}, {})
    stage.source.listed = [instance(3, "app-a")]
    stage.reconcile()
    stage.source.listed, stage.source.absent = [], {("APP-A", "vm-3")}
    stage.reconcile()
    assert stage.shows("app-a") == {"192.0.2.3": True}, "the next hold was not released"
