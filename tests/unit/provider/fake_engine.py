"""A Pulumi engine for components: it records the resources that are registered, and answers at once."""

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
"""The kubeconfig of the program's Kubernetes provider."""


class FakeMonitor(resource_pb2_grpc.ResourceMonitorServicer):
    """A resource monitor that creates every resource, even if a hook refuses it.

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
        """Answer that the engine has every feature."""
        return resource_pb2.SupportsFeatureResponse(hasSupport=True)

    def GetDeploymentInfo(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Answer as an older engine that does not know this call."""
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "an older engine")

    def RegisterResource(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Record the request, and return the resource with a UID and a name as a cluster gives them."""
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
        """Keep a hook, whose name must be new."""
        assert request.name not in self._hooks
        self._hooks[request.name] = request.callback
        return empty_pb2.Empty()  # type: ignore[attr-defined]

    def _called(self, hook: str, request: Any) -> str:
        """Call a hook before a creation; return its error, empty if it has none."""
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
        """Return an existing resource of this id."""
        found = struct_pb2.Struct()  # type: ignore[attr-defined]
        found.update({"metadata": {"name": request.id, "uid": f"uid-of-{request.id}"}})
        urn = f"urn:pulumi:{self._stack}::shop::{request.type}::{request.name}"
        return resource_pb2.ReadResourceResponse(urn=urn, properties=found)

    def RegisterResourceOutputs(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Record a component's outputs."""
        self.outputs[request.urn] = request.outputs
        return empty_pb2.Empty()  # type: ignore[attr-defined]

    def Invoke(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Return the state of the program's Kubernetes provider."""
        assert request.tok == "pulumi:pulumi:getResource"
        urn = request.args["urn"]
        found = {"urn": urn, "id": "some-id", "state": {"kubeconfig": KUBECONFIG, "context": "prod"}}
        answer = struct_pb2.Struct()  # type: ignore[attr-defined]
        answer.update(found)
        return provider_pb2.InvokeResponse(**{"return": answer})

    def of_type(self, type_: str) -> list[Any]:
        """Return the requests for resources of a type."""
        return [request for (_, found), request in self.made.items() if found == type_]


class FakeLog(engine_pb2_grpc.EngineServicer):
    """An engine that records warnings and errors."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def Log(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Record a message of the severity warning or above."""
        if request.severity >= engine_pb2.WARNING:
            self.shown.append(request.message)
        return empty_pb2.Empty()  # type: ignore[attr-defined]


class FakeEngine:
    """A provider, and an engine for each component that it constructs.

    :ivar stub: the provider.
    """

    def __init__(self, stub: Any, log: FakeLog, serve: Any) -> None:
        self.stub = stub
        self.log = log
        self._serve = serve

    def construct(self, type_: str, name: str, inputs: Any, stack: str = "dev", **more: Any) -> Any:
        """Construct a component in a stack; return the answer and the stack's monitor."""
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
    """Yield a running provider with its engine, and stop both at the end."""
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
