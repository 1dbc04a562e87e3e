"""What a reconcile of one syncer decides, what it comes to, and what is said of that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eurekube_provider.core.errors import EurekubeError, RegistryError
from eurekube_provider.core.identity import Cluster, ClusterOwner
from eurekube_provider.core.mapping import Desired
from eurekube_provider.core.model import Instance
from eurekube_provider.core.objects import Object
from eurekube_provider.core.plan import Change, Outcome, Plan
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.registry import Failing, Registry, Unread
from eurekube_provider.core.syncer import Syncer
from eurekube_provider.operator.conditions import (
    EUREKA_FAILS,
    ConditionInput,
    Report,
    problem_of,
    report,
)
from eurekube_provider.operator.deletion import Deleted
from eurekube_provider.operator.drain_check import DrainCheck
from eurekube_provider.operator.index import SyncerKey, key_of
from eurekube_provider.operator.ownership_transfer import TransferOffer
from eurekube_provider.operator.registries import Registries
from eurekube_provider.operator.removal_brake import HeldRemovals
from eurekube_provider.operator.sources import Sources

_NOTHING = Outcome()
_NO_OFFER = TransferOffer()


@dataclass(frozen=True, slots=True)
class SyncerResult:
    """What a reconcile came to.

    :ivar syncer: the custom resource; None where there is none.
    :ivar report: what its status shall say; None where nothing is said.
    :ivar asked: what the syncer asks for, where it was brought in line as far as that is possible.
    :ivar differing: all that differed, done or not.
    :ivar held_back: the removals that wait.
    :ivar deleted: what became of a deleted syncer.
    :ivar concerned: syncers that must be reconciled because of this.
    :ivar again_seconds: when to reconcile this one again, although nothing changes.
    :ivar error: why it must be tried again.
    """

    syncer: Object | None = None
    report: Report | None = None
    asked: Syncer | None = None
    differing: Plan | None = None
    outcome: Outcome = _NOTHING
    held_back: HeldRemovals | None = None
    deleted: Deleted | None = None
    concerned: frozenset[SyncerKey] = frozenset()
    again_seconds: float | None = None
    error: EurekubeError | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a syncer wants, and where.

    :ivar item: the custom resource, and ``syncer`` what it asks for.
    :ivar claimed: the names that it has been called by before.
    :ivar keys: of the desired instances.
    :ivar alike: the other connections that lead to the Eureka that the syncer names.
    :ivar doubts: the others of which that is not known yet, and why; None where time will tell.
    """

    key: SyncerKey
    item: Object
    syncer: Syncer
    claimed: frozenset[str]
    owner: str
    desired: Desired
    keys: frozenset[tuple[str, str]]
    alike: frozenset[str] = frozenset()
    doubts: Mapping[str, RegistryError | None] = field(default_factory=dict)

    def is_at_home(self, name: str) -> bool:
        """Whether the connection of this name leads, or may lead, to where the syncer registers."""
        return name == self.syncer.eureka or name in self.alike or name in self.doubts

    def wants(self, name: str, key: tuple[str, str]) -> bool:
        """Whether an instance is wanted that stands at the connection of this name."""
        return key in self.keys and self.is_at_home(name)

    def is_unread(self, name: str, key: tuple[str, str]) -> bool:
        """Whether a wanted instance stands at a connection that cannot be read, so that it waits there."""
        return key in self.keys and self.doubts.get(name) is not None

    @property
    def is_open(self) -> bool:
        """Whether nothing may be let go of: the syncer is paused, or more may be desired than is known."""
        return self.syncer.is_paused or self.desired.is_in_doubt


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done for a syncer.

    :ivar steps: at the registry that it names.
    :ivar strays: what it has at others, by registry, and ``leaves`` what of that may go, by instance.
    :ivar differing: all that differs, ``steps`` and what waits.
    :ivar waiting: how many changes a paused syncer has not made.
    """

    wanted: Wanted
    registries: Registries
    steps: Plan
    differing: Plan
    offered: TransferOffer = _NO_OFFER
    strays: Mapping[str, list[Instance]] = field(default_factory=dict)
    leaves: Mapping[tuple[str, str], Change] = field(default_factory=dict)
    held_back: HeldRemovals | None = None
    waiting: int = 0

    @property
    def name(self) -> str:
        """The name of the registry where the syncer registers."""
        return self.wanted.syncer.eureka

    @property
    def registry(self) -> Registry:
        """Where the syncer registers."""
        return self.registries[self.name]

    def condition_input(
        self, outcome: Outcome, read_error: RegistryError | None, drain: str | None
    ) -> ConditionInput:
        """All that conditions are made of, once ``outcome`` came of it.

        :param read_error: why Eureka cannot be read at the moment.
        :param drain: what is wrong with how the pods end.
        """
        wanted = self.wanted
        return ConditionInput(
            wanted.syncer.application.upper(),
            self.registry.known(owner=wanted.owner),
            len(wanted.desired.instances),
            drain,
            syncer=wanted.syncer,
            desired=wanted.desired,
            steps=self.steps,
            outcome=outcome,
            waiting=self.waiting,
            braked=self.held_back.problem if self.held_back else None,
            read_error=read_error,
            claimed=wanted.claimed,
        )


class Reports:
    """Makes reports; any number of workers may share it."""

    def __init__(
        self, cluster: Cluster, registries: Registries, sources: Sources, drain_check: DrainCheck
    ) -> None:
        self._cluster = cluster
        self._registries = registries
        self._sources = sources
        self._drain_check = drain_check

    def done(self, decided: Decision, outcome: Outcome) -> Report:
        """Report on a reconcile that went to its end."""
        condition = decided.registry.condition()
        error = condition.error if isinstance(condition, Failing) and condition.lasts else None
        drain = self._drain_check.problem(decided.wanted.key)
        return report(decided.condition_input(outcome, error, drain))

    def waiting(self, decided: Decision, error: RegistryError) -> SyncerResult:
        """Report on changes that wait for a registry that does not answer."""
        drain = self._drain_check.problem(decided.wanted.key)
        said = report(decided.condition_input(_NOTHING, error, drain))
        return SyncerResult(
            decided.wanted.item, said, differing=decided.differing, held_back=decided.held_back
        )

    def unresponsive(self, key: SyncerKey, name: str, error: RegistryError) -> SyncerResult:
        """Report on a syncer that waits for its registry's first answer; perhaps nothing is said."""
        item = self._sources.syncers.get(*key)
        syncer = self._sources.asked(item)
        if item is None or syncer is None or item["metadata"].get("deletionTimestamp"):
            return SyncerResult()  # what cannot be asked for, the first reconcile says
        registry, held, registered = self._registries[name], list[Instance](), None
        if isinstance(registry.condition(), Unread):
            registered = (item.get("status") or {}).get("registered", 0)
        else:
            held = registry.known(owner=syncer.owner(self._cluster))
        application, desired = syncer.application.upper(), len(self._sources.desired(syncer).instances)
        drain = self._drain_check.problem(key)
        return SyncerResult(
            item, report(ConditionInput(application, held, desired, drain, problem_of(error), registered))
        )

    def ended_early(self, item: Object, failure: Problem, registries: Registries) -> Report:
        """Report on a reconcile that did not go to its end.

        :param registries: as its workers use them.
        """
        key, before = key_of(item), item.get("status") or {}
        owned = registries.owned(str(ClusterOwner(self._cluster.name, *key)))
        held = [one for there in owned.values() for one in there]
        application, desired = before.get("application", ""), before.get("desired", len(held))
        registered = None
        if failure.reason in EUREKA_FAILS and registries.is_served_unread:
            held, registered = [], before.get("registered", 0)
        drain = self._drain_check.problem(key)
        return report(ConditionInput(application, held, desired, drain, failure, registered))
