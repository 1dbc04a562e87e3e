"""The explanation of an instance: owner, renewer, why it is not UP, and the effect of possible events."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eurekube_provider.comparison.impact import LifecycleEvent, predict_effects
from eurekube_provider.comparison.managers import Manager, ManagerKind
from eurekube_provider.core.identity import SELF_RENEWER_VALUE
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.objects import Object, endpoint_state, is_ready, is_terminating
from eurekube_provider.core.registry_kinds import registry_kind_of_instance
from eurekube_provider.core.served import last_renewed_unix
from eurekube_provider.core.syncer import Mode, Syncer


@dataclass(frozen=True, slots=True)
class InstanceObservation:
    """All that was read of one instance at one moment.

    :ivar instance: the newest version that a server holds.
    :ivar by_server: the instance at each server that answered, by URL; None where a server does not hold it.
    :ivar failures: the reason why each other server did not answer, by URL.
    :ivar was_cluster_read: True if the Kubernetes cluster was read, from which all further fields come.
    :ivar operator_message: the operator's sentence about the syncer, where something is wrong.
    :ivar endpoint: the endpoint that has the instance's address; None where none has.
    :ivar pod: the instance's pod; None where it was not read.
    """

    instance: Instance
    manager: Manager
    by_server: Mapping[str, Instance | None] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    was_cluster_read: bool = False
    syncer: Syncer | None = None
    operator_message: str = ""
    endpoint: Object | None = None
    pod: Object | None = None


@dataclass(frozen=True, slots=True)
class InstanceExplanation:
    """The explanation of one instance: facts, each a topic and a sentence, and effects of events."""

    application: str
    instance_id: str
    status: str
    facts: tuple[tuple[str, str], ...]
    impact: tuple[tuple[LifecycleEvent, str], ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "application": self.application,
            "instanceId": self.instance_id,
            "status": self.status,
            "facts": dict(self.facts),
            "if": {str(event): outcome for event, outcome in self.impact},
        }


def explain_instance(observed: InstanceObservation, now_ms: float) -> InstanceExplanation:
    """Explain one instance at a Unix time in milliseconds."""
    instance, manager = observed.instance, observed.manager
    has_renewals = registry_kind_of_instance(instance).renewals
    facts = [
        ("not safe", _why_unreliable(observed)),
        ("kept by", _describe_manager(instance, manager)),
        ("callers", _describe_address_for_callers(instance)),
        ("renewed by", _describe_renewer(instance, manager) if has_renewals else ""),
        ("last renewed", _describe_last_renewals(observed, now_ms) if has_renewals else ""),
        ("in Kubernetes", _describe_endpoint(observed)),
        ("its operator says", observed.operator_message),
        ("servers", _describe_server_differences(observed)),
    ]
    if instance.status is not Status.UP:
        facts.insert(3, ("why not UP", why_not_up(observed)))
    known_facts = tuple((topic, sentence) for topic, sentence in facts if sentence)
    outcomes = tuple(predict_effects(instance, manager, observed.syncer))
    return InstanceExplanation(*instance.key, str(instance.status), known_facts, outcomes)


def _why_unreliable(observed: InstanceObservation) -> str:
    """Return why no statement about an instance can be relied on; empty where the statements can be."""
    if observed.instance.unreadable:
        return observed.instance.unreadable
    if observed.by_server and not any(observed.by_server.values()):
        return (
            "a list shows it, and every server answers 404 when it is asked for; the list may be a minute"
            " older than that. If it stays, its Eureka lease has lapsed, or it stands under another id"
        )
    return ""


def _describe_manager(instance: Instance, manager: Manager) -> str:
    if manager.kind is ManagerKind.ITSELF:
        kind = registry_kind_of_instance(instance).name
        return f"itself: its own {kind} client, or a person, registered it, and Eurekube leaves it alone"
    return f"{manager} (owner {instance.owner})"


def _has_only_name_and_id(instance: Instance) -> bool:
    """Return whether nothing of an instance but its name and id could be read."""
    return bool(instance.unreadable) and not instance.host_name


def _describe_address_for_callers(instance: Instance) -> str:
    if _has_only_name_and_id(instance):
        return ""
    scheme, port = (
        ("https", instance.secure_port) if instance.secure_port.enabled else ("http", instance.port)
    )
    place = f"{scheme}://{instance.host_name}:{port.number}"
    if not port.enabled:
        place = f"{instance.host_name}, and find no port there that is enabled"
    if instance.status is Status.UP:
        return f"find it under {instance.vip_address}, at {place}"
    return f"do not call it, since it is {instance.status}; they would at {place}"


def why_not_up(observed: InstanceObservation) -> str:
    """Return why callers are not sent to an instance, as far as that can be determined."""
    instance, status = observed.instance, observed.instance.status
    kind = registry_kind_of_instance(instance)
    if _has_only_name_and_id(instance):
        return ""
    if instance.is_leaving and status is Status.OUT_OF_SERVICE:
        who = "the operator" if observed.manager.kind is ManagerKind.SYNCER else "its owner"
        return f"it is on its way out: {who} took it out of service before it goes"
    if instance.is_status_enforced:
        return f"the stack's program enforces the status {status}"
    if instance.is_overridden:
        return (
            f"somebody set {instance.overridden_status} over what it says of itself; if nobody wants that any"
            f" more: {kind.undrain_instruction.format(shlex.quote(instance.instance_id))}"
        )
    if observed.manager.kind is ManagerKind.SYNCER and observed.was_cluster_read:
        return _why_not_ready(observed)
    if observed.manager.kind is ManagerKind.STACK:
        return f"the stack registered it as {status}"
    if instance.is_self_registered_out_of_service and kind.overrides:
        return (
            "it registered itself as OUT_OF_SERVICE, and Eureka keeps that whatever it says since; to put it"
            f" into service: {kind.undrain_instruction.format(shlex.quote(instance.instance_id))}"
        )
    if observed.manager.kind is ManagerKind.ITSELF:
        return (
            f"the application says {status} of itself: its health check, e.g. /actuator/health, may say why"
        )
    return f"{observed.manager} says {status}"


def _why_not_ready(observed: InstanceObservation) -> str:
    if observed.syncer is not None and observed.syncer.mode is Mode.SERVICE:
        return "no endpoint of its Service is ready, or was not when the operator looked last"
    if observed.endpoint is None:
        return (
            "no EndpointSlice has its address any more: the operator deregisters it, unless something holds"
        )
    if is_terminating(observed.endpoint):
        return "its pod is being deleted"
    if is_ready(observed.endpoint):
        return "Kubernetes says that it is ready: the operator has not brought that to Eureka yet"
    why = _describe_unready_parts(observed.pod) if observed.pod is not None else ""
    return f"Kubernetes says that its endpoint is not ready{f': {why}' if why else ''}"


def _describe_unready_parts(pod: Object) -> str:
    """Return the parts of a pod that are not ready, as its status says."""
    status = pod.get("status") or {}
    found = []
    for one in status.get("containerStatuses") or ():
        waiting = (one.get("state") or {}).get("waiting") or {}
        if waiting.get("reason"):
            found.append(f"container {one.get('name')} waits: {waiting['reason']}")
        elif not one.get("ready"):
            found.append(f"container {one.get('name')} is not ready, by its readinessProbe")
    if not found:
        found = [
            str(one.get("message") or one.get("reason") or f"{one['type']} is {one['status']}")
            for one in status.get("conditions") or ()
            if one.get("type") == "Ready" and one.get("status") != "True"
        ]
    return "; ".join(found)


def _describe_renewer(instance: Instance, manager: Manager) -> str:
    if manager.kind is ManagerKind.SYNCER:
        return "the operator of this cluster, whichever replica leads"
    if manager.kind is ManagerKind.OTHER_CLUSTER:
        return f"the operator of cluster {manager.name.partition('/')[0]}"
    if manager.kind is ManagerKind.STACK and instance.renewer not in (None, SELF_RENEWER_VALUE):
        return f"the operator, or `eurekube keepalive`, that is called {instance.renewer!r}"
    return "its application" if manager.kind is not ManagerKind.OTHER else f"the owner {manager.name}"


def _describe_last_renewals(observed: InstanceObservation, now_ms: float) -> str:
    duration = observed.instance.lease.duration_seconds
    ages = {
        url: now_ms / 1000 - at
        for url, one in observed.by_server.items()
        if one is not None and (at := last_renewed_unix(one)) is not None
    }
    if not ages:
        return "no server says"
    renewals = ", ".join(
        f"{max(0.0, age):.0f} s ago{f' at {url}' if len(observed.by_server) > 1 else ''}"
        for url, age in ages.items()
    )
    late = min(ages.values()) > duration
    return f"{renewals}{f': that is longer than its Eureka lease of {duration} s' if late else ''}"


def _describe_endpoint(observed: InstanceObservation) -> str:
    if observed.manager.kind is not ManagerKind.SYNCER or not observed.was_cluster_read:
        return ""
    if observed.syncer is None:
        return "its EurekaSyncer is not in the cluster, or what its spec asks for cannot be read"
    if observed.syncer.mode is Mode.SERVICE:
        return f"it is a whole Service of namespace {observed.syncer.selector.namespace}"
    if observed.endpoint is None:
        return "no endpoint has its address"
    target = observed.endpoint.get("targetRef") or {}
    pod = f"pod {observed.syncer.selector.namespace}/{target['name']}, " if target.get("name") else ""
    return f"{pod}endpoint {observed.endpoint['addresses'][0]} is {endpoint_state(observed.endpoint)}"


def _describe_server_differences(observed: InstanceObservation) -> str:
    """Return a sentence on differences between the servers, and on servers that did not answer."""
    statuses = {url: str(one.status) if one else "not there" for url, one in observed.by_server.items()}
    sentences = []
    if len(set(statuses.values())) > 1:
        sentences.append(
            "they differ: " + ", ".join(f"{status} at {url}" for url, status in statuses.items())
        )
    sentences += [f"{url} did not answer: {why}" for url, why in observed.failures.items()]
    return "; ".join(sentences)
