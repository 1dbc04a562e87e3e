"""The stage of the mirror proof: a cluster with CoreDNS and a played kube-proxy, an operator with its own
rights, and callers.

The applications are `review`, on machines, mirrored with an address and without one; `legacy`, on machines
that end without a drain; and `rating`, in a pod.
"""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.kube.access import MIRRORS
from eurekube_provider.kube.rights import (
    CLUSTER_RULES,
    MIRROR_CLUSTER_RULES,
    MIRROR_NAMESPACE_RULES,
    NAMESPACE_RULES,
    election_rules,
)
from lab.accounts import Account
from lab.coredns import CLUSTER_DOMAIN, DNS_TTL_SECONDS, CoreDns, write_resolver_files
from lab.lab import Lab
from lab.machine import PORT, Machine
from lab.netns import MACHINE_NETWORK
from lab.operators import make_operator_process
from lab.pod import PodLife
from lab.processes import Process
from lab.progress import Stopwatch, say
from lab.proof.calls import tally_calls
from lab.sandbox import Sandbox
from lab.service_proxy import ServiceProxy
from lab.staging import ProofStage
from lab.workloads import DEPLOYMENTS, Cluster, wait_for

NAMESPACE, OPERATOR_NAMESPACE, LEASE_NAME = "shop", "eurekube-system", "eurekube"
REVIEW, HEADLESS_REVIEW, LEGACY, RATING = "review", "review-direct", "legacy", "rating"
CALLS_PER_SECOND = 10
MACHINES_PER_APPLICATION = 2

SERVER_CACHE_SECONDS = 1
RESYNC_SECONDS = 2
CLIENT_FETCH_SECONDS = 2
LOAD_BALANCER_CACHE_SECONDS = 1
SLICE_UPDATE_SECONDS = SERVER_CACHE_SECONDS + RESYNC_SECONDS
"""Seconds within which a change in Eureka reaches the slices."""

MARGIN_SECONDS = 4
DRAIN_SECONDS = SLICE_UPDATE_SECONDS + DNS_TTL_SECONDS + MARGIN_SECONDS
"""Seconds that a machine serves after it left Eureka: until the last DNS answer with its address has
expired.
"""

_SPRING_SETTINGS = {
    "eureka.client.registry-fetch-interval-seconds": str(CLIENT_FETCH_SECONDS),
    "spring.cloud.loadbalancer.cache.ttl": f"{LOAD_BALANCER_CACHE_SECONDS}s",
}
_CALLER_ADDRESS = "10.0.254.1"
_ROOT = Path(__file__).parents[2]
_WEB_SERVER_SCRIPT, _HTTP_CALLER_SCRIPT = _ROOT / "lab" / "web.py", _ROOT / "lab" / "http_caller.py"
_ANSWERED_WINDOW_SECONDS = 2.0
_TIMEOUT_SECONDS = 90.0


class Stage(ProofStage):
    """The proof's servers, machines, operator and callers: `with Stage() as stage:`.

    :ivar machines: all machines that were ever registered, in that order; ``lives``: their lives.
    """

    def __init__(self) -> None:
        super().__init__()
        self.machines: list[Machine] = []
        self.lives: list[PodLife] = []
        self._starts = 0
        self._stopwatch = Stopwatch()

    def start_machines(self, application: str) -> list[Machine]:
        """Start further machines of an application, without registering them, and return them once they
        answer.
        """
        started = [
            Machine(application, self.eureka, self.lab.directory / "logs")
            for _ in range(MACHINES_PER_APPLICATION)
        ]
        for machine in started:
            self.cleanups.callback(machine.close)
        with ThreadPoolExecutor(MACHINES_PER_APPLICATION) as pool:
            list(pool.map(Machine.start, started))
        return started

    def register(self, machine: Machine) -> None:
        """Register a machine in Eureka, and remember it."""
        machine.register()
        self.machines.append(machine)
        self.lives.append(machine.life)

    def start_operator(self) -> None:
        """Start the operator, with the rights of its ServiceAccount and no others."""
        self._starts += 1
        log = self.lab.directory / "logs" / f"operator-{self._starts}.log"
        self.operator = make_operator_process(
            "operator",
            log,
            EUREKA_URL=",".join(self.lab.eureka_urls),
            KUBECONFIG=str(self.account.kubeconfig),
            WATCH_NAMESPACE=NAMESPACE,
            LEASE_NAME=LEASE_NAME,
            LEASE_NAMESPACE=OPERATOR_NAMESPACE,
            MIRRORS="true",
            MIRROR_CIDRS=MACHINE_NETWORK,
            RESYNC_SECONDS=str(RESYNC_SECONDS),
        )
        self.cleanups.callback(self.operator.kill)
        self.operator.start()

    def are_all_calls_answered(self) -> bool:
        """Return whether every caller's latest calls to every application were answered."""
        time.sleep(_ANSWERED_WINDOW_SECONDS / 4)
        calls = tally_calls(self.call_files, time.time() - _ANSWERED_WINDOW_SECONDS)
        least = CALLS_PER_SECOND * _ANSWERED_WINDOW_SECONDS / 2
        return calls.keys() >= {REVIEW, HEADLESS_REVIEW, LEGACY, RATING} and all(
            not one.failures and min(one.calls.values()) >= least for one in calls.values()
        )

    def stop_callers(self) -> None:
        """End all calls."""
        self.spring.end_calls()
        self._inside.kill()

    def prepare(self) -> None:
        """Start servers, machines, an operator and callers."""
        settings = {"eureka.server.response-cache-update-interval-ms": str(SERVER_CACHE_SECONDS * 1000)}
        self.lab = self.cleanups.enter_context(Lab(eureka=1, nodes=1, pods="real", eureka_settings=settings))
        self.eureka = Peers(Connection.parse(self.lab.eureka_urls))
        self.cleanups.callback(self.eureka.close)
        self.cluster = Cluster(self.lab.kubeconfig)
        self.proxy = ServiceProxy(self.lab.kubeconfig)
        self.cleanups.callback(self.proxy.stop)
        dns = CoreDns(self.lab.kubeconfig, self.lab.directory)
        self.cleanups.callback(dns.kill)
        dns.launch()
        self.proxy.start()
        self.spring = self.launch_caller(self.lab, "caller", **_SPRING_SETTINGS)
        self.install_crds()
        for name in (OPERATOR_NAMESPACE, NAMESPACE):
            self.cluster.create_namespace(name)
        self.account = Account.create(
            self.lab, self.cluster, OPERATOR_NAMESPACE, "operator", self.lab.directory / "operator.kubeconfig"
        )
        self.account.set_rights([*CLUSTER_RULES, *MIRROR_CLUSTER_RULES])
        self.account.set_rights(election_rules(LEASE_NAME), OPERATOR_NAMESPACE)
        self.account.set_rights([*NAMESPACE_RULES, *MIRROR_NAMESPACE_RULES], NAMESPACE)
        self.cluster.apply(DEPLOYMENTS, _rating_deployment())
        self.cluster.apply_service(NAMESPACE, RATING, PORT)
        self.cluster.apply_syncer(NAMESPACE, RATING)
        for application in (REVIEW, LEGACY):
            for machine in self.start_machines(application):
                self.register(machine)
        self._apply_mirror(REVIEW, application=REVIEW)
        self._apply_mirror(HEADLESS_REVIEW, application=REVIEW, serviceName=HEADLESS_REVIEW, headless=True)
        self._apply_mirror(LEGACY, application=LEGACY)
        self.start_operator()
        dns.wait_until_ready()
        self._start_calls()

    def _apply_mirror(self, name: str, **spec: Any) -> None:
        body = {
            "apiVersion": "eurekube.io/v1alpha1",
            "kind": "EurekaMirror",
            "metadata": {"namespace": NAMESPACE, "name": name},
            "spec": spec,
        }
        self.cluster.apply(MIRRORS, body)

    def _start_calls(self) -> None:
        """Start the callers: outside, Spring by application; inside, a client by URL, for each form of the
        mirror.
        """
        self.spring.wait_until_ready()
        for name, count in ((RATING, 1), (REVIEW, MACHINES_PER_APPLICATION)):
            wait_for(
                lambda name=name, count=count: len(self.spring.get(f"/instances/{name}").json()) == count,  # type: ignore[misc]
                f"{name} in the caller",
                _TIMEOUT_SECONDS,
            )
        self.call_files = [self.lab.directory / f"calls-{where}.csv" for where in ("outside", "inside")]
        for file in self.call_files:
            file.touch()  # looked at before the first call
        self.spring.begin_calls([RATING, REVIEW], [], CALLS_PER_SECOND, self.call_files[0])
        urls = {
            REVIEW: f"http://{REVIEW}.{NAMESPACE}.svc.{CLUSTER_DOMAIN}/",
            HEADLESS_REVIEW: f"http://{HEADLESS_REVIEW}.{NAMESPACE}.svc.{CLUSTER_DOMAIN}:{PORT}/",
            LEGACY: f"http://{LEGACY}/",
        }
        orders = [f"{way},{name},{url}" for name, url in urls.items() for way in ("new", "open")]
        sandbox = self.cleanups.enter_context(Sandbox(_CALLER_ADDRESS))
        caller = [sys.executable, "-I", "-S", str(_HTTP_CALLER_SCRIPT), str(self.call_files[1])]
        files = write_resolver_files(NAMESPACE, self.lab.directory)
        self._inside = Process(
            "http-caller",
            sandbox.wrap_command_with_files(files, [*caller, str(CALLS_PER_SECOND), *orders]),
            log=self.lab.directory / "logs" / "http-caller.log",
            environment={"PATH": os.environ.get("PATH", "")},
        )
        self.cleanups.callback(self._inside.kill)
        self._inside.launch()
        wait_for(self.are_all_calls_answered, "every call to be answered", _TIMEOUT_SECONDS)
        say(f"all applications are being called after {self._stopwatch}")


def _rating_deployment() -> dict[str, Any]:
    container = {
        "name": RATING,
        "image": f"example.invalid/{RATING}",
        "command": [sys.executable, "-I", "-S", str(_WEB_SERVER_SCRIPT)],
        "env": [{"name": "PORT", "value": str(PORT)}],
        "ports": [{"name": "http", "containerPort": PORT}],
        "readinessProbe": {"httpGet": {"path": "/", "port": PORT}},
    }
    labels = {"app": RATING}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"namespace": NAMESPACE, "name": RATING},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }
