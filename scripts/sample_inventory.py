"""A small sample of Kubernetes and Eureka, from which docs/reference/cli-look.md shows the commands'
output.
"""

from __future__ import annotations

from typing import Any

from eurekube_provider.comparison.comparing import KubernetesInventory
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.mapping import desired_instances
from eurekube_provider.core.model import Instance, Port, Status
from eurekube_provider.core.objects import SERVICE_NAME_LABEL
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.remedies import SYNCER_REMEDIES
from eurekube_provider.core.syncer import Syncer
from eurekube_provider.doctor.inventory_reader import EurekaListing, Inventory

_CLUSTER = Cluster("eks", "6f1d")
_SELF_REGISTERED_MESSAGE = (
    "ORDER order-6c9f4-b7k2x:order:8080 at 10.0.2.8:8080, ORDER order-6c9f4-p4wq9:order:8080 at "
    "10.0.2.9:8080 registered themselves"
)
_NO_SERVICE_MESSAGE = (
    "no Service in namespace shop has the label app=cart (or, without a label app, the name cart)"
)


def sample_inventory() -> Inventory:
    """Return a synced syncer, one whose pods register themselves, one without a Service, and a machine."""
    syncers = [
        _syncer("rating", "True", "Synced", "all there"),
        _syncer("order", "True", "SelfRegistered", _SELF_REGISTERED_MESSAGE, synced="False"),
        _syncer("cart", "False", "NoMatchingService", _NO_SERVICE_MESSAGE),
    ]
    desired = {
        ("shop", name): desired_instances(
            Syncer.from_object(item),
            [{"metadata": {"namespace": "shop", "name": name}, "spec": {}}] if name != "cart" else [],
            [_endpoint_slice(name, third)],
            _CLUSTER,
        )
        for item, name, third in zip(syncers, ("rating", "order", "cart"), (1, 2, 3), strict=True)
    }
    wanted = {key[1]: found.instances for key, found in desired.items()}
    own = [
        Instance("order", f"{pod}:order:8080", "", one.ip_address, Port(8080), status=Status.UP)
        for pod, one in zip(("order-6c9f4-b7k2x", "order-6c9f4-p4wq9"), wanted["order"][1:], strict=True)
    ]
    machine = Instance("legacy", "vm-1:legacy:8080", "vm-1", "192.0.2.10", Port(8080))
    instances = (*wanted["rating"], wanted["order"][0], *own, machine)
    kubernetes = KubernetesInventory(_CLUSTER, syncers, desired)
    return Inventory(kubernetes, {"default": EurekaListing(instances, server_count=2)})


def _syncer(name: str, ready: str, reason: str, message: str, synced: str = "") -> dict[str, Any]:
    said = {"reason": reason, "message": Problem(reason, message).with_remedy(SYNCER_REMEDIES).text}
    return {
        "metadata": {"namespace": "shop", "name": name},
        "spec": {"mode": "pod", "selector": {"app": name}},
        "status": {
            "conditions": [
                {"type": "Ready", "status": ready, **said},
                {"type": "Synced", "status": synced or ready, **said},
            ]
        },
    }


def _endpoint_slice(name: str, third: int) -> dict[str, Any]:
    pods = [f"{name}-6c9f4-{suffix}" for suffix in ("5xk8d", "b7k2x", "p4wq9")]
    return {
        "metadata": {"namespace": "shop", "name": name, "labels": {SERVICE_NAME_LABEL: name}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [
            {
                "addresses": [f"10.0.{third}.{number}"],
                "conditions": {"ready": True},
                "targetRef": {"kind": "Pod", "name": pod},
            }
            for number, pod in enumerate(pods, 7)
        ],
    }
