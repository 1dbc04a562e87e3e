"""What the program of this run still asks for, and what a resource that is removed has taken over of it.

A move that was taken back has two resources in the state for a while: the engine finds the first one
unchanged, and has the second one removed, which may have registered itself in the first one's place. Either
may be an EurekaInstance or an EurekaApplication, of the same name or, where it adopted, of another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from eurekube_provider.core.identity import are_of_one_stack
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.registrations import registration
from eurekube_provider.registrations.draining import THREADS
from eurekube_provider.registrations.properties import Properties
from eurekube_provider.registrations.registration import Registration
from eurekube_provider.registrations.roster import Key, Roster

Pair = tuple[Registration, Registration]


class Standing:
    """The states that go on in place; any number of threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: list[Properties] = []
        self._places: dict[Key, list[Registration]] = {}
        self._asked_for: list[Properties] = []
        self._wanted: dict[Key, list[Registration]] = {}

    def add(self, state: Properties) -> None:
        """The engine compared it with the program, and it is no replacement."""
        with self._lock:
            self._states.append(state)

    def ask_for(self, properties: Properties) -> None:
        """The program of this run has a resource with these checked properties, and the state has it, too."""
        with self._lock:
            self._asked_for.append(properties)

    def wanted_of(self, leaving: Iterable[Registration]) -> frozenset[Key]:
        """The places of ``leaving`` that a resource of the program has at the same servers.

        Only a state that was edited by hand has a copy of a resource, with the same mark: what it names is
        removed with nobody but the last of them. Refreshes and removals check no properties.
        """
        with self._lock:
            while self._asked_for:
                for each in registrations_of(self._asked_for.pop()):
                    self._wanted.setdefault(each.instance.key, []).append(each)
            return frozenset(
                each.instance.key
                for each in leaving
                for other in self._wanted.get(each.instance.key, ())
                if are_of_one_stack(other.owner, each.owner)
                and not set(other.service_urls).isdisjoint(each.service_urls)
            )

    def give_back(self, leaving: Iterable[Registration], find: Callable[[Registration], Peers]) -> None:
        """Give what goes on its registrations back where ``leaving``, which is to be removed, has them.

        :param find: the servers of a registration.
        :raises RegistryError: Eureka cannot be asked, or did not do it.
        """

        def run(pair: Pair) -> None:
            standing, taker = pair
            registration.give_back(standing, taker, find(standing))

        pairs = [pair for each in leaving for pair in self._taken_by(each)]
        if pairs:
            with ThreadPoolExecutor(min(THREADS, len(pairs))) as executor:
                list(executor.map(run, pairs))

    def _taken_by(self, leaving: Registration) -> list[Pair]:
        """What other creations that go on have in the place of ``leaving``."""
        with self._lock:
            while self._states:
                for each in registrations_of(self._states.pop()):
                    self._places.setdefault(each.instance.key, []).append(each)
            others = self._places.get(leaving.instance.key, ())
            # The same incarnation under another owner is the same resource, renamed by an update since.
            return [(other, leaving) for other in others if other.incarnation != leaving.incarnation]


STANDING = Standing()
"""Of this process."""


def registrations_of(state: Properties) -> list[Registration]:
    """What the state of either kind of resource has in Eureka."""
    if "instances" in state:
        return list(Roster.from_properties(state).registrations.values())
    return [Registration.from_properties(state)]
