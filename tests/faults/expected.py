"""Expected instances in Eureka, computed from a cluster's objects as simply as possible.

Every instance of ours goes back to an EndpointSlice, so that cluster and Eureka can be compared at any time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self

from eurekube_provider.core.derived_syncer import DERIVED_FROM_LABEL, SYNC_ANNOTATION
from eurekube_provider.core.model import Instance
from eurekube_provider.core.syncer import DEFAULT_CONNECTION_NAME, READINESS_GATE
from eurekube_provider.kube.access import ENDPOINT_SLICES, NODES, PODS, SERVICES, SYNCERS, KubeAccess

Key = tuple[str, str]
Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Objects:
    """One reading of a cluster, by kind, in the order of its requests.

    Pods come before EndpointSlices, so that a pod that becomes ready between the two is ready in the slice.
    """

    nodes: list[Object]
    syncers: list[Object]
    services: list[Object]
    pods: list[Object]
    slices: list[Object]

    @classmethod
    def read(cls, access: KubeAccess) -> Self:
        """Read a cluster.

        :raises KubernetesError: the API server cannot be read.
        """
        kinds = NODES, SYNCERS, SERVICES, PODS, ENDPOINT_SLICES
        return cls(*(access.get(one.path())["items"] for one in kinds))

    @property
    def ready_nodes(self) -> set[str]:
        """The names of the nodes that are ready."""
        return {one["metadata"]["name"] for one in self.nodes if conditions(one).get("Ready") == "True"}

    @property
    def waiting(self) -> set[tuple[str, str]]:
        """The namespaces and names of pods that only the readiness gate keeps from being ready, or that
        their kubelet is about to call ready.
        """
        nodes = self.ready_nodes
        return {
            named(pod)
            for pod in self.pods
            if declares_gate(pod)
            and not pod["metadata"].get("deletionTimestamp")
            and pod["spec"].get("nodeName") in nodes
            and conditions(pod).get("ContainersReady") == "True"
            and conditions(pod).get("Ready") != "True"
        }


@dataclass(frozen=True, slots=True)
class Expected:
    """An instance that a syncer wants in Eureka.

    :param status: ``UP`` or ``DOWN``.
    :param syncer: namespace and name.
    :param turned: when its pod last became ready or unready, by the pod's status, to a second; empty while
        the pod waits for its readiness gate.
    :param eureka: the name of the operator's connection to the Eureka where it belongs.
    """

    status: str
    address: str
    syncer: tuple[str, str]
    turned: str = ""
    eureka: str = DEFAULT_CONNECTION_NAME


def expected_instances(
    objects: Objects, cluster_name: str, others: Iterable[Instance]
) -> dict[Key, Expected]:
    """Return the instances that the cluster's syncers want now.

    :param others: instances of others: their ids are taken, and a pod that registered itself is not
        registered twice.
    """
    waiting = objects.waiting
    turned = {named(one): "" if named(one) in waiting else _turned(one) for one in objects.pods}
    taken = {one.key for one in others}
    themselves = {(one.application, one.ip_address, one.port.number) for one in others if not one.owner}
    endpoints: dict[Key, list[tuple[Object, int]]] = defaultdict(list)
    for item in objects.slices:
        metadata = item["metadata"]
        of = (metadata["namespace"], metadata["labels"].get("kubernetes.io/service-name", ""))
        ports = item.get("ports") or [{}]
        endpoints[of] += [(one, ports[0].get("port") or 0) for one in item.get("endpoints") or ()]
    found: dict[Key, Expected] = {}
    for owner, app, spec, service in _served(objects):
        eureka = spec.get("eureka") or DEFAULT_CONNECTION_NAME
        suffix, name = f"{owner[0]}.{cluster_name}:{app}", service["metadata"]["name"]
        there = [
            (one, port) for one, port in endpoints[owner[0], name] if not one["conditions"].get("terminating")
        ]
        if spec["mode"] == "service":
            there = [(one, port) for one, port in there if (owner[0], _pod(one)) not in waiting]
            status = "UP" if any(one["conditions"]["ready"] for one, _ in there) else "DOWN"
            port = service["spec"]["ports"][0]["port"]
            key = (app.upper(), f"{name}.svc.{suffix}:{port}")
            # All of them turn before the Service does.
            first = min((turned.get((owner[0], _pod(one)), "") for one, _ in there), default="")
            found[key] = Expected(status, service["spec"]["clusterIP"], owner, first, eureka)
            continue
        for one, port in there:
            address, pod = one["addresses"][0], _pod(one)
            status = "UP" if one["conditions"]["ready"] or (owner[0], pod) in waiting else "DOWN"
            if (app.upper(), address, port) not in themselves:
                found[app.upper(), f"{pod}.{suffix}:{port}"] = Expected(
                    status, address, owner, turned.get((owner[0], pod), ""), eureka
                )
    return {key: one for key, one in found.items() if key not in taken}


def _served(objects: Objects) -> Iterator[tuple[tuple[str, str], str, Object, Object]]:
    """Yield each Service that a syncer serves, with the syncer's key, the application and the spec.

    A syncer that was derived for a Service is left out: its namespace's syncer and the Service say what it
    must be.
    """
    for syncer in objects.syncers:
        metadata, spec = syncer["metadata"], syncer["spec"]
        if metadata.get("deletionTimestamp") or DERIVED_FROM_LABEL in (metadata.get("labels") or {}):
            continue
        namespace, name, selector = metadata["namespace"], metadata["name"], spec["selector"]
        for service in objects.services:
            app = service["metadata"]["name"]
            if service["metadata"]["namespace"] != namespace:
                continue
            if "services" in selector:
                said = (service["metadata"].get("annotations") or {}).get(SYNC_ANNOTATION)
                if selector["services"] == "All" if said is None else said != "false":
                    mode = said if said in ("pod", "service") else spec["mode"]
                    yield (namespace, f"{name}.{app}"), app, {**spec, "mode": mode}, service
            elif ((service["metadata"].get("labels") or {}).get("app") or app) == selector["app"]:
                yield (namespace, name), selector["app"], spec, service


def stray_syncers(objects: Objects) -> list[str]:
    """Return the derived syncers that are missing, being deleted, or left over, in words."""
    derived = {
        named(one): bool(one["metadata"].get("deletionTimestamp"))
        for one in objects.syncers
        if DERIVED_FROM_LABEL in (one["metadata"].get("labels") or {})
    }
    wanted = {owner for owner, *_ in _served(objects) if "." in owner[1]}
    over = {one for one, is_over in derived.items() if is_over}
    found = [f"there is no syncer {'/'.join(one)}" for one in wanted - derived.keys()]
    found += [f"the syncer {'/'.join(one)} is left" for one in derived.keys() - wanted]
    return found + [f"the syncer {'/'.join(one)} is being deleted" for one in over]


def named(item: Object) -> tuple[str, str]:
    """Return the namespace and the name of an object."""
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def declares_gate(pod: Object) -> bool:
    """Return whether a pod has the readiness gate."""
    return any(
        one["conditionType"] == READINESS_GATE for one in (pod.get("spec") or {}).get("readinessGates") or ()
    )


def conditions(item: Object) -> dict[str, str]:
    """Return the status of each condition of an object, by type."""
    return {one["type"]: one.get("status", "") for one in (item.get("status") or {}).get("conditions") or ()}


def _pod(endpoint: Object) -> str:
    return str((endpoint.get("targetRef") or {}).get("name") or endpoint["addresses"][0])


def _turned(pod: Object) -> str:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((str(one.get("lastTransitionTime")) for one in conditions if one["type"] == "Ready"), "")
