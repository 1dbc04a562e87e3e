"""Reads the situation of one syncer: the cluster, the registries, other syncers."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace

from eurekube_provider.core.brake import RELEASE_ANNOTATION
from eurekube_provider.core.condition_types import Reason
from eurekube_provider.core.decision import Situation, State
from eurekube_provider.core.errors import ConfigurationError, RegistryError
from eurekube_provider.core.identity import Cluster, ClusterOwner
from eurekube_provider.core.objects import Object
from eurekube_provider.core.plan import Policy
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.syncer import (
    FORCE_DELETE_ANNOTATION,
    Syncer,
    claimed_names,
    has_annotation,
    has_finalizer,
    is_deleted,
)
from eurekube_provider.kube.access import KubeAccess
from eurekube_provider.operator.brake_memory import BrakeMemory
from eurekube_provider.operator.ended_pods import EndedPods
from eurekube_provider.operator.heirs import Heirs
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.permission import Permissions
from eurekube_provider.operator.registries import Registries
from eurekube_provider.operator.sources import Sources


class SituationReader:
    """Reads, and changes nothing; any number of workers may share it, each with a syncer of its own.

    :param reads_each: have a first plan say what there is, although lists may be old: each instance is read.
    """

    def __init__(
        self,
        cluster: Cluster,
        access: KubeAccess,
        sources: Sources,
        permissions: Permissions,
        brake: BrakeMemory,
        *,
        reads_each: bool = False,
    ) -> None:
        self._cluster = cluster
        self._sources = sources
        self._permissions = permissions
        self._brake = brake
        self._pods = EndedPods(cluster, access, sources)
        self._heirs = Heirs(cluster, sources, permissions, waits_at_once=reads_each)
        self._reads_each = reads_each

    def forget(self, key: SyncerKey) -> None:
        """Forget a syncer that is gone."""
        self._pods.forget(key)

    def forget_all(self) -> None:
        """Forget what only holds for who leads."""
        self._heirs.forget_all()

    def read(self, key: SyncerKey, registries: Registries) -> tuple[Object | None, Situation]:
        """Return a custom resource, and what is known of it now.

        :raises RegistryError: no server of its registry answers, or that has not been read yet.
        """
        item = self._sources.syncers.get(*key)
        owner = str(ClusterOwner(self._cluster.name, *key))
        if item is None and not self._sources.knows_syncers_of(key[0]):
            return None, Situation(key, owner, State.UNKNOWN, registries.owned(owner))
        if item is None or is_deleted(item):
            return item, self._deleted(key, item, owner, registries)
        claimed = claimed_names(item)
        try:
            syncer = self._sources.parsed(item)
            refusal = self._permissions.refusal(syncer, claimed)
        except ConfigurationError as error:
            refusal = Problem(Reason.NOT_ALLOWED, str(error))
        if refusal is not None:
            situation = self._refused(key, item, owner, registries, refusal)
        else:
            situation = self._served(key, syncer, owner, registries, claimed)
        return item, self._with_history(situation, item, registries)

    def _served(
        self, key: SyncerKey, syncer: Syncer, owner: str, registries: Registries, claimed: frozenset[str]
    ) -> Situation:
        desired = self._sources.desired(syncer)
        home = registries[syncer.eureka]
        home.refresh([(syncer.application.upper(), one) for one in desired.terminating])
        if self._reads_each:
            there = (*desired.instances, *home.known(owner=owner))
            home.refresh([one.key for one in there], known_too=True)
        state = State.DOUBTFUL if desired.is_in_doubt else State.SERVED
        alike, doubts = frozenset[str](), dict[str, RegistryError | None]()
        if syncer.is_paused:
            state = State.PAUSED
        elif state is State.SERVED:
            alike, doubts = registries.alike_to(syncer.eureka, owner, desired.instances)
        situation = Situation(
            key,
            owner,
            state,
            registries.owned(owner),
            syncer.eureka,
            syncer,
            claimed=claimed,
            desired=desired,
            policy=syncer.policy,
            alike=alike,
            doubts=doubts,
        )
        asks = state is State.DOUBTFUL and not desired.is_unread
        return self._with_heirs(self._with_ends(situation, asks=asks))

    def _refused(
        self, key: SyncerKey, item: Object, owner: str, registries: Registries, refusal: Problem
    ) -> Situation:
        """Of its spec only the two fields that limit removals are believed."""
        spec = item.get("spec") or {}
        removes = (spec.get("policy") or Policy.SYNC) == Policy.SYNC
        policy = Policy.SYNC if removes else Policy.UPSERT_ONLY
        held = registries.owned(owner)
        situation = Situation(key, owner, State.REFUSED, held, refusal=refusal, policy=policy)
        return situation if spec.get("paused") else self._with_ends(situation, asks=True)

    def _deleted(self, key: SyncerKey, item: Object | None, owner: str, registries: Registries) -> Situation:
        self._heirs.forget(key)
        if item is not None and has_finalizer(item) and has_annotation(item, FORCE_DELETE_ANNOTATION):
            # Nobody is asked: this is the way out where Eureka or the cluster does not answer.
            return Situation(key, owner, State.DELETED, registries.owned(owner), is_forced=True)
        syncer = self._sources.asked(item)
        home = syncer.eureka if syncer is not None and syncer.eureka in registries else ""
        # What was registered shortly before a restart may be in no list yet, and somebody else may want it.
        desired = self._sources.desired(syncer).instances if syncer is not None and home else ()
        unread = None
        if home:
            with suppress(RegistryError):  # which the removal meets as well
                registries[home].refresh(one.key for one in desired)
            try:
                registries.require_read(home)
            except RegistryError as error:
                unread = error
        situation = Situation(
            key,
            owner,
            State.DELETED,
            registries.owned(owner),
            home,
            unlisted=[one for one in desired if registries[home].get(one.key) is None],
            unread=unread,
        )
        return self._with_heirs(self._with_ends(situation, asks=False))

    def _with_ends(self, situation: Situation, *, asks: bool) -> Situation:
        """Add which of the syncer's endpoints have ended.

        :param asks: whether the cluster is asked for pods that were not seen terminating.
        """
        may_leave = situation.may_leave
        if not (may_leave or asks):
            return situation
        seen = {one.instance_id for one in may_leave if self._sources.seen_terminating(one.instance_id)}
        seen |= situation.desired.terminating & {one.instance_id for one in may_leave}
        held = [one for there in situation.held.values() for one in there]
        ended = self._pods.ids(situation.key, held) if asks else frozenset[str]()
        if not (seen or ended):
            return situation
        return replace(situation, terminating=frozenset(seen), ended=ended)

    def _with_heirs(self, situation: Situation) -> Situation:
        """Add what other syncers want of what this one gives up."""
        given_up = situation.given_up
        if not any(given_up.values()):
            return situation
        heirs = self._heirs.of(situation.key, given_up)
        return replace(situation, heirs=heirs or {}, is_awaited=heirs is None)

    def _with_history(self, situation: Situation, item: Object, registries: Registries) -> Situation:
        """Add what registries forgot, whatever stands beside, and what the brake knows."""
        key, owner, state, syncer = situation.key, situation.owner, situation.state, situation.syncer
        forgotten = {}
        if state is not State.SERVED:
            forgotten = {name: self._pods.restorable(key, at, owner) for name, at in registries.items()}
        names = {name: {one.application for one in lost} for name, lost in forgotten.items()}
        if syncer is not None:
            names[situation.home] = {syncer.application.upper(), *names.get(situation.home, ())}
        now = time.monotonic()
        is_released = has_annotation(item, RELEASE_ANNOTATION)
        return replace(
            situation,
            forgotten=forgotten,
            neighbours={
                name: [one for each in those for one in registries[name].known(application=each)]
                for name, those in names.items()
            },
            brake=self._brake.history(key, owner, now, is_released=is_released),
            now=now,
            unix_now=time.time(),
        )
