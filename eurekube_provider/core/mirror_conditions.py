"""The conditions of a EurekaMirror: their names, and their texts for the status. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from eurekube_provider.core.condition_types import MirrorReason, Reason, StatusCondition
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.remedies import SYNCER_REMEDIES
from eurekube_provider.core.wording import join_sentences


class MirrorCondition(StatusCondition):
    """Types of conditions of a EurekaMirror."""

    READY = "Ready"
    """Each mirrored Service has at least one ready endpoint."""

    SYNCED = "Synced"
    """The mirrored Services have the endpoints that Eureka holds; if not, the reason is the first fault."""

    SOURCE_UNREACHABLE = "SourceUnreachable"
    """Eureka does not answer; the Services stay as they are."""

    BRAKED = "Braked"
    """The brake keeps endpoints: all of an application, or most of at least ten, are missing in Eureka's
    lists and no server confirms that they left; or they came from another Eureka than the one that is read
    now.

    Endpoints of the same Eureka are called until a server says that they left, or until it has been read for
    half an hour without a gap; those of another Eureka until this one shows them. A person can release the
    brake in both cases.
    """

    REMOVALS_HELD = "RemovalsHeld"
    """Instances vanished from Eureka's lists without proof that they left; their endpoints are kept until
    ``holdSeconds`` are over.
    """

    NAME_TAKEN = "NameTaken"
    """The name of the Service to make belongs already to another application, another mirror or a person."""

    NO_NAME = "NoName"
    """The name that is made from the application's cannot be a Service's name."""

    TOO_MANY_SERVICES = "TooManyServices"
    """The mirror has ``maxServices`` Services, or its allow list is ``*`` alone: it makes no new Service.
    Existing Services stay and are updated.
    """

    NOT_ATTACHED = "NotAttached"
    """The Service of ``attachTo`` does not exist, has not opted in, or has no port of the mirror's port
    name.
    """

    FOREIGN_ENDPOINTS = "ForeignEndpoints"
    """A mirrored Service has endpoints that do not come from Eureka: somebody put a selector on it, or
    wrote endpoints or EndpointSlices for it.
    """

    NOT_CALLED = "NotCalled"
    """A Service does not call instances that it shows: it has no address of their family, or no port of
    theirs; or somebody made it an alias, or keeps its calls on the caller's node. They do not count as ready.
    """

    ADDRESS_REFUSED = "AddressRefused"
    """Instances are at addresses that must not be mirrored; the message says which and why."""

    UNRESOLVABLE = "Unresolvable"
    """Instances have host names that cannot be resolved."""

    NO_PORT = "NoPort"
    """Instances have no enabled port."""

    UNREADABLE = "Unreadable"
    """Some instances cannot be read unambiguously, or no URL can ask for them: they are not shown, or only
    Eureka's lists can prove that they ended. The message says which and why.
    """

    HOST_NAME_DIFFERS = "HostNameDiffers"
    """An instance's host name, which Spring's clients call, resolves to other addresses than its ``ipAddr``,
    which the mirror shows. Nothing is wrong with the mirror.
    """

    PAUSED = "Paused"
    """The mirror's ``paused`` is true."""

    RECONCILING = "Reconciling"
    """The spec is not carried out yet, but may be later without a person's help: kstatus and Flux wait. A
    fault that only a person can correct shows as Reconciling for its first two minutes.
    """

    STALLED = "Stalled"
    """The spec has not been carried out for two minutes, and only a person can help: kstatus and Flux
    report a failure. The reason is that of the condition that names the fault.
    """


MIRROR_REMEDIES: Mapping[str, str] = {
    **{name: SYNCER_REMEDIES[name] for name in (Reason.KUBERNETES_ERROR, Reason.UNKNOWN_EUREKA)},
    MirrorCondition.SOURCE_UNREACHABLE: (
        "find out why Eureka does not answer; the Services are kept meanwhile"
    ),
    MirrorCondition.BRAKED: (
        "wait, if Eureka was restarted; if the instances are gone, annotate the mirror with "
        "eurekube.io/release-brake=now; else have spec.eureka, or the operator's connection, name the Eureka "
        "that holds them"
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
    MirrorCondition.NOT_CALLED: (
        "take off what the message names; a family: have a cluster of both families, set spec.headless, or"
        " register the instances at addresses of the other one; a port: correct spec.portName and"
        " spec.securePortName"
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
"""Remedies by the name of a condition or a reason; a condition without a fault has none."""


@dataclass(frozen=True, slots=True)
class MirroredServiceCounts:
    """The number of endpoints of one mirrored Service, by their state.

    :ivar application: the name of the mirrored application; ``service`` that of its Service.
    :ivar endpoints: the number of all its endpoints.
    :ivar ready: endpoints that are called; ``held`` those of them that vanished from Eureka without proof.
    :ivar braked: endpoints among ``held`` that wait for longer than ``holdSeconds``.
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
    :ivar read_at: Unix time at which Eureka was last read; None if it never was.
    """

    services: tuple[MirroredServiceCounts, ...] = ()
    problems: Mapping[str, Problem] = field(default_factory=dict)
    failure: Problem | None = None
    read_at: float | None = None

    @property
    def endpoints(self) -> int:
        """The number of endpoints of all the mirror's Services."""
        return sum(one.endpoints for one in self.services)

    @property
    def ready(self) -> int:
        """The number of ready endpoints."""
        return sum(one.ready for one in self.services)

    @property
    def held(self) -> int:
        """The number of endpoints whose removal waits."""
        return sum(one.held for one in self.services)

    @property
    def synced_condition(self) -> tuple[bool, Problem]:
        """The condition Synced: True where the Services have the endpoints that Eureka holds, and its
        text.
        """
        if self.failure is not None:
            return False, self.failure.with_remedy(MIRROR_REMEDIES)
        for kind in MirrorCondition:
            # That a host name differs is advice only: the mirror is in sync all the same.
            if kind in self.problems and kind is not MirrorCondition.HOST_NAME_DIFFERS:
                return False, self.problems[kind]
        message = f"{len(self.services)} Services show what Eureka holds"
        return True, Problem(MirrorReason.IN_SYNC, message)

    @property
    def ready_condition(self) -> tuple[bool, Problem]:
        """The condition Ready: True where each Service has a ready endpoint, and its text."""
        idle = [one.service for one in self.services if not one.ready]
        if self.services and not idle:
            message = f"{self.ready} endpoints of {len(self.services)} Services are ready"
            return True, Problem(MirrorReason.ENDPOINTS_READY, message)
        is_synced, problem = self.synced_condition
        if self.failure is not None or not (self.services or is_synced):
            return False, problem
        named = join_sentences(idle, "Services")
        message = f"no endpoint is ready of {named}" if idle else "no application is mirrored"
        return False, Problem(MirrorReason.NONE_READY, message).with_remedy(MIRROR_REMEDIES)


def merge_problems_by_reason(problems: Iterable[Problem]) -> dict[str, Problem]:
    """Return one problem for each reason, which names a few of the problems, counts the rest, and says how
    to fix them.
    """
    by_reason: dict[str, list[Problem]] = {}
    for one in problems:
        by_reason.setdefault(one.reason, []).append(one)
    return {
        reason: replace(those[0], message=join_sentences([one.message for one in those])).with_remedy(
            MIRROR_REMEDIES
        )
        for reason, those in by_reason.items()
    }
