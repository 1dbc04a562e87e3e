"""The package schema, from which Pulumi SDKs are generated."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eurekube_provider.provider.components import COMPONENT_CLASS_NAMES_BY_TOKEN
from eurekube_provider.provider.configuration import CONFIGURATION_KEYS
from eurekube_provider.provider.functions import FUNCTIONS_BY_TOKEN
from eurekube_provider.provider.native_resource import (
    INSTANCE_IDS_OUTPUT,
    NAMES_ADDED_BY_PROVIDER,
    RESOURCE_KINDS_BY_TOKEN,
)
from eurekube_provider.provider.served_schema import COMMITTED_SCHEMA_FILE
from eurekube_provider.registrations.members import (
    APPLICATION_INPUT_NAMES,
    APPLICATION_OUTPUT_NAMES,
    MEMBER_PROPERTY_NAMES,
)
from eurekube_provider.registrations.names import to_camel_case
from eurekube_provider.registrations.properties import INPUT_NAMES, OUTPUT_ONLY_NAMES, PROPERTIES
from scripts.provider_schema import make_schema, schema_text


def inputs_of(token: str) -> dict[str, Any]:
    """Return the inputs that a program may write."""
    found: dict[str, Any] = make_schema()["resources"][token]["inputProperties"]
    return found


def test_the_committed_schema_is_that_of_the_code() -> None:
    """The committed schema equals the code's; else run ``make properties`` and generate the SDKs again."""
    assert COMMITTED_SCHEMA_FILE.read_text(encoding="utf-8") == schema_text()
    assert json.loads(schema_text()) == make_schema()


@pytest.mark.parametrize(
    ("token", "inputs", "outputs"),
    [
        ("eurekube:index:Instance", INPUT_NAMES, OUTPUT_ONLY_NAMES),
        (
            "eurekube:index:Application",
            APPLICATION_INPUT_NAMES,
            (*APPLICATION_OUTPUT_NAMES, INSTANCE_IDS_OUTPUT),
        ),
    ],
)
def test_every_property_is_there(token: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
    """A resource has all properties of the provider, with a description, and no input that the provider
    decides itself.
    """
    known = make_schema()["resources"][token]
    assert set(known["inputProperties"]) == {
        to_camel_case(name) for name in inputs if name not in NAMES_ADDED_BY_PROVIDER
    }
    reported = {"status_is_enforced", "seen_incarnation"}  # bookkeeping, of no use to a program
    assert set(known["properties"]) == {
        to_camel_case(name) for name in (*inputs, *outputs) if name not in reported
    }
    assert all(each["description"] for each in known["inputProperties"].values())


def test_an_instance_of_an_application_has_what_is_its_own() -> None:
    """An application's instance has exactly the properties that the check accepts for one instance."""
    found = make_schema()["types"]["eurekube:index:ApplicationInstance"]["properties"]
    assert set(found) == {to_camel_case(name) for name in MEMBER_PROPERTY_NAMES}


FIXED_OF_A_RESOURCE = {"onConflict": "fail", "drainSeconds": "0", "connection": "default"}
"""Default, as described in the schema, of each property that no instance has of its own."""


def test_no_default_says_what_a_person_did_not() -> None:
    """Defaults stand in descriptions only, because an SDK would send a declared default and store it in
    each state.
    """
    for token in RESOURCE_KINDS_BY_TOKEN:
        assert not any("default" in each for each in inputs_of(token).values())
        descriptions = {name: inputs_of(token)[name]["description"] for name in FIXED_OF_A_RESOURCE}
        assert {
            name: f"Default: `{value}`." in descriptions[name] for name, value in FIXED_OF_A_RESOURCE.items()
        } == (dict.fromkeys(descriptions, True))
    member = make_schema()["types"]["eurekube:index:ApplicationInstance"]["properties"]
    assert not any("default" in each for each in member.values())


def test_choices_are_enums() -> None:
    """Enums have exactly the values that the check accepts."""
    for each in PROPERTIES:
        for value in each.choices:
            assert each.check(value) == value
    assert inputs_of("eurekube:index:Instance")["status"]["$ref"] == "#/types/eurekube:index:Status"


def test_credentials_are_secrets() -> None:
    """Credentials in the stack's and the program's provider configuration are secrets."""
    for keys in (make_schema()["config"]["variables"], make_schema()["provider"]["inputProperties"]):
        secret = {name for name, each in keys.items() if each.get("secret")}
        assert {"password", "token", "proxy", "connections"} == secret
        assert keys.keys() == CONFIGURATION_KEYS.keys()


def test_all_functions_and_resources_are_served() -> None:
    """The schema has all functions, resources and components that the plugin serves."""
    assert make_schema()["functions"].keys() == FUNCTIONS_BY_TOKEN.keys()
    assert make_schema()["resources"].keys() == {*RESOURCE_KINDS_BY_TOKEN, *COMPONENT_CLASS_NAMES_BY_TOKEN}


def test_components_are_described_as_their_classes_are() -> None:
    """Components have their classes' required inputs, defaults, secrets and descriptions, also in nested
    types.
    """
    types = make_schema()["types"]
    operator, syncer = (
        make_schema()["resources"][f"eurekube:index:{name}"] for name in ("Operator", "Syncer")
    )
    assert (operator["isComponent"], syncer["isComponent"]) == (True, True)
    assert (operator["requiredInputs"], syncer["requiredInputs"]) == (["eurekaUrls"], ["namespace"])
    inputs = operator["inputProperties"]
    assert {name for name, each in inputs.items() if each.get("secret")} == {
        "clientCertificate",
        "clientKey",
        "password",
        "targetSecrets",
        "token",
    }
    assert (inputs["replicas"]["default"], inputs["keepCrds"]["default"]) == (3, True)
    assert syncer["inputProperties"]["port"]["oneOf"] == [{"type": "integer"}, {"type": "string"}]
    assert syncer["inputProperties"]["notReady"]["$ref"] == "#/types/eurekube:index:SyncerNotReady"
    assert [each["value"] for each in types["eurekube:index:SyncerNotReady"]["enum"]] == ["Down", "Remove"]
    names = ("EurekaConnection", "EurekaSecret", "PodToleration", "RefreshTarget")
    inner = [types[f"eurekube:index:{name}"]["properties"] for name in names]
    for described in (inputs, syncer["inputProperties"], *inner):
        assert [name for name, each in described.items() if not each["description"]] == []
        assert not any("_" in name for name in described)
    assert types["eurekube:index:EurekaConnection"]["properties"]["password"]["secret"]


def test_sdks_have_names_that_people_can_read() -> None:
    """Enum values have readable names, and outputs that every state has are required."""
    made = make_schema()
    names = {each["value"]: each["name"] for each in made["types"]["eurekube:index:Status"]["enum"]}
    assert names == {
        "UP": "Up",
        "DOWN": "Down",
        "STARTING": "Starting",
        "OUT_OF_SERVICE": "OutOfService",
    }
    resources = made["resources"]
    one, many = (resources[f"eurekube:index:{each}"]["required"] for each in ("Instance", "Application"))
    assert {"instanceId", "hostName", "port", "status"} <= set(one)
    assert {"instanceIds", "instances", "statuses"} <= set(many)
    assert not {"port", "hostName", "status"} & set(many)  # of each instance
    assert "see below" not in schema_text()
