"""The operator's real parts in this process, for one syncer, without watches and an API server.

Tests hand Kubernetes objects to the operator's caches as its watches would do. Everything behind them is what
an operator runs: the sources with their mapping, the controller with its workers and queue, the reconciler
with plan and brake, and the registry. Statuses and Events are not written, since there is no API server.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any, Self
from weakref import WeakKeyDictionary

import pytest
from kubernetes import client

from eurekube_provider.core.identity import Cluster, ClusterOwner
from eurekube_provider.core.model import EurekaLease, Instance
from eurekube_provider.core.registry import Healthy
from eurekube_provider.core.syncer import DEFAULT_CONNECTION_NAME, FINALIZER
from eurekube_provider.eureka.connection import BatchMode, Connection
from eurekube_provider.eureka.eureka_registry import EurekaRegistry
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import KubeAccess
from eurekube_provider.kube.events import EventRecorder
from eurekube_provider.operator.controller import Controller
from eurekube_provider.operator.drain_check import DrainCheck
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.queue import WorkQueue
from eurekube_provider.operator.reconciler import Reconciler
from eurekube_provider.operator.settings import Settings
from eurekube_provider.operator.sources import ClusterCache
from eurekube_provider.operator.status import StatusPublisher, StatusWriter
from lab.waiting import wait_until
from tests.faults.expected import Key

Object = dict[str, Any]

RENEWAL_INTERVAL_SECONDS = 1.0
START_SECONDS, STOP_GRACE_SECONDS = 40.0, 30.0
PORT = 8080
NAMESPACE = "shop"
CHANGED = "MODIFIED"
"""Type of a watch event for a changed object; a cache without the object takes it as new."""


class LocalOperator:
    """An operator with one syncer of mode ``pod``, which leads until it is paused.

    Its cluster has the application's name, since an operator removes instances of unknown syncers of its own
    cluster: so it leaves those of other operators and of failed tests alone.

    :param connection: how to reach the servers; ``mode`` wins over its own.
    :param app: the name of the syncer, its Service and the application.
    :param interval_seconds: the longest time between two renewals of one instance.
    """

    def __init__(
        self,
        connection: Connection,
        app: str,
        mode: BatchMode,
        *,
        interval_seconds: float = RENEWAL_INTERVAL_SECONDS,
    ) -> None:
        self.app = app
        self.mode = mode
        self._cluster = cluster = Cluster(app, f"uid-{app}")
        self.owner = str(ClusterOwner(cluster.name, NAMESPACE, app))
        self._leads = True
        self.peers = Peers(replace(connection, mode=mode), self._may_write, waits_for_all_servers=False)
        self.registry = EurekaRegistry(
            self.peers, cluster, "operator", 1.0, renewal_interval_seconds=interval_seconds
        )
        access = KubeAccess(client.Configuration(host="http://127.0.0.1:1"))
        registries = {DEFAULT_CONNECTION_NAME: self.registry}
        settings = Settings({DEFAULT_CONNECTION_NAME: self.peers.connection}, pod_name="operator")
        queue: WorkQueue[SyncerKey] = WorkQueue()
        self._sources = ClusterCache(access, cluster, (), queue.add)
        drain_check = DrainCheck(access, self._sources, 0, queue.add)
        self._controller = Controller(
            settings,
            cluster,
            registries,
            self._sources,
            Reconciler(settings, cluster, access, registries, self._sources, drain_check, self._may_write),
            StatusPublisher(EventRecorder(access, "test", "test"), StatusWriter(access)),
            drain_check,
            queue,
        )
        (self._syncers,) = self._sources.syncers.reflectors
        (self._services,) = self._sources.services.reflectors
        (self._slices,) = self._sources.slices.reflectors
        self._pods: set[int] = set()
        self._ends = ExitStack()
        self._syncer: Object = {}
        self.lease = EurekaLease()

    def __enter__(self) -> Self:
        nothing = {"metadata": {"resourceVersion": "1"}, "items": []}
        for reflector in (self._syncers, self._services, self._slices):
            reflector.replace_from_list([nothing])
        service = {"metadata": self._metadata(labels={"app": self.app}), "spec": {"ports": [{"port": PORT}]}}
        self._services.apply_event(CHANGED, service)
        self._take_syncer(EurekaLease(), {})
        self._take_slice(())
        try:
            self.registry.start(_Listener(self._controller))
            self._ends.callback(self._stop_registry)
            wait_until(
                lambda: isinstance(self.registry.condition(), Healthy), "the first list", START_SECONDS
            )
            self._controller.start()
            self._ends.callback(self._controller.stop)
            self._controller.start_renewals()
            self._controller.lead()
        except BaseException:
            self._ends.close()
            raise
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ends.close()

    def _stop_registry(self) -> None:
        self.registry.stop()
        wait_until(
            lambda: not any(one.is_alive for one in self.registry.liveness()),
            "the registry's threads to end",
            STOP_GRACE_SECONDS,
        )

    def pause(self) -> None:
        """Stop changing Eureka until :meth:`lead`, and wait for changes under way; renewals go on.

        A replica is in this state after it could not renew its Lease, and before it reads that another one
        holds it.
        """
        self._leads = False
        wait_until(self._controller.pause_and_check_idle, "what is under way to end", STOP_GRACE_SECONDS)

    def lead(self) -> None:
        """Lead again, and reconcile everything."""
        self._leads = True
        self._controller.lead()

    def want(self, pods: Iterable[int], lease: EurekaLease | None = None, **metadata: str) -> None:
        """Make exactly these pods ready, with this lease and metadata.

        Pods that are left out are seen terminating before they are gone, as with kubelets.

        :param lease: None keeps the current lease.
        """
        after = set(pods)
        self._take_syncer(lease or self.lease, metadata)
        if self._pods - after:
            self._take_slice(self._pods | after, terminating=self._pods - after)
        self._pods = after
        self._take_slice(after)

    @property
    def desired(self) -> list[Instance]:
        """Return the syncer's wanted instances now, by the operator's own mapping, in the order of the
        pods.
        """
        wanted = self._sources.desired(self._sources.parse_spec(self._syncer)).instances
        return sorted(wanted, key=lambda one: one.instance_id)

    def key(self, pod: int) -> Key:
        """Return the key of a pod's instance."""
        return (self.app.upper(), f"{pod:04}.{NAMESPACE}.{self._cluster.name}:{self.app}:{PORT}")

    @property
    def renewed(self) -> int:
        """The number of instances that the operator renews."""
        return self.registry.figures().renewed_here

    @property
    def known(self) -> list[Instance]:
        """The operator's own instances in Eureka, as far as it knows them."""
        return self.registry.known_instances(owner=self.owner)

    def _may_write(self) -> bool:
        return self._leads

    def has_nothing(self) -> bool:
        """True if the operator renews no instance and knows none of its own in Eureka."""
        return not self.renewed and not self.known

    def _metadata(self, suffix: str = "", **more: Any) -> Object:
        return {"namespace": NAMESPACE, "name": f"{self.app}{suffix}", **more}

    def _take_syncer(self, lease: EurekaLease, metadata: Mapping[str, str]) -> None:
        self.lease = lease
        self._syncer = {
            "apiVersion": "eurekube.io/v1alpha1",
            "kind": "EurekaSyncer",
            "metadata": self._metadata(uid=f"uid-{self.app}", finalizers=[FINALIZER]),
            "spec": {
                "mode": "pod",
                "selector": {"app": self.app},
                "metadata": dict(metadata),
                "lease": {
                    "renewalIntervalSeconds": lease.renewal_interval_seconds,
                    "durationSeconds": lease.duration_seconds,
                },
            },
        }
        self._syncers.apply_event(CHANGED, self._syncer)

    def _take_slice(self, pods: Collection[int], terminating: Collection[int] = ()) -> None:
        self._slices.apply_event(
            CHANGED,
            {
                "metadata": self._metadata("-1", labels={"kubernetes.io/service-name": self.app}),
                "addressType": "IPv4",
                "ports": [{"name": "http", "port": PORT}],
                "endpoints": [_endpoint(pod, is_terminating=pod in terminating) for pod in sorted(pods)],
            },
        )


def address(pod: int) -> str:
    """Return the address of the pod with this number."""
    return f"10.0.{pod // 250}.{pod % 250}"


def _endpoint(pod: int, *, is_terminating: bool) -> Object:
    return {
        "addresses": [address(pod)],
        "conditions": {
            "ready": not is_terminating,
            "serving": True,
            "terminating": is_terminating,
        },
        "targetRef": {"kind": "Pod", "name": f"{pod:04}"},
    }


class _Listener:
    """A registry's listener that has the controller reconcile."""

    def __init__(self, controller: Controller) -> None:
        self.instances_of_owner_changed = controller.enqueue_syncer_of_owner
        self._controller = controller

    def condition_changed(self) -> None:
        """Have the controller reconcile the syncers of the connection."""
        self._controller.enqueue_syncers_of_eureka(DEFAULT_CONNECTION_NAME)


class Clocks:
    """A replacement of the module ``time`` that gives threads their own wall clocks.

    A thread has the clock of the thread that started it. It is used where timestamps of instances are made.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._ahead_seconds: WeakKeyDictionary[threading.Thread, float] = WeakKeyDictionary()
        start = threading.Thread.start

        def inheriting(thread: threading.Thread) -> None:
            self._ahead_seconds[thread] = self._ahead()
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", inheriting)
        monkeypatch.setattr("eurekube_provider.eureka.notes.time", self)

    def time(self) -> float:
        """Return the time that the calling thread sees."""
        return time.time() + self._ahead()

    def set_ahead(self, seconds: float) -> None:
        """Set the clock of this thread, and of threads that it starts later, so many seconds ahead."""
        self._ahead_seconds[threading.current_thread()] = seconds

    def _ahead(self) -> float:
        return self._ahead_seconds.get(threading.current_thread(), 0.0)
