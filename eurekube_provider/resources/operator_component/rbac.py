"""The operator's rights in the cluster: Roles with the rules of :mod:`eurekube_provider.kube.rights`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pulumi
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs
from pulumi_kubernetes.rbac.v1 import PolicyRuleArgs, RoleRefArgs, SubjectArgs
from pulumi_kubernetes.rbac.v1.ClusterRole import ClusterRole
from pulumi_kubernetes.rbac.v1.ClusterRoleBinding import ClusterRoleBinding
from pulumi_kubernetes.rbac.v1.Role import Role
from pulumi_kubernetes.rbac.v1.RoleBinding import RoleBinding

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
from eurekube_provider.resources.operator_component.target_arguments import names_of_pulumi_stack_targets


class _OperatorRole(NamedTuple):
    """A Role of the operator, or for the cluster a ClusterRole, with its binding.

    :ivar title: the name of the role's resource, and of the binding's if that has none of its own.
    :ivar name: the name of the objects.
    """

    title: str
    name: str
    namespace: str | None
    rules: Sequence[Rule]
    binding_title: str = ""


def make_operator_roles(
    name: str,
    args: EurekubeOperatorArgs,
    labels: Mapping[str, str],
    parent: pulumi.Resource,
    namespace: pulumi.Resource,
) -> list[pulumi.Resource]:
    """Make an operator's roles with their bindings to its ServiceAccount, and those of ``user_roles``."""
    made: list[pulumi.Resource] = []
    for role in _operator_roles(name, args):
        # Its own namespace may be made here; the others must exist.
        needed = [namespace] if role.namespace == args.namespace else []
        kinds: tuple[type[Any], type[Any]] = (
            (Role, RoleBinding) if role.namespace else (ClusterRole, ClusterRoleBinding)
        )
        metadata = ObjectMetaArgs(name=role.name, namespace=role.namespace, labels=labels)
        one = kinds[0](
            role.title,
            metadata=metadata,
            rules=_policy_rules(role.rules),
            opts=pulumi.ResourceOptions(parent=parent, depends_on=needed),
        )
        binding = kinds[1](
            role.binding_title or role.title,
            metadata=metadata,
            role_ref=RoleRefArgs(
                api_group="rbac.authorization.k8s.io", kind=kinds[0].__name__, name=role.name
            ),
            subjects=[
                SubjectArgs(kind="ServiceAccount", name=OPERATOR_OBJECT_NAME, namespace=args.namespace)
            ],
            opts=pulumi.ResourceOptions(parent=parent, depends_on=[one]),
        )
        made += [one, binding]
    for user, rule in USER_RULE_BY_ROLE.items() if args.user_roles else ():
        aggregated = {**labels, f"rbac.authorization.k8s.io/aggregate-to-{user}": "true"}
        made.append(
            ClusterRole(
                f"{name}-users-{user}",
                metadata=ObjectMetaArgs(name=f"{_shared_name(args)}-{user}", labels=aggregated),
                rules=_policy_rules([rule]),
                opts=pulumi.ResourceOptions(parent=parent),
            )
        )
    return made


def _shared_name(args: EurekubeOperatorArgs) -> str:
    """Return the name of roles outside of the operator's namespace, where another operator may have some."""
    return f"{OPERATOR_OBJECT_NAME}-{args.namespace}"


def _operator_roles(name: str, args: EurekubeOperatorArgs) -> Iterator[_OperatorRole]:
    """Yield a ClusterRole for all namespaces, or a Role for each listed one and a ClusterRole beside; then
    the roles for the readiness gate, for the Lease, and for each Stack that is a target.
    """
    shared, namespaces, gated = _shared_name(args), args.watch_namespaces, args.gate_namespaces
    if "*" in gated:
        gated = namespaces
    everywhere = GATE_NAMESPACE_RULES if args.gate_namespaces and not gated else ()
    routes = [rule for one, rule in ROUTE_NAMESPACE_RULE_BY_ADVERTISE.items() if one in args.advertise_from]
    work = [*NAMESPACE_RULES, *(MIRROR_NAMESPACE_RULES if args.mirrors else ()), *routes]
    cluster = [*CLUSTER_RULES, *(MIRROR_CLUSTER_RULES if args.mirrors else ())]
    rules = cluster if namespaces else [*work, *everywhere, *cluster]
    yield _OperatorRole(f"{name}-role", shared, None, rules, f"{name}-binding")
    for namespace in namespaces:
        yield _OperatorRole(
            f"{name}-role-{namespace}", shared, namespace, work, f"{name}-binding-{namespace}"
        )
    for namespace in gated:
        yield _OperatorRole(f"{name}-gate-{namespace}", f"{shared}-gate", namespace, GATE_NAMESPACE_RULES)
    election = election_rules(args.lease_name)
    yield _OperatorRole(f"{name}-election", OPERATOR_OBJECT_NAME, args.namespace, election)
    for namespace, stack in names_of_pulumi_stack_targets(args.targets):
        title = f"{name}-stack-{namespace}-{stack}"
        yield _OperatorRole(title, f"{shared}-{stack}", namespace, [pulumi_stack_rule(stack)])


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
