"""The dynamic provider in Pulumi: its pickled form, its imports, and its arguments and outputs."""

from __future__ import annotations

import base64
import json
import os
import pickle
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pulumi
import pulumi.dynamic.dynamic as dynamic
import pytest
from pulumi.output import Unknown
from pulumi.runtime import rpc

import eurekube_provider
from eurekube_provider.core.model import same_contents_but_status
from eurekube_provider.eureka.protocol.codec import instance_from_json, instance_to_json_object
from eurekube_provider.registrations.desired import DesiredState
from eurekube_provider.registrations.instance_fields import instance_to_properties
from eurekube_provider.registrations.members import (
    APPLICATION_INPUT_NAMES,
    APPLICATION_OUTPUT_NAMES,
    ID_BASE_PROPERTY,
    MEMBER_PROPERTY_NAMES,
)
from eurekube_provider.registrations.properties import INPUT_NAMES, OUTPUT_ONLY_NAMES, PROPERTIES, Property
from eurekube_provider.resources.application import ApplicationProvider, EurekaApplication
from eurekube_provider.resources.arguments import (
    ApplicationInstanceArgs,
    ApplicationInstanceArgsDict,
    EurekaApplicationArgs,
    EurekaApplicationArgsDict,
    EurekaInstanceArgs,
    EurekaInstanceArgsDict,
)
from eurekube_provider.resources.instance import EurekaInstance, InstanceProvider
from eurekube_provider.resources.program import ProgramError, program_organization, refuse_unsupported_options
from scripts.reference import properties_table
from tests.contract.plugin import EACH
from tests.unit.registrations.test_instance_state import state
from tests.unit.registrations.test_properties import LEAST, checked

PICKLED = {
    InstanceProvider: (
        b"\x95@\x00\x00\x00\x00\x00\x00\x00\x8c$eurekube_provider.resources.instance\x94"
        b"\x8c\x10InstanceProvider\x94\x93\x94)\x81\x94."
    ),
    ApplicationProvider: (
        b"\x95F\x00\x00\x00\x00\x00\x00\x00\x8c'eurekube_provider.resources.application\x94"
        b"\x8c\x13ApplicationProvider\x94\x93\x94)\x81\x94."
    ),
}
"""The pickled providers in users' states, after the two bytes of the pickle protocol: 4, and from Python
3.14 on 5.
"""

PROVIDERS = pytest.mark.parametrize("provider", list(PICKLED))


@PROVIDERS
def test_the_pickled_provider_is_frozen(provider: type[InstanceProvider | ApplicationProvider]) -> None:
    """Users' states contain the pickled provider: another module path or an attribute would break their
    next refresh.
    """
    pickled = base64.b64decode(dynamic.serialize_provider(provider()))
    assert pickled == bytes((0x80, pickle.DEFAULT_PROTOCOL)) + PICKLED[provider]
    assert not provider.serialize_as_secret_always


@PROVIDERS
@pytest.mark.parametrize("protocol", [4, 5])
def test_every_python_reads_what_another_wrote(
    provider: type[InstanceProvider | ApplicationProvider], protocol: int
) -> None:
    """A stack can move to a newer or an older Python."""
    written = bytes((0x80, protocol)) + PICKLED[provider]
    assert type(pickle.loads(written)) is provider  # noqa: S301 - our own bytes


def test_the_type_tokens_are_frozen() -> None:
    """The type tokens are part of every URN in users' states."""
    assert EurekaInstance._resource_type_name == "dynamic/eurekube:EurekaInstance"  # noqa: SLF001 - Pulumi's
    assert EurekaApplication._resource_type_name == "dynamic/eurekube:EurekaApplication"  # noqa: SLF001 - Pulumi's


NO_CLIENT = ("kubernetes", "pulumi_kubernetes", "eurekube_provider.kube")
LOADED: dict[str, tuple[str, ...]] = {
    "eurekube_provider": ("pulumi", "kubernetes", "requests"),
    "eurekube_provider.provider.server": ("pulumi", "pulumi_kubernetes", "yaml"),
    "eurekube_provider.resources.instance": NO_CLIENT,
    "eurekube_provider.resources.application": NO_CLIENT,
    "eurekube_provider.resources.operator_guard": NO_CLIENT,
}
"""Modules to import in this order, each with the modules that must not be loaded after it."""


def test_importing_loads_no_more_than_needed() -> None:
    """The operator needs no Pulumi, and Pulumi's plugin process no Kubernetes client."""
    program = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        "    print(*sys.modules)"
    )
    output = subprocess.run(
        [sys.executable, "-c", program, *LOADED], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    for (imported, forbidden), line in zip(LOADED.items(), output, strict=True):
        modules = line.split()
        assert imported in modules
        assert [name for name in forbidden if name in modules] == [], imported


def test_the_plugin_and_the_sdk_have_the_same_messages() -> None:
    """The plugin starts without the SDK; when a component loads the SDK, both use the same message
    classes.
    """
    program = (
        "import eurekube_provider.provider.server; from eurekube_provider.provider import protocol;"
        " import eurekube_provider.provider.components; from pulumi.runtime import proto;"
        " from pulumi.runtime.proto import engine_pb2, provider_pb2;"
        " assert (engine_pb2, provider_pb2) == (protocol.engine_pb2, protocol.provider_pb2);"
        " assert proto.ConstructRequest is protocol.provider_pb2.ConstructRequest"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_public_names_are_there() -> None:
    """Each name in ``__all__`` can be imported, and other names raise AttributeError."""
    for name in eurekube_provider.__all__:
        assert getattr(eurekube_provider, name) is not None
    assert set(eurekube_provider.__all__) <= set(dir(eurekube_provider))
    with pytest.raises(AttributeError, match="NoSuchName"):
        _ = eurekube_provider.NoSuchName


def test_both_forms_of_the_arguments_are_the_same() -> None:
    """The dictionary type has the class's arguments, and each argument is a property."""
    names = {field.name for field in fields(EurekaInstanceArgs)}
    assert names == set(EurekaInstanceArgsDict.__annotations__)
    assert names == set(INPUT_NAMES) - {"service_url", "owner"}
    all_names = {field.name for field in fields(EurekaApplicationArgs)}
    assert all_names == set(EurekaApplicationArgsDict.__annotations__)
    assert all_names == set(APPLICATION_INPUT_NAMES) - {"service_url", "owner", ID_BASE_PROPERTY}
    own_names = {field.name for field in fields(ApplicationInstanceArgs)}
    assert own_names == set(ApplicationInstanceArgsDict.__annotations__) == set(MEMBER_PROPERTY_NAMES)


def test_every_property_has_a_row_in_the_documentation() -> None:
    """`make properties` writes the table in docs/reference/pulumi.md from the properties' descriptions."""
    page = Path(__file__).parents[3] / "docs" / "reference" / "pulumi.md"
    assert properties_table() in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "described", [each for each in PROPERTIES if each.instance_path], ids=lambda each: each.name
)
def test_every_property_goes_to_eureka_and_comes_back(described: Property) -> None:
    """A changed property changes the instance, is read back from Eureka, and is a difference."""
    others = {**{name: each[0] for name, each in EACH.items()}, "owner": "stack/a/b/c/d"}
    name, value = described.name, others[described.name]
    wanted = checked(**{name: value})
    before, after = (
        DesiredState.from_properties(each).single_registration.instance for each in (checked(), wanted)
    )
    assert before.key != after.key or not same_contents_but_status(before, after)
    sent = instance_from_json(instance_to_json_object(after))
    assert instance_to_properties(sent)[name] == wanted[name]
    assert InstanceProvider().diff("id", state(), wanted).changes


def test_every_property_is_an_output() -> None:
    """Other resources can use every property as an output."""
    declared = set(EurekaInstance.__annotations__)
    assert set() == {*INPUT_NAMES, *OUTPUT_ONLY_NAMES} - declared - {"status_is_enforced", "seen_incarnation"}
    assert {*APPLICATION_INPUT_NAMES, *APPLICATION_OUTPUT_NAMES} == set(EurekaApplication.__annotations__)


@pytest.mark.parametrize("unknown", [rpc.UNKNOWN, Unknown()])  # type: ignore[no-untyped-call]
def test_both_spellings_of_unknown_pass_through_a_preview(unknown: Any) -> None:
    """The check returns the engine's marker for an unknown value, and the diff reports a change."""
    news = {**LEAST, "host_name": unknown, "metadata": {"a": unknown}, "__provider": "x"}
    result = InstanceProvider().check({}, news)
    assert result.failures == []
    assert (
        result.inputs["host_name"],
        result.inputs["ip_address"],
        result.inputs["metadata"],
    ) == (rpc.UNKNOWN, rpc.UNKNOWN, {"a": rpc.UNKNOWN})
    assert InstanceProvider().diff("id", state(), result.inputs).changes


PROGRAM = """
import asyncio, json, sys

import pulumi
from pulumi.runtime.stack import run_pulumi_func

from eurekube_provider import EurekaInstance
from eurekube_provider.registrations.defaults import FIXED_DEFAULTS
from eurekube_provider.resources.instance import InstanceProvider

class Echo(pulumi.runtime.Mocks):
    def new_resource(self, args):
        written = {key: value for key, value in args.inputs.items() if key != "__provider"}
        return args.name, InstanceProvider().check({}, written).inputs

    def call(self, args):
        raise AssertionError(f"the program calls nothing: {args.token}")

async def look():
    made = []
    given = {"application": "Billing", "host_name": "192.0.2.10", "port": 8080, "secure_port": 8443}
    given["duration_seconds"] = pulumi.Output.from_input(120)
    given["renewal_interval_seconds"] = pulumi.Output.from_input(30)
    given["drain_seconds"] = pulumi.Output.from_input(None)
    given["on_conflict"], given["port_enabled"] = "fail", True
    await run_pulumi_func(lambda: made.append(EurekaInstance("billing", given)))
    plain = {**given, "secure_port_enabled": False}
    await run_pulumi_func(lambda: made.append(EurekaInstance("plain", plain)))
    assert await made[1].secure_port_enabled.future() is False
    names = [*FIXED_DEFAULTS, "ip_address", "vip_address", "secure_vip_address", "zone", "home_page_url"]
    names += ["port", "instance_id"]
    print(json.dumps({name: await getattr(made[0], name).future() for name in names}))
    assert not hasattr(made[0], "nonsense")

loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)
pulumi.runtime.set_mocks(Echo(), project="shop", stack="dev", preview=sys.argv[1] == "preview")
loop.run_until_complete(look())
"""
"""A program with mocks that answer with the checked inputs, which the provider also leaves in the state."""


@pytest.mark.parametrize("operation", ["preview", "update"])
def test_what_is_not_in_the_state_is_an_output_all_the_same(operation: str) -> None:
    """Defaults and properties that are not set are outputs, also in a preview."""
    output = subprocess.run(
        [sys.executable, "-c", PROGRAM, operation],
        env={**os.environ, "EUREKA_URL": "http://eureka:8761/eureka"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert json.loads(output) == {
        "connection": "default",
        "drain_seconds": 0,
        "duration_seconds": 120,
        "home_page_url": None,
        "instance_id": "billing.dev.shop:billing:8080",
        "ip_address": "192.0.2.10",
        "metadata": {},
        "on_conflict": "fail",
        "port": 8080,
        "port_enabled": True,
        "renewal_interval_seconds": 30,
        "secure_port": 8443,
        "secure_port_enabled": True,
        "secure_vip_address": "billing",
        "vip_address": "billing",
        "zone": None,
    }


def test_problems_reach_pulumi_with_their_property() -> None:
    """The reason contains the property's name; Pulumi would show the value of a named property, also a
    secret one.
    """
    failures = InstanceProvider().check({}, {**LEAST, "port": 0.0}).failures
    assert [(failure.property, failure.reason) for failure in failures] == [
        ("", "port: must be a whole number from 1 to 65535")
    ]


def test_diff_tells_pulumi_what_it_needs() -> None:
    """The diff names replaced properties, and the new registration is made before the old one is removed."""
    result = InstanceProvider().diff("id", state(), checked(service_url="http://other/eureka"))
    assert (result.changes, result.replaces) == (True, ["service_url"])
    assert not result.delete_before_replace


@pytest.mark.parametrize(
    ("kind", "lookup"), [(EurekaInstance, "get_instance"), (EurekaApplication, "get_application")]
)
def test_what_dynamic_resources_cannot_do_is_said(
    kind: Any, lookup: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Options that dynamic resources do not support raise or warn before a request is sent."""
    with pytest.raises(ProgramError, match=rf"'x': ResourceOptions\(id=.*use {lookup}\(\)"):
        kind("x", {}, pulumi.ResourceOptions(id="A/b"))
    with pytest.raises(ProgramError, match='take over what is there with on_conflict="adopt"'):
        kind("x", {}, pulumi.ResourceOptions(import_="A/b"))
    warnings: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", warnings.append)
    refuse_unsupported_options("EurekaInstance", "x", None, lookup)
    refuse_unsupported_options("EurekaInstance", "x", pulumi.ResourceOptions(protect=True), lookup)
    assert warnings == []
    timeouts = pulumi.CustomTimeouts(create="1m")
    refuse_unsupported_options(
        "EurekaInstance", "x", pulumi.ResourceOptions(custom_timeouts=timeouts), lookup
    )
    assert ["custom_timeouts are ignored" in text for text in warnings] == [True]


def test_the_organization_of_an_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a backend without organizations a setting tells two people's stacks of one name apart."""
    said: dict[str, str] = {}
    monkeypatch.setattr("eurekube_provider.resources.program.get_config", said.get)
    assert program_organization() == "organization"
    said["eurekube:organization"] = "alice"
    assert program_organization() == "alice"
    said["eurekube:organization"] = "a/b"
    with pytest.raises(ProgramError, match="eurekube:organization: 'a/b' must have no slash"):
        program_organization()
