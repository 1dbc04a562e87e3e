"""Counts of the requests to one server and of their results."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from dataclasses import dataclass

from eurekube_provider.core.registry import RegistryServer
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.self_preservation import FrontPage
from eurekube_provider.runtime.histogram import Histogram

NO_ANSWER_CODE = "none"
"""The label, in place of a status code, for a request that was not answered."""

MOST_SILENCES_KEPT = 64
"""The number of a server's long silences that are remembered; together they cover more than two minutes."""


@dataclass(frozen=True, slots=True)
class LastRequestOutcome:
    """The result of the last request to a server.

    :param is_up: True if the server answered the last request, neither with a 5xx nor with 401 or 403.
    :param since: Unix time of the first request with this result.
    :param error: why the server cannot be used; empty while it can.
    """

    is_up: bool
    since: float
    error: str = ""


class RequestStats:
    """The counts of requests to one server; any number of threads may share them."""

    def __init__(self) -> None:
        self.durations = Histogram()
        self.state: LastRequestOutcome | None = None
        """The result of the last request; None before the first one."""
        self._lock = threading.Lock()
        self._answered_at: float | None = None
        self._requests: Counter[tuple[str, str]] = Counter()
        self._open = 0
        self._silent_since: float | None = None
        self._silences: deque[tuple[float, float]] = deque(maxlen=MOST_SILENCES_KEPT)
        """The beginning and the end of each long silence, the latest ones, by the monotonic clock."""

    @property
    def requests(self) -> Counter[tuple[str, str]]:
        """The number of requests so far, by method and status code (or :data:`NO_ANSWER_CODE`)."""
        with self._lock:
            return Counter(self._requests)

    @property
    def unanswered_seconds(self) -> float:
        """Seconds for which requests have waited and none was answered; 0 while no request waits."""
        with self._lock:
            return 0.0 if self._silent_since is None else time.monotonic() - self._silent_since

    def long_silences_within(self, seconds: float) -> list[tuple[float, float]]:
        """Return the long silences of the server that last until now, or ended within the last ``seconds``.

        :returns: the beginning and the end of each silence, by the monotonic clock.
        """
        now = time.monotonic()
        with self._lock:
            found = list(self._silences)
            if self._silent_since is not None and now - self._silent_since >= windows.LONG_SILENCE_SECONDS:
                found.append((self._silent_since, now))
        return [(began, ended) for began, ended in found if now - ended < seconds]

    def figures(self, url: str, started_ms: int | None, page: FrontPage | None) -> RegistryServer:
        """Return the server's figures for metrics and the status page.

        :param started_ms: when the server was started, in milliseconds; None where it is not known.
        """
        state = self.state
        return RegistryServer(
            url,
            state.is_up if state else None,
            state.since if state else 0.0,
            state.error if state else "",
            None if started_ms is None else started_ms / 1000,
            self.requests,
            self.durations.snapshot(),
            page.renewals_last_minute if page else None,
            page.renewals_threshold if page else None,
            self._answered_at,
        )

    def note_request_begins(self) -> None:
        """Note that a request is being sent; :meth:`note_request_ended` must follow."""
        with self._lock:
            self._open += 1
            if self._silent_since is None:
                self._silent_since = time.monotonic()

    def note_request_ended(self, method: str, code: str, seconds: float, *, is_usable: bool = False) -> None:
        """Count a request that has ended.

        :param is_usable: True if the answer shows that the server can be used, see :meth:`note_usability`.
        """
        with self._lock:
            self._requests[method, code] += 1
            self._open -= 1
            if code != NO_ANSWER_CODE:
                now, since = time.monotonic(), self._silent_since
                if since is not None and now - since >= windows.LONG_SILENCE_SECONDS:
                    self._silences.append((since, now))
                self._silent_since = now if self._open > 0 else None
            if is_usable:
                self._answered_at = time.time()
            is_news = is_usable and not (self.state and self.state.is_up)
        self.durations.observe(seconds)
        if is_news:
            self.note_usability()

    def note_usability(self, error: str = "") -> None:
        """Note that the server could be used, or the error for which it could not."""
        with self._lock:
            before = self.state
            if not error:
                self._answered_at = time.time()
            if before is not None and before.is_up == (not error) and before.error == error:
                return
            flipped = before is None or before.is_up != (not error)
            since = time.time() if before is None or flipped else before.since
            self.state = LastRequestOutcome(not error, since, error)
