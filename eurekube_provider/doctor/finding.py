"""A finding of the doctor: one fault of one object, and the change that fixes it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from eurekube_provider.comparison.ranked import RankedEnum
from eurekube_provider.comparison.seen_remedies import FindingName
from eurekube_provider.core.shortfall import ShortfallKind

PatchBody = Mapping[str, Any]

FALLBACK_REMEDY = "see what docs/reference/conditions.md says of it"
"""The remedy of a condition for which no other remedy is known."""

UNREADABLE_SPEC_REMEDY = "install the CRD of this version, and fix it"


class Fault(StrEnum):
    """The faults that the doctor knows."""

    NO_PRE_STOP = ShortfallKind.NO_PRE_STOP.value
    PRE_STOP_TOO_SHORT = ShortfallKind.PRE_STOP_TOO_SHORT.value
    GRACE_PERIOD_TOO_SHORT = ShortfallKind.GRACE_PERIOD_TOO_SHORT.value

    MIN_READY_TOO_SHORT = "MinReadyTooShort"
    """A rollout removes pods that callers know before callers know the new pods."""

    GATE_NOT_SERVED = "GateNotServed"
    """A pod waits for the readiness gate, and no operator has looked at it."""

    NO_READINESS_PROBE = "NoReadinessProbe"
    """A pod is registered before its server answers."""

    UNRESOLVABLE_HOST_NAME = "UnresolvableHostName"
    """An instance has a host name that only the cluster can resolve."""

    SECURE_PORT_BY_MISTAKE = "SecurePortByMistake"
    """Spring calls https on a port that speaks http."""

    MIXED_VIP_CASE = "MixedVipCase"
    """One VIP address has several spellings, which servers and most clients take for several addresses."""

    AMBIGUOUS_SERVICE = "AmbiguousService"
    """A syncer selects several Services whose ports or pods are not those of one application."""

    ENDPOINTS_LEFT_OUT = "EndpointsLeftOut"
    """A syncer does not register some endpoints of its Service."""

    LEASE_TOO_SHORT = "LeaseTooShort"
    """A syncer's instances would lapse while another operator takes over."""

    SELF_REGISTERED = "SelfRegistered"
    """A pod registers itself, and has a syncer as well."""

    UNREADABLE_INSTANCE = "UnreadableInstance"
    """No command can drain an instance, since no request can name it or nobody can read it exactly."""

    STUCK_OUT_OF_SERVICE = "StuckOutOfService"
    """An application registered itself as OUT_OF_SERVICE, which Eureka keeps whatever it sends since."""

    SELF_PRESERVATION_NEAR = "SelfPreservationNear"
    """Eureka is in self-preservation, in which it evicts nothing, or close to it."""

    PEERS_DISAGREE = "PeersDisagree"
    """Callers of one Eureka server find instances that callers of another do not."""

    SERVER_TROUBLE = "ServerTrouble"
    """A Eureka server does not answer, refuses the credentials, or its clock differs."""

    OPERATOR_AWAY = FindingName.OPERATOR_AWAY.value
    TWO_OPERATORS = FindingName.TWO_OPERATORS.value
    INSTANCES_NOT_RENEWED = FindingName.INSTANCES_NOT_RENEWED.value
    EUREKA_NOT_READ = FindingName.EUREKA_NOT_READ.value
    NAMESPACE_NOT_WATCHED = FindingName.NAMESPACE_NOT_WATCHED.value

    SYNCER_TROUBLE = "SyncerTrouble"
    """The operator cannot serve a syncer, or no operator serves it."""

    MIRROR_TROUBLE = "MirrorTrouble"
    """The operator cannot serve a mirror as its spec asks."""

    MIRROR_NOT_SERVED = "MirrorNotServed"
    """No operator serves a mirror."""

    MIRROR_NAME_TAKEN = "MirrorNameTaken"
    """A mirror needs a Service of a name that another Service has."""

    MIRROR_STALE = "MirrorStale"
    """A mirrored Service shows instances as Eureka held them long ago."""

    MIRROR_LEFTOVER = "MirrorLeftover"
    """A deleted mirror left a Service or EndpointSlices, which nobody updates and callers still use."""


class Severity(RankedEnum):
    """The severities of a fault, worst first."""

    ERROR = "error"
    """Calls fail now, or will fail at the next rollout or restart."""

    WARNING = "warning"
    """The fault alone makes no call fail, or may be intended."""


WARNING_FAULTS = frozenset(
    {
        Fault.ENDPOINTS_LEFT_OUT,
        Fault.EUREKA_NOT_READ,
        Fault.LEASE_TOO_SHORT,
        Fault.TWO_OPERATORS,
        Fault.SELF_PRESERVATION_NEAR,
        Fault.SELF_REGISTERED,
        Fault.SERVER_TROUBLE,
        Fault.STUCK_OUT_OF_SERVICE,
        Fault.UNREADABLE_INSTANCE,
    }
)
"""The faults that are warnings; all others are errors."""


@dataclass(frozen=True, slots=True)
class Patch:
    """A change of one object, whose kind has kubectl's name, e.g. ``deployment``."""

    resource: str
    namespace: str
    name: str
    body: PatchBody

    @property
    def type(self) -> str:
        """The value of ``kubectl patch --type``: a custom resource, with a group, knows no strategic one."""
        return "merge" if "." in self.resource else "strategic"

    @property
    def command(self) -> str:
        """Return the shell command that applies the patch."""
        words = ["kubectl", "patch", self.resource, self.name, "--namespace", self.namespace]
        words += ["--type", self.type, "--patch", json.dumps(self.body)]
        return shlex.join(words)

    def to_dict(self) -> dict[str, Any]:
        return {
            "resource": self.resource,
            "namespace": self.namespace,
            "name": self.name,
            "type": self.type,
            "patch": self.body,
        }


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault of one object.

    :ivar subject: the object's kind and name, e.g. ``Deployment shop/rating``.
    :ivar problem: the fault and its effect.
    :ivar remedy: the change that fixes it, in words.
    :ivar patch: the same change for kubectl; None where no object of the cluster has to be changed.
    """

    fault: Fault
    subject: str
    problem: str
    remedy: str
    patch: Patch | None = None

    @property
    def severity(self) -> Severity:
        return Severity.WARNING if self.fault in WARNING_FAULTS else Severity.ERROR

    def to_dict(self) -> dict[str, Any]:
        patch = self.patch.to_dict() if self.patch else None
        return {"severity": str(self.severity), **asdict(self), "patch": patch}


def merge_patches(findings: Iterable[Finding]) -> list[Patch]:
    """Merge the findings' patches into one for each object: a Deployment is rolled out once."""
    patches: dict[tuple[str, str, str], Patch] = {}
    for finding in findings:
        patch = finding.patch
        if patch is None:
            continue
        key = (patch.resource, patch.namespace, patch.name)
        before = patches.get(key)
        patches[key] = Patch(*key, _merge_bodies(before.body, patch.body)) if before else patch
    return list(patches.values())


def _merge_bodies(one: Any, other: Any) -> Any:
    """Merge two patches. Lists of named entries are merged by name; of two numbers the larger counts."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        both = {key: _merge_bodies(one[key], other[key]) for key in one.keys() & other.keys()}
        return {**one, **other, **both}
    if isinstance(one, list) and all(isinstance(item, Mapping) for item in (*one, *other)):
        named = {item["name"]: item for item in one}
        for item in other:
            named[item["name"]] = _merge_bodies(named.get(item["name"], {}), item)
        return list(named.values())
    if isinstance(one, int) and isinstance(other, int):
        return max(one, other)
    return other
