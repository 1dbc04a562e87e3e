"""Addresses of instances that Eureka knows by a host name: resolved here, since Kubernetes resolves none.

Each name is looked up again after :data:`TTL_SECONDS`. Where that fails the last good answer is kept, for as
long as somebody asks for the name.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from eurekube_provider.core.address_policy import parsed_address

_log = logging.getLogger(__name__)

TTL_SECONDS = 30.0
ADVICE_TTL_SECONDS = 600.0
"""Seconds between lookups of a name that is only compared: it shows no endpoint, and a fleet has thousands
of names.
"""

FORGET_SECONDS = 600.0
"""Seconds after which a name that nobody asked for is forgotten."""

MOST_ADDRESSES = 8
"""Most addresses that are kept of one name; an instance has one or two."""

_THREADS = 4


@dataclass(slots=True)
class _Answer:
    """The known answer for a host name; times are monotonic.

    :ivar addresses: the last good answer; None where there never was one.
    :ivar error: why the last lookup failed; empty where it did not.
    """

    addresses: tuple[str, ...] | None = None
    error: str = ""
    looked_up_at: float = 0.0
    asked_at: float = 0.0
    is_under_way: bool = False


def look_up(name: str) -> tuple[str, ...]:
    """Return the addresses of a host name: IPv4 addresses if it has any, sorted, so that their order is no
    change.

    :raises OSError: the name has no address.
    """
    found = {str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}
    parsed = sorted(
        (address for text in found if (address := parsed_address(text)) is not None),
        key=lambda address: (address.version, int(address)),
    )
    if not parsed:
        raise OSError("no address")
    return tuple(str(one) for one in parsed if one.version == parsed[0].version)[:MOST_ADDRESSES]


class HostNames:
    """A cache of host names and their addresses that never blocks its callers; any number of threads may
    share it.

    :param changed: called on a thread of the cache when an answer has changed.
    :param ttl_seconds: after how long a name is looked up again.
    :param threads: how many lookups are under way at once.
    :param are_needed: True if a name that is not resolved is logged.
    """

    def __init__(
        self,
        changed: Callable[[], None],
        look_up: Callable[[str], tuple[str, ...]] = look_up,
        clock: Callable[[], float] = time.monotonic,
        *,
        ttl_seconds: float = TTL_SECONDS,
        threads: int = _THREADS,
        are_needed: bool = True,
    ) -> None:
        self._changed, self._look_up, self._clock = changed, look_up, clock
        self._ttl_seconds, self._are_needed = ttl_seconds, are_needed
        self._lock = threading.Lock()
        self._answers: dict[str, _Answer] = {}
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="host-names")
        self.version = 0
        """Counter that grows with each changed answer."""

    def resolved(self, name: str) -> tuple[str, ...] | None:
        """Return the addresses of a name by its last good answer; None before the first one."""
        now = self._clock()
        with self._lock:
            answer = self._answers.setdefault(name, _Answer(looked_up_at=now - self._ttl_seconds))
            answer.asked_at = now
            is_due = not answer.is_under_way and now - answer.looked_up_at >= self._ttl_seconds
            if is_due:
                answer.is_under_way = True
        if is_due:
            with suppress(RuntimeError):  # closed: the operator ends
                self._executor.submit(self._ask, name, answer)
        return answer.addresses

    def failure_of(self, name: str) -> str:
        """Return why the last lookup of a name failed; empty where it did not, or was never made."""
        with self._lock:
            answer = self._answers.get(name)
        return answer.error if answer is not None else ""

    @property
    def names(self) -> frozenset[str]:
        """Names that were asked for lately."""
        return frozenset(self._answers)

    @property
    def is_asking(self) -> bool:
        """True if a lookup is under way."""
        with self._lock:
            return any(one.is_under_way for one in self._answers.values())

    def close(self) -> None:
        """Start no more lookups."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _ask(self, name: str, answer: _Answer) -> None:
        try:
            found, error = self._look_up(name), ""
        except (OSError, UnicodeError) as failure:
            found, error = (), str(failure) or type(failure).__name__
        now = self._clock()
        with self._lock:
            is_news = bool(found) and found != answer.addresses
            is_first_failure = bool(error) and not answer.error
            answer.addresses = found or answer.addresses
            answer.error, answer.looked_up_at, answer.is_under_way = error, now, False
            self._forget(
                name for name, one in list(self._answers.items()) if now - one.asked_at > FORGET_SECONDS
            )
            if is_news or is_first_failure:
                self.version += 1
        if is_first_failure and self._are_needed:
            _log.warning("failed to resolve an instance's host name", extra={"host": name, "error": error})
        if is_news or is_first_failure:
            self._changed()

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            del self._answers[name]
