"""Which server accepted the renewal of a stack's registration lately.

A server that did, and says now that it does not hold the instance, has not evicted it: its Eureka lease has
not ended yet. Unless it was restarted since, it was told to remove it. Another server that still holds it has
missed that, and a renewal there would bring it back everywhere. Of a syncer's instances nothing is
remembered: the cluster says what is wanted of them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable

from eurekube_provider.core.identity import StackOwner, parse_owner
from eurekube_provider.core.model import Instance, Key
from eurekube_provider.eureka import windows
from eurekube_provider.runtime.clock import elapsed_seconds


def is_of_stack(instance: Instance) -> bool:
    """Whether a stack owns it."""
    owner = instance.owner or ""
    # Most are syncers', and this is asked of each renewal.
    return owner.startswith("stack/") and isinstance(parse_owner(owner), StackOwner)


class AcceptedRenewals:
    """Remembers accepted renewals of the servers of one Eureka; any number of threads may share it."""

    def __init__(self, clock: Callable[[], float] = elapsed_seconds) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._at: dict[str, OrderedDict[Key, float]] = {}  # by URL, oldest first

    def note(self, url: str, instances: Iterable[Instance]) -> None:
        """The server at ``url`` has just accepted the renewals of these."""
        ours = [instance.key for instance in instances if is_of_stack(instance)]
        if not ours:
            return
        now = self._clock()
        with self._lock:
            at = self._at.setdefault(url, OrderedDict())
            for key in ours:
                at[key] = now
                at.move_to_end(key)
            while next(iter(at.values())) < now - windows.RENEWAL_ACCEPTED:
                at.popitem(last=False)

    def lately(self, url: str, instance: Instance) -> bool:
        """Whether the server accepted its renewal so lately that it cannot have evicted it since.

        A renewed lease lives for twice its duration, but one that was registered again since for once.
        """
        with self._lock:
            at = self._at[url].get(instance.key) if url in self._at else None
        longest = min(instance.lease.duration_seconds, windows.RENEWAL_ACCEPTED)
        return at is not None and self._clock() - at < longest
