"""An operator that is killed between two requests does no harm; the next one completes or undoes its work.

SIGKILL reaches the process after it has got the answer to the first request of a row, and before the second
one reaches its server. ``tests/explore/test_killed_between.py`` plays further pairs on models.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from eurekube_provider.core.hand_over import (
    CUT_OFF_NOTE_ANNOTATION,
    LEASE_REQUEST_ANNOTATION,
    CutOffNote,
    format_cut_off_note,
    parse_lease_request,
)
from eurekube_provider.dev.kubernetes.kubernetes_api import KubernetesApi
from eurekube_provider.dev.kubernetes.object_api import ApiRequest
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import (
    ENDPOINT_SLICES,
    LEASES,
    MERGE_PATCH_TYPE,
    MIRRORS,
    NAMESPACES,
    SERVICES,
)
from eurekube_provider.runtime.clock import format_utc_time
from lab.errors import LabError
from lab.eureka import FAST_LIST_SETTINGS
from lab.processes import Process
from lab.proxy import Proxy
from lab.waiting import wait_until
from lab.workloads import Cluster
from tests.contract.conftest import WAIT_SECONDS, rating
from tests.eureka_servers import Servers, Train, run_servers

ROOT = Path(__file__).parents[2]
SHOP = "shop"
LIST_LAG_SECONDS = 1.0
OPERATOR = f"""
import sys
from eurekube_provider.eureka import windows
from eurekube_provider.operator import __main__, hand_over
hand_over.CUT_OFF_AFTER_SECONDS = windows.LIST_LAG_SECONDS = {LIST_LAG_SECONDS}
sys.exit(__main__.main([]))
"""
"""The operator, which asks for the Lease after one second in place of 20, and knows that lists are fresh."""


class Killer:
    """Kills a process between two requests, and keeps the lines of all requests.

    :ivar lines: the requests so far, by method and path; of a batch with its items as well.
    :ivar held: how many requests were held.
    :ivar is_over: set once the process was killed.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.held = 0
        self.is_over = threading.Event()
        self._lock = threading.Lock()
        self._row: Row | None = None
        self._has_begun = False
        self._process: Process | None = None

    def begin(self, row: Row, process: Process) -> None:
        """Kill the process between the row's two requests from now on."""
        with self._lock:
            self._row, self._process = row, process

    def end(self) -> None:
        """Let the requests of the next process pass."""
        with self._lock:
            self._row = None
            self.lines.clear()

    @property
    def is_dead(self) -> bool:
        """True if the process was killed, and the next one has not begun."""
        return self._row is not None and self.is_over.is_set()

    def refuse(self, line: str) -> int:
        """Note a request; return the status of its refusal, or 0 to pass it on."""
        with self._lock:
            self.lines.append(line)
            row = self._row
            if row is None:
                return 0
            if self.is_over.is_set():
                return 0
            if self._has_begun and re.search(row.second, line):
                assert self._process is not None
                self._process.kill()
                self.is_over.set()
                return 503
            self._has_begun |= bool(re.search(row.first, line))
            if row.refused and re.search(row.refused, line):
                return 500
        if row.held and re.search(row.held, line):
            self.held += 1
            self.is_over.wait(WAIT_SECONDS)
            return 503
        return 0

    def refuse_request(self, request: bytes) -> int:
        """Do the same for a request to a Eureka server."""
        head, _, body = request.partition(b"\r\n\r\n")
        method, path, _ = head.partition(b"\r\n")[0].decode().split()
        items = json.loads(body)["replicationList"] if "/batch" in path else []
        status = self.refuse(" ".join([method, path, *(f"{one['action']}:{one['id']}" for one in items)]))
        # What the dead process sent to other servers at once is not passed on, either.
        return status or (503 if self.is_dead else 0)

    def answer(self, api: KubernetesApi) -> Callable[[ApiRequest], tuple[int, dict[str, Any]]]:
        """Return a function that answers for an API what is not refused."""
        answer = api.objects.answer

        def answer_unless_refused(request: ApiRequest) -> tuple[int, dict[str, Any]]:
            dry = " dry run" if "dryRun" in request.query else ""
            code = self.refuse(f"{request.method} {request.path}{dry} {json.dumps(request.body)}")
            return (code, {"kind": "Status", "code": code}) if code else answer(request)

        return answer_unless_refused


class Stage:
    """A cluster and Eureka servers for one row, and the operators in front of which the killer stands."""

    def __init__(
        self,
        app: str,
        api: KubernetesApi,
        urls: list[str],
        fronts: list[Proxy],
        killer: Killer,
        directory: Path,
    ) -> None:
        self.app = app
        self.killer, self.peers = killer, Peers(Connection(tuple(urls)))
        self._directory = directory
        self._urls = [f"http://127.0.0.1:{front.port}/eureka" for front in fronts]
        self.cluster = Cluster(api.write_kubeconfig(directory / "kubeconfig"))
        for path in (ROOT / "crds").glob("*.yaml"):
            self.cluster.install_crd(yaml.safe_load(path.read_text()))
        self.cluster.apply(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SHOP}})
        api.objects.answer = killer.answer(api)  # type: ignore[assignment,method-assign]
        self._processes: list[Process] = []

    def operator(self, **settings: str) -> Process:
        """Start an operator, and wait until it is ready."""
        log = self._directory / f"operator-{len(self._processes)}.log"
        environment = {
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "EUREKA_URL": ",".join(self._urls),
            "KUBECONFIG": str(self._directory / "kubeconfig"),
            "CLUSTER_NAME": self.app,
            "LEADER_ELECT": "false",
            "WEB_ADDRESS": "",
            "RESYNC_SECONDS": "2",
            **settings,
        }
        process = Process(
            log.stem,
            [sys.executable, "-c", OPERATOR],
            log=log,
            is_ready=lambda: "operator is ready" in log.read_text(),
            environment=environment,
        )
        self._processes.append(process)
        process.launch()
        return process

    def close(self) -> None:
        """End all processes, and print their logs."""
        for process in self._processes:
            process.kill()
            print(process.log, process.log.read_text(), sep="\n")
        self.peers.close()

    def service(self, name: str, *pods: str, **spec: Any) -> None:
        """Apply a Service with pods, and its syncer."""
        self.cluster.apply_service(SHOP, f"{self.app}-{name}")
        self.pods(name, *pods)
        self.cluster.apply_syncer(SHOP, f"{self.app}-{name}", **spec)

    def pods(self, name: str, *pods: str, terminating: str = "") -> None:
        """Have a Service's ready endpoints be these pods, and one that is terminating."""
        endpoints = []
        for pod in (*pods, *filter(None, [terminating])):
            is_ready = pod != terminating
            endpoints.append(
                {
                    "addresses": [f"10.0.0.{int(pod.rpartition('-')[2]) + 1}"],
                    "conditions": {"ready": is_ready, "serving": True, "terminating": not is_ready},
                    "targetRef": {"kind": "Pod", "namespace": SHOP, "name": pod},
                }
            )
        self.cluster.apply_endpoint_slice(SHOP, f"{self.app}-{name}", endpoints)

    def held(self) -> list[dict[str, str]]:
        """Return, for each server, the pods of this stage and their statuses."""
        found = []
        for peer in self.peers.peers:
            held = [one for one in peer.list_instances() if one.application.startswith(self.app.upper())]
            found.append({one.instance_id.partition(".")[0]: str(one.status) for one in held})
        return found


@dataclass(frozen=True, slots=True)
class Row:
    """Two requests between which the operator is killed.

    :ivar begin: makes what stands before; ``changed`` what the operator then does something about.
    :ivar begun: what must stand before the change.
    :ivar first: a pattern of the first request; ``second`` of the second one.
    :ivar refused: a pattern of requests that are answered with 500 until the kill.
    :ivar held: a pattern of requests that get no answer until the kill.
    :ivar stands: returns what stands; ``after`` the kill, and in the ``end``.
    :ivar meanwhile: an act of others while no operator runs.
    :ivar again: a pattern of a request of the next operator.
    :ivar is_read_at_start: True if the operator begins after the change.
    """

    name: str
    begin: Callable[[Stage], None]
    begun: object
    changed: Callable[[Stage], None]
    first: str
    second: str
    stands: Callable[[Stage], object]
    after: object
    end: object
    meanwhile: Callable[[Stage], None] = field(default=lambda _: None)
    settings: tuple[tuple[str, str], ...] = ()
    refused: str = ""
    held: str = ""
    again: str = ""
    is_read_at_start: bool = False


UP, OUT = "UP", "OUT_OF_SERVICE"
BATCH = (("EUREKA_MODE", "batch"),)
MIRRORING = (("MIRRORS", "true"), ("MIRROR_CIDRS", "10.0.0.0/8"))
ELECTING = (("LEADER_ELECT", "true"), ("LEASE_NAME", "lease"), ("LEASE_NAMESPACE", SHOP))


def _everywhere(**statuses: str) -> list[dict[str, str]]:
    return [{pod.replace("_", "-"): status for pod, status in statuses.items()}] * 3


def _one_pod(stage: Stage) -> None:
    stage.service("a", "a-0")


def _two_pods(stage: Stage) -> None:
    stage.service("a", "a-0", "a-1")


def _second_pod(stage: Stage) -> None:
    stage.pods("a", "a-0", "a-1")


def _second_pod_once_lists_are_known(stage: Stage) -> None:
    """Have the pod come when lists and deltas were read after the time for which lists may lag."""
    time.sleep(LIST_LAG_SECONDS)
    before = len(stage.killer.lines)

    def are_known() -> bool:
        lines = stage.killer.lines[before:]
        return sum(one in ("GET /eureka/apps", "GET /eureka/apps/delta") for one in lines) >= 4

    wait_until(are_known, "each server's list, and another one", WAIT_SECONDS)
    _second_pod(stage)


def _first_pod_alone(stage: Stage) -> None:
    stage.pods("a", "a-0")


def _drained_pod(stage: Stage) -> None:
    stage.pods("a", "a-0", terminating="a-1")


# --- a mirror


def _mirror(stage: Stage, **spec: Any) -> None:
    body = {
        "apiVersion": "eurekube.io/v1alpha1",
        "kind": "EurekaMirror",
        "metadata": {"namespace": SHOP, "name": "legacy"},
        "spec": {"application": stage.app, "serviceName": "review", **spec},
    }
    stage.cluster.apply(MIRRORS, body)


def _headless_mirror(stage: Stage) -> None:
    stage.peers.peers[0].register(rating(stage.app, f"vm.{stage.app}"))
    _mirror(stage, headless=True)


def _with_cluster_ip(stage: Stage) -> None:
    _mirror(stage, headless=False)


def _mirrored(stage: Stage) -> tuple[str, int, int]:
    """Return the Service's form, its number of owners, and the number of endpoints in its slices."""
    services = [one for one in stage.cluster.items(SERVICES, SHOP) if one["metadata"]["name"] == "review"]
    slices = stage.cluster.items(ENDPOINT_SLICES, SHOP)
    form = "none"
    if services:
        form = "Headless" if services[0]["spec"].get("clusterIP") == "None" else "ClusterIP"
    owners = services[0]["metadata"].get("ownerReferences") or () if services else ()
    return form, len(owners), sum(len(one["endpoints"]) for one in slices)


def _taken_over_and_deleted(stage: Stage) -> None:
    body = {"metadata": {"labels": {"eurekube.io/mirror": None}}}
    path = SERVICES.path(SHOP, "review")
    stage.cluster.access.request("PATCH", path, body=body, content_type=MERGE_PATCH_TYPE)
    stage.cluster.access.request("DELETE", MIRRORS.path(SHOP, "legacy"))


def _mirrors_and_owners(stage: Stage) -> tuple[int, tuple[str, int, int]]:
    return len(stage.cluster.items(MIRRORS, SHOP)), _mirrored(stage)


# --- the Lease

CUT_OFF = CutOffNote("leader", {"default": "2026-01-01T00:00:00Z"})


def _lease_of_a_leader(stage: Stage) -> None:
    now = format_utc_time(time.time()).replace("Z", ".000000Z")
    spec = {"holderIdentity": "leader", "leaseDurationSeconds": 300, "renewTime": now, "acquireTime": now}
    metadata = {"namespace": SHOP, "name": "lease"}
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
    stage.cluster.apply(LEASES, body)


def _leader_is_cut_off(stage: Stage) -> None:
    body = {"metadata": {"annotations": {CUT_OFF_NOTE_ANNOTATION: format_cut_off_note(CUT_OFF)}}}
    path = LEASES.path(SHOP, "lease")
    stage.cluster.access.request("PATCH", path, body=body, content_type=MERGE_PATCH_TYPE)


def _lease(stage: Stage) -> tuple[str, bool]:
    """Return the holder, and whether a replica has asked for the Lease because of the present note."""
    lease = stage.cluster.access.get(LEASES.path(SHOP, "lease"))
    asked = parse_lease_request(lease["metadata"])
    assert (asked is not None) == (LEASE_REQUEST_ANNOTATION in lease["metadata"].get("annotations", {}))
    return lease["spec"]["holderIdentity"], asked is not None and asked.note == CUT_OFF


def _three_services(stage: Stage) -> None:
    _two_pods(stage)
    for name in ("b", "c"):
        stage.service(name, f"{name}-0")


def _others_come_and_one_goes(stage: Stage) -> None:
    """Have a pod end while two registrations are under way, so that the read before its removal waits."""
    for name in ("b", "c"):
        stage.pods(name, f"{name}-0", f"{name}-1")
    servers = len(stage.peers.peers)
    wait_until(lambda: stage.killer.held >= 2 * servers, "two requests to each server", WAIT_SECONDS)
    _first_pod_alone(stage)


SHORT_LEASE = {"durationSeconds": 9, "renewalIntervalSeconds": 1}

ROWS = (
    Row(
        "a lone registration at three servers, and its reads",
        _one_pod,
        _everywhere(a_0=UP),
        _second_pod_once_lists_are_known,
        r"POST /eureka/apps/\S*-A$",
        r"GET /eureka/apps/\S*/a-1\.",
        Stage.held,
        _everywhere(a_0=UP, a_1=UP),
        _everywhere(a_0=UP, a_1=UP),
        again=r"PUT /eureka/apps/\S*/a-1\.",
        settings=(("RESYNC_SECONDS", "0.5"),),
    ),
    Row(
        "the reads before a removal at three servers, and the removal",
        _two_pods,
        _everywhere(a_0=UP, a_1=UP),
        _first_pod_alone,
        r"GET /eureka/apps/\S*/a-1\.",
        r"DELETE /eureka/apps/\S*/a-1\.",
        Stage.held,
        _everywhere(a_0=UP, a_1=UP),
        _everywhere(a_0=UP),
    ),
    Row(
        "the question for a version, and the removal",
        _two_pods,
        _everywhere(a_0=UP, a_1=UP),
        _first_pod_alone,
        r"POST \S*/batch/ Heartbeat:a-1\.\S*$",
        r"POST \S*/batch/ .*Cancel:a-1\.",
        Stage.held,
        _everywhere(a_0=UP, a_1=UP),
        _everywhere(a_0=UP),
        settings=BATCH,
    ),
    Row(
        "a read that waited for requests under way, and the removal",
        _three_services,
        _everywhere(a_0=UP, a_1=UP, b_0=UP, c_0=UP),
        _others_come_and_one_goes,
        r"POST \S*/batch/ .*Heartbeat:a-1\.",
        r"POST \S*/batch/ .*Cancel:a-1\.",
        Stage.held,
        _everywhere(a_0=UP, a_1=UP, b_0=UP, c_0=UP),
        _everywhere(a_0=UP, b_0=UP, b_1=UP, c_0=UP, c_1=UP),
        settings=BATCH,
        held=r"POST \S*/batch/ .*Register:[bc]-1\.",
    ),
    Row(
        "the read of an instance whose renewals are refused, and its registration",
        lambda stage: stage.service("a", "a-0", lease=SHORT_LEASE),
        _everywhere(a_0=UP),
        lambda _: None,
        r"GET /eureka/apps/\S*/a-0\.",
        r"POST /eureka/apps/\S*-A$",
        Stage.held,
        _everywhere(a_0=UP),
        _everywhere(a_0=UP),
        refused=r"PUT /eureka/apps/\S*/a-0\.\S*$",
        again=r"PUT /eureka/apps/\S*/a-0\.",
    ),
    *(
        Row(
            f"OUT_OF_SERVICE by a drain, and its checks{then}",
            lambda stage: stage.service("a", "a-0", "a-1", onTermination="OutOfService"),
            _everywhere(a_0=UP, a_1=UP),
            _drained_pod,
            r"PUT /eureka/apps/\S*/a-1\.\S*/status\?\S*OUT_OF_SERVICE",
            r"GET /eureka/apps/\S*/a-1\.",
            Stage.held,
            _everywhere(a_0=UP, a_1=OUT),
            end,
            meanwhile,
        )
        for then, meanwhile, end in (
            ("; the pod ends", _first_pod_alone, _everywhere(a_0=UP)),
            ("; its name serves again", _second_pod, _everywhere(a_0=UP, a_1=UP)),
        )
    ),
    Row(
        "a mirror's Service is tried, and not deleted",
        _headless_mirror,
        ("Headless", 1, 1),
        _with_cluster_ip,
        r"POST \S*/services dry run",
        r"DELETE \S*/services/review",
        _mirrored,
        ("Headless", 1, 1),
        ("ClusterIP", 1, 1),
        settings=MIRRORING,
    ),
    Row(
        "a mirror's Service is deleted, and not created",
        _headless_mirror,
        ("Headless", 1, 1),
        _with_cluster_ip,
        r"DELETE \S*/services/review",
        r"POST \S*/services \{",
        _mirrored,
        ("none", 0, 1),
        ("ClusterIP", 1, 1),
        settings=MIRRORING,
    ),
    Row(
        "a deleted mirror loses a person's Service, and not its finalizer",
        _headless_mirror,
        (1, ("Headless", 1, 1)),
        _taken_over_and_deleted,
        r"PATCH \S*/services/review",
        r"PATCH \S*/eurekamirrors/legacy \S*.*finalizers",
        _mirrors_and_owners,
        (1, ("Headless", 0, 0)),
        (0, ("Headless", 0, 0)),
        settings=MIRRORING,
        is_read_at_start=True,
    ),
    Row(
        "the Lease is read for a request, and not written",
        _lease_of_a_leader,
        ("leader", False),
        _leader_is_cut_off,
        r"GET \S*/leases/lease",
        r"PUT \S*/leases/lease",
        _lease,
        ("leader", False),
        ("leader", True),
        settings=ELECTING,
    ),
)


@pytest.fixture(scope="module")
def eurekas(one_train: Train) -> Iterator[Servers]:
    """Start three servers that are peers, whose lists show each write soon."""
    with run_servers(one_train, 3, is_quick=True, settings=FAST_LIST_SETTINGS) as running:
        yield running


@pytest.fixture
def stage(eurekas: Servers, unique_name: str, tmp_path: Path) -> Iterator[Stage]:
    """Return a new cluster, beside which the Eureka servers are."""
    killer = Killer()
    with KubernetesApi() as api, ExitStack() as fronts:
        ports = (one.port for one in eurekas.eurekas)
        running = [fronts.enter_context(Proxy(port, on_request=killer.refuse_request)) for port in ports]
        made = Stage(unique_name, api, eurekas.eureka_urls, running, killer, tmp_path)
        try:
            yield made
        finally:
            made.close()


@pytest.mark.parametrize("row", ROWS, ids=lambda one: one.name)
def test_what_is_begun_is_ended_by_the_next_operator(row: Row, stage: Stage) -> None:
    """If the operator gets SIGKILL between the two requests, the next operator ends in the expected state."""

    def wait_for_state(wanted: object, what: str) -> None:
        seen: list[object] = []

        def stands() -> bool:
            seen[:] = [row.stands(stage)]
            return seen == [wanted]

        try:
            wait_until(stands, what, WAIT_SECONDS)
        except LabError as error:
            raise AssertionError(f"{seen} in place of {wanted}; {stage.killer.lines}") from error

    killer, settings = stage.killer, dict(row.settings)
    row.begin(stage)
    process = stage.operator(**settings)
    process.wait_until_ready()
    wait_for_state(row.begun, "what stands before")
    if row.is_read_at_start:
        process.stop()
        row.changed(stage)
        process = stage.operator(**settings)
        killer.begin(row, process)
    else:
        killer.begin(row, process)
        row.changed(stage)
    assert killer.is_over.wait(WAIT_SECONDS), "\n".join(killer.lines)
    wait_for_state(row.after, "what stands as it dies")
    row.meanwhile(stage)
    killer.end()
    stage.operator(**settings)
    wait_for_state(row.end, "what stands in the end")
    wait_until(lambda: any(re.search(row.again, one) for one in killer.lines), row.again, WAIT_SECONDS)
