"""Tells a webhook that the endpoints which a stack depends on have changed.

Merged, debounced, signed, and repeated until it was taken. Only a changed *set of addresses* counts, and
nothing here is on the way from a pod to Eureka.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from fnmatch import fnmatchcase

import requests

from eurekube_provider.operator.settings import WebhookSettings

_log = logging.getLogger(__name__)

AppKey = tuple[str, str]

SIGNATURE_HEADER = "X-Eurekube-Signature-256"
"""``sha256=`` and the hexadecimal HMAC-SHA256 of the body."""

IDEMPOTENCY_HEADER = "Idempotency-Key"
"""Equal for every try of one call."""

LONGEST_WAIT_FACTOR = 10
"""Endless change cannot postpone a call for more than so many debounce times."""

REMEMBERED_SECONDS = 600.0
"""A replica that begins to lead tells once more what changed within this time: who led before it may not have
come to it."""

_UNKNOWN = ("unknown",)  # differs from every set of addresses
_TIMEOUT_SECONDS = (3.0, 10.0)
_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 1.0, 300.0


def signature(secret: str, body: bytes) -> str:
    """The value of :data:`SIGNATURE_HEADER` for a body."""
    return f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"


class Webhook:
    """One webhook, called from a thread of its own.

    :param addresses: the addresses, as ``host:port``, at which namespace and app can be called now.
    :param may_call: asked before each call: only the replica that leads makes them.
    """

    def __init__(
        self,
        settings: WebhookSettings,
        cluster: str,
        addresses: Callable[[AppKey], Iterable[str]],
        may_call: Callable[[], bool] = lambda: True,
    ) -> None:
        self._may_call = may_call
        self._left: dict[AppKey, float] = {}  # to who leads, and when
        self._settings = settings
        self._cluster = cluster
        self._addresses = addresses
        self._condition = threading.Condition()
        self._touched: dict[AppKey, None] = {}
        self._first_touch = self._last_touch = 0.0
        self._known: dict[AppKey, tuple[str, ...]] = {}
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)

    def start(self, existing: Iterable[AppKey]) -> None:
        """Begin; what exists now is the state that changes are compared with."""
        for key in existing:
            if self._concerns(key):
                self._known[key] = self._current(key)
        self._thread.start()

    def stop(self) -> None:
        """Call no more."""
        with self._condition:
            self._stopped = True
            self._condition.notify()

    def lead(self) -> None:
        """From now on this replica calls: also for what changed shortly before."""
        now = time.monotonic()
        with self._condition:
            left, self._left = self._left, {}
        for key, at in left.items():
            if now - at < REMEMBERED_SECONDS:
                self._known[key] = _UNKNOWN
                self.touch(key)

    def touch(self, key: AppKey) -> None:
        """The endpoints of namespace and app may have changed; returns at once."""
        if not self._concerns(key):
            return
        with self._condition:
            self._last_touch = time.monotonic()
            if not self._touched:
                self._first_touch = self._last_touch
            self._touched[key] = None
            self._condition.notify()

    def _concerns(self, key: AppKey) -> bool:
        patterns = self._settings.services
        return not patterns or any(fnmatchcase("/".join(key), pattern) for pattern in patterns)

    def _current(self, key: AppKey) -> tuple[str, ...]:
        return tuple(sorted(set(self._addresses(key))))

    def _run(self) -> None:
        while (keys := self._wait_for_quiet()) is not None:
            try:
                changed = self._changed(keys)
                if not self._may_call():
                    self._leave(changed)
                elif changed and self._deliver(changed):
                    self._known.update(changed)
            except Exception:  # noqa: BLE001 - the next change must be told all the same
                _log.exception("the webhook was not called")

    def _leave(self, changed: dict[AppKey, tuple[str, ...]]) -> None:
        """Have the replica that leads tell of this."""
        now = time.monotonic()
        self._known.update(changed)
        with self._condition:
            self._left = {key: at for key, at in self._left.items() if now - at < REMEMBERED_SECONDS}
            self._left.update(dict.fromkeys(changed, now))

    def _changed(self, keys: Iterable[AppKey]) -> dict[AppKey, tuple[str, ...]]:
        current = {key: self._current(key) for key in keys}
        return {key: now for key, now in current.items() if now != self._known.get(key, ())}

    def _wait_for_quiet(self) -> list[AppKey] | None:
        """The keys that were touched, once nothing has moved for the debounce time; None at the end."""
        quiet = self._settings.debounce_seconds
        with self._condition:
            while not self._stopped:
                if not self._touched:
                    self._condition.wait()
                    continue
                due = min(self._last_touch + quiet, self._first_touch + quiet * LONGEST_WAIT_FACTOR)
                wait = due - time.monotonic()
                if wait <= 0:
                    keys = list(self._touched)
                    self._touched.clear()
                    return keys
                self._condition.wait(wait)
            return None

    def _deliver(self, changed: dict[AppKey, tuple[str, ...]]) -> bool:
        """Call until it is taken; newer changes are taken along with the next try."""
        delay, attempt = _FIRST_RETRY_SECONDS, 0
        body, call_id = self._body(changed)
        while True:
            if not self._may_call():
                self._leave(changed)
                return False
            attempt += 1
            failure = self._post(body, call_id)
            if failure is None:
                _log.info("webhook called", extra={"services": len(changed), "attempt": attempt})
                return True
            _log.warning(
                "webhook call failed, tried again",
                extra={"attempt": attempt, "error": failure, "retry_seconds": round(delay, 1)},
            )
            with self._condition:
                wait = delay * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, no secret
                if self._condition.wait_for(lambda: self._stopped, wait):
                    return False
                newer = list(self._touched)
                self._touched.clear()
            delay = min(delay * 2, _LONGEST_RETRY_SECONDS)
            current = self._changed({*changed, *newer})
            if not current:
                return False  # everything is again as it was told last
            if current != changed:
                changed.clear()
                changed.update(current)
                body, call_id = self._body(changed)

    def _body(self, changed: dict[AppKey, tuple[str, ...]]) -> tuple[bytes, str]:
        call_id = str(uuid.uuid4())
        document = {
            "id": call_id,
            "event": "EndpointsChanged",
            "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "cluster": self._cluster,
            "services": [
                {"namespace": namespace, "app": app, "addresses": list(addresses)}
                for (namespace, app), addresses in sorted(changed.items())
            ],
        }
        return json.dumps(document).encode(), call_id

    def _post(self, body: bytes, call_id: str) -> str | None:
        """One call; says what went wrong, None if nothing did."""
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "eurekube",
            IDEMPOTENCY_HEADER: call_id,
            SIGNATURE_HEADER: signature(self._settings.secret, body),
        }
        try:
            response = requests.post(
                self._settings.url,
                data=body,
                headers=headers,
                timeout=_TIMEOUT_SECONDS,
                allow_redirects=False,
            )
        except requests.RequestException as error:
            return f"no answer ({type(error).__name__})"
        return None if response.status_code < 300 else f"answered {response.status_code}"
