"""Check that a renewer of a stack's registrations is at work, as far as Eureka's list shows it.

A registration that is older than its lease is renewed by somebody. Where no registration of a renewer is, a
person should hear of it before 90 seconds are over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from eurekube_provider.core.identity import SELF_RENEWER_VALUE
from eurekube_provider.core.model import Instance
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.registrations.registry_lists import SHARED_REGISTRY_LIST_CACHE

RENEWED_BY_SOMEBODY_AFTER_SECONDS = 300.0
"""Seconds after which a registration that still stands was renewed: a lease of 90 s, evictions each 60 s
and a list of half a minute ago are over, even with clocks that differ.
"""


def is_renewer_at_work(listed: Iterable[Instance], renewer: str, now_ms: float) -> bool | None:
    """Return whether the whole list shows a renewer at work; None where its registrations are too new."""
    written_at = [one.written_at_ms for one in listed if one.renewer == renewer]
    if not written_at:
        return False
    return True if min(written_at) < now_ms - RENEWED_BY_SOMEBODY_AFTER_SECONDS * 1000 else None


class RenewerCheck:
    """A check of the renewers with which this process registers, once for each Eureka and renewer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: set[tuple[tuple[str, ...], str]] = set()

    def missing_renewer_warning(self, peers: Peers, connection: str, renewer: str) -> str:
        """Return a warning, once for each Eureka and renewer, where nothing is renewed by it; else ""."""
        place = (peers.connection.service_urls, renewer)
        with self._lock:
            if renewer == SELF_RENEWER_VALUE or place in self._asked:
                return ""
            self._asked.add(place)
        try:
            seen = is_renewer_at_work(
                SHARED_REGISTRY_LIST_CACHE.all_instances(peers), renewer, time.time() * 1000
            )
        except Exception:  # noqa: BLE001 - it is worth no failed registration
            return ""
        if seen is not False:
            return ""
        return (
            f"nothing at {', '.join(peers.connection.service_urls)} is renewed by {renewer!r} yet: where no"
            " operator of that name has this Eureka among its connections (the stack's connection"
            f" {connection!r}), and no `eurekube keepalive --operator-name {renewer}` runs, what is"
            " registered now lapses with its Eureka lease, by default after 90 seconds"
        )


SHARED_RENEWER_CHECK = RenewerCheck()
"""The renewer check of this process, which lives as long as one update."""
