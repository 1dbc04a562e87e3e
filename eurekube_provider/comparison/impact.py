"""Effects on an instance if its manager or another process goes away."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from eurekube_provider.comparison.managers import Manager, ManagerKind
from eurekube_provider.core.drain_time import Drain
from eurekube_provider.core.identity import SELF_RENEWED
from eurekube_provider.core.model import Instance
from eurekube_provider.core.plan import Policy
from eurekube_provider.core.registry_kinds import kind_of
from eurekube_provider.core.syncer import FAIL_OVER_SECONDS, Mode, NotReady, OnTermination, Syncer

EVICTION_SECONDS = 60
"""Seconds between two evictions of a server: ``eureka.server.eviction-interval-timer-in-ms``."""


class Event(StrEnum):
    """An event that may befall an instance or its manager."""

    POD_DELETED = "its pod is deleted"
    SYNCER_DELETED = "its syncer is deleted"
    OPERATOR_STOPS = "the operator stops"
    RENEWER_STOPS = "its renewer stops"
    STACK_DESTROYED = "the stack is destroyed"


def impact(instance: Instance, manager: Manager, syncer: Syncer | None = None) -> list[tuple[Event, str]]:
    """Return each event that concerns an instance, with its effect.

    :param syncer: the syncer that keeps the instance, where it is known.
    """
    return list(_BY_KIND[manager.kind](instance, manager, syncer))


def lapse(instance: Instance) -> str:
    """Return, as the end of a sentence, when Eureka forgets an instance that nobody renews."""
    if not (kind := kind_of(instance)).renewals:
        return (
            f"stays until somebody removes it: {kind.name} forgets nothing, but what ends with its own"
            " session"
        )
    least = 2 * instance.lease.duration_seconds
    return (
        f"lapses: Eureka forgets it {least} to {least + EVICTION_SECONDS} s after its last renewal, later"
        " while self-preservation is on"
    )


def _of_syncer(instance: Instance, _manager: Manager, syncer: Syncer | None) -> Iterator[tuple[Event, str]]:
    if syncer is not None:
        yield Event.POD_DELETED, _pod_deleted(instance, syncer)
    yield (
        Event.SYNCER_DELETED,
        (
            "another syncer of this cluster that wants it takes it over as it stands; without one it is"
            " deregistered at once"
        ),
    )
    yield (
        Event.OPERATOR_STOPS,
        (
            f"a standby replica goes on within {FAIL_OVER_SECONDS} s, and nothing changes; without one nobody"
            f" renews it, and it {lapse(instance)}"
        ),
    )


def _pod_deleted(instance: Instance, syncer: Syncer) -> str:
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
            f"it is OUT_OF_SERVICE from that moment until its endpoint is gone, then {end}; {forgotten}, with"
            " Spring Cloud's default caches"
        )
    if syncer.policy is Policy.UPSERT_ONLY:
        return f"the syncer's policy is UpsertOnly: it is renewed no more, and {lapse(instance)}"
    return (
        f"it is deregistered at the moment at which the deletion begins; {forgotten}, with Spring Cloud's"
        " default caches"
    )


def _of_stack(instance: Instance, _manager: Manager, _syncer: Syncer | None) -> Iterator[tuple[Event, str]]:
    yield (
        Event.POD_DELETED,
        "nothing by itself: it stays and is renewed until the stack runs, which a StackRefresh can begin",
    )
    if instance.renewer in (None, SELF_RENEWED):
        yield Event.OPERATOR_STOPS, "nothing: its application renews it"
        yield Event.RENEWER_STOPS, f"its application renews it; when that ends, it {lapse(instance)}"
    else:
        yield (
            Event.OPERATOR_STOPS,
            f"nothing, unless that operator is its renewer {instance.renewer!r}: see the next line",
        )
        yield (
            Event.RENEWER_STOPS,
            f"another replica of {instance.renewer!r} goes on; without one it {lapse(instance)}",
        )
    yield (
        Event.STACK_DESTROYED,
        (
            "it is deregistered, after the drain that its resource asks for; what another run registered"
            " again under its id stays"
        ),
    )


def _of_another_cluster(
    instance: Instance, manager: Manager, _syncer: Syncer | None
) -> Iterator[tuple[Event, str]]:
    cluster = manager.name.partition("/")[0]
    yield Event.POD_DELETED, f"the operator of cluster {cluster} does what its syncer says"
    yield Event.OPERATOR_STOPS, "nothing, unless it is the operator of that cluster"
    yield (
        Event.RENEWER_STOPS,
        f"the operator of cluster {cluster} renews it; without that it {lapse(instance)}",
    )


def _of_itself(instance: Instance, _manager: Manager, _syncer: Syncer | None) -> Iterator[tuple[Event, str]]:
    yield (
        Event.POD_DELETED,
        f"its own client deregisters it where it ends in order; where it is killed, it {lapse(instance)}",
    )
    yield Event.OPERATOR_STOPS, "nothing: Eurekube has nothing to do with it"
    yield Event.RENEWER_STOPS, f"it renews itself; when it ends without a word, it {lapse(instance)}"


def _of_another(instance: Instance, manager: Manager, _syncer: Syncer | None) -> Iterator[tuple[Event, str]]:
    yield Event.RENEWER_STOPS, f"{manager.name} decides; when nobody renews it, it {lapse(instance)}"


_BY_KIND = {
    ManagerKind.SYNCER: _of_syncer,
    ManagerKind.OTHER_CLUSTER: _of_another_cluster,
    ManagerKind.STACK: _of_stack,
    ManagerKind.OTHER: _of_another,
    ManagerKind.ITSELF: _of_itself,
}
