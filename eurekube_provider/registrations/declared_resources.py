"""The wishes of this run's program, and the places that a removed resource has given to them.

A move that was taken back has two resources in the state for a while: the engine finds the first one
unchanged, and has the second one removed, which may have registered itself in the first one's place. Either
may be a EurekaInstance or a EurekaApplication, of the same name or, where it adopted, of another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from eurekube_provider.core.identity import are_of_one_stack
from eurekube_provider.core.model import Key
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.registrations.called_addresses import ProgramAddresses
from eurekube_provider.registrations.desired import DesiredState
from eurekube_provider.registrations.draining import THREADS
from eurekube_provider.registrations.lifecycle import update
from eurekube_provider.registrations.properties import Properties


class DeclaredResources:
    """The resources of this run that go on; any number of threads may share it.

    :ivar addresses: those of all that the program asks for.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: list[Properties] = []
        self._places: dict[Key, list[DesiredState]] = {}
        self._asked_for: list[Properties] = []
        self._checked: set[tuple[str, bool]] = set()
        self._wanted: dict[Key, list[DesiredState]] = {}
        self.addresses = ProgramAddresses()

    def add(self, state: Properties) -> None:
        """The engine compared it with the program, and it is no replacement."""
        with self._lock:
            self._states.append(state)

    def checked(self, properties: Properties) -> None:
        """The program of this run has a resource with these checked properties."""
        with self._lock:
            self._checked.add(_name_of(properties))

    def is_checked(self, properties: Properties) -> bool:
        """Return whether the program of this run has the resource, so far.

        The engine calls for a difference twice, with arguments of one form: to compare what a refresh found
        with the state, before it checks the program's properties, and to compare the state with those.
        """
        with self._lock:
            return _name_of(properties) in self._checked

    def ask_for(self, properties: Properties) -> None:
        """The program of this run has a resource with these checked properties, and the state has it, too."""
        with self._lock:
            self._asked_for.append(properties)

    def wanted_of(self, leaving: DesiredState) -> frozenset[Key]:
        """The places of ``leaving`` that a resource of the program has at the same servers.

        Only a state that was edited by hand has a copy of a resource, with the same mark: what it names is
        removed with nobody but the last of them. Refreshes and removals check no properties.
        """
        with self._lock:
            _place(self._asked_for, self._wanted)
            return frozenset(
                place
                for place in leaving.keys
                for other in self._wanted.get(place, ())
                if are_of_one_stack(other.owner, leaving.owner)
                and not set(other.service_urls).isdisjoint(leaving.service_urls)
            )

    def give_back(self, leaving: DesiredState, find: Callable[[DesiredState], Peers]) -> None:
        """Give what goes on its registrations back where ``leaving``, which is to be removed, has them.

        :raises EurekubeError: Eureka cannot be asked, or did not do it.
        """

        def run(pair: tuple[DesiredState, DesiredState]) -> None:
            remaining, leaver = pair
            peers = find(remaining)
            held = peers.read(*remaining.only.instance.key)
            if held is not None and leaver.is_its(held) and not remaining.is_its(held):
                update(leaver, remaining, peers)

        pairs = [
            (_alone(other, place), _alone(leaving, place))
            for place in leaving.keys
            for other in self._taken_by(leaving, place)
        ]
        if pairs:
            with ThreadPoolExecutor(min(THREADS, len(pairs))) as executor:
                list(executor.map(run, pairs))

    def _taken_by(self, leaving: DesiredState, place: Key) -> list[DesiredState]:
        """Return the places of ``leaving`` that other creations have, which go on."""
        with self._lock:
            _place(self._states, self._places)
            others = self._places.get(place, ())
            # The same incarnation under another owner is the same resource, renamed by an update since.
            return [other for other in others if other.incarnation != leaving.incarnation]


DECLARED_RESOURCES = DeclaredResources()
"""The resources of this process's run."""


def _name_of(properties: Properties) -> tuple[str, bool]:
    """Return the name that no two resources of a stack share: their owner, and their kind."""
    return str(properties.get("owner")), "instances" in properties


def _place(states: list[Properties], places: dict[Key, list[DesiredState]]) -> None:
    """Have what was noted since stand where it is registered."""
    while states:
        desired = DesiredState.from_properties(states.pop())
        for place in desired.keys:
            places.setdefault(place, []).append(desired)


def _alone(desired: DesiredState, place: Key) -> DesiredState:
    """One registration of a resource, as if there were no other."""
    found = {key: each for key, each in desired.registrations.items() if each.instance.key == place}
    return replace(desired, registrations=found, has_members=False)
