"""The decision for one application of a mirror: what its Service shows, and what is written for it. Pure.

All that was read is a :class:`MirrorSituation`; :func:`decide_mirrored` turns it into a
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
from eurekube_provider.core.mirror_conditions import MirrorCondition, MirroredService
from eurekube_provider.core.mirror_endpoints import MirrorEndpoint, mirrored_endpoints, named_after
from eurekube_provider.core.mirror_guard import (
    BRAKE_SECONDS,
    GuardVerdict,
    Unlisted,
    guarded,
    restored,
    vanished,
)
from eurekube_provider.core.mirror_slices import SlicePlan, plan_slices
from eurekube_provider.core.mirror_source import UnlistedInstances
from eurekube_provider.core.mirrored_service import has_form, service_body, service_ports, slice_owner
from eurekube_provider.core.model import EMPTY, Instance
from eurekube_provider.core.objects import ATTACH_ANNOTATION, Object, attached_mirror, is_mirrored
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.wording import joined, listed

_MOST_NAMED = 5
_NOT_ASKED = UnlistedInstances()


class MirrorOutcome(Enum):
    """The outcomes of a decision."""

    SHOWS = "shows"
    LEAVES = "leaves"
    """The mirror's slices are removed from a person's Service."""

    KEEPS = "keeps"
    """Nothing is written."""


@dataclass(frozen=True, slots=True)
class HostAnswer:
    """The result of looking up a host name.

    :ivar addresses: the addresses of the last successful lookup; None before the first.
    :ivar failure: why the last lookup failed; empty where it succeeded.
    """

    addresses: tuple[str, ...] | None = None
    failure: str = ""


_NO_ANSWER = HostAnswer()


@dataclass(frozen=True, slots=True)
class MirrorSituation:
    """All that is known of an application when it is decided what its Service shows.

    Equal situations lead to equal decisions, unless the decision says that it was not final.

    :ivar name: the Service's name; ``owner`` the owner reference to the mirror.
    :ivar instances: the instances that Eureka lists.
    :ivar service: the mirror's Service of that name; ``slices`` the mirror's slices of it.
    :ivar standing: the Service of that name, whoever owns it.
    :ivar holder: the mirror that has the Service of that name; empty for none.
    :ivar strangers: names of the Service's EndpointSlices that no mirror wrote.
    :ivar source: the URLs of the servers that are read, with spaces between them.
    :ivar is_known: True if this replica has shown the application.
    :ivar is_silent: True if Eureka does not answer.
    :ivar is_released: True if a person released the removals that wait.
    :ivar taken: names of other EndpointSlices.
    :ivar before: the endpoints that any Service of the mirror has now, and that may be called.
    :ivar unlisted: Eureka's answers on :attr:`gaps`.
    :ivar hosts: the lookups of the instances' host names.
    :ivar held_since: :attr:`GuardVerdict.held` of the last decision; ``now`` is by the same clock, in
        seconds.
    """

    mirror: Mirror
    cluster: Cluster
    policy: AddressPolicy
    application: str
    name: str
    owner: Mapping[str, Any]
    instances: Sequence[Instance]
    service: dict[str, Any] | None = None
    slices: Sequence[Object] = ()
    standing: Object | None = None
    holder: str = ""
    strangers: tuple[str, ...] = ()
    source: str = ""
    is_known: bool = field(default=True, compare=False)
    is_silent: bool = field(default=False, compare=False)
    is_released: bool = field(default=False, compare=False)
    taken: Sequence[str] = field(default=(), compare=False)
    before: Sequence[MirrorEndpoint] = field(default=(), compare=False)
    unlisted: UnlistedInstances = field(default=_NOT_ASKED, compare=False)
    hosts: Mapping[str, HostAnswer] = field(default_factory=lambda: EMPTY, compare=False)
    held_since: Mapping[str, float] = field(default_factory=lambda: EMPTY, compare=False)
    now: float = field(default=0.0, compare=False)

    @property
    def gaps(self) -> list[str]:
        """The ids of instances that have endpoints and that Eureka does not list: Eureka is asked whether
        they ended.
        """
        if self.is_silent:
            return []
        return vanished(self.before, {one.instance_id for one in self.instances}, self.source)

    @property
    def shown(self) -> Mirror | Problem | None:
        """The mirror, with its ports named as those of its Service, if the Service may show the application.

        Otherwise the problem; None while this replica cannot decide, since Eureka is silent and the replica
        has not shown the application.
        """
        if self.is_silent and not self.is_known:
            return None
        if self.mirror.form is MirrorForm.ATTACHED:
            return self._attached()
        if self.service is not None:
            return self.mirror
        if self.holder and self.holder != self.mirror.name:
            why = f"the mirror {self.holder} has it"
        elif not self.holder and self.standing is not None:
            why = "it is somebody's, and is left alone"
        else:
            return self.mirror
        sentence = f"{self.application} would be the Service {self.name}, of which there is one: {why}"
        return Problem(MirrorCondition.NAME_TAKEN, sentence)

    def _attached(self) -> Mirror | Problem:
        if self.standing is None:
            why, remedy = "there is no such Service", "create it, or correct spec.attachTo"
        elif is_mirrored(self.standing):
            why, remedy = "it is a mirrored Service itself", "name another one in spec.attachTo"
        elif attached_mirror(self.standing) != self.mirror.name:
            wanted = f"{ATTACH_ANNOTATION}={self.mirror.name}"
            why, remedy = f"it does not have the annotation {wanted}", f"annotate it with {wanted}"
        else:
            ports = (self.standing.get("spec") or {}).get("ports") or ()
            mirror = named_after(ports, self.mirror)
            names = {str(one.get("name") or "") for one in ports}
            if names & {mirror.port.name, mirror.secure_port.name}:
                return mirror
            why = f"it has no port named {mirror.port.name} (spec.portName)"
            remedy = f"set spec.portName to one of {listed(sorted(names), _MOST_NAMED)}"
        sentence = f"nothing is added to the Service {self.name}: {why}"
        return Problem(MirrorCondition.NOT_ATTACHED, sentence, remedy)


_NO_VERDICT = GuardVerdict((), EMPTY)


@dataclass(frozen=True, slots=True)
class MirrorDecision:
    """The writes for one application of a mirror, and its state for the mirror's status.

    :ivar mirror: the mirror, with its ports named as those of its Service; ``verdict`` the endpoints that are
        shown.
    :ivar service: the Service to write; None for a person's, to which slices are added.
    :ivar is_replaced: True if the existing Service must be deleted first: a Service cannot gain or lose its
        cluster IP.
    :ivar is_renamed: True if slices must be written before a Service whose ports get other names: it finds
        its endpoints by these names. Where a slice is refused, the Service keeps its names.
    :ivar is_final: True if an equal situation leads to the same decision, whatever the time and Eureka's
        answers.
    """

    end: MirrorOutcome
    mirror: Mirror
    problems: tuple[Problem, ...] = ()
    verdict: GuardVerdict = _NO_VERDICT
    service: dict[str, Any] | None = None
    is_replaced: bool = False
    is_renamed: bool = False
    is_final: bool = False

    def slices(self, situation: MirrorSituation, owner: Mapping[str, Any]) -> SlicePlan:
        """Return the writes of EndpointSlices.

        :param owner: the owner reference to the slices' owner: the Service, or a mirror that adds to a
            person's.
        """
        mirror, name = self.mirror, situation.name
        marks = slice_owner(mirror, situation.application, name, owner, situation.source)
        return plan_slices(marks, self.verdict.endpoints, situation.slices, situation.taken)

    def service_status(self, situation: MirrorSituation) -> MirroredService:
        """Return the numbers of the Service's endpoints for the mirror's status."""
        endpoints, verdict = self.verdict.endpoints, self.verdict
        for_long = {*verdict.braked, *verdict.elsewhere}
        return MirroredService(
            situation.application,
            situation.name,
            len(endpoints),
            sum(one.is_ready for one in endpoints),
            sum(one.instance_id in verdict.held for one in endpoints),
            sum(one.instance_id in for_long for one in endpoints),
        )


def decide_mirrored(situation: MirrorSituation) -> MirrorDecision:
    """Decide what the Service of an application shows."""
    mirror = situation.shown
    if not isinstance(mirror, Mirror):
        problem = () if mirror is None else (mirror,)
        is_added = situation.mirror.form is MirrorForm.ATTACHED
        is_persons = situation.standing is not None and not is_mirrored(situation.standing)
        leaves = (is_added or is_persons) and not situation.is_silent
        return MirrorDecision(
            MirrorOutcome.LEAVES if leaves else MirrorOutcome.KEEPS, situation.mirror, problem
        )
    hosts, unlisted = situation.hosts, situation.unlisted
    mapped = mirrored_endpoints(
        mirror,
        [*situation.instances, *unlisted.registered],
        situation.cluster,
        situation.policy,
        lambda host: hosts.get(host, _NO_ANSWER).addresses,
        lambda host: hosts.get(host, _NO_ANSWER).failure,
    )
    if situation.is_silent:
        verdict = restored(mapped, situation.before, situation.source)
    else:
        known = Unlisted(
            {instance_id for _, instance_id in unlisted.gone},
            {instance_id for _, instance_id in unlisted.absent},
            situation.held_since,
            situation.source,
            situation.is_released,
        )
        verdict = guarded(mapped, situation.before, known, situation.now, mirror.hold_seconds)
    problems = (*mapped.problems, *_foreign(situation, verdict), *_held_for_long(situation, verdict))
    is_final = not (problems or hosts or unlisted.registered or verdict.held or situation.is_silent)
    decision = MirrorDecision(MirrorOutcome.SHOWS, mirror, problems, verdict, is_final=is_final)
    if mirror.form is MirrorForm.ATTACHED:
        return decision
    ports = service_ports(mirror, verdict.endpoints, situation.service)
    owner = {**situation.owner, "controller": True}
    service = service_body(mirror, owner, situation.application, situation.name, ports)
    if situation.service is None:
        return replace(decision, service=service)
    stands = (situation.service.get("spec") or {}).get("ports") or ()
    is_renamed = {str(one.get("name") or "") for one in stands} != {one["name"] for one in ports}
    is_replaced = not has_form(situation.service, mirror.form)
    return replace(
        decision, service=service, is_replaced=is_replaced, is_renamed=is_renamed and not is_replaced
    )


def _foreign(situation: MirrorSituation, verdict: GuardVerdict) -> list[Problem]:
    """Return the problem that a Service has, or had until now, endpoints that do not come from Eureka."""
    application, name = situation.application, situation.name
    found = []
    if situation.mirror.form is not MirrorForm.ATTACHED:  # a person's has endpoints of its own
        selector = ((situation.service or {}).get("spec") or {}).get("selector")
        if selector:
            put = ", ".join(f"{key}={value}" for key, value in sorted(selector.items()))
            found.append(f"somebody put the selector {put} on it")
        if situation.strangers:
            named = listed(situation.strangers, _MOST_NAMED)
            found.append(f"nobody of ours writes its EndpointSlices {named}")
    sentence = f"the Service {name} of {application} may call what does not come from Eureka"
    sentences = [f"{sentence}: {one}" for one in found]
    stays = {(one.group, one.address) for one in verdict.endpoints}
    by_hand = [
        one.address
        for one in situation.before
        if not one.instance_id and (one.group, one.address) not in stays
    ]
    if by_hand:
        sentences.append(
            f"{application}: {joined(by_hand)} of the Service {name} stood for no instance: taken out"
        )
    return [Problem(MirrorCondition.FOREIGN_ENDPOINTS, one) for one in sentences]


def _held_for_long(situation: MirrorSituation, verdict: GuardVerdict) -> list[Problem]:
    """Return the problems of endpoints that the brake keeps beyond ``holdSeconds``, with what each waits
    for.
    """
    application, found = situation.application, []
    if count := len(verdict.braked):
        found.append(
            f"{application}: all or most endpoints would go by absence alone: Eureka lists {count} no more,"
            " and no server says that they left; they wait until it has been read for"
            f" {BRAKE_SECONDS / 60:.0f} min without a gap"
        )
    if verdict.elsewhere:
        servers = joined(sorted(set(verdict.elsewhere.values())))
        found.append(
            f"{application}: {len(verdict.elsewhere)} endpoints came from {servers}, and are not seen at"
            f" {situation.source}, where their absence proves nothing: they wait until they are, or are"
            " released"
        )
    return [Problem(MirrorCondition.BRAKED, sentence) for sentence in found]
