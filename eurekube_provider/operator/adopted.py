"""Renews what stacks registered and asked this operator to renew.

A stack's program does not run all the time: what a server forgot is restored here, and what a person removed
is left alone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable

from eurekube_provider.core.errors import LeadershipLost, RegistryError
from eurekube_provider.core.identity import StackOwner, parse_owner
from eurekube_provider.core.model import Instance
from eurekube_provider.eureka.apply import write
from eurekube_provider.eureka.peers import Peers, Sighting
from eurekube_provider.eureka.renewals import Renewals
from eurekube_provider.eureka.view import View
from eurekube_provider.operator.restarts import MEMORY_SECONDS, Restarts

_log = logging.getLogger(__name__)

Key = tuple[str, str]


def is_of_stack(instance: Instance) -> bool:
    """Whether a stack owns it."""
    return isinstance(parse_owner(instance.owner), StackOwner)


class Adopted:
    """The stacks' registrations at one Eureka.

    :param operator_name: what their ``eurekube.renewer`` says.
    :param registered: told of what was restored.
    """

    def __init__(
        self,
        peers: Peers,
        view: View,
        renewals: Renewals,
        restarts: Restarts,
        operator_name: str,
        registered: Callable[[Instance], None],
    ) -> None:
        self._peers = peers
        self._view = view
        self._renewals = renewals
        self._restarts = restarts
        self._operator_name = operator_name
        self._registered = registered
        self._lock = threading.Lock()
        self._dropped: dict[Key, float] = {}
        self._forgotten: set[Key] = set()

    def stand_by(self) -> None:
        """Another replica renews."""
        self._forgotten.clear()

    def is_ours(self, instance: Instance) -> bool:
        """Whether a stack owns it and asks this operator to renew it."""
        return instance.renewer == self._operator_name and is_of_stack(instance)

    def take(self, listed: Iterable[Instance]) -> None:
        """Renew what a list of the whole registry shows."""
        if self._renewals.stands_by:
            return
        now = time.monotonic()
        with self._lock:
            self._dropped = {key: at for key, at in self._dropped.items() if now - at < MEMORY_SECONDS}
            dropped = set(self._dropped)
        for instance in listed:
            if not self.is_ours(instance):
                continue
            if instance.key in dropped:
                # Still in the list because that is old, or registered anew since.
                if self._peers.read(*instance.key) is None:
                    continue
                with self._lock:
                    self._dropped.pop(instance.key, None)
            if instance.key not in self._renewals:
                _log.info("renewing for a stack", extra={**_named(instance), "owner": instance.owner})
            self._renewals.add(instance, just_registered=False)

    def lost(self, instance: Instance) -> None:
        """No server holds it: restored if one forgot it, else dropped."""
        self._renewals.remove(instance.key)
        self._view.gone(instance.key)
        try:
            self._restarts.notice_all()
            sighting = self._sight(instance.key)
            if sighting.found is not None or self._restarts.lost_memory or instance.key in self._forgotten:
                self._forgotten.add(instance.key)
                self._registered(write(self._peers, sighting.found or instance, None))
                self._forgotten.discard(instance.key)
                _log.warning("restored a stack's registration that a server had lost", extra=_named(instance))
                return
        except RegistryError as error:
            _log.warning(
                "a stack's registration could not be looked at",
                extra={**_named(instance), "error": str(error)},
            )
            self._renewals.add(instance, just_registered=False)
            return
        except LeadershipLost:
            # The next renewal finds it missing again: it is restored as soon as this replica may write.
            self._renewals.add(instance, just_registered=True)
            return
        _log.warning(
            "a stack's registration was removed by somebody and is renewed no more", extra=_named(instance)
        )
        with self._lock:
            self._dropped[instance.key] = time.monotonic()

    def _sight(self, key: Key) -> Sighting:
        """Look for it on every server; behind a load balancer so often that it has sent us to each."""
        sighting = self._peers.read_everywhere(*key)
        servers = self._restarts.servers_behind
        for _ in range(servers if servers > 1 else 0):
            if sighting.found is not None or self._restarts.lost_memory:
                break
            sighting = self._peers.read_everywhere(*key)
        return sighting


def _named(instance: Instance) -> dict[str, str]:
    return {"application": instance.application, "instance": instance.instance_id}
