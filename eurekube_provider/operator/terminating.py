"""Which endpoints were seen on their way out: one may be gone before anybody looks at its syncer."""

from __future__ import annotations

import threading
import time

from eurekube_provider.core.objects import Object, is_terminating

GOODBYE_SECONDS = 600.0
"""For as long it is remembered that an endpoint was seen terminating."""

MOST_REMEMBERED = 20_000
"""Beyond, the oldest are forgotten: the brake doubts then what it need not, for a minute."""

Name = tuple[str, str]
"""Namespace and pod, or address."""


class Goodbyes:
    """What was seen terminating lately, and is not back since; any number of threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at: dict[Name, float] = {}

    def look(self, endpoint_slice: Object) -> None:
        """Take note of a slice as it is now; the next pod of a StatefulSet has the name of the one before."""
        now = time.monotonic()
        namespace = endpoint_slice["metadata"]["namespace"]
        with self._lock:
            for endpoint in endpoint_slice["endpoints"]:
                name = (namespace, endpoint.get("targetRef", {}).get("name") or endpoint["addresses"][0])
                self._at.pop(name, None)
                if is_terminating(endpoint):
                    self._note(name, now)

    def note(self, name: Name, now: float) -> None:
        """One was seen; the oldest ones are forgotten."""
        with self._lock:
            self._at.pop(name, None)
            self._note(name, now)

    def __contains__(self, name: Name) -> bool:
        with self._lock:
            return name in self._at

    def _note(self, name: Name, now: float) -> None:
        """The newest is the last, so that the oldest is the first."""
        self._at[name] = now
        while (
            now - self._at[oldest := next(iter(self._at))] > GOODBYE_SECONDS
            or len(self._at) > MOST_REMEMBERED
        ):
            del self._at[oldest]

    def __len__(self) -> int:
        with self._lock:
            return len(self._at)
