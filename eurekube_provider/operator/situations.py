"""The reader of one syncer's situation: the cluster's objects, the registries, other syncers."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from eurekube_provider.core import self_registered
from eurekube_provider.core.brake import RELEASE_BRAKE_ANNOTATION
from eurekube_provider.core.condition_types import Reason
from eurekube_provider.core.decision import RULES_BY_STATE, SyncerSituation, SyncerState
from eurekube_provider.core.errors import ConfigurationError, RegistryError
from eurekube_provider.core.identity import (
    Cluster,
    ClusterOwner,
    cluster_name_of_owner,
    id_with_cluster,
    id_without_cluster,
)
from eurekube_provider.core.mapping import (
    DesiredInstances,
    keep_registered_ids,
    keep_registered_labels,
    limited_to_registered_ports,
)
from eurekube_provider.core.model import Instance
from eurekube_provider.core.objects import Object, is_being_deleted
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
)
from eurekube_provider.kube.access import KubeAccess
from eurekube_provider.operator.brake_memory import BrakeMemory
from eurekube_provider.operator.ended_pods import EndedPodSearch
from eurekube_provider.operator.heirs import NextOwnerSearch
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.permission import Permissions
from eurekube_provider.operator.pod_registrations import SelfRegistrationCheck
from eurekube_provider.operator.registries import Registries
from eurekube_provider.operator.sources import ClusterCache


class SituationReader:
    """The reader of situations, which changes nothing; workers may share it, each with a syncer of its own.

    :param previous_cluster_names: returns the former names of the cluster.
    :param reads_each_instance: True to read each instance, so that a first plan tells the present state
        though lists may be old.
    """

    def __init__(
        self,
        cluster: Cluster,
        access: KubeAccess,
        sources: ClusterCache,
        permissions: Permissions,
        brake: BrakeMemory,
        previous_cluster_names: Callable[[], Collection[str]] = tuple,
        *,
        reads_each_instance: bool = False,
    ) -> None:
        self._cluster = cluster
        self._sources = sources
        self._permissions = permissions
        self._brake = brake
        self._previous_names = previous_cluster_names
        self._pods = EndedPodSearch(access, sources)
        self._registrations = SelfRegistrationCheck(access, sources)
        self._next_owners = NextOwnerSearch(cluster, sources, permissions, waits_at_once=reads_each_instance)
        self._reads_each = reads_each_instance

    def forget(self, key: SyncerKey) -> None:
        """Forget a syncer that was deleted."""
        self._pods.forget(key)
        self._registrations.forget(key)
        self._brake.forget(key)

    def read(self, key: SyncerKey, registries: Registries) -> tuple[Object | None, SyncerSituation]:
        """Return a syncer's custom resource and its situation.

        :raises RegistryError: no server of its registry answers, or the registry has not been read yet.
        """
        item = self._sources.syncers.get(*key)
        owner = str(ClusterOwner(self._cluster.name, *key))
        if item is None and (
            not self._sources.knows_syncers_of(key[0]) or self._sources.has_just_vanished(key)
        ):
            held, state = registries.instances_of_owner(owner), SyncerState.UNKNOWN
            renamed = self._instances_under_other_cluster_names(key, state, held, registries)
            return None, SyncerSituation(key, owner, state, held, **renamed)
        if item is None or is_being_deleted(item):
            return item, self._read_deleted_syncer(key, item, owner, registries)
        previously_claimed_names = claimed_names(item)
        try:
            syncer = self._sources.parse_spec(item)
            refusal = self._permissions.refusal(syncer, previously_claimed_names)
        except ConfigurationError as error:
            refusal = Problem(Reason.NOT_ALLOWED, str(error))
        if refusal is not None:
            return item, self._read_refused_syncer(key, item, owner, registries, refusal)
        return item, self._read_accepted_syncer(
            key, item, syncer, owner, registries, previously_claimed_names
        )

    def _read_accepted_syncer(
        self,
        key: SyncerKey,
        item: Object,
        syncer: Syncer,
        owner: str,
        registries: Registries,
        previously_claimed_names: frozenset[str],
    ) -> SyncerSituation:
        desired = self._sources.desired(syncer)
        home_registry = registries[syncer.eureka]
        home_registry.refresh([(syncer.application.upper(), one) for one in desired.terminating_ids])
        self._refresh_instances_of_former_names(key, home_registry, desired.instances)
        if self._reads_each:
            there = (*desired.instances, *home_registry.known_instances(owner=owner))
            home_registry.refresh([one.key for one in there], include_known=True)
        state = SyncerState.INCOMPLETE if desired.may_be_incomplete else SyncerState.COMPLETE
        if syncer.is_paused:
            state = SyncerState.PAUSED
        held = registries.instances_of_owner(owner)
        renamed = self._instances_under_other_cluster_names(key, state, held, registries, desired.instances)
        desired = self._with_registered_ids(desired, held, renamed)
        same_eureka, connections_to_maybe_same_eureka = frozenset[str](), dict[str, RegistryError | None]()
        if state is SyncerState.COMPLETE:
            same_eureka, connections_to_maybe_same_eureka = registries.connections_to_same_eureka(
                syncer.eureka, owner, desired.instances
            )
        situation = SyncerSituation(
            key,
            owner,
            state,
            held,
            home_registry=syncer.eureka,
            syncer=syncer,
            previously_claimed_names=previously_claimed_names,
            desired=desired,
            policy=syncer.policy,
            connections_to_same_eureka=same_eureka,
            connections_to_maybe_same_eureka=connections_to_maybe_same_eureka,
            **renamed,
            **self._other_instances_and_brake(key, owner, state, item, registries, syncer),
        )
        asks_api_server = state is SyncerState.INCOMPLETE and not desired.has_unread_objects
        if asks_api_server or state is SyncerState.PAUSED:
            situation = self._with_addresses_taken_by_pods(situation)
        situation = self._with_ended_endpoints(situation, asks_api_server=asks_api_server)
        return self._with_self_registered_and_name_users(
            self._with_next_owners(situation), item, syncer, registries[syncer.eureka]
        )

    def _read_refused_syncer(
        self, key: SyncerKey, item: Object, owner: str, registries: Registries, refusal: Problem
    ) -> SyncerSituation:
        """Return a refused syncer's situation: of its spec only the two fields that limit removals count."""
        spec = item.get("spec") or {}
        # A paused one's instances are not removed when they leave.
        removes = (spec.get("policy") or Policy.SYNC) == Policy.SYNC and not spec.get("paused")
        held, state = registries.instances_of_owner(owner), SyncerState.REFUSED
        situation = SyncerSituation(
            key,
            owner,
            state,
            held,
            refusal=refusal,
            policy=Policy.SYNC if removes else Policy.UPSERT_ONLY,
            **self._instances_under_other_cluster_names(key, state, held, registries),
            **self._other_instances_and_brake(key, owner, state, item, registries),
        )
        situation = self._with_addresses_taken_by_pods(situation)
        is_paused = spec.get("paused")
        return situation if is_paused else self._with_ended_endpoints(situation, asks_api_server=True)

    def _read_deleted_syncer(
        self, key: SyncerKey, item: Object | None, owner: str, registries: Registries
    ) -> SyncerSituation:
        self._next_owners.forget(key)
        if item is not None and has_finalizer(item) and has_annotation(item, FORCE_DELETE_ANNOTATION):
            # Nobody is asked: this is the way out where Eureka or the cluster does not answer.
            return SyncerSituation(
                key, owner, SyncerState.DELETED, registries.instances_of_owner(owner), is_force_deleted=True
            )
        syncer = self._sources.parse_spec_or_none(item)
        home_registry = syncer.eureka if syncer is not None and syncer.eureka in registries else ""
        # What was registered shortly before a restart may be in no list yet, and somebody else may want it.
        asked = self._sources.desired(syncer) if syncer is not None and home_registry else DesiredInstances()
        if home_registry:
            with suppress(RegistryError):  # which the removal meets as well
                self._refresh_instances_of_former_names(key, registries[home_registry], asked.instances)
        state, held = SyncerState.DELETED, registries.instances_of_owner(owner)
        renamed = self._instances_under_other_cluster_names(key, state, held, registries, asked.instances)
        desired = self._with_registered_ids(asked, held, renamed).instances
        home_registry_error = None
        if home_registry:
            with suppress(RegistryError):  # which the removal meets as well
                registries[home_registry].refresh(one.key for one in desired)
            try:
                registries.require_read(home_registry)
            except RegistryError as error:
                home_registry_error = error
        situation = SyncerSituation(
            key,
            owner,
            state,
            registries.instances_of_owner(owner),
            home_registry=home_registry,
            unlisted_instances=[one for one in desired if registries[home_registry].get(one.key) is None],
            home_registry_error=home_registry_error,
            **renamed,
        )
        return self._with_next_owners(self._with_ended_endpoints(situation, asks_api_server=False))

    def _refresh_instances_of_former_names(
        self, key: SyncerKey, home_registry: Registry, wanted: Iterable[Instance]
    ) -> None:
        """Read instances that the syncer may have under former names of its cluster and in no list yet.

        An operator that used another name may have registered them a moment ago, and has ended.
        """
        if not (previous := self._previous_names()):
            return
        owners = [str(ClusterOwner(name, *key)) for name in (self._cluster.name, *previous)]
        there = {
            id_without_cluster(one.instance_id)
            for owner in owners
            for one in home_registry.known_instances(owner=owner)
        }
        missing = [one for one in wanted if id_without_cluster(one.instance_id) not in there]
        home_registry.refresh(
            (one.key[0], id_with_cluster(one.instance_id, name)) for one in missing for name in previous
        )

    def _instances_under_other_cluster_names(
        self,
        key: SyncerKey,
        state: SyncerState,
        held: Mapping[str, Sequence[Instance]],
        registries: Registries,
        wanted: Iterable[Instance] = (),
    ) -> dict[str, Any]:
        """Return the situation's fields with the syncer's instances under other names of its cluster.

        An instance that is not wanted, or is also registered under the present name, is read singly: a list
        may still show an instance that was removed, and a take-over would register it again.
        """
        found = registries.instances_under_other_cluster_names(self._cluster, key)
        if not found:
            return {}
        previous = self._previous_names()
        if RULES_BY_STATE[state].takes_over_under_former_cluster_names:
            endpoints = {id_without_cluster(one.instance_id) for one in wanted}
            for name, there in found.items():
                lacking = endpoints - {id_without_cluster(one.instance_id) for one in held[name]}
                ended = [one.key for one in there if id_without_cluster(one.instance_id) not in lacking]
                with suppress(RegistryError):  # which the take-over meets as well
                    registries[name].refresh(ended, include_known=True)
            found = registries.instances_under_other_cluster_names(self._cluster, key)
        return {
            "under_former_cluster_names": {
                name: [one for one in there if cluster_name_of_owner(one.owner) in previous]
                for name, there in found.items()
            },
            "under_undeclared_cluster_names": {
                name: [one for one in there if cluster_name_of_owner(one.owner) not in previous]
                for name, there in found.items()
            },
        }

    def _with_registered_ids(
        self, desired: DesiredInstances, held: Mapping[str, Sequence[Instance]], renamed: Mapping[str, Any]
    ) -> DesiredInstances:
        """Return the desired instances under the ids by which the syncer has registered them.

        :param renamed: see :meth:`_instances_under_other_cluster_names`.
        """
        by_names = (held, renamed.get("under_former_cluster_names", {}))
        ours = [one for by_registry in by_names for there in by_registry.values() for one in there]
        desired = keep_registered_ids(limited_to_registered_ports(desired, ours), ours, self._cluster.name)
        return keep_registered_labels(desired, ours)

    def _with_addresses_taken_by_pods(self, situation: SyncerSituation) -> SyncerSituation:
        """Add the syncer's addresses that other pods have now."""
        held = situation.all_instances
        if held and (takers := self._pods.pods_reusing_addresses(situation.key, held)):
            return replace(situation, address_taker_by_id=takers)
        return situation

    def _with_ended_endpoints(self, situation: SyncerSituation, *, asks_api_server: bool) -> SyncerSituation:
        """Add the syncer's endpoints that have ended.

        :param asks_api_server: True to ask the API server for pods that were not seen terminating.
        """
        instances_not_desired_up = situation.instances_not_desired_up
        if not (instances_not_desired_up or asks_api_server):
            return situation
        seen = {
            one.instance_id
            for one in instances_not_desired_up
            if self._sources.was_instance_seen_terminating(one.instance_id)
        }
        seen |= situation.desired.terminating_ids & {one.instance_id for one in instances_not_desired_up}
        ended_ids = (
            self._pods.find_ended_instance_ids(situation.key, situation.all_instances)
            if asks_api_server
            else frozenset[str]()
        )
        if not (seen or ended_ids):
            return situation
        return replace(situation, terminating_ids=frozenset(seen), ended_ids=ended_ids)

    def _with_next_owners(self, situation: SyncerSituation) -> SyncerSituation:
        """Add the other syncers that want the instances which this syncer gives up."""
        available_to_next_owners = situation.available_to_next_owners
        if not any(available_to_next_owners.values()):
            return situation
        next_owners = self._next_owners.find_next_owners(situation.key, available_to_next_owners)
        return replace(situation, next_owners=next_owners or {}, awaits_next_owners=next_owners is None)

    def _with_self_registered_and_name_users(
        self, situation: SyncerSituation, item: Object, syncer: Syncer, registry: Registry
    ) -> SyncerSituation:
        """Add the instances that the syncer's own pods registered, and other users of its names.

        :param registry: the one that the syncer names.
        """
        application = syncer.application.upper()
        beside = situation.application_instances[situation.home_registry]
        # Of most applications everything is a syncer's, and none is looked at by itself.
        unowned = (
            [one for one in beside if not one.owner] if "" in registry.owners(lookup_name=application) else []
        )
        before = self_registered.read_self_registrations(item)
        if unowned or before:
            situation = self._with_self_registered(situation, syncer, registry, unowned, before)
        else:
            self._registrations.forget(situation.key)
        joins = None
        if (
            situation.state is not SyncerState.PAUSED
            or situation.instances_by_registry[situation.home_registry]
        ):
            own_ids = {one.instance_id for one in situation.self_registered}
            own_ids |= {one.instance_id for one in situation.self_registered_by_key.values()}
            joins = self._permissions.unreserved_names_note(syncer, unowned, own_ids)
        unreadable = None
        if unowned:
            odd = [one for one in unowned if one.unreadable and one.key not in situation.desired.keys]
            unreadable = self_registered.unreadable_instances_problem(odd)
        if joins is None and unreadable is None:
            return situation
        problems = (*situation.problems_with_foreign_instances, joins, unreadable)
        return replace(
            situation, problems_with_foreign_instances=tuple(one for one in problems if one is not None)
        )

    def _with_self_registered(
        self,
        situation: SyncerSituation,
        syncer: Syncer,
        registry: Registry,
        unowned: Sequence[Instance],
        before: Sequence[SelfRegistration],
    ) -> SyncerSituation:
        """Add the instances that the syncer's own pods registered, and those whose pods are gone.

        :param unowned: instances under the syncer's application that no Eurekube registered.
        :param before: the registrations in the syncer's present status.
        """
        key, wanted = situation.key, situation.desired.instances
        application, namespace = syncer.application.upper(), syncer.selector.namespace
        pods = self_registered.find_pods_to_verify(wanted, unowned)
        own = self._registrations.pods_with_address_other_than_node(key, namespace, pods)
        self_registered_by_key = self_registered.find_self_registered_instances(wanted, unowned, own)
        seen = self_registered.merge_self_registrations(self_registered_by_key, before, wanted, unowned)
        # Before the namespace was read nothing is an endpoint.
        dead, why = self._registrations.registrations_of_gone_pods(
            key, namespace, () if situation.desired.has_unread_objects else seen
        )
        removable_dead_registrations = list[Instance]()
        if syncer.removes_dead_self_registered and situation.state is SyncerState.COMPLETE:
            removable_dead_registrations, why = self._registrations.removable_instances(
                key, registry, dead, application
            )
        problem = self_registered.dead_registrations_problem(dead, application, why) if dead else None
        return replace(
            situation,
            self_registered_by_key=self_registered_by_key,
            removable_dead_registrations=removable_dead_registrations,
            self_registered=seen,
            problems_with_foreign_instances=(problem,) if problem is not None else (),
        )

    def _other_instances_and_brake(
        self,
        key: SyncerKey,
        owner: str,
        state: SyncerState,
        item: Object,
        registries: Registries,
        syncer: Syncer | None = None,
    ) -> dict[str, Any]:
        """Return the situation's fields with what registries lost, other instances of the applications, the
        brake's history, and the time.
        """
        restorable_by_registry = {}
        names = {syncer.eureka: {syncer.application.upper()}} if syncer is not None else {}
        for name, at in registries.items() if state is not SyncerState.COMPLETE else ():
            lost = self._pods.instances_lost_by_registry_to_restore(key, at, owner)
            restorable_by_registry[name] = lost
            names.setdefault(name, set()).update(one.application for one in lost)
        now, parent = time.monotonic(), self._sources.parent_of(key)
        is_released = has_annotation(item, RELEASE_BRAKE_ANNOTATION)
        return {
            "restorable_by_registry": restorable_by_registry,
            "application_instances": {
                name: [one for each in those for one in registries[name].known_instances(application=each)]
                for name, those in names.items()
            },
            "brake_history": self._brake.history(key, owner, now, is_released=is_released, parent=parent),
            "now": now,
            "unix_now": time.time(),
        }
