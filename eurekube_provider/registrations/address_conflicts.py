"""Who is registered already at the address of what is to be registered: callers would find it twice.

A list suggests who may be, and is half a minute old; the instance itself is then read past Eureka's caches.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from eurekube_provider.core.errors import RegistryError
from eurekube_provider.core.identity import are_of_one_stack
from eurekube_provider.core.model import Instance
from eurekube_provider.core.plan import Policy, Refusal, plan
from eurekube_provider.eureka.peers import Peers

LISTED_FOR_SECONDS = 15.0
"""How long one list serves: a program may register a thousand instances, one by one."""

Address = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class _Listed:
    at: float
    by_address: dict[Address, list[Instance]]

    def all(self) -> Iterator[Instance]:
        return itertools.chain.from_iterable(self.by_address.values())


class Neighbours:
    """What Eureka lists, by address; any number of threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lists: WeakKeyDictionary[Peers, _Listed] = WeakKeyDictionary()

    def refusal(self, wanted: Instance, owner: str, peers: Peers) -> Refusal | None:
        """Who stands at the address of ``wanted`` and is of another stack, a cluster, or registered itself.

        Nobody where Eureka gives no list: it may hold nothing yet.

        :raises RegistryError: who may stand there cannot be read.
        """
        for listed in self._at(wanted, peers):
            if listed.key == wanted.key or are_of_one_stack(listed.owner, owner):
                continue
            held = peers.read(*listed.key)
            if held is None or are_of_one_stack(held.owner, owner):
                continue
            refusals = plan([wanted], [held], owner, Policy.UPSERT_ONLY).refusals
            if refusals:
                return refusals[0]
        return None

    def of(self, owner: str, application: str, peers: Peers) -> list[Instance]:
        """What is listed of an owner in an application; nothing where Eureka gives no list."""
        listed = self._listed(peers).all()
        return [each for each in listed if each.application == application and each.owner == owner]

    def _at(self, wanted: Instance, peers: Peers) -> list[Instance]:
        return self._listed(peers).by_address.get(_address(wanted), [])

    def _listed(self, peers: Peers) -> _Listed:
        with self._lock:
            listed = self._lists.get(peers)
            if listed is None or time.monotonic() - listed.at > LISTED_FOR_SECONDS:
                listed = self._lists[peers] = _Listed(time.monotonic(), _by_address(peers))
        return listed


NEIGHBOURS = Neighbours()
"""Of this process."""


def _by_address(peers: Peers) -> dict[Address, list[Instance]]:
    found: dict[Address, list[Instance]] = {}
    try:
        listed = peers.list_instances()
    except RegistryError:
        return found
    for each in listed:
        found.setdefault(_address(each), []).append(each)
    return found


def _address(instance: Instance) -> Address:
    return instance.application, instance.ip_address, instance.port.number
