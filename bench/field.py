"""The lab of the operator's benchmarks: real servers, and EndpointSlices written by hand.

No pods run: a slice names endpoints that do not exist, so that ten thousand of them cost no more than their
JSON. Endpoint ``number`` always has the same address and pod name, and belongs to one service for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from bench.contestant import Contestant
from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.identity import default_cluster_name
from eurekube_provider.kube.access import ENDPOINT_SLICES, LEASES, NAMESPACES, SERVICES, SYNCERS
from lab import Lab
from lab.workloads import Cluster

ROOT = Path(__file__).parents[1]
PORT = 8080
ENDPOINTS_PER_SERVICE = 100
"""Number of endpoints of one service, all in one slice, unless a benchmark sets another one."""

JSON_PATCH = "application/json-patch+json"
_WRITERS = 8

Object = dict[str, Any]
Key = tuple[str, str]


def endpoint_address(number: int) -> str:
    """Return the IP address of endpoint ``number``."""
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def endpoint(number: int, *, ready: bool = True, terminating: bool = False) -> Object:
    """Return endpoint ``number`` of a slice, as the EndpointSlice controller writes it."""
    return {
        "addresses": [endpoint_address(number)],
        "conditions": {"ready": ready, "serving": ready, "terminating": terminating},
        "nodeName": f"node-{number % 7}",
        "targetRef": {"kind": "Pod", "name": f"pod-{number}", "uid": f"uid-of-pod-{number}"},
        "zone": f"zone-{'abc'[number % 3]}",
    }


class BenchLab:
    """A lab with Eurekube's CRDs, and the objects that a benchmark writes into it."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.cluster = Cluster(lab.kubeconfig)
        self.access = self.cluster.access
        uid = str(self.access.get(NAMESPACES.path(name="kube-system"))["metadata"]["uid"])
        self.cluster_name = default_cluster_name(uid)
        for path in (ROOT / "crds").glob("*.yaml"):
            self.cluster.install_crd(yaml.safe_load(path.read_text()))

    def create_namespace(self, name: str) -> str:
        """Create a namespace, and return its name."""
        self.cluster.create_namespace(name)
        return name

    def create_service(self, namespace: str, name: str, endpoints: Iterable[Object]) -> None:
        """Create a Service without a selector, and its one slice."""
        self.access.request(
            "POST",
            SERVICES.path(namespace),
            body={
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": name},
                "spec": {"clusterIP": "None", "ports": [{"name": "http", "port": PORT}]},
            },
        )
        self.access.request(
            "POST",
            ENDPOINT_SLICES.path(namespace),
            body={
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": name,
                    "labels": {
                        "kubernetes.io/service-name": name,
                        "endpointslice.kubernetes.io/managed-by": "bench",
                    },
                },
                "addressType": "IPv4",
                "ports": [{"name": "http", "port": PORT, "protocol": "TCP"}],
                "endpoints": list(endpoints),
            },
        )

    def create_services(
        self, namespace: str, numbers: range, *, syncers: bool, each: int = ENDPOINTS_PER_SERVICE
    ) -> None:
        """Create Services ``app-<n>`` with ``each`` of the endpoints, several at a time."""

        def write(start: int) -> None:
            name = f"app-{start // each}"
            self.create_service(namespace, name, map(endpoint, range(start, start + each)))
            if syncers:
                self.create_syncer(namespace, name)

        with ThreadPoolExecutor(_WRITERS) as pool:
            list(pool.map(write, numbers[::each]))

    def create_syncer(self, namespace: str, name: str, **spec: Any) -> None:
        """Create a EurekaSyncer, for the Service of its own name unless ``spec`` has another selector."""
        self.access.request(
            "POST",
            SYNCERS.path(namespace),
            body={
                "apiVersion": "eurekube.io/v1alpha1",
                "kind": "EurekaSyncer",
                "metadata": {"name": name},
                "spec": {"mode": "pod", "selector": {"app": name}, **spec},
            },
        )

    def patch_slice(self, namespace: str, name: str, changes: Sequence[Object]) -> None:
        """Change a slice by JSON patch."""
        path = ENDPOINT_SLICES.path(namespace, name)
        self.access.request("PATCH", path, body=list(changes), content_type=JSON_PATCH)

    def instance_id(self, namespace: str, application: str, number: int) -> str:
        """Return the id under which the operator registers endpoint ``number``."""
        return f"pod-{number}.{namespace}.{self.cluster_name}:{application}:{PORT}"

    def instance_keys(
        self, namespace: str, numbers: range, *, each: int = ENDPOINTS_PER_SERVICE
    ) -> list[Key]:
        """Return application and instance id of the endpoints that :meth:`create_services` wrote."""
        names = [(f"app-{number // each}", number) for number in numbers]
        return [(name.upper(), self.instance_id(namespace, name, number)) for name, number in names]

    def start_operator(self, **environment: str) -> Contestant:
        """Start Eurekube's operator with its default settings."""
        return self._start("operator", ["-m", "eurekube_provider.operator"], environment)

    def start_traced_operator(self, notes: Path, **environment: str) -> Contestant:
        """Start Eurekube's operator so that it writes the times at which each change passes its stages
        into a file.
        """
        return self._start("operator", ["-m", "bench.traced_operator", str(notes)], environment)

    def delete_leader_lease(self) -> None:
        """Delete the Lease, so that the next operator finds no former leader."""
        with suppress(KubernetesError):
            self.access.request("DELETE", LEASES.path("default", "eurekube-leader"))

    def start_kopf(self, handlers: str, namespace: str) -> Contestant:
        """Start ``kopf run`` with the handlers of a file in ``bench/peers``."""
        path = str(ROOT / "bench" / "peers" / handlers)
        return self._start("kopf", ["-m", "kopf", "run", "--standalone", f"--namespace={namespace}", path])

    def start_bridge(self, module: str, *arguments: str) -> Contestant:
        """Start a bridge of ``bench/peers``."""
        return self._start(module, ["-m", f"bench.peers.{module}", *arguments])

    def start_bridge_to(self, url: str, module: str, *arguments: str) -> Contestant:
        """Start a bridge that speaks to Eureka at another URL."""
        return self._start(module, ["-m", f"bench.peers.{module}", *arguments], {"EUREKA_URL": url})

    def start_idle_interpreter(self, imports: str) -> Contestant:
        """Start an interpreter that imports a module and then does nothing."""
        code = f"import {imports}, time; print('idle', flush=True); time.sleep(10**6)"
        return self._start("idle", ["-c", code])

    def _start(
        self, name: str, arguments: Sequence[str], environment: dict[str, str] | None = None
    ) -> Contestant:
        logs = self.lab.directory / "logs"
        variables = {
            "EUREKA_URL": ",".join(self.lab.eureka_urls),
            "KUBECONFIG": str(self.lab.kubeconfig),
            "PYTHONPATH": str(ROOT),
            **(environment or {}),
        }
        log = logs / f"{name}-{len(list(logs.glob(f'{name}-*')))}.log"
        return Contestant(name, arguments, variables, log)
