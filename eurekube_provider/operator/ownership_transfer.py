"""Who else wants an instance that a syncer lets go of: that one takes it over as it stands.

A syncer is renamed by making another one for the same endpoints and deleting the first; or it lives on, and
what it asks for is edited. Callers must not miss an instance meanwhile.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from eurekube_provider.core.errors import ConfigurationError, RegistryError
from eurekube_provider.core.identity import OWNER_KEY, Cluster
from eurekube_provider.core.mapping import Desired
from eurekube_provider.core.model import Instance
from eurekube_provider.core.plan import Action, Change, Outcome, Plan, handed_over
from eurekube_provider.core.registry import Registry
from eurekube_provider.core.syncer import Syncer, claimed_names
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.queue import WorkQueue
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

Apply = Callable[[Plan, str, Registry], Outcome]
Admit = Callable[[Syncer, Sources, frozenset[str]], Registry]
"""Where a syncer may register; see :meth:`~eurekube_provider.operator.permission.Permissions.registry_of`."""

Key = tuple[str, str]
"""Of an instance: its application and id."""

Leaves = Sequence[tuple[Registry, Collection[Instance]]]
"""What a syncer lets go of, by where it stands."""

_NOTHING = Outcome()
_NO_STEPS = Plan()


@dataclass(frozen=True, slots=True)
class Transferred:
    """What became of instances at one registry that others want.

    :ivar steps: each instance that another one wants, as it is given to that one.
    """

    steps: Plan = _NO_STEPS
    outcome: Outcome = _NOTHING

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
class Offered:
    """What others want of what a syncer that lives on wants no more.

    :ivar kept: not to be taken out now: it is another one's, or is given as soon as that can be done.
    :ivar asked: all that it had and did not want when others were asked; None where nobody was.
    :ivar shown: see :attr:`Transferred.shown`.
    """

    kept: Set[tuple[Registry, Key]] = frozenset()
    asked: Set[tuple[Registry, Key]] | None = None
    shown: Mapping[Registry, tuple[Change, ...]] = field(default_factory=dict)
    outcome: Outcome = _NOTHING

    def keeps(self, registry: Registry, key: Key) -> bool:
        """Whether it is not to be taken out now. Nobody was asked yet of what was found to be this syncer's
        meanwhile: that is offered by the next look.
        """
        return (registry, key) in self.kept or self.is_news(registry, key)

    def is_news(self, registry: Registry, key: Key) -> bool:
        """Whether it was not known to be this syncer's when others were asked."""
        return self.asked is not None and (registry, key) not in self.asked


class OwnershipTransfer:
    """Finds successors, and hands over; any number of workers may share it, each with a syncer of its own.

    :param admit: where a syncer that wants the same instances would register them.
    :param waits_at_once: wait for another syncer in the midst of a look, since there is no later one.
    """

    def __init__(
        self,
        cluster: Cluster,
        queue: WorkQueue[SyncerKey],
        carry_out: Apply,
        admit: Admit,
        *,
        waits_at_once: bool = False,
    ) -> None:
        self._cluster = cluster
        self._queue = queue
        self._carry_out = carry_out
        self._admit = admit
        self._waits_at_once = waits_at_once
        self._unread: dict[SyncerKey, tuple[float, float]] = {}  # waited for since when, and last asked for

    def forget(self, key: SyncerKey) -> None:
        """This syncer is waited for no more."""
        self._unread.pop(key, None)

    def forget_all(self) -> None:
        """Another replica leads."""
        self._unread.clear()

    def are_awaited(self, key: SyncerKey, leaves: Leaves, sources: Sources) -> bool:
        """Whether another syncer may want some of these, and what it needs to know was not read yet.

        :param key: who lets go.
        """
        while True:
            # Of all of them, so that they are waited for at the same time.
            awaited = [
                self._is_awaited(successor, registry, sources)
                for registry, instances in leaves
                for successor in _successors(key, instances, sources)
            ]
            if not any(awaited) or not self._waits_at_once:
                return any(awaited)
            time.sleep(SUCCESSOR_POLL_SECONDS)

    def offer(
        self,
        key: SyncerKey,
        owner: str,
        leaves: Leaves,
        sources: Sources,
        asked: Set[tuple[Registry, Key]] | None = None,
    ) -> Offered:
        """Give what others want to them; what may be wanted, as soon as that is known.

        :param key: who lets go, and lives on.
        :param asked: see :attr:`Offered.asked`.
        """
        if self.are_awaited(key, leaves, sources):
            self._queue.add_after(key, SUCCESSOR_POLL_SECONDS)
            return Offered(
                frozenset((registry, one.key) for registry, there in leaves for one in there), asked
            )
        handed = {
            registry: self.hand_over(key, owner, registry, there, sources)
            for registry, there in leaves
            if there
        }
        return Offered(
            {
                (registry, change.instance.key)
                for registry, one in handed.items()
                for change in one.steps.changes
            },
            asked,
            {registry: one.shown for registry, one in handed.items()},
            sum((one.outcome for one in handed.values()), _NOTHING),
        )

    def _is_awaited(self, successor: SyncerKey, registry: Registry, sources: Sources) -> bool:
        """Whether what a syncer wants is not known yet, and was not for too long."""
        desired = self._wanted_by(successor, registry, sources)
        if desired is None:
            return False
        if not desired.is_unread:
            self._unread.pop(successor, None)
            return False
        now = elapsed_seconds()
        since, asked = self._unread.get(successor, (now, now))
        if now - asked > WAIT_OVER_SECONDS:
            since = now
        self._unread[successor] = (since, now)
        return now - since < SUCCESSOR_SECONDS

    def of(
        self, key: SyncerKey, registry: Registry, leaves: Collection[Instance], sources: Sources
    ) -> dict[Key, tuple[SyncerKey, Instance]]:
        """Who wants which of ``leaves``, and as what.

        :param key: who lets go of them at ``registry``.
        """
        there = {one.key: one for one in leaves}
        successors: dict[Key, tuple[SyncerKey, Instance]] = {}
        for other in _successors(key, leaves, sources):
            desired = self._wanted_by(other, registry, sources)
            if desired is not None and desired.is_unread:
                wants = self._selected_by(other, there, sources)
            else:
                wants = [one for one in desired.instances if one.key in there] if desired else []
            for one in wants:
                successors.setdefault(one.key, (other, one))
        return successors

    def hand_over(
        self,
        key: SyncerKey,
        owner: str,
        registry: Registry,
        leaves: Collection[Instance],
        sources: Sources,
    ) -> Transferred:
        """Give what another syncer wants as well to that one, as it stands.

        :param key: who lets go of ``leaves`` at ``registry``, where ``owner`` has them.
        """
        there = {one.key: one for one in leaves}
        successors = self.of(key, registry, leaves, sources)
        if not successors:
            return Transferred()
        steps = Plan(
            tuple(
                Change(Action.UPDATE, handed_over(want, there[one]), there[one])
                for one, (_, want) in successors.items()
            )
        )
        handed = Transferred(steps, self._carry_out(steps, owner, registry))
        for successor in {successor for successor, _ in successors.values()}:
            self._queue.add(successor)  # which was refused until now
        if handed.outcome.done:
            _log.info(
                "instances that a syncer lets go of were handed over to others that want them",
                extra={"syncer": "/".join(key), "handed_over": len(handed.outcome.done)},
            )
        return handed

    def _wanted_by(self, key: SyncerKey, registry: Registry, sources: Sources) -> Desired | None:
        """What a syncer would register at once at ``registry``; None where it registers nothing there."""
        item = sources.syncers.get(*key)
        if item is None or item["metadata"].get("deletionTimestamp"):
            return None
        try:
            wanted = Syncer.from_object(item)
            claimed = claimed_names(item)
            is_there = self._admit(wanted, sources, claimed) is registry
        except (ConfigurationError, RegistryError):
            return None
        if not is_there or wanted.is_paused:
            return None
        return sources.desired(wanted, self._cluster)

    def _selected_by(self, key: SyncerKey, there: Mapping[Key, Instance], sources: Sources) -> list[Instance]:
        """What a syncer selects of ``there``, as it stands: its pods' labels could not be read so far."""
        wanted = Syncer.from_object(sources.syncers.get(*key) or {})
        selected = sources.desired(replace(wanted, metadata_from_pod_labels=()), self._cluster)
        owner = {OWNER_KEY: wanted.owner(self._cluster)}
        held = [there[one.key] for one in selected.instances if one.key in there]
        return [replace(one, metadata={**one.metadata, **owner}) for one in held]


def _successors(key: SyncerKey, leaves: Iterable[Instance], sources: Sources) -> list[SyncerKey]:
    """Who registers under the same names."""
    names = {one.application for one in leaves}
    return sorted(set().union(*(sources.syncers_of(name) for name in names)) - {key})
