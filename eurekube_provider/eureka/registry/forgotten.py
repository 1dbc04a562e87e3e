"""What an Eureka forgot of syncers' instances: for those that are registered again by no plan.

A syncer that is refused or paused, or cannot tell what it wants, keeps what it has registered. Where a server
begins anew with an empty memory, keeping it means to put it back, as it stood.
"""

from __future__ import annotations

import threading

from eurekube_provider.core.model import Instance, Key


class ForgottenInstances:
    """Remembers what one registry forgot of syncers; any number of threads may share it.

    Bounded by what stood there: the next reconcile of a syncer that is let in forgets what it does not want.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_owner: dict[str, dict[Key, Instance]] = {}
        self._owners: dict[Key, set[str]] = {}  # thousands of syncers, of which one has it

    def note(self, instance: Instance) -> None:
        """No server holds it any more, and nobody removed it."""
        if instance.owner:
            with self._lock:
                self._by_owner.setdefault(instance.owner, {})[instance.key] = instance
                self._owners.setdefault(instance.key, set()).add(instance.owner)

    def stands(self, instance: Instance) -> None:
        """Something stands there, or was removed: there is nothing to put back."""
        with self._lock:
            for owner in self._owners.pop(instance.key, ()):
                del self._by_owner[owner][instance.key]
                if not self._by_owner[owner]:
                    del self._by_owner[owner]

    def of(self, owner: str) -> list[Instance]:
        """What an owner had."""
        with self._lock:
            return list(self._by_owner.get(owner, {}).values())

    def forget(self, owner: str) -> None:
        """An owner wants nothing of it, but by its plan."""
        with self._lock:
            for key in self._by_owner.pop(owner, ()):
                self._owners[key].discard(owner)
                if not self._owners[key]:
                    del self._owners[key]

    def clear(self) -> None:
        """Let go of everything: another replica leads."""
        with self._lock:
            self._by_owner.clear()
            self._owners.clear()
