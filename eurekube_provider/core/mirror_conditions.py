"""The conditions of a EurekaMirror: their names, and what a status says: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from eurekube_provider.core.condition_types import MirrorReason, Reason, StatusCondition
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.remedies import REMEDIES
from eurekube_provider.core.wording import joined


class MirrorCondition(StatusCondition):
    """Types of conditions of a EurekaMirror."""

    READY = "Ready"
    """Each Service has an endpoint that is called."""

    SYNCED = "Synced"
    """The cluster shows what Eureka holds; else the reason is the first of what is wrong."""

    SOURCE_UNREACHABLE = "SourceUnreachable"
    """Eureka does not answer; everything stays as it is."""

    BRAKED = "Braked"
    """All endpoints of an application, or most of at least ten, would go by absence alone, or they came from
    another Eureka than the one that is read now. Those of the same Eureka are called until a server says that
    they left, or for half an hour of reading it without a gap; those of another one until they are seen here.
    A person releases both.
    """

    REMOVALS_HELD = "RemovalsHeld"
    """Instances vanished without proof; they are called until ``holdSeconds`` are over."""

    NAME_TAKEN = "NameTaken"
    """The Service's name is another application's, another mirror's or a person's."""

    NO_NAME = "NoName"
    """No Service can have the name that comes of the application's."""

    TOO_MANY_SERVICES = "TooManyServices"
    """``maxServices`` are reached, or the allow list is ``*`` alone: no new Service is made. What stands
    stays and is updated.
    """

    NOT_ATTACHED = "NotAttached"
    """The Service of ``attachTo`` is not there, has not opted in, or has no port of the name."""

    FOREIGN_ENDPOINTS = "ForeignEndpoints"
    """A mirrored Service calls what does not come from Eureka: somebody put a selector on it, or wrote
    endpoints or EndpointSlices for it.
    """

    ADDRESS_REFUSED = "AddressRefused"
    """Instances are at addresses that must not be mirrored; the message says which and why."""

    UNRESOLVABLE = "Unresolvable"
    """Instances are known by names that cannot be resolved."""

    NO_PORT = "NoPort"
    """Instances have no port that is enabled."""

    UNREADABLE = "Unreadable"
    """Instances cannot be asked for or read for certain: their end is proved by Eureka's lists alone, or they
    are not shown; the message says which and why."""

    HOST_NAME_DIFFERS = "HostNameDiffers"
    """An instance's host name, which Spring's clients call, resolves to other addresses than its ``ipAddr``,
    which the mirror shows. Nothing is wrong with the mirror.
    """

    PAUSED = "Paused"
    """``paused`` is true."""

    RECONCILING = "Reconciling"
    """The spec is not carried out yet, and that may change by itself: kstatus and Flux wait. What only a
    person can change counts as this for two minutes.
    """

    STALLED = "Stalled"
    """Only a person can have the spec carried out, and two minutes have passed: kstatus and Flux call it
    failed. The reason is that of the condition that says what is wrong.
    """

    @property
    def is_advice(self) -> bool:
        """Return whether the cluster shows what Eureka holds all the same."""
        return self is MirrorCondition.HOST_NAME_DIFFERS


MIRROR_REMEDIES: Mapping[str, str] = {
    **{name: REMEDIES[name] for name in (Reason.KUBERNETES_ERROR, Reason.UNKNOWN_EUREKA)},
    MirrorCondition.SOURCE_UNREACHABLE: (
        "find out why Eureka does not answer; the Services are kept meanwhile"
    ),
    MirrorCondition.BRAKED: (
        "wait, if Eureka was restarted; if the instances are gone, annotate the mirror with"
        " eurekube.io/release-brake=now; else have spec.eureka, or the operator's connection, name the Eureka"
        " that holds them"
    ),
    MirrorCondition.REMOVALS_HELD: "wait, or set spec.holdSeconds lower",
    MirrorCondition.NAME_TAKEN: (
        "set spec.serviceName to another name; or add the instances to that Service by spec.attachTo"
    ),
    MirrorCondition.NO_NAME: (
        "set spec.serviceName to a name that begins with a letter, such as app-{application}; or mirror the"
        " application by a mirror of its own, with another spec.serviceName"
    ),
    MirrorCondition.TOO_MANY_SERVICES: (
        "list in spec.allow the applications that are meant; if all are, set spec.maxServices higher"
    ),
    MirrorCondition.FOREIGN_ENDPOINTS: (
        "take the selector off the Service, and delete the EndpointSlices that the message names; if they are"
        " meant, make a Service of your own and add the instances to it by spec.attachTo"
    ),
    MirrorCondition.HOST_NAME_DIFFERS: (
        "if the two are different machines, correct the client's eureka.instance.ip-address or hostname"
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
    MirrorCondition.UNREADABLE: (
        "register these instances under an id without slashes, percent signs and the like, and with an"
        " address and ports that all read alike"
    ),
    MirrorCondition.PAUSED: "set spec.paused to false",
    MirrorReason.INVALID_SPEC: "apply the CRDs of the operator's version, then correct the mirror",
    MirrorReason.NONE_READY: "see in Eureka why no instance is UP, or correct what the mirror asks for",
}
"""Remedies by the name of a condition or a reason; where nothing is wrong there is none."""


@dataclass(frozen=True, slots=True)
class MirroredService:
    """The content of one mirrored Service.

    :ivar ready: endpoints that are called; ``held`` those of them that vanished from Eureka without proof.
    :ivar braked: those of ``held`` that wait for more than ``holdSeconds``.
    """

    application: str
    service: str
    endpoints: int = 0
    ready: int = 0
    held: int = 0
    braked: int = 0


@dataclass(frozen=True, slots=True)
class MirrorReport:
    """The result of a mirror's reconcile.

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
            if kind in self.problems and not kind.is_advice:
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
    """One problem for each reason, which names a few and counts the rest; with what fixes them."""
    by_reason: dict[str, list[Problem]] = {}
    for one in problems:
        by_reason.setdefault(one.reason, []).append(one)
    return {
        reason: replace(those[0], message=joined([one.message for one in those])).with_remedy(MIRROR_REMEDIES)
        for reason, those in by_reason.items()
    }
