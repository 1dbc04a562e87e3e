"""The guard, a resource of both providers that is asked before an operator is deleted."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import grpc
import pytest
from google.protobuf import json_format
from pulumi.dynamic.dynamic import serialize_provider
from pulumi.runtime import rpc, set_all_config
from pulumi.runtime.proto import provider_pb2 as proto

from eurekube_provider.core.errors import OperatorStillNeeded
from eurekube_provider.core.identity import NATIVE_OPERATOR_GUARD_TYPE
from eurekube_provider.kube import syncer_guard
from eurekube_provider.provider.wire import encode_properties
from eurekube_provider.registrations.names import rename_properties, to_camel_case, to_snake_case
from eurekube_provider.registrations.secret_values import as_secret
from eurekube_provider.registrations.values import UNKNOWN
from eurekube_provider.resources.operator_guard import OperatorGuardProvider, kubeconfig_inputs
from tests.unit.provider.fake_engine import fake_engine

Properties = dict[str, Any]

GIVEN: Properties = {
    "namespace": "bridge",
    "namespace_uid": "uid-1",
    "stack_label": "shop.dev",
    "watch_namespaces": ["shop"],
    "owns_crds": False,
    "force": False,
}
DYNAMIC_STATE = {**GIVEN, "__provider": "pickled"}
"""A guard's state as the dynamic provider wrote it."""


class Guard(Protocol):
    """The guard of one provider, with properties in snake case."""

    def create(self, inputs: Properties) -> tuple[str, Properties]:
        """Check and create; return the id and the state."""

    def differs(self, state: Properties, news: Properties) -> tuple[bool, list[str]]:
        """Return whether anything changes, and the properties that require a replacement."""

    def update(self, state: Properties, news: Properties) -> Properties:
        """Return the state after an update."""

    def delete(self, state: Properties) -> None:
        """Delete the guard; raise OperatorStillNeeded if the operator is needed."""


class DynamicGuard:
    """The guard of the dynamic provider."""

    def __init__(self) -> None:
        self._provider = OperatorGuardProvider()

    def create(self, inputs: Properties) -> tuple[str, Properties]:
        checked = self._provider.check({}, {**inputs, "__provider": "pickled"})
        assert not checked.failures
        made = self._provider.create(checked.inputs)
        return made.id, made.outs or {}

    def differs(self, state: Properties, news: Properties) -> tuple[bool, list[str]]:
        known = {name: _as_sent(value) for name, value in news.items()}
        found = self._provider.diff("x", state, known)
        return bool(found.changes), list(found.replaces or ())

    def update(self, state: Properties, news: Properties) -> Properties:
        return self._provider.update("x", state, news).outs or {}

    def delete(self, state: Properties) -> None:
        self._provider.delete("x", state)


class NativeGuard:
    """The guard of the native provider, called over gRPC."""

    def __init__(self, stub: Any) -> None:
        self._stub = stub
        urn = f"urn:pulumi:dev::shop::eurekube:index:Operator${NATIVE_OPERATOR_GUARD_TYPE}::eurekube-guard"
        self._named: Properties = {"urn": urn, "type": NATIVE_OPERATOR_GUARD_TYPE}

    def create(self, inputs: Properties) -> tuple[str, Properties]:
        checked = self._stub.Check(proto.CheckRequest(news=encode_properties(inputs), **self._named)).inputs
        assert (
            self._stub.Create(proto.CreateRequest(properties=checked, preview=True, **self._named)).id == ""
        )
        made = self._stub.Create(proto.CreateRequest(properties=checked, **self._named))
        read = self._stub.Read(proto.ReadRequest(id=made.id, properties=made.properties, **self._named))
        assert (read.id, read.properties) == (made.id, made.properties)
        return made.id, _plain(made.properties)

    def differs(self, state: Properties, news: Properties) -> tuple[bool, list[str]]:
        request = proto.DiffRequest(olds=_message(state), news=encode_properties(news), **self._named)
        found = self._stub.Diff(request)
        return found.changes == proto.DiffResponse.DIFF_SOME, list(found.replaces)

    def update(self, state: Properties, news: Properties) -> Properties:
        request = proto.UpdateRequest(olds=_message(state), news=encode_properties(news), **self._named)
        return _plain(self._stub.Update(request).properties)

    def delete(self, state: Properties) -> None:
        try:
            self._stub.Delete(proto.DeleteRequest(properties=_message(state), **self._named))
        except grpc.RpcError as error:
            raise OperatorStillNeeded(str(error.details())) from None  # type: ignore[attr-defined]


def _as_sent(value: Any) -> Any:
    """Return a value with the SDK's marker in place of UNKNOWN."""
    if isinstance(value, list):
        return [_as_sent(item) for item in value]
    return rpc.UNKNOWN if value is UNKNOWN else value


def _message(state: Properties) -> Any:
    """Return a state as the engine sends it; the dynamic provider's state keeps its own names."""
    if "__provider" not in state:
        return encode_properties(state)
    message = encode_properties({})
    message.update(state)
    return message


def _plain(message: Any) -> Properties:
    written: Properties = json_format.MessageToDict(message)  # type: ignore[no-untyped-call]
    assert written == rename_properties(written, to_camel_case)
    return rename_properties(written, to_snake_case)


@pytest.fixture(params=["dynamic", "native"])
def guard(request: pytest.FixtureRequest) -> Iterator[Guard]:
    """Yield the guard of each provider."""
    if request.param == "dynamic":
        yield DynamicGuard()
        return
    with fake_engine() as engine:
        yield NativeGuard(engine.stub)


def test_its_path_in_users_states_stays() -> None:
    """Users' states contain the pickled provider as a module path and a name, without attributes."""
    pickled = base64.b64decode(serialize_provider(OperatorGuardProvider()))
    assert b"eurekube_provider.resources.operator_guard" in pickled
    assert b"OperatorGuardProvider" in pickled
    assert len(pickled) < 150


def test_every_change_is_an_update_in_place(guard: Guard) -> None:
    """A changed property is updated without a replacement; an unknown value is no change."""
    id_, state = guard.create({**GIVEN, "kubeconfig": None})
    assert (id_, state) == ("bridge/operator", GIVEN)
    assert guard.differs(state, {**GIVEN, "context": None}) == (False, [])
    assert guard.differs(state, {**GIVEN, "force": True}) == (True, [])
    assert guard.differs(state, {**GIVEN, "namespace_uid": "uid-2"}) == (True, [])
    unknown = {"context": UNKNOWN, "watch_namespaces": [UNKNOWN]}
    assert guard.differs(state, {**GIVEN, **unknown}) == (False, [])
    assert guard.differs({**GIVEN, "context": "prod"}, GIVEN) == (True, [])
    assert guard.update(state, {**GIVEN, "force": True}) == {**GIVEN, "force": True}


def test_the_deletion_asks_with_what_the_state_says(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    """The deletion uses the state's properties, and fails while the operator is needed."""
    asked = []

    def refuse(operator: syncer_guard.GuardedOperator, wait: Callable[[float], None]) -> None:
        assert callable(wait)
        asked.append(operator)
        raise OperatorStillNeeded("by others")

    monkeypatch.setattr(syncer_guard, "refuse_removal_while_needed", refuse)
    with pytest.raises(OperatorStillNeeded, match="by others"):
        guard.delete({**GIVEN, "context": "prod"})
    assert asked == [
        syncer_guard.GuardedOperator(
            "bridge", "uid-1", "shop.dev", watch_namespaces=("shop",), context="prod"
        )
    ]


def test_a_kubeconfig_stays_a_secret_with_the_native_provider() -> None:
    """The native provider keeps the secret mark itself; for the dynamic provider the SDK does."""
    with fake_engine() as engine:
        _, state = NativeGuard(engine.stub).create({**GIVEN, "kubeconfig": as_secret("hidden")})
        assert state == {**GIVEN, "kubeconfig": as_secret("hidden")}


def test_the_native_guard_goes_on_from_a_dynamic_one() -> None:
    """The native provider's first update rewrites the dynamic provider's state."""
    with fake_engine() as engine:
        guard = NativeGuard(engine.stub)
        assert guard.differs(DYNAMIC_STATE, GIVEN) == (True, [])
        assert guard.update(DYNAMIC_STATE, GIVEN) == GIVEN


def test_the_dynamic_guard_does_not_go_on_from_a_native_one() -> None:
    """The check refuses the native provider's state in one sentence that gives the way out."""
    checked = OperatorGuardProvider().check(rename_properties(GIVEN, to_camel_case), DYNAMIC_STATE)
    (failure,) = checked.failures
    assert failure.reason == (
        "its state was written by the native provider, and a state moves from the dynamic provider to the"
        " native one, not back: keep the component eurekube.Operator in the program"
    )


def test_the_way_to_the_cluster_of_the_stacks_own_provider() -> None:
    """Context and kubeconfig come from the stack's configuration ``kubernetes:``; the kubeconfig is
    secret.
    """

    async def look() -> tuple[Any, ...]:
        found = kubeconfig_inputs(None)
        kubeconfig: Any = found["kubeconfig"]
        return found["context"], await kubeconfig.future(), await kubeconfig.is_secret()

    set_all_config({"kubernetes:kubeconfig": "text", "kubernetes:context": "prod"})
    try:
        assert asyncio.run(look()) == ("prod", "text", True)
    finally:
        set_all_config({})
    assert kubeconfig_inputs(None) == {}
