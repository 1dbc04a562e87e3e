"""The whole registry, listed again and again, at the price of what changed.

Ten thousand instances are eight megabytes of JSON, which take longer to be read than everything else that an
idle operator does. A list only suggests, as ever.
"""

from __future__ import annotations

from eurekube_provider.core.model import Instance
from eurekube_provider.eureka.peer import Peer
from eurekube_provider.eureka.peers import Peers


class Listing:
    """What the servers list. For one thread.

    An instance that is listed again as it was stays the same object, so that whoever holds it from an earlier
    list holds it once.
    """

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._fingerprint = b""
        self._instances: list[Instance] = []

    def read(self) -> list[Instance]:
        """List the registry, from the first server that answers; the list must not be changed.

        :raises RegistryError: no server answered.
        """
        return self._peers.list_by(self._read)

    def _read(self, peer: Peer) -> list[Instance]:
        self._fingerprint, listed = peer.list_unless(self._fingerprint)
        if listed is not None:
            before = {instance.key: instance for instance in self._instances}
            self._instances = [
                old if (old := before.get(instance.key)) == instance and old is not None else instance
                for instance in listed
            ]
        return self._instances
