"""The native provider's answers to the engine, with a fake Eureka that can fail."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import replace
from functools import partial
from typing import Any

import grpc
import pytest
from google.protobuf import empty_pb2, json_format
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc, provider_pb2_grpc, status_pb2
from pulumi.runtime.proto import provider_pb2 as proto

from eurekube_provider.core.errors import RegistryDenied, RegistryError, RegistryRejected, RegistryUnreachable
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.provider.configuration import CONFIGURATION_KEYS
from eurekube_provider.provider.servicer import ProviderServicer
from eurekube_provider.provider.wire import decode_properties, encode_properties
from eurekube_provider.registrations import registry_lists, resource
from eurekube_provider.registrations.cancellation import CANCELLATION
from eurekube_provider.registrations.declared_resources import DECLARED_RESOURCES
from eurekube_provider.registrations.registry_lists import SHARED_RENEWER_CHECK
from eurekube_provider.registrations.secret_values import as_secret
from eurekube_provider.registrations.servers import SHARED_PEERS
from eurekube_provider.registrations.values import UNKNOWN
from tests.contract.plugin import NOBODY, sentence
from tests.unit.fake_eureka import FakeEureka, FakeServers

URL = "http://eureka:8761/eureka"
TYPE = "eurekube:index:Instance"
NAMED: dict[str, Any] = {"urn": f"urn:pulumi:dev::shop::{TYPE}::billing", "type": TYPE}
CALLS = 8
"""Number of calls that a test server handles at once."""
GIVEN: dict[str, Any] = {"application": "billing", "host_name": "192.0.2.10", "port": 8080}


class Engine(engine_pb2_grpc.EngineServicer):
    """An engine that records the messages to be shown."""

    def __init__(self) -> None:
        self.shown: list[Any] = []

    def Log(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802 - gRPC's names
        """Record a message."""
        self.shown.append(request)
        return empty_pb2.Empty()  # type: ignore[attr-defined]


@pytest.fixture
def eureka(monkeypatch: pytest.MonkeyPatch) -> FakeEureka:
    """Return a fake Eureka, which every connection reaches."""
    made = FakeEureka()
    monkeypatch.setattr(SHARED_PEERS, "get", FakeServers({URL: made}))
    monkeypatch.setattr(registry_lists, "LIST_CACHE_SECONDS", -1.0)
    for memory in (DECLARED_RESOURCES, SHARED_RENEWER_CHECK):
        memory.__init__()  # type: ignore[misc]
    return made


@pytest.fixture
def engine() -> Engine:
    """Return the engine that records the provider's messages."""
    return Engine()


@pytest.fixture
def stub(engine: Engine) -> Iterator[Any]:
    """Yield a client of a configured provider; provider and engine run on servers of their own."""
    servers = [grpc.server(futures.ThreadPoolExecutor(CALLS)) for _ in range(2)]  # type: ignore[no-untyped-call]
    engine_pb2_grpc.add_EngineServicer_to_server(engine, servers[0])
    engine_port, provider_port = (server.add_insecure_port("127.0.0.1:0") for server in servers)
    servicer = ProviderServicer(f"127.0.0.1:{engine_port}")
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(servicer, servers[1])
    for server in servers:
        server.start()
    with grpc.insecure_channel(f"127.0.0.1:{provider_port}") as channel:  # type: ignore[no-untyped-call]
        stub = provider_pb2_grpc.ResourceProviderStub(channel)
        stub.Configure(proto.ConfigureRequest(args=encode_properties({"url": URL}), name="default"))
        yield stub
    for server in reversed(servers):
        server.stop(0).wait()
    CANCELLATION.begin_run()


def check(stub: Any, **given: Any) -> Any:
    """Check a resource's inputs, and return them as a creation gets them."""
    answer = stub.Check(proto.CheckRequest(news=encode_properties({**GIVEN, **given}), **NAMED))
    assert not answer.failures
    return answer.inputs


def partial_resource(raised: pytest.ExceptionInfo[Any]) -> Any:
    """Return the half-made resource that an error contains, or None."""
    for key, value in raised.value.trailing_metadata():
        if key == "grpc-status-details-bin":
            (packed,) = status_pb2.Status.FromString(value).details  # type: ignore[no-untyped-call]
            detail = proto.ErrorResourceInitFailed()
            assert packed.Unpack(detail)
            return detail
    return None


def lost(carry_out: Callable[[], Any]) -> Any:
    """Carry out a request whose answer is lost."""
    carry_out()
    raise RegistryUnreachable("no answer within 5 s")


def away(_: Callable[[], Any]) -> Any:
    """Fail as a server that a request does not reach."""
    raise RegistryUnreachable("no answer within 5 s")


def test_what_a_failed_creation_may_have_left_is_in_the_state(stub: Any, eureka: FakeEureka) -> None:
    """The next update finishes the registration; if the program drops the resource, it is removed."""
    inputs = check(stub)
    eureka.fails = {"register": [lost], "deregister": [away] * 5}
    with pytest.raises(grpc.RpcError) as raised:
        stub.Create(proto.CreateRequest(properties=inputs, **NAMED))
    detail = partial_resource(raised)
    eureka.fails = {}
    state = decode_properties(detail.properties).properties
    assert (detail.id, state["half_done"]) == ("BILLING/billing.dev.shop:billing:8080", True)
    assert len(detail.reasons) == 1
    assert "hostName" in detail.properties.fields

    difference = stub.Diff(proto.DiffRequest(olds=detail.properties, news=inputs, **NAMED))
    assert difference.changes == proto.DiffResponse.DIFF_SOME
    updated = stub.Update(proto.UpdateRequest(olds=detail.properties, news=inputs, **NAMED)).properties
    assert "halfDone" not in updated.fields
    assert {each.incarnation for each in eureka.held.values()} == {state["incarnation"]}
    stub.Delete(proto.DeleteRequest(properties=detail.properties, **NAMED))
    assert eureka.held == {}


def test_a_creation_that_was_taken_back_leaves_no_state(stub: Any, eureka: FakeEureka) -> None:
    """A failed creation whose registration was removed again yields no half-made resource."""
    inputs = check(stub)
    eureka.fails = {"register": [lost]}
    with pytest.raises(grpc.RpcError) as raised:
        stub.Create(proto.CreateRequest(properties=inputs, **NAMED))
    assert partial_resource(raised) is None
    assert eureka.held == {}


def test_a_warning_is_shown_at_its_resource(stub: Any, eureka: FakeEureka, engine: Engine) -> None:
    """The warning is logged with the resource's URN, since the engine hides a plugin's standard error."""
    created = stub.Create(proto.CreateRequest(properties=check(stub), **NAMED))
    assert eureka.held
    (warning,) = engine.shown
    assert (warning.urn, "is renewed by 'eurekube' yet" in warning.message) == (NAMED["urn"], True)
    stub.Delete(proto.DeleteRequest(properties=created.properties, **NAMED))


def test_progress_is_shown_at_its_resource_for_a_moment(
    stub: Any, eureka: FakeEureka, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Progress messages are ephemeral: the engine shows them beside the resource and does not keep them."""
    monkeypatch.setattr(resource, "EPHEMERAL_MESSAGE_INTERVAL_SECONDS", 0.0)
    named = _named("rating", "eurekube:index:Application")
    many = {"application": "rating", "port": 8080, "instances": {"a": {"host_name": "192.0.2.1"}}}
    inputs = stub.Check(proto.CheckRequest(news=encode_properties(many), **named)).inputs
    created = stub.Create(proto.CreateRequest(properties=inputs, **named))
    assert len(eureka.held) == 1
    stub.Delete(proto.DeleteRequest(properties=created.properties, **named))
    shown = [one for one in engine.shown if one.ephemeral]
    assert [one.message for one in shown] == ["1 of 1 changes sent to Eureka"] * 2
    assert {(one.urn, one.severity) for one in shown} == {(named["urn"], engine_pb2.INFO)}
    assert all(one.severity == engine_pb2.WARNING for one in engine.shown if not one.ephemeral)


def test_a_warning_takes_no_proxy(
    stub: Any, eureka: FakeEureka, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine runs on the same machine; gRPC would otherwise use the proxy that is meant for Eureka."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    stub.Create(proto.CreateRequest(properties=check(stub), **NAMED))
    assert eureka.held
    assert len(engine.shown) == 1


def test_a_preview_registers_nothing(stub: Any, eureka: FakeEureka) -> None:
    """A preview of a creation or an update writes nothing to Eureka."""
    inputs = check(stub)
    foreseen = stub.Create(proto.CreateRequest(properties=inputs, preview=True, **NAMED)).properties
    assert decode_properties(foreseen).properties["host_name"] == "192.0.2.10"
    stub.Update(proto.UpdateRequest(olds=foreseen, news=inputs, preview=True, **NAMED))
    assert eureka.held == {}


def test_a_program_does_not_say_whose_it_is(stub: Any) -> None:
    """An input ``owner`` is refused, since the owner follows from the stack."""
    news = encode_properties({**GIVEN, "owner": "stack/a/b/c/d"})
    (failure,) = stub.Check(proto.CheckRequest(news=news, **NAMED)).failures
    assert failure.property == "owner"


def test_problems_name_properties_as_they_are_written(stub: Any) -> None:
    """A failed check uses the schema's names, also in the suggestion for a misspelt one."""
    news = encode_properties({**GIVEN, "host_nam": "x", "secure_port": 0})
    failures = {
        one.property: one.reason for one in stub.Check(proto.CheckRequest(news=news, **NAMED)).failures
    }
    assert failures["hostNam"] == "there is no such property; hostName is one"
    assert failures.keys() == {"hostNam", "securePort"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"host_name": as_secret("pa55 word")}, "must be a bare host name"),
        ({"port": as_secret("pa55word")}, "must be a whole number"),
        ({"application": as_secret("pa55;word")}, "must be a name without ';'"),
        ({"metadata": as_secret({"eurekube.pa55": "x"})}, "are Eurekube's own"),
        ({"metadata": as_secret({"pa55 word": "x"})}, "use letters, digits, dots and dashes"),
        ({"metadata": as_secret({"pa55": ["x"]})}, "a value must be a text"),
        ({"metadata": as_secret({"pa55": "\x01"})}, "a value has the character U+0001"),
        ({"connection": as_secret("pa55")}, "no such connection"),
        ({"status": as_secret("pa55")}, "must be one of UP"),
    ],
)
def test_what_is_wrong_with_a_secret_is_reported_without_it(stub: Any, given: Any, expected: str) -> None:
    """The engine shows the reason to everybody and logs it, so that the reason leaves a secret value out."""
    answer = stub.Check(proto.CheckRequest(news=encode_properties({**GIVEN, **given}), **NAMED))
    reasons = [each.reason for each in answer.failures]
    assert reasons
    assert expected in reasons[0]
    assert "pa55" not in " ".join(reasons)
    # Of a property that is named the engine shows the value.
    assert {each.property for each in answer.failures} == {""}
    in_clear = {name: value["value"] for name, value in given.items()}
    answer = stub.Check(proto.CheckRequest(news=encode_properties({**GIVEN, **in_clear}), **NAMED))
    assert "pa55" in answer.failures[0].reason


@pytest.mark.parametrize("secret", [("host_name",), (), None])
def test_a_fault_of_an_instances_secret_is_reported_without_it(stub: Any, secret: Any) -> None:
    """The secret may be one property, one instance, or the whole map of instances."""
    kind = "eurekube:index:Application"
    named: dict[str, Any] = {"urn": f"urn:pulumi:dev::shop::{kind}::old", "type": kind}
    host: Any = "pa55 word"
    one = (
        as_secret({"host_name": host}) if secret == () else {"host_name": as_secret(host) if secret else host}
    )
    instances = as_secret({"a.b": one}) if secret is None else {"a.b": one}
    news = encode_properties({"application": "old", "port": 8080, "instances": instances})
    (failure,) = stub.Check(proto.CheckRequest(news=news, **named)).failures
    bare = "must be a bare host name or address, without http:// and without a path"
    assert (failure.property, failure.reason) == ("", f"instances.a.b.hostName: {bare}")


def test_an_answer_without_effect_names_who_gave_it(
    stub: Any, eureka: FakeEureka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway may answer 200 without registering: the error names the URL that accepted the request."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    inputs = check(stub)
    eureka.fails = {"register": [lambda _: None]}
    with pytest.raises(grpc.RpcError) as raised:
        stub.Create(proto.CreateRequest(properties=inputs, **NAMED))
    assert sentence(raised).startswith(
        f"register BILLING billing.dev.shop:billing:8080: {URL} accepted it and does not hold it"
    )


def test_an_error_of_eureka_tells_no_secret(stub: Any, eureka: FakeEureka, engine: Engine) -> None:
    """An error, a half-made state's reason or a warning masks a secret address or name."""
    eureka.register(Instance("BILLING", "vm-1", "vm-1", "198.51.100.7", Port(8080)))
    inputs = check(stub, host_name=as_secret("198.51.100.7"))
    with pytest.raises(grpc.RpcError) as raised:
        stub.Create(proto.CreateRequest(properties=inputs, **NAMED))
    assert "BILLING vm-1 at [secret]:8080 registered itself" in sentence(raised)
    # So it is with a state that keeps what was half made, and with a warning.
    eureka.held.clear()
    eureka.fails = {"register": [lost], "deregister": [away] * 5}
    secret = check(stub, application=as_secret("vault"))
    with pytest.raises(grpc.RpcError) as raised:
        stub.Create(proto.CreateRequest(properties=secret, **NAMED))
    assert "vault" not in sentence(raised).lower()
    (reason,) = partial_resource(raised).reasons
    assert "[secret]" in reason
    assert "vault" not in reason.lower()
    eureka.fails = {}
    state = stub.Create(proto.CreateRequest(properties=inputs, **NAMED)).properties
    eureka.held.clear()
    eureka.register(Instance("BILLING", "vm-1", "vm-1", "198.51.100.7", Port(8080)))
    stub.Check(proto.CheckRequest(olds=state, news=inputs, **NAMED))
    result_text = " ".join(each.message for each in engine.shown)
    assert "is gone, and not registered again" in result_text
    assert "198.51.100.7" not in result_text


@pytest.mark.parametrize(
    ("owner", "host_name", "expected"),
    [
        ("stack/organization/shop/prod/billing", "192.0.2.10", "belongs to stack/organization/shop/prod/"),
        ("", "192.0.2.11", "was not registered by Eurekube"),
        ("", "192.0.2.10", ""),  # our own application, which registered itself again
        ("stack/organization/shop/dev/billing", "192.0.2.11", ""),  # an earlier run of ours
    ],
)
def test_an_update_says_who_has_taken_a_registration_over(
    stub: Any, eureka: FakeEureka, engine: Engine, owner: str, host_name: str, expected: str
) -> None:
    """Two stacks that register one id at once both end well, and Eureka holds the later one's."""
    inputs = check(stub, renewer="self")
    state = stub.Create(proto.CreateRequest(properties=inputs, **NAMED)).properties
    ((key, ours),) = eureka.held.items()
    metadata = {"eurekube.owner": owner} if owner else {}
    eureka.held[key] = replace(ours, host_name=host_name, ip_address=host_name, metadata=metadata)
    engine.shown.clear()
    assert not stub.Check(proto.CheckRequest(olds=inputs, news=inputs, **NAMED)).failures
    shown = [each.message for each in engine.shown if "in Eureka" in each.message]
    assert [expected in each for each in shown] == [True] * bool(expected)
    # After a refresh or an import the update itself refuses it, or takes it over.
    engine.shown.clear()
    known = stub.Read(proto.ReadRequest(id="BILLING/vm", properties=state, inputs=inputs, **NAMED)).inputs
    stub.Check(proto.CheckRequest(olds=known, news=inputs, **NAMED))
    assert not [each.message for each in engine.shown if "in Eureka" in each.message]


@pytest.mark.parametrize(
    ("kind", "clear", "path"),
    [
        (TYPE, {**GIVEN, "metadata": {"key": "pa55word", "tier": "1"}}, ("metadata", "key")),
        (TYPE, {**GIVEN, "metadata": {"key": "pa55word"}}, ("metadata",)),
        (
            "eurekube:index:Application",
            {"application": "rating", "port": 8080, "instances": {"a": {"host_name": "pa55word"}}},
            ("instances", "a", "host_name"),
        ),
    ],
)
def test_what_becomes_a_secret_later_is_one_in_the_state(
    stub: Any, eureka: FakeEureka, kind: str, clear: dict[str, Any], path: tuple[str, ...]
) -> None:
    """The engine itself hides no part of a property: the next update writes the state again."""
    named = _named("rating", kind)
    before = stub.Check(proto.CheckRequest(news=encode_properties(clear), **named)).inputs
    state = stub.Create(proto.CreateRequest(properties=before, **named)).properties
    news = encode_properties(clear, {path})
    after = stub.Check(proto.CheckRequest(olds=before, news=news, **named)).inputs
    difference = stub.Diff(proto.DiffRequest(olds=state, old_inputs=before, news=after, **named))
    assert (difference.changes, list(difference.replaces)) == (proto.DiffResponse.DIFF_SOME, [])
    held = dict(eureka.held)
    hidden = stub.Update(proto.UpdateRequest(olds=state, news=after, **named)).properties
    assert eureka.held == held
    assert path in decode_properties(hidden).secrets
    for news in after, before:
        settled = stub.Diff(proto.DiffRequest(olds=hidden, old_inputs=after, news=news, **named))
        assert settled.changes == proto.DiffResponse.DIFF_NONE


def test_a_program_may_ignore_every_change(stub: Any, eureka: FakeEureka) -> None:
    """With ``ignoreChanges`` the engine sends back all former inputs, internal marks included, and the
    check accepts them.
    """
    inputs = check(stub)
    state = stub.Create(proto.CreateRequest(properties=inputs, **NAMED)).properties
    eureka.held.clear()
    found = stub.Check(proto.CheckRequest(olds=inputs, news=inputs, **NAMED))
    assert "absent" in found.inputs.fields
    again = stub.Check(proto.CheckRequest(olds=found.inputs, news=found.inputs, **NAMED))
    assert (list(found.failures), list(again.failures)) == ([], [])
    state = stub.Update(proto.UpdateRequest(olds=state, news=again.inputs, **NAMED)).properties
    settled = stub.Check(proto.CheckRequest(olds=again.inputs, news=again.inputs, **NAMED))
    assert settled.inputs == inputs
    difference = stub.Diff(proto.DiffRequest(olds=state, news=settled.inputs, **NAMED))
    assert difference.changes == proto.DiffResponse.DIFF_NONE
    # Where Eureka is configured by another URL since, it goes on where it is.
    stub.Configure(proto.ConfigureRequest(args=encode_properties({"url": NOBODY}), name="default"))
    moved = stub.Check(proto.CheckRequest(olds=inputs, news=inputs, **NAMED))
    assert decode_properties(moved.inputs).properties["service_url"] == URL


def test_a_credential_in_clear_does_not_stay_so_in_the_state(stub: Any) -> None:
    """The checked configuration, which goes into the state, marks a URL with credentials as secret."""
    urn = "urn:pulumi:dev::shop::pulumi:providers:eurekube::eu"
    written = {"url": "http://me:hidden@eureka:8761/eureka", "token": UNKNOWN, "zone": "zone-a"}
    checked = stub.CheckConfig(proto.CheckRequest(urn=urn, news=encode_properties(written)))
    found = decode_properties(checked.inputs)
    assert found.properties == written
    assert found.secrets == {("url",)}
    assert not checked.failures


@pytest.mark.parametrize(
    "written",
    [
        {"pasword": "pa55"},
        {"url": "http://me:pa55/x@eureka:8761/eureka"},
        {"proxy": "ftp://a:pa55@b"},
        {"connections": "[pa55"},
        {"connections": {"eu": {"url": URL, "pasword": "pa55"}}},
        {"connections": {"eu": {"url": URL, "user": "me", "token": "pa55"}}},
        {"connections": as_secret({"eu": {"url": "pa55"}})},
    ],
)
def test_a_configuration_is_refused_without_its_credentials(stub: Any, written: dict[str, Any]) -> None:
    """The failure names no property, since the engine would show its value; ``connections`` stays secret."""
    urn = "urn:pulumi:dev::shop::pulumi:providers:eurekube::eu"
    checked = stub.CheckConfig(proto.CheckRequest(urn=urn, news=encode_properties({"url": URL, **written})))
    (failure,) = checked.failures
    assert failure.property == ""
    assert "pa55" not in failure.reason
    if "connections" in written:
        assert decode_properties(checked.inputs).secrets == {("connections",)}


def test_a_programs_own_settings_are_not_kept_with_the_provider(stub: Any) -> None:
    """A stack that moves from the dynamic provider still has the program's own keys in its configuration."""
    urn = "urn:pulumi:dev::shop::pulumi:providers:eurekube::default"
    written = {"url": URL, "clusterName": "eks", "operator": '{"tag":"1"}'}
    checked = stub.CheckConfig(proto.CheckRequest(urn=urn, news=encode_properties(written)))
    assert not checked.failures
    assert decode_properties(checked.inputs).properties == {"url": URL}


@pytest.mark.parametrize("connection", [5, True, ["eu"], {"eu": "x"}])
def test_a_connection_that_is_no_text_is_reported_in_a_sentence(stub: Any, connection: Any) -> None:
    """A program in Python or JavaScript may pass a connection of any type."""
    news = encode_properties({**GIVEN, "connection": connection})
    (failure,) = stub.Check(proto.CheckRequest(news=news, **NAMED)).failures
    assert (failure.property, failure.reason) == (
        "connection",
        "connection must be a text: the name of a connection",
    )
    args = encode_properties({"name": "old", "connection": connection})
    with pytest.raises(grpc.RpcError) as raised:
        stub.Invoke(proto.InvokeRequest(tok="eurekube:index:getApplication", args=args))
    assert sentence(raised) == failure.reason


def test_another_machines_file_is_refused_for_the_named_connection(stub: Any) -> None:
    """A connection with a missing CA file is an error only for resources that name it: others may use it
    elsewhere.
    """
    values = {"url": URL, "connections": {"eu": {"url": URL, "caFile": "/nowhere", "maxAnswerMib": 256}}}
    urn = "urn:pulumi:dev::shop::pulumi:providers:eurekube::default"
    assert not stub.CheckConfig(proto.CheckRequest(urn=urn, news=encode_properties(values))).failures
    stub.Configure(proto.ConfigureRequest(args=encode_properties(values), name="default"))
    assert not stub.Check(proto.CheckRequest(news=encode_properties(GIVEN), **NAMED)).failures
    (failure,) = stub.Check(
        proto.CheckRequest(news=encode_properties({**GIVEN, "connection": "eu"}), **NAMED)
    ).failures
    assert "the CA file /nowhere does not exist" in failure.reason


def test_an_error_is_one_line_whatever_a_program_names(stub: Any) -> None:
    """An error contains no control characters, which a terminal would obey."""
    args = encode_properties({"name": "old", "connection": "e\nu\x1b[1m"})
    with pytest.raises(grpc.RpcError) as raised:
        stub.Invoke(proto.InvokeRequest(tok="eurekube:index:getApplication", args=args))
    assert sentence(raised).isprintable()


def test_the_organization_of_a_state_stays(stub: Any) -> None:
    """A resource from the dynamic provider keeps the owner in its state, with another organization than a
    new one's.
    """
    olds = encode_properties({**GIVEN, "owner": "stack/acme/shop/dev/billing"})
    configuration = proto.ConfigureRequest(
        args=encode_properties({"url": URL, "offline": "true"}), name="default"
    )
    stub.Configure(configuration)
    answer = stub.Check(proto.CheckRequest(olds=olds, news=encode_properties(GIVEN), **NAMED))
    assert decode_properties(answer.inputs).properties["owner"] == "stack/acme/shop/dev/billing"
    stub.Configure(configuration)  # another run: in one, a resource has one owner
    assert decode_properties(check(stub)).properties["owner"] == "stack/organization/shop/dev/billing"


def test_what_is_imported_asks_to_be_adopted_and_keeps_its_renewer(stub: Any, eureka: FakeEureka) -> None:
    """An import changes nothing in Eureka; the next update makes the stack the owner."""
    there = Instance(
        "OLD", "vm-17:old:8080", "vm-17", "192.0.2.17", Port(8080), Port(8443), metadata={"zone": "a"}
    )
    eureka.register(there)
    before = dict(eureka.held)
    found = stub.Read(proto.ReadRequest(id="old/vm-17:old:8080", **NAMED))
    assert eureka.held == before
    inputs = decode_properties(found.inputs).properties
    assert {name: inputs[name] for name in ("on_conflict", "renewer", "zone")} == {
        "on_conflict": "adopt",
        "renewer": "self",
        "zone": "a",
    }
    owner = "stack/organization/shop/dev/billing"
    outputs = decode_properties(found.properties).properties
    assert (inputs["owner"], inputs["seen_owner"]) == (owner, "")
    assert (outputs["owner"], "service_url" in outputs) == ("", False)
    assert found.id == "OLD/vm-17:old:8080"
    # The refresh that follows finds nothing new.
    refreshed = stub.Read(
        proto.ReadRequest(id=found.id, properties=found.properties, inputs=found.inputs, **NAMED)
    )
    settled = proto.DiffRequest(
        olds=refreshed.properties, old_inputs=refreshed.inputs, news=found.inputs, **NAMED
    )
    assert stub.Diff(settled).changes == proto.DiffResponse.DIFF_NONE
    checked = stub.Check(proto.CheckRequest(olds=found.inputs, news=found.inputs, **NAMED))
    assert not checked.failures
    difference = stub.Diff(proto.DiffRequest(olds=found.properties, news=checked.inputs, **NAMED))
    assert (difference.changes, list(difference.replaces)) == (proto.DiffResponse.DIFF_SOME, [])
    request = proto.DiffRequest(olds=found.properties, old_inputs=found.inputs, news=checked.inputs, **NAMED)
    assert set(stub.Diff(request).detailedDiff) == {"seenOwner"}
    # What is not adopted yet is somebody else's, and stays.
    stub.Delete(proto.DeleteRequest(properties=found.properties, **NAMED))
    assert eureka.held == before
    stub.Update(proto.UpdateRequest(olds=found.properties, news=checked.inputs, **NAMED))
    (adopted,) = eureka.held.values()
    assert (adopted.owner, adopted.renewer) == ("stack/organization/shop/dev/billing", "self")
    assert (adopted.host_name, adopted.secure_port, adopted.zone) == ("vm-17", Port(8443), "a")


def test_a_syncers_instance_is_not_imported(stub: Any, eureka: FakeEureka) -> None:
    """The import of a pod's instance is refused by an error: for the engine a problem of a property is a
    warning, a bug of the provider's, and the registration goes into the state. A read is not refused.
    """
    owner, id_ = "cluster/eu/shop/rating", "rating-1.shop.eu:rating:8080"
    metadata = {"eurekube.owner": owner, "eurekube.cluster-uid": "u-1", "tier": "1"}
    eureka.register(Instance("RATING", id_, "10.0.0.7", "10.0.0.7", Port(8080), metadata=metadata))
    found = stub.Read(proto.ReadRequest(id=f"RATING/{id_}", **NAMED))
    assert decode_properties(found.inputs).properties["metadata"] == {"tier": "1"}
    with pytest.raises(grpc.RpcError) as raised:
        stub.Check(proto.CheckRequest(olds=found.inputs, news=found.inputs, **NAMED))
    assert sentence(raised).startswith(
        f"RATING/{id_} belongs to the syncer shop/rating of cluster eu and was left as it is"
    )
    check_other = {**NAMED, "urn": f"{NAMED['urn']}-2"}
    assert not stub.Check(proto.CheckRequest(news=encode_properties(GIVEN), **check_other)).failures


def test_a_member_is_imported_without_the_marks_of_its_application(stub: Any, eureka: FakeEureka) -> None:
    """Metadata that Eurekube wrote is no property that a program could ask for."""
    marks = {"owner": "stack/a/b/c/d", "renewer": "eurekube", "member": "m", "later": "x"}
    metadata = {"tier": "1", **{f"eurekube.{key}": value for key, value in marks.items()}}
    eureka.register(Instance("OLD", "m", "192.0.2.1", "192.0.2.1", Port(80), metadata=metadata))
    found = stub.Read(proto.ReadRequest(id="OLD/m", **NAMED))
    assert decode_properties(found.properties).properties["metadata"] == {"tier": "1"}
    assert not stub.Check(proto.CheckRequest(olds=found.inputs, news=found.inputs, **NAMED)).failures


@pytest.mark.parametrize("port", [Port(7002, enabled=False), Port(443, enabled=False), Port(8443)])
def test_an_import_enables_no_secure_port(stub: Any, eureka: FakeEureka, port: Port) -> None:
    """The program that Pulumi prints is the inputs of the import: who names a secure port enables it there.

    A server fills in port 7002, disabled, for a client that sends none.
    """
    eureka.register(Instance("OLD", "vm-17", "vm-17", "192.0.2.17", Port(80), secure_port=port))
    found = stub.Read(proto.ReadRequest(id="OLD/vm-17", **NAMED))
    printed = proto.CheckRequest(olds=found.inputs, news=found.inputs, **NAMED)
    inputs = stub.Check(printed).inputs
    stub.Update(proto.UpdateRequest(olds=found.properties, news=inputs, **NAMED))
    (held,) = eureka.held.values()
    assert held.owner
    assert held.secure_port == port
    # With ignoreChanges of everything the inputs come back as the program's.
    again = stub.Check(proto.CheckRequest(olds=inputs, news=inputs, **NAMED)).inputs
    assert again == inputs


def test_what_is_not_there_is_not_imported(stub: Any, eureka: FakeEureka) -> None:
    """The import of a missing instance yields an empty id; an id that names no instance is an error."""
    assert eureka.held == {}
    assert stub.Read(proto.ReadRequest(id="OLD/nobody", **NAMED)).id == ""
    with pytest.raises(grpc.RpcError, match="must be APPLICATION/instance-id"):
        stub.Read(proto.ReadRequest(id="OLD", **NAMED))


def test_an_application_is_imported_without_what_others_own(stub: Any, eureka: FakeEureka) -> None:
    """The import takes instances without an owner, with their ids as keys."""
    kind = "eurekube:index:Application"
    named: dict[str, Any] = {"urn": f"urn:pulumi:dev::shop::{kind}::old", "type": kind}
    for number, owner in enumerate(["", "", "cluster/a/b/c"]):
        metadata = {"eurekube.owner": owner} if owner else {}
        eureka.register(
            Instance("OLD", f"vm-{number}", f"vm-{number}", f"192.0.2.{number}", Port(80), metadata=metadata)
        )
    before = dict(eureka.held)
    found = stub.Read(proto.ReadRequest(id=" old ", **named))
    assert found.id == "OLD"
    assert set(decode_properties(found.inputs).properties["instances"]) == {"vm-0", "vm-1"}
    checked = stub.Check(proto.CheckRequest(olds=found.inputs, news=found.inputs, **named))
    assert not checked.failures
    assert eureka.held == before
    stub.Update(proto.UpdateRequest(olds=found.properties, news=checked.inputs, **named))
    owners = {each.instance_id: each.owner for each in eureka.held.values()}
    assert owners == {
        "vm-0": "stack/organization/shop/dev/old",
        "vm-1": "stack/organization/shop/dev/old",
        "vm-2": "cluster/a/b/c",
    }


def test_an_application_of_others_alone_is_not_said_to_be_missing(
    stub: Any, engine: Engine, eureka: FakeEureka
) -> None:
    """Where all instances belong to others, the import finds none, and a warning says whose they are: the
    engine says that the application does not exist.
    """
    kind = "eurekube:index:Application"
    named: dict[str, Any] = {"urn": f"urn:pulumi:dev::shop::{kind}::old", "type": kind}
    eureka.register(
        Instance("OLD", "a", "a", "192.0.2.1", Port(80), metadata={"eurekube.owner": "cluster/a/b/c"})
    )
    assert stub.Read(proto.ReadRequest(id="old", **named)).id == ""
    assert [each.message for each in engine.shown] == [
        "old belongs to the syncer b/c of cluster a, and was left as it is"
    ]
    assert stub.Read(proto.ReadRequest(id="none", **named)).id == ""
    assert len(engine.shown) == 1


def test_an_imported_application_has_one_renewer(stub: Any, eureka: FakeEureka) -> None:
    """Beside a stack's own instances those that renew themselves are left out of the program, and stay."""
    kind = "eurekube:index:Application"
    named: dict[str, Any] = {"urn": f"urn:pulumi:dev::shop::{kind}::old", "type": kind}
    owned = {"eurekube.owner": "stack/organization/shop/dev/old", "eurekube.renewer": "eurekube"}
    for id_, metadata in (("a-self", {}), ("own", {**owned, "eurekube.member": "own"}), ("z-self", {})):
        eureka.register(Instance("OLD", id_, id_, f"192.0.2.{len(id_)}", Port(80), metadata=metadata))
    found = stub.Read(proto.ReadRequest(id="OLD", **named))
    asked = decode_properties(found.inputs).properties
    assert (asked["renewer"], set(asked["instances"])) == ("eurekube", {"own"})
    assert set(decode_properties(found.properties).properties["instances"]) == {"a-self", "own", "z-self"}
    checked = stub.Check(proto.CheckRequest(olds=found.inputs, news=found.inputs, **named))
    assert not checked.failures
    stub.Update(proto.UpdateRequest(olds=found.properties, news=checked.inputs, **named))
    assert {each.instance_id: each.renewer for each in eureka.held.values()} == {
        "a-self": None,
        "own": "eurekube",
        "z-self": None,
    }


@pytest.mark.parametrize("id_", ["OLD/vm-0", "OLD/old.dev.shop", "/", " "])
def test_one_instance_is_no_application(stub: Any, eureka: FakeEureka, id_: str) -> None:
    """An instance's id is refused as an Application's, whose import would take over the whole application."""
    kind = "eurekube:index:Application"
    eureka.register(Instance("OLD", "vm-0", "vm-0", "192.0.2.1", Port(80)))
    with pytest.raises(grpc.RpcError, match="must be the name of an application") as raised:
        stub.Read(proto.ReadRequest(id=id_, urn=f"urn:pulumi:dev::shop::{kind}::old", type=kind))
    assert "is an Instance" in sentence(raised)


@pytest.mark.parametrize("owner", ["", "cluster/eu/shop/rating", "stack/organization/shop/dev/billing"])
def test_what_a_program_gets_says_whose_it_is(stub: Any, eureka: FakeEureka, owner: str) -> None:
    """A resource that the program only reads shows its owner, also after a refresh, and never becomes the
    stack's.
    """
    metadata = {"eurekube.owner": owner, "tier": "1"} if owner else {"tier": "1"}
    eureka.register(Instance("OLD", "vm-17", "vm-17", "192.0.2.17", Port(80), metadata=metadata))
    got = stub.Read(proto.ReadRequest(id="old/vm-17", properties=encode_properties({}), **NAMED))
    reported = decode_properties(got.properties).properties
    assert (got.id, reported["owner"], reported["host_name"]) == ("OLD/vm-17", owner, "vm-17")
    assert reported["metadata"] == {"tier": "1"}
    eureka.register(Instance("OLD", "vm-17", "vm-17", "192.0.2.18", Port(80)))
    # The engine keeps no inputs of it.
    again = stub.Read(proto.ReadRequest(id=got.id, properties=got.properties, **NAMED))
    reported = decode_properties(again.properties).properties
    assert reported["ip_address"] == "192.0.2.18"
    if not reported.get("service_url"):
        assert (again.id, reported["owner"]) == ("OLD/vm-17", "")
    eureka.held.clear()
    assert stub.Read(proto.ReadRequest(id=got.id, **NAMED)).id == ""


@pytest.mark.parametrize(
    ("owners", "owner", "others"),
    [
        (["", ""], "", {}),
        (["stack/organization/shop/dev/old"] * 2, "stack/organization/shop/dev/old", {}),
        (["stack/organization/shop/dev/x"] * 2, "stack/organization/shop/dev/x", {}),
        (["", "stack/organization/shop/dev/x"], "", {"vm-1": "stack/organization/shop/dev/x"}),
        (["", "stack/organization/shop/dev/old"], "stack/organization/shop/dev/old", {"vm-0": ""}),
    ],
)
def test_an_application_that_a_program_gets_says_whose_each_is(
    stub: Any, eureka: FakeEureka, owners: list[str], owner: str, others: dict[str, str]
) -> None:
    """The output ``owner`` is the owner of all instances, or the resource's own if it owns any;
    ``heldByOthers`` lists
    the rest.
    """
    kind = "eurekube:index:Application"
    named: dict[str, Any] = {"urn": f"urn:pulumi:dev::shop::{kind}::old", "type": kind}
    for at, name in enumerate(owners):
        metadata = {"eurekube.owner": name} if name else {}
        eureka.register(Instance("OLD", f"vm-{at}", "vm", "192.0.2.1", Port(at + 1), metadata=metadata))
    found = stub.Read(proto.ReadRequest(id="old", **named))
    reported = decode_properties(found.properties).properties
    assert (found.id, reported["owner"], reported["held_by_others"]) == ("OLD", owner, others)
    again = stub.Read(
        proto.ReadRequest(id=found.id, properties=found.properties, inputs=found.inputs, **named)
    )
    request = proto.DiffRequest(olds=again.properties, old_inputs=again.inputs, news=found.inputs, **named)
    assert stub.Diff(request).changes == proto.DiffResponse.DIFF_NONE


@pytest.mark.parametrize(
    ("name", "version", "is_taken"),
    [
        ("default", "", True),
        ("default_0_1_0", "0.1.0", True),
        ("default_0_1_0_rc_1", "0.1.0-rc.1", True),
        ("eu", "0.1.0", False),
        ("default_eu", "0.1.0", False),
        ("default", "0.1.0", False),
        ("default_2", "0.1.0", False),
        ("default_2", "", False),
    ],
)
def test_only_a_stacks_provider_reads_environment_credentials(
    stub: Any, monkeypatch: pytest.MonkeyPatch, name: str, version: str, is_taken: bool
) -> None:
    """A default provider is recognized by its name and version; an explicit one may have any other name."""
    configured = encode_properties({"url": URL, **({"version": version} if version else {})})
    monkeypatch.setenv("EUREKA_USER", "somebody")
    monkeypatch.setenv("EUREKA_PASSWORD", "hidden")
    made: list[str | None] = []
    servers = FakeServers({URL: FakeEureka()})

    def servers_of(connection: Connection) -> Peers:
        made.append(connection.user)
        return servers(connection)

    monkeypatch.setattr(SHARED_PEERS, "get", servers_of)
    urn = f"urn:pulumi:dev::shop::pulumi:providers:eurekube::{name}"
    for said in (name, ""):
        stub.CheckConfig(proto.CheckRequest(urn=urn, news=configured))
        stub.Configure(proto.ConfigureRequest(args=configured, name=said))
        stub.Read(proto.ReadRequest(id="OLD/nobody", **NAMED))
    assert made == ["somebody" if is_taken else None] * 2


def test_functions_answer_in_the_schemas_words(stub: Any, eureka: FakeEureka) -> None:
    """``getApplication`` returns all instances, and those that are UP, under the schema's names; half a
    surrogate pair, which Eureka has and Pulumi cannot send, fails nothing.
    """
    metadata = {"someKey": "1", "half": "\ud800"}
    eureka.register(Instance("OLD", "vm-1", "vm-1", "192.0.2.1", Port(8080), metadata=metadata))
    request = proto.InvokeRequest(
        tok="eurekube:index:getApplication", args=encode_properties({"name": "old"})
    )
    answer = getattr(stub.Invoke(request), "return")
    assert answer["name"] == "OLD"
    (instance,) = answer["up"]
    assert instance["hostName"] == "vm-1"
    assert dict(instance["metadata"]) == {"someKey": "1", "half": "?"}
    with pytest.raises(grpc.RpcError, match="there is no function"):
        stub.Invoke(proto.InvokeRequest(tok="eurekube:index:getNothing"))


@pytest.mark.parametrize(
    ("function", "given", "answer"),
    [
        (
            "getApplication",
            {"name": "old", "offline": {"up": [{"hostName": "vm-1"}]}},
            {"name": "old", "instances": [], "up": [{"hostName": "vm-1"}]},
        ),
        ("getInstance", {"application": "old", "instance_id": "a", "offline": {}}, {"exists": False}),
        (
            "getEndpoints",
            {"service": "rating", "namespace": "shop", "offline": {}},
            {"service": "rating", "namespace": "shop", "endpoints": [], "ready": []},
        ),
    ],
)
def test_an_offline_preview_hears_what_its_program_says(
    stub: Any, function: str, given: dict[str, Any], answer: dict[str, Any]
) -> None:
    """An offline preview returns the argument ``offline`` instead of asking a server; an update always
    asks.
    """
    away = {"url": NOBODY, "kubeconfig": "/nowhere", "offline": "true"}
    stub.Configure(proto.ConfigureRequest(args=encode_properties(away), name="default"))
    token = f"eurekube:index:{function}"

    def asked(given: dict[str, Any], *, preview: bool = True) -> Any:
        return stub.Invoke(proto.InvokeRequest(tok=token, args=encode_properties(given), preview=preview))

    assert json_format.MessageToDict(getattr(asked(given), "return")) == answer  # type: ignore[no-untyped-call]
    for wrong, expected in (
        ({}, "give it what it is to answer then, as its argument offline"),
        ({"offline": []}, "as its argument offline"),
        ({"offline": {"nobody": 1}}, "answers no 'nobody'; there are"),
    ):
        with pytest.raises(grpc.RpcError, match=expected):
            asked({**given, "offline": None, **wrong})
    with pytest.raises(grpc.RpcError, match=r"no connection|/nowhere"):
        asked(given, preview=False)


def test_cancel_ends_a_drain_that_waits(stub: Any, eureka: FakeEureka) -> None:
    """The deletion fails, and the instance is UP again."""
    state = stub.Create(proto.CreateRequest(properties=check(stub, drain_seconds=600), **NAMED)).properties
    errors: list[grpc.RpcError] = []

    def delete() -> None:
        with pytest.raises(grpc.RpcError) as raised:
            stub.Delete(proto.DeleteRequest(properties=state, **NAMED))
        errors.append(raised.value)

    thread = threading.Thread(target=delete)
    thread.start()
    while not any(each.is_overridden for each in eureka.held.values()):
        assert thread.is_alive()
    stub.Cancel(empty_pb2.Empty())  # type: ignore[attr-defined]
    thread.join(30)
    assert "in service again" in str(errors[0].details())  # type: ignore[attr-defined]
    assert [each.status.value for each in eureka.held.values()] == ["UP"]


def test_cancel_is_heard_while_every_thread_drains(stub: Any, eureka: FakeEureka) -> None:
    """Drains under way are undone, and those that have not begun take no instance out of service."""
    states = []
    for number in range(CALLS + 2):
        inputs = check(stub, drain_seconds=600, instance_id=f"vm-{number}", host_name=f"192.0.2.{number}")
        states.append(stub.Create(proto.CreateRequest(properties=inputs, **NAMED)).properties)
    deletes = [stub.Delete.future(proto.DeleteRequest(properties=state, **NAMED)) for state in states]
    deadline = time.monotonic() + 30
    while sum(each.is_overridden for each in eureka.held.values()) < CALLS:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    before = dict(eureka.held)
    stub.Cancel(empty_pb2.Empty(), timeout=30)  # type: ignore[attr-defined]
    reported = [str(each.exception(30).details()) for each in deletes]
    assert sum("in service again" in each for each in reported) == CALLS
    assert sum("interrupted before it began" in each for each in reported) == 2
    with pytest.raises(grpc.RpcError, match="interrupted before it began"):
        stub.Delete(proto.DeleteRequest(properties=states[0], **NAMED))
    assert before.keys() == eureka.held.keys()
    assert {each.status.value for each in eureka.held.values()} == {"UP"}


def test_a_time_out_that_is_shorter_than_a_drain_ends_it_at_once(stub: Any, eureka: FakeEureka) -> None:
    """The deletion fails before any instance is taken out of service."""
    state = stub.Create(proto.CreateRequest(properties=check(stub, drain_seconds=600), **NAMED)).properties
    with pytest.raises(grpc.RpcError, match="the custom time-out ends before the 600 seconds"):
        stub.Delete(proto.DeleteRequest(properties=state, timeout=60, **NAMED))
    assert [each.status.value for each in eureka.held.values()] == ["UP"]


def is_refused(error: type[RegistryError]) -> Callable[[], Any]:
    """Return a list function that raises a gateway's 404."""

    def refuse() -> Any:
        raise error("list the registry: answered 404 (default backend)", status_code=404)

    return refuse


def test_a_gateway_that_answers_404_is_not_taken_at_its_word(
    stub: Any, eureka: FakeEureka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a gateway's 404 counted as absence, the registration would leave the state and be renewed for
    ever.
    """
    state = stub.Create(proto.CreateRequest(properties=check(stub), **NAMED)).properties
    found = {
        "tok": "eurekube:index:getInstance",
        "args": encode_properties({"application": "old", "instance_id": "a"}),
    }
    held, eureka.held = eureka.held, {}
    monkeypatch.setattr(eureka, "list_instances", is_refused(RegistryRejected))
    asked: list[Callable[[], Any]] = [
        lambda: stub.Read(proto.ReadRequest(id="x", properties=state, **NAMED)),
        lambda: stub.Delete(proto.DeleteRequest(properties=state, **NAMED)),
        lambda: stub.Read(proto.ReadRequest(id="OLD/a", **NAMED)),
        lambda: stub.Invoke(proto.InvokeRequest(**found)),
    ]
    for ask in asked:
        with pytest.raises(grpc.RpcError, match="answers as no Eureka does") as raised:
            ask()
        assert "default backend" in sentence(raised)
    eureka.held = held
    assert stub.Read(proto.ReadRequest(id="x", properties=state, **NAMED)).id == "x"
    eureka.held = {}
    # One that has just started refuses its list for five minutes, and is a Eureka.
    monkeypatch.setattr(eureka, "list_instances", is_refused(RegistryDenied))
    assert stub.Read(proto.ReadRequest(id="x", properties=state, **NAMED)).id == ""
    stub.Delete(proto.DeleteRequest(properties=state, **NAMED))


def _named(name: str, kind: str = TYPE) -> dict[str, Any]:
    return {"urn": f"urn:pulumi:dev::shop::{kind}::{name}", "type": kind}


def test_two_resources_of_a_program_at_one_address_are_refused(stub: Any, eureka: FakeEureka) -> None:
    """The check finds the clash without asking Eureka; a resource that was there before, or that moves,
    gets a warning.
    """

    def checked(name: str, olds: Any = None, **given: Any) -> Any:
        news = encode_properties({**GIVEN, **given})
        return stub.Check(proto.CheckRequest(olds=olds or encode_properties({}), news=news, **_named(name)))

    first = checked("billing")
    assert not first.failures
    assert not checked("billing", first.inputs).failures
    (refused,) = checked("invoices").failures
    assert refused.property == "hostName"
    assert "192.0.2.10: the resource 'billing' of this program registers the same" in refused.reason
    assert "another hostName or port" in refused.reason
    (hidden,) = checked("invoices", host_name=as_secret("192.0.2.10")).failures
    assert "192.0.2.10" not in hidden.reason
    assert not checked("invoices", port=9090).failures
    assert not checked("invoices", application="invoices").failures
    many = {"application": "billing", "port": 8080, "instances": {"a": {"hostName": "192.0.2.10"}}}
    request = proto.CheckRequest(
        news=encode_properties(many), **_named("rating", "eurekube:index:Application")
    )
    (refused,) = stub.Check(request).failures
    assert refused.property == "instances.a.hostName"
    assert eureka.asked == ["read"]  # of the update alone
    # What moved away leaves its address to others.
    assert not checked("billing", first.inputs, host_name="192.0.2.11").failures
    assert not checked("orders").failures


def test_two_resources_of_one_name_below_different_parents(stub: Any, eureka: FakeEureka) -> None:
    """Both would have one owner: they are refused where they would register or remove the same instances."""

    def problem(
        kind: str, parent: str, given: dict[str, Any], name: str = "billing"
    ) -> tuple[str, str] | None:
        urn = f"urn:pulumi:dev::shop::{parent}{kind}::{name}"
        request = proto.CheckRequest(news=encode_properties(given), urn=urn, type=kind)
        failures = stub.Check(request).failures
        return (failures[0].property, failures[0].reason) if failures else None

    group, application = "shop:index:Group$", "eurekube:index:Application"
    for _ in range(2):  # the engine checks what is replaced twice
        assert problem(TYPE, "", GIVEN) is None
    other_host = {**GIVEN, "host_name": "192.0.2.11"}
    found = problem(TYPE, group, other_host)
    assert found is not None
    assert found[0] == "instanceId"
    assert "another resource of the name 'billing' in this program registers the same instance" in found[1]
    assert problem(TYPE, group, {**other_host, "application": "invoices"}) is None
    assert problem(TYPE, group, {**other_host, "instance_id": "own"}) is None
    by_hand = problem(TYPE, "", {**GIVEN, "host_name": "192.0.2.12", "instance_id": "own"}, "third")
    assert by_hand is not None
    assert "the resource 'billing' of this program registers the same instance" in by_hand[1]

    def many(key: str, host: str, **more: str) -> dict[str, Any]:
        return {"application": "row", "port": 8080, "instances": {key: {"hostName": host}}, **more}

    assert problem(application, "", many("a", "192.0.2.21")) is None
    found = problem(application, group, many("b", "192.0.2.22"))
    assert found is not None
    assert found[0] == "instances"
    assert "an update of one would remove those of the other" in found[1]
    assert problem(application, group, many("b", "192.0.2.22", application="column")) is None
    assert eureka.asked == []


def test_two_resources_that_stand_at_one_address_go_on(stub: Any, eureka: FakeEureka, engine: Engine) -> None:
    """Resources that an earlier release allowed at one address get a warning only."""
    both = [
        stub.Check(proto.CheckRequest(news=encode_properties(GIVEN), **_named(name))) for name in ("a", "b")
    ]
    again = [
        stub.Check(proto.CheckRequest(olds=each.inputs, news=encode_properties(GIVEN), **_named(name)))
        for name, each in zip(("a", "b"), both, strict=True)
    ]
    assert [len(each.failures) for each in (*both, *again)] == [0, 1, 0, 0]
    reported = (
        "the resource 'a' of this program registers the same application at this address and port (this one"
    )
    assert f"{reported} was registered there before, and stays)" in engine.shown[-1].message
    assert eureka.held == {}


def test_an_existing_resource_goes_on_beside_a_new_one(stub: Any, engine: Engine) -> None:
    """The warning is correct in any order of checks, which the engine chooses."""
    standing = stub.Check(proto.CheckRequest(news=encode_properties(GIVEN), **_named("old"))).inputs
    stub.Configure(proto.ConfigureRequest(args=encode_properties({"url": URL}), name="default"))
    assert not stub.Check(proto.CheckRequest(news=encode_properties(GIVEN), **_named("new"))).failures
    again = proto.CheckRequest(olds=standing, news=encode_properties(GIVEN), **_named("old"))
    assert not stub.Check(again).failures
    reported = (
        "the resource 'new' of this program registers the same application at this address and port (this one"
    )
    assert f"{reported} was registered there before, and stays)" in engine.shown[-1].message


def test_a_shared_address_is_reported_by_up_and_refresh(
    stub: Any, eureka: FakeEureka, engine: Engine
) -> None:
    """A foreign instance that came to the address later is reported, unless it is out of service."""
    inputs = check(stub)
    made = stub.Create(proto.CreateRequest(properties=inputs, **NAMED))
    engine.shown.clear()
    ((key, ours),) = eureka.held.items()
    stack = "stack/organization/other/dev/billing"
    theirs = replace(ours, instance_id="theirs", metadata={**ours.metadata, "eurekube.owner": stack})
    eureka.held[theirs.key] = theirs
    stub.Check(proto.CheckRequest(olds=inputs, news=encode_properties(GIVEN), **NAMED))
    read = proto.ReadRequest(id=made.id, properties=made.properties, inputs=inputs, **NAMED)
    assert stub.Read(read).properties == made.properties
    sentence = [each.message for each in engine.shown]
    assert len(sentence) == 2
    for each in sentence:
        assert "callers of BILLING find 192.0.2.10:8080 twice, since theirs is registered there" in each
        assert f"belongs to {stack}" in each
        assert "another hostName or port" in each
    engine.shown.clear()
    eureka.held[theirs.key] = replace(theirs, status=Status.OUT_OF_SERVICE)
    stub.Read(read)
    del eureka.held[theirs.key]
    stub.Read(read)
    assert engine.shown == []
    # One of the same stack, which no program has any more, is found by a refresh.
    eureka.held[theirs.key] = replace(theirs, metadata=ours.metadata)
    stub.Check(proto.CheckRequest(olds=inputs, news=encode_properties(GIVEN), **NAMED))
    assert engine.shown == []
    stub.Read(read)
    assert len(engine.shown) == 1
    assert key in eureka.held


def test_the_error_of_a_taken_address_names_it_and_the_ways_out(stub: Any, eureka: FakeEureka) -> None:
    """The error tells another stack's instance from a self-registered one, and gives the inputs that adopt
    it.
    """
    inputs = check(stub)
    stub.Create(proto.CreateRequest(properties=inputs, **NAMED))
    ((key, ours),) = eureka.held.items()
    del eureka.held[key]
    stack = "stack/organization/other/dev/billing"
    for metadata, whose, more in (
        ({"eurekube.owner": stack}, f"belongs to {stack}", ""),
        ({}, "registered itself", ' and renewer="self"'),
    ):
        theirs = replace(ours, instance_id="theirs", metadata=metadata)
        eureka.held = {theirs.key: theirs}
        with pytest.raises(grpc.RpcError) as raised:
            stub.Create(proto.CreateRequest(properties=inputs, **NAMED))
        reported = sentence(raised)
        assert f"BILLING theirs at 192.0.2.10:8080 {whose}" in reported
        assert f'instanceId="theirs" and onConflict="adopt"{more}' in reported
        assert list(eureka.held) == [theirs.key]


def configure(stub: Any, *, is_newer_engine: bool = True, **values: Any) -> None:
    """Configure the provider as an engine that supports a refresh before an update, or does not."""
    stub.Handshake(proto.ProviderHandshakeRequest(supports_refresh_before_update=is_newer_engine))
    stub.Configure(proto.ConfigureRequest(args=encode_properties({"url": URL, **values}), name="default"))


def denied(_: Callable[[], Any]) -> Any:
    """Fail as a server whose password was changed."""
    raise RegistryDenied("401", status_code=401)


@pytest.mark.parametrize(
    ("values", "is_newer_engine", "asks"),
    [
        ({"refreshBeforeUpdate": True}, True, True),
        ({"refreshBeforeUpdate": "true"}, True, True),
        ({"refreshBeforeUpdate": True}, False, False),
        ({"refreshBeforeUpdate": True, "offline": True}, True, False),
        ({"refreshBeforeUpdate": False}, True, False),
        ({}, True, False),
    ],
)
def test_a_refresh_before_an_update_is_requested_if_configured(
    stub: Any, eureka: FakeEureka, values: dict[str, Any], is_newer_engine: bool, asks: bool
) -> None:
    """Each answer with a state requests a refresh, also a half-made resource's; the answer for a resource
    that the program only reads does not.
    """
    configure(stub, is_newer_engine=is_newer_engine, **values)
    inputs = check(stub)
    made = stub.Create(proto.CreateRequest(properties=inputs, **NAMED))
    ((key, _),) = eureka.held.items()
    state = {"olds": made.properties, "news": inputs, "id": made.id}
    updated = stub.Update(proto.UpdateRequest(**state, **NAMED))
    read = stub.Read(proto.ReadRequest(id=made.id, properties=made.properties, inputs=inputs, **NAMED))
    eureka.fails = {"register": [lost], "deregister": [away] * 5}
    with pytest.raises(grpc.RpcError) as raised:
        stub.Update(proto.UpdateRequest(**{**state, "news": check(stub, zone="b")}, **NAMED))
    answers = [made, updated, read, partial_resource(raised)]
    assert [each.refresh_before_update for each in answers] == [asks] * 4
    eureka.fails = {}
    assert not stub.Read(proto.ReadRequest(id="/".join(key), **NAMED)).refresh_before_update


@pytest.mark.parametrize("fails", [away, denied])
def test_a_refresh_that_came_unasked_for_takes_the_state_as_it_is(
    stub: Any, eureka: FakeEureka, engine: Engine, monkeypatch: pytest.MonkeyPatch, fails: Any
) -> None:
    """If Eureka cannot be read, a warning is shown and the state stays; with EUREKUBE_MUST_READ it is an
    error.
    """
    configure(stub, refreshBeforeUpdate=True)
    inputs = check(stub, metadata={"tier": as_secret("hidden-tier")})
    made = stub.Create(proto.CreateRequest(properties=inputs, **NAMED))
    request = proto.ReadRequest(id=made.id, properties=made.properties, inputs=inputs, **NAMED)
    eureka.held.clear()
    eureka.fails = {"read": [fails] * 10}
    engine.shown.clear()
    found = stub.Read(request)
    assert (found.id, found.properties, found.inputs) == (made.id, made.properties, inputs)
    assert found.refresh_before_update
    (warned,) = engine.shown
    assert "was not compared with Eureka, so that the state is taken as it is" in warned.message
    assert warned.urn == NAMED["urn"]
    for said in ("true", "1", "yes"):
        monkeypatch.setenv("EUREKUBE_MUST_READ", said)
        with pytest.raises(grpc.RpcError):
            stub.Read(request)
    monkeypatch.setenv("EUREKUBE_MUST_READ", "false")
    assert stub.Read(request).id == made.id
    monkeypatch.delenv("EUREKUBE_MUST_READ")
    configure(stub)
    with pytest.raises(grpc.RpcError):
        stub.Read(request)
    eureka.fails = {}
    assert stub.Read(request).id == ""


def test_a_refresh_that_came_unasked_for_asks_nobody_offline(
    stub: Any, eureka: FakeEureka, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With EUREKUBE_OFFLINE a preview asks no server; with EUREKUBE_MUST_READ a check for drift asks
    nevertheless.
    """
    configure(stub, refreshBeforeUpdate=True)
    inputs = check(stub)
    made = stub.Create(proto.CreateRequest(properties=inputs, **NAMED))
    request = proto.ReadRequest(id=made.id, properties=made.properties, inputs=inputs, **NAMED)
    eureka.held.clear()
    monkeypatch.setenv("EUREKUBE_OFFLINE", "1")
    asked = len(eureka.asked)
    found = stub.Read(request)
    assert (found.id, found.properties, len(eureka.asked)) == (made.id, made.properties, asked)
    assert "EUREKUBE_OFFLINE says that nobody is asked" in engine.shown[-1].message
    monkeypatch.setenv("EUREKUBE_MUST_READ", "1")
    assert stub.Read(request).id == ""


def listed(stub: Any, **asked: Any) -> tuple[list[str], str]:
    """Return a page's ids and its continuation token."""
    query = encode_properties(asked.pop("query", {}))
    answers = list(stub.List(proto.ListRequest(**{"token": TYPE, "query": query, **asked})))
    more = [each.continuation.continuation_token for each in answers if each.HasField("continuation")]
    assert len(more) < 2
    return [each.result.id for each in answers if each.HasField("result")], "".join(more)


def hold(eureka: FakeEureka, *ids: str, owner: str = "") -> None:
    """Put instances with these ids and this owner into Eureka."""
    metadata = {"eurekube.owner": owner} if owner else {}
    for number, id_ in enumerate(ids):
        application, _, instance_id = id_.partition("/")
        address = f"192.0.2.{100 + number}"
        held = Instance(application, instance_id, address, address, Port(8080), metadata=metadata)
        eureka.held[held.key] = held


def test_a_list_comes_in_pages(stub: Any, eureka: FakeEureka) -> None:
    """A page begins after the last id of the one before, despite removals between; the limit covers all
    pages.
    """
    ids = [f"BILLING/vm-{number}" for number in range(5)]
    hold(eureka, *ids, "RATING/vm-1")
    assert listed(stub) == ([*ids, "RATING/vm-1"], "")
    first, more = listed(stub, page_size=2)
    assert first == ids[:2]
    del eureka.held["BILLING", "vm-0"]
    second, more = listed(stub, page_size=2, continuation_token=more)
    assert second == ids[2:4]
    assert listed(stub, page_size=2, continuation_token=more) == ([ids[4], "RATING/vm-1"], "")
    first, more = listed(stub, page_size=2, limit=3)
    assert listed(stub, page_size=2, limit=3, continuation_token=more) == ([ids[3]], "")
    assert listed(stub, limit=3) == (ids[1:4], "")
    assert listed(stub, token="eurekube:index:Application", page_size=1)[0] == ["BILLING"]


@pytest.mark.parametrize("token", ["x", "2", "2 ", " x", "-1 x", "\u00b2 x", "9" * 5000 + " x"])
def test_a_token_of_another_provider_continues_no_list(stub: Any, eureka: FakeEureka, token: str) -> None:
    """A continuation token of another form is refused in one sentence."""
    hold(eureka, "BILLING/vm-1")
    with pytest.raises(grpc.RpcError) as raised:
        listed(stub, continuation_token=token)
    assert "continues no list of this provider: begin again" in sentence(raised)


def test_a_list_is_asked_for_an_application_and_an_owner(stub: Any, eureka: FakeEureka) -> None:
    """The query selects by application and owner; if a value of it is unknown, the list is empty and
    marked as computed.
    """
    hold(eureka, "BILLING/vm-1", "RATING/vm-1")
    hold(eureka, "BILLING/vm-2", owner="stack/organization/other/dev/billing")
    owned = {"owner": "stack/organization/other/dev/billing"}
    assert listed(stub, query={"application": "billing"})[0] == ["BILLING/vm-1", "BILLING/vm-2"]
    assert listed(stub, query={"application": "billing", **owned})[0] == ["BILLING/vm-2"]
    assert listed(stub, query={"owner": ""})[0] == ["BILLING/vm-1", "RATING/vm-1"]
    assert listed(stub, token="eurekube:index:Application", query=owned)[0] == ["BILLING"]
    (answer,) = stub.List(proto.ListRequest(token=TYPE, query=encode_properties({"application": UNKNOWN})))
    assert answer.HasField("computed")
    for asked in ({"query": {"aplication": "x"}}, {"token": "eurekube:index:Syncer"}):
        with pytest.raises(grpc.RpcError) as raised:
            listed(stub, **asked)
        assert "application is one" in sentence(raised) or "nothing lists" in sentence(raised)


STATELESS: dict[str, Any] = {"urn": f"urn:pulumi:dev::default::{TYPE}::Instance", "type": TYPE}
"""URN and type of a resource in ``pulumi do --stateless``."""


def configure_stateless(stub: Any, **values: Any) -> None:
    """Configure the provider as ``pulumi do --stateless`` does."""
    urn = "urn:pulumi:dev::default::pulumi:providers:eurekube::"
    stub.Configure(proto.ConfigureRequest(args=encode_properties({"url": URL, **values}), urn=urn, name=""))


def all_are_refused(expected: str, *acts: Callable[[], object]) -> None:
    """Assert that each call fails with this text."""
    for act in acts:
        with pytest.raises(grpc.RpcError) as raised:
            act()
        assert expected in sentence(raised)


def do_create(stub: Any, **given: Any) -> Any:
    """Check and create a resource as ``pulumi do --stateless``."""
    inputs = stub.Check(proto.CheckRequest(news=encode_properties({**GIVEN, **given}), **STATELESS))
    assert not inputs.failures
    return stub.Create(proto.CreateRequest(properties=inputs.inputs, **STATELESS))


def do_read(stub: Any, id_: str) -> dict[str, Any]:
    """Read a resource, and return the fields that the engine passes on."""
    found = stub.Read(proto.ReadRequest(id=id_, **STATELESS))
    return {"id": found.id, "inputs": found.inputs, "properties": found.properties}


def do_patch(stub: Any, id_: str, **given: Any) -> Any:
    """Read, check and update a resource as ``pulumi do --stateless``."""
    found = do_read(stub, id_)
    news: Any = proto.CheckRequest(news=found["inputs"]).news
    news.update(given)
    checked = stub.Check(proto.CheckRequest(olds=found["inputs"], news=news, **STATELESS)).inputs
    request = {"id": id_, "olds": found["properties"], "old_inputs": found["inputs"], "news": checked}
    return stub.Update(proto.UpdateRequest(**request, **STATELESS))


def do_delete(stub: Any, id_: str) -> None:
    """Read and delete a resource as ``pulumi do --stateless``."""
    found = do_read(stub, id_)
    stub.Delete(proto.DeleteRequest(id=found["id"], properties=found["properties"], **STATELESS))


def test_without_a_state_only_a_named_owner_changes_anything(stub: Any, eureka: FakeEureka) -> None:
    """Without ``doOwner`` reads and lists work, and the error of each change says what to set."""
    configure_stateless(stub)
    hold(eureka, "BILLING/vm-1")
    assert do_read(stub, "BILLING/vm-1")["id"] == "BILLING/vm-1"
    assert listed(stub)[0] == ["BILLING/vm-1"]
    before = dict(eureka.held)
    all_are_refused(
        "leave out --stateless, and a stack owns it, or set doOwner",
        lambda: do_create(stub, instanceId="vm-2"),
        lambda: do_patch(stub, "BILLING/vm-1", zone="b"),
        lambda: do_delete(stub, "BILLING/vm-1"),
    )
    assert eureka.held == before


def test_without_a_state_an_owner_changes_what_is_its_own(stub: Any, eureka: FakeEureka) -> None:
    """A patch or deletion changes one registration; another one of the same owner stays."""
    configure_stateless(stub, doOwner="alice")
    made = [do_create(stub, instanceId=f"vm-{number}", hostName=f"192.0.2.{number}") for number in (1, 2)]
    assert [each.id for each in made] == ["BILLING/vm-1", "BILLING/vm-2"]
    owner = "stack/organization/pulumi:do/alice/BILLING/vm-1"
    assert eureka.held["BILLING", "vm-1"].owner == owner
    untouched = eureka.held["BILLING", "vm-2"]
    do_patch(stub, "BILLING/vm-1", zone="b", metadata={"tier": "1"})
    patched = eureka.held["BILLING", "vm-1"]
    assert (patched.metadata["zone"], patched.metadata["tier"], patched.owner) == ("b", "1", owner)
    assert patched.host_name == "192.0.2.1"
    DECLARED_RESOURCES.__init__()  # type: ignore[misc]  # each command is a process of its own
    do_delete(stub, "BILLING/vm-1")
    assert eureka.held == {untouched.key: untouched}


@pytest.mark.parametrize(
    "owner",
    [
        "",
        "cluster/prod/shop/rating",
        "stack/organization/shop/dev/billing",
        "stack/organization/default/dev/Instance",
        "stack/organization/pulumi:do/bob/BILLING/vm-1",
        "stack/organization/pulumi:do/alice/BILLING/vm-2",
    ],
)
def test_without_a_state_nothing_of_others_is_changed(stub: Any, eureka: FakeEureka, owner: str) -> None:
    """No input, not even ``onConflict: adopt``, allows a change of another owner's instance."""
    configure_stateless(stub, doOwner="alice")
    hold(eureka, "BILLING/vm-1", owner=owner)
    before = dict(eureka.held)
    all_are_refused(
        "left as it is",
        lambda: do_patch(stub, "BILLING/vm-1", zone="b", onConflict="adopt"),
        lambda: do_delete(stub, "BILLING/vm-1"),
        lambda: do_create(stub, instanceId="vm-1", onConflict="adopt", renewer="self"),
    )
    assert eureka.held == before


def test_without_a_state_a_read_of_anothers_gives_no_right(stub: Any, eureka: FakeEureka) -> None:
    """A deletion is refused if the instance changed its owner after the read."""
    configure_stateless(stub, doOwner="alice")
    do_create(stub, instanceId="vm-1")
    found = do_read(stub, "BILLING/vm-1")
    hold(eureka, "BILLING/vm-1", owner="cluster/prod/shop/rating")
    before = dict(eureka.held)
    with pytest.raises(grpc.RpcError) as raised:
        stub.Delete(proto.DeleteRequest(id=found["id"], properties=found["properties"], **STATELESS))
    assert "belongs to cluster/prod/shop/rating, not to" in sentence(raised)
    assert eureka.held == before


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"doOwner": "al/ice"}, "doOwner must be"),
        ({"organization": "acme/shop"}, "organization must have no slash"),
        ({"instanceId": None}, "instanceId must be given"),
        ({"type": "eurekube:index:Application"}, "use eurekube:index:Instance for each"),
    ],
)
def test_without_a_state_what_could_not_be_distinguished_is_refused(
    stub: Any, eureka: FakeEureka, given: dict[str, Any], expected: str
) -> None:
    """An invalid owner or organization, a missing instance id, and the type Application are refused."""
    configure_stateless(
        stub, **{"doOwner": "alice", **{name: given[name] for name in given if name in CONFIGURATION_KEYS}}
    )
    type_ = given.get("type", TYPE)
    named = {"urn": STATELESS["urn"].replace(TYPE, type_), "type": type_}
    written = {**GIVEN, "instanceId": given.get("instanceId", "vm-1")}
    if type_ != TYPE:
        written = {"application": "billing", "port": 8080, "instances": {"a": {"hostName": "192.0.2.1"}}}

    def create() -> None:
        checked = stub.Check(proto.CheckRequest(news=encode_properties(written), **named))
        stub.Create(proto.CreateRequest(properties=checked.inputs, **named))

    with pytest.raises(grpc.RpcError) as raised:
        create()
    assert expected in sentence(raised)
    assert eureka.held == {}


def test_without_a_state_a_patch_keeps_the_place(stub: Any, eureka: FakeEureka) -> None:
    """A patch must not change application or instance id, which would make another registration."""
    configure_stateless(stub, doOwner="alice")
    do_create(stub, instanceId="vm-1")
    before = dict(eureka.held)
    with pytest.raises(grpc.RpcError) as raised:
        do_patch(stub, "BILLING/vm-1", instanceId="vm-2")
    assert "keeps application and instanceId" in sentence(raised)
    assert eureka.held == before


def test_without_a_state_names_may_be_written_in_any_way(stub: Any, eureka: FakeEureka) -> None:
    """A patch or deletion finds its registration despite lower case and spaces in the id."""
    configure_stateless(stub, doOwner="alice")
    do_create(stub, application=" billing ", instanceId=" vm-1 ")
    assert eureka.held["BILLING", "vm-1"].owner == "stack/organization/pulumi:do/alice/BILLING/vm-1"
    do_patch(stub, "billing/vm-1", zone="b")
    assert eureka.held["BILLING", "vm-1"].metadata["zone"] == "b"
    DECLARED_RESOURCES.__init__()  # type: ignore[misc]  # each command is a process of its own
    do_delete(stub, " Billing/vm-1 ")
    assert eureka.held == {}


def test_without_a_state_a_patch_keeps_what_is_out_of_service(stub: Any, eureka: FakeEureka) -> None:
    """A status that the owner enforced stays until a patch sets another one."""
    configure_stateless(stub, doOwner="alice")
    do_create(stub, instanceId="vm-1", status="OUT_OF_SERVICE")
    do_patch(stub, "BILLING/vm-1", zone="b")
    patched = eureka.held["BILLING", "vm-1"]
    assert (patched.status, patched.metadata["zone"]) == (Status.OUT_OF_SERVICE, "b")
    do_patch(stub, "BILLING/vm-1", status="UP")
    assert eureka.held["BILLING", "vm-1"].status is Status.UP


def test_without_a_state_another_connection_is_refused(
    stub: Any, eureka: FakeEureka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A patch would register the instance at a second Eureka, where no deletion would find it."""
    other, url = FakeEureka(), "http://other:8761/eureka"
    monkeypatch.setattr(SHARED_PEERS, "get", FakeServers({URL: eureka, url: other}))
    configure_stateless(stub, doOwner="alice", connections={"other": {"url": url}})
    do_create(stub, instanceId="vm-1")
    before = dict(eureka.held)
    all_are_refused(
        "nothing remembers a connection",
        partial(do_patch, stub, "BILLING/vm-1", connection="other"),
        partial(do_create, stub, instanceId="vm-2", connection="other"),
    )
    assert (eureka.held, other.held) == (before, {})


def test_the_stack_that_everybody_has_registers_nothing(stub: Any, eureka: FakeEureka) -> None:
    """In Pulumi's default project two people would have one owner and id, unless ``organization`` is set."""
    named = {**NAMED, "urn": NAMED["urn"].replace("::shop::", "::default-global-project::")}
    with pytest.raises(grpc.RpcError) as raised:
        stub.Check(proto.CheckRequest(news=encode_properties(GIVEN), **named))
    assert "run it in a project, or set organization to a name of your own" in sentence(raised)
    configure(stub, organization="alice")
    assert not stub.Check(proto.CheckRequest(news=encode_properties(GIVEN), **named)).failures
    assert eureka.held == {}
