"""What servers lack that another one holds: they are told it here once they have lacked it for long.

A plain write goes to one server, which tells the others within a second. Where they cannot reach each other
for long, or do not name each other, the far side hears of no registration, while a removal is sent to each
server: its callers would lose every pod that is replaced.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from eurekube_provider.core.errors import LeadershipLost, RegistryError
from eurekube_provider.core.model import Instance, Key
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.accepted_renewals import is_of_stack
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.runtime.clock import elapsed_seconds

_log = logging.getLogger(__name__)

MOST_REMEMBERED = 10_000


class FarSide:
    """The servers of one Eureka that others do not reach; any number of threads may share it.

    :param may_write: asked before each change.
    """

    def __init__(
        self,
        may_write: Callable[[], bool],
        clock: Callable[[], float] = elapsed_seconds,
    ) -> None:
        self._may_write = may_write
        self._clock = clock
        self._lock = threading.Lock()
        self._since: OrderedDict[tuple[str, Key], float] = OrderedDict()  # the first time, the oldest first

    def holds(self, peer: Peer, key: Key) -> None:
        """A server holds an instance."""
        with self._lock:
            self._since.pop((peer.url, key), None)

    def lack(self, peers: Iterable[Peer], instance: Instance, holders: Sequence[Peer]) -> None:
        """Tell servers of an instance that others hold, if any, once they lacked it for long. Raises nothing.

        Of a stack's registration nobody knows whether it was removed there. What is out of service by an
        override, at either server, nobody calls: at the far side nobody would lift it again.
        """
        for peer in peers if holders else ():
            if is_of_stack(instance) or not self._is_to_be_told(peer, instance.key) or not self._may_write():
                continue
            try:
                held, before = holders[0].read(*instance.key), peer.read(*instance.key)
                if held is None or held.owner != instance.owner or held.is_overridden:
                    continue
                if before is not None and before.is_overridden:
                    continue
                peer.register(held)
            except (RegistryError, LeadershipLost):
                continue  # its next turn finds the same
            self.holds(peer, instance.key)
            _log.warning(
                "an Eureka server was told what no other one has told it",
                extra={"url": peer.url, "instance": instance.instance_id},
            )

    def _is_to_be_told(self, peer: Peer, key: Key) -> bool:
        now = self._clock()
        with self._lock:
            since = self._since.setdefault((peer.url, key), now)
            if len(self._since) > MOST_REMEMBERED:
                self._since.popitem(last=False)
        return now - since >= windows.LACKING
