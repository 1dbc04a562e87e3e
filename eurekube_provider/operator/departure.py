"""How a deleted syncer goes: its instances leave every Eureka first, and nothing keeps it for ever.

It is let go when Eureka is clean, when a person asks for it, or when Eureka has been away for so long that a
namespace that waits for it does more harm than instances which lapse by themselves.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from eurekube_provider.core.clock import elapsed_seconds
from eurekube_provider.core.errors import (
    ConfigurationError,
    OwnershipConflict,
    RegistryError,
    RegistryUnreachable,
)
from eurekube_provider.core.identity import Cluster, ClusterOwner
from eurekube_provider.core.mapping import Desired
from eurekube_provider.core.model import Instance
from eurekube_provider.core.plan import Action, Change, Plan, handed_over, plan
from eurekube_provider.core.quoting import printable
from eurekube_provider.core.syncer import Syncer, claimed_names
from eurekube_provider.eureka.apply import Outcome
from eurekube_provider.kube.access import KubeAccess
from eurekube_provider.kube.events import EventRecorder, Kind
from eurekube_provider.operator.finalizer import has_finalizer, set_finalizer
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.queue import WorkQueue
from eurekube_provider.operator.registry import Registry
from eurekube_provider.operator.report import joined
from eurekube_provider.operator.sources import Sources

_log = logging.getLogger(__name__)

FORCE_DELETE_ANNOTATION = "eurekube.io/force-delete"
"""With any value on a deleted syncer: let it go at once, whatever it leaves in Eureka."""

HEIR_SECONDS = 5.0
"""How long what another syncer may want waits for the pods or nodes that this one needs to be read: a moment,
where they can be read.
"""

HEIR_LOOK_SECONDS = 0.1

Object = Mapping[str, Any]
Apply = Callable[[Plan, str, Registry], Outcome]
Admit = Callable[[Syncer, Sources, frozenset[str]], Registry]
"""Where a syncer may register; see :meth:`~eurekube_provider.operator.admission.Admission.registry_of`."""


class Departure:
    """Takes deleted syncers out; any number of workers may share it, each with a syncer of its own.

    :param admit: where a syncer that wants the same instances would register them.
    :param release_after_seconds: how long a syncer waits for an Eureka that is away.
    :param gone: called with a syncer that is gone and what it had registered.
    :param waits_at_once: wait for another syncer in the midst of a look, since there is no later one.
    """

    def __init__(
        self,
        cluster: Cluster,
        access: KubeAccess,
        registries: Mapping[str, Registry],
        events: EventRecorder,
        queue: WorkQueue[SyncerKey],
        carry_out: Apply,
        admit: Admit,
        release_after_seconds: float,
        gone: Callable[[SyncerKey, list[Instance]], None],
        *,
        waits_at_once: bool = False,
    ) -> None:
        self._cluster = cluster
        self._access = access
        self._registries = registries
        self._events = events
        self._queue = queue
        self._carry_out = carry_out
        self._admit = admit
        self._release_after_seconds = release_after_seconds
        self._gone = gone
        self._waits_at_once = waits_at_once
        self._undone: dict[SyncerKey, float] = {}  # since when a deletion cannot be carried out
        self._unread: dict[SyncerKey, float] = {}  # since when a syncer is waited for

    def forget_all(self) -> None:
        """Another replica leads: how long something has waited counts anew for each."""
        self._undone.clear()
        self._unread.clear()

    def of(self, key: SyncerKey, syncer: Object | None, sources: Sources) -> None:
        """Take out what a deleted syncer put in, wherever, then let it go.

        :param syncer: None where the object itself is gone already.
        :raises RegistryError: something could not be taken out yet.
        """
        self._unread.pop(key, None)
        if syncer is None or not has_finalizer(syncer):
            self._undone.pop(key, None)
            self._take_out(key, syncer, sources)
            return
        if FORCE_DELETE_ANNOTATION in (syncer["metadata"].get("annotations") or {}):
            self._let_go(key, syncer, f"the annotation {FORCE_DELETE_ANNOTATION} asks for it")
            return
        try:
            held = self._take_out(key, syncer, sources)
        except RegistryError as error:
            waited = elapsed_seconds() - self._undone.setdefault(key, elapsed_seconds())
            left = self._release_after_seconds - waited
            if left > 0:
                self._queue.add_after(key, left)
                raise
            self._let_go(key, syncer, f"Eureka could not be asked for {waited:.0f} s ({error})")
            return
        if held is None:
            return
        self._undone.pop(key, None)
        if held:
            self._events.tally(syncer, "Deregistered", held, "taken out of Eureka")
        set_finalizer(self._access, syncer, present=False)

    def _let_go(self, key: SyncerKey, syncer: Object, why: str) -> None:
        """Release a syncer whose instances could not be taken out.

        They are renewed no more. The syncer's end is an event like any other, so that they are taken out as
        soon as Eureka answers, if they have not lapsed by then.
        """
        owner = str(ClusterOwner(self._cluster.name, *key))
        left = [one for registry in self._registries.values() for one in registry.abandon(owner)]
        names = [printable(f"{one.application} {one.instance_id}") for one in left]
        named = joined(names) or "nothing that is known of"
        note = f"released although its instances may still be in Eureka, because {why}; left behind: {named}"
        _log.warning("syncer released", extra={"syncer": "/".join(key), "left": len(left), "reason": why})
        self._events.record(syncer, Kind.WARNING, "LeftBehind", note)
        self._gone(key, left)
        set_finalizer(self._access, syncer, present=False)
        self._undone.pop(key, None)

    def _take_out(self, key: SyncerKey, syncer: Object | None, sources: Sources) -> int | None:
        """Deregister what a deleted syncer put in; how many instances, None where it has to wait for another.

        :raises RegistryError: something could not be deregistered.
        """
        owner = str(ClusterOwner(self._cluster.name, *key))
        wanted: Syncer | None = None
        if syncer is not None:
            with suppress(ConfigurationError):
                wanted = Syncer.from_object(syncer)
        if self._awaits_heirs(key, owner, sources):
            self._queue.add_after(key, HEIR_LOOK_SECONDS)
            return None
        held: list[Instance] = []
        done = 0
        failed: RegistryError | None = None
        for name, registry in self._registries.items():
            try:
                if wanted is not None and wanted.eureka == name:
                    require_read(registry, name)
                handed, shown = self._hand_over(key, owner, registry, sources)
            except RegistryError as error:
                failed = failed or error  # nothing is taken out here before that is done
                continue
            there = [one for one in registry.view.owned(owner) if one.key not in handed]
            held += there
            if wanted is not None and wanted.eureka == name:
                # What was registered shortly before a restart may be in no list yet.
                desired = sources.desired(wanted, self._cluster).instances
                mine = (one for one in desired if one.key not in handed and _may_be(one, owner, registry))
                there = [*mine, *there]
            leaves = plan((), there, owner)
            outcome = self._carry_out(replace(leaves, changes=(*shown, *leaves.changes)), owner, registry)
            done += len(outcome.done)
            for failure in outcome.failures:
                if not isinstance(failure.error, OwnershipConflict):
                    failed = failed or failure.error
                # Else somebody else's by now: not ours to remove, and nothing to wait for.
        if failed is not None:
            raise failed  # only now: one Eureka that is away keeps nothing standing at another
        if held and done:
            _log.info(
                "syncer is gone, its instances were deregistered",
                extra={"syncer": "/".join(key), "deregistered": len(held)},
            )
        for other in {other for one in held for other in sources.syncers_of(one.application)} - {key}:
            self._queue.add(other)  # for which they stood in the way
        self._gone(key, held)
        return len(held)

    def _awaits_heirs(self, key: SyncerKey, owner: str, sources: Sources) -> bool:
        """Whether another syncer may want some of these, and what it needs to know was not read yet."""
        while True:
            # Of all of them, so that they are waited for at the same time.
            awaited = [
                self._is_awaited(heir, registry, sources)
                for registry in self._registries.values()
                for heir in self._heirs(key, registry.view.owned(owner), sources)
            ]
            if not any(awaited) or not self._waits_at_once:
                return any(awaited)
            time.sleep(HEIR_LOOK_SECONDS)

    def _is_awaited(self, heir: SyncerKey, registry: Registry, sources: Sources) -> bool:
        """Whether what a syncer wants is not known yet, and was not for too long."""
        desired = self._wanted_by(heir, registry, sources)
        if desired is None:
            return False
        if not desired.is_unread:
            self._unread.pop(heir, None)
            return False
        now = elapsed_seconds()
        return now - self._unread.setdefault(heir, now) < HEIR_SECONDS

    @staticmethod
    def _heirs(key: SyncerKey, there: Iterable[Instance], sources: Sources) -> list[SyncerKey]:
        """Who registers under the same names."""
        names = {one.application for one in there}
        return sorted(set().union(*(sources.syncers_of(name) for name in names)) - {key})

    def _hand_over(
        self, key: SyncerKey, owner: str, registry: Registry, sources: Sources
    ) -> tuple[set[tuple[str, str]], tuple[Change, ...]]:
        """Give what another syncer wants as well to that one, as it stands.

        A syncer is renamed by making another one for the same endpoints and deleting the first: callers must
        not miss an instance meanwhile.

        :returns: which instances; and what was neither done nor failed, as in a dry run, to be shown beside
            what leaves.
        :raises RegistryError: something could not be given yet.
        """
        there = {one.key: one for one in registry.view.owned(owner)}
        heirs: dict[tuple[str, str], tuple[SyncerKey, Instance]] = {}
        for other in self._heirs(key, there.values(), sources):
            desired = self._wanted_by(other, registry, sources)
            for one in desired.instances if desired else ():
                if one.key in there:
                    heirs.setdefault(one.key, (other, one))
        steps = Plan(
            tuple(
                Change(Action.UPDATE, handed_over(want, there[one]), there[one])
                for one, (_, want) in heirs.items()
            )
        )
        outcome = self._carry_out(steps, owner, registry) if steps else Outcome()
        for failure in outcome.failures:
            if not isinstance(failure.error, OwnershipConflict):
                raise failure.error
        for heir in {heir for heir, _ in heirs.values()}:
            self._queue.add(heir)  # which was refused until now
        if outcome.done:
            _log.info(
                "syncer is gone, its instances were handed over to others that want them",
                extra={"syncer": "/".join(key), "handed_over": len(outcome.done)},
            )
        settled = {id(change) for change in outcome.done}
        settled |= {id(failure.change) for failure in outcome.failures}
        shown = tuple(change for change in steps.changes if id(change) not in settled)
        return {change.instance.key for change in (*outcome.done, *shown)}, shown

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


def _may_be(instance: Instance, owner: str, registry: Registry) -> bool:
    """Whether an instance is ``owner``'s, or nobody is known to have it."""
    held = registry.view.get(instance.key)
    return held is None or held.owner == owner


def require_read(registry: Registry, name: str) -> None:
    """Nothing is changed before the registry has been read once.

    :raises RegistryError: it has not.
    """
    if not registry.was_read:
        raise registry.failure or RegistryUnreachable(f"the Eureka {name!r} has not been read yet")
