"""What a reconcile of one syncer decides, and what it comes to: plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eurekube_provider.core.errors import EurekubeError, RegistryError
from eurekube_provider.core.mapping import Desired
from eurekube_provider.core.model import Instance
from eurekube_provider.core.plan import Change, Outcome, Plan
from eurekube_provider.core.registry import Registry
from eurekube_provider.core.syncer import Syncer
from eurekube_provider.operator.conditions import Reconciled, Report
from eurekube_provider.operator.deletion import Deleted
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.ownership_transfer import Offered
from eurekube_provider.operator.registries import Registries
from eurekube_provider.operator.removal_brake import Hold

Object = Mapping[str, Any]

_NOTHING = Outcome()
_NOTHING_OFFERED = Offered()


@dataclass(frozen=True, slots=True)
class Result:
    """What a reconcile came to.

    :ivar syncer: the custom resource that was looked at; None where there is none.
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
    held_back: Hold | None = None
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
    """

    key: SyncerKey
    item: Object
    syncer: Syncer
    claimed: frozenset[str]
    owner: str
    desired: Desired
    keys: frozenset[tuple[str, str]]

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
    offered: Offered = _NOTHING_OFFERED
    strays: Mapping[str, list[Instance]] = field(default_factory=dict)
    leaves: Mapping[tuple[str, str], Change] = field(default_factory=dict)
    held_back: Hold | None = None
    waiting: int = 0

    @property
    def name(self) -> str:
        """Of the registry where the syncer registers."""
        return self.wanted.syncer.eureka

    @property
    def registry(self) -> Registry:
        """Where the syncer registers."""
        return self.registries[self.name]

    def reconciled(self, outcome: Outcome, trouble: RegistryError | None, drain: str | None) -> Reconciled:
        """All that conditions are made of, once ``outcome`` came of it.

        :param trouble: see :class:`~eurekube_provider.operator.conditions.Reconciled`, as for ``drain``.
        """
        wanted = self.wanted
        return Reconciled(
            wanted.syncer.application.upper(),
            self.registry.known(owner=wanted.owner),
            len(wanted.desired.instances),
            drain,
            syncer=wanted.syncer,
            desired=wanted.desired,
            steps=self.steps,
            outcome=outcome,
            waiting=self.waiting,
            braked=self.held_back.message if self.held_back else "",
            trouble=trouble,
            claimed=wanted.claimed,
        )
