"""The explanation of an instance: owner, renewer, why it is not UP, and the effect of possible events."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from eurekube_provider.comparison.managers import Manager, ManagerKind
from eurekube_provider.core.drain_time import Drain
from eurekube_provider.core.identity import SELF_RENEWER_VALUE
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.objects import Object, endpoint_state, is_ready, is_terminating
from eurekube_provider.core.plan import Policy
from eurekube_provider.core.registry_kinds import registry_kind_of_instance
from eurekube_provider.core.served import last_renewed_unix
from eurekube_provider.core.syncer import FAIL_OVER_SECONDS, Mode, NotReady, OnTermination, Syncer


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


EVICTION_INTERVAL_SECONDS = 60
"""Seconds between two evictions of a server: ``eureka.server.eviction-interval-timer-in-ms``."""


class LifecycleEvent(StrEnum):
    """An event that may befall an instance or its manager."""

    POD_DELETED = "its pod is deleted"
    SYNCER_DELETED = "its syncer is deleted"
    OPERATOR_STOPS = "the operator stops"
    RENEWER_STOPS = "its renewer stops"
    STACK_DESTROYED = "the stack is destroyed"


Effect = tuple[LifecycleEvent, str]
"""An event, and a sentence on what it does to the instance."""


def predict_effects(instance: Instance, manager: Manager, syncer: Syncer | None = None) -> list[Effect]:
    """Return each event that concerns an instance, with its effect."""
    lapses = describe_lapse(instance)
    found: dict[LifecycleEvent, str] = {}
    if manager.kind is ManagerKind.SYNCER:
        if syncer is not None:
            found[LifecycleEvent.POD_DELETED] = _describe_pod_deletion(instance, syncer)
        found[LifecycleEvent.SYNCER_DELETED] = (
            "another syncer of this cluster that wants it takes it over as it stands; without one it is "
            "deregistered at once"
        )
        found[LifecycleEvent.OPERATOR_STOPS] = (
            f"a standby replica goes on within {FAIL_OVER_SECONDS} s, and nothing changes; without one it"
            f" {lapses}"
        )
    elif manager.kind is ManagerKind.OTHER_CLUSTER:
        operator = f"the operator of cluster {manager.name.partition('/')[0]}"
        found[LifecycleEvent.POD_DELETED] = f"{operator} does what its syncer says"
        found[LifecycleEvent.OPERATOR_STOPS] = "nothing, unless it is the operator of that cluster"
        found[LifecycleEvent.RENEWER_STOPS] = f"{operator} renews it; without that it {lapses}"
    elif manager.kind is ManagerKind.STACK:
        renewer = instance.renewer
        is_renewed_by_itself = renewer in (None, SELF_RENEWER_VALUE)
        found[LifecycleEvent.POD_DELETED] = (
            "nothing by itself: it stays and is renewed until the stack runs, which a StackRefresh can begin"
        )
        found[LifecycleEvent.OPERATOR_STOPS] = (
            "nothing: its application renews it"
            if is_renewed_by_itself
            else f"nothing, unless that operator is its renewer {renewer!r}: see the next line"
        )
        found[LifecycleEvent.RENEWER_STOPS] = (
            f"its application renews it; when that ends, it {lapses}"
            if is_renewed_by_itself
            else f"another replica of {renewer!r} goes on; without one it {lapses}"
        )
        found[LifecycleEvent.STACK_DESTROYED] = (
            "it is deregistered, after the drain that its resource asks for; what another run registered "
            "again under its id stays"
        )
    elif manager.kind is ManagerKind.ITSELF:
        found[LifecycleEvent.POD_DELETED] = (
            f"its own client deregisters it where it ends in order; where it is killed, it {lapses}"
        )
        found[LifecycleEvent.OPERATOR_STOPS] = "nothing: Eurekube has nothing to do with it"
        found[LifecycleEvent.RENEWER_STOPS] = f"it renews itself; when it ends without a word, it {lapses}"
    else:
        found[LifecycleEvent.RENEWER_STOPS] = f"{manager.name} decides; when nobody renews it, it {lapses}"
    return list(found.items())


def describe_lapse(instance: Instance) -> str:
    """Return, as the end of a sentence, when, if ever, a registry forgets an instance that nobody renews."""
    if not (kind := registry_kind_of_instance(instance)).renewals:
        return (
            f"stays until somebody removes it: {kind.name} forgets nothing, but what ends with its own "
            "session"
        )
    least = 2 * instance.lease.duration_seconds
    return (
        f"lapses: Eureka forgets it {least} to {least + EVICTION_INTERVAL_SECONDS} s after its last renewal, "
        "later while self-preservation is on"
    )


def _describe_pod_deletion(instance: Instance, syncer: Syncer) -> str:
    if syncer.is_paused:
        return "nothing: the syncer is paused, so that it stays until the pause ends"
    if syncer.mode is Mode.SERVICE:
        last = "deregistered" if syncer.not_ready is NotReady.REMOVE else "DOWN"
        return (
            f"nothing, as long as another endpoint of the Service is ready; after the last one it is {last}"
        )
    no_lag = {"server_cache_seconds": 0, "client_fetch_seconds": 0, "replication_seconds": 0}
    drain = Drain(**({} if registry_kind_of_instance(instance).lists_lag else no_lag))
    forgotten = f"the last caller forgets it within {drain.forgotten_after_seconds} s"
    if syncer.on_termination is OnTermination.OUT_OF_SERVICE:
        end = "deregistered" if syncer.policy is Policy.SYNC else "renewed no more"
        return (
            f"it is OUT_OF_SERVICE from that moment until its endpoint is gone, then {end}; {forgotten}, "
            "with Spring Cloud's default caches"
        )
    if syncer.policy is Policy.UPSERT_ONLY:
        return f"the syncer's policy is UpsertOnly: it {describe_lapse(instance)}"
    return (
        f"it is deregistered at the moment at which the deletion begins; {forgotten}, with Spring Cloud's "
        "default caches"
    )
