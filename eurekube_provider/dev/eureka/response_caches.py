"""The two response caches of a Eureka server, from which every list comes.

The first cache drops a key after three minutes or when an instance changes; the second copies the first every
half minute, never drops a key, and so keeps the first one filled with every key that was asked for once. A
change during the rendering of an answer is not in that answer, and the first cache keeps the answer all the
same: for three minutes, or until the next change.

Source: ResponseCacheImpl and Key of Netflix/eureka, and LocalCache of google/guava, which invalidates nothing
that is being loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from eurekube_provider.dev.eureka.virtual_clock import Clock

READ_WRITE_LIFE_MS = 180_000
READ_ONLY_COPY_INTERVAL_MS = 30_000

RENDERING_DURATION_MS = 100
"""Milliseconds for which :meth:`ResponseCaches.copy_with_slow_rendering` renders, while changes may come."""

ALL_APPS = "ALL_APPS"
ALL_APPS_DELTA = "ALL_APPS_DELTA"


class CacheKey(NamedTuple):
    """The key of a rendered answer.

    :ivar kind: ``Application``, ``VIP`` or ``SVIP``.
    :ivar name: an application or VIP address, or :data:`ALL_APPS` or :data:`ALL_APPS_DELTA`.
    """

    kind: str
    name: str
    format: str = "JSON"
    accept: str = "full"
    regions: tuple[str, ...] = ()


class ResponseCaches:
    """The two response caches of one server.

    :ivar read_only: the keys that the server will keep, and render again every half minute, for ever.
    """

    def __init__(
        self, clock: Clock, render: Callable[[CacheKey], str], *, use_read_only: bool = True
    ) -> None:
        self._clock = clock
        self.render = render
        self._read_write: dict[CacheKey, tuple[int, str]] = {}
        self._rendered_until: dict[CacheKey, int] = {}
        self.read_only: dict[CacheKey, str] = {}
        self._end: Callable[[], None] | None = None
        self._uses_read_only = use_read_only
        if use_read_only:
            first = (clock.now_ms // READ_ONLY_COPY_INTERVAL_MS + 1) * READ_ONLY_COPY_INTERVAL_MS
            self._end = clock.run_every(first, READ_ONLY_COPY_INTERVAL_MS, self.copy_to_read_only)

    def close(self) -> None:
        if self._end is not None:
            self._end()

    def get(self, key: CacheKey) -> str:
        """Return the answer for a key; an empty answer for an unknown name is cached as well."""
        if not self._uses_read_only:
            return self._cached_or_rendered(key)
        if key not in self.read_only:
            self.read_only[key] = self._cached_or_rendered(key)
        return self.read_only[key]

    def invalidate(self, app: str, vip: str, secure_vip: str) -> None:
        """Drop the answers from the first cache that show an application or VIP address, after a change."""
        touched = {("Application", app), ("Application", ALL_APPS), ("Application", ALL_APPS_DELTA)}
        touched |= {("VIP", vip), ("SVIP", secure_vip)}
        for key in [key for key in self._read_write if (key.kind, key.name) in touched]:
            if self._rendered_until.get(key, 0) <= self._clock.now_ms:
                del self._read_write[key]

    def copy_with_slow_rendering(self) -> None:
        """Copy the first cache to the second now; what must be rendered misses changes meanwhile."""
        for key in self.read_only:
            if self._unexpired_answer(key) is None:
                self._rendered_until[key] = self._clock.now_ms + RENDERING_DURATION_MS
        self.copy_to_read_only()

    def drop_from_first_cache(self, key: CacheKey) -> None:
        """Drop a key from the first cache, so that its answer is rendered again."""
        self._read_write.pop(key, None)

    def _cached_or_rendered(self, key: CacheKey) -> str:
        found = self._unexpired_answer(key)
        if found is None:
            found = self.render(key)
            self._read_write[key] = (self._clock.now_ms, found)
        return found

    def _unexpired_answer(self, key: CacheKey) -> str | None:
        """Return the first cache's answer for a key; None where it has expired."""
        at_ms, found = self._read_write.get(key, (0, None))
        return found if self._clock.now_ms - at_ms < READ_WRITE_LIFE_MS else None

    def copy_to_read_only(self) -> None:
        for key in list(self.read_only):
            self.read_only[key] = self._cached_or_rendered(key)
