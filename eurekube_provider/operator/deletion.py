"""How a deleted syncer goes: its instances leave every Eureka first, and nothing keeps it for ever.

It is let go when Eureka is clean, when a person asks for it, or when Eureka has been away for so long that a
namespace that waits for it does more harm than instances which lapse by themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from eurekube_provider.core.errors import (
    ConfigurationError,
    KubernetesError,
    OwnershipConflict,
    RegistryError,
    RegistryUnreachable,
)
from eurekube_provider.core.identity import Cluster, ClusterOwner
from eurekube_provider.core.model import Instance
from eurekube_provider.core.plan import plan
from eurekube_provider.core.quoting import printable
from eurekube_provider.core.registry import Registry, Unread
from eurekube_provider.core.syncer import Syncer
from eurekube_provider.kube.access import MERGE_PATCH, SYNCERS, KubeAccess
from eurekube_provider.kube.events import EventRecorder, EventType
from eurekube_provider.operator.conditions import joined
from eurekube_provider.operator.index import SyncerKey, key_of
from eurekube_provider.operator.ownership_transfer import SUCCESSOR_POLL_SECONDS, Apply, OwnershipTransfer
from eurekube_provider.operator.queue import WorkQueue
from eurekube_provider.operator.sources import Sources
from eurekube_provider.runtime.clock import elapsed_seconds

_log = logging.getLogger(__name__)

FINALIZER = "eurekube.io/deregister"
"""Keeps a deleted syncer until its instances are out of Eureka."""

_ATTEMPTS = 3

FORCE_DELETE_ANNOTATION = "eurekube.io/force-delete"
"""With any value on a deleted syncer: let it go at once, whatever it leaves in Eureka."""

Object = Mapping[str, Any]


class Deletion:
    """Takes deleted syncers out; any number of workers may share it, each with a syncer of its own.

    :param release_after_seconds: how long a syncer waits for an Eureka that is away.
    :param gone: called with a syncer that is gone and what it had registered.
    """

    def __init__(
        self,
        cluster: Cluster,
        access: KubeAccess,
        registries: Mapping[str, Registry],
        events: EventRecorder,
        queue: WorkQueue[SyncerKey],
        carry_out: Apply,
        successors: OwnershipTransfer,
        release_after_seconds: float,
        gone: Callable[[SyncerKey, list[Instance]], None],
    ) -> None:
        self._cluster = cluster
        self._access = access
        self._registries = registries
        self._events = events
        self._queue = queue
        self._carry_out = carry_out
        self._successors = successors
        self._release_after_seconds = release_after_seconds
        self._gone = gone
        self._undone: dict[SyncerKey, float] = {}  # since when a deletion cannot be carried out

    def forget_all(self) -> None:
        """Another replica leads: how long something has waited counts anew for each."""
        self._undone.clear()

    def of(self, key: SyncerKey, syncer: Object | None, sources: Sources) -> None:
        """Take out what a deleted syncer put in, wherever, then let it go.

        :param syncer: None where the object itself is gone already.
        :raises RegistryError: something could not be taken out yet.
        """
        self._successors.forget(key)
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
        left = []
        for registry in self._registries.values():
            for one in registry.known(owner=owner):
                registry.let_lapse(one)
                left.append(one)
        names = [printable(f"{one.application} {one.instance_id}") for one in left]
        named = joined(names) or "nothing that is known of"
        note = f"released although its instances may still be in Eureka, because {why}; left behind: {named}"
        _log.warning("syncer released", extra={"syncer": "/".join(key), "left": len(left), "reason": why})
        self._events.record(syncer, EventType.WARNING, "LeftBehind", note)
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
        # What was registered shortly before a restart may be in no list yet, and somebody else may want it.
        desired = sources.desired(wanted, self._cluster).instances if wanted is not None else ()
        if wanted is not None and wanted.eureka in self._registries:
            with suppress(RegistryError):  # which the removal below meets as well
                self._registries[wanted.eureka].refresh(one.key for one in desired)
        leaving = {name: registry.known(owner=owner) for name, registry in self._registries.items()}
        known = {(name, one.key) for name, there in leaving.items() for one in there}
        awaited = [(self._registries[name], there) for name, there in leaving.items()]
        if self._successors.are_awaited(key, awaited, sources):
            self._queue.add_after(key, SUCCESSOR_POLL_SECONDS)
            return None
        held: list[Instance] = []
        done = 0
        failed: RegistryError | None = None
        for name, registry in self._registries.items():
            try:
                if wanted is not None and wanted.eureka == name:
                    require_read(registry, name)
                handed = self._successors.hand_over(key, owner, registry, leaving[name], sources)
                if handed.failed is not None:
                    raise handed.failed
            except RegistryError as error:
                failed = failed or error  # nothing is taken out here before that is done
                continue
            passed = handed.passed
            there = [
                one
                for one in registry.known(owner=owner)
                if one.key not in passed and (name, one.key) in known
            ]
            held += there
            if wanted is not None and wanted.eureka == name:
                unlisted = [one for one in desired if one.key not in passed and registry.get(one.key) is None]
                others = self._successors.of(key, registry, unlisted, sources)
                there += [one for one in unlisted if one.key not in others]
            leaves = plan((), there, owner)
            steps = replace(leaves, changes=(*handed.shown, *leaves.changes))
            outcome = self._carry_out(steps, owner, registry)
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
        left = [(name, one.key) for name, at in self._registries.items() for one in at.known(owner=owner)]
        if not known.issuperset(left):
            self._queue.add(key)  # found to be this syncer's meanwhile: others are asked first, as ever
            return None
        self._gone(key, held)
        return len(held)


def require_read(registry: Registry, name: str) -> None:
    """Nothing is changed before the registry has been read once.

    :raises RegistryError: it has not.
    """
    condition = registry.condition()
    if isinstance(condition, Unread):
        raise condition.error or RegistryUnreachable(f"the Eureka {name!r} has not been read yet")


def has_finalizer(syncer: Mapping[str, Any]) -> bool:
    """Whether the object, as we know it, has ours."""
    return FINALIZER in (syncer["metadata"].get("finalizers") or ())


def set_finalizer(access: KubeAccess, syncer: Mapping[str, Any], *, present: bool) -> None:
    """Add or remove ours beside those of others; a syncer that is gone needs none.

    :raises KubernetesError: the API refused, or did not answer.
    """
    path = SYNCERS.path(syncer["metadata"]["namespace"], syncer["metadata"]["name"])
    for attempt in range(_ATTEMPTS):
        try:
            current = access.get(path)["metadata"]
            others = [name for name in current.get("finalizers") or () if name != FINALIZER]
            if current.get("deletionTimestamp") and present:
                return
            finalizers = [*others, FINALIZER] if present else others
            body = {"metadata": {"resourceVersion": current["resourceVersion"], "finalizers": finalizers}}
            access.request("PATCH", path, body=body, content_type=MERGE_PATCH)
        except KubernetesError as error:
            if error.status_code == 404:
                return
            if error.status_code == 409 and attempt + 1 < _ATTEMPTS:
                continue
            raise
        return


def awaiting_release(syncers: Iterable[Object]) -> frozenset[SyncerKey]:
    """Those that were deleted and wait for us to let them go."""
    return frozenset(
        key_of(one) for one in syncers if one["metadata"].get("deletionTimestamp") and has_finalizer(one)
    )
