"""The reconcile of one application of a mirror: the decision on its Service, and the writes that follow.

Applications are decided one after the other; their writes do not wait for each other. The writes of one
application have an order: first the Service, then its slices, created ones before deleted ones.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from eurekube_provider.core.address_policy import AddressPolicy
from eurekube_provider.core.errors import KubernetesError, RegistryError
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.mirror import Mirror, mirrored_application
from eurekube_provider.core.mirror_conditions import MirroredServiceCounts
from eurekube_provider.core.mirror_decision import (
    MirrorDecision,
    MirrorDecisionKind,
    MirrorSituation,
    decide_mirrored_service,
)
from eurekube_provider.core.mirror_endpoints import HostLookup, MirrorEndpoint, host_names_to_resolve
from eurekube_provider.core.mirror_slices import SlicePlan, endpoints_in_slices
from eurekube_provider.core.mirror_source import UnlistedInstances
from eurekube_provider.core.mirrored_service import owner_reference
from eurekube_provider.core.model import EMPTY_MAPPING, Instance
from eurekube_provider.operator.index import Object
from eurekube_provider.operator.mirror.concurrent_writes import Write
from eurekube_provider.operator.mirror.host_names import HostNameCache
from eurekube_provider.operator.mirror.mirror_objects import (
    MirrorKey,
    MirrorObjects,
    service_name_of_mirrors_slice,
)
from eurekube_provider.operator.mirror.mirror_writer import MirrorWriter
from eurekube_provider.operator.mirror.service_writer import MirrorRound, ServiceWriter

_log = logging.getLogger(__name__)

_PATCH_REFUSAL_CODES = frozenset({400, 403, 422, 500})
"""HTTP statuses of a patch that a webhook or a quota refused, or that a webhook did not answer."""


def _is_address_refused(endpoint: MirrorEndpoint, policy: AddressPolicy, mirror: Mirror) -> bool:
    """Return whether the address policy forbids the address of a mirrored endpoint, or it is no address."""
    address = policy.judge_address(endpoint.address, mirror.allowed_networks)
    return address is None or bool(address.refusal_clause)


class ApplicationReconciler:
    """The decisions on each application of a mirror, one at a time; any thread may carry out the writes."""

    def __init__(
        self,
        cluster: Cluster,
        objects: MirrorObjects,
        writer: MirrorWriter,
        names: HostNameCache,
        services: ServiceWriter,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster, self._objects, self._writer = cluster, objects, writer
        self._names, self._services, self._clock = names, services, clock
        self._held: dict[tuple[MirrorKey, str], Mapping[str, float]] = {}
        self.released: set[MirrorKey] = set()
        """Mirrors whose brake was released on a person's request, and whose held endpoints are not removed
        yet.
        """
        self._done: dict[tuple[MirrorKey, str], tuple[MirrorSituation, MirroredServiceCounts]] = {}

    def decide_writes(
        self, round_: MirrorRound, application: str, name: str, instances: Sequence[Instance]
    ) -> Write | None:
        """Decide on the endpoints of an application's Service, and return the writes that it needs.

        :param round_: the round, which gets this application's results.
        :param name: the name of the Service.
        :returns: a function that makes the writes, to be called once before the next round, on any thread;
            None if no write is needed.
        """
        place = (round_.key, name)
        situation = self._situation(round_, application, name, instances)
        done = self._done.pop(place, None)
        if done is not None and done[0] == situation:
            self._done[place] = done
            round_.shown_services.append(done[1])
            return None
        round_ = round_.make_part()
        if isinstance(situation.mirror_or_problem, Mirror):
            situation = self._with_eureka_and_dns_answers(round_, situation)
        decision = decide_mirrored_service(situation)
        round_.problems += decision.problems
        if decision.kind is MirrorDecisionKind.WRITES_NOTHING:
            return None
        if decision.kind is MirrorDecisionKind.REMOVES_SLICES:
            return partial(self._delete_slices_and_owner_reference, round_, name)
        if decision.verdict.released_ids and round_.key not in self.released:
            self.released.add(round_.key)
            self._writer.remove_release_annotation(
                round_.mirror_object, was_held=True
            )  # first: after a crash a person may release again
        return partial(self._write_service_and_slices, round_, situation, decision)

    def _situation(
        self, round_: MirrorRound, application: str, name: str, instances: Sequence[Instance]
    ) -> MirrorSituation:
        """Return the input of the decision on an application, from the local copies and Eureka's lists."""
        place, service = (round_.key, name), round_.services.get(name)
        return MirrorSituation(
            round_.mirror,
            self._cluster,
            round_.policy,
            application,
            name,
            owner_reference(round_.mirror_object),
            instances,
            service,
            round_.slices.get(name, ()),
            self._services.service(round_.key[0], name),
            "" if service is not None else self._objects.mirror_name_of_service(round_.key[0], name),
            self._services.slice_names_taken_by_others(round_.key[0], name),
            round_.server_urls,
            was_shown_by_this_replica=place in self._held,
            is_eureka_silent=round_.is_frozen,
            is_released=round_.is_brake_released,
            held_since_by_id=self._held.get(place, EMPTY_MAPPING),
            now=self._clock(),
        )

    def _with_eureka_and_dns_answers(
        self, round_: MirrorRound, situation: MirrorSituation
    ) -> MirrorSituation:
        """Return the situation with the endpoints that are shown now, and with the answers of Eureka and the
        DNS added.
        """
        application, mirror = situation.application, situation.mirror
        # Also under another name: callers of those endpoints call this Service from now on.
        moving = [
            one
            for one in round_.slices_by_application.get(application, ())
            if service_name_of_mirrors_slice(one) != situation.service_name
        ]
        own = [one for one in situation.slices if mirrored_application(one) in ("", application)]
        before = [
            one
            for one in endpoints_in_slices([*own, *moving])
            if not _is_address_refused(
                one, situation.policy, mirror
            )  # networks may have been taken away since
        ]
        # A slice of this mirror may belong to another Service by now, and other owners may have taken names.
        taken = (*round_.slice_names, *self._writer.taken_slice_names(round_.key[0]))
        situation = replace(situation, current_endpoints=before, taken_slice_names=taken)
        unlisted = self._look_up_unlisted(round_, application, situation.unlisted_ids)
        instances = [*situation.instances, *unlisted.registered]
        hosts = {
            host: HostLookup(self._names.addresses_of(host), self._names.failure_text_of(host))
            for host in host_names_to_resolve(mirror, instances, self._cluster, situation.policy)
        }
        return replace(situation, unlisted=unlisted, host_lookups=hosts)

    def _delete_slices_and_owner_reference(self, round_: MirrorRound, name: str) -> None:
        """Delete the mirror's slices of a Service that a person owns, and remove the mirror's owner reference
        from that Service.
        """
        self._services.remove_owner_reference(round_.mirror_object, name)
        self.delete_service_and_slices(round_.key, name, None, round_.slices.get(name, ()))

    def _write_service_and_slices(
        self, round_: MirrorRound, situation: MirrorSituation, decision: MirrorDecision
    ) -> None:
        """Write the Service, then its slices, and record the result in the round.

        :raises KubernetesError: the first refusal; what does not depend on it is written all the same.
        """
        name, verdict = situation.service_name, decision.verdict
        service, room = situation.service, SlicePlan()
        refusal: KubernetesError | None = None
        if decision.service is None:
            owner = situation.owner_reference
        else:
            if decision.must_write_slices_first and situation.service is not None:
                reference = owner_reference(situation.service)
                room = SlicePlan(decision.slice_plan(situation, reference).creations)
            if (refusal := self._writer.write_slices(room)) is not None:
                raise refusal
            try:
                service = self._services.ensure_service(
                    round_, situation.service, decision.service, must_recreate=decision.must_replace_service
                )
            except KubernetesError as error:
                # Where the Service keeps the names of its ports, it finds what its slices get now.
                keeps_names = not (decision.must_replace_service or decision.must_write_slices_first)
                if service is None or not keeps_names or error.status_code not in _PATCH_REFUSAL_CODES:
                    raise
                refusal = error
            if service is None:
                return
            owner = owner_reference(service)
        plan = decision.slice_plan(situation, owner)
        if room:
            plan = replace(plan, creations=())
        if plan:
            refusal = self._writer.write_slices(plan) or refusal
            if refusal is None and not self._writer.is_dry:
                _log.info(
                    "updated the EndpointSlices of a mirror's Service, so that callers follow Eureka",
                    extra={"mirror": "/".join(round_.key), "service": name, "writes": len(plan)},
                )
        place = (round_.key, name)
        if not round_.is_frozen:
            self._held[place] = verdict.held_since_by_id
        if refusal is not None:
            raise refusal
        round_.expired_instance_names += [
            f"{situation.application} {instance_id}" for instance_id in verdict.expired_ids
        ]
        round_.uses_host_names |= bool(situation.host_lookups)
        shown = decision.endpoint_counts(situation)
        round_.shown_services.append(shown)
        # What a write changed is seen in the next round, unless somebody undoes it before.
        if decision.is_time_independent and service is situation.service and not plan and not room:
            self._done[place] = (situation, shown)

    def _look_up_unlisted(
        self, round_: MirrorRound, application: str, ids: Iterable[str]
    ) -> UnlistedInstances:
        """Ask Eureka's servers about instances that the cluster shows and Eureka does not list; return their
        answers.
        """
        asked = [(application, instance_id) for instance_id in ids if instance_id]
        if not asked:
            return UnlistedInstances()
        try:
            return round_.source.look_up_unlisted(asked)
        except RegistryError as error:
            _log.warning(
                "failed to look up instances that Eureka's list lacks, keeping their endpoints for now",
                extra={"mirror": "/".join(round_.key), "application": application, "error": str(error)},
            )
            return UnlistedInstances()

    def delete_service_and_slices(
        self, key: MirrorKey, name: str, service: Object | None, slices: Iterable[Object]
    ) -> None:
        """Delete a Service and its slices, and forget their held endpoints.

        :param service: None to delete the slices alone.
        """
        if service is not None:
            self._writer.delete_service(service)
        for one in slices:
            self._writer.delete_slice(one)
        for table in (self._held, self._done):
            table.pop((key, name), None)

    def restart_hold_times(self, key: MirrorKey) -> None:
        """Begin again to count the time for which a mirror's missing instances are held, since Eureka does
        not answer, or a server was restarted lately.

        Such a server knows no instances, and they need time to register there again.
        """
        # In a copy: other Eurekas' mirrors are written meanwhile.
        for place in [one for one in list(self._held) if one[0] == key]:
            self._held[place] = {}

    def forget(self, key: MirrorKey) -> None:
        """Forget a mirror that was deleted."""
        self.released.discard(key)
        for table in (self._held, self._done):
            for place in [one for one in list(table) if one[0] == key]:
                table.pop(place, None)

    def on_leadership_lost(self) -> None:
        """Forget since when endpoints are held, since each new leader counts that time anew."""
        self._held.clear()
        self._done.clear()
        self.released.clear()
