"""The forms of state that the native provider writes, and the older forms that it reads.

An earlier version wrote ``tests/states/native/long-form.json``, with every derived value among inputs and
outputs:
programs with the inputs and outputs of their resources, one after its stack was renamed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format, struct_pb2
from hypothesis import given
from hypothesis import strategies as st
from pulumi.runtime.proto import provider_pb2 as proto

from eurekube_provider.provider.servicer import ProviderServicer
from eurekube_provider.provider.wire import UNKNOWN_TEXT, decode_properties, encode_properties
from eurekube_provider.registrations import registry_lists
from eurekube_provider.registrations.declared_resources import DECLARED_RESOURCES
from eurekube_provider.registrations.defaults import (
    DERIVABLE_INPUT_NAMES,
    DERIVABLE_OUTPUT_NAMES,
    with_defaults,
    without_derivable,
)
from eurekube_provider.registrations.desired import DesiredState
from eurekube_provider.registrations.names import rename_properties, to_camel_case, to_snake_case
from eurekube_provider.registrations.property_check import check
from eurekube_provider.registrations.registry_lists import SHARED_RENEWER_CHECK
from eurekube_provider.registrations.secret_values import as_secret
from eurekube_provider.registrations.servers import SHARED_PEERS
from eurekube_provider.resources.application import ApplicationProvider
from eurekube_provider.resources.dynamic_provider import RegistrationProvider
from eurekube_provider.resources.instance import InstanceProvider
from tests.explore.shells import NativeShell, carried
from tests.unit.fake_eureka import FakeEureka, FakeServers

URL = "http://eureka:8761/eureka"
TYPE = "eurekube:index:Instance"
LONG = json.loads((Path(__file__).parents[2] / "states" / "native" / "long-form.json").read_text())
CHANGING = {"register", "deregister", "set_status", "remove_status", "batch"}

Properties = dict[str, Any]


class Native:
    """The native provider for one resource of a stack, with properties under the schema's names."""

    def __init__(self, name: str, stack: str = "dev", type_: str = TYPE) -> None:
        self._named: Properties = {"urn": f"urn:pulumi:{stack}::shop::{type_}::{name}", "type": type_}
        self._servicer = ProviderServicer()
        self._servicer.Configure(
            proto.ConfigureRequest(args=encode_properties({"url": URL}), name="default"), None
        )

    def check(self, program: Properties, olds: Properties | None = None) -> Properties:
        """Check a program's inputs, and return them."""
        request = proto.CheckRequest(news=message(program), olds=message(olds or {}), **self._named)
        answer = self._servicer.Check(request, None)
        assert not answer.failures
        return plain(answer.inputs)

    def diff(self, olds: Properties, old_inputs: Properties, news: Properties) -> Any:
        """Return the provider's answer to a diff."""
        request = proto.DiffRequest(
            olds=message(olds), old_inputs=message(old_inputs), news=message(news), **self._named
        )
        return self._servicer.Diff(request, None)

    def create(self, inputs: Properties, *, preview: bool = False) -> Properties:
        """Create the resource, and return its outputs."""
        request = proto.CreateRequest(properties=message(inputs), preview=preview, **self._named)
        return plain(self._servicer.Create(request, None).properties)

    def read(self, inputs: Properties, outputs: Properties) -> tuple[Properties, Properties]:
        """Refresh the resource, and return its inputs and outputs."""
        request = proto.ReadRequest(
            id="x", properties=message(outputs), inputs=message(inputs), **self._named
        )
        answer = self._servicer.Read(request, None)
        return plain(answer.inputs), plain(answer.properties)

    def update(self, olds: Properties, news: Properties, *, preview: bool = False) -> Properties:
        """Update the resource, and return its outputs."""
        request = proto.UpdateRequest(olds=message(olds), news=message(news), preview=preview, **self._named)
        return plain(self._servicer.Update(request, None).properties)


def message(properties: Properties) -> Any:
    """Return properties as the engine sends them, under the names that a state has."""
    made: Any = struct_pb2.Struct()  # type: ignore[attr-defined]
    made.update(properties)
    return made


def plain(answer: Any) -> Properties:
    """Return a message as the dictionary that the engine writes into the state."""
    found: Properties = json_format.MessageToDict(answer)  # type: ignore[no-untyped-call]
    return found


@pytest.fixture
def eureka(monkeypatch: pytest.MonkeyPatch) -> FakeEureka:
    """Return a fake Eureka that records its requests."""
    made = FakeEureka()
    monkeypatch.setattr(SHARED_PEERS, "get", FakeServers({URL: made}))
    monkeypatch.setattr(registry_lists, "LIST_CACHE_SECONDS", -1.0)
    for memory in (DECLARED_RESOURCES, SHARED_RENEWER_CHECK):
        memory.__init__()  # type: ignore[misc]
    return made


def register_state(eureka: FakeEureka, outputs: Properties) -> None:
    """Register the instance that a state describes, and forget the recorded requests."""
    desired = DesiredState.from_properties(rename_properties(outputs, to_snake_case))
    instance = desired.single_registration.instance
    eureka.register(instance)
    eureka.asked.clear()


@pytest.fixture(params=LONG, ids=lambda each: f"{each['name']}-{each.get('stack', 'dev')}")
def long(request: pytest.FixtureRequest) -> Properties:
    """Return a resource's program and state in the long form."""
    found: Properties = request.param
    return found


def test_a_state_in_long_form_is_no_change_also_after_a_refresh(long: Properties, eureka: FakeEureka) -> None:
    """The same program yields no difference, and a refresh returns the state unchanged."""
    native = Native(long["name"], long.get("stack", "dev"))
    register_state(eureka, long["outputs"])
    news = native.check(long["program"], long["inputs"])
    assert native.diff(long["outputs"], long["inputs"], news).changes == proto.DiffResponse.DIFF_NONE
    assert native.read(long["inputs"], long["outputs"]) == (long["inputs"], long["outputs"])
    assert CHANGING.isdisjoint(eureka.asked)


def test_an_update_shortens_a_state_and_changes_nothing_in_eureka(
    long: Properties, eureka: FakeEureka
) -> None:
    """The shortened state describes the same registration, and causes no difference."""
    native = Native(long["name"], long.get("stack", "dev"))
    register_state(eureka, long["outputs"])
    news = native.check(long["program"], long["inputs"])
    short = native.update(long["outputs"], news)
    assert CHANGING.isdisjoint(eureka.asked)
    assert with_defaults(rename_properties(short, to_snake_case)) == with_defaults(
        rename_properties(long["outputs"], to_snake_case)
    )
    assert with_defaults(rename_properties(news, to_snake_case)) == with_defaults(
        rename_properties(long["inputs"], to_snake_case)
    )
    assert len(json.dumps(short) + json.dumps(news)) < len(
        json.dumps(long["outputs"]) + json.dumps(long["inputs"])
    )
    assert native.diff(short, news, native.check(long["program"], news)).changes == (
        proto.DiffResponse.DIFF_NONE
    )
    assert native.read(news, short) == (news, short)


def test_a_state_of_the_dynamic_provider_goes_on_in_place(long: Properties, eureka: FakeEureka) -> None:
    """With an alias one update rewrites the state under the schema's names, without a change in Eureka."""
    native, dynamic = Native(long["name"], long.get("stack", "dev")), InstanceProvider()
    written = {
        **rename_properties(long["program"], to_snake_case),
        "service_url": URL,
        "owner": long["inputs"]["owner"],
        "renewer": long["inputs"]["renewer"],
    }
    inputs = dynamic.check({}, carried(written)).inputs
    state = dynamic.create(carried(inputs)).outs
    assert state is not None
    eureka.asked.clear()
    moved = {**state, "__provider": "pickled"}
    again = native.check(long["program"], inputs)
    difference = native.diff(moved, inputs, again)
    assert (difference.changes, list(difference.replaces)) == (proto.DiffResponse.DIFF_SOME, [])
    assert with_defaults(rename_properties(native.update(moved, again), to_snake_case)) == with_defaults(
        state
    )
    assert CHANGING.isdisjoint(eureka.asked)


@pytest.mark.parametrize("provider", [InstanceProvider, ApplicationProvider])
def test_the_dynamic_provider_takes_no_state_of_the_native_one(
    long: Properties, provider: type[RegistrationProvider]
) -> None:
    """The dynamic provider's check refuses the state in one sentence that gives the way out."""
    checked = provider().check(
        carried(long["inputs"]), carried(rename_properties(long["program"], to_snake_case))
    )
    (failure,) = checked.failures
    assert failure.reason == (
        "its state was written by the native provider, and a state moves from the dynamic provider to the"
        " native one, not back: keep the native provider's resource in the program, or leave out the alias:"
        " then the update registers again in the same place, and what stood there goes from the state alone"
    )


def test_a_state_says_nothing_twice_that_follows_from_the_rest(eureka: FakeEureka) -> None:
    """The state has the properties that programs and people read, and those that identify the owner, and
    no others.
    """
    native = Native("billing")
    inputs = native.check({"application": "billing", "hostName": "192.0.2.10", "port": 8080})
    asked = {"application", "hostName", "port", "instanceId", "owner", "renewer", "serviceUrl"}
    assert inputs.keys() == asked
    outputs = native.create(inputs)
    assert eureka.held
    reported = {"ipAddress", "vipAddress", "secureVipAddress", "status", "overriddenStatus", "incarnation"}
    assert outputs.keys() == asked | reported


def test_a_preview_tells_what_an_update_will(eureka: FakeEureka) -> None:
    """A preview shows values that follow from the inputs, although the checked inputs leave them out."""
    native = Native("billing")
    inputs = native.check({"application": "billing", "hostName": "192.0.2.10", "port": 8080})
    foreseen = native.create(inputs, preview=True)
    assert eureka.held == {}
    assert (foreseen["ipAddress"], foreseen["vipAddress"], foreseen["secureVipAddress"]) == (
        "192.0.2.10",
        "billing",
        "billing",
    )
    outputs = native.create(inputs)
    changed = native.check({"application": "billing", "hostName": "192.0.2.11", "port": 8080}, inputs)
    foreseen = native.update(outputs, changed, preview=True)
    assert foreseen["ipAddress"] == "192.0.2.11"
    # What the update writes again is unknown before, and what it keeps is known.
    assert (foreseen["lastUpdated"], foreseen["overriddenStatus"]) == (UNKNOWN_TEXT, UNKNOWN_TEXT)
    assert foreseen["incarnation"] == outputs["incarnation"]
    after = native.update(outputs, changed)
    only_eureka = {"status", "lastUpdated", "overriddenStatus", "seenIncarnation"}
    assert after.keys() - only_eureka == foreseen.keys() - only_eureka
    assert {name: after[name] for name in foreseen.keys() - only_eureka} == {
        name: foreseen[name] for name in foreseen.keys() - only_eureka
    }


def test_drift_is_reported_although_the_inputs_are_short(eureka: FakeEureka) -> None:
    """A refresh adds a property that no longer has its default to the inputs, so that the diff shows it."""
    native = Native("billing")
    program = {"application": "billing", "hostName": "192.0.2.10", "port": 8080}
    inputs = native.check(program)
    outputs = native.create(inputs)
    (held,) = eureka.held.values()
    other = {"owner": "cluster/eu/shop/rating", "vip_address": "other"}
    register_state(eureka, {**outputs, **rename_properties(other, to_camel_case)})
    found, state = native.read(inputs, outputs)
    for properties in (found, state):
        assert (properties["vipAddress"], properties["seenOwner"]) == ("other", "cluster/eu/shop/rating")
        assert properties["owner"] == held.owner
    assert found["secureVipAddress"] == "billing"  # which no longer follows from the other
    difference = native.diff(state, found, native.check(program, found))
    assert {"vipAddress", "seenOwner"} <= set(difference.detailedDiff)


def test_what_is_a_secret_stays_where_it_is_said_to_be_one(eureka: FakeEureka) -> None:
    """An IP address derived from a secret host name is kept in the state, marked as secret."""
    native = ProviderServicer()
    native.Configure(proto.ConfigureRequest(args=encode_properties({"url": URL}), name="default"), None)
    named: Properties = {"urn": f"urn:pulumi:dev::shop::{TYPE}::billing", "type": TYPE}
    program = {"application": "billing", "host_name": "10.9.8.7", "port": 8080}
    news = encode_properties(program, [("host_name",)])
    inputs = native.Check(proto.CheckRequest(news=news, **named), None).inputs
    assert decode_properties(inputs).secrets == {("host_name",), ("ip_address",)}
    state = native.Create(proto.CreateRequest(properties=inputs, **named), None).properties
    assert eureka.held
    assert decode_properties(state).secrets == {("host_name",), ("ip_address",)}
    found = native.Read(proto.ReadRequest(id="x", properties=state, inputs=inputs, **named), None)
    assert decode_properties(found.inputs).secrets == {("host_name",), ("ip_address",)}


_texts = st.sampled_from(["billing", "BILLING", "other", "192.0.2.10", "[2001:db8::1]", "2001:db8::1"])


@given(
    program=st.fixed_dictionaries(
        {
            "application": _texts.filter(str.isalpha),
            "host_name": _texts,
            "port": st.sampled_from([8080, 9090.0]),
        },
        optional={
            "ip_address": _texts,
            "vip_address": _texts,
            "secure_vip_address": _texts,
            "instance_id": st.sampled_from(["of-its-own", "billing.dev.shop:billing:8080"]),
            "secure_port": st.sampled_from([443, 8443]),
            "status": st.sampled_from(["UP", "DOWN"]),
        },
    ),
    before=st.sampled_from(["dev", "prod"]),
    drawn=st.fixed_dictionaries(
        {"overridden_status": st.sampled_from(["UNKNOWN", "UP"])},
        optional={
            "status_is_enforced": st.booleans(),
            "seen_owner": st.sampled_from(["stack/organization/shop/dev/billing", "cluster/a/b/c", ""]),
        },
    ),
)
def test_what_was_left_out_comes_back_as_it_was(program: Properties, before: str, drawn: Properties) -> None:
    """Shortened inputs and outputs expand to the originals, whichever stack name the default id has."""
    ours = {"renewer": "eurekube", "service_url": URL}
    owners = [f"stack/organization/shop/{stack}/billing" for stack in (before, "dev")]
    olds = check({}, {**program, **ours, "owner": owners[0]}).properties
    inputs = check(olds, {**program, **ours, "owner": owners[1]}).properties
    short = without_derivable(inputs, DERIVABLE_INPUT_NAMES)
    assert with_defaults(short) == inputs
    assert check(short, {**program, **ours, "owner": owners[1]}).properties == inputs
    outputs = with_defaults({**inputs, **drawn})
    assert with_defaults(without_derivable(outputs, DERIVABLE_OUTPUT_NAMES)) == outputs


def test_the_native_shell_of_the_exploration_sees_the_short_form(eureka: FakeEureka) -> None:
    """The exploration of crashes checks inputs in the short form that the native provider writes."""
    inputs = NativeShell("billing", URL, is_application=False).check(
        {}, {"application": "billing", "host_name": "192.0.2.10", "port": 8080}
    )
    assert eureka.asked == []
    assert "vipAddress" not in inputs


APPLICATION = "eurekube:index:Application"
SEVERAL: Properties = {"application": "rating", "port": 8080, "instances": {"a": {"hostName": "192.0.2.1"}}}
IDS = {"a": "a.rating.dev.shop:rating:8080"}


def test_an_application_says_the_id_of_each_instance(eureka: FakeEureka) -> None:
    """The output ``instanceIds`` is known in a preview, equals the state's, and contains ids that the
    program gave.
    """
    native = Native("rating", type_=APPLICATION)
    inputs = native.check(SEVERAL)
    assert native.create(inputs, preview=True)["instanceIds"] == IDS
    outputs = native.create(inputs)
    assert outputs["instanceIds"] == IDS
    assert {key[1] for key in eureka.held} == set(IDS.values())
    more = {"b": {"hostName": "192.0.2.2", "instanceId": "own"}, **SEVERAL["instances"]}
    changed = native.check({**SEVERAL, "instances": more}, inputs)
    wanted = {**IDS, "b": "own"}
    assert native.update(outputs, changed, preview=True)["instanceIds"] == wanted
    outputs = native.update(outputs, changed)
    assert outputs["instanceIds"] == wanted
    assert native.read(changed, outputs)[1]["instanceIds"] == wanted
    unknown = native.check({**SEVERAL, "instances": UNKNOWN_TEXT})
    assert native.create(unknown, preview=True)["instanceIds"] == UNKNOWN_TEXT
    unknown = native.check({**SEVERAL, "port": UNKNOWN_TEXT})
    assert native.create(unknown, preview=True)["instanceIds"] == {"a": UNKNOWN_TEXT}


@pytest.mark.parametrize(
    ("secret", "hidden"),
    [
        ({"application": as_secret("rating")}, {("instance_ids",)}),
        ({"port": as_secret(8080)}, {("instance_ids",)}),
        ({"instances": as_secret({"a": {"hostName": "192.0.2.1"}})}, {("instance_ids",)}),
        ({"instances": {"a": as_secret({"hostName": "192.0.2.1"})}}, {("instance_ids", "a")}),
        ({"instances": {"a": {"hostName": "192.0.2.1", "port": as_secret(81)}}}, {("instance_ids", "a")}),
        ({"instances": {"a": {"hostName": as_secret("192.0.2.1")}}}, set()),
    ],
)
def test_ids_that_are_made_of_a_secret_are_secrets(
    secret: Properties, hidden: set[tuple[str, ...]], eureka: FakeEureka
) -> None:
    """A secret in the application or port makes all ids secret, one in an instance only that instance's
    id.
    """
    native = Native("rating", type_=APPLICATION)
    inputs = native.check({**SEVERAL, **secret})
    for outputs in (native.create(inputs, preview=True), native.create(inputs)):
        found = decode_properties(message(outputs)).secrets
        assert {path for path in found if path[0] == "instance_ids"} == hidden
    assert eureka.held


def test_a_state_without_the_ids_of_instances_gets_them_in_place(eureka: FakeEureka) -> None:
    """One update adds ``instanceIds`` to an older state, without a change in Eureka."""
    native = Native("rating", type_=APPLICATION)
    inputs = native.check(SEVERAL)
    outputs = native.create(inputs)
    assert native.diff(outputs, inputs, native.check(SEVERAL, inputs)).changes == proto.DiffResponse.DIFF_NONE
    del outputs["instanceIds"]
    found = native.diff(outputs, inputs, native.check(SEVERAL, inputs))
    assert (found.changes, list(found.replaces)) == (proto.DiffResponse.DIFF_SOME, [])
    assert list(found.detailedDiff) == ["instanceIds"]
    eureka.asked.clear()
    assert native.update(outputs, inputs)["instanceIds"] == IDS
    assert not CHANGING.intersection(eureka.asked)


@pytest.mark.parametrize("mark", ["halfDone", "stillEnforced", "leaving", "absent", "seenIncarnation"])
def test_a_preview_shows_no_marks_of_ours(
    mark: str, eureka: FakeEureka, capsys: pytest.CaptureFixture[str]
) -> None:
    """A warning describes what an earlier run left; the detailed diff leaves the internal mark out."""
    native = Native("billing")
    program = {"application": "billing", "hostName": "192.0.2.10", "port": 8080}
    inputs = native.check(program)
    outputs = native.create(inputs)
    assert eureka.held
    capsys.readouterr()
    value = "other" if mark == "seenIncarnation" else True
    found = native.diff({**outputs, mark: value}, inputs, inputs)
    assert found.changes == proto.DiffResponse.DIFF_SOME
    assert (dict(found.detailedDiff), list(found.diffs), found.hasDetailedDiff) == ({}, [], True)
    assert "stack/organization/shop/dev/billing: " in capsys.readouterr().err
    if mark != "seenIncarnation":
        found = native.diff(outputs, inputs, {**inputs, mark: True, "hostName": "192.0.2.11"})
        assert set(found.detailedDiff) == {"hostName"}
