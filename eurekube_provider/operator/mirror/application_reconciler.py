"""One application of a mirror: what its Service shall show, and the writes after which it does.

What is decided and what is written are apart, so that the writes of one application wait for no other's. Of
one application the Service comes first, then its slices, new ones before what goes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from eurekube_provider.core.errors import RegistryError
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.mirror import Mirror, MirrorForm
from eurekube_provider.core.mirror_addresses import AddressPolicy
from eurekube_provider.core.mirror_conditions import MirroredService
from eurekube_provider.core.mirror_endpoints import MirrorEndpoint, mirrored_endpoints
from eurekube_provider.core.mirror_guard import GuardVerdict, guarded, vanished
from eurekube_provider.core.mirror_slices import SlicePlan, plan_slices, shown_endpoints
from eurekube_provider.core.mirror_source import UnlistedInstances
from eurekube_provider.core.model import Instance
from eurekube_provider.core.problem import Problem
from eurekube_provider.operator.index import Object
from eurekube_provider.operator.mirror.concurrent_writes import Write
from eurekube_provider.operator.mirror.host_names import HostNames
from eurekube_provider.operator.mirror.mirror_objects import MirrorKey, application_of
from eurekube_provider.operator.mirror.mirror_writer import MirrorWriter
from eurekube_provider.operator.mirror.mirrored_service import (
    has_form,
    owner_reference,
    service_ports,
    slice_owner,
)
from eurekube_provider.operator.mirror.service_keeper import MirrorRound, ServiceKeeper

_log = logging.getLogger(__name__)


def _is_refused(endpoint: MirrorEndpoint, policy: AddressPolicy, mirror: Mirror) -> bool:
    """Whether an endpoint that is shown may be shown no more."""
    address = policy.judged(endpoint.address, mirror.allowed)
    return address is None or bool(address.refusal)


@dataclass(frozen=True, slots=True)
class _ServicePlan:
    """What a Service shall show.

    :ivar mirror: with its ports named as those of the Service that it adds to.
    :ivar service: as it stands, None where it does not; ``slices`` its slices that are ours.
    :ivar problems: of instances that cannot be shown.
    :ivar uses_names: whether an instance is known by a host's name.
    """

    application: str
    name: str
    mirror: Mirror
    service: Object | None
    slices: list[Object]
    problems: tuple[Problem, ...]
    verdict: GuardVerdict
    uses_names: bool


def _slice_plan(decision: _ServicePlan, owner: Mapping[str, Any]) -> SlicePlan:
    marks = slice_owner(decision.mirror, decision.application, decision.name, owner)
    return plan_slices(marks, decision.verdict.endpoints, decision.slices)


class ApplicationReconciler:
    """Decides for one application at a time of each mirror; the writes may be carried out by any threads."""

    def __init__(
        self,
        cluster: Cluster,
        writer: MirrorWriter,
        names: HostNames,
        keeper: ServiceKeeper,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster, self._writer, self._names, self._keeper = cluster, writer, names, keeper
        self._clock = clock
        self._held: dict[tuple[MirrorKey, str], Mapping[str, float]] = {}
        self._done: dict[tuple[MirrorKey, str], tuple[object, MirroredService]] = {}

    def decided(
        self, now: MirrorRound, application: str, name: str, instances: list[Instance]
    ) -> Write | None:
        """Decide what the Service of an application shall show.

        :param now: the part of the round in which what is found is noted.
        :returns: what is to be written, if anything may be: once, before the next round, on any thread.
        """
        service, slices = now.services.get(name), now.slices.get(name, [])
        place = (now.key, name)
        signature = self._signature(now, application, instances, service, slices)
        done = self._done.pop(place, None)
        if done is not None and done[0] == signature:
            self._done[place] = done
            now.shown.append(done[1])
            return None
        mirror = self._allowed(now, application, name, service)
        if mirror is None:
            if now.mirror.form is MirrorForm.ATTACHED or self._keeper.is_persons(now.key[0], name):
                self.take_away(now.key, name, None, slices)  # as of one that was ours until somebody took it
            return None
        # By another name, too: what is called there is called here from now on.
        moving = [one for other, one in now.shown_before.get(application, ()) if other != name]
        own = [one for one in slices if application_of(one) in ("", application)]  # not of one before it
        before = [
            one
            for one in shown_endpoints([*own, *moving])
            if not _is_refused(one, now.policy, now.mirror)  # networks may have been taken away since
        ]
        found = self._find_unlisted(
            now, application, vanished(before, {one.instance_id for one in instances})
        )
        uses_names = False

        def resolved(host: str) -> tuple[str, ...] | None:
            nonlocal uses_names
            uses_names = True
            return self._names.resolved(host)

        mapped = mirrored_endpoints(
            mirror,
            [*instances, *found.registered],
            self._cluster,
            now.policy,
            resolved,
            self._names.failure_of,
        )
        verdict = guarded(
            mapped,
            before,
            {instance_id for _, instance_id in found.gone},
            self._held.get(place, {}),
            self._clock(),
            mirror.hold_seconds,
        )
        is_final = not mapped.problems and not uses_names and not found.registered
        return partial(
            self._write,
            now,
            _ServicePlan(application, name, mirror, service, slices, mapped.problems, verdict, uses_names),
            signature if is_final else None,
        )

    def _allowed(
        self, now: MirrorRound, application: str, name: str, service: Object | None
    ) -> Mirror | None:
        """The mirror as it may show an application by this Service; None where it may not."""
        if now.mirror.form is MirrorForm.ATTACHED:
            return self._keeper.attached(now, name)
        is_free = service is not None or self._keeper.is_free(now, application, name)
        return now.mirror if is_free else None

    def _write(self, now: MirrorRound, decision: _ServicePlan, signature: object | None) -> None:
        """Write the Service, then its slices, and note what is shown.

        :param signature: what all of it depends on; None where it must be decided anew all the same.
        """
        application, name, verdict = decision.application, decision.name, decision.verdict
        room = SlicePlan()
        if decision.mirror.form is MirrorForm.ATTACHED:
            owner = owner_reference(now.item, is_controller=False)
        else:
            ports = service_ports(decision.mirror, verdict.endpoints, decision.service)
            room = self._room(decision, ports)
            self._writer.carry_out(room)
            service = self._keeper.have_service(now, application, name, decision.service, ports)
            if service is None:
                return
            owner = owner_reference(service, is_controller=False)
        plan = _slice_plan(decision, owner)
        if room:
            plan = replace(plan, creations=())
        if plan:
            self._writer.carry_out(plan)
            _log.info(
                "mirror was brought in line",
                extra={"mirror": "/".join(now.key), "service": name, "writes": len(plan)},
            )
        place = (now.key, name)
        self._held[place] = verdict.held
        now.expired += [f"{application} {instance_id}" for instance_id in verdict.expired]
        now.problems += decision.problems
        now.uses_names |= decision.uses_names
        held = sum(one.instance_id in verdict.held for one in verdict.endpoints)
        ready = sum(one.is_ready for one in verdict.endpoints)
        shown = MirroredService(application, name, len(verdict.endpoints), ready, held)
        now.shown.append(shown)
        if signature is not None and not plan and not room and not held:
            self._done[place] = (signature, shown)

    @staticmethod
    def _room(decision: _ServicePlan, ports: list[dict[str, Any]]) -> SlicePlan:
        """The slices that come before a Service whose ports get other names: it finds its endpoints by those.

        Where one is refused, the Service keeps the names that it has.
        """
        service = decision.service
        if service is None or not has_form(service, decision.mirror.form):
            return SlicePlan()
        stands = {str(one.get("name") or "") for one in (service.get("spec") or {}).get("ports") or ()}
        if stands == {one["name"] for one in ports}:
            return SlicePlan()
        return SlicePlan(_slice_plan(decision, owner_reference(service, is_controller=False)).creations)

    def _signature(
        self,
        now: MirrorRound,
        application: str,
        instances: list[Instance],
        service: Object | None,
        slices: list[Object],
    ) -> object:
        """All that what is shown depends on; equal ones need not be looked at again.

        Of an attached mirror also the Service that a person owns. Instances in another order count as others,
        which costs a read and no write.
        """
        other = self._keeper.service(now.key[0], now.mirror.attach_to) if now.mirror.attach_to else None
        return (
            application,
            now.item["metadata"].get("uid"),
            now.mirror,
            now.policy,
            instances,
            service["metadata"].get("resourceVersion") if service else None,
            sorted(str(one["metadata"].get("resourceVersion")) for one in slices),
            other,
        )

    def _find_unlisted(self, now: MirrorRound, application: str, ids: Iterable[str]) -> UnlistedInstances:
        """What became of instances that are called here and that Eureka does not list."""
        asked = [(application, instance_id) for instance_id in ids if instance_id]
        if not asked:
            return UnlistedInstances()
        try:
            return now.source.find_unlisted(asked)
        except RegistryError as error:
            _log.warning(
                "nobody says what became of instances",
                extra={"mirror": "/".join(now.key), "application": application, "error": str(error)},
            )
            return UnlistedInstances()

    def take_away(self, key: MirrorKey, name: str, service: Object | None, slices: Iterable[Object]) -> None:
        """Remove what a mirror shows no more, because a person said so."""
        if service is not None:
            self._writer.delete_service(service)
        for one in slices:
            self._writer.delete_slice(one)
        for table in (self._held, self._done):
            table.pop((key, name), None)

    def count_anew(self, key: MirrorKey) -> None:
        """Eureka does not answer: how long what vanished is kept counts from when it answers again.

        Who was to register again has had no time for it: a server that comes back may have lost its memory.
        """
        for place in [one for one in self._held if one[0] == key]:
            del self._held[place]

    def forget(self, key: MirrorKey) -> None:
        """The mirror is gone."""
        for table in (self._held, self._done):
            for place in [one for one in list(table) if one[0] == key]:
                table.pop(place, None)

    def forget_all(self) -> None:
        """Forget how long something was held: that counts anew for each replica that leads."""
        self._held.clear()
        self._done.clear()
