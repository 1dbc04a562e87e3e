"""The kinds of objects that the API in memory serves: built in, or brought by a CustomResourceDefinition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eurekube_provider.dev.kubernetes.refusals import Object

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]

_BUILT_IN = """
v1 Namespace namespaces cluster status
v1 Node nodes cluster status
v1 Service services status
v1 Pod pods status generation
v1 ServiceAccount serviceaccounts
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

    :ivar features: ``cluster`` where it has no namespaces, ``status`` where a subresource alone writes that,
        ``generation`` where changes of anything else are counted.
    :ivar schema: the OpenAPI schema of a custom kind; None for one that is built in, which is not checked.
    """

    api_version: str
    kind: str
    plural: str
    features: frozenset[str]
    schema: Mapping[str, Any] | None = None

    @property
    def group_path(self) -> str:
        """Return the path of its group and version, which tells what kinds there are."""
        return f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"

    @property
    def storage(self) -> str:
        """Return where its objects are kept, whatever their version; messages name the kind so, too."""
        group, _, _ = self.api_version.rpartition("/")
        return f"{self.plural}.{group}" if group else self.plural

    def discovered(self) -> Iterator[Object]:
        """Yield its lines of a discovery document: the kind's own, and its subresource's."""
        common = {"singularName": "", "namespaced": "cluster" not in self.features, "kind": self.kind}
        yield {"name": self.plural, **common, "verbs": _VERBS}
        if "status" in self.features:
            yield {"name": f"{self.plural}/status", **common, "verbs": ["get", "patch", "update"]}


def built_in_kinds() -> Iterator[ServedKind]:
    """Yield the kinds that are there from the beginning."""
    for line in _BUILT_IN.strip().splitlines():
        api_version, kind, plural, *features = line.split()
        yield ServedKind(api_version, kind, plural, frozenset(features))


def custom_kinds(crd: Object) -> Iterator[ServedKind]:
    """Yield the kinds that a CustomResourceDefinition brings: one for each version that it serves."""
    spec, names = crd["spec"], crd["spec"]["names"]
    for version in spec["versions"]:
        if version["served"]:
            features = {"generation", *(version.get("subresources") or ())}
            features |= {"cluster"} if spec["scope"] == "Cluster" else set()
            api_version, schema = f"{spec['group']}/{version['name']}", version["schema"]["openAPIV3Schema"]
            yield ServedKind(api_version, names["kind"], names["plural"], frozenset(features), schema)
