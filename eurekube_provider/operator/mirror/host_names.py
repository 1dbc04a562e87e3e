"""Addresses of instances that Eureka knows by a host name: resolved here, since Kubernetes resolves none.

Each name is looked up again after :data:`ENDPOINT_HOST_NAME_TTL_SECONDS`. Where that fails the last good
answer is kept, for as long as somebody asks for the name. Names that failed last are looked up by threads of
their own: a dead name takes a resolver up to half a minute, and hundreds of them would delay all others.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from eurekube_provider.core.address_policy import parse_ip_address

_log = logging.getLogger(__name__)

ENDPOINT_HOST_NAME_TTL_SECONDS = 30.0
"""Seconds between lookups of a name whose addresses are endpoints."""

COMPARED_HOST_NAME_TTL_SECONDS = 600.0
"""Seconds between lookups of a name that is only compared with the instance's IP address: it gives no
endpoint, and a fleet has thousands of names.
"""

UNUSED_NAME_SECONDS = 600.0
"""Seconds without a request after which a name is forgotten."""

MOST_ADDRESSES_OF_NAME = 8
"""Most addresses that are kept of one name; an instance has one or two."""

_LOOKUP_THREADS = 4


@dataclass(slots=True)
class _CachedAnswer:
    """The known answer for a host name; times are monotonic.

    :ivar addresses: the addresses of the last successful lookup; None before the first.
    :ivar error: why the last lookup failed; empty after a successful one.
    :ivar looked_up_at: when the last lookup ended.
    :ivar last_asked_at: when a caller asked for the name last.
    """

    addresses: tuple[str, ...] | None = None
    error: str = ""
    looked_up_at: float = 0.0
    last_asked_at: float = 0.0
    is_lookup_running: bool = False


def look_up(name: str) -> tuple[str, ...]:
    """Return the addresses of a host name: IPv4 addresses if it has any, sorted, so that their order is no
    change.

    :raises OSError: the name has no address.
    """
    found = {str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}
    parsed = sorted(
        (address for text in found if (address := parse_ip_address(text)) is not None),
        key=lambda address: (address.version, int(address)),
    )
    if not parsed:
        raise OSError("no address")
    return tuple(str(one) for one in parsed if one.version == parsed[0].version)[:MOST_ADDRESSES_OF_NAME]


class HostNameCache:
    """A cache of host names and their addresses that never blocks its callers; any number of threads may
    share it.

    :param changed: called on a thread of the cache when an answer has changed.
    :param ttl_seconds: after how long a name is looked up again.
    :param threads: how many lookups are under way at once; as many more of names that failed last.
    :param are_needed: True to log names that cannot be resolved.
    """

    def __init__(
        self,
        changed: Callable[[], None],
        look_up: Callable[[str], tuple[str, ...]] = look_up,
        clock: Callable[[], float] = time.monotonic,
        *,
        ttl_seconds: float = ENDPOINT_HOST_NAME_TTL_SECONDS,
        threads: int = _LOOKUP_THREADS,
        are_needed: bool = True,
    ) -> None:
        self._changed, self._look_up, self._clock = changed, look_up, clock
        self._ttl_seconds, self._are_needed = ttl_seconds, are_needed
        self._lock = threading.Lock()
        self._answers: dict[str, _CachedAnswer] = {}
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="host-names")
        self._failing_executor = ThreadPoolExecutor(threads, thread_name_prefix="failing-host-names")
        self.version = 0
        """Counter that grows with each changed answer."""

    def addresses_of(self, name: str) -> tuple[str, ...] | None:
        """Return the addresses of a name by its last successful lookup, None before the first; start a lookup
        if the answer is too old.
        """
        now = self._clock()
        with self._lock:
            answer = self._answers.setdefault(name, _CachedAnswer(looked_up_at=now - self._ttl_seconds))
            answer.last_asked_at = now
            is_due = not answer.is_lookup_running and now - answer.looked_up_at >= self._ttl_seconds
            if is_due:
                answer.is_lookup_running = True
        if is_due:
            executor = self._failing_executor if answer.error else self._executor
            try:
                executor.submit(self._look_up_and_store, name, answer)
            except RuntimeError:  # closed, since the operator ends; or no thread can be started now
                answer.looked_up_at, answer.is_lookup_running = now, False
        return answer.addresses

    def failure_text_of(self, name: str) -> str:
        """Return why the last lookup of a name failed; empty after a success, or before the first lookup."""
        with self._lock:
            answer = self._answers.get(name)
        return answer.error if answer is not None else ""

    @property
    def names(self) -> frozenset[str]:
        """Names that were asked for lately."""
        return frozenset(self._answers)

    @property
    def is_looking_up(self) -> bool:
        """True if a lookup is under way."""
        with self._lock:
            return any(one.is_lookup_running for one in self._answers.values())

    def close(self) -> None:
        """Start no more lookups."""
        for executor in (self._executor, self._failing_executor):
            executor.shutdown(wait=False, cancel_futures=True)

    def _look_up_and_store(self, name: str, answer: _CachedAnswer) -> None:
        try:
            found, error = self._look_up(name), ""
        except Exception as failure:  # noqa: BLE001 - else the name would never be looked up again
            found, error = (), str(failure) or type(failure).__name__
        now = self._clock()
        with self._lock:
            is_news = bool(found) and found != answer.addresses
            is_first_failure = bool(error) and not answer.error
            answer.addresses = found or answer.addresses
            answer.error, answer.looked_up_at, answer.is_lookup_running = error, now, False
            self._forget(
                name
                for name, one in list(self._answers.items())
                if now - one.last_asked_at > UNUSED_NAME_SECONDS
            )
            if is_news or is_first_failure:
                self.version += 1
        if is_first_failure and self._are_needed:
            _log.warning(
                "failed to resolve an instance's host name, keeping its last addresses and retrying",
                extra={"host": name, "error": error},
            )
        if is_news or is_first_failure:
            self._changed()

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            del self._answers[name]
