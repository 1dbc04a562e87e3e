"""Calls a URL, signed, and repeats the call until it is taken or the time is over."""

from __future__ import annotations

import hashlib
import hmac
import json
import random
import time
from datetime import UTC, datetime

import requests

from eurekube_provider.operator.triggers.run import Outcome, Result, Run, Runner, failed
from eurekube_provider.operator.triggers.targets import Form, Webhook

SIGNATURE_HEADER = "X-Eurekube-Signature-256"
"""``sha256=`` and the hexadecimal HMAC-SHA256 of the body."""

IDEMPOTENCY_HEADER = "Idempotency-Key"
"""Equal for every try of one call, also by another replica of the operator."""

EVENT_TYPE = "eurekube-refresh"
"""What a workflow listens to: ``on: repository_dispatch: types: [eurekube-refresh]``."""

FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 1.0, 60.0
LONGEST_CALL_SECONDS = 10.0
_MOST_ADDRESSES = 1000
_MOST_SERVICES = 100


def signature(secret: str, body: bytes) -> str:
    """The value of :data:`SIGNATURE_HEADER` for a body."""
    return f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"


def caller(webhook: Webhook, first_retry_seconds: float = FIRST_RETRY_SECONDS) -> Runner:
    """A runner that calls ``webhook``."""

    def call(run: Run) -> Result:
        deadline = time.monotonic() + run.timeout_seconds
        body = _body(webhook.form, run)
        delay, tries = first_retry_seconds, 0
        while True:
            tries += 1
            left = deadline - time.monotonic()
            failure, is_final = _post(webhook, body, run.key, min(LONGEST_CALL_SECONDS, max(left, 0.1)))
            if failure is None:
                again = f" at the try no. {tries}" if tries > 1 else ""
                return Result(Outcome.SUCCEEDED, f"the call was taken{again}")
            wait = delay * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, no secret
            if is_final or time.monotonic() + wait >= deadline:
                times = "once" if tries == 1 else f"{tries} times"
                return failed(f"the webhook was called {times} and took nothing: {failure}")
            if run.cancelled.wait(wait):
                return failed("given up, since the operator ends")
            delay = min(delay * 2, LONGEST_RETRY_SECONDS)

    return call


def _post(webhook: Webhook, body: bytes, key: str, timeout_seconds: float) -> tuple[str | None, bool]:
    """One call; what went wrong, None if nothing did, and whether the same call can never do."""
    headers = {"Content-Type": "application/json", "User-Agent": "eurekube", IDEMPOTENCY_HEADER: key}
    if webhook.secret:
        headers[SIGNATURE_HEADER] = signature(webhook.secret, body)
    if webhook.form is Form.REPOSITORY_DISPATCH:
        headers["Accept"] = "application/vnd.github+json"

    def authorized(request: requests.PreparedRequest) -> requests.PreparedRequest:
        if webhook.authorization:
            request.headers["Authorization"] = webhook.authorization
        return request

    try:
        response = requests.post(
            webhook.url,
            data=body,
            headers=headers,
            auth=authorized,  # as a plain header a netrc file would replace it
            timeout=timeout_seconds,
            allow_redirects=False,
            stream=True,  # the answer's body is not read: it might never end
        )
        response.close()
    except requests.RequestException as error:
        return f"no answer ({type(error).__name__})", False  # its text would show the URL
    code = response.status_code
    if code < 300:
        return None, False
    # What a server says it does not want, it does not want the next time, either.
    return f"it answered {code}", 300 <= code < 500 and code not in (408, 409, 425, 429)


def _body(form: Form, run: Run) -> bytes:
    document = {
        "id": run.key,
        "event": "StackRefresh",
        "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "cluster": run.cluster,
        "namespace": run.namespace,
        "name": run.name,
        "action": str(run.action),
    }
    named = [(*service.split("/", 1), hosts) for service, hosts in sorted(run.addresses.items())]
    if form is Form.REPOSITORY_DISPATCH:  # at most ten keys, 64 KiB
        services = [
            {"namespace": namespace, "name": name, "ready": len(hosts)}
            for namespace, name, hosts in named[:_MOST_SERVICES]
        ]
        return json.dumps(
            {"event_type": EVENT_TYPE, "client_payload": {**document, "services": services}}
        ).encode()
    full = [
        {
            "namespace": namespace,
            "name": name,
            "ready": len(hosts),
            "addresses": list(hosts[:_MOST_ADDRESSES]),
        }
        for namespace, name, hosts in named
    ]
    return json.dumps({**document, "services": full}).encode()
