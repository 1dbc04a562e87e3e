"""The operator's rights in the cluster: Roles with the rules of :mod:`eurekube_provider.kube.rights`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs
from pulumi_kubernetes.rbac.v1 import PolicyRuleArgs, RoleRefArgs, SubjectArgs
from pulumi_kubernetes.rbac.v1.ClusterRole import ClusterRole
from pulumi_kubernetes.rbac.v1.ClusterRoleBinding import ClusterRoleBinding
from pulumi_kubernetes.rbac.v1.Role import Role
from pulumi_kubernetes.rbac.v1.RoleBinding import RoleBinding

from eurekube_provider.core.model import EMPTY_MAPPING
from eurekube_provider.kube.rights import (
    CLUSTER_RULES,
    GATE_NAMESPACE_RULES,
    MIRROR_CLUSTER_RULES,
    MIRROR_NAMESPACE_RULES,
    NAMESPACE_RULES,
    ROUTE_NAMESPACE_RULE_BY_ADVERTISE,
    USER_RULE_BY_ROLE,
    Rule,
    election_rules,
    pulumi_stack_rule,
)
from eurekube_provider.resources.operator_component.operator_arguments import (
    OPERATOR_OBJECT_NAME,
    EurekubeOperatorArgs,
)


class OperatorRoleMaker:
    """The maker of one operator's roles, and of their bindings to its ServiceAccount."""

    def __init__(
        self, name: str, args: EurekubeOperatorArgs, labels: dict[str, str], parent: pulumi.Resource
    ) -> None:
        self._name = name
        self._args = args
        self._labels = labels
        self._parent = parent
        # Outside of the operator's namespace another operator may have rights as well.
        self._shared = f"{OPERATOR_OBJECT_NAME}-{args.namespace}"

    def make_work_roles(self) -> list[pulumi.Resource]:
        """Make a ClusterRole for all namespaces, or a Role in each listed one and a ClusterRole beside."""
        namespaces, gated = self._args.watch_namespaces, self._args.gate_namespaces
        if "*" in gated:
            gated = namespaces
        everywhere = GATE_NAMESPACE_RULES if self._args.gate_namespaces and not gated else ()
        has_mirrors = self._args.mirrors
        routes = [
            rule
            for one, rule in ROUTE_NAMESPACE_RULE_BY_ADVERTISE.items()
            if one in self._args.advertise_from
        ]
        work = [*NAMESPACE_RULES, *(MIRROR_NAMESPACE_RULES if has_mirrors else ()), *routes]
        cluster = [*CLUSTER_RULES, *(MIRROR_CLUSTER_RULES if has_mirrors else ())]
        rights = self._make_role_and_binding(
            f"{self._name}-role",
            self._shared,
            None,
            cluster if namespaces else [*work, *everywhere, *cluster],
            binding_title=f"{self._name}-binding",
        )
        for namespace in namespaces:
            rights += self._make_role_and_binding(
                f"{self._name}-role-{namespace}",
                self._shared,
                namespace,
                work,
                binding_title=f"{self._name}-binding-{namespace}",
            )
        for namespace in gated:
            rights += self._make_role_and_binding(
                f"{self._name}-gate-{namespace}", f"{self._shared}-gate", namespace, GATE_NAMESPACE_RULES
            )
        return rights

    def make_user_roles(self) -> list[pulumi.Resource]:
        """Make the ClusterRoles of ``user_roles``, which add Eurekube's kinds to view, edit and admin."""
        return [
            ClusterRole(
                f"{self._name}-users-{role}",
                metadata=self._object_metadata(
                    f"{self._shared}-{role}",
                    labels={f"rbac.authorization.k8s.io/aggregate-to-{role}": "true"},
                ),
                rules=_policy_rules([rule]),
                opts=self._options_after(),
            )
            for role, rule in USER_RULE_BY_ROLE.items()
            if self._args.user_roles
        ]

    def make_election_role(self, namespace: pulumi.Resource) -> list[pulumi.Resource]:
        """Make a Role in the operator's own namespace, for its Lease."""
        return self._make_role_and_binding(
            f"{self._name}-election",
            OPERATOR_OBJECT_NAME,
            self._args.namespace,
            election_rules(self._args.lease_name),
            namespace,
        )

    def make_target_stack_roles(self, stacks: Sequence[tuple[str, str]]) -> list[pulumi.Resource]:
        """Make a Role for each Stack that is a target, in its namespace, which must exist."""
        rights: list[pulumi.Resource] = []
        for namespace, stack in stacks:
            rights += self._make_role_and_binding(
                f"{self._name}-stack-{namespace}-{stack}",
                f"{self._shared}-{stack}",
                namespace,
                [pulumi_stack_rule(stack)],
            )
        return rights

    def _make_role_and_binding(
        self,
        title: str,
        name: str,
        namespace: str | None,
        rules: Sequence[Rule],
        *needed: pulumi.Resource,
        binding_title: str | None = None,
    ) -> list[pulumi.Resource]:
        """Make a Role and its binding in a namespace, or for the cluster; titles are names of resources."""
        kinds: tuple[type[Any], type[Any]] = (
            (Role, RoleBinding) if namespace else (ClusterRole, ClusterRoleBinding)
        )
        metadata = self._object_metadata(name, namespace)
        role = kinds[0](
            title, metadata=metadata, rules=_policy_rules(rules), opts=self._options_after(*needed)
        )
        binding = kinds[1](
            binding_title or title,
            metadata=metadata,
            role_ref=RoleRefArgs(api_group="rbac.authorization.k8s.io", kind=kinds[0].__name__, name=name),
            subjects=[
                SubjectArgs(kind="ServiceAccount", name=OPERATOR_OBJECT_NAME, namespace=self._args.namespace)
            ],
            opts=self._options_after(role),
        )
        return [role, binding]

    def _object_metadata(
        self, name: str, namespace: str | None = None, labels: Mapping[str, str] = EMPTY_MAPPING
    ) -> ObjectMetaArgs:
        return ObjectMetaArgs(name=name, namespace=namespace, labels={**self._labels, **labels})

    def _options_after(self, *resources: pulumi.Resource) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self._parent, depends_on=list(resources))


def _policy_rules(rules: Sequence[Rule]) -> list[PolicyRuleArgs]:
    return [
        PolicyRuleArgs(
            api_groups=list(rule.api_groups),
            resources=list(rule.resources),
            resource_names=list(rule.resource_names) or None,
            verbs=list(rule.verbs),
        )
        for rule in rules
    ]
