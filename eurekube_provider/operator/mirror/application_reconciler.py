"""One application of a mirror: the inputs of its decision, and the writes that carry the decision out.

Applications are decided one after the other; their writes do not wait for each other. The writes of one
application have an order: first the Service, then its slices, created ones before deleted ones.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial

from eurekube_provider.core.address_policy import AddressPolicy
from eurekube_provider.core.errors import RegistryError
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.mirror import Mirror, application_of
from eurekube_provider.core.mirror_conditions import MirroredService
from eurekube_provider.core.mirror_decision import (
    HostAnswer,
    MirrorDecision,
    MirrorOutcome,
    MirrorSituation,
    decide_mirrored,
)
from eurekube_provider.core.mirror_endpoints import MirrorEndpoint, host_names
from eurekube_provider.core.mirror_slices import SlicePlan, shown_endpoints
from eurekube_provider.core.mirror_source import UnlistedInstances
from eurekube_provider.core.mirrored_service import owner_reference
from eurekube_provider.core.model import EMPTY, Instance
from eurekube_provider.operator.index import Object
from eurekube_provider.operator.mirror.concurrent_writes import Write
from eurekube_provider.operator.mirror.host_names import HostNames
from eurekube_provider.operator.mirror.mirror_objects import MirrorKey, MirrorObjects
from eurekube_provider.operator.mirror.mirror_writer import MirrorWriter
from eurekube_provider.operator.mirror.service_writer import MirrorRound, ServiceWriter

_log = logging.getLogger(__name__)


def _is_refused(endpoint: MirrorEndpoint, policy: AddressPolicy, mirror: Mirror) -> bool:
    """Return whether a mirrored endpoint may not be shown any longer."""
    address = policy.judged(endpoint.address, mirror.allowed)
    return address is None or bool(address.refusal)


class ApplicationReconciler:
    """The decisions for each application of a mirror, one at a time; any threads may carry out their
    writes.
    """

    def __init__(
        self,
        cluster: Cluster,
        objects: MirrorObjects,
        writer: MirrorWriter,
        names: HostNames,
        manager: ServiceWriter,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster, self._objects, self._writer = cluster, objects, writer
        self._names, self._services, self._clock = names, manager, clock
        self._held: dict[tuple[MirrorKey, str], Mapping[str, float]] = {}
        self.released: set[MirrorKey] = set()
        """Mirrors whose release was obeyed, while some held endpoints are still to be removed."""
        self._done: dict[tuple[MirrorKey, str], tuple[MirrorSituation, MirroredService]] = {}

    def decided(
        self, now: MirrorRound, application: str, name: str, instances: list[Instance]
    ) -> Write | None:
        """Decide what the Service of an application shall show.

        :param now: the part of the round that collects this application's results.
        :returns: the writes, if any are needed: to be called once, before the next round, on any thread.
        """
        place = (now.key, name)
        situation = self._situation(now, application, name, instances)
        done = self._done.pop(place, None)
        if done is not None and done[0] == situation:
            self._done[place] = done
            now.shown.append(done[1])
            return None
        if isinstance(situation.shown, Mirror):
            situation = self._with_answers(now, situation)
        decision = decide_mirrored(situation)
        now.problems += decision.problems
        if decision.end is MirrorOutcome.KEEPS:
            return None
        if decision.end is MirrorOutcome.LEAVES:
            return partial(self._leave, now, name)
        if decision.verdict.released and now.key not in self.released:
            self.released.add(now.key)
            self._writer.take_off_release(now.item)  # first: who dies now may be asked again
        return partial(self._write, now, situation, decision)

    def _situation(
        self, now: MirrorRound, application: str, name: str, instances: list[Instance]
    ) -> MirrorSituation:
        """Return the input of the decision, from the local copies and Eureka's lists."""
        place, service = (now.key, name), now.services.get(name)
        return MirrorSituation(
            now.mirror,
            self._cluster,
            now.policy,
            application,
            name,
            owner_reference(now.item, is_controller=False),
            instances,
            service,
            now.slices.get(name, []),
            self._services.service(now.key[0], name),
            "" if service is not None else self._objects.mirror_of(now.key[0], name),
            self._services.strangers(now.key[0], name),
            now.read_from,
            is_known=place in self._held,
            is_silent=now.is_frozen,
            is_released=now.is_released,
            held_since=self._held.get(place, EMPTY),
            now=self._clock(),
        )

    def _with_answers(self, now: MirrorRound, situation: MirrorSituation) -> MirrorSituation:
        """Return the situation with the endpoints shown so far, and with the answers of Eureka and the
        DNS.
        """
        application, mirror = situation.application, situation.mirror
        # By another name, too: what is called there is called here from now on.
        moving = [one for other, one in now.shown_before.get(application, ()) if other != situation.name]
        own = [one for one in situation.slices if application_of(one) in ("", application)]
        before = [
            one
            for one in shown_endpoints([*own, *moving])
            if not _is_refused(one, situation.policy, mirror)  # networks may have been taken away since
        ]
        # A slice of ours may have been given to another Service; and names may be others'.
        taken = [str(one["metadata"]["name"]) for those in now.slices.values() for one in those]
        taken += self._writer.taken_names(now.key[0])
        situation = replace(situation, before=before, taken=taken)
        unlisted = self._find_unlisted(now, application, situation.gaps)
        instances = [*situation.instances, *unlisted.registered]
        hosts = {
            host: HostAnswer(self._names.resolved(host), self._names.failure_of(host))
            for host in host_names(mirror, instances, self._cluster, situation.policy)
        }
        return replace(situation, unlisted=unlisted, hosts=hosts)

    def _leave(self, now: MirrorRound, name: str) -> None:
        """Delete the mirror's slices of a Service that a person owns."""
        self._services.disown(now.item, name)
        self.take_away(now.key, name, None, now.slices.get(name, ()))

    def _write(self, now: MirrorRound, situation: MirrorSituation, decision: MirrorDecision) -> None:
        """Write the Service, then its slices, and record the shown endpoints."""
        name, verdict = situation.name, decision.verdict
        service, room = situation.service, SlicePlan()
        if decision.service is None:
            owner = situation.owner
        else:
            if decision.is_renamed and situation.service is not None:
                reference = owner_reference(situation.service, is_controller=False)
                room = SlicePlan(decision.slices(situation, reference).creations)
            self._writer.carry_out(room)
            service = self._services.ensure_service(
                now, situation.service, decision.service, is_replaced=decision.is_replaced
            )
            if service is None:
                return
            owner = owner_reference(service, is_controller=False)
        plan = decision.slices(situation, owner)
        if room:
            plan = replace(plan, creations=())
        if plan:
            self._writer.carry_out(plan)
            _log.info(
                "updated a mirror",
                extra={"mirror": "/".join(now.key), "service": name, "writes": len(plan)},
            )
        place = (now.key, name)
        if not now.is_frozen:
            self._held[place] = verdict.held
        now.expired += [f"{situation.application} {instance_id}" for instance_id in verdict.expired]
        now.uses_names |= bool(situation.hosts)
        shown = decision.service_status(situation)
        now.shown.append(shown)
        # What a write changed is seen in the next round, unless somebody undoes it before.
        if decision.is_final and service is situation.service and not plan and not room:
            self._done[place] = (situation, shown)

    def _find_unlisted(self, now: MirrorRound, application: str, ids: Iterable[str]) -> UnlistedInstances:
        """Return the fate of instances that the cluster shows and that Eureka does not list."""
        asked = [(application, instance_id) for instance_id in ids if instance_id]
        if not asked:
            return UnlistedInstances()
        try:
            return now.source.find_unlisted(asked)
        except RegistryError as error:
            _log.warning(
                "failed to look up instances that Eureka's list lacks",
                extra={"mirror": "/".join(now.key), "application": application, "error": str(error)},
            )
            return UnlistedInstances()

    def take_away(self, key: MirrorKey, name: str, service: Object | None, slices: Iterable[Object]) -> None:
        """Delete a Service and slices that a mirror does not show any longer, because a person said so."""
        if service is not None:
            self._writer.delete_service(service)
        for one in slices:
            self._writer.delete_slice(one)
        for table in (self._held, self._done):
            table.pop((key, name), None)

    def restart_holds(self, key: MirrorKey) -> None:
        """Restart the hold of a mirror's missing instances, since Eureka does not answer.

        A server that comes back may have lost its memory, and instances need time to register there again.
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

    def forget_all(self) -> None:
        """Forget since when endpoints are held: each new leader counts that time anew."""
        self._held.clear()
        self._done.clear()
        self.released.clear()
