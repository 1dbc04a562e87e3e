"""The plugin process, which serves one provider to Pulumi's engine until the engine ends it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from concurrent import futures

import grpc

from eurekube_provider.provider.protocol import provider_pb2_grpc
from eurekube_provider.provider.servicer import ProviderServicer
from eurekube_provider.registrations.cancellation import CANCELLATION, MAX_CONCURRENT_CALLS

_PARENT_CHECK_INTERVAL_SECONDS = 1.0

_MAX_MESSAGE_BYTES = 400 * 1024 * 1024  # as the engine's own


def main() -> None:
    """Serve the provider; print the port for the engine. Source: plugin.go of pulumi/pulumi."""
    parent = os.getppid()  # at once: the process that adopts this one must not pass for its parent
    stopped = threading.Event()

    def stop(*_: object) -> None:
        CANCELLATION.cancel()
        stopped.set()

    # The engine interrupts it when all is done, and kills it five seconds later.
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    address = sys.argv[1] if len(sys.argv) > 1 else ""
    server = grpc.server(  # type: ignore[no-untyped-call]
        futures.ThreadPoolExecutor(MAX_CONCURRENT_CALLS),
        options=[
            ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", -1),
        ],
    )
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(ProviderServicer(address), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    while not stopped.wait(_PARENT_CHECK_INTERVAL_SECONDS):
        if os.getppid() != parent:  # the engine was killed, and could not interrupt it
            stop()
    server.stop(grace=4).wait()
