"""A syncer with its Service and endpoints, for tests of the reconciler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from eurekube_provider.core.plan import Action, Change, Plan, PlanOutcome
from eurekube_provider.core.syncer import FINALIZER
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.eureka_registry import EurekaRegistry
from eurekube_provider.kube.reflector import ReflectorGroup
from eurekube_provider.operator.conditions import SyncerReport
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.reports import SyncerResult
from tests.unit.fake_eureka import FakeEureka, FakeServers
from tests.unit.operator.parts import PlayedOperator

KEY = ("shop", "rating")
WEB: list[dict[str, Any]] = [{"name": "web", "port": 8080}]
BOTH = [*WEB, {"name": "metrics", "port": 9090}]
READY, TERMINATING = {"ready": True}, {"ready": False, "terminating": True}


CarryOut = Callable[[Plan, str, EurekaRegistry], PlanOutcome]


class Scene:
    """A syncer with its Service and endpoints; every write to Eureka is recorded and counts as done.

    :param unread: the kind of objects that has not been listed yet, if any.
    """

    def __init__(self, *, unread: str = "", **spec: Any) -> None:
        self.played = PlayedOperator(("default", "elsewhere"))
        self.elsewhere = self.played.registries["elsewhere"]
        self.reconciler = self.played.reconciler
        self.result = SyncerResult()
        self.sent: list[Change] = []
        self.carry_out: CarryOut = self._taken_as_done
        for registry in (self.played.registry, self.elsewhere):
            registry.reachability.note_read_and_check_first()
            registry.apply = self._applies_at(registry)  # type: ignore[method-assign,assignment]
            registry.refresh = lambda *_, **__: None  # type: ignore[method-assign]
        sources = self.played.sources
        self.concerned = self.played.concerned
        kinds = {"syncers": sources.syncers, "services": sources.services, "slices": sources.slices}
        for kind, group in kinds.items():
            if kind != unread:
                self.read(group)
        self.spec = {"mode": "pod", "selector": {"app": "rating"}, **spec}
        self.played.syncer("rating")
        self.edited()
        (services,) = sources.services.reflectors
        service = {"namespace": "shop", "name": "rating", "labels": {"app": "rating"}}
        services.apply_event("ADDED", {"metadata": service, "spec": {}})

    @staticmethod
    def read(group: ReflectorGroup) -> None:
        """Complete the first list of a kind; it is empty."""
        (reflector,) = group.reflectors
        reflector.replace_from_list([{"metadata": {"resourceVersion": "1"}, "items": []}])

    def edited(self, *, status: dict[str, Any] | None = None, **spec: Any) -> None:
        """Change the syncer's spec and status, as the watch would report it."""
        self.spec = self.spec | spec
        (syncers,) = self.played.sources.syncers.reflectors
        metadata = {"namespace": "shop", "name": "rating", "uid": "u", "finalizers": [FINALIZER]}
        kind = {"apiVersion": "eurekube.io/v1alpha1", "kind": "EurekaSyncer"}
        status = status or {}
        self.syncer: dict[str, Any] = {**kind, "metadata": metadata, "spec": self.spec, "status": status}
        syncers.apply_event("MODIFIED", self.syncer)

    def set_endpoints(self, **pods: dict[str, bool]) -> None:
        """Replace the endpoints, reconcile, and forget the recorded requests."""
        self.endpoints(WEB, **pods)
        self.reconcile()
        self.sent.clear()

    def endpoints(self, ports: list[dict[str, Any]], **pods: dict[str, bool]) -> None:
        """Replace the EndpointSlice's endpoints."""
        (slices,) = self.played.sources.slices.reflectors
        endpoints = [
            {
                "addresses": [f"10.0.0.{number}"],
                "conditions": conditions,
                "targetRef": {"kind": "Pod", "name": name},
            }
            for number, (name, conditions) in enumerate(pods.items(), 1)
        ]
        labels = {"kubernetes.io/service-name": "rating"}
        metadata = {"namespace": "shop", "name": "rating-1", "labels": labels}
        slices.apply_event(
            "MODIFIED",
            {"metadata": metadata, "addressType": "IPv4", "ports": ports, "endpoints": endpoints},
        )

    def reconcile(self, key: SyncerKey = KEY, served: str = "") -> list[Change]:
        """Reconcile a syncer, by default this one; return the requests that were sent to Eureka."""
        self.sent.clear()
        self.result = self.reconciler.reconcile(key, served)
        return list(self.sent)

    @property
    def report(self) -> SyncerReport:
        """Return the last reconcile's report."""
        assert self.result.report is not None
        return self.result.report

    def configure(self, **settings: Any) -> None:
        """Change the operator's configuration from now on."""
        self.reconciler = self.played.configured(replace(self.played.parts.settings, **settings))

    def real(self, *connections: EurekaRegistry) -> FakeEureka:
        """Send changes to a fake Eureka server from now on, and return it.

        :param connections: those that lead to it, by default the one that the syncer names.
        """
        eureka = FakeEureka()
        for registry in connections or (self.played.registry,):
            (peer,) = registry.peers.peers
            registry.peers.peers = FakeServers({peer.url: eureka})(Connection.parse(peer.url)).peers
            registry.refresh = partial(EurekaRegistry.refresh, registry)  # type: ignore[method-assign]

        def carry_out(steps: Plan, owner: str, registry: EurekaRegistry) -> PlanOutcome:
            self.sent += steps.changes
            return registry.writer.apply(steps, owner)

        self.carry_out = carry_out
        return eureka

    def ready(self) -> tuple[bool | None, str]:
        """Return the status and reason of Ready in the last report."""
        return self.report.is_ready, self.report.ready.reason

    def renewed(self, registry: EurekaRegistry | None = None) -> set[str]:
        """Return the pods whose instances are renewed."""
        held = (registry or self.played.registry).renewals.renewed_instances()
        return {instance.instance_id.partition(".")[0] for instance in held}

    def _applies_at(self, registry: EurekaRegistry) -> Callable[[Plan, str], PlanOutcome]:
        return lambda steps, owner: self.carry_out(steps, owner, registry)

    def _taken_as_done(self, steps: Plan, _owner: str, registry: EurekaRegistry) -> PlanOutcome:
        for change in steps.changes:
            if change.action is Action.DEREGISTER:
                registry.instances.note_removal_begins(change.instance)
                registry.instances.note_removed(change.instance)
            else:
                registry.instances.note_registered(change.instance)
        self.sent += steps.changes
        return PlanOutcome(steps.changes)
