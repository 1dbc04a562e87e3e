"""What single and bulk writes have in common: who is told, and what a write must not do."""

from __future__ import annotations

import time
from typing import Protocol

from eurekube_provider.core.errors import OwnershipConflict
from eurekube_provider.core.model import Instance, Key, Status
from eurekube_provider.core.plan import whose
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.rules import newer_than


class Observer(Protocol):
    """Who keeps record of what is there: the table and the renewals, together."""

    def registered(self, instance: Instance) -> None:
        """``instance`` stands in Eureka as it is here."""

    def leaving(self, instance: Instance) -> None:
        """``instance`` is about to be removed: no renewal may be under way or start when this returns."""

    def found(self, instance: Instance) -> None:
        """An uncached read found ``instance`` under another owner: it is not ours any more."""

    def gone(self, instance: Instance) -> None:
        """No server that could be asked holds ``instance``."""

    def is_of_another_cluster(self, instance: Instance) -> bool:
        """Whether another cluster of our name registered ``instance``: it is not ours, whatever its owner."""

    def is_known(self, owner: str) -> bool:
        """Whether ``owner`` has an instance."""

    def holds(self, key: Key) -> bool:
        """Whether something stands under ``key``, by what was told here last."""

    def is_new(self, key: Key) -> bool:
        """Whether nothing stands or stood lately under ``key``; False too where what is known is old."""

    def lost_override(self, key: Key) -> Status:
        """The status that was set over the instance's own when every server forgot it; else UNKNOWN."""


def is_owned(have: Instance, owner: str | None, observer: Observer | None) -> bool:
    """Whether an instance that stands there belongs to ``owner``, and to that of no other cluster."""
    return have.owner == owner and (observer is None or not observer.is_of_another_cluster(have))


def not_ours(have: Instance, owner: str | None) -> OwnershipConflict:
    """The error for an instance that belongs to somebody else than ``owner``."""
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
    """A ``lastDirtyTimestamp`` in milliseconds that loses against whatever the last list could not show yet.

    A server that holds something newer under the same id keeps it when a registration with this one comes.
    Source: AbstractInstanceRegistry.register of Netflix/eureka.
    """
    return int((time.time() - windows.UNLISTED) * 1000)


def next_timestamp(have: Instance | None) -> int:
    """A ``lastDirtyTimestamp`` in milliseconds that is newer than the stored one, whatever our clock says."""
    return newer_than(have, now_ms())


def now_ms() -> int:
    """Unix time in milliseconds, by our clock."""
    return int(time.time() * 1000)
