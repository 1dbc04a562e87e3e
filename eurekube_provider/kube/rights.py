"""RBAC rules: the permissions that the operator needs, no more, and people's for Eurekube's kinds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eurekube_provider.core.syncer import Advertise


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a ClusterRole or of a Role."""

    api_groups: tuple[str, ...]
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    resource_names: tuple[str, ...] = ()


NAMESPACE_RULES = (
    Rule(("",), ("services",), ("list", "watch")),
    Rule(("discovery.k8s.io",), ("endpointslices",), ("list", "watch")),
    # their labels, for syncers with metadataFromPodLabels, watched only while there is one; and how single
    # ones end, listed by their names
    Rule(("",), ("pods",), ("list", "watch")),
    Rule(("events.k8s.io",), ("events",), ("create",)),
)
"""The operator's rules in every namespace that it watches: to read what it registers, and write Events."""

DERIVED_SYNCER_RULE = Rule(("eurekube.io",), ("eurekasyncers",), ("create", "delete"))
"""The operator's rule for the syncers that it derives from a syncer for all Services of a namespace."""

CLUSTER_RULES = (
    # its UID names the cluster
    Rule(("",), ("namespaces",), ("get",), resource_names=("kube-system",)),
    # Our own kinds. Not by the namespaces' Roles: a Role goes, with its namespace, before the syncers are
    # released. patch: the finalizer, by which a syncer's registrations go before the syncer does
    Rule(("eurekube.io",), ("eurekasyncers",), ("get", "list", "watch", "patch")),
    Rule(("eurekube.io",), ("eurekasyncers/status",), ("patch",)),
    DERIVED_SYNCER_RULE,
    # patch: the annotation that releases the brake is taken off
    Rule(("eurekube.io",), ("stackrefreshes",), ("get", "list", "watch", "patch")),
    Rule(("eurekube.io",), ("stackrefreshes/status",), ("patch",)),
    # their addresses, for syncers that advertise a node port; watched only while there is one
    Rule(("",), ("nodes",), ("list", "watch")),
)
"""The operator's rules for the whole cluster: for Eurekube's own kinds, Nodes and the cluster's UID."""

GATE_NAMESPACE_RULES = (
    # The condition of the readiness gate; Kubernetes has no right for a single condition
    Rule(("",), ("pods/status",), ("patch",)),
    # whether a template declares the gate, before the operator is uninstalled; never while it runs
    Rule(("apps",), ("deployments", "statefulsets", "daemonsets"), ("list",)),
)
"""The operator's rules in namespaces whose pods may declare the readiness gate, and nowhere else."""

MIRROR_NAMESPACE_RULES = (
    # Without a selector, made and removed for mirrors; Kubernetes has no right for our own alone
    Rule(("",), ("services",), ("create", "patch", "delete")),
    Rule(("discovery.k8s.io",), ("endpointslices",), ("create", "update", "delete")),
)
"""The operator's rules in every namespace that it watches, if it serves mirrors."""

MIRROR_CLUSTER_RULES = (
    # patch: the finalizer, by which a mirror's Services go before the mirror does
    Rule(("eurekube.io",), ("eurekamirrors",), ("get", "list", "watch", "patch")),
    Rule(("eurekube.io",), ("eurekamirrors/status",), ("patch",)),
    # the networks of the cluster's own Services, whose addresses are never mirrored
    Rule(("networking.k8s.io",), ("servicecidrs",), ("list",)),
)
"""The operator's rules for the whole cluster, if it serves mirrors."""

ROUTE_NAMESPACE_RULE_BY_ADVERTISE: Mapping[Advertise, Rule] = {
    # watched only while a syncer advertises an address from there
    Advertise.INGRESS: Rule(("networking.k8s.io",), ("ingresses",), ("list", "watch")),
    Advertise.GATEWAY: Rule(("gateway.networking.k8s.io",), ("gateways", "httproutes"), ("list", "watch")),
}
"""The operator's rule in every watched namespace for each kind of address that ``--advertise-from`` names."""

_EUREKUBE_RESOURCE_NAMES = ("eurekasyncers", "eurekamirrors", "stackrefreshes")

USER_RULE_BY_ROLE = {
    "view": Rule(("eurekube.io",), _EUREKUBE_RESOURCE_NAMES, ("get", "list", "watch")),
    # Not their status: the operator reads there which names a namespace has had
    "edit": Rule(
        ("eurekube.io",),
        _EUREKUBE_RESOURCE_NAMES,
        ("create", "update", "patch", "delete", "deletecollection"),
    ),
}
"""Rules for people, by the Kubernetes role that gets them; edit includes those of view, admin both."""


def pulumi_stack_rule(name: str) -> Rule:
    """Return the rule for asking the Pulumi Kubernetes Operator to run a Stack of a namespace."""
    return Rule(("pulumi.com",), ("stacks",), ("get", "patch"), resource_names=(name,))


def election_rules(lease: str) -> tuple[Rule, ...]:
    """Return the rules needed for leader election, in the operator's own namespace."""
    group = ("coordination.k8s.io",)
    return (
        Rule(group, ("leases",), ("get", "update", "watch"), resource_names=(lease,)),
        Rule(group, ("leases",), ("create",)),  # a name cannot be asked for before there is one
    )
