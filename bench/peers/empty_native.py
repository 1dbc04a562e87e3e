"""A native provider that does nothing: it shows the cost of Pulumi's engine and SDK themselves.

It answers as the native provider of Eurekube does, under its name and on the same stubs, and its properties
are as many and as long. So the same program runs with it, and the engine writes a state of the same size.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from concurrent import futures
from typing import Any

import grpc
from google.protobuf import empty_pb2, struct_pb2

from eurekube_provider.provider.protocol import plugin_pb2, provider_pb2_grpc
from eurekube_provider.provider.protocol import provider_pb2 as proto
from eurekube_provider.provider.served_schema import package_schema_json

_CHECKED_PROPERTIES = {
    "owner": "stack/organization/bench/bench/{name}",
    "renewer": "eurekube",
    "serviceUrl": "http://127.0.0.1:28761/eureka",
}
"""Properties that a check adds, besides the id."""

_CREATED_PROPERTIES = {
    "incarnation": "0a1b2c3d",
    "lastUpdated": "2026-01-02T03:04:05.678Z",
    "overriddenStatus": "UNKNOWN",
    "status": "UP",
}
"""Properties that Eureka adds, besides those that follow from the inputs."""


class EmptyServicer(provider_pb2_grpc.ResourceProviderServicer):
    """A provider whose outputs are its inputs and constants."""

    def Handshake(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802 - gRPC's names
        """Answer as Eurekube's native provider does."""
        return proto.ProviderHandshakeResponse(accept_secrets=True, accept_outputs=True)

    def GetPluginInfo(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Return a constant version."""
        return plugin_pb2.PluginInfo(version="1.0.0")

    def GetSchema(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Return the schema of Eurekube's native provider, which a program in YAML needs."""
        return proto.GetSchemaResponse(schema=package_schema_json())

    def CheckConfig(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Return the configuration unchanged."""
        return proto.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Return that the configuration has no difference."""
        return proto.DiffResponse(changes=proto.DiffResponse.DIFF_NONE)

    def Configure(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Answer as Eurekube's native provider does."""
        return proto.ConfigureResponse(acceptSecrets=True, supportsPreview=True, acceptOutputs=True)

    def Check(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Add as many properties as Eurekube's native provider does."""
        name = request.urn.rpartition("::")[2]
        given = {key: item for key, item in dict(request.news).items() if not key.startswith("__")}
        lower = str(given["application"]).lower()
        checked = {
            **given,
            **{
                key: item.format(name=name) if isinstance(item, str) else item
                for key, item in _CHECKED_PROPERTIES.items()
            },
            "application": lower.upper(),
            "instanceId": f"{name}.bench.bench:{lower}:8080",
        }
        return proto.CheckResponse(inputs=_to_struct(checked))

    def Diff(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Report every difference as an update."""
        is_same = all(request.olds[key] == item for key, item in request.news.items())
        none, some = proto.DiffResponse.DIFF_NONE, proto.DiffResponse.DIFF_SOME
        return proto.DiffResponse(changes=none if is_same else some)

    def Create(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Return the inputs and constants as outputs, and create nothing."""
        given = dict(request.properties)
        id_ = "" if request.preview else f"{given['application']}/{given['instanceId']}"
        lower = str(given["application"]).lower()
        follows = {"ipAddress": given["hostName"], "vipAddress": lower, "secureVipAddress": lower}
        return proto.CreateResponse(
            id=id_, properties=_to_struct({**given, **follows, **_CREATED_PROPERTIES})
        )

    def Cancel(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Do nothing."""
        return empty_pb2.Empty()  # type: ignore[attr-defined]


def _to_struct(properties: dict[str, Any]) -> Any:
    message: Any = struct_pb2.Struct()  # type: ignore[attr-defined]
    message.update(properties)
    return message


def main() -> None:
    """Serve until the engine ends the process."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    server = grpc.server(futures.ThreadPoolExecutor(256))  # type: ignore[no-untyped-call]
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(EmptyServicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    parent = os.getppid()
    while not ended.wait(1) and os.getppid() == parent:  # else the engine was killed, and ends nobody
        pass
    server.stop(grace=1).wait()


if __name__ == "__main__":
    main()
