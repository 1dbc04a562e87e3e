"""What the native provider answers the engine, on an Eureka that can be made to fail."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest
from google.protobuf import empty_pb2, json_format
from pulumi.runtime.proto import engine_pb2_grpc, provider_pb2_grpc, status_pb2
from pulumi.runtime.proto import provider_pb2 as proto

from eurekube_provider.core.errors import RegistryDenied, RegistryError, RegistryRejected, RegistryUnreachable
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.provider.servicer import ProviderServicer
from eurekube_provider.provider.wire import received, sent
from eurekube_provider.registrations import registry_lists
from eurekube_provider.registrations.cancellation import CANCELLATION
from eurekube_provider.registrations.renewer_check import RENEWER_CHECK
from eurekube_provider.registrations.run_resources import RUN_RESOURCES
from eurekube_provider.registrations.secret_values import as_secret
from eurekube_provider.registrations.servers import PEERS
from eurekube_provider.registrations.values import UNKNOWN
from tests.contract.plugin import NOBODY, sentence
from tests.unit.fake_eureka import FakeEureka, FakeServers

URL = "http://eureka:8761/eureka"
TYPE = "eurekube:index:Instance"
NAMED: dict[str, Any] = {"urn": f"urn:pulumi:dev::shop::{TYPE}::billing", "type": TYPE}
CALLS = 8
"""As many are served at once."""
GIVEN: dict[str, Any] = {"application": "billing", "host_name": "192.0.2.10", "port": 8080}


class Engine(engine_pb2_grpc.EngineServicer):
    """Keeps what is to be shown."""

    def __init__(self) -> None:
        self.shown: list[Any] = []

    def Log(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802 - gRPC's names
        """Show it."""
        self.shown.append(request)
        return empty_pb2.Empty()  # type: ignore[attr-defined]


@pytest.fixture
def eureka(monkeypatch: pytest.MonkeyPatch) -> FakeEureka:
    """One Eureka."""
    made = FakeEureka()
    monkeypatch.setattr(PEERS, "of", FakeServers({URL: made}))
    monkeypatch.setattr(registry_lists, "LISTED_FOR_SECONDS", -1.0)
    for memory in (RUN_RESOURCES, RENEWER_CHECK):
        memory.__init__()  # type: ignore[misc]
    return made


@pytest.fixture
def engine() -> Engine:
    """What the provider shows its warnings."""
    return Engine()


@pytest.fixture
def stub(engine: Engine) -> Iterator[Any]:
    """A provider that is configured, and its engine, each a server of its own."""
    servers = [grpc.server(futures.ThreadPoolExecutor(CALLS)) for _ in range(2)]  # type: ignore[no-untyped-call]
    engine_pb2_grpc.add_EngineServicer_to_server(engine, servers[0])
    engine_port, provider_port = (server.add_insecure_port("127.0.0.1:0") for server in servers)
    servicer = ProviderServicer(f"127.0.0.1:{engine_port}")
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(servicer, servers[1])
    for server in servers:
        server.start()
    with grpc.insecure_channel(f"127.0.0.1:{provider_port}") as channel:  # type: ignore[no-untyped-call]
        stub = provider_pb2_grpc.ResourceProviderStub(channel)
        stub.Configure(proto.ConfigureRequest(args=sent({"url": URL}), name="default"))
        yield stub
    for server in reversed(servers):
        server.stop(0).wait()
    CANCELLATION.begin_run()


def check(stub: Any, **given: Any) -> Any:
    """The checked inputs, as they go on to a creation."""
    answer = stub.Check(proto.CheckRequest(news=sent({**GIVEN, **given}), **NAMED))
    assert not answer.failures
    return answer.inputs


def half_made(raised: pytest.ExceptionInfo[Any]) -> Any:
    """What the engine is told of a resource that was half made; None where it is told nothing."""
    for key, value in raised.value.trailing_metadata():
        if key == "grpc-status-details-bin":
            (packed,) = status_pb2.Status.FromString(value).details  # type: ignore[no-untyped-call]
            detail = proto.ErrorResourceInitFailed()
            assert packed.Unpack(detail)
            return detail
    return None


def lost(carry_out: Callable[[], Any]) -> Any:
    """It arrives, and its answer does not."""
    carry_out()
    raise RegistryUnreachable("no answer within 5 s")


def away(_: Callable[[], Any]) -> Any:
    """It does not arrive."""
    raise RegistryUnreachable("no answer within 5 s")


def test_what_a_failed_creation_may_have_left_is_in_the_state(stub: Any, eureka: FakeEureka) -> None:
    """The next up finishes it; taken out of the program, it is removed."""
    inputs = check(stub)
    eureka.fails = {"register": [lost], "deregister": [away] * 5}
    with pytest.raises(grpc.RpcError) as raised:
        stub.Create(proto.CreateRequest(properties=inputs, **NAMED))
    detail = half_made(raised)
    eureka.fails = {}
    state = received(detail.properties).properties
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
    """Nothing is left that a state would have to name."""
    inputs = check(stub)
    eureka.fails = {"register": [lost]}
    with pytest.raises(grpc.RpcError) as raised:
        stub.Create(proto.CreateRequest(properties=inputs, **NAMED))
    assert half_made(raised) is None
    assert eureka.held == {}


def test_a_warning_is_shown_at_its_resource(stub: Any, eureka: FakeEureka, engine: Engine) -> None:
    """The engine hides what a plugin prints."""
    created = stub.Create(proto.CreateRequest(properties=check(stub), **NAMED))
    assert eureka.held
    (told,) = engine.shown
    assert (told.urn, "is renewed by 'eurekube' yet" in told.message) == (NAMED["urn"], True)
    stub.Delete(proto.DeleteRequest(properties=created.properties, **NAMED))


def test_a_warning_takes_no_proxy(
    stub: Any, eureka: FakeEureka, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine is on the same machine; gRPC would else ask the one that is meant for Eureka."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    stub.Create(proto.CreateRequest(properties=check(stub), **NAMED))
    assert eureka.held
    assert len(engine.shown) == 1


def test_a_preview_registers_nothing(stub: Any, eureka: FakeEureka) -> None:
    """What only Eureka can tell is unknown in it."""
    inputs = check(stub)
    foreseen = stub.Create(proto.CreateRequest(properties=inputs, preview=True, **NAMED)).properties
    assert received(foreseen).properties["host_name"] == "192.0.2.10"
    stub.Update(proto.UpdateRequest(olds=foreseen, news=inputs, preview=True, **NAMED))
    assert eureka.held == {}


def test_a_program_does_not_say_whose_it_is(stub: Any) -> None:
    """The owner follows from the stack, the servers from the provider."""
    news = sent({**GIVEN, "owner": "stack/a/b/c/d"})
    (failure,) = stub.Check(proto.CheckRequest(news=news, **NAMED)).failures
    assert failure.property == "owner"


def test_problems_name_properties_as_they_are_written(stub: Any) -> None:
    """In the schema's words, also where one is meant."""
    news = sent({**GIVEN, "host_nam": "x", "secure_port": 0})
    failures = {
        one.property: one.reason for one in stub.Check(proto.CheckRequest(news=news, **NAMED)).failures
    }
    assert failures["hostNam"] == "there is no such property; hostName is one"
    assert failures.keys() == {"hostNam", "securePort"}


@pytest.mark.parametrize(
    ("given", "told"),
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
def test_what_is_wrong_with_a_secret_is_told_without_it(stub: Any, given: Any, told: str) -> None:
    """The engine shows the sentence to everybody, and keeps it in the log of a build."""
    answer = stub.Check(proto.CheckRequest(news=sent({**GIVEN, **given}), **NAMED))
    reasons = [each.reason for each in answer.failures]
    assert reasons
    assert told in reasons[0]
    assert "pa55" not in " ".join(reasons)
    # Of a property that is named the engine shows the value.
    assert {each.property for each in answer.failures} == {""}
    in_clear = {name: value["value"] for name, value in given.items()}
    answer = stub.Check(proto.CheckRequest(news=sent({**GIVEN, **in_clear}), **NAMED))
    assert "pa55" in answer.failures[0].reason


@pytest.mark.parametrize("secret", [("host_name",), (), None])
def test_what_is_wrong_with_a_secret_of_one_instance_is_told_without_it(stub: Any, secret: Any) -> None:
    """It may be one property, one instance, or all of them."""
    kind = "eurekube:index:Application"
    named: dict[str, Any] = {"urn": f"urn:pulumi:dev::shop::{kind}::old", "type": kind}
    host: Any = "pa55 word"
    one = (
        as_secret({"host_name": host}) if secret == () else {"host_name": as_secret(host) if secret else host}
    )
    instances = as_secret({"a.b": one}) if secret is None else {"a.b": one}
    news = sent({"application": "old", "port": 8080, "instances": instances})
    (failure,) = stub.Check(proto.CheckRequest(news=news, **named)).failures
    bare = "must be a bare host name or address, without http:// and without a path"
    assert (failure.property, failure.reason) == ("", f"instances.a.b.hostName: {bare}")


def test_an_answer_without_effect_names_who_gave_it(
    stub: Any, eureka: FakeEureka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway may answer 200 to everything."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    inputs = check(stub)
    eureka.fails = {"register": [lambda _: None]}
    with pytest.raises(grpc.RpcError) as raised:
        stub.Create(proto.CreateRequest(properties=inputs, **NAMED))
    assert sentence(raised).startswith(
        f"register BILLING billing.dev.shop:billing:8080: {URL} accepted it and does not hold it"
    )


def test_an_error_of_eureka_tells_no_secret(stub: Any, eureka: FakeEureka, engine: Engine) -> None:
    """It names who stands at an address, which is one here."""
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
    (reason,) = half_made(raised).reasons
    assert "[secret]" in reason
    assert "vault" not in reason.lower()
    eureka.fails = {}
    state = stub.Create(proto.CreateRequest(properties=inputs, **NAMED)).properties
    eureka.held.clear()
    eureka.register(Instance("BILLING", "vm-1", "vm-1", "198.51.100.7", Port(8080)))
    stub.Check(proto.CheckRequest(olds=state, news=inputs, **NAMED))
    told = " ".join(each.message for each in engine.shown)
    assert "is gone, and not registered again" in told
    assert "198.51.100.7" not in told


def test_a_program_may_ignore_every_change(stub: Any, eureka: FakeEureka) -> None:
    """The engine then gives back all inputs of last time, also those that no program writes."""
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
    stub.Configure(proto.ConfigureRequest(args=sent({"url": NOBODY}), name="default"))
    moved = stub.Check(proto.CheckRequest(olds=inputs, news=inputs, **NAMED))
    assert received(moved.inputs).properties["service_url"] == URL


def test_a_credential_in_clear_does_not_stay_so_in_the_state(stub: Any) -> None:
    """What the check of a configuration answers goes into the state."""
    urn = "urn:pulumi:dev::shop::pulumi:providers:eurekube::eu"
    written = {"url": "http://me:hidden@eureka:8761/eureka", "token": UNKNOWN, "zone": "zone-a"}
    checked = stub.CheckConfig(proto.CheckRequest(urn=urn, news=sent(written)))
    found = received(checked.inputs)
    assert found.properties == written
    assert found.secrets == {("url",)}
    assert not checked.failures


@pytest.mark.parametrize(
    "written",
    [{"pasword": "pa55"}, {"url": "http://me:pa55/x@eureka:8761/eureka"}, {"proxy": "ftp://a:pa55@b"}],
)
def test_a_configuration_is_refused_without_its_credentials(stub: Any, written: dict[str, str]) -> None:
    """Of a property that is named the engine shows the value."""
    urn = "urn:pulumi:dev::shop::pulumi:providers:eurekube::eu"
    checked = stub.CheckConfig(proto.CheckRequest(urn=urn, news=sent({"url": URL, **written})))
    (failure,) = checked.failures
    assert failure.property == ""
    assert "pa55" not in failure.reason


def test_a_programs_own_settings_are_not_kept_with_the_provider(stub: Any) -> None:
    """A stack that moves over resource by resource still has them."""
    urn = "urn:pulumi:dev::shop::pulumi:providers:eurekube::default"
    written = {"url": URL, "clusterName": "eks", "operator": '{"tag":"1"}'}
    checked = stub.CheckConfig(proto.CheckRequest(urn=urn, news=sent(written)))
    assert not checked.failures
    assert received(checked.inputs).properties == {"url": URL}


@pytest.mark.parametrize("connection", [5, True, ["eu"], {"eu": "x"}])
def test_a_connection_that_is_no_text_is_told_in_a_sentence(stub: Any, connection: Any) -> None:
    """Python and JavaScript let a program write anything."""
    news = sent({**GIVEN, "connection": connection})
    (failure,) = stub.Check(proto.CheckRequest(news=news, **NAMED)).failures
    assert (failure.property, failure.reason) == (
        "connection",
        "connection must be a text: the name of a connection",
    )
    args = sent({"name": "old", "connection": connection})
    with pytest.raises(grpc.RpcError) as raised:
        stub.Invoke(proto.InvokeRequest(tok="eurekube:index:getApplication", args=args))
    assert sentence(raised) == failure.reason


def test_an_error_is_one_line_whatever_a_program_names(stub: Any) -> None:
    """A terminal obeys what is not printable."""
    args = sent({"name": "old", "connection": "e\nu\x1b[1m"})
    with pytest.raises(grpc.RpcError) as raised:
        stub.Invoke(proto.InvokeRequest(tok="eurekube:index:getApplication", args=args))
    assert sentence(raised).isprintable()


def test_the_organization_of_a_state_stays(stub: Any) -> None:
    """A stack that comes from the dynamic provider goes on as the owner that it was."""
    olds = sent({**GIVEN, "owner": "stack/acme/shop/dev/billing"})
    stub.Configure(proto.ConfigureRequest(args=sent({"url": URL, "offline": "true"}), name="default"))
    answer = stub.Check(proto.CheckRequest(olds=olds, news=sent(GIVEN), **NAMED))
    assert received(answer.inputs).properties["owner"] == "stack/acme/shop/dev/billing"
    assert received(check(stub)).properties["owner"] == "stack/organization/shop/dev/billing"


def test_what_is_imported_asks_to_be_adopted_and_keeps_its_renewer(stub: Any, eureka: FakeEureka) -> None:
    """An import changes nothing; the update that follows makes it the stack's."""
    there = Instance(
        "OLD", "vm-17:old:8080", "vm-17", "192.0.2.17", Port(8080), Port(8443), metadata={"zone": "a"}
    )
    eureka.register(there)
    before = dict(eureka.held)
    found = stub.Read(proto.ReadRequest(id="old/vm-17:old:8080", **NAMED))
    assert eureka.held == before
    inputs = received(found.inputs).properties
    assert {name: inputs[name] for name in ("on_conflict", "renewer", "zone")} == {
        "on_conflict": "adopt",
        "renewer": "self",
        "zone": "a",
    }
    assert "owner" not in inputs
    checked = stub.Check(proto.CheckRequest(news=found.inputs, **NAMED))
    assert not checked.failures
    difference = stub.Diff(proto.DiffRequest(olds=found.properties, news=checked.inputs, **NAMED))
    assert (difference.changes, list(difference.replaces)) == (proto.DiffResponse.DIFF_SOME, [])
    request = proto.DiffRequest(olds=found.properties, old_inputs=found.inputs, news=checked.inputs, **NAMED)
    assert set(stub.Diff(request).detailedDiff) == {"owner"}
    # What is not adopted yet is somebody else's, and stays.
    stub.Delete(proto.DeleteRequest(properties=found.properties, **NAMED))
    assert eureka.held == before
    stub.Update(proto.UpdateRequest(olds=found.properties, news=checked.inputs, **NAMED))
    (adopted,) = eureka.held.values()
    assert (adopted.owner, adopted.renewer) == ("stack/organization/shop/dev/billing", "self")
    assert (adopted.host_name, adopted.secure_port, adopted.zone) == ("vm-17", Port(8443), "a")


def test_what_is_not_there_is_not_imported(stub: Any, eureka: FakeEureka) -> None:
    """A blank id; and an id that names nothing is an error."""
    assert eureka.held == {}
    assert stub.Read(proto.ReadRequest(id="OLD/nobody", **NAMED)).id == ""
    with pytest.raises(grpc.RpcError, match="must be APPLICATION/instance-id"):
        stub.Read(proto.ReadRequest(id="OLD", **NAMED))


def test_an_application_is_imported_without_what_others_own(stub: Any, eureka: FakeEureka) -> None:
    """By its instances' ids."""
    kind = "eurekube:index:Application"
    named: dict[str, Any] = {"urn": f"urn:pulumi:dev::shop::{kind}::old", "type": kind}
    for number, owner in enumerate(["", "", "cluster/a/b/c"]):
        metadata = {"eurekube.owner": owner} if owner else {}
        eureka.register(
            Instance("OLD", f"vm-{number}", f"vm-{number}", f"192.0.2.{number}", Port(80), metadata=metadata)
        )
    before = dict(eureka.held)
    found = stub.Read(proto.ReadRequest(id="OLD", **named))
    assert set(received(found.inputs).properties["instances"]) == {"vm-0", "vm-1"}
    checked = stub.Check(proto.CheckRequest(news=found.inputs, **named))
    assert not checked.failures
    assert eureka.held == before
    stub.Update(proto.UpdateRequest(olds=found.properties, news=checked.inputs, **named))
    owners = {each.instance_id: each.owner for each in eureka.held.values()}
    assert owners == {
        "vm-0": "stack/organization/shop/dev/old",
        "vm-1": "stack/organization/shop/dev/old",
        "vm-2": "cluster/a/b/c",
    }


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
def test_only_a_stacks_own_provider_reads_credentials_from_the_environment(
    stub: Any, monkeypatch: pytest.MonkeyPatch, name: str, version: str, is_taken: bool
) -> None:
    """Whichever way the engine says whose the configuration is; a program may name its own as it likes."""
    configured = sent({"url": URL, **({"version": version} if version else {})})
    monkeypatch.setenv("EUREKA_USER", "somebody")
    monkeypatch.setenv("EUREKA_PASSWORD", "hidden")
    made: list[str | None] = []
    servers = FakeServers({URL: FakeEureka()})

    def servers_of(connection: Connection) -> Peers:
        made.append(connection.user)
        return servers(connection)

    monkeypatch.setattr(PEERS, "of", servers_of)
    urn = f"urn:pulumi:dev::shop::pulumi:providers:eurekube::{name}"
    for said in (name, ""):
        stub.CheckConfig(proto.CheckRequest(urn=urn, news=configured))
        stub.Configure(proto.ConfigureRequest(args=configured, name=said))
        stub.Read(proto.ReadRequest(id="OLD/nobody", **NAMED))
    assert made == ["somebody" if is_taken else None] * 2


def test_functions_answer_in_the_schemas_words(stub: Any, eureka: FakeEureka) -> None:
    """With what is UP beside all that is listed."""
    eureka.register(Instance("OLD", "vm-1", "vm-1", "192.0.2.1", Port(8080), metadata={"someKey": "1"}))
    request = proto.InvokeRequest(tok="eurekube:index:getApplication", args=sent({"name": "old"}))
    answer = getattr(stub.Invoke(request), "return")
    assert answer["name"] == "OLD"
    (instance,) = answer["up"]
    assert (instance["hostName"], dict(instance["metadata"])) == ("vm-1", {"someKey": "1"})
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
    """Nobody is asked in it; an update asks whatever is said."""
    away = {"url": NOBODY, "kubeconfig": "/nowhere", "offline": "true"}
    stub.Configure(proto.ConfigureRequest(args=sent(away), name="default"))
    token = f"eurekube:index:{function}"

    def asked(given: dict[str, Any], *, preview: bool = True) -> Any:
        return stub.Invoke(proto.InvokeRequest(tok=token, args=sent(given), preview=preview))

    assert json_format.MessageToDict(getattr(asked(given), "return")) == answer  # type: ignore[no-untyped-call]
    for wrong, told in (
        ({}, "give it what it is to answer then, as its argument offline"),
        ({"offline": []}, "as its argument offline"),
        ({"offline": {"nobody": 1}}, "answers no 'nobody'; there are"),
    ):
        with pytest.raises(grpc.RpcError, match=told):
            asked({**given, "offline": None, **wrong})
    with pytest.raises(grpc.RpcError, match=r"no connection|/nowhere"):
        asked(given, preview=False)


def test_cancel_ends_a_drain_that_waits(stub: Any, eureka: FakeEureka) -> None:
    """And its registration is in service again."""
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
    """What waits for a thread, or comes later, takes nothing out of service any more."""
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
    told = [str(each.exception(30).details()) for each in deletes]
    assert sum("in service again" in each for each in told) == CALLS
    assert sum("interrupted before it began" in each for each in told) == 2
    with pytest.raises(grpc.RpcError, match="interrupted before it began"):
        stub.Delete(proto.DeleteRequest(properties=states[0], **NAMED))
    assert before.keys() == eureka.held.keys()
    assert {each.status.value for each in eureka.held.values()} == {"UP"}


def test_a_time_out_that_is_shorter_than_a_drain_ends_it_at_once(stub: Any, eureka: FakeEureka) -> None:
    """Nothing is out of service meanwhile."""
    state = stub.Create(proto.CreateRequest(properties=check(stub, drain_seconds=600), **NAMED)).properties
    with pytest.raises(grpc.RpcError, match="the custom time-out ends before the 600 seconds"):
        stub.Delete(proto.DeleteRequest(properties=state, timeout=60, **NAMED))
    assert [each.status.value for each in eureka.held.values()] == ["UP"]


def is_refused(error: type[RegistryError]) -> Callable[[], Any]:
    """A list that is not given."""

    def refuse() -> Any:
        raise error("list the registry: answered 404 (default backend)", status_code=404)

    return refuse


def test_a_gateway_that_answers_404_is_not_taken_at_its_word(
    stub: Any, eureka: FakeEureka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The registration would else leave the state, and be renewed for ever."""
    state = stub.Create(proto.CreateRequest(properties=check(stub), **NAMED)).properties
    found = {"tok": "eurekube:index:getInstance", "args": sent({"application": "old", "instance_id": "a"})}
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
    # One that has just started refuses its list for five minutes, and is an Eureka.
    monkeypatch.setattr(eureka, "list_instances", is_refused(RegistryDenied))
    assert stub.Read(proto.ReadRequest(id="x", properties=state, **NAMED)).id == ""
    stub.Delete(proto.DeleteRequest(properties=state, **NAMED))
