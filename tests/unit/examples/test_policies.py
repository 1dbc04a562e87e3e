"""Rules of the example policy pack, without Pulumi."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from eurekube_provider.core.identity import (
    DYNAMIC_APPLICATION_TYPE,
    DYNAMIC_INSTANCE_TYPE,
    NATIVE_APPLICATION_TYPE,
    NATIVE_INSTANCE_TYPE,
)
from eurekube_provider.registrations.names import rename_properties, to_camel_case

GOOD: dict[str, Any] = {"application": "BILLING", "drain_seconds": 30, "zone": "zone-a"}


@pytest.fixture(scope="module")
def rules() -> ModuleType:
    """Return the example's module of rules."""
    path = Path(__file__).parents[3] / "examples" / "policies" / "rules.py"
    spec = importlib.util.spec_from_file_location("rules", path)
    assert spec
    assert spec.loader
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def found(rules: ModuleType, type_: str, properties: dict[str, Any]) -> dict[str, list[str]]:
    """Return each rule's findings for a resource of either provider."""
    is_native = type_ in (NATIVE_INSTANCE_TYPE, NATIVE_APPLICATION_TYPE)
    written = rename_properties(properties, to_camel_case) if is_native else properties
    reported = {name: rules.violations(name, type_, written, ["billing"]) for name in rules.RULES}
    return {name: each for name, each in reported.items() if each}


@pytest.mark.parametrize("type_", [DYNAMIC_INSTANCE_TYPE, NATIVE_INSTANCE_TYPE])
def test_an_instance_is_drained_has_a_zone_and_a_known_name(rules: ModuleType, type_: str) -> None:
    """Each rule finds its own fault, and a valid instance has no finding."""
    assert found(rules, type_, GOOD) == {}
    assert set(found(rules, type_, {"application": "other"})) == {"drained", "zone", "known-name"}
    assert set(found(rules, type_, {**GOOD, "drain_seconds": 0})) == {"drained"}


@pytest.mark.parametrize("type_", [DYNAMIC_APPLICATION_TYPE, NATIVE_APPLICATION_TYPE])
def test_each_member_of_an_application_is_judged(rules: ModuleType, type_: str) -> None:
    """Each instance of an application is judged with the application's shared properties and its own,
    which win.
    """
    shared = {name: value for name, value in GOOD.items() if name != "zone"}
    members = {"a": {"host_name": "192.0.2.1", "zone": "zone-a"}, "b": {"host_name": "192.0.2.2"}}
    reported = found(rules, type_, {**shared, "instances": members})
    assert list(reported) == ["zone"]
    assert [each.partition(":")[0] for each in reported["zone"]] == ["b"]


def test_other_resources_are_left_alone(rules: ModuleType) -> None:
    """Resources of other packages have no finding."""
    assert found(rules, "aws:s3/bucket:Bucket", {}) == {}
