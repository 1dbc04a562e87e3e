"""Changes to Pulumi's plugin process, in which the dynamic provider runs: its errors, Cancel and threads.

The SDK's process ignores Cancel, serves four calls at once, and answers an exception with its whole
traceback, in which a person must find one sentence.
"""

from __future__ import annotations

import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from types import FrameType, SimpleNamespace
from typing import Any

from eurekube_provider.core.errors import EurekubeError
from eurekube_provider.registrations.cancellation import CANCELLATION, MAX_CONCURRENT_CALLS


def set_up_plugin_process() -> None:
    """Prepare Pulumi's plugin process for our providers; do nothing in any other process."""
    answer_errors_without_traceback()
    end_drains_on_cancel()
    _raise_call_limit()


def end_drains_on_cancel() -> None:
    """Make Cancel end the drains of Pulumi's plugin process, and prevent new ones. Where a later SDK handles
    Cancel in another way, a drain goes on until the engine disconnects.
    """
    servicer = getattr(sys.modules.get("__main__"), "DynamicResourceProviderServicer", None)
    cancel = getattr(servicer, "Cancel", None)
    code = getattr(cancel, "__code__", None)
    # gRPC holds the bound method since the server started: only its code can be another one.
    if code is None or code is _answer_cancel.__code__:  # a process serves one run of the engine
        return
    if code.co_varnames[: code.co_argcount] == ("self", "request", "context"):
        CANCELLATION.begin_run()
        cancel.__code__ = _answer_cancel.__code__  # type: ignore[union-attr]
        # Drains may have all threads that there are for calls.
        cancel.experimental_thread_pool = ThreadPoolExecutor(1)  # type: ignore[union-attr]


def _answer_cancel(self: Any, request: Any, context: Any) -> Any:  # noqa: ARG001 - the SDK's names
    """Answer Cancel in the SDK's place, and in its module: all that is needed is imported here."""
    from google.protobuf import empty_pb2

    from eurekube_provider.registrations.cancellation import CANCELLATION

    CANCELLATION.cancel()
    return empty_pb2.Empty()  # type: ignore[attr-defined]


def _raise_call_limit() -> None:
    """Let the process serve more calls at once than the SDK's four: a fifth drain would wait for another."""
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - the server keeps its threads to itself
    while frame is not None:
        reference = frame.f_locals.get("executor_reference")
        executor: Any = reference() if callable(reference) else None
        if isinstance(getattr(executor, "_max_workers", None), int):
            executor._max_workers = max(executor._max_workers, MAX_CONCURRENT_CALLS)  # noqa: SLF001
            for _ in range(executor._work_queue.qsize()):  # noqa: SLF001
                executor.submit(int)  # makes the executor start a thread for a call that already waits
            return
        frame = frame.f_back


def answer_errors_without_traceback() -> None:
    """Make Pulumi's plugin process answer an :class:`EurekubeError` with its message alone. Where a later SDK
    formats errors in another way, people see the traceback again.
    """
    plugin: Any = sys.modules.get("__main__")
    if hasattr(plugin, "_abort_with_traceback") and getattr(plugin, "traceback", None) is traceback:
        plugin.traceback = SimpleNamespace(format_exc=_current_exception_text)


def _current_exception_text() -> str:
    """Return the message of the current exception if it is ours, else its traceback."""
    error = sys.exc_info()[1]
    return str(error) if isinstance(error, EurekubeError) else traceback.format_exc()
