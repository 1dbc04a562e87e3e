"""An engine that a component registers its resources at: it keeps what it was asked, and answers at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
from google.protobuf import empty_pb2, struct_pb2
from pulumi.runtime.proto import (
    callback_pb2,
    callback_pb2_grpc,
    engine_pb2,
    engine_pb2_grpc,
    provider_pb2,
    provider_pb2_grpc,
    resource_pb2,
    resource_pb2_grpc,
)

from eurekube_provider.provider.servicer import ProviderServicer

KUBECONFIG = "apiVersion: v1\nkind: Config\n"
"""Settings of a program's own provider for Kubernetes."""


class FakeMonitor(resource_pb2_grpc.ResourceMonitorServicer):
    """Makes every resource that it is asked for, whatever hooks say before.

    :ivar refused: the refusals of the hooks before a creation, by the resource's name.
    :ivar made: the requests, by the resource's name and type.
    :ivar outputs: the outputs that each component has registered, by its URN.
    """

    def __init__(self, stack: str) -> None:
        self._stack = stack
        self._lock = threading.Lock()
        self.made: dict[tuple[str, str], Any] = {}
        self.outputs: dict[str, Any] = {}
        self.refused: dict[str, str] = {}
        self._hooks: dict[str, Any] = {}

    def SupportsFeature(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802 - gRPC's names
        """All that the SDK asks for."""
        return resource_pb2.SupportsFeatureResponse(hasSupport=True)

    def GetDeploymentInfo(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """As an engine that does not know it."""
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "an older engine")

    def RegisterResource(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """It is there, with what a cluster adds to it."""
        with self._lock:
            self.made[request.name, request.type] = request
        for hook in request.hooks.before_create:
            self.refused[request.name] = self._called(hook, request)
        above = request.parent.split("::")[2] + "$" if request.parent else ""
        urn = f"urn:pulumi:{self._stack}::shop::{above}{request.type}::{request.name}"
        answer = struct_pb2.Struct()  # type: ignore[attr-defined]
        answer.CopyFrom(request.object)
        if request.type.startswith("kubernetes:"):
            metadata = answer.fields["metadata"].struct_value
            metadata.update({"uid": f"uid-of-{request.name}"})
            if "name" not in metadata.fields:
                metadata.update({"name": f"{request.name}-1a2b"})
        id_ = f"{request.name}-id" if request.custom else ""
        return resource_pb2.RegisterResourceResponse(urn=urn, id=id_, object=answer)

    def RegisterResourceHook(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """A name is taken once."""
        assert request.name not in self._hooks
        self._hooks[request.name] = request.callback
        return empty_pb2.Empty()  # type: ignore[attr-defined]

    def _called(self, hook: str, request: Any) -> str:
        """Return a hook's objection before a resource is made; empty for none."""
        asked: Any = resource_pb2.ResourceHookRequest(
            name=request.name, type=request.type, new_inputs=request.object
        )
        callback = self._hooks[hook]
        with grpc.insecure_channel(callback.target) as channel:  # type: ignore[no-untyped-call]
            answer = callback_pb2_grpc.CallbacksStub(channel).Invoke(
                callback_pb2.CallbackInvokeRequest(token=callback.token, request=asked.SerializeToString()),
                timeout=60,
            )
        found: Any = resource_pb2.ResourceHookResponse()
        found.ParseFromString(answer.response)
        return str(found.error)

    def ReadResource(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """It was there before."""
        found = struct_pb2.Struct()  # type: ignore[attr-defined]
        found.update({"metadata": {"name": request.id, "uid": f"uid-of-{request.id}"}})
        urn = f"urn:pulumi:{self._stack}::shop::{request.type}::{request.name}"
        return resource_pb2.ReadResourceResponse(urn=urn, properties=found)

    def RegisterResourceOutputs(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """A component's own outputs."""
        self.outputs[request.urn] = request.outputs
        return empty_pb2.Empty()  # type: ignore[attr-defined]

    def Invoke(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Read a provider that a program has made."""
        assert request.tok == "pulumi:pulumi:getResource"
        urn = request.args["urn"]
        found = {"urn": urn, "id": "some-id", "state": {"kubeconfig": KUBECONFIG, "context": "prod"}}
        answer = struct_pb2.Struct()  # type: ignore[attr-defined]
        answer.update(found)
        return provider_pb2.InvokeResponse(**{"return": answer})

    def of_type(self, type_: str) -> list[Any]:
        """The requests for resources of a type."""
        return [request for (_, found), request in self.made.items() if found == type_]


class FakeLog(engine_pb2_grpc.EngineServicer):
    """Keeps what people must see."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def Log(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Show a warning."""
        if request.severity >= engine_pb2.WARNING:
            self.shown.append(request.message)
        return empty_pb2.Empty()  # type: ignore[attr-defined]


class FakeEngine:
    """One provider, and engines that have it make components.

    :ivar stub: the provider.
    """

    def __init__(self, stub: Any, log: FakeLog, serve: Any) -> None:
        self.stub = stub
        self.log = log
        self._serve = serve

    def construct(self, type_: str, name: str, inputs: Any, stack: str = "dev", **more: Any) -> Any:
        """Make a component of one stack; the answer, and the monitor of that stack."""
        monitor = FakeMonitor(stack)
        address = self._serve(
            lambda server: resource_pb2_grpc.add_ResourceMonitorServicer_to_server(monitor, server)
        )
        request = provider_pb2.ConstructRequest(
            project="shop",
            stack=stack,
            organization="acme",
            monitorEndpoint=address,
            type=type_,
            name=name,
            inputs=inputs,
            **more,
        )
        return self.stub.Construct(request, timeout=60), monitor


@contextmanager
def fake_engine() -> Iterator[FakeEngine]:
    """A provider that listens to requests, and what it needs of an engine."""
    servers: list[Any] = []

    def serve(add: Any) -> str:
        server = grpc.server(futures.ThreadPoolExecutor(16))  # type: ignore[no-untyped-call]
        add(server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        servers.append(server)
        return f"127.0.0.1:{port}"

    log = FakeLog()
    engine = serve(lambda server: engine_pb2_grpc.add_EngineServicer_to_server(log, server))
    provider = ProviderServicer(engine)
    address = serve(lambda server: provider_pb2_grpc.add_ResourceProviderServicer_to_server(provider, server))
    with grpc.insecure_channel(address) as channel:  # type: ignore[no-untyped-call]
        yield FakeEngine(provider_pb2_grpc.ResourceProviderStub(channel), log, serve)
    for server in reversed(servers):
        server.stop(0).wait()
