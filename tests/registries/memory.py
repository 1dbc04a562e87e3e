"""A kind of registry for tests: instances in this process's memory, for all clients that share a
connection.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace

from eurekube_provider.core.brake import counts_for_brake
from eurekube_provider.core.errors import LeadershipLost, OwnershipConflict
from eurekube_provider.core.identity import Cluster, cluster_name_of_owner
from eurekube_provider.core.liveness import Liveness
from eurekube_provider.core.model import Instance, InstanceKey, Status
from eurekube_provider.core.plan import Action, Change, ChangeError, Plan, PlanOutcome
from eurekube_provider.core.registry import (
    Figures,
    Healthy,
    NeverRead,
    RegistryCondition,
    RegistryListener,
    UncachedReading,
)
from eurekube_provider.core.registry_kinds import EUREKA, RegistryKind


@dataclass(eq=False)
class MemoryConnection:
    """The place where the instances are held.

    :ivar held: the instances by their keys.
    :ivar clients: the clients that are told of changes.
    """

    held: dict[InstanceKey, Instance] = field(default_factory=dict)
    clients: list[MemoryRegistry] = field(default_factory=list)
    service_urls: tuple[str, ...] = ("memory:",)
    registry_kind: RegistryKind = EUREKA

    def put(self, instance: Instance) -> None:
        """Register an instance as another client, and tell the clients."""
        self.held[instance.key] = instance
        for client in self.clients:
            client.tell(instance.owner)


class MemoryRegistry:
    """The client of one connection; a :class:`~eurekube_provider.core.registry.Registry`."""

    def __init__(self, connection: MemoryConnection, may_write: Callable[[], bool]) -> None:
        self._connection = connection
        self._may_write = may_write
        self._listener: RegistryListener | None = None
        self._lock = threading.Lock()
        self._renewed: set[InstanceKey] = set()
        self._was_read = self._leads = False

    @classmethod
    def from_connection(
        cls,
        connection: MemoryConnection,
        _cluster: Cluster,
        _operator_name: str,
        _resync_seconds: float,
        *,
        may_write: Callable[[], bool] = lambda: True,
        **_: object,
    ) -> MemoryRegistry:
        """Make a client of a connection."""
        return cls(connection, may_write)

    def start(self, listener: RegistryListener | None = None) -> None:
        """Read the instances at once, and tell the listener of their owners."""
        self._listener = listener
        self._connection.clients.append(self)
        self._was_read = True
        if listener is not None:
            listener.condition_changed()
        for owner in self.owners():
            self.tell(owner)

    def stop(self) -> None:
        """Tell the listener nothing more."""
        self._connection.clients.remove(self)

    def tell(self, owner: str | None) -> None:
        """Tell the listener that an owner's instances have changed."""
        if self._listener is not None and owner:
            self._listener.instances_of_owner_changed(owner)

    def condition(self) -> RegistryCondition:
        """Return whether the client is started."""
        return Healthy() if self._was_read else NeverRead()

    def known_instances(self, *, owner: str = "", application: str = "") -> list[Instance]:
        """Return the instances of an owner and of an application; of all if none is named."""
        name = application.upper()
        return [
            one
            for one in list(self._connection.held.values())
            if self._was_read and owner in ("", one.owner) and name in ("", one.application)
        ]

    def get(self, key: InstanceKey) -> Instance | None:
        """Return the instance with this key, or None."""
        return next((one for one in self.known_instances() if one.key == key), None)

    def owners(self, *, lookup_name: str = "") -> set[str]:
        """Return the owners of all instances, or of those with a given name."""
        return {
            one.owner
            for one in self.known_instances()
            if one.owner and lookup_name.lower() in ("", *one.names)
        }

    def cluster_names(self) -> set[str]:
        """Return the names of the clusters that own instances."""
        return {
            name for one in self.known_instances() if (name := cluster_name_of_owner(one.owner)) is not None
        }

    def count_up_instances(self, *, owner: str = "", cluster: str = "") -> int:
        """Return how many instances are UP."""
        return sum(
            one.status is Status.UP and counts_for_brake(one)
            for one in self.known_instances(owner=owner)
            if one.owner and (owner or cluster_name_of_owner(one.owner) == cluster)
        )

    def refresh(self, keys: Iterable[InstanceKey], *, include_known: bool = False) -> None:
        """Do nothing: memory is always up to date."""

    def read_everywhere(self, keys: Iterable[InstanceKey]) -> UncachedReading:
        """Return the instances with these keys, as the only server holds them."""
        return UncachedReading({"memory:": {key: self._connection.held.get(key) for key in keys}})

    def apply(self, plan: Plan, owner: str) -> PlanOutcome:
        """Carry out a plan."""
        if plan and not self._may_write():
            raise LeadershipLost("another replica may lead by now")
        with self._lock:
            return PlanOutcome.of(plan.changes, [self._carry_out(change, owner) for change in plan.changes])

    def _carry_out(self, change: Change, owner: str) -> ChangeError | None:
        key, held = change.instance.key, self._connection.held
        there = held.get(key)
        former = change.actual.owner if change.adopts and change.actual is not None else owner
        if there is not None and there.owner not in (owner, former):
            return OwnershipConflict(f"{key} is not {owner}'s")
        if change.action is Action.DEREGISTER:
            held.pop(key, None)
            self._renewed.discard(key)
            return None
        want = change.instance
        if change.action is Action.SET_STATUS:
            out = want.status is Status.OUT_OF_SERVICE
            want = replace(want, overridden_status=want.status if out else Status.UNKNOWN)
        held[key] = want
        self.keep_registered(want)
        return None

    def keep_registered(self, *instances: Instance) -> None:
        """Renew instances from now on, if this client leads."""
        if self._leads:
            self._renewed.update(one.key for one in instances)

    def let_lapse(self, instance: Instance) -> None:
        """Stop renewing an instance."""
        self._renewed.discard(instance.key)

    def instances_lost_by_registry(self, _owner: str) -> list[Instance]:
        """Return nothing: memory never forgets an instance."""
        return []

    def stop_tracking_lost_instances(self, _owner: str, _wanted: Collection[InstanceKey] = ()) -> None:
        """Do nothing."""

    def start_leading(self, expected: int) -> None:
        """Begin to lead, and so to renew."""
        assert expected >= 0
        self._leads = True

    def stand_by(self) -> None:
        """Stop leading, and stop renewing."""
        self._leads = False
        self._renewed.clear()

    def figures(self, *, in_full: bool = False) -> Figures:
        """Return the counts of instances and renewals."""
        assert in_full in (True, False)
        return Figures(registered=len(self.known_instances()), renewed_here=len(self._renewed))

    def liveness(self) -> list[Liveness]:
        """Return nothing: this registry has no threads."""
        return []
