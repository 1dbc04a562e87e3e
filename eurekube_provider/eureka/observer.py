"""What single and bulk writes have in common: who is told, and what a write must not do."""

from __future__ import annotations

import time
from typing import Protocol

from eurekube_provider.core.errors import OwnershipConflict
from eurekube_provider.core.model import Instance


class Observer(Protocol):
    """Who keeps record of what is there: the view and the renewals, together."""

    def registered(self, instance: Instance) -> None:
        """``instance`` stands in Eureka as it is here."""

    def leaving(self, instance: Instance) -> None:
        """``instance`` is about to be removed: no renewal may be under way or start when this returns."""

    def found(self, instance: Instance) -> None:
        """An uncached read found ``instance`` under another owner: it is not ours any more."""

    def gone(self, instance: Instance) -> None:
        """No server that could be asked holds ``instance``."""


def not_ours(have: Instance, owner: str) -> OwnershipConflict:
    """The error for an instance that belongs to somebody else than ``owner``."""
    whose = f"belongs to {have.owner}" if have.owner else "was not registered by Eurekube"
    return OwnershipConflict(
        f"{have.application} {have.instance_id} {whose} and was left as it is (we are {owner})"
    )


def next_timestamp(have: Instance | None) -> int:
    """A ``lastDirtyTimestamp`` in milliseconds that is newer than the stored one, whatever our clock says."""
    now = int(time.time() * 1000)
    return max(now, (have.last_dirty_timestamp_ms or 0) + 1) if have else now
