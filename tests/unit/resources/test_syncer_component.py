"""The arguments of the component EurekaSyncer, and the custom resource made from them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from eurekube_provider.core.syncer import Syncer
from eurekube_provider.resources.files import crd_documents
from eurekube_provider.resources.program import ProgramError
from eurekube_provider.resources.syncer_component import (
    EurekaSyncer,
    EurekaSyncerArgs,
    EurekaSyncerArgsDict,
    syncer_spec,
)

FULL: dict[str, Any] = {
    "app": "rating",
    "match_labels": {"team": "stars"},
    "service": "rating",
    "services": "All",
    "service_annotations": ["port"],
    "selector_namespace": "shop",
    "mode": "pod",
    "application": "ratings",
    "vip_address": "stars",
    "secure_vip_address": "stars-tls",
    "port": "http",
    "secure_port": 8443,
    "advertise": "Auto",
    "nodes": 5,
    "address": "198.51.100.7",
    "metadata": {"team": "stars"},
    "metadata_from_labels": ["version"],
    "metadata_from_pod_labels": ["pod-template-hash"],
    "metadata_from_ports": {"management.port": "management"},
    "metadata_from_annotations": {"team": "example.com/team"},
    "home_page_path": "/",
    "status_page_path": "/info",
    "health_check_path": "/health",
    "health_check_port": "management",
    "renewal_interval_seconds": 10,
    "duration_seconds": 30,
    "policy": "Sync",
    "paused": False,
    "not_ready": "Remove",
    "on_termination": "OutOfService",
    "remove_dead_self_registered": False,
    "callers_seconds": "Computed",
    "when_eureka_is_away": "Wait",
    "eureka": "eu-west",
}


def test_only_what_was_given_is_written() -> None:
    """Arguments that are not given are left to the CRD's defaults, which may change."""
    assert syncer_spec(EurekaSyncerArgs(namespace="team", app="rating")) == {
        "mode": "pod",
        "selector": {"app": "rating"},
    }


def test_every_argument_has_its_field_and_every_field_its_argument() -> None:
    """With all arguments the spec has every property of the CRD, and the operator can parse it."""
    others = {"namespace", "name", "annotations", "labels", "wait_ready_seconds"}
    assert {*FULL, *others} == {item.name for item in fields(EurekaSyncerArgs)}
    spec = syncer_spec(EurekaSyncerArgs(namespace="team", **FULL))
    (document,) = (crd for crd in crd_documents() if crd["spec"]["names"]["kind"] == "EurekaSyncer")
    schema = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert set(spec) == set(schema)
    assert set(spec["selector"]) == set(schema["selector"]["properties"])
    for group in ("lease", "readinessGate"):
        assert set(spec[group]) == set(schema[group]["properties"])
    del spec["selector"]["services"]
    syncer = Syncer.from_object({"metadata": {"namespace": "team", "name": "x"}, "spec": spec})
    assert (syncer.port, syncer.secure_port, syncer.eureka) == ("http", 8443, "eu-west")


def test_a_syncer_that_selects_nothing_is_refused() -> None:
    """The error is one sentence, raised before any resource is created."""
    with pytest.raises(ProgramError, match="'rating': app, match_labels, service or services must say"):
        EurekaSyncer("rating", EurekaSyncerArgs(namespace="shop"))


def test_both_forms_of_the_arguments_are_the_same() -> None:
    """The dictionary type has the argument names of the class; a misspelt name is refused with a
    suggestion.
    """
    assert set(EurekaSyncerArgsDict.__annotations__) == {item.name for item in fields(EurekaSyncerArgs)}
    with pytest.raises(ProgramError, match="'rating': app, match_labels, service or services must say"):
        EurekaSyncer("rating", {"namespace": "shop"})
    misspelt: Any = {"namespace": "shop", "aplication": "rating"}
    with pytest.raises(ProgramError, match=r"'rating': there is no argument 'aplication'; .*application"):
        EurekaSyncer("rating", misspelt)
    with pytest.raises(ProgramError, match="'rating': app, match_labels, service or services must say"):
        EurekaSyncer("rating", namespace="shop", name="of-its-own")
    both: Any = {"namespace": "shop"}
    with pytest.raises(ProgramError, match="'rating': app must be among the other arguments"):
        EurekaSyncer("rating", args=both, app="rating")  # type: ignore[call-overload]
    none: Any = {}
    with pytest.raises(ProgramError, match="'rating': there are no arguments"):
        EurekaSyncer("rating", **none)
    twice: Any = {"namespace": "shop", "matchLabels": {}, "match_labels": {}}
    with pytest.raises(ProgramError, match="'rating': match_labels is there twice"):
        EurekaSyncer("rating", twice)
    nowhere: Any = {"app": "rating"}
    with pytest.raises(ProgramError, match="'rating': namespace is required"):
        EurekaSyncer("rating", nowhere)


@pytest.mark.parametrize("wrong", [0, -1, 2.5, "60"])
def test_no_time_to_wait_for_ready(wrong: Any) -> None:
    """An invalid ``wait_ready_seconds`` is refused before any resource is created."""
    with pytest.raises(ProgramError, match="'rating': wait_ready_seconds must be a whole number from 1 on"):
        EurekaSyncer("rating", EurekaSyncerArgs(namespace="shop", app="rating", wait_ready_seconds=wrong))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"labels": {"eurekube.io/stack": "x"}}, "labels must not set eurekube.io/stack"),
        ({"annotations": {"a": 1}}, "annotations: a must be text"),
        (
            {"annotations": {"pulumi.com/waitFor": "x"}, "wait_ready_seconds": 5},
            "annotations must not set pulumi.com/waitFor beside wait_ready_seconds",
        ),
    ],
)
def test_labels_and_annotations_that_cannot_be(wrong: Any, sentence: str) -> None:
    """The stack's label, by which the guard tells stacks apart, cannot be set."""
    with pytest.raises(ProgramError, match=f"'rating': {sentence}"):
        EurekaSyncer("rating", EurekaSyncerArgs(namespace="shop", app="rating", **wrong))


def schemas(schema: dict[str, Any], path: str = "") -> list[tuple[str, dict[str, Any]]]:
    """Return a schema and all schemas within it, by path."""
    found = [(path, schema)]
    for name, inner in schema.get("properties", {}).items():
        found += schemas(inner, f"{path}.{name}")
    for word in ("items", "additionalProperties"):
        if word in schema:
            found += schemas(schema[word], f"{path}[]")
    return found


@pytest.mark.parametrize("document", crd_documents(), ids=lambda crd: crd["spec"]["names"]["kind"])
def test_everything_has_its_bounds(document: dict[str, Any]) -> None:
    """Every number, text, list and map in a CRD's schema is bounded, which also limits the cost of its
    validation rules.
    """
    root = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    missing = []
    for part in ("spec", "status"):
        for path, schema in schemas(root[part], part):
            kind = "intOrString" if schema.get("x-kubernetes-int-or-string") else schema["type"]
            needed = {
                "string": () if {"enum", "format"} & set(schema) else ("maxLength",),
                "integer": ("minimum",),
                "intOrString": ("minimum", "maximum", "maxLength"),
                "array": ("maxItems",),
                "object": () if "properties" in schema else ("maxProperties",),
            }.get(kind, ())
            missing += [f"{path}: {word}" for word in needed if word not in schema]
    assert missing == []
