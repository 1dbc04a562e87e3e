"""The recorder of a registry's writes, which also renews what is registered, and knows which keys are new."""

from __future__ import annotations

from eurekube_provider.core.model import Instance, InstanceKey, Status
from eurekube_provider.core.plan import Action
from eurekube_provider.eureka import rules
from eurekube_provider.eureka.notes import ChangeOrder, WriteNotes
from eurekube_provider.eureka.record import InstanceRecord
from eurekube_provider.eureka.registry.reachability import Reachability
from eurekube_provider.eureka.registry.renewals import Renewals
from eurekube_provider.eureka.registry.restart_detection import RestartDetection
from eurekube_provider.eureka.rules import Ownership
from eurekube_provider.eureka.table import InstanceTable


class RegistryWriteNotes(WriteNotes):
    """The recorder of each write of an operator to one Eureka."""

    def __init__(
        self,
        table: InstanceTable,
        renewals: Renewals,
        reachability: Reachability,
        restarts: RestartDetection,
        ownership: Ownership,
    ) -> None:
        super().__init__(table)
        self._renewals, self._reachability, self._restarts = renewals, reachability, restarts
        self._ownership = ownership

    def note_registered(self, instance: Instance) -> None:
        """Note a registration, and renew the instance.

        Two syncers that want the same instance at once may each find its key free: the one whose registration
        was overwritten is notified, and reports it.
        """
        known = self.table.store_written_and_return_previous(instance)
        self._renewals.add(instance, just_registered=True)
        if known is not None and known.owner != instance.owner:
            self.table.notify_owners([known.owner])
        was_leaving = known is not None and known.is_leaving
        if instance.is_leaving and instance.is_overridden and not was_leaving:
            self.table.notify_owners([instance.owner])  # an OUT_OF_SERVICE of ours that nobody knew of

    def note_removal_begins(self, instance: Instance) -> None:
        """Stop renewing an instance that is about to be removed."""
        if not self._has_changed_owner(instance):
            self._renewals.remove(instance.key)

    def note_found_under_other_owner(self, instance: Instance) -> None:
        """Note an instance that an uncached read found under another owner.

        If that owner is another syncer of this operator, the instance goes on being renewed for it. That
        syncer is notified unless it knew: a server that was frozen during a hand-over told no one of it, and
        the other servers still show the former owner.
        """
        known, is_ours = self.table.get(instance.key), self._ownership.is_renewed_by_this_operator(instance)
        is_given = is_ours and known is not None and self._ownership.is_owned_by_syncer_of_this_cluster(known)
        former = known.owner if is_given and known is not None and known.owner != instance.owner else None
        self.table.store_read_instance(instance, former_owner=former)
        if self.is_of_other_cluster_of_same_name(instance):
            self._renewals.remove(instance.key)
            return  # its owner has the name of who asked, and knows
        if is_ours and known is not None and known.owner == instance.owner:
            return
        if known is not None or not is_ours:
            self._renewals.remove(instance.key)
        self.table.notify_owners([instance.owner])  # which may have begun to renew it meanwhile

    def note_removed(self, instance: Instance, *, is_confirmed_gone: bool = False) -> None:
        """Note a removal, and have the servers checked for the instance later.

        Nothing is checked if a single server confirmed the removal to a replica that has led for long enough
        to know of every write under way: nothing can bring the instance back there.
        """
        if not self._has_changed_owner(instance):
            is_alone = self.most_servers_at_one_url == 1
            is_certain = is_confirmed_gone and is_alone and self._reachability.knows_all_instances
            self.table.store_removal_and_plan_checks(instance, is_certain=is_certain)

    def is_of_other_cluster_of_same_name(self, instance: Instance) -> bool:
        return self._ownership.is_of_other_cluster_of_same_name(instance)

    def is_superseded_version(self, older: Instance, newer: Instance) -> bool:
        are_ours = all(map(self._ownership.is_owned_under_any_name_of_this_cluster, (older, newer)))
        return are_ours and older.written_at_ms < newer.written_at_ms

    @property
    def most_servers_at_one_url(self) -> int:
        return self._restarts.most_servers_at_one_url

    def is_key_unused(self, key: InstanceKey) -> bool:
        if not self._reachability.knows_all_instances or self._restarts.may_have_lost_memory:
            return False
        return self.table.lost_override(key) is Status.UNKNOWN and self.table.is_key_unused(key)

    def registered_instance_if_certain(self, order: ChangeOrder) -> Instance | None:
        """Return the owner's instance, to be updated without a read, if no server has lost its memory."""
        change = order.change
        record = self._known_record(order) if change.action is Action.UPDATE and not change.adopts else None
        is_sure = record is not None and rules.can_update_without_read(record, self.table.clock())
        return record.instance if record is not None and is_sure else None

    def can_remove_unread(self, order: ChangeOrder) -> bool:
        """Return whether the instance of a terminated pod is removed without a read before: each server
        accepted its last renewal, and has not lost its memory.

        Whoever has taken it over since gets it back: the request that removes it tells what was there.
        """
        if not order.change.is_terminated or self.most_servers_at_one_url > 1:
            return False
        record = self._known_record(order)
        is_sure = record is not None and rules.is_known_for_certain(record)
        return is_sure and self._renewals.is_renewal_current(order.key)

    def _known_record(self, order: ChangeOrder) -> InstanceRecord | None:
        """Return the record of the owner's instance; None without one, where another replica may write, and
        where a server may have lost its memory.
        """
        if self._restarts.may_have_lost_memory or not self._reachability.knows_all_instances:
            return None
        record = self.table.copy_record(order.key)
        held = record.instance
        if held is None or held.owner != order.owner or self.is_of_other_cluster_of_same_name(held):
            return None
        return record

    def _has_changed_owner(self, instance: Instance) -> bool:
        """Return whether another syncer of this operator has registered the instance meanwhile."""
        known = self.table.get(instance.key)
        return known is not None and known.owner != instance.owner
