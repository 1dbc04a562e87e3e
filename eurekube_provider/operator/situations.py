"""The reader of one syncer's situation: the cluster's objects, the registries, other syncers."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from eurekube_provider.core import self_registered
from eurekube_provider.core.brake import RELEASE_ANNOTATION
from eurekube_provider.core.condition_types import Reason
from eurekube_provider.core.decision import RULES, Situation, State
from eurekube_provider.core.errors import ConfigurationError, RegistryError
from eurekube_provider.core.identity import Cluster, ClusterOwner, cluster_of, with_cluster, without_cluster
from eurekube_provider.core.mapping import Desired, limited_to_registered_ports, under_held_ids
from eurekube_provider.core.model import Instance
from eurekube_provider.core.objects import Object
from eurekube_provider.core.plan import Policy
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.registry import Registry
from eurekube_provider.core.self_registered import SelfRegistration
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
from eurekube_provider.operator.pod_registrations import PodRegistrations
from eurekube_provider.operator.registries import Registries
from eurekube_provider.operator.sources import Sources


class SituationReader:
    """The reader of situations, which changes nothing; workers may share it, each with a syncer of its own.

    :param previous_names: returns the former names of the cluster.
    :param reads_each: True to read each instance, so that a first plan tells the present state though lists
        may be old.
    """

    def __init__(
        self,
        cluster: Cluster,
        access: KubeAccess,
        sources: Sources,
        permissions: Permissions,
        brake: BrakeMemory,
        previous_names: Callable[[], Collection[str]] = tuple,
        *,
        reads_each: bool = False,
    ) -> None:
        self._cluster = cluster
        self._sources = sources
        self._permissions = permissions
        self._brake = brake
        self._previous_names = previous_names
        self._pods = EndedPods(access, sources)
        self._registrations = PodRegistrations(access, sources)
        self._heirs = Heirs(cluster, sources, permissions, waits_at_once=reads_each)
        self._reads_each = reads_each

    def forget(self, key: SyncerKey) -> None:
        """Forget a syncer that was deleted."""
        self._pods.forget(key)
        self._registrations.forget(key)
        self._brake.forget(key)

    def forget_all(self) -> None:
        """Forget the leader's memory: another replica leads."""
        self._heirs.forget_all()

    def read(self, key: SyncerKey, registries: Registries) -> tuple[Object | None, Situation]:
        """Return a syncer's custom resource and its situation.

        :raises RegistryError: no server of its registry answers, or the registry has not been read yet.
        """
        item = self._sources.syncers.get(*key)
        owner = str(ClusterOwner(self._cluster.name, *key))
        if item is None and not self._sources.knows_syncers_of(key[0]):
            unknown = Situation(key, owner, State.UNKNOWN, registries.owned(owner))
            return None, self._with_former(unknown, registries)
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
        situation = self._with_history(situation, item, registries)
        return item, self._with_strangers(situation, item, registries)

    def _served(
        self, key: SyncerKey, syncer: Syncer, owner: str, registries: Registries, claimed: frozenset[str]
    ) -> Situation:
        desired = self._sources.desired(syncer)
        home = registries[syncer.eureka]
        home.refresh([(syncer.application.upper(), one) for one in desired.terminating])
        self._refresh_former(key, home, desired.instances)
        if self._reads_each:
            there = (*desired.instances, *home.known(owner=owner))
            home.refresh([one.key for one in there], known_too=True)
        state = State.DOUBTFUL if desired.is_in_doubt else State.SERVED
        if syncer.is_paused:
            state = State.PAUSED
        situation = self._with_former(
            Situation(
                key,
                owner,
                state,
                registries.owned(owner),
                home=syncer.eureka,
                syncer=syncer,
                claimed=claimed,
                policy=syncer.policy,
            ),
            registries,
            desired.instances,
        )
        desired = self._under_held_ids(situation, desired)
        same_eureka, doubts = frozenset[str](), dict[str, RegistryError | None]()
        if state is State.SERVED:
            same_eureka, doubts = registries.same_eureka(syncer.eureka, owner, desired.instances)
        situation = replace(situation, desired=desired, same_eureka=same_eureka, doubts=doubts)
        asks = state is State.DOUBTFUL and not desired.is_unread
        if asks or state is State.PAUSED:
            situation = self._with_taken(situation)
        return self._with_heirs(self._with_ends(situation, asks=asks))

    def _refused(
        self, key: SyncerKey, item: Object, owner: str, registries: Registries, refusal: Problem
    ) -> Situation:
        """Return the situation of a refused syncer: of its spec only the two fields that limit removals
        count.
        """
        spec = item.get("spec") or {}
        removes = (spec.get("policy") or Policy.SYNC) == Policy.SYNC
        policy = Policy.SYNC if removes else Policy.UPSERT_ONLY
        held = registries.owned(owner)
        refused = Situation(key, owner, State.REFUSED, held, refusal=refusal, policy=policy)
        situation = self._with_former(refused, registries)
        if spec.get("paused"):  # so that what leaves is not removed
            return self._with_taken(replace(situation, policy=Policy.UPSERT_ONLY))
        return self._with_ends(self._with_taken(situation), asks=True)

    def _deleted(self, key: SyncerKey, item: Object | None, owner: str, registries: Registries) -> Situation:
        self._heirs.forget(key)
        if item is not None and has_finalizer(item) and has_annotation(item, FORCE_DELETE_ANNOTATION):
            # Nobody is asked: this is the way out where Eureka or the cluster does not answer.
            return Situation(key, owner, State.DELETED, registries.owned(owner), is_forced=True)
        syncer = self._sources.asked(item)
        home = syncer.eureka if syncer is not None and syncer.eureka in registries else ""
        # What was registered shortly before a restart may be in no list yet, and somebody else may want it.
        asked = self._sources.desired(syncer) if syncer is not None and home else Desired()
        if home:
            with suppress(RegistryError):  # which the removal meets as well
                self._refresh_former(key, registries[home], asked.instances)
        deleted = Situation(key, owner, State.DELETED, registries.owned(owner))
        deleted = self._with_former(deleted, registries, asked.instances)
        desired = self._under_held_ids(deleted, asked).instances
        unread = None
        if home:
            with suppress(RegistryError):  # which the removal meets as well
                registries[home].refresh(one.key for one in desired)
            try:
                registries.require_read(home)
            except RegistryError as error:
                unread = error
        situation = replace(
            deleted,
            held=registries.owned(owner),
            home=home,
            unlisted=[one for one in desired if registries[home].get(one.key) is None],
            unread=unread,
        )
        return self._with_heirs(self._with_ends(situation, asks=False))

    def _refresh_former(self, key: SyncerKey, home: Registry, wanted: Iterable[Instance]) -> None:
        """Read instances that the syncer may have under former names of its cluster, though no list shows
        them yet.

        An operator that used another name of the cluster may have registered them a moment ago, and has
        ended.

        :raises RegistryError: no server answers.
        """
        if not (previous := self._previous_names()):
            return
        owners = [str(ClusterOwner(name, *key)) for name in (self._cluster.name, *previous)]
        there = {without_cluster(one.instance_id) for owner in owners for one in home.known(owner=owner)}
        missing = [one for one in wanted if without_cluster(one.instance_id) not in there]
        home.refresh(
            (one.key[0], with_cluster(one.instance_id, name)) for one in missing for name in previous
        )

    def _with_former(
        self, situation: Situation, registries: Registries, wanted: Iterable[Instance] = ()
    ) -> Situation:
        """Add the syncer's instances under other names of its cluster.

        An instance that is not wanted, or is also registered under the present name, is read singly: a list
        may still show an instance that was removed, and a take-over would register it again.
        """
        found = registries.called_otherwise(self._cluster, situation.key)
        if not found:
            return situation
        previous = self._previous_names()
        if RULES[situation.state].takes_over:
            endpoints = {without_cluster(one.instance_id) for one in wanted}
            for name, there in found.items():
                lacking = endpoints - {without_cluster(one.instance_id) for one in situation.held[name]}
                ended = [one.key for one in there if without_cluster(one.instance_id) not in lacking]
                with suppress(RegistryError):  # which the take-over meets as well
                    registries[name].refresh(ended, known_too=True)
            found = registries.called_otherwise(self._cluster, situation.key)
        former, unclaimed = {}, {}
        for name, there in found.items():
            former[name] = [one for one in there if cluster_of(one.owner) in previous]
            unclaimed[name] = [one for one in there if cluster_of(one.owner) not in previous]
        return replace(situation, former=former, unclaimed=unclaimed)

    def _under_held_ids(self, situation: Situation, desired: Desired) -> Desired:
        """Return the desired instances under the ids by which the syncer has registered them."""
        ours = (situation.held, situation.former)
        held = [one for by_name in ours for there in by_name.values() for one in there]
        return under_held_ids(limited_to_registered_ports(desired, held), held, self._cluster.name)

    def _with_taken(self, situation: Situation) -> Situation:
        """Add the syncer's addresses that other pods have now."""
        held = situation.registered
        taken = self._pods.taken_addresses(situation.key, held) if held else {}
        return replace(situation, taken=taken) if taken else situation

    def _with_ends(self, situation: Situation, *, asks: bool) -> Situation:
        """Add the syncer's endpoints that have ended.

        :param asks: True to ask the cluster for pods that were not seen terminating.
        """
        may_leave = situation.may_leave
        if not (may_leave or asks):
            return situation
        seen = {one.instance_id for one in may_leave if self._sources.seen_terminating(one.instance_id)}
        seen |= situation.desired.terminating & {one.instance_id for one in may_leave}
        ended = self._pods.ids(situation.key, situation.registered) if asks else frozenset[str]()
        if not (seen or ended):
            return situation
        return replace(situation, terminating=frozenset(seen), ended=ended)

    def _with_heirs(self, situation: Situation) -> Situation:
        """Add the other syncers that want the instances which this syncer gives up."""
        given_up = situation.given_up
        if not any(given_up.values()):
            return situation
        heirs = self._heirs.of(situation.key, given_up)
        return replace(situation, heirs=heirs or {}, is_awaited=heirs is None)

    def _with_strangers(self, situation: Situation, item: Object, registries: Registries) -> Situation:
        """Add the instances that the syncer's own pods registered, and other users of its names."""
        syncer, key = situation.syncer, situation.key
        if syncer is None:
            return situation
        registry, application = registries[situation.home], syncer.application.upper()
        beside = situation.neighbours[situation.home]
        # Of most applications everything is a syncer's, and none is looked at by itself.
        unowned = (
            [one for one in beside if not one.owner] if "" in registry.owners(called=application) else []
        )
        before = self_registered.registrations_in(item)
        if unowned or before:
            situation = self._with_self_registered(situation, registry, unowned, before)
        else:
            self._registrations.forget(key)
        joins = None
        if situation.state is not State.PAUSED or situation.held[situation.home]:
            own_ids = {one.instance_id for one in situation.self_registered}
            own_ids |= {one.instance_id for one in situation.twins.values()}
            joins = self._permissions.not_reserved(syncer, unowned, own_ids)
        odd = [one for one in unowned if one.unreadable and one.key not in situation.desired.keys]
        found = (joins, self_registered.unreadable_message(odd))
        notes = tuple(one for one in found if one is not None)
        return replace(situation, notes=(*situation.notes, *notes)) if notes else situation

    def _with_self_registered(
        self,
        situation: Situation,
        registry: Registry,
        unowned: Sequence[Instance],
        before: Sequence[SelfRegistration],
    ) -> Situation:
        """Add the instances that the syncer's own pods registered, and those whose pods are gone.

        :param unowned: instances under the syncer's application that no Eurekube registered.
        :param before: the registrations in the syncer's present status.
        """
        syncer, key, wanted = situation.syncer, situation.key, situation.desired.instances
        if syncer is None:
            return situation
        application, namespace = syncer.application.upper(), syncer.selector.namespace
        suspects = self_registered.suspects(wanted, unowned)
        own = self._registrations.own(key, namespace, suspects)
        twins = self_registered.twins_of(wanted, unowned, own)
        seen = self_registered.remembered(twins, before, wanted, unowned)
        # Before the namespace was read nothing is an endpoint.
        dead, why = self._registrations.gone(key, namespace, () if situation.desired.is_unread else seen)
        removable = list[Instance]()
        if syncer.removes_dead_self_registered and situation.state is State.SERVED:
            removable, why = self._registrations.removable(key, registry, dead, application)
        notes = (self_registered.dead_message(dead, application, why),) if dead else ()
        return replace(situation, twins=twins, removable=removable, self_registered=seen, notes=notes)

    def _with_history(self, situation: Situation, item: Object, registries: Registries) -> Situation:
        """Add instances that registries lost, other instances of the same applications, and the brake's
        history.
        """
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
            brake=self._brake.history(
                key, owner, now, is_released=is_released, parent=self._sources.parent_of(key)
            ),
            now=now,
            unix_now=time.time(),
        )
