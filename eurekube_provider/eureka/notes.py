"""Recorders of writes: into the table, and in an operator's registry also into its renewals."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from eurekube_provider.core.errors import OwnershipConflict
from eurekube_provider.core.model import Instance, InstanceKey, newest
from eurekube_provider.core.plan import Action, Change, describe_owner
from eurekube_provider.core.self_registered import is_unchanged_and_unrenewed
from eurekube_provider.eureka import rules, windows
from eurekube_provider.eureka.table import InstanceTable


@dataclass(frozen=True, slots=True)
class ChangeOrder:
    """A change, and the owner on whose behalf it is made."""

    change: Change
    owner: str

    @property
    def key(self) -> InstanceKey:
        """The key of the instance."""
        return self.change.instance.key

    def may_change(self, have: Instance) -> bool:
        """Return whether the order may change an instance: its owner's, or still that of the owner from whom
        the plan takes it over, which is removed only if it is unchanged and was not renewed since.
        """
        change, actual = self.change, self.change.actual
        if have.owner == self.owner:
            return True
        if not change.adopts or actual is None or have.owner != actual.owner:
            return False
        return change.action is not Action.DEREGISTER or is_unchanged_and_unrenewed(have, actual)


class WriteNotes:
    """The recorder of a stack's run or a command, which renews nothing and reads no lists.

    :class:`.RegistryWriteNotes` is the recorder of an operator's registry, which does both.

    :param sent: called with a server's URL and the number of changes that it has just answered.
    """

    def __init__(self, table: InstanceTable, sent: Callable[[str, int], None] = lambda _, __: None) -> None:
        self.table, self.sent = table, sent

    def note_registered(self, instance: Instance) -> None:
        """Note that Eureka holds ``instance`` as given."""
        self.table.store_written_and_return_previous(instance)

    def note_removal_begins(self, instance: Instance) -> None:
        """Note that ``instance`` is about to be removed; on return no renewal is under way or may start."""

    def note_found_under_other_owner(self, instance: Instance) -> None:
        """Note that an uncached read found ``instance`` under another owner."""
        self.table.store_read_instance(instance)

    def note_removed(self, instance: Instance, *, is_confirmed_gone: bool = False) -> None:  # noqa: ARG002 - a registry asks
        """Note that ``instance`` was removed from each server that could be asked, or that none holds it.

        :param is_confirmed_gone: True if the only server confirmed afterwards that it is gone.
        """
        self.table.store_removal_and_plan_checks(instance)

    def is_of_other_cluster_of_same_name(self, instance: Instance) -> bool:  # noqa: ARG002 - a registry knows
        """Return whether another cluster with this cluster's name registered the instance."""
        return False

    def is_superseded_version(self, older: Instance, newer: Instance) -> bool:  # noqa: ARG002 - a registry knows
        """Return whether one server's version of an instance is what another syncer of this operator had
        registered before it was handed over, of which the server does not know.
        """
        return False

    @property
    def most_servers_at_one_url(self) -> int:
        """The most servers that may answer at one URL: a run does not know it, and assumes several."""
        return 2

    def has_instances(self, owner: str) -> bool:
        """Return whether ``owner`` has an instance."""
        return self.table.count_instances(owner) > 0

    def is_key_unused(self, key: InstanceKey) -> bool:  # noqa: ARG002 - who reads no list knows of none
        """Return whether a key has no instance, and had none lately; False where that is not certain."""
        return False

    def registered_instance_if_certain(self, order: ChangeOrder) -> Instance | None:  # noqa: ARG002 - who renews nothing is never sure
        """Return the instance over which an update is written without a read before, see
        :func:`.rules.can_update_without_read`: None here, since only a process that renews is ever certain.
        """
        return None

    def can_remove_unread(self, order: ChangeOrder) -> bool:  # noqa: ARG002 - who renews nothing is never sure
        """Return whether an instance is removed without a read before: never here, as in
        :meth:`registered_instance_if_certain`.
        """
        return False

    def adapt_to_registered(self, want: Instance, have: Instance | None) -> Instance:
        """Return the wanted instance adapted to the registered one, which may not be the planned one."""
        return rules.adapt_to_registered(want, have, self.table.lost_override(want.key))

    def require_ownership(self, have: Instance | None, order: ChangeOrder) -> None:
        """Check that the order may change the instance, and note an instance of another owner.

        :raises OwnershipConflict: the instance belongs to another owner.
        """
        if have is not None and (not order.may_change(have) or self.is_of_other_cluster_of_same_name(have)):
            self.note_found_under_other_owner(have)
            raise ownership_conflict(have, order.owner)

    def require_removable(self, seen: Iterable[Instance | None], order: ChangeOrder) -> None:
        """Check that a removal may take what each server holds, and note an instance of another owner.

        :raises OwnershipConflict: an instance is another owner's, who did not give it away before.
        """
        versions = [one for one in seen if one is not None]
        have = newest(versions)
        if have is None:
            return
        former = self.table.copy_record(order.key).former_owners if len(versions) > 1 else frozenset()
        for held in versions:
            if held is have or not (held.owner in former or self.is_superseded_version(held, have)):
                self.require_ownership(held, order)


def ownership_conflict(have: Instance, owner: str | None) -> OwnershipConflict:
    """Return the error for an instance that belongs to another owner than ``owner``."""
    if have.owner == owner:
        return OwnershipConflict(
            f"{have.application} {have.instance_id} was registered by another cluster of this name and was"
            " left as it is: set another --cluster-name for one of them; or, if this cluster was rebuilt and"
            " the other is gone, --take-over-cluster true"
        )
    meant = f"we are {owner}" if owner else "it had no owner"
    return OwnershipConflict(
        f"{have.application} {have.instance_id} {describe_owner(have)} and was left as it is ({meant})"
    )


def timestamp_ms_giving_way(age_seconds: float = windows.LONGEST_LIST_LAG_SECONDS) -> int:
    """Return a ``lastDirtyTimestamp`` in milliseconds that is older than every registration of less than
    ``age_seconds``; by default those that lists may not show yet.

    A server that holds a newer instance under the same id keeps it when a registration with this timestamp
    comes, also from another server. Source: AbstractInstanceRegistry.register of Netflix/eureka.
    """
    return int((time.time() - age_seconds) * 1000)


def next_timestamp_ms(have: Instance | None) -> int:
    """Return a ``lastDirtyTimestamp`` in ms that is newer than the stored one, whatever the clock says."""
    return rules.newer_timestamp_ms(have, unix_now_ms())


def unix_now_ms() -> int:
    """Return the Unix time in milliseconds, by this machine's clock."""
    return int(time.time() * 1000)
