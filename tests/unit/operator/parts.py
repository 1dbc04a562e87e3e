"""An operator's real parts, none of which is started or asks a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from kubernetes import client

from eurekube_provider.core.brake import HeldRemovals
from eurekube_provider.core.identity import Cluster, ClusterOwner
from eurekube_provider.core.mirror_conditions import MirroredServiceCounts, MirrorReport
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.core.objects import SERVICE_NAME_LABEL
from eurekube_provider.core.plan import Plan, PlanOutcome, plan
from eurekube_provider.core.problem import Problem
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.eureka_registry import EurekaRegistry
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import KubeAccess
from eurekube_provider.kube.events import EventRecorder
from eurekube_provider.operator.conditions import SyncerReport
from eurekube_provider.operator.controller import Controller
from eurekube_provider.operator.drain_check import DrainCheck
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.queue import WorkQueue
from eurekube_provider.operator.reconciler import Reconciler
from eurekube_provider.operator.settings import Settings
from eurekube_provider.operator.sources import ClusterCache
from eurekube_provider.operator.status import StatusPublisher, StatusWriter
from eurekube_provider.operator.triggers.triggers import StackRefreshController
from eurekube_provider.operator.web.running_operator import RunningOperator

CLUSTER = Cluster("lab", "uid-1")
_SYNCED = Problem("Synced", "")


def saying(
    is_ready: bool | None, ready: Problem, unsynced: Problem | None = None, **counts: Any
) -> SyncerReport:
    """Return a report with this reason of Ready, and of Synced if that is False."""
    return SyncerReport(is_ready, ready, unsynced is None, unsynced or _SYNCED, **counts)


URL = "http://127.0.0.1:9/eureka"


class PlayedOperator:
    """An operator's parts, and the objects that a test puts into their memory."""

    def __init__(self, eurekas: Sequence[str] = ("default",)) -> None:
        connection = Connection.parse(URL)
        settings = Settings(dict.fromkeys(eurekas, connection), pod_name="pod-1")
        access = self._access = KubeAccess(client.Configuration(host="http://127.0.0.1:1"))
        queue: WorkQueue[SyncerKey] = WorkQueue()
        self.queue = queue
        statuses = StatusWriter(access)
        self.registries = registries = {
            name: EurekaRegistry(Peers(connection), CLUSTER, "eurekube", 15.0) for name in eurekas
        }
        self.registry = registries[eurekas[0]]
        self.concerned: list[SyncerKey] = []
        self.mirrors: list[dict[str, Any]] = []
        self.may_write = True
        self.previous_cluster_names: tuple[str, ...] = ()

        def concerned(key: SyncerKey) -> None:
            self.concerned.append(key)
            queue.add(key)

        self.sources = ClusterCache(access, CLUSTER, (), concerned)
        self.drain_check = DrainCheck(access, self.sources, 0, queue.add)
        self.reconciler = self.configured(settings)
        publisher = StatusPublisher(EventRecorder(access, "c", "i"), statuses)
        self.controller = Controller(
            settings,
            CLUSTER,
            registries,
            self.sources,
            self.reconciler,
            publisher,
            self.drain_check,
            queue,
            lambda: self.previous_cluster_names,
        )
        self.parts = RunningOperator(
            settings,
            CLUSTER,
            "http://127.0.0.1:1",
            self.sources,
            registries,
            self.controller,
            statuses,
            queue,
            is_leader=lambda: None,
            started_at=0.0,
        )

    def configured(self, settings: Settings, *, reads_each_instance: bool = False) -> Reconciler:
        """Return a reconciler with other settings for the same registries and sources."""
        return Reconciler(
            settings,
            CLUSTER,
            self._access,
            self.registries,
            self.sources,
            self.drain_check,
            lambda: self.may_write,
            lambda: self.previous_cluster_names,
            reads_each_instance=reads_each_instance,
        )

    def leads(self, answer: bool | None) -> RunningOperator:
        """Return the parts of a replica that leads, does not lead, or takes part in no election (None)."""
        return replace(self.parts, is_leader=lambda: answer)

    def syncer(self, name: str, namespace: str = "shop", **more: Any) -> SyncerKey:
        """Add a syncer to the cluster; return its key."""
        (reflector,) = self.sources.syncers.reflectors
        spec = {"mode": "pod", "selector": {"app": name}}
        item: dict[str, Any] = {"metadata": {"namespace": namespace, "name": name}, "spec": spec, **more}
        reflector.apply_event("ADDED", item)
        return (namespace, name)

    def refresh(self, name: str, namespace: str = "shop", target: str = "prod", **more: Any) -> None:
        """Add a StackRefresh to the cluster."""
        if self.parts.triggers is None:
            access = self._access
            events = EventRecorder(access, "c", "i")
            triggers = StackRefreshController(
                self.parts.settings, "lab", access, events, lambda _: ([], []), {}
            )
            self.parts = replace(self.parts, triggers=triggers)
        assert self.parts.triggers is not None
        (reflector,) = self.parts.triggers.reflectors.reflectors
        spec = {"selector": {"app": name}, "action": "Up", "target": target}
        reflector.apply_event(
            "ADDED", {"metadata": {"namespace": namespace, "name": name}, "spec": spec, **more}
        )

    def slice(self, name: str, *addresses: str, namespace: str = "shop", ready: bool = True) -> None:
        """Add a Service of this name to the cluster, and an EndpointSlice with an endpoint at each
        address.
        """
        (services,) = self.sources.services.reflectors
        (slices,) = self.sources.slices.reflectors
        service = {"metadata": {"namespace": namespace, "name": name}, "spec": {}}
        services.apply_event("ADDED", service)
        slices.apply_event(
            "ADDED",
            {
                "metadata": {
                    "namespace": namespace,
                    "name": f"{name}-1",
                    "labels": {SERVICE_NAME_LABEL: name},
                },
                "addressType": "IPv4",
                "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
                "endpoints": [
                    {
                        "addresses": [address],
                        "conditions": {"ready": ready},
                        "targetRef": {"kind": "Pod", "name": f"{name}-{number}"},
                    }
                    for number, address in enumerate(addresses)
                ],
            },
        )

    def removed(self, key: SyncerKey) -> None:
        """Remove a syncer from the cluster, after its finalizer."""
        (reflector,) = self.sources.syncers.reflectors
        if (item := reflector.get(*key)) is not None:
            metadata = {name: one for name, one in item["metadata"].items() if name != "finalizers"}
            reflector.apply_event("MODIFIED", {**item, "metadata": metadata})
        self.vanished(key)

    def vanished(self, key: SyncerKey) -> None:
        """Have a syncer vanish although its deletion had not begun."""
        (reflector,) = self.sources.syncers.reflectors
        reflector.apply_event("DELETED", {"metadata": {"namespace": key[0], "name": key[1]}})

    def instances(self, key: SyncerKey, count: int, *, registered: bool = True) -> list[Instance]:
        """Return this number of a syncer's instances; register and renew them unless ``registered`` is
        False.
        """
        owner = str(ClusterOwner(CLUSTER.name, *key))
        made = [
            Instance(
                key[1],
                f"{key[1]}-{number}.{key[0]}.lab:{key[1]}:8080",
                "10.0.0.1",
                f"10.0.{number // 250}.{number % 250 + 1}",
                Port(8080),
                metadata={"eurekube.owner": owner},
            )
            for number in range(count)
        ]
        for instance in made if registered else ():
            self.registry.table.store_written_and_return_previous(instance)
            self.registry.renewals.add(instance, just_registered=True)
        return made

    def synced(self, key: SyncerKey, count: int) -> None:
        """Record a reconcile that found every instance registered."""
        application = key[1].upper()
        self.instances(key, count)
        well = Problem("Synced", "all there")
        report = saying(True, well, application=application, desired=count, registered=count)
        self.controller.history.record_reconcile(key, report, Plan())
        self.controller.history.count_reconcile_result(key, 0.02, failed=False)

    def conflict(self, key: SyncerKey, why: str = "belongs to somebody else") -> None:
        """Record a reconcile that found one of two instances owned by somebody else."""
        mine, taken = self.instances(key, 2, registered=False)
        self.registry.table.store_written_and_return_previous(mine)
        other = replace(taken, status=Status.DOWN, metadata={"eurekube.owner": "stack/o/p/s/n"})
        steps = plan([mine, taken], [mine, other], mine.owner or "")
        assert len(steps.refusals) == 1
        up, conflict = Problem("InstancesUp", why), Problem("Conflict", why)
        counts = {"desired": 2, "registered": 1, "refused": 1}
        problems = {"Conflict": conflict}
        report = saying(True, up, conflict, application=key[1].upper(), problems=problems, **counts)
        self.controller.history.record_reconcile(key, report, steps, PlanOutcome((), ()))
        self.controller.history.count_reconcile_result(key, 0.02, failed=False)

    def braked(self, key: SyncerKey, count: int, seconds: float) -> None:
        """Record a reconcile whose removals the brake holds back."""
        there = self.instances(key, count)
        steps = plan([], there, there[0].owner or "")
        up, braked = Problem("InstancesUp", "all would vanish"), Problem("Braked", "all would vanish")
        report = saying(True, up, braked, application=key[1].upper(), problems={"Braked": braked})
        held = HeldRemovals(Problem("Braked", "held back"), 0.0, "", 0.0, seconds)
        self.controller.history.record_reconcile(key, report, steps, PlanOutcome((), ()), held)
        self.controller.history.count_reconcile_result(key, 0.02, failed=False)

    def mirror(self, name: str, application: str = "review", **status: Any) -> None:
        """Add a mirror with this status to the cluster."""
        metadata = {"namespace": "shop", "name": name, "uid": name}
        self.mirrors.append({"metadata": metadata, "spec": {"application": application}, "status": status})
        objects = SimpleNamespace(mirrors=SimpleNamespace(objects=lambda: self.mirrors))
        reports = {
            ("shop", name): MirrorReport((MirroredServiceCounts("REVIEW", "review", 3, 2, 1),), read_at=1.0)
        }
        served: Any = SimpleNamespace(
            objects=objects,
            liveness=list,
            reports=lambda: reports,
            writes={("services", "create"): 1},
        )
        self.parts = replace(self.parts, mirrors=served)
