"""Expected instances in Eureka, computed from a cluster's objects as simply as possible.

Every instance of ours goes back to an EndpointSlice, so that cluster and Eureka can be compared at any time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from eurekube_provider.core.model import Instance
from eurekube_provider.core.syncer import DEFAULT_CONNECTION
from eurekube_provider.kube.access import ENDPOINT_SLICES, PODS, SERVICES, SYNCERS, KubeAccess

Key = tuple[str, str]
Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Expected:
    """An instance that a syncer wants in Eureka.

    :param status: ``UP`` or ``DOWN``.
    :param syncer: namespace and name.
    :param turned: when its pod last became ready or unready, by the pod's status, to a second.
    :param eureka: the name of the operator's connection to the Eureka where it belongs.
    """

    status: str
    address: str
    syncer: tuple[str, str]
    turned: str = ""
    eureka: str = DEFAULT_CONNECTION


def expected_instances(
    access: KubeAccess, cluster_name: str, others: Iterable[Instance]
) -> dict[Key, Expected]:
    """Return the instances that the cluster's syncers want now.

    :param others: instances of others: their ids are taken, and a pod that registered itself is not
        registered twice.
    :raises KubernetesError: the API server cannot be read.
    """
    syncers, services, slices, pods = (
        access.get(resource.path())["items"] for resource in (SYNCERS, SERVICES, ENDPOINT_SLICES, PODS)
    )
    turned = {(one["metadata"]["namespace"], one["metadata"]["name"]): _turned(one) for one in pods}
    taken = {one.key for one in others}
    themselves = {(one.application, one.ip_address, one.port.number) for one in others if not one.owner}
    endpoints: dict[Key, list[tuple[Object, int]]] = defaultdict(list)
    for item in slices:
        metadata = item["metadata"]
        of = (metadata["namespace"], metadata["labels"].get("kubernetes.io/service-name", ""))
        ports = item.get("ports") or [{}]
        endpoints[of] += [(one, ports[0].get("port") or 0) for one in item.get("endpoints") or ()]
    found: dict[Key, Expected] = {}
    for syncer in syncers:
        metadata, spec = syncer["metadata"], syncer["spec"]
        if metadata.get("deletionTimestamp"):
            continue
        owner, app = (metadata["namespace"], metadata["name"]), spec["selector"]["app"]
        eureka = spec.get("eureka") or DEFAULT_CONNECTION
        suffix = f"{owner[0]}.{cluster_name}:{app}"
        for service in services:
            name = service["metadata"]["name"]
            labels = service["metadata"].get("labels") or {}
            if service["metadata"]["namespace"] != owner[0] or (labels.get("app") or name) != app:
                continue
            there = [
                (one, port)
                for one, port in endpoints[owner[0], name]
                if not one["conditions"].get("terminating")
            ]
            if spec["mode"] == "service":
                status = "UP" if any(one["conditions"]["ready"] for one, _ in there) else "DOWN"
                port = service["spec"]["ports"][0]["port"]
                key = (app.upper(), f"{name}.svc.{suffix}:{port}")
                # All of them turn before the Service does.
                first = min((turned.get((owner[0], _pod(one)), "") for one, _ in there), default="")
                found[key] = Expected(status, service["spec"]["clusterIP"], owner, first, eureka)
                continue
            for one, port in there:
                address, pod = one["addresses"][0], _pod(one)
                status = "UP" if one["conditions"]["ready"] else "DOWN"
                if (app.upper(), address, port) not in themselves:
                    found[app.upper(), f"{pod}.{suffix}:{port}"] = Expected(
                        status, address, owner, turned.get((owner[0], pod), ""), eureka
                    )
    return {key: one for key, one in found.items() if key not in taken}


def _pod(endpoint: Object) -> str:
    return str((endpoint.get("targetRef") or {}).get("name") or endpoint["addresses"][0])


def _turned(pod: Object) -> str:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((str(one.get("lastTransitionTime")) for one in conditions if one["type"] == "Ready"), "")
