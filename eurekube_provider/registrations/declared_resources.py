"""The resources that this run's program declares, and those that a resource to be removed has displaced.

A move in a program that was taken back leaves two resources in the state for a while: the engine finds the
first one unchanged, and has the second one removed, which may stand in the first one's place by now.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from eurekube_provider.core.identity import are_owners_of_same_stack
from eurekube_provider.core.model import InstanceKey
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.registrations.called_addresses import ProgramClaims
from eurekube_provider.registrations.desired import DesiredState
from eurekube_provider.registrations.draining import MOST_CONCURRENT_REQUESTS
from eurekube_provider.registrations.lifecycle import update
from eurekube_provider.registrations.properties import Properties


class DeclaredResources:
    """The resources that the program of this run declares; any number of threads may share it.

    :ivar claims: the called addresses and the instances of all resources that the program asks for.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: list[Properties] = []
        self._places: dict[InstanceKey, list[DesiredState]] = {}
        self._asked_for: list[Properties] = []
        self._checked: set[tuple[str, bool]] = set()
        self._wanted: dict[InstanceKey, list[DesiredState]] = {}
        self.claims = ProgramClaims()

    def record_not_replaced(self, state: Properties) -> None:
        """Add the state of a resource that the engine compared with the program and does not replace."""
        with self._lock:
            self._states.append(state)

    def record_declared(self, properties: Properties, *, is_in_state: bool) -> None:
        """Record a resource that the program of this run has, by its checked properties."""
        with self._lock:
            self._checked.add(_resource_key(properties))
            if is_in_state:
                self._asked_for.append(properties)

    def is_declared(self, properties: Properties) -> bool:
        """Return whether the program of this run has declared the resource so far.

        If not, a diff compares a refresh's findings with the state, and not the state with a program.
        """
        with self._lock:
            return _resource_key(properties) in self._checked

    def keys_still_wanted(self, leaving: DesiredState) -> frozenset[InstanceKey]:
        """Return the places of ``leaving`` that a resource of the program wants at the same servers.

        A state that was edited by hand may have two copies of a resource: the last one removes it.
        """
        with self._lock:
            _move_states_into_index(self._asked_for, self._wanted)
            return frozenset(
                place
                for place in leaving.program_keys
                for other in self._wanted.get(place, ())
                if are_owners_of_same_stack(other.owner, leaving.owner)
                and not set(other.service_urls).isdisjoint(leaving.service_urls)
            )

    def restore_taken_places(
        self, leaving: DesiredState, find_peers: Callable[[DesiredState], Peers]
    ) -> None:
        """Register remaining resources again whose places ``leaving``, which is to be removed, took.

        :raises EurekubeError: Eureka cannot be asked, or did not write one.
        """

        def restore_registration(pair: tuple[DesiredState, DesiredState]) -> None:
            remaining, leaver = pair
            peers = find_peers(remaining)
            held = peers.read(*remaining.single_registration.instance.key)
            if held is not None and leaver.has_registered(held) and not remaining.has_registered(held):
                update(leaver, remaining, peers)

        pairs = [
            (_with_one_registration(other, place), _with_one_registration(leaving, place))
            for place in leaving.program_keys
            for other in self._remaining_states_at(leaving, place)
        ]
        if pairs:
            with ThreadPoolExecutor(min(MOST_CONCURRENT_REQUESTS, len(pairs))) as executor:
                list(executor.map(restore_registration, pairs))

    def _remaining_states_at(self, leaving: DesiredState, place: InstanceKey) -> list[DesiredState]:
        """Return the resources, without ``leaving``, that register the application and id of ``place``."""
        with self._lock:
            _move_states_into_index(self._states, self._places)
            others = self._places.get(place, ())
            # The same incarnation under another owner is the same resource, renamed by an update since.
            return [other for other in others if other.incarnation != leaving.incarnation]


DECLARED_RESOURCES = DeclaredResources()
"""The declared resources of this process's run of Pulumi."""


def _resource_key(properties: Properties) -> tuple[str, bool]:
    """Return a unique key of a resource in its stack: its owner, and True for a EurekaApplication."""
    return str(properties.get("owner")), "instances" in properties


def _move_states_into_index(states: list[Properties], places: dict[InstanceKey, list[DesiredState]]) -> None:
    """Move ``states`` into ``places``, under each application and instance id that they register."""
    while states:
        desired = DesiredState.from_properties(states.pop())
        for place in desired.program_keys:
            places.setdefault(place, []).append(desired)


def _with_one_registration(desired: DesiredState, place: InstanceKey) -> DesiredState:
    """Return a copy of a resource with only the registration of one application and id."""
    found = {key: each for key, each in desired.registrations.items() if each.instance.key == place}
    return replace(desired, registrations=found, has_members=False)
