"""The decision for one application of a mirror: what its Service shows, and what is written for it. Pure.

All that was read is a :class:`MirrorSituation`, of which :func:`decide_mirrored` makes a
:class:`MirrorDecision`. The first of these is true:

==========================================  =====================================================
Eureka is silent, and this replica has not  nothing is written: the one before may have read more
shown the application
the Service is a person's, and may not be   our slices leave it; nothing while Eureka is silent
added to
the name is another mirror's                nothing is written
Eureka is silent                            what is shown stays, and what lacks of the last list
                                            comes back
else                                        it shows what Eureka lists, and what the guard keeps
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


class End(Enum):
    """The ends of a decision."""

    SHOWS = "shows"
    LEAVES = "leaves"
    """The slices leave a Service that is a person's."""

    KEEPS = "keeps"
    """Nothing is written."""


@dataclass(frozen=True, slots=True)
class HostAnswer:
    """The addresses of a host's name.

    :ivar addresses: by the last good answer; None where there was none yet.
    :ivar failure: why the last lookup failed; empty where it did not.
    """

    addresses: tuple[str, ...] | None = None
    failure: str = ""


_NO_ANSWER = HostAnswer()


@dataclass(frozen=True, slots=True)
class MirrorSituation:
    """All that is known of an application when it is decided what its Service shows.

    Two that are equal are decided alike, unless the decision says that it was not final.

    :ivar name: of the Service; ``owner`` the owner reference to the mirror.
    :ivar instances: those that Eureka lists.
    :ivar service: the mirror's Service of that name; ``slices`` the mirror's slices of it.
    :ivar standing: the Service of that name, whosever it is.
    :ivar holder: the mirror that has the Service of that name; empty for none.
    :ivar strangers: names of EndpointSlices of the Service that are nobody's of ours.
    :ivar source: the URLs of the servers that are read, with spaces between them.
    :ivar is_known: True if this replica has shown the application.
    :ivar is_silent: True if Eureka does not answer.
    :ivar is_released: True if a person says that what waits may go.
    :ivar taken: names that other slices have.
    :ivar before: the endpoints that are called now by whatever Service of the mirror, and may be.
    :ivar unlisted: the fate of :attr:`gaps`.
    :ivar hosts: the names of hosts among the instances.
    :ivar held_since: :attr:`GuardVerdict.held` of the last time; ``now`` is by the same clock, in seconds.
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
        """The ids of instances that are called and that Eureka does not list: it is asked for their end."""
        if self.is_silent:
            return []
        return vanished(self.before, {one.instance_id for one in self.instances}, self.source)

    @property
    def shown(self) -> Mirror | Problem | None:
        """The mirror, its ports named as those of its Service, if the Service may show the application.

        Else why it may not; None where that is not for this replica to say.
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
    """The writes for an application, and what is notified of it.

    :ivar mirror: with its ports named as those of its Service; ``verdict`` the endpoints that are shown.
    :ivar service: the Service as it must be; None for a person's, to which slices are added.
    :ivar is_replaced: True if the Service that stands must go first: whether it has an address is for good.
    :ivar is_renamed: True if slices come before a Service whose ports get other names: it finds its endpoints
        by those. Where one is refused, the Service keeps the names that it has.
    :ivar is_final: True if an equal situation is decided alike, whatever the time and Eureka's answers.
    """

    end: End
    mirror: Mirror
    problems: tuple[Problem, ...] = ()
    verdict: GuardVerdict = _NO_VERDICT
    service: dict[str, Any] | None = None
    is_replaced: bool = False
    is_renamed: bool = False
    is_final: bool = False

    def slices(self, situation: MirrorSituation, owner: Mapping[str, Any]) -> SlicePlan:
        """Return the writes of slices.

        :param owner: the owner reference to what the slices belong to: the Service, or a mirror that adds.
        """
        mirror, name = self.mirror, situation.name
        marks = slice_owner(mirror, situation.application, name, owner, situation.source)
        return plan_slices(marks, self.verdict.endpoints, situation.slices, situation.taken)

    def service_status(self, situation: MirrorSituation) -> MirroredService:
        """Return what the mirror's status says of the Service."""
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
        return MirrorDecision(End.LEAVES if leaves else End.KEEPS, situation.mirror, problem)
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
    decision = MirrorDecision(End.SHOWS, mirror, problems, verdict, is_final=is_final)
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
    """Return what a Service calls, or called until now, that does not come from Eureka."""
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
    """Return what waits for more than its time, and for what."""
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
