"""The conditions of an EurekaMirror: their names, and what a status says: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from eurekube_provider.core.condition_types import MirrorReason, Reason, StatusCondition
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.remedies import REMEDIES
from eurekube_provider.core.wording import joined


class MirrorCondition(StatusCondition):
    """Types of conditions of an EurekaMirror."""

    READY = "Ready"
    """Each Service has an endpoint that is called."""

    SYNCED = "Synced"
    """The cluster shows what Eureka holds; else the reason is the first of what is wrong."""

    SOURCE_UNREACHABLE = "SourceUnreachable"
    """Eureka does not answer; everything stays as it is."""

    REMOVALS_HELD = "RemovalsHeld"
    """Instances vanished without proof; they are called until ``holdSeconds`` are over."""

    NAME_TAKEN = "NameTaken"
    """The Service's name is another application's, another mirror's or a person's."""

    NOT_ATTACHED = "NotAttached"
    """The Service of ``attachTo`` is not there, has not opted in, or has no port of the name."""

    ADDRESS_REFUSED = "AddressRefused"
    """Instances are at addresses that must not be mirrored; the message says which and why."""

    UNRESOLVABLE = "Unresolvable"
    """Instances are known by names that cannot be resolved."""

    NO_PORT = "NoPort"
    """Instances have no port that is enabled."""

    PAUSED = "Paused"
    """``paused`` is true."""


MIRROR_REMEDIES: Mapping[str, str] = {
    **{name: REMEDIES[name] for name in (Reason.KUBERNETES_ERROR, Reason.UNKNOWN_EUREKA)},
    MirrorCondition.SOURCE_UNREACHABLE: (
        "find out why Eureka does not answer; the Services are kept meanwhile"
    ),
    MirrorCondition.REMOVALS_HELD: "wait, or set spec.holdSeconds lower",
    MirrorCondition.NAME_TAKEN: (
        "set spec.serviceName to another name; or add the instances to that Service by spec.attachTo"
    ),
    MirrorCondition.NOT_ATTACHED: "correct spec.attachTo and spec.portName",
    MirrorCondition.ADDRESS_REFUSED: (
        "if these addresses may be called, add their network to the operator's --mirror-cidrs, and to"
        " spec.allowedCIDRs where that is set"
    ),
    MirrorCondition.UNRESOLVABLE: (
        "have the cluster's DNS resolve these names, or register the instances by their IP addresses"
    ),
    MirrorCondition.NO_PORT: "register the instances with a port that is enabled",
    MirrorCondition.PAUSED: "set spec.paused to false",
    MirrorReason.INVALID_SPEC: "apply the CRDs of the operator's version, then correct the mirror",
    MirrorReason.NONE_READY: "see in Eureka why no instance is UP, or correct what the mirror asks for",
}
"""What mends it, by the name of a condition or a reason; where nothing is wrong there is none."""


@dataclass(frozen=True, slots=True)
class MirroredService:
    """What one Service shows.

    :ivar ready: endpoints that are called; ``held`` those of them that vanished from Eureka without proof.
    """

    application: str
    service: str
    endpoints: int = 0
    ready: int = 0
    held: int = 0


@dataclass(frozen=True, slots=True)
class MirrorReport:
    """What a reconcile of a mirror came to.

    :ivar problems: by condition.
    :ivar failure: why the mirror is not in sync, where no condition of its own says so.
    :ivar read_at: Unix time of the last reading of Eureka; None where there was none.
    """

    services: tuple[MirroredService, ...] = ()
    problems: Mapping[str, Problem] = field(default_factory=dict)
    failure: Problem | None = None
    read_at: float | None = None

    @property
    def endpoints(self) -> int:
        """All endpoints."""
        return sum(one.endpoints for one in self.services)

    @property
    def ready(self) -> int:
        """How many endpoints are called."""
        return sum(one.ready for one in self.services)

    @property
    def held(self) -> int:
        """How many endpoints wait for their removal."""
        return sum(one.held for one in self.services)

    @property
    def synced(self) -> tuple[bool, Problem]:
        """Return True where the cluster shows what Eureka holds, and the text of the condition."""
        if self.failure is not None:
            return False, self.failure.with_remedy(MIRROR_REMEDIES)
        for kind in MirrorCondition:
            if kind in self.problems:
                return False, self.problems[kind]
        message = f"{len(self.services)} Services show what Eureka holds"
        return True, Problem(MirrorReason.IN_SYNC, message)

    @property
    def is_ready(self) -> tuple[bool, Problem]:
        """Return True where each Service has an endpoint that is called, and the text of the condition."""
        idle = [one.service for one in self.services if not one.ready]
        if self.services and not idle:
            message = f"{self.ready} endpoints of {len(self.services)} Services are ready"
            return True, Problem(MirrorReason.ENDPOINTS_READY, message)
        is_synced, problem = self.synced
        if self.failure is not None or not (self.services or is_synced):
            return False, problem
        named = joined(idle, "Services")
        message = f"no endpoint is ready of {named}" if idle else "no application is mirrored"
        return False, Problem(MirrorReason.NONE_READY, message).with_remedy(MIRROR_REMEDIES)


def gathered(problems: Iterable[Problem]) -> dict[str, Problem]:
    """One problem for each reason, which names a few and counts the rest; with what mends them."""
    by_reason: dict[str, list[Problem]] = {}
    for one in problems:
        by_reason.setdefault(one.reason, []).append(one)
    return {
        reason: replace(those[0], message=joined([one.message for one in those])).with_remedy(MIRROR_REMEDIES)
        for reason, those in by_reason.items()
    }
