"""EurekaSyncers that are derived from a namespace's syncer, one for each Service. Pure.

A namespace's syncer registers nothing itself. Each member Service has a derived EurekaSyncer, whose spec is
that of the namespace's syncer, overridden by those annotations of the Service that the spec lists. So each
Service has its own brake, claims, status and hand-over, as with a syncer that a person created.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any

from eurekube_provider.core.condition_types import Reason, SyncerCondition
from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.identity import RESERVED_METADATA_PREFIX
from eurekube_provider.core.objects import (
    STACK_LABEL,
    Object,
    conditions_of,
    is_external_name,
    is_mirrored,
    qualified_name,
)
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.registry import REGISTER_BEFORE_READY_ANNOTATION
from eurekube_provider.core.syncer import Mode, Syncer

SYNCER_KIND = "EurekaSyncer"
API_VERSION = "eurekube.io/v1alpha1"

DERIVED_FROM_LABEL = "eurekube.io/derived-from"
"""The label of a derived syncer with the name of its namespace's syncer, for people alone."""

SYNC_ANNOTATION = "eurekube.io/sync"
"""The annotation of a Service: ``pod``, ``service`` or ``"true"`` to join, ``"false"`` to opt out."""

INHERITED_METADATA_KEYS = {"labels": STACK_LABEL, "annotations": REGISTER_BEFORE_READY_ANNOTATION}
"""The label and the annotation that a derived syncer inherits from its namespace's syncer.

The label names the stack that created the syncer, so that a stack which removes its operator finds them.
"""

METADATA_ANNOTATION_PREFIX = "eurekube.io/metadata."
"""The prefix of annotations of a Service that set a metadata key."""

FIELDS_BY_ANNOTATION: Mapping[str, str] = {
    "eurekube.io/application": "application",
    "eurekube.io/vip-address": "vipAddress",
    "eurekube.io/secure-vip-address": "secureVipAddress",
    "eurekube.io/port": "port",
    "eurekube.io/secure-port": "securePort",
    "eurekube.io/home-page-path": "homePagePath",
    "eurekube.io/status-page-path": "statusPagePath",
    "eurekube.io/health-check-path": "healthCheckPath",
    "eurekube.io/health-check-port": "healthCheckPort",
}
"""The field of the spec that each annotation of a Service overrides."""

MAX_WORST_SERVICES_IN_STATUS = 5
"""The number of the worst Services that a status names."""

DEFAULT_APPLICATION_TEMPLATE = "{service}"

_PORT_FIELDS = ("port", "securePort", "healthCheckPort")
_PORT_NUMBER_PATTERN = re.compile(r"[0-9]{1,10}")
_API_SERVER_SERVICE_LABELS = {"component": "apiserver", "provider": "kubernetes"}


class ServiceScope(StrEnum):
    """The choices of the Services that a namespace's syncer serves."""

    ANNOTATED = "Annotated"
    """Those with the annotation :data:`SYNC_ANNOTATION`."""

    ALL = "All"
    """All Services of the namespace except those that opted out."""


class Membership(Enum):
    """The relation of a Service to its namespace's syncer."""

    MEMBER = "member"
    OPTED_OUT = "opted out"
    """A person excluded the Service by :data:`SYNC_ANNOTATION`."""

    NOT_A_MEMBER = "none"
    """There is no such Service, or it has no annotation and the syncer serves annotated Services only."""


def is_namespace_syncer(item: Object | None) -> bool:
    """Return True if a custom resource is a syncer for the Services of its namespace."""
    return bool(_selector(item).get("services"))


def derived_syncer_name(syncer: str, service: str) -> str:
    """Return the name of the syncer of one Service; a Service's name has no dot."""
    return f"{syncer}.{service}"


def split_derived_syncer_name(name: str) -> tuple[str, str]:
    """Return the names of the namespace's syncer and of the Service; empty for a name that is not derived."""
    syncer, _, service = name.rpartition(".")
    return (syncer, service) if syncer and service else ("", "")


def name_and_uid_of_parent_syncer(item: Object | None) -> tuple[str, str]:
    """Return the name and the UID of the syncer from which a syncer is derived; empty for any other."""
    for one in (item["metadata"].get("ownerReferences") or ()) if item is not None else ():
        if one.get("kind") == SYNCER_KIND and one.get("controller") and one.get("apiVersion") == API_VERSION:
            return str(one.get("name") or ""), str(one.get("uid") or "")
    return "", ""


def membership_of_service(item: Object, service: Object | None) -> Membership:
    """Return the relation of a Service to a namespace's syncer."""
    if service is None or is_mirrored(service):
        return Membership.NOT_A_MEMBER
    said = _annotations(service).get(SYNC_ANNOTATION)
    if said is not None:
        return Membership.OPTED_OUT if said.lower() == "false" else Membership.MEMBER
    labels = (service["metadata"].get("labels") or {}).items()
    is_meant = not is_external_name(service) and not _API_SERVER_SERVICE_LABELS.items() <= labels
    return (
        Membership.MEMBER
        if is_meant and _selector(item)["services"] == ServiceScope.ALL
        else Membership.NOT_A_MEMBER
    )


def derived_syncer(item: Object, service: Object) -> dict[str, Any]:
    """Return the derived syncer of a member Service.

    :raises ConfigurationError: an annotation has a value that the field does not take.
    """
    metadata, name = item["metadata"], str(service["metadata"]["name"])
    own = _fields_from_annotations(item["spec"], service)
    # An address is chosen for one mode.
    dropped = ("selector", "annotations", *(("advertise", "nodes") if "mode" in own else ()))
    inherited = {key: value for key, value in item["spec"].items() if key not in dropped}
    template = str(inherited.get("application") or DEFAULT_APPLICATION_TEMPLATE)
    application = template.replace("{service}", name)
    application = application.replace("{namespace}", service["metadata"]["namespace"])
    spec = {**inherited, "selector": {"service": name}, "application": application, **own}
    marks = inherited_metadata(item)
    made = {
        "apiVersion": API_VERSION,
        "kind": SYNCER_KIND,
        "metadata": {
            "namespace": metadata["namespace"],
            "name": derived_syncer_name(metadata["name"], name),
            "labels": {DERIVED_FROM_LABEL: metadata["name"], **marks["labels"]},
            **({"annotations": marks["annotations"]} if marks["annotations"] else {}),
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": SYNCER_KIND,
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                    "controller": True,
                }
            ],
        },
        "spec": spec,
    }
    Syncer.from_object(made)
    return made


def inherited_metadata(item: Object) -> dict[str, dict[str, str]]:
    """Return the ``labels`` and ``annotations`` of a syncer that its derived syncers inherit."""
    metadata = item["metadata"]
    return {
        kind: {key: value for key, value in (metadata.get(kind) or {}).items() if key == inherited}
        for kind, inherited in INHERITED_METADATA_KEYS.items()
    }


def _fields_from_annotations(spec: Mapping[str, Any], service: Object) -> dict[str, Any]:
    """Return the fields that the annotations of a Service override.

    :raises ConfigurationError: an annotation has a value that its field does not take.
    """
    listed: Collection[str] = spec.get("annotations") or ()
    written, found = _annotations(service), dict[str, Any]()
    for annotation, field in FIELDS_BY_ANNOTATION.items():
        if field in listed and annotation in written:
            value = written[annotation]
            if not value:
                raise _annotation_error(service, annotation, "is empty")
            found[field] = (
                int(value) if field in _PORT_FIELDS and _PORT_NUMBER_PATTERN.fullmatch(value) else value
            )
    if "metadata" in listed:
        given = {
            key.removeprefix(METADATA_ANNOTATION_PREFIX): value
            for key, value in written.items()
            if key.startswith(METADATA_ANNOTATION_PREFIX)
        }
        if key := next((key for key in given if key.startswith(RESERVED_METADATA_PREFIX)), ""):
            raise _annotation_error(
                service,
                METADATA_ANNOTATION_PREFIX + key,
                f"would be Eurekube's own: metadata keys that start with {RESERVED_METADATA_PREFIX} cannot "
                "be set",
            )
        if given:
            found["metadata"] = {**(spec.get("metadata") or {}), **given}
    said = written.get(SYNC_ANNOTATION, "true")
    if said.lower() != "true":
        if said not in list(Mode):
            raise _annotation_error(
                service, SYNC_ANNOTATION, f"is {said!r}; it must be pod, service, true or false"
            )
        if said != spec["mode"]:
            if "mode" not in listed:
                raise _annotation_error(
                    service,
                    SYNC_ANNOTATION,
                    f"is {said!r}, and the syncer's mode is {spec['mode']!r}: its spec.annotations does not "
                    "list mode",
                )
            found["mode"] = said
    return found


def _annotation_error(service: Object, annotation: str, sentence: str) -> ConfigurationError:
    return ConfigurationError(f"annotation {annotation} of Service {qualified_name(service)} {sentence}")


def _annotations(service: Object) -> Mapping[str, str]:
    return service["metadata"].get("annotations") or {}


def _selector(item: Object | None) -> Mapping[str, Any]:
    return ((item or {}).get("spec") or {}).get("selector") or {}


@dataclass(frozen=True, slots=True)
class MemberServiceState:
    """The state of one Service of a namespace's syncer.

    :ivar service: the Service's name.
    :ivar is_ready: the condition Ready of the Service's syncer; None where it is unknown.
    :ivar problem: why the Service's syncer is not in sync; None if it is.
    :ivar is_refused: True if the Service's syncer cannot be created or changed because of the Service.
    :ivar desired: how many instances the Service's syncer wants; ``registered`` how many it has.
    """

    service: str
    is_ready: bool | None
    problem: Problem | None = None
    is_refused: bool = False
    is_braked: bool = False
    desired: int = 0
    registered: int = 0

    @property
    def severity_sort_key(self) -> tuple[int, str]:
        """The sort key; the worst comes first."""
        worst = 0 if self.is_ready is False else 1 if self.is_ready is None else 2 if self.problem else 3
        return worst, self.service


def read_member_service_state(
    service: str, item: Object | None, refusal: Problem | None, *, is_up_to_date: bool = True
) -> MemberServiceState:
    """Return the state of a Service.

    :param item: its derived syncer; None if there is none.
    :param refusal: the reason why its syncer cannot be created or changed; None if it can.
    :param is_up_to_date: True if the derived syncer's spec is the desired one.
    """
    is_refused = refusal is not None and refusal.reason == Reason.SERVICE_REFUSED
    if item is None:
        missing = Problem(Reason.JOINING, "it has no EurekaSyncer yet")
        return MemberServiceState(service, False if refusal else None, refusal or missing, is_refused)
    conditions, status = conditions_of(item), item.get("status") or {}
    ready, synced = (conditions.get(kind) or {} for kind in (SyncerCondition.READY, SyncerCondition.SYNCED))
    is_ready = {"True": True, "False": False}.get(ready.get("status", ""))
    problem = refusal
    generation = item["metadata"].get("generation")
    if problem is None and (not is_up_to_date or not ready or ready.get("observedGeneration") != generation):
        problem = Problem(Reason.JOINING, "its last change is not carried out yet")
    elif problem is None and is_ready is not True:
        problem = Problem.of(ready)
    elif problem is None and synced.get("status") != "True":
        problem = Problem.of(synced)
    return MemberServiceState(
        service,
        is_ready,
        problem,
        is_refused,
        (conditions.get(SyncerCondition.BRAKED) or {}).get("status") == "True",
        int(status.get("desired") or 0),
        int(status.get("registered") or 0),
    )


@dataclass(frozen=True, slots=True)
class MemberServiceCounts:
    """The counts over the Services of a namespace's syncer, and the worst Services.

    :ivar total: the number of Services; the next four fields count those in a state.
    :ivar worst_services: the states of Services with a problem, the worst first, at most
        :data:`MAX_WORST_SERVICES_IN_STATUS`.
    """

    total: int
    ready: int
    synced: int
    refused: int
    braked: int
    worst_services: tuple[MemberServiceState, ...]

    @classmethod
    def of(cls, states: Collection[MemberServiceState]) -> MemberServiceCounts:
        """Return the counts over the states of Services."""
        return cls(
            len(states),
            sum(one.is_ready is True for one in states),
            sum(one.problem is None for one in states),
            sum(one.is_refused for one in states),
            sum(one.is_braked for one in states),
            tuple(
                sorted((one for one in states if one.problem), key=lambda one: one.severity_sort_key)[
                    :MAX_WORST_SERVICES_IN_STATUS
                ]
            ),
        )

    def to_status_fields(self) -> dict[str, Any]:
        """Return the fields of a status that show the counts."""
        return {
            "applications": {
                "total": self.total,
                "ready": self.ready,
                "synced": self.synced,
                "refused": self.refused,
                "braked": self.braked,
            },
            "worst": [
                {"service": one.service, "reason": one.problem.reason, "message": one.problem.message[:1024]}
                for one in self.worst_services
                if one.problem
            ],
        }
