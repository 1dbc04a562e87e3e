"""Kinds of objects that are watched only while a syncer needs them: nodes, and the labels of pods."""

from __future__ import annotations

import threading
from collections.abc import Callable

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.liveness import Liveness
from eurekube_provider.kube.reflector import Reflector
from eurekube_provider.operator.index import SyncerKey

Scope = str | None
"""A namespace, None for the whole cluster."""

MakeReflector = Callable[[Scope, Callable[[], None]], Reflector]
"""Makes the reflector of a scope, which calls the second argument when its first list is complete."""


class OnDemand:
    """Reflectors of one kind, each of which runs as long as somebody needs it.

    :param concerned: called with a syncer whose objects can be read from now on.
    """

    def __init__(self, make: MakeReflector, concerned: Callable[[SyncerKey], None]) -> None:
        self._make = make
        self._concerned = concerned
        self._lock = threading.Lock()
        self._users: dict[Scope, set[SyncerKey]] = {}
        self._reflectors: dict[Scope, Reflector] = {}
        self._stopped = False

    def needed(self, user: SyncerKey, scopes: set[Scope]) -> None:
        """``user`` needs the objects of these scopes and of no others; returns at once."""
        with self._lock:
            for scope in [scope for scope, users in self._users.items() if user in users]:
                if scope in scopes:
                    continue
                self._users[scope].discard(user)
                if not self._users[scope]:
                    del self._users[scope]
                    self._reflectors.pop(scope).stop()
            for scope in scopes:
                self._users.setdefault(scope, set()).add(user)
                if scope not in self._reflectors and not self._stopped:
                    reflector = self._make(scope, lambda scope=scope: self._synced(scope))  # type: ignore[misc]
                    self._reflectors[scope] = reflector
                    reflector.start()

    def users(self, scope: Scope) -> set[SyncerKey]:
        """Who needs the objects of a scope."""
        with self._lock:
            return set(self._users.get(scope, ()))

    def reflector(self, scope: Scope) -> Reflector | None:
        """The objects of a scope once they have been read, None before."""
        with self._lock:
            found = self._reflectors.get(scope)
        return found if found is not None and found.is_synced else None

    def hurry(self) -> None:
        """See :meth:`Reflector.hurry`."""
        for one in self._all():
            one.hurry()

    @property
    def is_current(self) -> bool:
        """See :attr:`Sources.is_current`."""
        return all(one.may_be_led_by for one in self._all() if one.is_synced)

    def liveness(self) -> list[Liveness]:
        """The threads of all."""
        return [loop for one in self._all() for loop in one.liveness()]

    def _all(self) -> list[Reflector]:
        with self._lock:
            return list(self._reflectors.values())

    @property
    def failure(self) -> KubernetesError | None:
        """Why one of the kinds cannot be read; None while all can."""
        return next((one.failure for one in self._all() if one.failure), None)

    def stop(self) -> None:
        """Watch nothing any more."""
        with self._lock:
            self._stopped = True
            for reflector in self._reflectors.values():
                reflector.stop()

    def _synced(self, scope: Scope) -> None:
        for user in self.users(scope):
            self._concerned(user)
