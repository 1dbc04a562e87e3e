"""The component itself: its objects, and in which order they come and go.

Works under the SDK's mocks as well as with an engine: every name is explicit, nothing is taken from what a
server computes, and the CRD is read as YAML.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi
from pulumi_kubernetes.apiextensions.CustomResource import CustomResource
from pulumi_kubernetes.apps.v1.Deployment import Deployment
from pulumi_kubernetes.core.v1 import ServicePortArgs, ServiceSpecArgs
from pulumi_kubernetes.core.v1.ConfigMap import ConfigMap
from pulumi_kubernetes.core.v1.Namespace import Namespace
from pulumi_kubernetes.core.v1.Secret import Secret
from pulumi_kubernetes.core.v1.Service import Service
from pulumi_kubernetes.core.v1.ServiceAccount import ServiceAccount
from pulumi_kubernetes.meta.v1 import LabelSelectorArgs, ObjectMetaArgs
from pulumi_kubernetes.networking.v1.NetworkPolicy import NetworkPolicy
from pulumi_kubernetes.policy.v1 import PodDisruptionBudgetSpecArgs
from pulumi_kubernetes.policy.v1.PodDisruptionBudget import PodDisruptionBudget

from eurekube_provider.resources.labels import object_labels
from eurekube_provider.resources.operator_component.crds import operator_crds
from eurekube_provider.resources.operator_component.credentials import CREDENTIALS
from eurekube_provider.resources.operator_component.deployment import operator_deployment
from eurekube_provider.resources.operator_component.monitoring import (
    MONITORING_API,
    prometheus_rule,
    service_monitor,
)
from eurekube_provider.resources.operator_component.network import operator_network_policy
from eurekube_provider.resources.operator_component.operator_arguments import (
    ACCOUNT,
    WEB_PORT,
    EurekubeOperatorArgs,
    EurekubeOperatorArgsDict,
    operator_args,
    operator_selector,
)
from eurekube_provider.resources.operator_component.rbac import Rights
from eurekube_provider.resources.operator_component.target_arguments import (
    FILE,
    TARGETS,
    pulumi_stacks,
    targets_file,
)


class EurekubeOperator(pulumi.ComponentResource):
    """The operator of a cluster; several in one cluster need namespaces and operator names of their own.

    The output ``namespace`` is there as soon as the namespace is: what goes into it, such as the Secret that
    ``eureka_secret`` names, need not wait for the operator, which waits for it.

    :raises ProgramError: an argument cannot be used, or two do not go together.
    """

    namespace: pulumi.Output[str]
    service_account: pulumi.Output[str]
    operator_name: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        args: EurekubeOperatorArgs | EurekubeOperatorArgsDict,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        args = operator_args(args)
        super().__init__("eurekube:index:EurekubeOperator", name, None, opts)
        self._args = args
        self._labels = object_labels("operator", name)
        self._child = pulumi.ResourceOptions(parent=self)
        crds = operator_crds(name, self, opts.parent if opts is not None else None, keep=args.keep_crds)
        namespace = self._namespace(f"{name}-namespace")
        account = ServiceAccount(f"{name}-account", metadata=self._metadata(), opts=self._after(namespace))
        rights = Rights(name, args, self._labels, self)
        needed = [account, *crds, *rights.for_work(), *rights.for_election(namespace)]
        if args.credentials.own:
            needed.append(self._secret(f"{name}-eureka", CREDENTIALS, args.credentials.own, namespace))
        needed += [*rights.for_stacks(pulumi_stacks(args.targets)), *self._targets(name, namespace)]
        needed += [self._network_policy(name, namespace)] if args.network_policy else []
        self.deployment = Deployment(
            name,
            metadata=self._metadata(),
            spec=operator_deployment(name, args),
            opts=self._after(*needed),
        )
        if args.replicas > 1:
            self._disruption_budget(name, namespace)
        self._service(name, namespace)
        if args.service_monitor:
            self._monitoring("ServiceMonitor", name, service_monitor(self._labels, args), namespace)
        if args.prometheus_rule:
            self._monitoring("PrometheusRule", name, prometheus_rule(args), namespace)
        self.namespace = namespace.urn.apply(lambda _: args.namespace)
        self.service_account = pulumi.Output.from_input(ACCOUNT)
        self.operator_name = pulumi.Output.from_input(args.operator_name)
        self.register_outputs(
            {
                "namespace": self.namespace,
                "service_account": self.service_account,
                "operator_name": self.operator_name,
            }
        )

    def _namespace(self, title: str) -> Namespace:
        """The operator's namespace.

        One that is there already is read under the same name: what this component made before is let go of
        by that, and not removed.
        """
        args = self._args
        if not args.create_namespace:
            return Namespace.get(title, args.namespace, opts=self._child)
        labels = {**self._labels, "pod-security.kubernetes.io/enforce": "restricted"}
        return Namespace(title, metadata=ObjectMetaArgs(name=args.namespace, labels=labels), opts=self._child)

    def _metadata(self, name: str = ACCOUNT, **labels: str) -> ObjectMetaArgs:
        return ObjectMetaArgs(name=name, namespace=self._args.namespace, labels={**self._labels, **labels})

    def _after(self, *resources: pulumi.Resource) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, depends_on=list(resources))

    def _secret(
        self, title: str, name: str, data: Mapping[str, pulumi.Input[str]], namespace: pulumi.Resource
    ) -> Secret:
        opts = self._after(namespace)
        opts.additional_secret_outputs = ["data", "stringData"]
        return Secret(title, metadata=self._metadata(name), string_data=dict(data), opts=opts)

    def _targets(self, name: str, namespace: pulumi.Resource) -> list[pulumi.Resource]:
        args = self._args
        if not args.file_content:
            return []
        made: list[pulumi.Resource] = [
            ConfigMap(
                f"{name}-targets",
                metadata=self._metadata(TARGETS),
                data={FILE: targets_file(args.file_content)},
                opts=self._after(namespace),
            )
        ]
        if args.file_secrets:
            made.append(self._secret(f"{name}-targets", TARGETS, args.file_secrets, namespace))
        return made

    def _disruption_budget(self, name: str, namespace: pulumi.Resource) -> None:
        PodDisruptionBudget(
            name,
            metadata=self._metadata(),
            spec=PodDisruptionBudgetSpecArgs(
                max_unavailable=1, selector=LabelSelectorArgs(match_labels=operator_selector(name))
            ),
            opts=self._after(namespace),
        )

    def _service(self, name: str, namespace: pulumi.Resource) -> None:
        Service(
            f"{name}-service",
            metadata=self._metadata(),
            spec=ServiceSpecArgs(
                selector=operator_selector(name),
                ports=[ServicePortArgs(name="http", port=WEB_PORT, target_port="http", protocol="TCP")],
            ),
            opts=self._after(namespace),
        )

    def _network_policy(self, name: str, namespace: pulumi.Resource) -> NetworkPolicy:
        return NetworkPolicy(
            name,
            metadata=self._metadata(),
            spec=operator_network_policy(name, self._args),
            opts=self._after(namespace),
        )

    def _monitoring(self, kind: str, name: str, spec: dict[str, Any], namespace: pulumi.Resource) -> None:
        CustomResource(
            name,
            api_version=MONITORING_API,
            kind=kind,
            metadata=self._metadata(**self._args.monitoring_labels),
            spec=spec,
            opts=self._after(namespace),
        )
