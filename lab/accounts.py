"""ServiceAccounts with exactly the given rights, to run an operator with no others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eurekube_provider.kube.access import ApiResource
from eurekube_provider.kube.rights import Rule
from lab.lab import Lab
from lab.workloads import Cluster, Object

_GROUP = "rbac.authorization.k8s.io"
ACCOUNTS = ApiResource("", "v1", "serviceaccounts")
ROLES, BINDINGS = ApiResource(_GROUP, "v1", "roles"), ApiResource(_GROUP, "v1", "rolebindings")
CLUSTER_ROLES = ApiResource(_GROUP, "v1", "clusterroles")
CLUSTER_BINDINGS = ApiResource(_GROUP, "v1", "clusterrolebindings")


@dataclass
class Account:
    """A ServiceAccount in the namespace `home`, and its rights."""

    cluster: Cluster
    home: str
    name: str
    kubeconfig: Path

    @classmethod
    def made(cls, lab: Lab, cluster: Cluster, home: str, name: str, kubeconfig: Path) -> Account:
        """Create a ServiceAccount without any rights yet."""
        metadata = {"name": name, "namespace": home}
        cluster.apply(ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
        return cls(cluster, home, name, lab.service_account_kubeconfig(home, name, kubeconfig))

    def may(self, rules: Sequence[Rule], namespace: str | None = None) -> None:
        """Grant these rights and no others, in a namespace or in the whole cluster."""
        kind = "Role" if namespace else "ClusterRole"
        metadata = {"name": self.name, **({"namespace": namespace} if namespace else {})}
        common: Object = {"apiVersion": f"{_GROUP}/v1", "metadata": metadata}
        subjects = [{"kind": "ServiceAccount", "name": self.name, "namespace": self.home}]
        self.cluster.apply(
            ROLES if namespace else CLUSTER_ROLES,
            {**common, "kind": kind, "rules": [_written(rule) for rule in rules]},
        )
        self.cluster.apply(
            BINDINGS if namespace else CLUSTER_BINDINGS,
            {
                **common,
                "kind": f"{kind}Binding",
                "subjects": subjects,
                "roleRef": {"apiGroup": _GROUP, "kind": kind, "name": self.name},
            },
        )


def _written(rule: Rule) -> Object:
    return {
        "apiGroups": list(rule.api_groups),
        "resources": list(rule.resources),
        "verbs": list(rule.verbs),
        **({"resourceNames": list(rule.resource_names)} if rule.resource_names else {}),
    }
