"""The decision for one application of a mirror: what its Service shows, and what is written for it. Pure.

All that was read is a :class:`MirrorSituation`; :func:`decide_mirrored_service` turns it into a
:class:`MirrorDecision`. The first of these rows that is true decides:

==========================================  =====================================================
Eureka is silent, and this replica has not  nothing is written: the replica before may have read
shown the application                       more
the Service is a person's, and does not     the mirror's slices are removed from it; nothing is
allow additions                             written while Eureka is silent
another mirror has the name                 nothing is written
Eureka is silent                            shown endpoints stay, and missing ones of the last
                                            list come back
else                                        the Service shows what Eureka lists and what the guard
                                            keeps
==========================================  =====================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from eurekube_provider.core.address_policy import AddressPolicy
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.mirror import Mirror, MirrorForm
from eurekube_provider.core.mirror_conditions import MirrorCondition, MirroredServiceCounts
from eurekube_provider.core.mirror_endpoints import (
    HostLookup,
    MirrorEndpoint,
    mirrored_endpoints,
    with_service_port_names,
)
from eurekube_provider.core.mirror_guard import (
    MIRROR_BRAKE_SECONDS,
    GuardVerdict,
    find_unlisted_ids,
    guard_endpoints,
    verdict_while_eureka_silent,
)
from eurekube_provider.core.mirror_slices import SlicePlan, plan_slices
from eurekube_provider.core.mirror_source import UnlistedInstances
from eurekube_provider.core.mirrored_service import (
    build_slice_metadata,
    has_cluster_ip_of_form,
    mirrored_service_body,
    mirrored_service_ports,
    uncalled_clause,
)
from eurekube_provider.core.model import EMPTY_MAPPING, Instance
from eurekube_provider.core.objects import (
    ATTACH_MIRROR_ANNOTATION,
    Object,
    is_mirrored,
    mirror_allowed_to_attach,
)
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.wording import format_list, join_sentences

_MAX_NAMES_IN_MESSAGE = 5
_NO_UNLISTED_INSTANCES = UnlistedInstances()


class MirrorDecisionKind(Enum):
    """The kinds of decisions on an application: to show it, to remove its slices, or to write nothing."""

    SHOWS_APPLICATION = "shows"
    REMOVES_SLICES = "leaves"
    """The mirror's slices are removed from a person's Service."""

    WRITES_NOTHING = "keeps"
    """Nothing is written."""


@dataclass(frozen=True, slots=True)
class MirrorSituation:
    """The facts about one application by which :func:`decide_mirrored_service` decides on its Service.

    Equal situations lead to equal decisions, unless the decision says that it was not final.

    :ivar service_name: the Service's name; ``owner_reference`` the owner reference to the mirror.
    :ivar instances: the instances that Eureka lists.
    :ivar service: the mirror's Service of that name; ``slices`` the mirror's slices of it.
    :ivar service_of_any_owner: the Service of that name, whoever owns it.
    :ivar mirror_with_service_name: the mirror that has the Service of that name; empty for none.
    :ivar foreign_slices: names of the Service's EndpointSlices that no mirror wrote.
    :ivar source: the URLs of the servers that are read, with spaces between them.
    :ivar was_shown_by_this_replica: True if this replica has shown the application.
    :ivar is_eureka_silent: True if Eureka does not answer.
    :ivar is_released: True if a person released the removals that wait.
    :ivar taken_slice_names: names of other EndpointSlices.
    :ivar current_endpoints: the endpoints that any Service of the mirror has now, and that may be called.
    :ivar unlisted: Eureka's answers on :attr:`unlisted_ids`.
    :ivar host_lookups: the lookups of the instances' host names.
    :ivar held_since_by_id: :attr:`GuardVerdict.held_since_by_id` of the last decision; ``now`` is by the same
        clock, in seconds.
    """

    mirror: Mirror
    cluster: Cluster
    policy: AddressPolicy
    application: str
    service_name: str
    owner_reference: Mapping[str, Any]
    instances: Sequence[Instance]
    service: dict[str, Any] | None = None
    slices: Sequence[Object] = ()
    service_of_any_owner: Object | None = None
    mirror_with_service_name: str = ""
    foreign_slices: tuple[str, ...] = ()
    source: str = ""
    was_shown_by_this_replica: bool = field(default=True, compare=False)
    is_eureka_silent: bool = field(default=False, compare=False)
    is_released: bool = field(default=False, compare=False)
    taken_slice_names: Sequence[str] = field(default=(), compare=False)
    current_endpoints: Sequence[MirrorEndpoint] = field(default=(), compare=False)
    unlisted: UnlistedInstances = field(default=_NO_UNLISTED_INSTANCES, compare=False)
    host_lookups: Mapping[str, HostLookup] = field(default_factory=lambda: EMPTY_MAPPING, compare=False)
    held_since_by_id: Mapping[str, float] = field(default_factory=lambda: EMPTY_MAPPING, compare=False)
    now: float = field(default=0.0, compare=False)

    @property
    def unlisted_ids(self) -> list[str]:
        """The ids of instances with endpoints that Eureka does not list, and that it is asked about."""
        if self.is_eureka_silent:
            return []
        return find_unlisted_ids(
            self.current_endpoints, {one.instance_id for one in self.instances}, self.source
        )

    @property
    def mirror_or_problem(self) -> Mirror | Problem | None:
        """The mirror, with its ports named as those of its Service, if the Service may show the application.

        Otherwise the problem; None while this replica cannot decide, since Eureka is silent and the replica
        has not shown the application.
        """
        if self.is_eureka_silent and not self.was_shown_by_this_replica:
            return None
        if self.mirror.form is MirrorForm.ATTACHED:
            return self._attached_mirror_or_problem()
        if self.service is not None:
            return self.mirror
        if self.mirror_with_service_name and self.mirror_with_service_name != self.mirror.name:
            why = f"the mirror {self.mirror_with_service_name} has it"
        elif not self.mirror_with_service_name and self.service_of_any_owner is not None:
            why = "it is somebody's, and is left alone"
        else:
            return self.mirror
        sentence = (
            f"{self.application} would be the Service {self.service_name}, of which there is one: {why}"
        )
        return Problem(MirrorCondition.NAME_TAKEN, sentence)

    def uncalled_clause(self, endpoint: MirrorEndpoint) -> str:
        """Return why the existing Service does not call an endpoint, as the end of a sentence about it; empty
        where it does.
        """
        is_attached = self.mirror.form is MirrorForm.ATTACHED
        service = self.service_of_any_owner if is_attached else self.service
        return uncalled_clause(service, self.mirror.form, endpoint.group) if service is not None else ""

    def _attached_mirror_or_problem(self) -> Mirror | Problem:
        if self.service_of_any_owner is None:
            why, remedy = "there is no such Service", "create it, or correct spec.attachTo"
        elif is_mirrored(self.service_of_any_owner):
            why, remedy = "it is a mirrored Service itself", "name another one in spec.attachTo"
        elif mirror_allowed_to_attach(self.service_of_any_owner) != self.mirror.name:
            wanted = f"{ATTACH_MIRROR_ANNOTATION}={self.mirror.name}"
            why, remedy = f"it does not have the annotation {wanted}", f"annotate it with {wanted}"
        else:
            ports = (self.service_of_any_owner.get("spec") or {}).get("ports") or ()
            mirror = with_service_port_names(ports, self.mirror)
            names = {str(one.get("name") or "") for one in ports}
            if names & {mirror.port.name, mirror.secure_port.name}:
                return mirror
            why = f"it has no port named {mirror.port.name} (spec.portName)"
            remedy = f"set spec.portName to one of {format_list(sorted(names), _MAX_NAMES_IN_MESSAGE)}"
        sentence = f"nothing is added to the Service {self.service_name}: {why}"
        return Problem(MirrorCondition.NOT_ATTACHED, sentence, remedy)


_NO_VERDICT = GuardVerdict((), EMPTY_MAPPING)


@dataclass(frozen=True, slots=True)
class MirrorDecision:
    """The writes for one application of a mirror, and its state for the mirror's status.

    :ivar mirror: the mirror, with its ports named as those of its Service; ``verdict`` the endpoints that are
        shown.
    :ivar service: the Service to write; None for a person's, to which slices are added.
    :ivar must_replace_service: True if the existing Service must be deleted first: a Service cannot gain or
        lose its cluster IP.
    :ivar must_write_slices_first: True if slices must be written before a Service that loses the name of a
        port: it finds its endpoints by these names. Where a slice is refused, the Service keeps its names.
    :ivar is_time_independent: True if an equal situation leads to the same decision, whatever the time and
        Eureka's answers.
    """

    kind: MirrorDecisionKind
    mirror: Mirror
    problems: tuple[Problem, ...] = ()
    verdict: GuardVerdict = _NO_VERDICT
    service: dict[str, Any] | None = None
    must_replace_service: bool = False
    must_write_slices_first: bool = False
    is_time_independent: bool = False

    def slice_plan(self, situation: MirrorSituation, owner: Mapping[str, Any]) -> SlicePlan:
        """Return the plan of the writes of EndpointSlices.

        :param owner: the owner reference to the slices' owner: the Service, or a mirror that adds to a
            person's.
        """
        mirror, name = self.mirror, situation.service_name
        marks = build_slice_metadata(mirror, situation.application, name, owner, situation.source)
        return plan_slices(marks, self.verdict.endpoints, situation.slices, situation.taken_slice_names)

    def endpoint_counts(self, situation: MirrorSituation) -> MirroredServiceCounts:
        """Return the numbers of the Service's endpoints for the mirror's status."""
        endpoints, verdict = self.verdict.endpoints, self.verdict
        for_long = {*verdict.braked_ids, *verdict.other_source_by_id}
        return MirroredServiceCounts(
            situation.application,
            situation.service_name,
            len(endpoints),
            sum(one.is_ready and not situation.uncalled_clause(one) for one in endpoints),
            sum(one.instance_id in verdict.held_since_by_id for one in endpoints),
            sum(one.instance_id in for_long for one in endpoints),
        )


def decide_mirrored_service(situation: MirrorSituation) -> MirrorDecision:
    """Decide what the Service of an application shows."""
    mirror = situation.mirror_or_problem
    if not isinstance(mirror, Mirror):
        problem = () if mirror is None else (mirror,)
        is_added = situation.mirror.form is MirrorForm.ATTACHED
        is_persons = situation.service_of_any_owner is not None and not is_mirrored(
            situation.service_of_any_owner
        )
        leaves = (is_added or is_persons) and not situation.is_eureka_silent
        return MirrorDecision(
            MirrorDecisionKind.REMOVES_SLICES if leaves else MirrorDecisionKind.WRITES_NOTHING,
            situation.mirror,
            problem,
        )
    unlisted = situation.unlisted
    mapped = mirrored_endpoints(
        mirror,
        [*situation.instances, *unlisted.registered],
        situation.cluster,
        situation.policy,
        situation.host_lookups,
    )
    if situation.is_eureka_silent:
        verdict = verdict_while_eureka_silent(mapped, situation.current_endpoints, situation.source)
    else:
        verdict = guard_endpoints(
            mapped,
            situation.current_endpoints,
            unlisted,
            situation.held_since_by_id,
            situation.now,
            mirror.hold_seconds,
            situation.source,
            is_released=situation.is_released,
        )
    problems = (
        *mapped.problems,
        *_uncalled_endpoint_problems(situation, verdict),
        *_foreign_endpoint_problems(situation, verdict),
        *_long_held_problems(situation, verdict),
    )
    is_time_independent = not (
        problems
        or situation.host_lookups
        or unlisted.registered
        or verdict.held_since_by_id
        or situation.is_eureka_silent
    )
    decision = MirrorDecision(
        MirrorDecisionKind.SHOWS_APPLICATION,
        mirror,
        problems,
        verdict,
        is_time_independent=is_time_independent,
    )
    if mirror.form is MirrorForm.ATTACHED:
        return decision
    ports = mirrored_service_ports(mirror, verdict.endpoints, situation.service)
    owner = {**situation.owner_reference, "controller": True}
    service = mirrored_service_body(mirror, owner, situation.application, situation.service_name, ports)
    if situation.service is None:
        return replace(decision, service=service)
    stands = (situation.service.get("spec") or {}).get("ports") or ()
    names = {str(one.get("name") or "") for one in stands}
    must_write_slices_first = not names <= {one["name"] for one in ports}
    must_replace_service = not has_cluster_ip_of_form(situation.service, mirror.form)
    return replace(
        decision,
        service=service,
        must_replace_service=must_replace_service,
        must_write_slices_first=must_write_slices_first and not must_replace_service,
    )


def _uncalled_endpoint_problems(situation: MirrorSituation, verdict: GuardVerdict) -> list[Problem]:
    """Return the problem of each endpoint that the Service does not call."""
    clauses = ((one, situation.uncalled_clause(one)) for one in verdict.endpoints if one.instance_id)
    return [
        Problem(
            MirrorCondition.NOT_CALLED,
            f"{situation.application} {one.instance_id} is not called at {one.address}: the Service "
            f"{situation.service_name} {clause}",
        )
        for one, clause in clauses
        if clause
    ]


def _foreign_endpoint_problems(situation: MirrorSituation, verdict: GuardVerdict) -> list[Problem]:
    """Return the problem that a Service has, or had until now, endpoints that do not come from Eureka."""
    application, name = situation.application, situation.service_name
    found = []
    if situation.mirror.form is not MirrorForm.ATTACHED:  # a person's has endpoints of its own
        selector = ((situation.service or {}).get("spec") or {}).get("selector")
        if selector:
            put = ", ".join(f"{key}={value}" for key, value in sorted(selector.items()))
            found.append(f"somebody put the selector {put} on it")
        if situation.foreign_slices:
            named = format_list(situation.foreign_slices, _MAX_NAMES_IN_MESSAGE)
            found.append(f"nobody of ours writes its EndpointSlices {named}")
    sentence = f"the Service {name} of {application} may call what does not come from Eureka"
    sentences = [f"{sentence}: {one}" for one in found]
    stays = {(one.group, one.address) for one in verdict.endpoints}
    by_hand = [
        one.address
        for one in situation.current_endpoints
        if not one.instance_id and (one.group, one.address) not in stays
    ]
    if by_hand:
        sentences.append(
            f"{application}: {join_sentences(by_hand)} of the Service {name} stood for no instance: taken out"
        )
    return [Problem(MirrorCondition.FOREIGN_ENDPOINTS, one) for one in sentences]


def _long_held_problems(situation: MirrorSituation, verdict: GuardVerdict) -> list[Problem]:
    """Return the problems of endpoints that the brake keeps beyond ``holdSeconds``: what each waits for."""
    application, found = situation.application, []
    if count := len(verdict.braked_ids):
        found.append(
            f"{application}: all or most endpoints would go by absence alone: Eureka lists {count} no more,"
            " and no server says that they left; they wait until it has been read for"
            f" {MIRROR_BRAKE_SECONDS / 60:.0f} min without a gap"
        )
    if verdict.other_source_by_id:
        servers = join_sentences(sorted(set(verdict.other_source_by_id.values())))
        found.append(
            f"{application}: {len(verdict.other_source_by_id)} endpoints came from {servers}, and are not "
            f"seen at {situation.source}, where their absence proves nothing: they wait until they are, or "
            "are released"
        )
    return [Problem(MirrorCondition.BRAKED, sentence) for sentence in found]
