"""Notes of each write: in the table, and by a registry also for who renews and who reads lists."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from eurekube_provider.core.errors import OwnershipConflict
from eurekube_provider.core.model import Instance, Key
from eurekube_provider.core.plan import Action, Change, whose
from eurekube_provider.core.self_registered import is_unrenewed
from eurekube_provider.eureka import rules, windows
from eurekube_provider.eureka.table import Table


@dataclass(frozen=True, slots=True)
class Order:
    """A change, and on whose behalf it is made."""

    change: Change
    owner: str

    @property
    def key(self) -> Key:
        """The key of the instance."""
        return self.change.instance.key

    def may_have(self, have: Instance) -> bool:
        """Return whether the owner has it, or still the one from whom the plan takes it over."""
        change, actual = self.change, self.change.actual
        if have.owner == self.owner:
            return True
        if not change.adopts or actual is None or have.owner != actual.owner:
            return False
        return change.action is not Action.DEREGISTER or is_unrenewed(have, actual)


class Notes:
    """The notes of a stack's run or of a command: they renew nothing, and no list tells them what is new.

    A registry, which renews and reads lists, adds that.

    :param sent: called where a server, by its URL, answered to so many registrations or removals more.
    """

    def __init__(self, table: Table, sent: Callable[[str, int], None] = lambda _, __: None) -> None:
        self.table, self.sent = table, sent

    def registered(self, instance: Instance) -> None:
        """``instance`` stands in Eureka as it is here."""
        self.table.registered(instance)

    def leaving(self, instance: Instance) -> None:
        """``instance`` is about to be removed: no renewal may be under way or start when this returns."""

    def found(self, instance: Instance) -> None:
        """An uncached read found ``instance`` under another owner: it is not ours any more."""
        self.table.found(instance)

    def gone(self, instance: Instance, *, is_read_back: bool = False) -> None:  # noqa: ARG002 - a registry asks
        """``instance`` was removed from each server that could be asked, or none holds it.

        :param is_read_back: True if a server that is alone said afterwards that it holds it no more.
        """
        self.table.removed(instance)

    def is_of_another_cluster(self, instance: Instance) -> bool:  # noqa: ARG002 - a registry knows
        """Return whether another cluster of our name registered it: it is not ours, whatever its owner."""
        return False

    @property
    def servers_behind(self) -> int:
        """How many servers may answer at one URL: a run does not know, and takes it for more than one."""
        return 2

    def is_known(self, owner: str) -> bool:
        """Return whether ``owner`` has an instance."""
        return self.table.count(owner) > 0

    def is_new(self, key: Key) -> bool:  # noqa: ARG002 - who reads no list knows of none
        """Return whether nothing stands or stood lately under a key; False too where what is known is old."""
        return False

    def known_under(self, order: Order) -> Instance | None:  # noqa: ARG002 - who renews nothing is never sure
        """Return what an update is written over without a read before, see :func:`.rules.may_give_way`."""
        return None

    def wanted_over(self, want: Instance, have: Instance | None) -> Instance:
        """Return what was planned for something else than what stands there, as it is wanted over that."""
        return rules.wanted_over(want, have, self.table.lost_override(want.key))

    def require_ours(self, have: Instance | None, order: Order) -> None:
        """Note whose it is that somebody else has.

        :raises OwnershipConflict: it is another's.
        """
        if have is not None and (not order.may_have(have) or self.is_of_another_cluster(have)):
            self.found(have)
            raise not_ours(have, order.owner)


def not_ours(have: Instance, owner: str | None) -> OwnershipConflict:
    """Return the error for an instance that belongs to somebody else than ``owner``."""
    if have.owner == owner:
        return OwnershipConflict(
            f"{have.application} {have.instance_id} was registered by another cluster of this name and was"
            " left as it is: set another --cluster-name for one of them; or, if this cluster was rebuilt and"
            " the other is gone, --take-over-cluster true"
        )
    meant = f"we are {owner}" if owner else "it had no owner"
    return OwnershipConflict(
        f"{have.application} {have.instance_id} {whose(have)} and was left as it is ({meant})"
    )


def yielding_timestamp() -> int:
    """Return a ``lastDirtyTimestamp`` in milliseconds that loses against whatever no list may show yet.

    A server that holds something newer under the same id keeps it when a registration with this one comes.
    Source: AbstractInstanceRegistry.register of Netflix/eureka.
    """
    return int((time.time() - windows.UNLISTED) * 1000)


def next_timestamp(have: Instance | None) -> int:
    """Return a ``lastDirtyTimestamp`` in milliseconds newer than the stored one, whatever our clock says."""
    return rules.newer_than(have, now_ms())


def now_ms() -> int:
    """Return Unix time in milliseconds, by our clock."""
    return int(time.time() * 1000)
