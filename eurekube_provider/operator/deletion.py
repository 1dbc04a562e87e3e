"""How a deleted syncer goes: its instances leave every Eureka first, and nothing keeps it for ever.

It is let go when Eureka is clean, when a person asks for it, or when Eureka has been away for so long that a
namespace that waits for it does more harm than instances which lapse by themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from eurekube_provider.core.errors import EurekubeError, KubernetesError, OwnershipConflict, RegistryError
from eurekube_provider.core.identity import Cluster, ClusterOwner
from eurekube_provider.core.model import Instance
from eurekube_provider.core.objects import Object
from eurekube_provider.core.plan import plan
from eurekube_provider.core.quoting import printable
from eurekube_provider.core.wording import joined
from eurekube_provider.kube.access import SYNCERS, KubeAccess
from eurekube_provider.kube.finalizers import set_finalizer
from eurekube_provider.operator.index import SyncerKey, key_of
from eurekube_provider.operator.ownership_transfer import SUCCESSOR_POLL_SECONDS, OwnershipTransfer
from eurekube_provider.operator.registries import Registries
from eurekube_provider.operator.sources import Sources
from eurekube_provider.runtime.clock import elapsed_seconds

_log = logging.getLogger(__name__)

FINALIZER = "eurekube.io/deregister"
"""Keeps a deleted syncer until its instances are out of Eureka."""

FORCE_DELETE_ANNOTATION = "eurekube.io/force-delete"
"""With any value on a deleted syncer: let it go at once, whatever it leaves in Eureka."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """What became of a deleted syncer.

    :ivar is_gone: whether nothing of it is kept any more, and ``instances`` what went with it.
    :ivar deregistered: how many instances were taken out before it was let go.
    :ivar left_behind: why it was let go although instances may still be in Eureka; empty where it was not.
    :ivar concerned: syncers that must be reconciled because of this.
    :ivar again_seconds: when to reconcile it again; None where it is gone, or ``error`` says why it is tried
        again.
    """

    is_gone: bool = False
    instances: tuple[Instance, ...] = ()
    deregistered: int = 0
    left_behind: str = ""
    concerned: frozenset[SyncerKey] = frozenset()
    again_seconds: float | None = None
    error: EurekubeError | None = None


class Deletion:
    """Takes deleted syncers out; any number of workers may share it, each with a syncer of its own.

    :param release_after_seconds: how long a syncer waits for an Eureka that is away.
    """

    def __init__(
        self,
        cluster: Cluster,
        access: KubeAccess,
        sources: Sources,
        transfer: OwnershipTransfer,
        release_after_seconds: float,
    ) -> None:
        self._cluster = cluster
        self._access = access
        self._sources = sources
        self._transfer = transfer
        self._release_after_seconds = release_after_seconds
        self._undone: dict[SyncerKey, float] = {}  # since when a deletion cannot be carried out

    def forget_all(self) -> None:
        """Forget how long something has waited: that counts anew for each replica that leads."""
        self._undone.clear()

    def of(self, key: SyncerKey, syncer: Object | None, registries: Registries) -> Deleted:
        """Take out what a deleted syncer put in, wherever, then let it go.

        :param syncer: None where the object itself is gone already.
        """
        self._transfer.forget(key)
        if syncer is None or not has_finalizer(syncer):
            self._undone.pop(key, None)
            return self._take_out(key, syncer, registries)
        if FORCE_DELETE_ANNOTATION in (syncer["metadata"].get("annotations") or {}):
            why = f"the annotation {FORCE_DELETE_ANNOTATION} asks for it"
            return self._let_go(key, syncer, why, registries)
        taken_out = self._take_out(key, syncer, registries)
        if taken_out.error is not None:
            waited = elapsed_seconds() - self._undone.setdefault(key, elapsed_seconds())
            left = self._release_after_seconds - waited
            if left > 0:
                return replace(taken_out, again_seconds=left)
            why = f"Eureka could not be asked for {waited:.0f} s ({taken_out.error})"
            let_go = self._let_go(key, syncer, why, registries)
            return replace(let_go, concerned=taken_out.concerned)
        if not taken_out.is_gone:
            return taken_out
        self._undone.pop(key, None)
        return self._released(syncer, replace(taken_out, deregistered=len(taken_out.instances)))

    def _let_go(self, key: SyncerKey, syncer: Object, why: str, registries: Registries) -> Deleted:
        """Release a syncer whose instances could not be taken out.

        They are renewed no more. The syncer's end is an event like any other, so that they are taken out as
        soon as Eureka answers, if they have not lapsed by then.
        """
        left = []
        for name, there in registries.owned(str(ClusterOwner(self._cluster.name, *key))).items():
            for one in there:
                registries[name].let_lapse(one)
                left.append(one)
        names = [printable(f"{one.application} {one.instance_id}") for one in left]
        named = joined(names) or "nothing that is known of"
        note = f"released although its instances may still be in Eureka, because {why}; left behind: {named}"
        _log.warning("syncer released", extra={"syncer": "/".join(key), "left": len(left), "reason": why})
        deleted = self._released(syncer, Deleted(is_gone=True, instances=tuple(left), left_behind=note))
        if deleted.error is None:
            self._undone.pop(key, None)
        return deleted

    def _released(self, syncer: Object, deleted: Deleted) -> Deleted:
        try:
            set_finalizer(self._access, SYNCERS, syncer, FINALIZER, present=False)
        except KubernetesError as error:
            return replace(deleted, error=error)
        return deleted

    def _take_out(self, key: SyncerKey, item: Object | None, registries: Registries) -> Deleted:
        """Deregister what a deleted syncer put in; it is not gone where it has to wait for another."""
        owner = str(ClusterOwner(self._cluster.name, *key))
        syncer = self._sources.asked(item)
        # What was registered shortly before a restart may be in no list yet, and somebody else may want it.
        desired = self._sources.desired(syncer).instances if syncer is not None else ()
        home = syncer.eureka if syncer is not None and syncer.eureka in registries else None
        if home is not None:
            with suppress(RegistryError):  # which the removal below meets as well
                registries[home].refresh(one.key for one in desired)
        leaving = registries.owned(owner)
        known = {(name, one.key) for name, there in leaving.items() for one in there}
        if self._transfer.are_awaited(key, leaving):
            return Deleted(again_seconds=SUCCESSOR_POLL_SECONDS)
        held: list[Instance] = []
        done = 0
        failed: RegistryError | None = None
        concerned: set[SyncerKey] = set()
        for name, registry in registries.items():
            try:
                if name == home:
                    registries.require_read(name)
                given = self._transfer.hand_over(key, owner, name, leaving[name], registries)
                concerned |= given.successors
                if given.failed is not None:
                    raise given.failed
            except RegistryError as error:
                failed = failed or error  # nothing is taken out here before that is done
                continue
            passed = given.passed
            there = [
                one
                for one in registry.known(owner=owner)
                if one.key not in passed and (name, one.key) in known
            ]
            held += there
            if name == home:
                unlisted = [one for one in desired if one.key not in passed and registry.get(one.key) is None]
                others = self._transfer.successors(key, name, unlisted)
                there += [one for one in unlisted if one.key not in others]
            leaves = plan((), there, owner)
            try:
                outcome = registries.apply(
                    name, replace(leaves, changes=(*given.shown, *leaves.changes)), owner
                )
            except RegistryError as error:
                failed = failed or error
                continue
            done += len(outcome.done)
            for failure in outcome.failures:
                if not isinstance(failure.error, OwnershipConflict):
                    failed = failed or failure.error
                # Else somebody else's by now: not ours to remove, and nothing to wait for.
        if failed is not None:  # only now: one Eureka that is away keeps nothing standing at another
            return Deleted(concerned=frozenset(concerned), error=failed)
        if held and done:
            _log.info(
                "syncer is gone, its instances were deregistered",
                extra={"syncer": "/".join(key), "deregistered": len(held)},
            )
        for name in {one.application for one in held}:
            concerned |= self._sources.syncers_of(name)  # for which they stood in the way
        concerned.discard(key)
        left = {(name, one.key) for name, there in registries.owned(owner).items() for one in there}
        if not known >= left:
            # Found to be this syncer's meanwhile: others are asked first, as ever.
            return Deleted(concerned=frozenset({*concerned, key}))
        return Deleted(is_gone=True, instances=tuple(held), concerned=frozenset(concerned))


def has_finalizer(syncer: Object) -> bool:
    """Whether the object, as we know it, has ours."""
    return FINALIZER in (syncer["metadata"].get("finalizers") or ())


def awaiting_release(syncers: Iterable[Object]) -> frozenset[SyncerKey]:
    """The syncers that were deleted and wait for us to let them go."""
    return frozenset(
        key_of(one) for one in syncers if one["metadata"].get("deletionTimestamp") and has_finalizer(one)
    )
