"""Workloads for the lab: objects that the demo, the tests and the benchmarks create in the cluster.

Everything goes through the real API; a pod's readiness is patched where a kubelet would report it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.kube.access import (
    APPLY_PATCH_TYPE,
    ENDPOINT_SLICES,
    LEASES,
    MERGE_PATCH_TYPE,
    NAMESPACES,
    PODS,
    SERVICES,
    STRATEGIC_MERGE_PATCH_TYPE,
    SYNCERS,
    ApiResource,
    KubeAccess,
)
from lab.waiting import growing_pauses_seconds

DEPLOYMENTS = ApiResource("apps", "v1", "deployments")
CRDS = ApiResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")

T = TypeVar("T")
Object = dict[str, Any]


def wait_for(look: Callable[[], T | Literal[False] | None], what: str, timeout_seconds: float = 60.0) -> T:
    """Call ``look`` until it returns a true value, and return that value.

    :raises TimeoutError: no call returned a true value in time; the message has ``what`` and the last value.
    """
    deadline = time.monotonic() + timeout_seconds
    pauses = growing_pauses_seconds()
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout_seconds:g} s; seen last: {seen!r}")
        time.sleep(next(pauses))


def readiness_condition_types(pod: Object) -> tuple[str, ...]:
    """Return the conditions that a readiness probe decides; kwok computes Ready of a pod with gates."""
    return ("ContainersReady",) if pod["spec"].get("readinessGates") else ("Ready", "ContainersReady")


class Cluster:
    """A user's actions in the lab's cluster."""

    def __init__(self, kubeconfig: Path) -> None:
        self.access = KubeAccess.load(kubeconfig)

    def apply(self, resource: ApiResource, item: Object) -> Object:
        """Create or change an object, server-side."""
        metadata = item["metadata"]
        path = resource.path(metadata.get("namespace"), metadata["name"])
        query = {"fieldManager": "lab", "force": "true"}
        return self.access.request("PATCH", path, query, item, APPLY_PATCH_TYPE)

    def delete(self, resource: ApiResource, name: str, namespace: str | None = None) -> None:
        """Delete an object; one that is gone already is no error."""
        try:
            self.access.request("DELETE", resource.path(namespace, name))
        except KubernetesError as error:
            if error.status_code != 404:
                raise

    def get(self, resource: ApiResource, name: str, namespace: str | None = None) -> Object | None:
        """Return an object, or None if it does not exist."""
        try:
            return self.access.get(resource.path(namespace, name))
        except KubernetesError as error:
            if error.status_code == 404:
                return None
            raise

    def items(self, resource: ApiResource, namespace: str, **labels: str) -> list[Object]:
        """Return a namespace's objects that carry these labels."""
        query = {"labelSelector": ",".join(f"{key}={value}" for key, value in labels.items())}
        items: list[Object] = self.access.get(resource.path(namespace), query)["items"]
        return items

    def create_namespace(self, name: str) -> None:
        """Create a namespace and wait until pods can be made in it."""
        self.apply(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        accounts = ApiResource("", "v1", "serviceaccounts")
        wait_for(lambda: self.get(accounts, "default", name), f"namespace {name}")

    def install_crd(self, document: Object) -> None:
        """Install a CRD and wait until it is served."""
        self.apply(CRDS, document)
        name = document["metadata"]["name"]

        def is_established() -> bool:
            crd = self.get(CRDS, name) or {}
            conditions = (crd.get("status") or {}).get("conditions") or ()
            return any(item["type"] == "Established" and item["status"] == "True" for item in conditions)

        wait_for(is_established, f"CRD {name}")

    def apply_deployment(
        self,
        namespace: str,
        name: str,
        replicas: int,
        port: int = 8080,
        version: str = "1",
        prestop_seconds: int = 0,
        gates: Sequence[str] = (),
    ) -> None:
        """Apply a Deployment with one container; another ``version`` rolls it.

        :param prestop_seconds: how long its preStop sleeps, in a grace period of twice that; 0: neither.
        :param gates: the readiness gates of its pods.
        """
        lifecycle = {"lifecycle": {"preStop": {"sleep": {"seconds": prestop_seconds}}}}
        self.apply(
            DEPLOYMENTS,
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"namespace": namespace, "name": name},
                "spec": {
                    "replicas": replicas,
                    "selector": {"matchLabels": {"app": name}},
                    "template": {
                        "metadata": {"labels": {"app": name, "version": version}},
                        "spec": {
                            "terminationGracePeriodSeconds": 2 * prestop_seconds,
                            "readinessGates": [{"conditionType": one} for one in gates],
                            "containers": [
                                {
                                    "name": "main",
                                    "image": f"example.invalid/{name}:{version}",
                                    "ports": [{"name": "http", "containerPort": port}],
                                    **(lifecycle if prestop_seconds else {}),
                                }
                            ],
                        },
                    },
                },
            },
        )

    def apply_service(self, namespace: str, name: str, port: int = 8080, **spec: Any) -> None:
        """Apply a Service for the Deployment of the same name."""
        self.apply(
            SERVICES,
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"namespace": namespace, "name": name, "labels": {"app": name}},
                "spec": {
                    "selector": {"app": name},
                    "ports": [{"name": "http", "port": port, "targetPort": port}],
                    **spec,
                },
            },
        )

    def apply_endpoint_slice(
        self,
        namespace: str,
        service: str,
        endpoints: Sequence[Object],
        ports: Sequence[Object] = ({"name": "http", "port": 8080},),
        name: str = "",
    ) -> None:
        """Apply an EndpointSlice of a Service, for endpoints that no controller writes.

        :param name: the slice's name; by default the Service's.
        """
        labels = {"kubernetes.io/service-name": service}
        self.apply(
            ENDPOINT_SLICES,
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {"namespace": namespace, "name": name or service, "labels": labels},
                "addressType": "IPv4",
                "ports": list(ports),
                "endpoints": list(endpoints),
            },
        )

    def apply_syncer(
        self, namespace: str, name: str, mode: str = "pod", selector: Object | None = None, **spec: object
    ) -> None:
        """Apply a EurekaSyncer; it selects the Service of its own name by default.

        :param spec: further fields.
        """
        self.apply(
            SYNCERS,
            {
                "apiVersion": "eurekube.io/v1alpha1",
                "kind": "EurekaSyncer",
                "metadata": {"namespace": namespace, "name": name},
                "spec": {"mode": mode, "selector": {"app": name, **(selector or {})}, **spec},
            },
        )

    def pods(self, namespace: str, app: str) -> list[Object]:
        """Return the pods of a Deployment that are not being deleted, sorted by address."""
        pods = [
            pod
            for pod in self.items(PODS, namespace, app=app)
            if not pod["metadata"].get("deletionTimestamp")
        ]
        return sorted(pods, key=lambda pod: str(pod.get("status", {}).get("podIP", "")))

    def ready_addresses(self, namespace: str, service: str) -> list[str]:
        """Return the addresses of a Service's ready endpoints, sorted."""
        slices = self.items(ENDPOINT_SLICES, namespace, **{"kubernetes.io/service-name": service})
        return sorted(
            endpoint["addresses"][0]
            for item in slices
            for endpoint in item.get("endpoints") or ()
            if endpoint["conditions"].get("ready") and not endpoint["conditions"].get("terminating")
        )

    def has_ready_pods(self, namespace: str, app: str, count: int) -> bool:
        """Return whether exactly `count` pods exist, and the EndpointSlices list all of their addresses as
        ready.
        """
        ready = self.ready_addresses(namespace, app)
        pods = [pod["status"].get("podIP") for pod in self.pods(namespace, app)]
        return len(ready) == count and ready == sorted(map(str, pods))

    def roll(self, namespace: str, name: str, version: str) -> None:
        """Change the template of a Deployment, so that all its pods are replaced."""
        body = {"spec": {"template": {"metadata": {"labels": {"version": version}}}}}
        self.access.request(
            "PATCH", DEPLOYMENTS.path(namespace, name), body=body, content_type=MERGE_PATCH_TYPE
        )

    def is_rollout_complete(self, namespace: str, name: str, replicas: int) -> bool:
        """Return whether a Deployment's rollout is complete, with this number of pods available."""
        item = self.get(DEPLOYMENTS, name, namespace) or {}
        status = item.get("status") or {}
        reached = {status.get(key) for key in ("replicas", "updatedReplicas", "availableReplicas")}
        return reached == {replicas} and status["observedGeneration"] == item["metadata"]["generation"]

    def leader(self, lease: str) -> str:
        """Return the name of the operator that holds a Lease."""
        item = self.get(LEASES, lease, "default") or {}
        return str(item["spec"]["holderIdentity"]).rpartition("_")[0]

    def set_ready(self, pod: Object, *, ready: bool) -> None:
        """Set a pod's readiness, as a kubelet does when a readiness probe's result changes."""
        metadata = pod["metadata"]
        state = "True" if ready else "False"
        conditions = [{"type": kind, "status": state} for kind in readiness_condition_types(pod)]
        self.access.request(
            "PATCH",
            PODS.path(metadata["namespace"], metadata["name"], "status"),
            body={"status": {"conditions": conditions}},
            content_type=STRATEGIC_MERGE_PATCH_TYPE,
        )

    def scale(self, namespace: str, name: str, replicas: int) -> None:
        """Scale a Deployment."""
        self.access.request(
            "PATCH",
            DEPLOYMENTS.path(namespace, name),
            body={"spec": {"replicas": replicas}},
            content_type=MERGE_PATCH_TYPE,
        )
