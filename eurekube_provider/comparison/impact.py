"""Effects on an instance if its manager or another process goes away."""

from __future__ import annotations

from enum import StrEnum

from eurekube_provider.comparison.managers import Manager, ManagerKind
from eurekube_provider.core.drain_time import Drain
from eurekube_provider.core.identity import SELF_RENEWER_VALUE
from eurekube_provider.core.model import Instance
from eurekube_provider.core.plan import Policy
from eurekube_provider.core.registry_kinds import registry_kind_of_instance
from eurekube_provider.core.syncer import FAIL_OVER_SECONDS, Mode, NotReady, OnTermination, Syncer

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
            f"a standby replica goes on within {FAIL_OVER_SECONDS} s, and nothing changes; without one nobody"
            f" renews it, and it {lapses}"
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
        return "nothing: the syncer is paused, so that it stays and is renewed until the pause ends"
    if syncer.mode is Mode.SERVICE:
        last = "deregistered" if syncer.not_ready is NotReady.REMOVE else "DOWN"
        return (
            f"nothing, as long as another endpoint of the Service is ready; after the last one it is {last}"
        )
    forgotten = f"the last caller forgets it within {Drain().forgotten_after_seconds} s"
    if syncer.on_termination is OnTermination.OUT_OF_SERVICE:
        end = "deregistered" if syncer.policy is Policy.SYNC else "renewed no more"
        return (
            f"it is OUT_OF_SERVICE from that moment until its endpoint is gone, then {end}; {forgotten}, "
            "with Spring Cloud's default caches"
        )
    if syncer.policy is Policy.UPSERT_ONLY:
        return f"the syncer's policy is UpsertOnly: it is renewed no more, and {describe_lapse(instance)}"
    return (
        f"it is deregistered at the moment at which the deletion begins; {forgotten}, with Spring Cloud's "
        "default caches"
    )
