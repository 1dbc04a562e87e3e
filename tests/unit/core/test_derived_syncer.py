"""EurekaSyncers that are derived from one for all Services of its namespace."""

from __future__ import annotations

from typing import Any

import pytest

from eurekube_provider.core.derived_syncer import (
    FIELDS_BY_ANNOTATION,
    MemberServiceCounts,
    MemberServiceState,
    Membership,
    derived_syncer,
    is_namespace_syncer,
    membership_of_service,
    name_and_uid_of_parent_syncer,
    read_member_service_state,
    split_derived_syncer_name,
)
from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.objects import MIRROR_LABEL
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.syncer import Syncer

ALL_FIELDS = [*FIELDS_BY_ANNOTATION.values(), "metadata", "mode"]


def parent(services: str = "Annotated", **spec: Any) -> dict[str, Any]:
    """A namespace's syncer."""
    metadata = {"namespace": "shop", "name": "all", "uid": "u"}
    return {"metadata": metadata, "spec": {"mode": "pod", "selector": {"services": services}, **spec}}


def service(name: str = "rating", **annotations: str) -> dict[str, Any]:
    """A Service with annotations of ours."""
    written = {f"eurekube.io/{key}": value for key, value in annotations.items()}
    return {"metadata": {"namespace": "shop", "name": name, "annotations": written}, "spec": {}}


API_SERVER = {
    "metadata": {
        "namespace": "shop",
        "name": "kubernetes",
        "labels": {"component": "apiserver", "provider": "kubernetes"},
    }
}
ELSEWHERE = {**service(), "spec": {"type": "ExternalName", "externalName": "example.com"}}
MIRRORED = {"metadata": {**service(sync="true")["metadata"], "labels": {MIRROR_LABEL: "m"}}}


@pytest.mark.parametrize(
    ("given", "annotated", "every"),
    [
        (None, Membership.NOT_A_MEMBER, Membership.NOT_A_MEMBER),
        (service(), Membership.NOT_A_MEMBER, Membership.MEMBER),
        (service(sync="pod"), Membership.MEMBER, Membership.MEMBER),
        (service(sync="service"), Membership.MEMBER, Membership.MEMBER),
        (service(sync="true"), Membership.MEMBER, Membership.MEMBER),
        (service(sync="false"), Membership.OPTED_OUT, Membership.OPTED_OUT),
        (service(sync="False"), Membership.OPTED_OUT, Membership.OPTED_OUT),
        (service(port="80"), Membership.NOT_A_MEMBER, Membership.MEMBER),
        (API_SERVER, Membership.NOT_A_MEMBER, Membership.NOT_A_MEMBER),
        (ELSEWHERE, Membership.NOT_A_MEMBER, Membership.NOT_A_MEMBER),
        (MIRRORED, Membership.NOT_A_MEMBER, Membership.NOT_A_MEMBER),
    ],
)
def test_who_joins(given: dict[str, Any] | None, annotated: Membership, every: Membership) -> None:
    """The API server, DNS names and what comes from Eureka are not meant by all."""
    assert (membership_of_service(parent(), given), membership_of_service(parent("All"), given)) == (
        annotated,
        every,
    )


FULL = {
    "application": "Ratings",
    "vip-address": "stars",
    "secure-vip-address": "stars-tls",
    "port": "8080",
    "secure-port": "https",
    "home-page-path": "/home",
    "status-page-path": "/info",
    "health-check-path": "/health",
    "health-check-port": "8081",
    "metadata.team": "stars",
    "sync": "service",
}


def test_only_listed_annotations_count() -> None:
    """The author of a Service sets only the fields that the author of the syncer listed."""
    assert derived_syncer(parent(), service(**{**FULL, "sync": "pod"}))["spec"] == {
        "mode": "pod",
        "selector": {"service": "rating"},
        "application": "rating",
    }
    for name in ("address", "eureka", "policy", "paused", "remove-dead-self-registered", "selector"):
        derived = derived_syncer(parent(annotations=ALL_FIELDS), service(sync="true", **{name: "x"}))
        assert derived["spec"].keys() == {"mode", "selector", "application"}


def test_each_field_by_its_annotation() -> None:
    """All of them are listed, and are what a syncer of its own would have."""
    derived = derived_syncer(parent(annotations=ALL_FIELDS), service(**FULL))
    assert derived["spec"] == {
        "mode": "service",
        "selector": {"service": "rating"},
        "application": "Ratings",
        "vipAddress": "stars",
        "secureVipAddress": "stars-tls",
        "port": 8080,
        "securePort": "https",
        "homePagePath": "/home",
        "statusPagePath": "/info",
        "healthCheckPath": "/health",
        "healthCheckPort": 8081,
        "metadata": {"team": "stars"},
    }
    assert Syncer.from_object(derived).health_check_port == 8081


def test_the_namespaces_values_are_the_defaults() -> None:
    """Those of the Service win, of metadata each key by itself."""
    spec: dict[str, Any] = {
        "annotations": ["metadata", "port"],
        "port": "http",
        "metadata": {"a": "1", "b": "2"},
    }
    derived = derived_syncer(
        parent(**spec, paused=True, eureka="eu"), service(**{"sync": "true", "metadata.b": "3"})
    )
    assert derived["spec"] == {
        "mode": "pod",
        "selector": {"service": "rating"},
        "application": "rating",
        "port": "http",
        "metadata": {"a": "1", "b": "3"},
        "paused": True,
        "eureka": "eu",
    }


@pytest.mark.parametrize(
    ("template", "expected"),
    [("{service}", "rating"), ("{namespace}-{service}", "shop-rating"), ("x.{service}", "x.rating")],
)
def test_the_application_by_a_template(template: str, expected: str) -> None:
    """And the name by which Spring's clients look it up."""
    derived = derived_syncer(parent(application=template), service(sync="true"))
    assert derived["spec"]["application"] == expected
    assert Syncer.from_object(derived).vip_address == expected


@pytest.mark.parametrize(
    "annotations",
    [
        {"metadata.eurekube.owner": "cluster/a/b/c"},
        {"metadata.a_b": "1"},
        {"metadata.a": "\x00"},
        {"application": "a/b"},
        {"application": ""},
        {"port": ""},
        {"sync": "pods"},
        {"sync": ""},
    ],
)
def test_bad_values_are_refused(annotations: dict[str, str]) -> None:
    """Before the API server is asked, which has the bounds."""
    with pytest.raises(ConfigurationError):
        derived_syncer(parent(annotations=ALL_FIELDS), service(**{"sync": "true", **annotations}))


def test_another_mode_must_be_listed() -> None:
    """A Service that says its mode where it cannot is refused, not served in another one."""
    with pytest.raises(ConfigurationError, match="does not list mode"):
        derived_syncer(parent(), service(sync="service"))
    assert derived_syncer(parent(), service(sync="pod"))["spec"]["mode"] == "pod"
    of_pods = parent(annotations=["mode"], advertise="HostPort")
    spec = derived_syncer(of_pods, service(sync="service"))["spec"]
    assert (spec["mode"], "advertise" in spec) == ("service", False), "an address is chosen for one mode"
    assert derived_syncer(of_pods, service(sync="pod"))["spec"]["advertise"] == "HostPort"


def test_names() -> None:
    """A Service's name has no dot; that of a syncer may have."""
    assert split_derived_syncer_name("all.rating") == ("all", "rating")
    assert split_derived_syncer_name("team.all.rating") == ("team.all", "rating")
    assert (
        split_derived_syncer_name("rating")
        == split_derived_syncer_name(".rating")
        == split_derived_syncer_name("all.")
        == ("", "")
    )
    assert name_and_uid_of_parent_syncer(derived_syncer(parent(), service(sync="true"))) == ("all", "u")
    assert name_and_uid_of_parent_syncer(parent()) == name_and_uid_of_parent_syncer(None) == ("", "")
    assert (is_namespace_syncer(parent()), is_namespace_syncer(None)) == (True, False)


def test_a_namespaces_syncer_registers_nothing_itself() -> None:
    """Whoever does not know it meets one that cannot be served."""
    with pytest.raises(ConfigurationError, match="EurekaSyncer of its own"):
        Syncer.from_object(parent())


def test_the_order_of_the_worst() -> None:
    """First what callers do not find, then what nobody knows, then what is not in sync."""
    problem = Problem("x", "y")
    states = [
        MemberServiceState("a", True, problem),
        MemberServiceState("b", None, problem),
        MemberServiceState("c", False, problem),
        MemberServiceState("d", True),
    ]
    assert [one.service for one in MemberServiceCounts.of(states).worst_services] == ["c", "b", "a"]


def test_the_state_of_one_that_is_not_there() -> None:
    """It is awaited, or was refused and callers find nothing."""
    assert (
        read_member_service_state("a", None, None).is_ready,
        read_member_service_state("a", None, Problem("x", "y")).is_ready,
    ) == (
        None,
        False,
    )


def test_the_state_of_one_whose_last_change_was_not_seen() -> None:
    """It is not in sync, whatever its status says of what was before."""
    conditions = [
        {"type": kind, "status": "True", "reason": "Synced", "message": "", "observedGeneration": 1}
        for kind in ("Ready", "Synced")
    ]
    for generation, is_up_to_date, reason in ((1, True, ""), (2, True, "Joining"), (1, False, "Joining")):
        item = {"metadata": {"generation": generation}, "status": {"conditions": conditions}}
        state = read_member_service_state("a", item, None, is_up_to_date=is_up_to_date)
        assert (state.is_ready, state.problem.reason if state.problem else "") == (True, reason)
