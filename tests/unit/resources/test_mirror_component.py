"""The arguments of the component EurekaMirror, and the custom resource made from them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from eurekube_provider.core.mirror import Mirror
from eurekube_provider.resources.files import crd_documents
from eurekube_provider.resources.mirror_component import (
    EurekaMirror,
    EurekaMirrorArgs,
    EurekaMirrorArgsDict,
    mirror_spec,
)
from eurekube_provider.resources.program import ProgramError

FULL: dict[str, Any] = {
    "application": "review",
    "pattern": "SHOP-*",
    "allow": ["SHOP-REVIEW"],
    "eureka": "eu-west",
    "service_name": "vm-{application}",
    "service_labels": {"app": "review"},
    "service_annotations": {"example.com/team": "stars"},
    "headless": True,
    "attach_to": "review",
    "port": 8080,
    "port_name": "web",
    "secure_port": 8443,
    "secure_port_name": "tls",
    "allowed_cidrs": ["192.0.2.0/24"],
    "zones": {"dc1": "eu-1a"},
    "include_other_clusters": True,
    "hold_seconds": 60,
    "max_services": 30,
    "paused": True,
}


def test_only_what_was_given_is_written() -> None:
    """Arguments that are not given are left to the CRD's defaults."""
    assert mirror_spec(EurekaMirrorArgs(namespace="shop", application="review")) == {"application": "review"}


def test_every_argument_has_its_field_and_every_field_its_argument() -> None:
    """With all arguments the spec has every property of the CRD, and the operator can parse it."""
    assert {*FULL, "namespace", "name", "annotations", "labels"} == {
        item.name for item in fields(EurekaMirrorArgs)
    }
    spec = mirror_spec(EurekaMirrorArgs(namespace="shop", **FULL))
    (document,) = (crd for crd in crd_documents() if crd["spec"]["names"]["kind"] == "EurekaMirror")
    schema = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert set(spec) == set(schema)
    for name in ("pattern", "allow", "attachTo"):
        spec.pop(name)
    mirror = Mirror.from_object({"metadata": {"namespace": "shop", "name": "x"}, "spec": spec})
    assert (mirror.port.name, mirror.secure_port.number, mirror.hold_seconds) == ("web", 8443, 60)
    assert (str(mirror.allowed_networks[0]), mirror.zones, mirror.eureka) == (
        "192.0.2.0/24",
        {"dc1": "eu-1a"},
        "eu-west",
    )


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ({}, "either application or pattern"),
        ({"application": "a", "pattern": "b"}, "either application or pattern"),
        ({"pattern": "*"}, "pattern needs allow"),
        ({"aplication": "a"}, "there is no argument 'aplication'"),
    ],
)
def test_a_mirror_of_nothing_or_of_everything_is_refused(args: dict[str, Any], sentence: str) -> None:
    """The error is one sentence, raised before any resource is created."""
    given: Any = {"namespace": "shop", **args}
    with pytest.raises(ProgramError, match=f"'review': {sentence}"):
        EurekaMirror("review", given)


def test_both_forms_of_the_arguments_are_the_same() -> None:
    """The dictionary type has the argument names of the class."""
    assert set(EurekaMirrorArgsDict.__annotations__) == {item.name for item in fields(EurekaMirrorArgs)}
