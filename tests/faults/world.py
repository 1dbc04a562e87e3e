"""The system under test in the storm: two clusters with operators, three Eureka servers, and other clients of
them.

``east`` has a whole control plane, real Deployments and several replicas of the operator. ``west`` shares the
application RATING with it; its endpoints are written by hand, so that it can be lost and rebuilt in seconds.
"""

from __future__ import annotations

import itertools
import math
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import requests
import yaml

from eurekube_provider.core.derived_syncer import SYNC_ANNOTATION
from eurekube_provider.core.errors import KubernetesError, RegistryError
from eurekube_provider.core.model import EurekaLease, Instance, Port, Status
from eurekube_provider.core.syncer import READINESS_GATE
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.kube.access import (
    ENDPOINT_SLICES,
    MERGE_PATCH_TYPE,
    NAMESPACES,
    PODS,
    SERVICES,
    SYNCERS,
    ApiResource,
)
from lab import Lab
from lab.kubernetes import Kubernetes
from lab.peering import SERVER_COUNT, PeeredEurekas
from lab.ports import free_ports
from lab.processes import kill_all
from lab.programs import SERVER_PROGRAM_NAMES as CONTROL_PLANE
from lab.programs import provide_programs
from lab.workloads import Cluster, readiness_condition_types, wait_for
from tests.faults.excuse import START_SECONDS, Excuse, Excuses
from tests.faults.gates import CALLERS_SECONDS
from tests.faults.named import NamedEureka
from tests.faults.operators import LEASE_NAME, LEASE_NAMESPACE, ROOT, Operator
from tests.faults.witness import Complaint, WatchedCluster, WatchedServer, Witness

Object = dict[str, Any]
T = TypeVar("T")

LEASES = ApiResource("coordination.k8s.io", "v1", "leases")

EAST_CLUSTER, WEST_CLUSTER = "east", "west"
NAMED, NAMED_NUMBER = "legacy", SERVER_COUNT
"""The operators' name for a further Eureka server, which is no peer of the others, and its number for the
witness.
"""

SHOP, GUEST = "shop", "guest"
MARKET, JOINED = "market", "all"
"""The namespace whose Services have one syncer and whose pods have the readiness gate, and that syncer."""

ELSEWHERE = "ledger"
"""The application that is registered at the further Eureka server."""

APPS: dict[str, dict[str, tuple[int, str]]] = {
    SHOP: {
        "rating": (6, "pod"),
        "catalog": (12, "pod"),
        "front": (3, "service"),
        "taken": (1, "service"),
        "blue": (3, "pod"),
        "green": (2, ""),
        ELSEWHERE: (4, "pod"),
    },
    GUEST: {"mail": (3, "pod"), "map": (2, "pod")},
    MARKET: {"price": (3, ""), "stock": (3, ""), "offer": (2, "")},
}
"""Replicas and syncer mode (empty for no syncer of its own) of each application, by namespace."""

EDITED = (SHOP, "blue")
"""Namespace and name of the syncer that people edit; it may select ``blue`` or ``green``."""

WEST_APPS = {"rating": 4, "west-only": 3}
OTHERS_LEASE = EurekaLease(duration_seconds=3600)
OTHERS_RENEW_SECONDS = 2.0
KUBELET_SECONDS = 1.0
GIVEN_UP_SECONDS = 30.0
CALM_SECONDS = 240.0
"""Longest time until the cluster's controllers have all pods ready again, in seconds; a test of the
controllers only, not of our code.
"""


class World:
    """The system under test while the block runs: ``with World(replicas=3) as world:``.

    :param replicas: of the operator in ``east``.
    :param away_seconds: how long an API server may be away at most, for those who have to wait for it.
    :param slack: how many times longer than promised everything may take, on a machine that others load.
    """

    def __init__(self, replicas: int, away_seconds: float, slack: float = 1.0) -> None:
        self.excuses = Excuses(slack)
        self.patience_seconds = away_seconds + CALM_SECONDS
        self.directory = Path(tempfile.mkdtemp(prefix="eurekube-faults-"))
        self.unready: set[str] = set()
        """Pods that a fault currently keeps from being ready."""

        self._replicas = replicas
        self._stack = ExitStack()
        self._active: dict[int, str] = {}
        self._active_lock = threading.Lock()
        self._numbers = itertools.count()
        self._generation = itertools.count(1)
        self._pending_since: dict[str, float] = {}
        self._stopped = threading.Event()
        self._duties: list[threading.Thread] = []
        self.others: list[Instance] = []
        self.east_operators: list[Operator] = []

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(f"the logs are kept in {self.directory}")
        self.stop(keep_logs=error is not None)

    def stop(self, *, keep_logs: bool = True) -> None:
        """Stop all threads and processes; keep the logs unless told otherwise."""
        self._stopped.set()
        for duty in self._duties:
            duty.join()
        with suppress(AttributeError):
            self.witness.stop()
        self._stack.close()
        if not keep_logs:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _start(self) -> None:
        logs = self.directory / "logs"
        self.eureka = PeeredEurekas(logs)
        self._stack.callback(self.eureka.stop)
        self.eureka.launch()  # they take longest, and need nobody
        self.named = NamedEureka(logs)
        self._stack.callback(self.named.stop)
        self.named.launch()
        self.lab = self._stack.enter_context(Lab(eureka=0, nodes=2, directory=self.directory / "east"))
        west = self.directory / "west"
        self.west_plane = Kubernetes(
            provide_programs(CONTROL_PLANE), directory=west, api_server_port=free_ports(1)[0], nodes=1
        )
        self._stack.callback(lambda: kill_all(self.west_plane.processes))
        self.west_plane.start_etcd_and_api_server()
        self.east = Cluster(self.lab.kubeconfig)
        self.west = Cluster(self.west_plane.kubeconfig)
        for server in (*self.eureka.servers, self.named.server):
            server.wait_until_ready()
        self._others = [Peer(server.url, Connection((server.url,))) for server in self.eureka.servers]
        self._install_crds(self.east)
        for namespace in (SHOP, GUEST):
            self.populate(namespace)
        self.apply_west()
        self.calm(SHOP, GUEST)
        self._plant_others()
        self.east_operators = [
            self._operator(f"east-{number}", EAST_CLUSTER, self.lab.kubernetes)
            for number in range(self._replicas)
        ]
        self.west_operator = self._operator("west", WEST_CLUSTER, self.west_plane)
        for operator in self.operators:
            operator.launch()
        for operator in self.operators:
            operator.wait_until_ready()
        self._duty(self._kubelets, KUBELET_SECONDS)
        self._duty(self._renew_others, OTHERS_RENEW_SECONDS)
        self.witness = Witness(
            [
                *(
                    WatchedServer(server.name, server.log, partial(self.eureka.list_instances, number))
                    for number, server in enumerate(self.eureka.servers)
                ),
                WatchedServer(
                    self.named.server.name, self.named.server.log, self.named.list_instances, NAMED
                ),
            ],
            [
                WatchedCluster(
                    Cluster(self.lab.kubeconfig).access,
                    EAST_CLUSTER,
                    [one.log for one in self.east_operators],
                ),
                WatchedCluster(
                    Cluster(self.west_plane.kubeconfig).access, WEST_CLUSTER, [self.west_operator.log]
                ),
            ],
            self.others,
            self.active,
            self.excuses,
        )
        self.witness.start()
        self.populate(MARKET)  # without an operator no gate opens
        self.calm()

    @property
    def operators(self) -> list[Operator]:
        """The operator processes of both clusters."""
        return [*self.east_operators, self.west_operator]

    @property
    def complaints(self) -> list[Complaint]:
        """Return the witness's complaints so far."""
        return self.witness.complaints

    def readings(self) -> str:
        """The number of readings that the witness has made, in words."""
        servers, clusters = (
            sum(one.readings for one in watched) for watched in (self.witness.servers, self.witness.clusters)
        )
        return (
            f"{servers} readings of Eureka servers and {clusters} of clusters,"
            f" {self.witness.waited_gates} gates that waited for callers"
        )

    def active(self) -> tuple[str, ...]:
        """The faults that are active at the moment, in words."""
        with self._active_lock:
            return tuple(self._active.values())

    @contextmanager
    def activity(self, words: str, excuses: Iterable[Excuse]) -> Iterator[None]:
        """Record a fault as active, with its excuses, while the block runs."""
        number = next(self._numbers)
        with self._active_lock:
            self._active[number] = words
        if self._replicas == 1:  # nobody takes over
            excuses = [
                replace(one, longest_seconds=math.inf, margin_seconds=one.margin_seconds + START_SECONDS)
                for one in excuses
            ]
        given = self.excuses.give(words, excuses, time.monotonic())
        try:
            yield
        finally:
            self.excuses.end(given, time.monotonic())
            with self._active_lock:
                del self._active[number]

    def leader(self) -> int:
        """Return the number of the ``east`` replica that holds the Lease; 0 if none does."""
        with suppress(KubernetesError):
            lease = self.east.get(LEASES, LEASE_NAME, LEASE_NAMESPACE) or {}
            holder = str((lease.get("spec") or {}).get("holderIdentity") or "")
            for number, operator in enumerate(self.east_operators):
                if holder.startswith(operator.name):
                    return number
        return 0

    def populate(self, namespace: str) -> None:
        """Create a namespace with its Deployments, Services and syncers."""
        self.east.create_namespace(namespace)
        if namespace == MARKET:
            spec = {
                "mode": "pod",
                "selector": {"services": "Annotated"},
                "annotations": ["mode"],
                "readinessGate": {"callersSeconds": CALLERS_SECONDS},
            }
            head = {"apiVersion": "eurekube.io/v1alpha1", "kind": "EurekaSyncer"}
            metadata = {"namespace": MARKET, "name": JOINED}
            self.east.apply(SYNCERS, {**head, "metadata": metadata, "spec": spec})
        for app, (replicas, mode) in APPS[namespace].items():
            self.deployment(namespace, app, replicas)
            self.service(namespace, app)
            if mode:
                named: Object = {"eureka": NAMED} if app == ELSEWHERE else {}
                self.east.apply_syncer(namespace, app, mode, **named)

    def deployment(self, namespace: str, app: str, replicas: int, version: str = "1") -> None:
        """Apply a Deployment of ``east``; another version rolls it."""
        gates = (READINESS_GATE,) if namespace == MARKET else ()
        self.east.apply_deployment(namespace, app, replicas, version=version, gates=gates)

    def service(self, namespace: str, app: str) -> None:
        """Apply a Service of ``east``, which joins its namespace's syncer if there is one."""
        self.east.apply_service(namespace, app)
        if namespace == MARKET:
            self.join(app, "true")

    def join(self, app: str, said: str | None) -> None:
        """Say by its annotation how a Service joins its namespace's syncer; None: by no annotation."""
        self.witness.unsettle(EAST_CLUSTER, (MARKET, f"{JOINED}.{app}"))
        self.patch(SERVICES.path(MARKET, app), {"metadata": {"annotations": {SYNC_ANNOTATION: said}}})
        self.witness.unsettle(EAST_CLUSTER, (MARKET, f"{JOINED}.{app}"))

    def apply_west(self) -> None:
        """Apply the YAML of ``west``, each time with other pods."""
        self._install_crds(self.west)
        self.west.apply(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SHOP}})
        generation = next(self._generation)
        for position, (app, replicas) in enumerate(WEST_APPS.items()):
            self.west.apply_service(SHOP, app)
            self.west.apply(ENDPOINT_SLICES, _west_slice(app, position, replicas, generation))
            self.west.apply_syncer(SHOP, app)

    def heal(self) -> None:
        """End every fault: start processes, open proxies, and let pods become ready."""
        self.unready.clear()
        for operator in self.operators:
            operator.tcp_proxy.heal()
        planes = [self.lab.kubernetes, self.west_plane]
        for plane in planes:
            for process in (plane.etcd, plane.api_server):
                process.resume()
                process.start()
        for process in (self.lab.controller_manager, self.lab.scheduler, self.lab.kwok):
            process.resume()
            process.start()
        self.eureka.heal()
        self.named.heal()
        for operator in self.operators:
            operator.resume()
            operator.launch()
        for operator in self.operators:
            operator.wait_until_ready()
        self.witness.faults_are_over()

    def calm(self, *namespaces: str) -> None:
        """Wait until the controllers have created all pods of some namespaces, by default of all, and all
        are ready.
        """

        def is_whole() -> bool:
            with suppress(KubernetesError):
                return all(
                    len(self.east.ready_addresses(namespace, app)) == replicas
                    for namespace in namespaces or APPS
                    for app, (replicas, _) in APPS[namespace].items()
                )
            return False

        wait_for(is_whole, "all pods to be ready", CALM_SECONDS)

    def wait_level(self, seconds: float) -> float:
        """Wait until every server holds what the clusters want; return the seconds that it took.

        :param seconds: the longest time since the last change, after which it fails.
        :raises TimeoutError: says what still differs.
        """
        began = time.monotonic()
        differences = ["nothing could be read"]
        while True:
            with suppress(KubernetesError, requests.exceptions.RequestException):
                differences = self.witness.differences()
                if not differences:
                    return time.monotonic() - began
            if time.monotonic() - max(began, self.witness.changed_at) > seconds:
                shown = "\n".join(differences[:20])
                raise TimeoutError(
                    f"not level after {seconds:.0f} s; {len(differences)} differences:\n{shown}"
                )
            time.sleep(0.5)

    def wish_out_of_service(self) -> None:
        """Take one pod of ``rating`` out of service as a person would, unless a person has done so before."""
        if self.witness.out_of_service:
            return
        pod = self.east.pods(SHOP, "rating")[0]["metadata"]["name"]
        key = ("RATING", f"{pod}.{SHOP}.east:rating:8080")
        held = self.eureka.list_instances(0)[key]
        self.witness.may_go_out_of_service(key)
        self._others[0].set_status(held, Status.OUT_OF_SERVICE)

        def is_out() -> bool:
            return all(
                self.eureka.list_instances(number)[key].status is Status.OUT_OF_SERVICE
                for number in range(SERVER_COUNT)
            )

        wait_for(is_out, "the person's wish on every server", CALM_SECONDS)
        self.witness.expect_out_of_service(key)

    def insist(self, do: Callable[[], T]) -> T:
        """Do something to the cluster, and repeat it while the API server does not answer."""
        deadline = time.monotonic() + self.patience_seconds
        while True:
            try:
                return do()
            except KubernetesError:
                if time.monotonic() > deadline or self._stopped.wait(0.5):
                    raise

    def patch(self, path: str, body: Object) -> None:
        """Patch an object of ``east``."""
        self.east.access.request("PATCH", path, body=body, content_type=MERGE_PATCH_TYPE)

    def _operator(self, name: str, cluster_name: str, plane: Kubernetes) -> Operator:
        port = int(plane.url.rpartition(":")[2])
        result = Operator(
            name,
            self.directory,
            plane.kubeconfig,
            port,
            self.eureka.urls,
            {
                "CLUSTER_NAME": cluster_name,
                "OPERATOR_NAME": cluster_name,
                "CONFIG": str(self._config()),
                "GATE_NAMESPACE": MARKET,
            },
        )
        self._stack.callback(result.tcp_proxy.stop)
        self._stack.callback(result.kill)
        return result

    def _config(self) -> Path:
        path = self.directory / "operator.yaml"
        path.write_text(yaml.safe_dump({"connections": {NAMED: {"url": self.named.url}}}))
        return path

    def operator_refuses(self, operator: Operator) -> str:
        """Start an operator that must refuse to work; return its log once it has ended, or has started
        work after all.
        """
        offset = len(operator.text())
        operator.launch()
        wait_for(
            lambda: operator.pid is None or operator.is_at_work(),
            f"{operator.name} to refuse its work",
            self.patience_seconds,
        )
        return operator.text()[offset:]

    def _install_crds(self, cluster: Cluster) -> None:
        for path in (ROOT / "crds").glob("*.yaml"):
            cluster.install_crd(yaml.safe_load(path.read_text()))

    def _plant_others(self) -> None:
        """Register instances of others: of another cluster, of a machine, of a pod's own client, and one
        under an id of ours.
        """
        itself = self.east.ready_addresses(SHOP, "catalog")[0]
        for app, instance_id, address, owner in (
            ("rating", f"pod.{SHOP}.north:rating:8080", "192.0.2.1", f"cluster/north/{SHOP}/rating"),
            ("catalog", "vm-7:catalog:9000", "192.0.2.7", ""),
            ("catalog", f"{itself}:catalog:8080", itself, ""),
            ("taken", f"taken.svc.{SHOP}.east:taken:8080", "192.0.2.9", "stack/org/shop/prod/taken"),
        ):
            metadata = {"eurekube.owner": owner} if owner else {"team": "legacy"}
            port = Port(int(instance_id.rpartition(":")[2]))
            self.others.append(
                Instance(
                    app,
                    instance_id,
                    address,
                    address,
                    port,
                    metadata=metadata,
                    lease=OTHERS_LEASE,
                    last_dirty_timestamp_ms=int(time.time() * 1000),
                )
            )
        for one in self.others:
            self._others[0].register(one)

    def _duty(self, do: Callable[[], None], interval_seconds: float) -> None:
        def run() -> None:
            while not self._stopped.wait(interval_seconds):
                with suppress(KubernetesError, RegistryError):
                    do()

        self._duties.append(threading.Thread(target=run, name=do.__name__))
        self._duties[-1].start()

    def _kubelets(self) -> None:
        """Do what kubelets and controllers do and kwok does not.

        Running pods become ready unless a fault prevents it; pods that were assigned to a node while it was
        lost, and will never start, are deleted.
        """
        for pod in self.east.access.get(PODS.path())["items"]:
            metadata, status = pod["metadata"], pod.get("status") or {}
            conditions = {one["type"]: one["status"] for one in status.get("conditions") or ()}
            first, *_ = readiness_condition_types(pod)
            if metadata.get("deletionTimestamp"):
                continue
            if status.get("phase") == "Pending" and pod["spec"].get("nodeName"):
                since = self._pending_since.setdefault(metadata["uid"], time.monotonic())
                if time.monotonic() - since > GIVEN_UP_SECONDS:
                    self.east.delete(PODS, metadata["name"], metadata["namespace"])
            elif conditions.get(first) == "False" and metadata["name"] not in self.unready:
                self.east.set_ready(pod, ready=True)

    def _renew_others(self) -> None:
        """Renew the instances of others at each server, and register missing ones again."""
        for peer in self._others:
            with suppress(RegistryError):
                for one in self.others:
                    if not peer.renew(one):
                        peer.register(one)


def edited_syncer(app: str, mode: str) -> Object:
    """Return the next spec that a person gives to the edited syncer."""
    return {"spec": {"mode": mode, "selector": {"app": app}}}


def _west_slice(app: str, position: int, replicas: int, generation: int) -> Object:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": SHOP,
            "name": f"{app}-by-hand",
            "labels": {"kubernetes.io/service-name": app},
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [
            {
                "addresses": [f"10.1.{10 * generation + position}.{number + 1}"],
                "conditions": {"ready": True, "serving": True, "terminating": False},
                "targetRef": {"kind": "Pod", "name": f"{app}-{generation}-{number}"},
            }
            for number in range(replicas)
        ],
    }
