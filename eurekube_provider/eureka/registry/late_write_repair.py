"""What follows when a server carries out a write of ours late: the instance's owner looks at it again."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from eurekube_provider.core.errors import RegistryError, RegistryUnreachable
from eurekube_provider.core.model import Instance, Key, Status
from eurekube_provider.eureka import rules, windows
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.registry.ownership import Ownership
from eurekube_provider.eureka.registry.renewals import Renewals
from eurekube_provider.eureka.registry.subscription import Subscription
from eurekube_provider.eureka.table import Table

_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class LateWriteRepair:
    """Repairs what late writes did to one Eureka; see :mod:`~eurekube_provider.eureka.rules`."""

    _peers: Peers
    _table: Table
    _renewals: Renewals
    _ownership: Ownership
    _subscription: Subscription

    def __post_init__(self) -> None:
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Wait for nothing more."""
        self._stopped.set()

    def came_late(self, found: Instance) -> None:
        """Tell the owner of an instance that may have come when nobody expected it any more."""
        if not self._ownership.is_ours(found):
            return
        (found,) = self._table.marked([found])
        if self._table.judge(rules.is_just_set, found) or (
            self._table.judge(rules.may_be_told_again, found) and self._is_told_again(found.key)
        ):
            found = rules.as_ours(found)
        known = self._table.get(found.key)
        if found.owner and (known is None or (found.is_leaving and not known.is_leaving)):
            self._table.found(found)
            self._subscription.owner_changed(found.owner)
        else:
            self._bring_status(found)

    def _bring_status(self, found: Instance) -> None:
        """Tell a server again that holds another status than we wrote last, see :func:`.rules.overtaken`.

        It is told what stands elsewhere, with the same timestamp: what is written meanwhile prevails.
        """
        ours = self._renewals.get(found.key)
        if ours is None or found.status is ours.status:
            return
        by_server = self._peers.read_everywhere(*found.key)
        urls = rules.overtaken(by_server.instances, ours)
        for peer in self._peers.peers:
            # Else it was written anew or removed meanwhile, or is about to be.
            if peer.url in urls and self._renewals.get(found.key) is ours:
                try:
                    peer.tell(ours)  # no batch, which servers may refuse where none are used
                except RegistryUnreachable:
                    raise  # looked at again soon
                except RegistryError as error:
                    # The sweeper, which asks, goes on: it has dead instances to remove.
                    _log.warning(
                        "an Eureka server holds another status of an instance, and refuses to be told",
                        extra={"url": peer.url, "instance": ours.instance_id, "error": str(error)},
                    )
                    continue
                _log.warning(
                    "an Eureka server was told the status of an instance again",
                    extra={"url": peer.url, "instance": ours.instance_id, "status": ours.status.value},
                )

    def _is_told_again(self, key: Key) -> bool:
        """Whether an OUT_OF_SERVICE stands at some servers only, and not because a person set it just now."""
        for _ in range(2):
            by_server = self._peers.read_everywhere(*key)
            held = [one.overridden_status for one in by_server.instances.values() if one is not None]
            is_everywhere = all(status is Status.OUT_OF_SERVICE for status in held)
            if by_server.failures or is_everywhere or Status.OUT_OF_SERVICE not in held:
                return False
            if self._stopped.wait(windows.ANOTHERS_STATUS):
                return False
        return True
