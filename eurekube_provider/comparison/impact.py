"""Effects on an instance if its manager or another process goes away."""

from __future__ import annotations

from collections.abc import Iterator
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
    match manager.kind:
        case ManagerKind.SYNCER:
            return list(_effects_on_syncer_instance(instance, syncer))
        case ManagerKind.OTHER_CLUSTER:
            return list(_effects_on_other_cluster_instance(instance, manager))
        case ManagerKind.STACK:
            return list(_effects_on_stack_instance(instance))
        case ManagerKind.ITSELF:
            return list(_effects_on_self_registered(instance))
        case ManagerKind.OTHER:
            effect = f"{manager.name} decides; when nobody renews it, it {describe_lapse(instance)}"
            return [(LifecycleEvent.RENEWER_STOPS, effect)]


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


def _effects_on_syncer_instance(instance: Instance, syncer: Syncer | None) -> Iterator[Effect]:
    if syncer is not None:
        yield LifecycleEvent.POD_DELETED, _describe_pod_deletion(instance, syncer)
    yield (
        LifecycleEvent.SYNCER_DELETED,
        (
            "another syncer of this cluster that wants it takes it over as it stands; without one it is "
            "deregistered at once"
        ),
    )
    yield (
        LifecycleEvent.OPERATOR_STOPS,
        (
            f"a standby replica goes on within {FAIL_OVER_SECONDS} s, and nothing changes; without one it"
            f" {describe_lapse(instance)}"
        ),
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


def _effects_on_stack_instance(instance: Instance) -> Iterator[Effect]:
    yield (
        LifecycleEvent.POD_DELETED,
        "nothing by itself: it stays and is renewed until the stack runs, which a StackRefresh can begin",
    )
    if instance.renewer in (None, SELF_RENEWER_VALUE):
        yield LifecycleEvent.OPERATOR_STOPS, "nothing: its application renews it"
        yield (
            LifecycleEvent.RENEWER_STOPS,
            f"its application renews it; when that ends, it {describe_lapse(instance)}",
        )
    else:
        yield (
            LifecycleEvent.OPERATOR_STOPS,
            f"nothing, unless that operator is its renewer {instance.renewer!r}: see the next line",
        )
        yield (
            LifecycleEvent.RENEWER_STOPS,
            f"another replica of {instance.renewer!r} goes on; without one it {describe_lapse(instance)}",
        )
    yield (
        LifecycleEvent.STACK_DESTROYED,
        (
            "it is deregistered, after the drain that its resource asks for; what another run registered "
            "again under its id stays"
        ),
    )


def _effects_on_other_cluster_instance(instance: Instance, manager: Manager) -> Iterator[Effect]:
    cluster = manager.name.partition("/")[0]
    yield LifecycleEvent.POD_DELETED, f"the operator of cluster {cluster} does what its syncer says"
    yield LifecycleEvent.OPERATOR_STOPS, "nothing, unless it is the operator of that cluster"
    yield (
        LifecycleEvent.RENEWER_STOPS,
        f"the operator of cluster {cluster} renews it; without that it {describe_lapse(instance)}",
    )


def _effects_on_self_registered(instance: Instance) -> Iterator[Effect]:
    yield (
        LifecycleEvent.POD_DELETED,
        (
            "its own client deregisters it where it ends in order; where it is killed, it "
            f"{describe_lapse(instance)}"
        ),
    )
    yield LifecycleEvent.OPERATOR_STOPS, "nothing: Eurekube has nothing to do with it"
    yield (
        LifecycleEvent.RENEWER_STOPS,
        f"it renews itself; when it ends without a word, it {describe_lapse(instance)}",
    )
