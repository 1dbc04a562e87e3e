"""What follows when a renewal finds its instance missing, or otherwise than it was registered."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from eurekube_provider.core.errors import RegistryError
from eurekube_provider.core.model import Instance, Key
from eurekube_provider.eureka.batches import bring_level, read_many
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol import batch
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.registry.known_instances import KnownInstances
from eurekube_provider.eureka.registry.ownership import Ownership
from eurekube_provider.eureka.registry.restart_detection import RestartDetection
from eurekube_provider.eureka.registry.stack_renewals import StackRenewals
from eurekube_provider.eureka.registry.subscription import Subscription
from eurekube_provider.eureka.rules import is_of_stack
from eurekube_provider.eureka.uncached_reads import read_each

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False, repr=False)
class Recovery:
    """Looks after what renewals find out.

    A :class:`~eurekube_provider.eureka.registry.lease_table.HeartbeatListener`.
    """

    _peers: Peers
    _known: KnownInstances
    _restarts: RestartDetection
    _stack_renewals: StackRenewals
    _ownership: Ownership
    _subscription: Subscription

    def missing(self, instances: Sequence[Instance], peer: Peer | None) -> None:
        """Bring level a server that lacks these; where all do, tell the owners, and restore stacks'."""
        lost = instances
        if peer is not None:
            removed = self._removed_from(peer, instances)
            lost = self._level([one for one in instances if one.key not in removed], peer)
            lost += [one for one in instances if one.key in removed]
        if not lost:
            return
        ours = [instance for instance in lost if not is_of_stack(instance)]
        if ours and not self._restarts.lost_memory:
            self._restarts.notice()
        for instance in ours:
            self._known.renewals.remove(instance.key)
            if self._known.may_be_forgotten:
                self._known.table.forgot(instance)
            self._known.vanished(instance.key)
        if ours:
            _log.warning("instances of ours are missing in Eureka", extra={"count": len(ours)})
        self._subscription.owners_changed(instance.owner for instance in ours)
        for instance in lost:
            if is_of_stack(instance):
                self._stack_renewals.lost(instance)

    def newer(self, stored: Instance) -> None:
        """Take what somebody else wrote for known, and tell whoever owned it."""
        known = self._known.table.get(stored.key)
        self._known.table.found(stored)
        if self._ownership.is_ours(stored) and (known is None or known.owner == stored.owner):
            self._known.renewals.add(stored, just_registered=True)
        else:
            self._known.renewals.remove(stored.key)
        self._subscription.owners_changed((stored.owner, known.owner if known else None))

    def answers_again(self, peer: Peer) -> None:
        """Ask at once whether the server was restarted."""
        _log.warning("Eureka server answers again", extra={"url": peer.url})
        self._restarts.notice()

    def _removed_from(self, peer: Peer, instances: Sequence[Instance]) -> set[Key]:
        """What of stacks' registrations was removed there, and is not to be brought back from the others."""
        held_lately = [one.key for one in instances if self._peers.table.accepted_lately(peer.url, one)]
        if not held_lately or peer.url not in self._restarts.notice():
            return set()
        if self._restarts.lost_memory and not self._restarts.has_memory(peer.url):
            return set()
        try:
            # It may hold older contents, which get a 404 as well.
            held = read_each(peer, held_lately)
        except RegistryError:
            return set(held_lately)  # found out as soon as it answers
        return {key for key, found in held.items() if found is None}

    def _level(self, instances: Sequence[Instance], peer: Peer) -> list[Instance]:
        """Register on ``peer`` what the other servers hold; returns what none of them does."""
        found: dict[Key, Instance] = {}
        for other in self._peers.in_order():
            left = [instance for instance in instances if instance.key not in found]
            if other is peer or not left:
                continue
            try:
                held = read_many(other, left)
            except RegistryError:
                continue
            found.update({key: instance for key, instance in held.items() if instance is not None})
        if found and self._peers.may_write():
            # Else it is told with the next renewals: they go on, and find the same.
            for chunk in batch.chunks(found.values()):
                # Of thousands, some may have been removed since they were read.
                bring_level(peer, [one for one in chunk if one.key in self._known.renewals])
            _log.warning("an Eureka server was brought level", extra={"url": peer.url, "count": len(found)})
        return [instance for instance in instances if instance.key not in found]
