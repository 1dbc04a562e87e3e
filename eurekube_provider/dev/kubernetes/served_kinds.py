"""The kinds of objects that the API in memory serves: built in, or brought by a CustomResourceDefinition."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]

CRDS = "customresourcedefinitions.apiextensions.k8s.io"

_BUILT_IN = """
v1 Namespace namespaces cluster status
v1 Node nodes cluster status
v1 Service services status
v1 Pod pods status generation
v1 ServiceAccount serviceaccounts token
v1 Secret secrets
v1 ConfigMap configmaps
apps/v1 Deployment deployments status generation
coordination.k8s.io/v1 Lease leases
discovery.k8s.io/v1 EndpointSlice endpointslices generation
events.k8s.io/v1 Event events
networking.k8s.io/v1 NetworkPolicy networkpolicies generation
networking.k8s.io/v1 ServiceCIDR servicecidrs cluster status
policy/v1 PodDisruptionBudget poddisruptionbudgets status generation
rbac.authorization.k8s.io/v1 Role roles
rbac.authorization.k8s.io/v1 RoleBinding rolebindings
rbac.authorization.k8s.io/v1 ClusterRole clusterroles cluster
rbac.authorization.k8s.io/v1 ClusterRoleBinding clusterrolebindings cluster
apiextensions.k8s.io/v1 CustomResourceDefinition customresourcedefinitions cluster status generation
"""


class ApiRefusal(Exception):
    """A request that is refused.

    :param code: the HTTP status.
    :param reason: CamelCase, such as ``Conflict``.
    :ivar status: the answer, as Kubernetes' ``Status``.
    """

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        answer = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        self.status: Object = {**answer, "code": code, "reason": reason, "message": message}


@dataclass(frozen=True, slots=True)
class ServedKind:
    """One kind in one version.

    :ivar features: ``cluster`` where it has no namespaces, ``status`` where a subresource alone writes that,
        ``generation`` where changes of anything else are counted, ``token`` where tokens are issued.
    :ivar schema: the OpenAPI schema of a custom kind; None for one that is built in, which is not checked.
    """

    api_version: str
    kind: str
    plural: str
    features: frozenset[str]
    schema: Mapping[str, Any] | None = None

    @property
    def storage(self) -> str:
        """Return where its objects are kept, whatever their version; messages name the kind so, too."""
        group, _, _ = self.api_version.rpartition("/")
        return f"{self.plural}.{group}" if group else self.plural

    @property
    def identity(self) -> Object:
        """Return what an object of this kind says of itself."""
        return {"apiVersion": self.api_version, "kind": self.kind}


def built_in_kinds() -> Iterable[ServedKind]:
    """Return the kinds that are there from the beginning."""
    lines = [line.split() for line in _BUILT_IN.strip().splitlines()]
    return [ServedKind(version, kind, plural, frozenset(rest)) for version, kind, plural, *rest in lines]


def custom_kinds(crd: Object) -> Iterator[ServedKind]:
    """Yield the kinds that a CustomResourceDefinition brings: one for each version that it serves."""
    spec, names = crd["spec"], crd["spec"]["names"]
    for version in spec["versions"]:
        if version["served"]:
            scope = {"cluster"} if spec["scope"] == "Cluster" else set()
            features = frozenset({"generation", *(version.get("subresources") or ()), *scope})
            api_version, schema = f"{spec['group']}/{version['name']}", version["schema"]["openAPIV3Schema"]
            yield ServedKind(api_version, names["kind"], names["plural"], features, schema)


_cluster_addresses = (f"10.96.{number // 250}.{number % 250 + 2}" for number in itertools.count(8))


def filled_in(item: Object) -> Object:
    """Return an object with what Kubernetes gives to one of its own kinds, as far as Eurekube reads it."""
    metadata, spec, status = item["metadata"], item.get("spec") or {}, item.get("status")
    match item["kind"]:
        case "Namespace":
            labels = {**metadata.get("labels", {}), "kubernetes.io/metadata.name": metadata["name"]}
            return {
                **item,
                "metadata": {**metadata, "labels": labels},
                "status": status or {"phase": "Active"},
            }
        case "Pod":
            return {**item, "status": status or {"phase": "Pending"}}
        case "Service" if spec.get("type") != "ExternalName":
            address = spec.get("clusterIP") or next(_cluster_addresses)
            usual = {"type": "ClusterIP", "clusterIP": address, "clusterIPs": [address]}
            return {**item, "spec": {**usual, **spec}}
        case "CustomResourceDefinition":
            established = {"type": "Established", "status": "True", "reason": "InitialNamesAccepted"}
            return {**item, "status": {"acceptedNames": spec["names"], "conditions": [established]}}
    return item
