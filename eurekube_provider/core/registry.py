"""The interface through which the operator sees one registry of instances, such as a Eureka cluster.

Types only. Code that decides uses a :class:`Registry`, and a package such as ``eureka`` implements it: only
that package knows how to talk to the servers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from eurekube_provider.core.durations import Distribution
from eurekube_provider.core.errors import ConfigurationError, RegistryError
from eurekube_provider.core.liveness import Liveness
from eurekube_provider.core.model import EurekaLease, Instance, InstanceKey
from eurekube_provider.core.objects import Object
from eurekube_provider.core.plan import Plan, PlanOutcome, Policy
from eurekube_provider.core.registry_kinds import EUREKA, RegistryKind
from eurekube_provider.core.syncer import NotReady, OnTermination, Syncer, has_annotation

REGISTER_BEFORE_READY_ANNOTATION = "eurekube.io/register-before-ready"
"""The annotation, with any value on a syncer, by which an endpoint that is not ready is registered as DOWN
even in a registry whose callers may call instances that are not UP.
"""


def adapt_to_registry(syncer: Syncer, item: Object, registry: RegistryKind) -> Syncer:
    """Return a syncer's spec adapted to the kind of registry that it names.

    :param item: the syncer's custom resource.
    :raises ConfigurationError: the spec asks for something that this kind of registry cannot do, or that
        would do harm there.
    """
    if registry == EUREKA:
        return syncer
    for is_harmful, said, why in (
        (
            not registry.renewals and syncer.policy is not Policy.SYNC,
            "policy is UpsertOnly",
            "which forgets nothing, so that what is not desired would be called for ever: write Sync",
        ),
        (
            not registry.drains and syncer.on_termination is not OnTermination.DEREGISTER,
            "onTermination is OutOfService",
            "where many clients call what is OUT_OF_SERVICE: write Deregister",
        ),
        (
            not registry.renewals and syncer.removes_dead_self_registered,
            "removeDeadSelfRegistered is true",
            "which removes itself what a pod's own client registered: write false",
        ),
    ):
        if is_harmful:
            raise ConfigurationError(
                f"EurekaSyncer {syncer.namespace}/{syncer.name}: spec.{said}, and its connection"
                f" {syncer.eureka} leads to {registry.name}, {why}"
            )
    if not registry.callers_heed_status and not has_annotation(item, REGISTER_BEFORE_READY_ANNOTATION):
        syncer = replace(syncer, not_ready=NotReady.REMOVE)
    if not registry.names_in_any_case and not (item.get("spec") or {}).get("vipAddress"):
        is_one = syncer.secure_vip_address == syncer.vip_address
        secure = syncer.application if is_one else syncer.secure_vip_address
        syncer = replace(syncer, vip_address=syncer.application, secure_vip_address=secure)
    # Otherwise a condition would mention a lease that this registry does not have.
    return syncer if registry.renewals else replace(syncer, lease=EurekaLease())


@dataclass(frozen=True, slots=True)
class NeverRead:
    """The registry has never been read completely, so that nothing in it may be removed.

    :ivar error: the reason, once a reading failed or no server answers; None while the first reading is under
        way.
    """

    error: RegistryError | None = None


@dataclass(frozen=True, slots=True)
class Healthy:
    """The registry was read and answers.

    :ivar error: why the last reading failed, if it did; a single failure says little.
    """

    error: RegistryError | None = None


@dataclass(frozen=True, slots=True)
class Failing:
    """The registry was read, and cannot be read any more.

    :ivar since: Unix time.
    :ivar lasts: True if reading failed twice in a row, or no server answered for seconds: every custom
        resource that registers there reports it. False while no server has answered for a moment only: a
        custom resource that waits for an answer may report it.
    """

    error: RegistryError
    since: float
    lasts: bool = True


@dataclass(frozen=True, slots=True)
class Misconfigured:
    """The operator must not use the registry, because of an error in its configuration."""

    why: ConfigurationError


@dataclass(frozen=True, slots=True)
class UncachedReading:
    """Certain instances as the servers of a registry hold them, each read past all caches.

    :ivar instances_by_server: by server that answered, and by key, the instance; None where the server does
        not hold it.
    :ivar silent_since: by server that neither answered nor refused the connection, the time since which it is
        silent; its callers wait for it as well. Seconds of :func:`time.monotonic`, as are those of
        ``unasked_until``.
    :ivar unasked_until: by server that was silent, the time until which its callers may not have asked it
        again.
    """

    instances_by_server: Mapping[str, Mapping[InstanceKey, Instance | None]]
    silent_since: Mapping[str, float] = field(default_factory=dict)
    unasked_until: Mapping[str, float] = field(default_factory=dict)


RegistryCondition = NeverRead | Healthy | Failing | Misconfigured


def reading_error(condition: RegistryCondition) -> RegistryError | None:
    """Return why a registry cannot be read; None where it can, or is being read for the first time."""
    return condition.error if isinstance(condition, NeverRead | Failing) else None


@dataclass(frozen=True, slots=True)
class RegistryServer:
    """The state of one server of a registry, as last seen. Times are Unix times.

    :ivar is_up: True if the server answered the last request; None before the first one.
    :ivar state_since_unix: the time since which ``is_up`` and ``error`` are as they are; 0 before the first
        request.
    :ivar error: why the server cannot be used; empty while it can.
    :ivar started_at: when the server's process began, as far as it is known.
    :ivar request_counts: the number of requests of this process so far, by method and status code.
    :ivar durations: the durations of these requests.
    :ivar renewals_last_minute: the renewals that the server counted within the last minute, of all clients;
        ``renewals_threshold`` is the number at or below which it is in self-preservation.
    :ivar answered_at: when the server last gave a usable answer; None for never.
    """

    url: str
    is_up: bool | None
    state_since_unix: float
    error: str
    started_at: float | None
    request_counts: Mapping[tuple[str, str], int]
    durations: Distribution
    renewals_last_minute: int | None = None
    renewals_threshold: int | None = None
    answered_at: float | None = None

    @property
    def is_in_or_near_self_preservation(self) -> bool | None:
        """True if it is in self-preservation, or would be with one renewal less; None for unknown."""
        if self.renewals_last_minute is None or self.renewals_threshold is None:
            return None
        return self.renewals_last_minute <= self.renewals_threshold


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a registry: all that metrics and the status page need.

    :ivar read_at: Unix time of the last complete reading.
    :ivar registered: the number of instances in the registry, and how many of them this process renews
        (``renewed_here``).
    :ivar renewed_share: the share of these in all instances of the registry, from 0 to 1.
    :ivar renewals_last_minute: this process's renewals that one server accepted, as the mean of all servers;
        ``expected_renewals_per_minute`` is the number that a server expects of this process in that time.
    :ivar accepted_renewals: the number of successful renewals so far; ``missing_renewals`` found no instance,
        ``failed_renewals`` no answer.
    :ivar overdue_seconds: for how long the most overdue renewal is due.
    :ivar refused_instances: how many instances the registry last refused to renew.
    :ivar share_warning: a warning about this process's share of the instances; empty for none.
    :ivar renewed_for_stacks: the instances that are renewed on behalf of stacks.
    :ivar may_have_lost_memory: True if a server was restarted so lately that it may have forgotten an
        instance that still runs, and that has not registered again yet.
    """

    servers: Sequence[RegistryServer] = ()
    read_at: float | None = None
    registered: int = 0
    renewed_here: int = 0
    renewed_share: float = 0.0
    share_warning: str = ""
    renewals_last_minute: float = 0.0
    expected_renewals_per_minute: int = 0
    accepted_renewals: int = 0
    missing_renewals: int = 0
    failed_renewals: int = 0
    overdue_seconds: float = 0.0
    refused_instances: int = 0
    renewed_for_stacks: Sequence[Instance] = ()
    may_have_lost_memory: bool = False


class RegistryListener(Protocol):
    """A listener for changes in a registry; its methods return at once."""

    def instances_of_owner_changed(self, owner: str) -> None:
        """Report that instances of ``owner`` have changed."""

    def condition_changed(self) -> None:
        """Report that a reading ended differently from the one before; see :meth:`Registry.condition`."""


class Registry(Protocol):
    """One registry of instances, as one client sees it; any number of threads may share it."""

    def start(self, listener: RegistryListener | None = None) -> None:
        """Begin to read. Nothing is renewed before :meth:`start_leading`."""

    def stop(self) -> None:
        """End all reads, renewals and changes; no instance is removed."""

    def condition(self) -> RegistryCondition:
        """Return whether the registry was read, and whether it answers."""

    def known_instances(self, *, owner: str = "", application: str = "") -> list[Instance]:
        """Return the known instances: of an owner, of an application, of both, or all."""

    def get(self, key: InstanceKey) -> Instance | None:
        """Return one instance as far as it is known; None for an unknown one."""

    def owners(self, *, lookup_name: str = "") -> set[str]:
        """Return the owners of instances, or only of those that callers find under a name: an application or
        a VIP address.

        With a name, the empty owner stands for instances that Eurekube did not register.
        """

    def cluster_names(self) -> set[str]:
        """Return the names of the clusters whose syncers have instances."""

    def count_up_instances(self, *, owner: str = "", cluster: str = "") -> int:
        """Return how many instances of an owner, or of a cluster's syncers, are UP, as the brake counts."""

    def refresh(self, keys: Iterable[InstanceKey], *, include_known: bool = False) -> None:
        """Read instances that another replica may have changed so recently that no list shows the change yet.

        Without ``include_known``, does nothing once the lists are recent enough.

        :param include_known: True to read also instances that a list shows, perhaps wrongly.
        :raises RegistryError: no server answers.
        """

    def read_everywhere(self, keys: Iterable[InstanceKey]) -> UncachedReading:
        """Read the instances from each server that answers, past all caches.

        :raises RegistryError: no server answers.
        """

    def apply(self, plan: Plan, owner: str) -> PlanOutcome:
        """Carry out a plan on behalf of ``owner``: verify each change, and renew from then on.

        Two plans of one owner must not be carried out at the same time.

        :raises LeadershipLost: this replica may not change anything.
        """

    def keep_registered(self, *instances: Instance) -> None:
        """Renew registered instances from now on."""

    def let_lapse(self, instance: Instance) -> None:
        """Stop renewing an instance, so that the registry forgets it."""

    def instances_lost_by_registry(self, owner: str) -> list[Instance]:
        """Return the instances of an owner that the registry lost when its servers restarted."""

    def stop_tracking_lost_instances(self, owner: str, wanted: Collection[InstanceKey] = ()) -> None:
        """Stop tracking an owner's forgotten instances: the owner's plan registers those that it wants.

        :param wanted: the instances that the owner wants; a person's override on any other ends, as with any
            removal.
        """

    def start_leading(self, expected: int) -> None:
        """Begin to renew, since this replica leads now; see :meth:`stand_by`.

        :param expected: about how many instances will be renewed.
        """

    def stand_by(self) -> None:
        """Stop all renewals, since another replica leads, and wait for a renewal that is under way."""

    def figures(self, *, in_full: bool = False) -> Figures:
        """Return the figures for metrics.

        :param in_full: True to add figures that cost the servers something, and are asked for only while a
            person looks.
        """

    def liveness(self) -> list[Liveness]:
        """Return for each thread of the registry whether it lives and makes progress."""
