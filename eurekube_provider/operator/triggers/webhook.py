"""Signed calls of a URL, repeated until the server accepts one or the time is over.

A server may answer as slowly as it likes, byte by byte: each call has a thread of its own, and its connection
is cut when the time is over or the operator ends.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import queue
import random
import socket
import threading
import time
from contextlib import suppress
from typing import Any

import requests
import requests.adapters

from eurekube_provider.operator.triggers.targets import (
    StackRun,
    StackRunner,
    StackRunOutcome,
    StackRunResult,
    Webhook,
    WebhookFormat,
)
from eurekube_provider.runtime.bounded_http import FinalResponse

SIGNATURE_HEADER = "X-Eurekube-Signature-256"
"""Header with ``sha256=`` and the body's hexadecimal HMAC-SHA256, which can be replayed for ever."""

TIMED_SIGNATURE_HEADER = "X-Eurekube-Signature"
"""Header with ``t=``, the Unix time, ``,v1=`` and the HMAC of that time, a dot and the body."""

IDEMPOTENCY_HEADER = "Idempotency-Key"
"""Header with a key that is equal for every try of one call, by any replica, as is the body."""

DISPATCH_EVENT_TYPE = "eurekube-refresh"
"""Event type of the call for a GitHub workflow: ``on: repository_dispatch: types: [eurekube-refresh]``."""

FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 1.0, 60.0
LONGEST_CALL_SECONDS = 10.0

_POLL_SECONDS = 0.05
_CALL_THREAD_JOIN_SECONDS = 1.0
"""Seconds that a call's thread has to end once its connection is cut; a slower thread is abandoned."""

_MOST_SENT_ADDRESSES = 1000
"""Most addresses of each Service in a body of Eurekube's own format."""

_MOST_SENT_SERVICES = 100
"""Most Services in a body for GitHub."""


def signature(secret: str, body: bytes) -> str:
    """Return the value of :data:`SIGNATURE_HEADER` for a body."""
    return f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"


def timed_signature(secret: str, body: bytes, seconds: int) -> str:
    """Return the value of :data:`TIMED_SIGNATURE_HEADER` for a body that is sent at a Unix time."""
    signed = hmac.new(secret.encode(), f"{seconds}.".encode() + body, hashlib.sha256)
    return f"t={seconds},v1={signed.hexdigest()}"


def webhook_runner(webhook: Webhook, first_retry_seconds: float = FIRST_RETRY_SECONDS) -> StackRunner:
    def run_webhook(run: StackRun) -> StackRunResult:
        deadline = time.monotonic() + run.timeout_seconds
        body = _request_body(webhook.form, run)
        delay, tries = first_retry_seconds, 0
        while True:
            tries += 1
            left = deadline - time.monotonic()
            call_seconds = min(LONGEST_CALL_SECONDS, max(left, 0.1))
            failure, is_final = _call_webhook(webhook, body, run.idempotency_key, call_seconds, run.cancelled)
            if run.cancelled.is_set() and failure is not None:
                return StackRunResult.failed("given up, since the operator ends")
            if failure is None:
                again = f" at the try no. {tries}" if tries > 1 else ""
                return StackRunResult(StackRunOutcome.SUCCEEDED, f"the call was taken{again}")
            wait = delay * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, no secret
            if is_final or time.monotonic() + wait >= deadline:
                times = "once" if tries == 1 else f"{tries} times"
                return StackRunResult.failed(f"the webhook was called {times} and took nothing: {failure}")
            if run.cancelled.wait(wait):
                return StackRunResult.failed("given up, since the operator ends")
            delay = min(delay * 2, LONGEST_RETRY_SECONDS)

    return run_webhook


def _call_webhook(
    webhook: Webhook, body: bytes, key: str, timeout_seconds: float, cancelled: threading.Event
) -> tuple[str | None, bool]:
    """Make one call, which ends within the time-out however slow the server is.

    :returns: the error, None for none, and whether the same call can never succeed.
    """
    adapter, found = _CancellableAdapter(), queue.SimpleQueue[tuple[str | None, bool]]()

    def post_into_queue() -> None:
        try:
            found.put(_post(webhook, body, key, timeout_seconds, adapter))
        except Exception as error:  # noqa: BLE001 - its text may show a header
            found.put((f"it cannot be called ({type(error).__name__})", True))

    thread = threading.Thread(target=post_into_queue, name="webhook-call", daemon=True)
    deadline = time.monotonic() + timeout_seconds
    thread.start()
    while True:
        with suppress(queue.Empty):
            return found.get(timeout=_POLL_SECONDS)
        if cancelled.is_set() or time.monotonic() >= deadline:
            adapter.cut_connections()
            thread.join(_CALL_THREAD_JOIN_SECONDS)
            return f"no whole answer within {timeout_seconds:.1f} s", False


class _CancellableAdapter(requests.adapters.HTTPAdapter):
    """An HTTP adapter whose connections another thread can cut."""

    def __init__(self) -> None:
        self._made: list[Any] = []
        super().__init__()

    def get_connection_with_tls_context(self, *args: Any, **more: Any) -> Any:
        """Return a connection pool that records each connection as soon as it is made."""
        pool: Any = super().get_connection_with_tls_context(*args, **more)
        make, made = pool.ConnectionCls, self._made

        def make_recorded(*args: Any, **more: Any) -> Any:
            made.append(make(*args, **more))
            made[-1].response_class = FinalResponse
            return made[-1]

        pool.ConnectionCls = make_recorded
        return pool

    def cut_connections(self) -> None:
        """Shut down all recorded connections, which ends pending reads and writes."""
        for connection in self._made:
            sock = connection.sock
            if sock is not None:
                with suppress(OSError):
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)  # TLS would first say goodbye


def _post(
    webhook: Webhook, body: bytes, key: str, timeout_seconds: float, adapter: requests.adapters.HTTPAdapter
) -> tuple[str | None, bool]:
    """Send one request; return the error, None for none, and whether the same call can never succeed."""
    headers = {"Content-Type": "application/json", "User-Agent": "eurekube", IDEMPOTENCY_HEADER: key}
    if webhook.secret:
        headers[SIGNATURE_HEADER] = signature(webhook.secret, body)
        headers[TIMED_SIGNATURE_HEADER] = timed_signature(webhook.secret, body, int(time.time()))
    if webhook.form is WebhookFormat.REPOSITORY_DISPATCH:
        headers["Accept"] = "application/vnd.github+json"

    def add_authorization(request: requests.PreparedRequest) -> requests.PreparedRequest:
        if webhook.authorization:
            request.headers["Authorization"] = webhook.authorization
        return request

    session = requests.Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, adapter)
    try:
        with (
            session,
            session.post(
                webhook.url,
                data=body,
                headers=headers,
                auth=add_authorization,  # as a plain header a netrc file would replace it
                timeout=timeout_seconds,
                allow_redirects=False,
                stream=True,  # the answer's body is not read: it might never end
            ) as response,
        ):
            code = response.status_code
    except requests.RequestException as error:
        return f"no answer ({type(error).__name__})", False  # its text would show the URL
    if code < 300:
        return None, False
    # What a server says it does not want, it does not want the next time, either.
    return f"it answered {code}", 300 <= code < 500 and code not in (408, 409, 425, 429)


def _request_body(form: WebhookFormat, run: StackRun) -> bytes:
    """Return a request's body, which is the same for each try: an equal key means an equal body."""
    document = {
        "id": run.idempotency_key,
        "event": "StackRefresh",
        "cluster": run.cluster,
        "namespace": run.namespace,
        "name": run.name,
        "action": str(run.action),
    }
    services: list[dict[str, Any]] = []
    for service, hosts in sorted(run.addresses.items()):
        namespace, _, name = service.partition("/")
        services.append({"namespace": namespace, "name": name, "ready": len(hosts)})
        if form is WebhookFormat.EUREKUBE:
            services[-1]["addresses"] = list(hosts[:_MOST_SENT_ADDRESSES])
    if form is WebhookFormat.EUREKUBE:
        return json.dumps({**document, "services": services}).encode()
    payload = {**document, "services": services[:_MOST_SENT_SERVICES]}  # at most ten keys, 64 KiB
    return json.dumps({"event_type": DISPATCH_EVENT_TYPE, "client_payload": payload}).encode()
