"""The notes of a registry, which also renews registered instances and knows which keys are new."""

from __future__ import annotations

from eurekube_provider.core.model import Instance, Key, Status
from eurekube_provider.core.plan import Action
from eurekube_provider.eureka import rules
from eurekube_provider.eureka.notes import Notes, Order
from eurekube_provider.eureka.registry.reachability import Reachability
from eurekube_provider.eureka.registry.renewals import Renewals
from eurekube_provider.eureka.registry.restart_detection import RestartDetection
from eurekube_provider.eureka.rules import Ownership
from eurekube_provider.eureka.table import Table


class KnownInstances(Notes):
    """The notes of each write to one Eureka."""

    def __init__(
        self,
        table: Table,
        renewals: Renewals,
        reachability: Reachability,
        restarts: RestartDetection,
        ownership: Ownership,
    ) -> None:
        super().__init__(table)
        self._renewals, self._reachability, self._restarts = renewals, reachability, restarts
        self._ownership = ownership

    def registered(self, instance: Instance) -> None:
        """Note a registration, and renew the instance.

        Two syncers that want the same instance at once may each find its key free: the one whose registration
        was overwritten is notified, and reports it.
        """
        known = self.table.registered(instance)
        self._renewals.add(instance, just_registered=True)
        if known is not None and known.owner != instance.owner:
            self.table.tell([known.owner])
        was_leaving = known is not None and known.is_leaving
        if instance.is_leaving and instance.is_overridden and not was_leaving:
            self.table.tell([instance.owner])  # an OUT_OF_SERVICE of ours that nobody knew of

    def leaving(self, instance: Instance) -> None:
        """Stop renewing an instance that is about to be removed."""
        if not self._is_anothers(instance):
            self._renewals.remove(instance.key)

    def found(self, instance: Instance) -> None:
        """Note an instance that an uncached read found under another owner.

        If that owner is another syncer of this operator, the instance goes on being renewed for it. That
        syncer is notified unless it knew: a server that was frozen during a hand-over told no one of it, and
        the other servers still show the former owner.
        """
        known, is_ours = self.table.get(instance.key), self._ownership.is_ours(instance)
        is_given = is_ours and known is not None and self._ownership.is_syncers(known)
        former = known.owner if is_given and known is not None and known.owner != instance.owner else None
        self.table.found(instance, former=former)
        if self.is_of_another_cluster(instance):
            self._renewals.remove(instance.key)
            return  # its owner has the name of who asked, and knows
        if is_ours and known is not None and known.owner == instance.owner:
            return
        if known is not None or not is_ours:
            self._renewals.remove(instance.key)
        self.table.tell([instance.owner])  # which may have begun to renew it meanwhile

    def gone(self, instance: Instance, *, is_read_back: bool = False) -> None:
        """Note a removal, and have the servers checked for the instance later.

        Nothing is checked if a single server confirmed the removal to a replica that has led for long enough
        to know of every write under way: nothing can bring the instance back there.
        """
        if not self._is_anothers(instance):
            is_certain = is_read_back and self.servers_behind == 1 and self._reachability.is_sure
            self.table.removed(instance, is_certain=is_certain)

    def is_of_another_cluster(self, instance: Instance) -> bool:
        """Return whether another cluster with this cluster's name registered an instance."""
        return self._ownership.is_of_another_cluster(instance)

    @property
    def servers_behind(self) -> int:
        """The number of servers that answer at one URL."""
        return self._restarts.servers_behind

    def is_new(self, key: Key) -> bool:
        """Return whether a key has no instance, and had none lately; False also where the knowledge is
        old.
        """
        if not self._reachability.is_sure or self._restarts.lost_memory:
            return False
        return self.table.lost_override(key) is Status.UNKNOWN and self.table.is_new(key)

    def known_under(self, order: Order) -> Instance | None:
        """Return the instance over which an update is written without a read: the owner's, if no server
        has lost its memory.
        """
        change = order.change
        if change.action is not Action.UPDATE or change.adopts or self._restarts.lost_memory:
            return None
        record = self.table.record(order.key)
        held = record.held
        if held is None or held.owner != order.owner or self.is_of_another_cluster(held):
            return None
        is_sure = self._reachability.is_sure and rules.may_give_way(record, self.table.clock())
        return held if is_sure else None

    def _is_anothers(self, instance: Instance) -> bool:
        """Return whether another syncer of this operator has registered the instance meanwhile."""
        known = self.table.get(instance.key)
        return known is not None and known.owner != instance.owner
