"""Mirrored Services that others change: a Service with callers stays, and a person's Service is never
taken over.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from eurekube_provider.core.errors import RegistryUnreachable
from eurekube_provider.core.registry import Failing, NeverRead
from tests.unit.operator.mirror.others import changed_by_others, opted_in, slice_path
from tests.unit.operator.mirror.stage import Stage, instance, one


@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize("spec", [{"application": "review"}, {"pattern": "*", "allow": ["R*"]}])
def test_a_service_whose_annotation_was_taken_off_stays(spec: dict[str, Any], is_listed: bool) -> None:
    """The mirror restores the annotation with the application: a new Service would have another address."""
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
    """Without annotations on the Service and its slice, a mirror with a pattern cannot tell the
    application, and keeps both.
    """
    stage = Stage(pattern="*", allow=["R*"])
    stage.source.listed = [instance(1)]
    stage.reconcile()
    stage.source.listed = []
    changed_by_others(stage, slice_path(stage), annotations={})
    changed_by_others(stage, "/api/v1/namespaces/shop/services/review", annotations={})
    stage.reconcile()
    assert stage.shows() == {"192.0.2.1": True}


@pytest.mark.parametrize("attached", [False, True])
def test_another_application_takes_the_service_over(attached: bool) -> None:
    """When the spec names another application, the Service keeps its address and loses the former
    application's endpoints.
    """
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


@pytest.mark.parametrize(("opts_out", "shows"), [(False, {"192.0.2.1": True}), (True, {})])
def test_what_was_attached_stays_until_it_has_another_place(opts_out: bool, shows: dict[str, bool]) -> None:
    """Attached endpoints stay while the mirror's new Service name is taken, unless the Service they are in
    opts out.
    """
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


@pytest.mark.parametrize("state", [NeverRead(), Failing(RegistryUnreachable("no answer"), 0.0)])
def test_a_service_that_opts_out_is_left_though_eureka_is_silent(state: Any) -> None:
    """The endpoints leave a Service whose annotation was removed; a Service that the mirror does not know
    keeps them.
    """
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


def test_a_service_has_the_labels_and_annotations_that_the_spec_gives() -> None:
    """Labels and annotations go when the spec drops them; those of others and the mirror's own stay."""
    path = "/api/v1/namespaces/shop/services/review"
    given: dict[str, Any] = {
        "serviceLabels": {"team": "stars", "tier": "web"},
        "serviceAnnotations": {"a.io/b": "c d"},
    }
    stage = Stage(application="review", **given)
    stage.source.listed = [instance(1)]
    stage.reconcile()

    def found() -> tuple[dict[str, str], dict[str, str]]:
        metadata = (stage.service() or {})["metadata"]
        ours = {"eurekube.io/mirror": "legacy", "app.kubernetes.io/managed-by": "eurekube"}
        assert metadata["labels"].items() >= ours.items()
        assert metadata["annotations"]["eurekube.io/application"] == "REVIEW"
        own = ("eurekube.io/", "app.kubernetes.io/")
        return tuple(  # type: ignore[return-value]
            {key: value for key, value in metadata[name].items() if not key.startswith(own)}
            for name in ("labels", "annotations")
        )

    assert found() == ({"team": "stars", "tier": "web"}, {"a.io/b": "c d"})
    stands = copy.deepcopy(stage.service() or {})
    stands["metadata"]["labels"] |= {"mine": "1", "tier": "theirs"}
    one(stage.objects.services).apply_event("MODIFIED", stage.api.edited(path, stands))
    stage.edited(application="review", serviceLabels={"team": "moons"})
    stage.reconcile()
    assert found() == ({"team": "moons", "mine": "1"}, {})
    stage.edited(application="review")
    stage.reconcile()
    assert found() == ({"mine": "1"}, {})
    stage.reconcile()
    assert stage.api.writes == []


@pytest.mark.parametrize(
    "written",
    ['{"labels": 5}', '{"annotations": null}', '{"labels": [{}, "mine"]}', "[]", "{", "[" * 100_000],
)
def test_a_service_with_a_nonsense_status_holds_up_no_application(written: str) -> None:
    """The annotation ``eurekube.io/given`` may hold any text, since others may edit the Service; their
    labels stay.
    """
    path = "/api/v1/namespaces/shop/services/review"
    stage = Stage(pattern="*", allow=["R*", "Z*"], serviceLabels={"team": "stars"})
    stage.source.listed = [instance(1), instance(2, "zone")]
    stage.reconcile()
    stands = copy.deepcopy(stage.service() or {})
    stands["metadata"]["annotations"]["eurekube.io/given"] = written
    stands["metadata"]["labels"]["theirs"] = "1"
    one(stage.objects.services).apply_event("MODIFIED", stage.api.edited(path, stands))
    stage.source.listed = [instance(3), instance(4, "zone")]
    stage.reconcile()
    assert (stage.shows()["192.0.2.3"], stage.shows("zone")["192.0.2.4"]) == (True, True)
    metadata = (stage.service() or {})["metadata"]
    assert (metadata["labels"]["team"], metadata["labels"]["theirs"]) == ("stars", "1")
    assert metadata["annotations"]["eurekube.io/given"] == '{"labels": ["team"]}'
