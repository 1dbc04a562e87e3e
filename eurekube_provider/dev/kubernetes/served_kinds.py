"""The kinds of objects that the API in memory serves: built-in ones, and those of CRDs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]

CRDS_STORAGE_KEY = "customresourcedefinitions.apiextensions.k8s.io"

_BUILT_IN_KINDS_TEXT = """
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


@dataclass(frozen=True, slots=True)
class ServedKind:
    """One kind in one version.

    :ivar features: ``cluster`` for a kind without namespaces, ``status`` where only the subresource writes
        the status, ``generation`` where other changes are counted, ``token`` where tokens are issued.
    :ivar schema: the OpenAPI schema of a custom kind; None for a built-in one, whose objects are not checked.
    """

    api_version: str
    kind: str
    plural: str
    features: frozenset[str]
    schema: Mapping[str, Any] | None = None

    @property
    def storage_key(self) -> str:
        """The key under which objects of all versions are kept, and by which messages name the kind."""
        group, _, _ = self.api_version.rpartition("/")
        return f"{self.plural}.{group}" if group else self.plural


def built_in_kinds() -> Iterator[ServedKind]:
    for line in _BUILT_IN_KINDS_TEXT.strip().splitlines():
        api_version, kind, plural, *features = line.split()
        yield ServedKind(api_version, kind, plural, frozenset(features))


def custom_kinds(crd: Object) -> Iterator[ServedKind]:
    """Yield the kinds of a CustomResourceDefinition: one for each version that it serves."""
    spec, names = crd["spec"], crd["spec"]["names"]
    for version in spec["versions"]:
        if version["served"]:
            words = {"generation", spec["scope"].lower(), *(version.get("subresources") or ())}
            api_version, schema = f"{spec['group']}/{version['name']}", version["schema"]["openAPIV3Schema"]
            yield ServedKind(api_version, names["kind"], names["plural"], frozenset(words), schema)


def with_initial_status(item: Object) -> Object:
    """Return an object with its initial status, where the API server itself sets one."""
    first: Object = {"Namespace": {"phase": "Active"}, "Pod": {"phase": "Pending"}}
    first["CustomResourceDefinition"] = {"conditions": [{"type": "Established", "status": "True"}]}
    return {**item, "status": item.get("status") or first[item["kind"]]} if item["kind"] in first else item
