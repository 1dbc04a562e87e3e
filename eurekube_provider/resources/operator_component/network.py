"""The operator's NetworkPolicy: the callers of its pods, and the addresses that the pods may call.

A policy has addresses and labels, no host names, so that the allowed calls follow from the ports.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from pulumi_kubernetes.meta.v1 import LabelSelectorArgs, LabelSelectorRequirementArgs
from pulumi_kubernetes.networking.v1 import (
    IPBlockArgs,
    NetworkPolicyEgressRuleArgs,
    NetworkPolicyIngressRuleArgs,
    NetworkPolicyPeerArgs,
    NetworkPolicyPortArgs,
    NetworkPolicySpecArgs,
)

from eurekube_provider.resources.operator_component.operator_arguments import (
    EurekubeOperatorArgs,
    operator_selector,
)

_DNS_PORT = 53
_API_SERVER_PORTS = (443, 6443)
"""The Kubernetes API's ports: the Service's, and that of its servers, which most networks check."""


def operator_network_policy_spec(name: str, args: EurekubeOperatorArgs) -> NetworkPolicySpecArgs:
    """Return the ``spec`` of the NetworkPolicy of the operator ``name``."""
    ports = {*_API_SERVER_PORTS, *args.eureka_ports, *args.egress_ports}
    callers = LabelSelectorArgs(
        match_expressions=[
            LabelSelectorRequirementArgs(
                key="kubernetes.io/metadata.name", operator="In", values=list(args.web_namespaces)
            )
        ]
    )
    return NetworkPolicySpecArgs(
        pod_selector=LabelSelectorArgs(match_labels=operator_selector(name)),
        policy_types=["Ingress", "Egress"],
        ingress=[
            NetworkPolicyIngressRuleArgs(
                ports=[NetworkPolicyPortArgs(port="http", protocol="TCP")],
                from_=[NetworkPolicyPeerArgs(namespace_selector=callers)] if args.web_namespaces else None,
            )
        ],
        egress=_egress_rules(sorted(ports), args.egress_cidrs),
    )


def _egress_rules(ports: Iterable[int], networks: Collection[str]) -> list[NetworkPolicyEgressRuleArgs]:
    """Return rules for outgoing calls: DNS anywhere, ``ports`` in ``networks``; without these anywhere."""
    dns = [NetworkPolicyPortArgs(port=_DNS_PORT, protocol="UDP"), *_tcp_ports([_DNS_PORT])]
    if not networks:
        return [NetworkPolicyEgressRuleArgs(ports=[*dns, *_tcp_ports(ports)])]
    blocks = [NetworkPolicyPeerArgs(ip_block=IPBlockArgs(cidr=network)) for network in networks]
    return [
        NetworkPolicyEgressRuleArgs(ports=dns),
        NetworkPolicyEgressRuleArgs(to=blocks, ports=_tcp_ports(ports)),
    ]


def _tcp_ports(ports: Iterable[int]) -> list[NetworkPolicyPortArgs]:
    return [NetworkPolicyPortArgs(port=port, protocol="TCP") for port in ports]
