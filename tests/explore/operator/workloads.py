"""The acts of people, controllers and kubelets on the objects that an operator watches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eurekube_provider.core.syncer import READINESS_GATE
from tests.explore.operator.kube import Change, Kube

SHOP = "shop"
APP = "rating"
NAMESPACES = "all"
"""The syncer for the Services of the namespace."""


@dataclass(slots=True)
class Pod:
    """One pod as its EndpointSlice shows it.

    :ivar is_open: True if its readiness gates are open.
    """

    name: str
    address: str
    is_ready: bool = True
    is_terminating: bool = False
    is_open: bool = True

    def endpoint(self) -> dict[str, Any]:
        """The pod's endpoint in an EndpointSlice."""
        return {
            "addresses": [self.address],
            "conditions": {
                "ready": self.is_ready and self.is_open and not self.is_terminating,
                "serving": self.is_ready and self.is_open,
                "terminating": self.is_terminating,
            },
            "targetRef": {"kind": "Pod", "name": self.name, "namespace": SHOP},
            "nodeName": "node-1",
        }


class Workloads:
    """One namespace with Services, their pods, and syncers.

    :ivar name_cluster: gives the cluster another name, with which the operator is started again.
    :ivar registers_itself: registers a pod, by name and address, as its own Eureka client does, and renews it
        while the pod lives.
    """

    def __init__(self, kube: Kube) -> None:
        self.kube = kube
        self.name_cluster: Callable[[str], None] = lambda _: None
        self.registers_itself: Callable[[str, str], None] = lambda *_: None
        self.pods: dict[str, Pod] = {}
        self._slices: dict[str, str] = {}
        self._addresses = 0

    def service(self, name: str = APP, **labels: str) -> None:
        """Create a Service and its EndpointSlice."""
        metadata = {"namespace": SHOP, "name": name, "labels": labels}
        ports = [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}]
        self.kube.put(
            "services",
            {
                "metadata": metadata,
                "spec": {"clusterIP": f"10.0.0.{len(name)}", "ipFamilies": ["IPv4"], "ports": ports},
            },
        )
        self._slices.setdefault(name, f"{name}-a")
        self._publish(name)

    def no_service(self, name: str = APP) -> None:
        """Delete a Service and its EndpointSlice."""
        self.kube.delete("services", SHOP, name)
        if name in self._slices:
            self.kube.delete("endpointslices", SHOP, self._slices.pop(name))

    def pod(self, name: str, *, ready: bool = True, terminating: bool = False) -> None:
        """Create a pod, or change it."""
        known = self.pods.get(name)
        if known is None:
            self._addresses += 1
            known = self.pods[name] = Pod(name, f"10.1.0.{self._addresses}")
        known.is_ready, known.is_terminating = ready, terminating
        if self.kube.get("pods", SHOP, name) is None:
            status = {"podIP": known.address, "podIPs": [{"ip": known.address}]}
            self.kube.put("pods", {"metadata": {"namespace": SHOP, "name": name}, "status": status})
        self._publish()

    def gated_pod(self, name: str) -> None:
        """Create a pod with the readiness gate, whose containers are ready."""
        self._addresses += 1
        known = self.pods[name] = Pod(name, f"10.1.0.{self._addresses}", is_open=False)
        conditions = [{"type": "ContainersReady", "status": "True"}, {"type": "Ready", "status": "False"}]
        self.kube.put(
            "pods",
            {
                "metadata": {"namespace": SHOP, "name": name, "labels": {"app": APP}},
                "spec": {"nodeName": "node-1", "readinessGates": [{"conditionType": READINESS_GATE}]},
                "status": {"podIP": known.address, "conditions": conditions},
            },
        )
        self._publish()

    def kubelet(self, change: Change) -> None:
        """Update the readiness of a pod with gates, as its kubelet does; called after each change."""
        known = self.pods.get(change.key[1])
        item = self.kube.get("pods", *change.key) if change.kind == "pods" else None
        if known is None or item is None or not (item.get("spec") or {}).get("readinessGates"):
            return
        conditions = {one["type"]: one for one in item["status"]["conditions"]}
        is_open = conditions.get(READINESS_GATE, {}).get("status") == "True"
        if is_open != known.is_open:
            known.is_open = is_open
            conditions["Ready"] = {"type": "Ready", "status": str(is_open)}
            status = {**item["status"], "conditions": list(conditions.values())}
            self.kube.put("pods", {"metadata": item["metadata"], "status": status})
            self._publish()

    def pod_with_client(self, name: str) -> None:
        """Create a pod that registers itself."""
        self.pod(name)
        self.registers_itself(name, self.pods[name].address)

    def annotate_syncer(self, annotation: str) -> None:
        """Annotate the syncer as a person would."""
        metadata = self.kube.objects["eurekasyncers"][SHOP, APP]["metadata"]
        annotations = {**(metadata.get("annotations") or {}), annotation: "now"}
        self.kube.put(
            "eurekasyncers",
            {"metadata": {"namespace": SHOP, "name": APP, "annotations": annotations}},
        )

    def no_pod(self, *names: str) -> None:
        """Delete pods."""
        for name in names:
            self.pods.pop(name, None)
            self.kube.delete("pods", SHOP, name)
        self._publish()

    def another_slice(self) -> None:
        """Move the endpoints to a new slice."""
        for name, before in list(self._slices.items()):
            self._slices[name] = f"{before}x"
            self._publish(name)
            self.kube.delete("endpointslices", SHOP, before)

    def syncer(self, name: str = APP, **spec: Any) -> None:
        """Create a syncer, or change its spec."""
        wanted = {"mode": "pod", "selector": {"app": APP}, **spec}
        self.kube.put("eurekasyncers", {"metadata": {"namespace": SHOP, "name": name}, "spec": wanted})

    def annotate_service(self, name: str = APP, **annotations: str) -> None:
        """A person gives the Service these annotations of ours, and no others."""
        written = {f"eurekube.io/{key}": value for key, value in annotations.items()}
        self.kube.put("services", {"metadata": {"namespace": SHOP, "name": name, "annotations": written}})

    def namespace_syncer(self, services: str = "Annotated", name: str = NAMESPACES, **spec: Any) -> None:
        """There is a syncer for the Services of the namespace."""
        self.syncer(name, selector={"services": services}, annotations=["port", "mode"], **spec)

    def no_syncer(self, name: str = APP) -> None:
        """Delete a syncer as a person would."""
        self.kube.delete("eurekasyncers", SHOP, name)

    def _publish(self, *names: str) -> None:
        for name in names or self._slices:
            self.kube.put(
                "endpointslices",
                {
                    "metadata": {
                        "namespace": SHOP,
                        "name": self._slices[name],
                        "labels": {"kubernetes.io/service-name": name},
                    },
                    "addressType": "IPv4",
                    "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
                    "endpoints": [pod.endpoint() for pod in self.pods.values()],
                },
            )
