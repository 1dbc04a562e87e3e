"""Plugin processes of our dynamic and native providers, called over gRPC as Pulumi's engine does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pulumi.dynamic.dynamic as dynamic
import pytest
from google.protobuf import empty_pb2, json_format, struct_pb2
from pulumi.dynamic import ResourceProvider
from pulumi.runtime import rpc
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc

from eurekube_provider.core.identity import StackOwner, parse_owner
from eurekube_provider.provider.wire import decode_properties
from eurekube_provider.registrations.names import rename_properties, to_camel_case, to_snake_case
from eurekube_provider.registrations.resource import INSTANCE_REGISTRATION_KIND
from eurekube_provider.registrations.secret_values import as_secret
from eurekube_provider.registrations.values import UNKNOWN
from eurekube_provider.resources.instance import InstanceProvider
from eurekube_provider.resources.program_inputs import IN_UPDATE_KEY

Properties = dict[str, Any]
NOBODY = "http://127.0.0.1:9/eureka"

EACH: dict[str, tuple[Any, str, str]] = {
    "application": ("other", "replace", "replace"),
    "host_name": ("192.0.2.51", "update", ""),
    "ip_address": ("192.0.2.52", "update", ""),
    "instance_id": ("of-its-own", "replace", ""),
    "port": (9090, "replace", "update"),  # part of the default id
    "port_enabled": (False, "update", "update"),
    "secure_port": (8443, "update", "update"),
    "secure_port_enabled": (True, "update", "update"),
    "vip_address": ("vip", "update", "update"),
    "secure_vip_address": ("vips", "update", "update"),
    "status": ("DOWN", "update", "update"),
    "metadata": ({"tier": "2"}, "update", "update"),
    "zone": ("zone-b", "update", "update"),
    "renewal_interval_seconds": (10, "update", "update"),
    "duration_seconds": (60, "update", "update"),
    "home_page_url": ("http://192.0.2.50/", "update", "update"),
    "status_page_url": ("http://192.0.2.50/status", "update", "update"),
    "health_check_url": ("http://192.0.2.50/health", "update", "update"),
    "secure_health_check_url": ("https://192.0.2.50/health", "update", "update"),
    "renewer": ("self", "update", "update"),
    "on_conflict": ("adopt", "update", "update"),
    "drain_seconds": (1, "update", "update"),
    "connection": ("alias", "replace", "replace"),
}
"""Another value for each property, and what Pulumi then does to a EurekaInstance and to a
EurekaApplication.
"""


class Plugin:
    """A running ``python -m pulumi.dynamic``, called as Pulumi's engine does.

    :param provider: as a program has it, or as a state does.
    """

    def __init__(self, process: subprocess.Popen[bytes], port: int, provider: ResourceProvider | str) -> None:
        self._process = process
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}")  # type: ignore[no-untyped-call]
        self._stub = provider_pb2_grpc.ResourceProviderStub(self._channel)
        self._provider = provider if isinstance(provider, str) else dynamic.serialize_provider(provider)
        self.configure({})

    def close(self) -> None:
        """Close the connection to the process."""
        self._channel.close()

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()

    def configure(self, config: Mapping[str, str]) -> None:
        """Send a stack's configuration."""
        self._stub.Configure(provider_pb2.ConfigureRequest(args=_struct(config)))

    def cancel(self) -> None:
        """Send the engine's cancel, as after Ctrl-C."""
        self._stub.Cancel(empty_pb2.Empty())  # type: ignore[attr-defined]

    def check(self, news: Properties, olds: Properties | None = None) -> Properties:
        """Return the checked inputs, or under ``failures`` a list of ``property: reason``."""
        answer = self._stub.Check(
            provider_pb2.CheckRequest(olds=self._with(olds or {}), news=self._with(news), **self._named())
        )
        if answer.failures:
            reasons = ((to_snake_case(item.property), item.reason) for item in answer.failures)
            return {"failures": [f"{name}: {reason}" if name else reason for name, reason in reasons]}
        return self._from(answer.inputs)

    def diff(self, olds: Properties, news: Properties) -> tuple[bool, list[str], bool]:
        """Return whether there are changes, the properties that need a replacement, and whether to delete
        before the replacement.
        """
        request = provider_pb2.DiffRequest(
            id="x", olds=self._with(olds), news=self._with(news), **self._named()
        )
        answer = self._stub.Diff(request)
        some = provider_pb2.DiffResponse.DIFF_SOME
        return (
            answer.changes == some,
            [to_snake_case(name) for name in answer.replaces],
            answer.deleteBeforeReplace,
        )

    def create(self, news: Properties) -> Properties:
        """Create the resource; return its state."""
        request = provider_pb2.CreateRequest(properties=self._with(news), **self._named())
        return self._from(self._stub.Create(request).properties)

    def read(self, state: Properties) -> tuple[str, Properties, Properties]:
        """Read the resource; return the id (blank if it is gone), the outputs and the inputs."""
        request = provider_pb2.ReadRequest(id="x", properties=self._with(state))
        answer = self._stub.Read(request)
        return answer.id, self._from(answer.properties), self._from(answer.inputs)

    def update(self, olds: Properties, news: Properties) -> Properties:
        """Update the resource; return its state."""
        request = provider_pb2.UpdateRequest(
            id="x", olds=self._with(olds), news=self._with(news), **self._named()
        )
        return self._from(self._stub.Update(request).properties)

    def delete(self, state: Properties) -> None:
        """Delete the resource."""
        request = provider_pb2.DeleteRequest(id="x", properties=self._with(state), **self._named())
        self._stub.Delete(request)

    def _named(self) -> dict[str, Any]:
        """Return the fields of a request beside the properties; a dynamic provider needs none."""
        return {}

    def _from(self, message: Any) -> Properties:
        return _properties(message)

    def _with(self, properties: Properties) -> Any:
        return _struct({**properties, "__provider": self._provider})


class NativePlugin(Plugin):
    """A running ``python -m eurekube_provider.provider``, called like :class:`Plugin`.

    The owner and servers that tests give as properties are sent as URN and configuration.
    """

    def __init__(self, process: subprocess.Popen[bytes], port: int, token: str) -> None:
        self._token = token
        self._config: dict[str, str] = {}
        self._owner = StackOwner("organization", "shop", "dev", "name")
        super().__init__(process, port, "")

    def configure(self, config: Mapping[str, str]) -> None:
        """Send the provider's configuration, as for a stack's default provider."""
        self._config = {key.removeprefix("eurekube:"): value for key, value in config.items()}
        self._stub.Configure(
            provider_pb2.ConfigureRequest(
                args=_struct(self._config), name="default", acceptSecrets=True, sends_old_inputs=True
            )
        )

    def check(self, news: Properties, olds: Properties | None = None) -> Properties:
        """Configure the provider for the servers in the inputs; return the checked inputs."""
        owner, url = parse_owner(news["owner"]), news.get("service_url")
        assert isinstance(owner, StackOwner)
        self._owner = owner
        # Only an update's check asks what an earlier run left: a program of the dynamic provider says so.
        is_update = IN_UPDATE_KEY in news
        config = {**self._config, "organization": owner.organization, "offline": str(not is_update).lower()}
        if url and "@" not in self._config.get("url", ""):
            config["url"] = url
        connection = news.get("connection")
        if connection:
            config["connections"] = json.dumps({connection: {"url": url}})
        self.configure(config)
        left_out = ("owner", "service_url", IN_UPDATE_KEY)
        return super().check({key: value for key, value in news.items() if key not in left_out}, olds)

    def read(self, state: Properties) -> tuple[str, Properties, Properties]:
        """Read the resource; return the id (blank if it is gone), the outputs and the inputs."""
        request = provider_pb2.ReadRequest(id="x", properties=self._with(state), **self._named())
        answer = self._stub.Read(request)
        return answer.id, self._from(answer.properties), self._from(answer.inputs)

    def _named(self) -> dict[str, Any]:
        urn = f"urn:pulumi:{self._owner.stack}::{self._owner.project}::{self._token}::{self._owner.name}"
        return {"urn": urn, "type": self._token}

    def _with(self, properties: Properties) -> Any:
        return _struct(rename_properties(properties, to_camel_case))

    def _from(self, message: Any) -> Properties:
        found = decode_properties(message)
        properties: Properties = {key: _as_sent(value) for key, value in found.properties.items()}
        for path in found.secrets:
            *above, last = path
            place = properties
            for key in above:
                place = place[key]
            place[last] = as_secret(place[last])
        return properties


def _as_sent(value: Any) -> Any:
    """Return a value in which the engine's marker stands for unknown parts."""
    if isinstance(value, Mapping):
        return {key: _as_sent(item) for key, item in value.items()}
    return rpc.UNKNOWN if value is UNKNOWN else value


def _struct(properties: Mapping[str, Any]) -> Any:
    # As the engine does: a key without a value does not arrive, and every number is a float.
    message: Any = struct_pb2.Struct()  # type: ignore[attr-defined]
    message.update({key: value for key, value in properties.items() if value is not None})
    return message


def _properties(message: Any) -> Properties:
    properties: Properties = json_format.MessageToDict(message)  # type: ignore[no-untyped-call]
    properties.pop("__provider", None)
    return properties


StartPlugin = Callable[..., Plugin]


@contextmanager
def plugins(
    directory: Path, shell: str = "dynamic", token: str = INSTANCE_REGISTRATION_KIND.token
) -> Iterator[StartPlugin]:
    """Yield a function that starts a plugin process at each call; end all processes afterwards.

    :param shell: ``dynamic`` or ``native``.
    :param token: the token of the native provider's resource.
    """
    module = "pulumi.dynamic" if shell == "dynamic" else "eurekube_provider.provider"
    processes: list[subprocess.Popen[bytes]] = []
    started: list[Plugin] = []

    def start(provider: ResourceProvider | str | None = None, **environment: str) -> Plugin:
        foreign = ("EUREKA_", "EUREKUBE_")
        clean = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", module],
            cwd=directory,
            env={**clean, **environment, "PYTHONPATH": str(Path(__file__).parents[2])},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        processes.append(process)
        assert process.stdout is not None
        port = int(process.stdout.readline())
        started.append(
            NativePlugin(process, port, token)
            if shell == "native"
            else Plugin(process, port, provider or InstanceProvider())
        )
        return started[-1]

    try:
        yield start
    finally:
        for plugin in started:
            plugin.close()
        for process in processes:
            process.kill()
            process.communicate()


def sentence(raised: pytest.ExceptionInfo[Any]) -> str:
    """Return the one line, without a traceback, that a person reads."""
    details = str(raised.value.details())
    assert len(details.splitlines()) == 1, details
    return details
