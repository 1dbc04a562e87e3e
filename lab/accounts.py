"""ServiceAccounts with exactly the given rights, to run an operator with no others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eurekube_provider.kube.access import ApiResource
from eurekube_provider.kube.rights import Rule
from lab.lab import Lab
from lab.workloads import Cluster, Object

_RBAC_GROUP = "rbac.authorization.k8s.io"
SERVICE_ACCOUNTS = ApiResource("", "v1", "serviceaccounts")
ROLES, ROLE_BINDINGS = ApiResource(_RBAC_GROUP, "v1", "roles"), ApiResource(_RBAC_GROUP, "v1", "rolebindings")
CLUSTER_ROLES = ApiResource(_RBAC_GROUP, "v1", "clusterroles")
CLUSTER_ROLE_BINDINGS = ApiResource(_RBAC_GROUP, "v1", "clusterrolebindings")


@dataclass
class Account:
    """A ServiceAccount in `home_namespace`, with a kubeconfig, and its rights."""

    cluster: Cluster
    home_namespace: str
    name: str
    kubeconfig: Path

    @classmethod
    def create(cls, lab: Lab, cluster: Cluster, home_namespace: str, name: str, kubeconfig: Path) -> Account:
        """Create a ServiceAccount without any rights, and write its kubeconfig."""
        metadata = {"name": name, "namespace": home_namespace}
        cluster.apply(SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
        return cls(
            cluster, home_namespace, name, lab.service_account_kubeconfig(home_namespace, name, kubeconfig)
        )

    def set_rights(self, rules: Sequence[Rule], namespace: str | None = None) -> None:
        """Grant these rights and no others, in a namespace or in the whole cluster."""
        kind = "Role" if namespace else "ClusterRole"
        metadata = {"name": self.name, **({"namespace": namespace} if namespace else {})}
        common: Object = {"apiVersion": f"{_RBAC_GROUP}/v1", "metadata": metadata}
        subjects = [{"kind": "ServiceAccount", "name": self.name, "namespace": self.home_namespace}]
        self.cluster.apply(
            ROLES if namespace else CLUSTER_ROLES,
            {**common, "kind": kind, "rules": [_rule_to_json(rule) for rule in rules]},
        )
        self.cluster.apply(
            ROLE_BINDINGS if namespace else CLUSTER_ROLE_BINDINGS,
            {
                **common,
                "kind": f"{kind}Binding",
                "subjects": subjects,
                "roleRef": {"apiGroup": _RBAC_GROUP, "kind": kind, "name": self.name},
            },
        )


def _rule_to_json(rule: Rule) -> Object:
    return {
        "apiGroups": list(rule.api_groups),
        "resources": list(rule.resources),
        "verbs": list(rule.verbs),
        **({"resourceNames": list(rule.resource_names)} if rule.resource_names else {}),
    }
