"""The component EurekubeOperator: its objects, and the order in which they are made and removed.

It works under the SDK's mocks as well as with an engine: every name is explicit, no value comes from a
server, and the CRD is read as YAML.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Unpack, overload

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

from eurekube_provider.core.model import EMPTY
from eurekube_provider.core.objects import STACK_LABEL
from eurekube_provider.resources.arguments import one_form
from eurekube_provider.resources.labels import object_labels
from eurekube_provider.resources.operator_component.crds import operator_crds
from eurekube_provider.resources.operator_component.credentials import CREDENTIALS
from eurekube_provider.resources.operator_component.deployment import SecretNames, operator_deployment
from eurekube_provider.resources.operator_component.monitoring import (
    MONITORING_API,
    prometheus_rule,
    service_monitor,
)
from eurekube_provider.resources.operator_component.namespace import operator_namespace
from eurekube_provider.resources.operator_component.network import operator_network_policy
from eurekube_provider.resources.operator_component.operator_arguments import (
    ACCOUNT,
    WEB_PORT,
    EurekubeOperatorArgs,
    EurekubeOperatorArgsDict,
    operator_args,
    operator_selector,
)
from eurekube_provider.resources.operator_component.pod_arguments import Texts, given
from eurekube_provider.resources.operator_component.rbac import Rights
from eurekube_provider.resources.operator_component.target_arguments import (
    FILE,
    TARGETS,
    pulumi_stacks,
    targets_file,
)
from eurekube_provider.resources.operator_guard import OperatorGuard, cluster_inputs
from eurekube_provider.resources.program import AsProgramError, check_component_aliases, is_rendered


class EurekubeOperator(pulumi.ComponentResource):
    """The operator of a cluster; several in one cluster need namespaces and operator names of their own.

    The arguments may be keywords, a class or a dictionary. The output ``namespace`` is known as soon as the
    namespace exists: objects in it, such as the Secret that ``eureka_secret`` names, need not wait for the
    operator, which waits for the Secret.

    :raises ProgramError: an argument cannot be used, or two do not go together.
    """

    TYPE: ClassVar[str] = "eurekube:index:EurekubeOperator"
    GUARD: ClassVar[type[Any]] = OperatorGuard
    CREATE_NAMESPACE: ClassVar[str] = "create_namespace"

    namespace: pulumi.Output[str]
    service_account: pulumi.Output[str]
    operator_name: pulumi.Output[str]

    @overload
    def __init__(
        self,
        name: str,
        args: EurekubeOperatorArgs | EurekubeOperatorArgsDict,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        *,
        opts: pulumi.ResourceOptions | None = None,
        **keywords: Unpack[EurekubeOperatorArgsDict],
    ) -> None: ...
    def __init__(
        self,
        name: str,
        args: Any = None,
        opts: pulumi.ResourceOptions | None = None,
        **keywords: Any,
    ) -> None:
        with AsProgramError("EurekubeOperator: "):
            args = operator_args(one_form(args, keywords, ""))
        check_component_aliases(self.TYPE, name, opts)
        super().__init__(self.TYPE, name, None, opts)
        self._args = args
        self._labels = object_labels("operator", name)
        crds = operator_crds(name, self, opts.parent if opts is not None else None, keep=args.keep_crds)
        namespace = operator_namespace(
            f"{name}-namespace",
            args,
            self._labels,
            self,
            asked_by=self.TYPE.rpartition(":")[2],
            argument=self.CREATE_NAMESPACE,
        )
        account = ServiceAccount(
            f"{name}-account",
            metadata=self._metadata(
                labels=args.service_account_labels, annotations=args.service_account_annotations
            ),
            opts=self._after(namespace),
        )
        rights = Rights(name, args, self._labels, self)
        needed = [account, *crds, *rights.for_work(), *rights.for_users(), *rights.for_election(namespace)]
        secrets = SecretNames()
        if args.credentials.own:
            secret = self._secret(f"{name}-eureka", CREDENTIALS, args.credentials.own, namespace)
            secrets = replace(secrets, credentials=_name_of(secret, CREDENTIALS))
            needed.append(secret)
        needed += rights.for_stacks(pulumi_stacks(args.targets))
        if args.file_content:
            data, metadata = {FILE: targets_file(args.file_content)}, self._metadata(TARGETS)
            needed.append(self._made(ConfigMap, f"{name}-targets", namespace, metadata=metadata, data=data))
        if args.file_content and args.file_secrets:
            secret = self._secret(f"{name}-targets", TARGETS, args.file_secrets, namespace)
            secrets = replace(secrets, targets=_name_of(secret, TARGETS))
            needed.append(secret)
        if args.network_policy:
            policy = operator_network_policy(name, args)
            needed.append(self._made(NetworkPolicy, name, namespace, spec=policy))
        self.deployment = Deployment(
            name,
            metadata=self._metadata(labels=args.deployment_labels, annotations=args.deployment_annotations),
            spec=operator_deployment(name, args, secrets),
            opts=self._after(*needed),
        )
        web = ServicePortArgs(name="http", port=WEB_PORT, target_port="http", protocol="TCP")
        service = ServiceSpecArgs(selector=operator_selector(name), ports=[web])
        beside = [self._made(Service, f"{name}-service", namespace, spec=service)]
        if args.replicas > 1:
            pods = LabelSelectorArgs(match_labels=operator_selector(name))
            budget = PodDisruptionBudgetSpecArgs(max_unavailable=1, selector=pods)
            beside.append(self._made(PodDisruptionBudget, name, namespace, spec=budget))
        monitoring = {
            "ServiceMonitor": service_monitor(self._labels, args) if args.service_monitor else None,
            "PrometheusRule": prometheus_rule(args) if args.prometheus_rule else None,
        }
        for kind, spec in monitoring.items():
            if spec is not None:
                more: Any = {"api_version": MONITORING_API, "kind": kind, "spec": spec}
                more["metadata"] = self._metadata(labels=args.monitoring_labels)
                beside.append(self._made(CustomResource, name, namespace, **more))
        if not is_rendered.get():
            self._guard(name, namespace, self.deployment, *beside)
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

    def _guard(self, name: str, namespace: Namespace, *made: pulumi.Resource) -> None:
        """Make the guard whose deletion, before all other objects', is refused while the operator is still
        needed.
        """
        args = self._args
        inputs = {
            "namespace": args.namespace,
            "namespace_uid": namespace.metadata.apply(_uid),
            "watch_namespaces": list(args.watch_namespaces),
            "stack_label": self._labels[STACK_LABEL],
            "owns_crds": not args.keep_crds,
            "force": args.force_destroy,
            **cluster_inputs(self.get_provider("kubernetes:core/v1:Namespace")),
        }
        self.GUARD(f"{name}-guard", inputs, self._after(namespace, *made))

    def _metadata(
        self,
        name: str | None = ACCOUNT,
        labels: Texts = EMPTY,
        annotations: Texts = EMPTY,
    ) -> ObjectMetaArgs:
        return ObjectMetaArgs(
            name=name,
            namespace=self._args.namespace,
            labels={**self._labels, **given(labels)},
            annotations=given(annotations) or None,
        )

    def _after(self, *resources: pulumi.Resource) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, depends_on=list(resources))

    def _secret(
        self, title: str, name: str, data: Mapping[str, pulumi.Input[str]], namespace: pulumi.Resource
    ) -> Secret:
        """Make a Secret.

        The engine gives the Secret a new name whenever its content changes, so that the pods, which read it
        at their start, are replaced. Without an engine the name is fixed.
        """
        opts = self._after(namespace)
        opts.additional_secret_outputs = ["data", "stringData"]
        is_named = is_rendered.get()
        return Secret(
            title,
            metadata=self._metadata(name if is_named else None),
            immutable=None if is_named else True,
            string_data=dict(data),
            opts=opts,
        )

    def _made(
        self, type_: type[Any], title: str, namespace: pulumi.Resource, /, **more: Any
    ) -> pulumi.Resource:
        """Make an object that needs the namespace and nothing else.

        :param more: the object's properties; without ``metadata`` it gets the operator's own.
        """
        opts = self._after(namespace)
        made: pulumi.Resource = type_(title, opts=opts, **{"metadata": self._metadata(), **more})
        return made


def _name_of(secret: Secret, rendered: str) -> pulumi.Input[str]:
    """Return a Secret's name as a value that is not secret, though old states mark it as one."""
    if is_rendered.get():
        return rendered
    return pulumi.Output.unsecret(secret.metadata).apply(lambda found: found.get("name"))


def _uid(metadata: Any) -> str | None:
    """Return the UID of an object; None where a program's mocks give no metadata."""
    return metadata.get("uid") if metadata else None
