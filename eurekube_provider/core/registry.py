"""The registry, where instances are found: the interface behind which the operator sees one Eureka cluster.

Types only. Anyone who decides talks to a :class:`Registry`, and a package such as ``eureka`` makes one: what
it takes to speak to its servers is known there alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from eurekube_provider.core.durations import Distribution
from eurekube_provider.core.errors import ConfigurationError, RegistryError
from eurekube_provider.core.liveness import Liveness
from eurekube_provider.core.model import EurekaLease, Instance, Key
from eurekube_provider.core.objects import Object
from eurekube_provider.core.plan import Outcome, Plan, Policy
from eurekube_provider.core.registry_kinds import EUREKA, Capabilities
from eurekube_provider.core.syncer import NotReady, OnTermination, Syncer, has_annotation

REGISTER_BEFORE_READY = "eurekube.io/register-before-ready"
"""With any value on a syncer: an endpoint that is not ready is registered as DOWN also where not all callers
leave out what is not UP."""


def fitted(syncer: Syncer, item: Object, registry: Capabilities) -> Syncer:
    """Return what a syncer asks for, as the registry that it names can have it.

    :param item: its custom resource.
    :raises ConfigurationError: it asks for what that kind of registry cannot do, or what would do harm there.
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
    if not registry.statuses_heeded and not has_annotation(item, REGISTER_BEFORE_READY):
        syncer = replace(syncer, not_ready=NotReady.REMOVE)
    if not registry.names_in_any_case and not (item.get("spec") or {}).get("vipAddress"):
        is_one = syncer.secure_vip_address == syncer.vip_address
        secure = syncer.application if is_one else syncer.secure_vip_address
        syncer = replace(syncer, vip_address=syncer.application, secure_vip_address=secure)
    # So that no condition speaks of a lease that there is not.
    return syncer if registry.renewals else replace(syncer, lease=EurekaLease())


@dataclass(frozen=True, slots=True)
class Unread:
    """The registry was not read completely so far, so that nothing in it may be removed.

    :ivar error: why, once a reading failed or no server answers; None while the first reading is under way.
    """

    error: RegistryError | None = None


@dataclass(frozen=True, slots=True)
class Healthy:
    """The registry was read and answers.

    :ivar error: why the last reading failed, where it did, of which a single one says little.
    """

    error: RegistryError | None = None


@dataclass(frozen=True, slots=True)
class Failing:
    """The registry was read, and cannot be read any more.

    :ivar since: Unix time.
    :ivar lasts: True if reading failed twice on end, or no server answered for seconds, so that all who
        register there say so. Else no server has answered for a moment: who waits for it may say so.
    """

    error: RegistryError
    since: float
    lasts: bool = True


@dataclass(frozen=True, slots=True)
class Refused:
    """The registry must not be worked on, by the operator's configuration."""

    why: ConfigurationError


@dataclass(frozen=True, slots=True)
class Reading:
    """Given instances as the servers of a registry hold them, each read past all caches.

    :ivar by_server: by server that answered, and key; None where it holds nothing.
    :ivar silent: by server that neither answered nor refused the connection, since when; its callers wait for
        it as well. Seconds of :func:`time.monotonic`, as are those of ``late``.
    :ivar late: by server that was silent, until when its callers may not have asked it again.
    """

    by_server: Mapping[str, Mapping[Key, Instance | None]]
    silent: Mapping[str, float] = field(default_factory=dict)
    late: Mapping[str, float] = field(default_factory=dict)


Condition = Unread | Healthy | Failing | Refused


def failure_of(condition: Condition) -> RegistryError | None:
    """Why a registry cannot be read; None where it can, or is being read for the first time."""
    return condition.error if isinstance(condition, Unread | Failing) else None


@dataclass(frozen=True, slots=True)
class Server:
    """One server of a registry.

    :ivar is_up: True if it could be used the last time; None before the first request.
    :ivar since: Unix time of the first request with that result.
    :ivar error: why it cannot be used.
    :ivar started_at: Unix time at which the server was started, where it says so.
    :ivar requests: how many there were, by method and status code or ``none``.
    :ivar renewals_last_minute: how many renewals it got from everybody, and below how many it forgets nobody
        any more (``renewals_threshold``); None where that was not asked for, or is not known yet.
    :ivar answered_at: Unix time of the last answer that could be used; None before the first.
    """

    url: str
    is_up: bool | None
    since: float
    error: str
    started_at: float | None
    requests: Mapping[tuple[str, str], int]
    durations: Distribution
    renewals_last_minute: int | None = None
    renewals_threshold: int | None = None
    answered_at: float | None = None

    @property
    def is_endangered(self) -> bool | None:
        """Return whether the server is in self-preservation, or would be with the next renewal that is
        missing.
        """
        if self.renewals_last_minute is None or self.renewals_threshold is None:
            return None
        return self.renewals_last_minute <= self.renewals_threshold


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a registry: all that metrics and the status page need.

    :ivar read_at: Unix time of the last complete reading.
    :ivar registered: how many instances it holds, and how many of them we renew (``held``).
    :ivar renewals_last_minute: our renewals that one server accepted, in the mean of all servers;
        ``renewals_expected`` is what a server expects of us in that time.
    :ivar accepted: how many renewals went well so far; ``missing`` found no instance, ``failed`` no answer.
    :ivar late_seconds: for how long the renewal is due that has waited longest.
    :ivar refused: how many instances the registry refused to renew when it was asked last.
    :ivar warning: a warning about our share; empty where there is none.
    :ivar for_stacks: the number of renewals on behalf of stacks.
    """

    servers: Sequence[Server] = ()
    read_at: float | None = None
    registered: int = 0
    held: int = 0
    share: float = 0.0
    warning: str = ""
    renewals_last_minute: float = 0.0
    renewals_expected: int = 0
    accepted: int = 0
    missing: int = 0
    failed: int = 0
    late_seconds: float = 0.0
    refused: int = 0
    for_stacks: Sequence[Instance] = field(default=())


class RegistryListener(Protocol):
    """A listener for changes in a registry; its methods return at once."""

    def owner_changed(self, owner: str) -> None:
        """Tell that instances of ``owner`` are not what they were."""

    def condition_changed(self) -> None:
        """Tell that a reading went otherwise than the one before; see :meth:`Registry.condition`."""


class Registry(Protocol):
    """One registry of instances, as one client sees it; any number of threads may share it."""

    def start(self, listener: RegistryListener | None = None) -> None:
        """Begin to read. Nothing is renewed before :meth:`take_over`."""

    def stop(self) -> None:
        """Read, renew and change nothing more; nothing is removed."""

    def condition(self) -> Condition:
        """Return whether the registry was read, and answers."""

    def known(self, *, owner: str = "", application: str = "") -> list[Instance]:
        """Return the known instances: of an owner, of an application, of both, or all."""

    def get(self, key: Key) -> Instance | None:
        """One instance, as far as known."""

    def owners(self, *, called: str = "") -> set[str]:
        """Return the owners of instances, or of instances that callers find under a name: an application or a
        VIP address.

        An empty one has what nobody of ours registered, of a name.
        """

    def clusters(self) -> set[str]:
        """Names of the clusters whose syncers have instances."""

    def up(self, *, owner: str = "", cluster: str = "") -> int:
        """How many instances of an owner, or of a cluster's syncers, are UP, as the brake counts them."""

    def refresh(self, keys: Iterable[Key], *, known_too: bool = False) -> None:
        """Read what another replica may have changed so shortly before that no list shows it yet.

        Does nothing once lists can be believed, but by ``known_too``.

        :param known_too: also what a list shows, perhaps wrongly.
        :raises RegistryError: no server answers.
        """

    def read_everywhere(self, keys: Iterable[Key]) -> Reading:
        """Read what each server that answers holds at this moment.

        :raises RegistryError: no server answers.
        """

    def apply(self, plan: Plan, owner: str) -> Outcome:
        """Carry out a plan on behalf of ``owner``: each change verified, and renewed what was registered.

        Two plans of one owner must not come at the same time.

        :raises LeadershipLost: this replica may not change anything.
        """

    def keep(self, instance: Instance) -> None:
        """Renew what stands there already."""

    def let_lapse(self, instance: Instance) -> None:
        """Renew it no more, and leave it to the registry to forget it."""

    def forgotten(self, owner: str) -> list[Instance]:
        """Return the instances of an owner that the registry lost when it began again."""

    def give_up(self, owner: str, wanted: Collection[Key] = ()) -> None:
        """Let what the registry forgot of an owner be: its plan registers what it wants.

        :param wanted: the instances that it does: what a person had set over the status of others is over,
            as with any removal.
        """

    def take_over(self, expected: int) -> None:
        """Begin to renew, since this replica leads now; see :meth:`stand_by`.

        :param expected: about how many instances are to be renewed.
        """

    def stand_by(self) -> None:
        """Renew nothing more, since another replica does: when this returns, no renewal is under way."""

    def figures(self, *, in_full: bool = False) -> Figures:
        """Return the figures for metrics.

        :param in_full: also what costs the servers something, and so is asked for only while a person looks.
        """

    def liveness(self) -> list[Liveness]:
        """Tell whether its threads live and make progress."""
