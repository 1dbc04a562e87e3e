"""Who else wants an instance that a syncer lets go of: that one takes it over as it stands.

A syncer is renamed by making another one for the same endpoints and deleting the first; or it lives on, and
what it asks for is edited. Callers must not miss an instance meanwhile.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace

from eurekube_provider.core.errors import ConfigurationError, RegistryError
from eurekube_provider.core.identity import OWNER_KEY, Cluster
from eurekube_provider.core.mapping import Desired
from eurekube_provider.core.model import Instance, Key
from eurekube_provider.core.plan import Change, Outcome, Plan, handover
from eurekube_provider.core.syncer import claimed_names
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.permission import Permissions
from eurekube_provider.operator.registries import Registries
from eurekube_provider.operator.sources import Sources
from eurekube_provider.runtime.clock import elapsed_seconds

_log = logging.getLogger(__name__)

SUCCESSOR_SECONDS = 5.0
"""How long what another syncer may want waits for the pods or nodes that this one needs to be read: a moment,
where they can be read. Where pods cannot, it passes without their labels, since it serves.
"""

SUCCESSOR_POLL_SECONDS = 0.1

WAIT_OVER_SECONDS = 60.0
"""Where nobody asked for another syncer for so long, the wait for it is over; the next one is a new one."""

Leaves = Mapping[str, Collection[Instance]]
"""What a syncer lets go of, by the name of the registry where it stands."""

_NOTHING = Outcome()
_NO_STEPS = Plan()


@dataclass(frozen=True, slots=True)
class Transferred:
    """What became of instances at one registry that others want.

    :ivar steps: each instance that another one wants, as it is given to that one.
    :ivar successors: who wants them, and was refused until now.
    """

    steps: Plan = _NO_STEPS
    outcome: Outcome = _NOTHING
    successors: frozenset[SyncerKey] = frozenset()

    @property
    def passed(self) -> set[Key]:
        """What another one has now, or would have in a dry run."""
        return {change.instance.key for change in (*self.outcome.done, *self.shown)}

    @property
    def shown(self) -> tuple[Change, ...]:
        """What was neither done nor failed, as in a dry run: to be shown beside what leaves."""
        settled = {id(change) for change in self.outcome.done}
        settled |= {id(failure.change) for failure in self.outcome.failures}
        return tuple(change for change in self.steps.changes if id(change) not in settled)

    @property
    def failed(self) -> RegistryError | None:
        """Why something could not be given yet."""
        errors = (failure.error for failure in self.outcome.failures)
        return next((error for error in errors if isinstance(error, RegistryError)), None)


@dataclass(frozen=True, slots=True)
class TransferOffer:
    """What others want of what a syncer that lives on wants no more.

    :ivar kept: not to be taken out now: it is another one's, or is given as soon as that can be done.
    :ivar asked: all that it had and did not want when others were asked; None where nobody was.
    :ivar shown: see :attr:`Transferred.shown`.
    :ivar successors: see :attr:`Transferred.successors`.
    :ivar is_awaited: whether what another one wants is not known yet, so that it is offered again soon.
    """

    kept: Set[tuple[str, Key]] = frozenset()
    asked: Set[tuple[str, Key]] | None = None
    shown: Mapping[str, tuple[Change, ...]] = field(default_factory=dict)
    outcome: Outcome = _NOTHING
    successors: frozenset[SyncerKey] = frozenset()
    is_awaited: bool = False

    def keeps(self, name: str, key: Key) -> bool:
        """Whether an instance is not to be taken out now.

        Nobody was asked yet of what was found to be this syncer's meanwhile: the next reconcile offers that.
        """
        return (name, key) in self.kept or self.is_news(name, key)

    def is_news(self, name: str, key: Key) -> bool:
        """Whether an instance was not known to be this syncer's when others were asked."""
        return self.asked is not None and (name, key) not in self.asked

    def beside(self, name: str, steps: Plan) -> Plan:
        """A plan for one registry together with what would be handed over there, in a dry run."""
        shown = self.shown.get(name, ())
        return replace(steps, changes=(*shown, *steps.changes)) if shown else steps


class OwnershipTransfer:
    """Finds successors, and hands over; any number of workers may share it, each with a syncer of its own.

    :param waits_at_once: wait for another syncer in the midst of a reconcile, since there is no later one.
    """

    def __init__(
        self, cluster: Cluster, sources: Sources, permissions: Permissions, *, waits_at_once: bool = False
    ) -> None:
        self._cluster = cluster
        self._sources = sources
        self._permissions = permissions
        self._waits_at_once = waits_at_once
        self._unread: dict[SyncerKey, tuple[float, float]] = {}  # waited for since when, and last asked for

    def forget(self, key: SyncerKey) -> None:
        """Wait for a syncer no more."""
        self._unread.pop(key, None)

    def forget_all(self) -> None:
        """Wait for no syncer any more: another replica leads."""
        self._unread.clear()

    def are_awaited(self, key: SyncerKey, leaves: Leaves) -> bool:
        """Whether another syncer may want some of these, and what it needs to know was not read yet.

        :param key: who lets go.
        """
        while True:
            # Of all of them, so that they are waited for at the same time.
            awaited = [
                self._is_awaited(other, name)
                for name, instances in leaves.items()
                for other in self._candidates(key, instances)
            ]
            if not any(awaited) or not self._waits_at_once:
                return any(awaited)
            time.sleep(SUCCESSOR_POLL_SECONDS)

    def offer(
        self, key: SyncerKey, owner: str, leaves: Leaves, registries: Registries, asked: Set[tuple[str, Key]]
    ) -> TransferOffer:
        """Give what others want to them; what may be wanted, as soon as that is known.

        :param key: who lets go, and lives on.
        :param asked: see :attr:`TransferOffer.asked`.
        """
        if self.are_awaited(key, leaves):
            kept = frozenset((name, one.key) for name, there in leaves.items() for one in there)
            return TransferOffer(kept, asked, is_awaited=True)
        given = {
            name: self.hand_over(key, owner, name, there, registries)
            for name, there in leaves.items()
            if there
        }
        return TransferOffer(
            {(name, change.instance.key) for name, one in given.items() for change in one.steps.changes},
            asked,
            {name: one.shown for name, one in given.items()},
            sum((one.outcome for one in given.values()), _NOTHING),
            frozenset().union(*(one.successors for one in given.values())),
        )

    def hand_over(
        self, key: SyncerKey, owner: str, name: str, leaves: Collection[Instance], registries: Registries
    ) -> Transferred:
        """Give what another syncer wants as well to that one, as it stands.

        :param key: who lets go of ``leaves`` at the registry of this name, where ``owner`` has them.
        """
        there = {one.key: one for one in leaves}
        successors = self.successors(key, name, leaves)
        if not successors:
            return Transferred()
        steps = handover((want, there[one]) for one, (_, want) in successors.items())
        outcome = registries.apply(name, steps, owner)
        if outcome.done:
            _log.info(
                "instances that a syncer lets go of were handed over to others that want them",
                extra={"syncer": "/".join(key), "handed_over": len(outcome.done)},
            )
        return Transferred(steps, outcome, frozenset(other for other, _ in successors.values()))

    def successors(
        self, key: SyncerKey, name: str, leaves: Collection[Instance]
    ) -> dict[Key, tuple[SyncerKey, Instance]]:
        """Who wants which of ``leaves``, and as what.

        :param key: who lets go of them at the registry of this name.
        """
        there = {one.key: one for one in leaves}
        found: dict[Key, tuple[SyncerKey, Instance]] = {}
        for other in self._candidates(key, leaves):
            desired = self._wanted_by(other, name)
            if desired is not None and desired.is_unread:
                wants = self._selected_by(other, there)
            else:
                wants = [one for one in desired.instances if one.key in there] if desired else []
            for one in wants:
                found.setdefault(one.key, (other, one))
        return found

    def _candidates(self, key: SyncerKey, leaves: Iterable[Instance]) -> list[SyncerKey]:
        """Who registers under the same names."""
        names = {one.application for one in leaves}
        return sorted(set().union(*(self._sources.syncers_of(name) for name in names)) - {key})

    def _is_awaited(self, other: SyncerKey, name: str) -> bool:
        """Whether what a syncer wants is not known yet, and was not for too long."""
        desired = self._wanted_by(other, name)
        if desired is None:
            return False
        if not desired.is_unread:
            self._unread.pop(other, None)
            return False
        now = elapsed_seconds()
        since, asked = self._unread.get(other, (now, now))
        if now - asked > WAIT_OVER_SECONDS:
            since = now
        self._unread[other] = (since, now)
        return now - since < SUCCESSOR_SECONDS

    def _wanted_by(self, key: SyncerKey, name: str) -> Desired | None:
        """What a syncer would register at once at a registry; None where it registers nothing there."""
        item = self._sources.syncers.get(*key)
        if item is None or item["metadata"].get("deletionTimestamp"):
            return None
        try:
            wanted = self._sources.parsed(item)
            if wanted.eureka != name or wanted.is_paused:
                return None
            if self._permissions.refusal(wanted, claimed_names(item)) is not None:
                return None
        except (ConfigurationError, RegistryError):
            return None
        return self._sources.desired(wanted)

    def _selected_by(self, key: SyncerKey, there: Mapping[Key, Instance]) -> list[Instance]:
        """What a syncer selects of ``there``, as it stands: its pods' labels could not be read so far."""
        item = self._sources.syncers.get(*key)
        if item is None:
            return []
        wanted = self._sources.parsed(item)
        selected = self._sources.desired(replace(wanted, metadata_from_pod_labels=()))
        owner = {OWNER_KEY: wanted.owner(self._cluster)}
        held = [there[one.key] for one in selected.instances if one.key in there]
        return [replace(one, metadata={**one.metadata, **owner}) for one in held]
