"""Pulumi's dynamic and native providers behind one interface, as the simulated engine calls them.

Both run the code of a plugin process, without a socket. Data are copied as on the wire.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, Protocol

import grpc
from google.protobuf import any_pb2, json_format, struct_pb2
from pulumi.dynamic import ConfigureRequest
from pulumi.runtime.proto import provider_pb2 as proto
from pulumi.runtime.proto import status_pb2

from eurekube_provider.provider.servicer import ProviderServicer
from eurekube_provider.registrations.names import rename_properties, to_camel_case
from eurekube_provider.registrations.resource import APPLICATION_REGISTRATION_KIND, INSTANCE_REGISTRATION_KIND
from eurekube_provider.resources.application import ApplicationProvider
from eurekube_provider.resources.instance import InstanceProvider
from eurekube_provider.resources.program_inputs import IN_UPDATE_KEY

Properties = dict[str, Any]

STACK = ("organization", "explored", "dev")
PREFIX = f"stack/{'/'.join(STACK)}/"


def carried(value: Any) -> Any:
    """Return properties as the wire between engine and plugin changes them: copied, with numbers as
    floats, without None.
    """
    if isinstance(value, dict):
        return {key: carried(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [carried(each) for each in value]
    return float(value) if type(value) is int else value


class HalfMade(Exception):
    """A step has failed, and the state keeps a partial resource.

    :ivar id: of the resource.
    :ivar outputs: its outputs.
    :ivar asks_for_refresh: True if it is to be read before each update.
    """

    def __init__(self, message: str, id_: str, outputs: Properties, *, asks_for_refresh: bool) -> None:
        super().__init__(message)
        self.id = id_
        self.outputs = outputs
        self.asks_for_refresh = asks_for_refresh


@dataclass(frozen=True, slots=True)
class Difference:
    """A provider's comparison of two sets of properties."""

    changes: bool
    replaces: bool
    delete_before_replace: bool


class Shell(Protocol):
    """One resource's provider, with the methods of Pulumi's protocol; each may raise an error that ends the
    run.

    :ivar asks_for_refresh: True if the last answer had the resource read before each update.
    """

    asks_for_refresh: bool

    def check(self, olds: Properties, news: Properties) -> Properties:
        """Return the checked inputs of a program's properties."""

    def diff(self, outputs: Properties, news: Properties) -> Difference:
        """Return the difference between outputs and new inputs."""

    def create(self, news: Properties) -> tuple[str, Properties]:
        """Create the resource; return its id and outputs."""

    def read(self, id_: str, inputs: Properties, outputs: Properties) -> tuple[Properties, Properties] | None:
        """Read the resource; return outputs and inputs, or None if it is gone."""

    def update(self, id_: str, outputs: Properties, news: Properties) -> Properties:
        """Update the resource; return its outputs."""

    def delete(self, id_: str, outputs: Properties) -> None:
        """Delete the resource."""


def refused(problems: list[str]) -> NoReturn:
    """Raise the problems of a check, with which the engine ends the run."""
    raise RuntimeError("; ".join(problems))


class DynamicShell:
    """The dynamic provider for one resource.

    :param name: the resource's.
    :param url: its Eureka's.
    """

    asks_for_refresh = False

    def __init__(self, name: str, url: str, *, is_application: bool) -> None:
        self._name = name
        self._provider = ApplicationProvider() if is_application else InstanceProvider()
        values = {"eurekube:url": url}
        self._provider.configure(ConfigureRequest(_Config(values)))  # type: ignore[arg-type]

    def check(self, olds: Properties, news: Properties) -> Properties:
        """Check a program's properties, with the owner and with the mark of an update."""
        owned = {**carried(news), "owner": f"{PREFIX}{self._name}", IN_UPDATE_KEY: True}
        checked = self._provider.check(carried(olds), owned)
        if checked.failures:
            refused([f"{one.property}: {one.reason}" for one in checked.failures])
        return dict(checked.inputs)

    def diff(self, outputs: Properties, news: Properties) -> Difference:
        found = self._provider.diff("", carried(outputs), carried(news))
        return Difference(bool(found.changes), bool(found.replaces), bool(found.delete_before_replace))

    def create(self, news: Properties) -> tuple[str, Properties]:
        created = self._provider.create(carried(news))
        return created.id, created.outs or {}

    def read(self, id_: str, inputs: Properties, outputs: Properties) -> tuple[Properties, Properties] | None:
        found = self._provider.read(id_, carried(outputs))
        return (found.outs or {}, {**inputs, **(found.inputs or {})}) if found.id else None

    def update(self, id_: str, outputs: Properties, news: Properties) -> Properties:
        return self._provider.update(id_, carried(outputs), carried(news)).outs or {}

    def delete(self, id_: str, outputs: Properties) -> None:
        self._provider.delete(id_, carried(outputs))


class NativeShell:
    """The native provider for one resource.

    :param name: the resource's.
    :param url: its Eureka's.
    """

    configured: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, name: str, url: str, *, is_application: bool) -> None:
        organization, project, stack = STACK
        token = (APPLICATION_REGISTRATION_KIND if is_application else INSTANCE_REGISTRATION_KIND).token
        self._named: Properties = {"urn": f"urn:pulumi:{stack}::{project}::{token}::{name}", "type": token}
        self._servicer = ProviderServicer()
        config = {"url": url, "organization": organization, **self.configured}
        self.asks_for_refresh = False
        self._ask("Handshake", proto.ProviderHandshakeRequest(supports_refresh_before_update=True))
        self._ask("Configure", proto.ConfigureRequest(args=_struct(config), name="default"))

    def check(self, olds: Properties, news: Properties) -> Properties:
        """Check a program's properties; the servers come from the configuration."""
        written = rename_properties(
            {key: each for key, each in news.items() if key != "service_url"}, to_camel_case
        )
        request = proto.CheckRequest(olds=_struct(olds), news=_struct(written), **self._named)
        answer = self._ask("Check", request)
        if answer.failures:
            refused([f"{one.property}: {one.reason}" for one in answer.failures])
        return _properties(answer.inputs)

    def diff(self, outputs: Properties, news: Properties) -> Difference:
        request = proto.DiffRequest(id="x", olds=_struct(outputs), news=_struct(news), **self._named)
        answer = self._ask("Diff", request)
        some = proto.DiffResponse.DIFF_SOME
        return Difference(answer.changes == some, bool(answer.replaces), answer.deleteBeforeReplace)

    def create(self, news: Properties) -> tuple[str, Properties]:
        answer = self._ask("Create", proto.CreateRequest(properties=_struct(news), **self._named))
        return answer.id, _properties(answer.properties)

    def read(self, id_: str, inputs: Properties, outputs: Properties) -> tuple[Properties, Properties] | None:
        request = proto.ReadRequest(
            id=id_, properties=_struct(outputs), inputs=_struct(inputs), **self._named
        )
        answer = self._ask("Read", request)
        return (_properties(answer.properties), _properties(answer.inputs)) if answer.id else None

    def update(self, id_: str, outputs: Properties, news: Properties) -> Properties:
        request = proto.UpdateRequest(id=id_, olds=_struct(outputs), news=_struct(news), **self._named)
        return _properties(self._ask("Update", request).properties)

    def delete(self, id_: str, outputs: Properties) -> None:
        self._ask("Delete", proto.DeleteRequest(id=id_, properties=_struct(outputs), **self._named))

    def _ask(self, method: str, request: Any) -> Any:
        call = _Call()
        with contextlib.suppress(_Aborted):
            answer = getattr(self._servicer, method)(request, call)
            self.asks_for_refresh = getattr(answer, "refresh_before_update", self.asks_for_refresh)
            return answer
        error = call.error()
        self.asks_for_refresh = getattr(error, "asks_for_refresh", self.asks_for_refresh)
        raise error


class RefreshingShell(NativeShell):
    """The native provider, with a read before each update."""

    configured: ClassVar[Mapping[str, Any]] = {"refreshBeforeUpdate": True}


class _Aborted(Exception):
    """Raised where gRPC would end a call with an error."""


class _Call:
    """A replacement of gRPC's context of a call."""

    def __init__(self) -> None:
        self._message = ""
        self._metadata: Mapping[str, bytes] = {}

    def is_active(self) -> bool:
        """Return True: the engine still waits for the answer."""
        return True

    def set_trailing_metadata(self, metadata: tuple[tuple[str, bytes], ...]) -> None:
        """Keep the metadata that are sent with the error."""
        self._metadata = dict(metadata)

    def abort(self, _code: grpc.StatusCode, message: str) -> NoReturn:
        """End the call with an error."""
        self._message = message
        raise _Aborted

    def error(self) -> Exception:
        """Return the exception that the engine raises for the error."""
        packed = self._metadata.get("grpc-status-details-bin")
        if packed is None:
            return RuntimeError(self._message)
        (detail,) = status_pb2.Status.FromString(packed).details  # type: ignore[no-untyped-call]
        assert isinstance(detail, any_pb2.Any)  # type: ignore[attr-defined]
        found = proto.ErrorResourceInitFailed()
        assert detail.Unpack(found)
        return HalfMade(
            self._message,
            found.id,
            _properties(found.properties),
            asks_for_refresh=found.refresh_before_update,
        )


class _Config:
    """The stack's configuration, in the form in which the SDK gives it to a dynamic provider."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def get(self, key: str) -> str | None:
        """Return a value by its full key."""
        return self._values.get(key)


def _struct(properties: Properties) -> Any:
    message: Any = struct_pb2.Struct()  # type: ignore[attr-defined]
    message.update(carried(properties))
    return message


def _properties(message: Any) -> Properties:
    found: Properties = json_format.MessageToDict(message)  # type: ignore[no-untyped-call]
    return found


MakeShell = Callable[..., Shell]
