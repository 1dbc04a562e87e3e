"""What is known to stand in one Eureka, and renewed there: whoever writes, or reads uncached, tells it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from eurekube_provider.core.model import Instance, Key, Status
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.notes import Notes
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.registry.list_lag import ListLag
from eurekube_provider.eureka.registry.ownership import Ownership
from eurekube_provider.eureka.registry.reachability import Reachability
from eurekube_provider.eureka.registry.renewals import Renewals
from eurekube_provider.eureka.registry.restart_detection import RestartDetection
from eurekube_provider.eureka.registry.subscription import Subscription
from eurekube_provider.eureka.registry.sweeper import Sweeper
from eurekube_provider.eureka.table import Table

_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class KnownInstances(Notes):
    """The instances of one Eureka."""

    _peers: Peers
    table: Table
    renewals: Renewals
    _sweeper: Sweeper
    _reachability: Reachability
    _list_lag: ListLag
    _restarts: RestartDetection
    _ownership: Ownership
    _subscription: Subscription

    def registered(self, instance: Instance) -> None:
        """Take what was written for known, and renew it.

        Of two syncers that want the same at once, each may find the place empty: the one whose registration
        was written over is told, and says so.
        """
        known = self.table.registered(instance)
        self.renewals.add(instance, just_registered=True)
        if known is not None and known.owner != instance.owner:
            self._subscription.owner_changed(known.owner)
        was_leaving = known is not None and known.is_leaving
        if instance.is_leaving and instance.is_overridden and not was_leaving:
            self._subscription.owner_changed(instance.owner)  # an OUT_OF_SERVICE of ours that nobody knew of

    def leaving(self, instance: Instance) -> None:
        """End its renewals, since it is about to be removed."""
        if not self._is_anothers(instance):
            self.renewals.remove(instance.key)

    def found(self, instance: Instance) -> None:
        """Take what an uncached read found under another owner for known.

        What another syncer of this operator holds is renewed for that one, and goes on to be. That one is
        told unless it was known: a server that was frozen while it handed the instance over told nobody of
        that, and the others show it as it was.
        """
        known, is_ours = self.table.get(instance.key), self._ownership.is_ours(instance)
        is_given = is_ours and known is not None and self._ownership.is_syncers(known)
        former = known.owner if is_given and known is not None and known.owner != instance.owner else None
        self.table.found(instance, former=former)
        if self.is_of_another_cluster(instance):
            self.renewals.remove(instance.key)
            return  # its owner has the name of who asked, and knows
        if is_ours and known is not None and known.owner == instance.owner:
            return
        if known is not None or not is_ours:
            self.renewals.remove(instance.key)
        self._subscription.owner_changed(instance.owner)  # which may have begun to renew it meanwhile

    def gone(self, instance: Instance) -> None:
        """Take it for removed, and have it looked for again."""
        if self._is_anothers(instance):
            return
        was_overridden = instance.is_leaving and len(self._peers.peers) > 1
        self._sweeper.removed(*self.table.removed(instance, was_overridden=was_overridden))

    def is_of_another_cluster(self, instance: Instance) -> bool:
        """Whether another cluster of our name registered an instance."""
        return self._ownership.is_of_another_cluster(instance)

    @property
    def servers_behind(self) -> int:
        """How many servers answer at one URL."""
        return self._restarts.servers_behind

    def is_new(self, key: Key) -> bool:
        """Whether nothing stands or stood lately under a key; False too where what is known is old."""
        if self._reachability.failure or not self._reachability.was_read:
            return False
        if self._list_lag.lasts or self._restarts.lost_memory:
            return False
        return self.table.lost_override(key) is Status.UNKNOWN and self.table.is_new(key)

    def renew_no_more(self, instances: Sequence[Instance]) -> None:
        """End the renewals of what somebody else has taken over, or it would never lapse."""
        for instance in instances:
            if instance.key not in self.renewals or self._ownership.is_ours(instance):
                continue
            _log.info(
                "renewing no more what somebody else has taken over",
                extra={"instance": instance.instance_id, "owner": instance.owner or ""},
            )
            ours = self.renewals.remove(instance.key)
            if ours is not None:
                self._subscription.owner_changed(ours.owner)

    def vanished(self, key: Key) -> None:
        """Take it for gone, since no server holds it.

        If they forgot it, what a person had set over its status comes back with it.
        """
        self.table.gone(key, is_forgotten=self._restarts.lost_memory)

    @property
    def may_be_forgotten(self) -> bool:
        """Whether what is missing was perhaps not removed: a server was restarted, or nobody could renew."""
        return self._restarts.lost_memory or self._reachability.failed_within(windows.MEMORY_LOST)

    def _is_anothers(self, instance: Instance) -> bool:
        """Whether another syncer of this operator has registered it meanwhile."""
        known = self.table.get(instance.key)
        return known is not None and known.owner != instance.owner

    def unanswered(self, sent: Instance) -> None:
        """Look for this write of ours, to which a server gave no answer: it may carry it out late."""
        self.table.unanswered(sent)
        self._sweeper.may_come(sent)

    def overriding(self, instance: Instance) -> None:
        """Look for a status that is set or taken off: a server may tell another one of it again later."""
        if len(self._peers.peers) > 1:
            self.table.overriding(instance.key)
            self._sweeper.may_come(instance)
