"""The component EurekubeOperator: its objects, and the order in which they are made and removed. It also
works under the SDK's mocks: every name is explicit, and no value comes from a server.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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

from eurekube_provider.core.model import EMPTY_MAPPING
from eurekube_provider.core.objects import STACK_LABEL
from eurekube_provider.resources.files import read_yaml_documents
from eurekube_provider.resources.labels import object_labels
from eurekube_provider.resources.new_namespace import make_new_namespace
from eurekube_provider.resources.operator_component.crds import make_operator_crds
from eurekube_provider.resources.operator_component.credentials import CREDENTIALS_SECRET_NAME
from eurekube_provider.resources.operator_component.deployment import operator_deployment_spec
from eurekube_provider.resources.operator_component.network import operator_network_policy_spec
from eurekube_provider.resources.operator_component.operator_arguments import (
    OPERATOR_OBJECT_NAME,
    WEB_PORT,
    EurekubeOperatorArgs,
    EurekubeOperatorArgsDict,
    operator_selector,
    parse_operator_args,
)
from eurekube_provider.resources.operator_component.pod_arguments import TextMap, without_none
from eurekube_provider.resources.operator_component.rbac import make_operator_roles
from eurekube_provider.resources.operator_component.target_arguments import (
    CONFIG_FILE_NAME,
    CONFIG_OBJECTS_NAME,
    config_file_text,
)
from eurekube_provider.resources.operator_guard import OperatorGuard, kubeconfig_inputs
from eurekube_provider.resources.program import (
    Options,
    refuse_aliases_of_native_component,
    runs_without_engine,
)


class EurekubeOperator(pulumi.ComponentResource):
    """The operator of a cluster; several in one cluster need namespaces and operator names of their own.

    The arguments may be keywords, a class or a dictionary. The output ``namespace`` is known as soon as the
    namespace exists: objects in it, such as the Secret that ``eureka_secret`` names, need not wait for the
    operator, which waits for the Secret.

    :raises ProgramError: an argument cannot be used, or two do not go together.
    """

    TYPE: ClassVar[str] = "eurekube:index:EurekubeOperator"
    ARGS: ClassVar[type[Any]] = EurekubeOperatorArgs
    GUARD_CLASS: ClassVar[type[Any]] = OperatorGuard
    CREATE_NAMESPACE_ARGUMENT_NAME: ClassVar[str] = "create_namespace"

    namespace: pulumi.Output[str]
    service_account: pulumi.Output[str]
    operator_name: pulumi.Output[str]

    @overload
    def __init__(
        self, name: str, args: EurekubeOperatorArgs | EurekubeOperatorArgsDict, opts: Options = None
    ) -> None: ...
    @overload
    def __init__(
        self, name: str, *, opts: Options = None, **keywords: Unpack[EurekubeOperatorArgsDict]
    ) -> None: ...
    def __init__(self, name: str, args: Any = None, opts: Options = None, **keywords: Any) -> None:
        args = parse_operator_args(args, keywords)
        refuse_aliases_of_native_component(self.TYPE, name, opts)
        super().__init__(self.TYPE, name, None, opts)
        self._args = args
        self._labels = object_labels("operator", name)
        crds = make_operator_crds(name, self, opts.parent if opts is not None else None, keep=args.keep_crds)
        namespace = self._make_or_read_namespace(f"{name}-namespace")
        account = ServiceAccount(
            f"{name}-account",
            metadata=self._object_metadata(
                labels=args.service_account_labels, annotations=args.service_account_annotations
            ),
            opts=self._options_after(namespace),
        )
        needed = [account, *crds, *make_operator_roles(name, args, self._labels, self, namespace)]
        credentials_secret: pulumi.Input[str] = CREDENTIALS_SECRET_NAME
        targets_secret: pulumi.Input[str] = CONFIG_OBJECTS_NAME
        if args.credentials.secret_content:
            secret, credentials_secret = self._make_secret(
                f"{name}-eureka", CREDENTIALS_SECRET_NAME, args.credentials.secret_content, namespace
            )
            needed.append(secret)
        if args.config_file_content:
            data = {CONFIG_FILE_NAME: config_file_text(args.config_file_content)}
            metadata = self._object_metadata(CONFIG_OBJECTS_NAME)
            needed.append(
                self._make_object(ConfigMap, f"{name}-targets", namespace, metadata=metadata, data=data)
            )
        if args.config_file_content and args.config_file_secrets:
            secret, targets_secret = self._make_secret(
                f"{name}-targets", CONFIG_OBJECTS_NAME, args.config_file_secrets, namespace
            )
            needed.append(secret)
        if args.network_policy:
            policy = operator_network_policy_spec(name, args)
            needed.append(self._make_object(NetworkPolicy, name, namespace, spec=policy))
        self.deployment = Deployment(
            name,
            metadata=self._object_metadata(
                labels=args.deployment_labels, annotations=args.deployment_annotations
            ),
            spec=operator_deployment_spec(name, args, credentials_secret, targets_secret),
            opts=self._options_after(*needed),
        )
        web = ServicePortArgs(name="http", port=WEB_PORT, target_port="http", protocol="TCP")
        service = ServiceSpecArgs(selector=operator_selector(name), ports=[web])
        beside = [self._make_object(Service, f"{name}-service", namespace, spec=service)]
        if args.replicas > 1:
            pods = LabelSelectorArgs(match_labels=operator_selector(name))
            budget = PodDisruptionBudgetSpecArgs(max_unavailable=1, selector=pods)
            beside.append(self._make_object(PodDisruptionBudget, name, namespace, spec=budget))
        monitoring = {
            "ServiceMonitor": service_monitor_spec(self._labels, args) if args.service_monitor else None,
            "PrometheusRule": prometheus_rule_spec(args) if args.prometheus_rule else None,
        }
        for kind, spec in monitoring.items():
            if spec is not None:
                more: Any = {"api_version": MONITORING_API_VERSION, "kind": kind, "spec": spec}
                more["metadata"] = self._object_metadata(labels=args.monitoring_labels)
                beside.append(self._make_object(CustomResource, name, namespace, **more))
        if not runs_without_engine.get():
            self._make_guard(name, namespace, self.deployment, *beside)
        self.namespace = namespace.urn.apply(lambda _: args.namespace)
        self.service_account = pulumi.Output.from_input(OPERATOR_OBJECT_NAME)
        self.operator_name = pulumi.Output.from_input(args.operator_name)
        self.register_outputs(
            {
                "namespace": self.namespace,
                "service_account": self.service_account,
                "operator_name": self.operator_name,
            }
        )

    def _make_or_read_namespace(self, title: str) -> Namespace:
        """Return the operator's namespace. An existing one is read under the same resource name, so that one
        that this component made before leaves the state without being removed.
        """
        options = pulumi.ResourceOptions(parent=self)
        if not self._args.create_namespace:
            return Namespace.get(title, self._args.namespace, opts=options)
        argument = self.CREATE_NAMESPACE_ARGUMENT_NAME
        return make_new_namespace(
            title,
            self._args.namespace,
            {**self._labels, "pod-security.kubernetes.io/enforce": "restricted"},
            options,
            asked_by=self.TYPE.rpartition(":")[2],
            remedy=f"set {argument} to false for one that others made, which then stays on destroy",
        )

    def _make_guard(self, name: str, namespace: Namespace, *made: pulumi.Resource) -> None:
        """Make the guard, which is deleted first, and refuses that while the operator is still needed."""
        args = self._args
        inputs = {
            "namespace": args.namespace,
            "namespace_uid": namespace.metadata.apply(
                lambda found: found.get("uid") if found else None
            ),  # mocks give none
            "watch_namespaces": list(args.watch_namespaces),
            "stack_label": self._labels[STACK_LABEL],
            "owns_crds": not args.keep_crds,
            "force": args.force_destroy,
            **kubeconfig_inputs(self.get_provider("kubernetes:core/v1:Namespace")),
        }
        self.GUARD_CLASS(f"{name}-guard", inputs, self._options_after(namespace, *made))

    def _object_metadata(
        self,
        name: str | None = OPERATOR_OBJECT_NAME,
        labels: TextMap = EMPTY_MAPPING,
        annotations: TextMap = EMPTY_MAPPING,
    ) -> ObjectMetaArgs:
        return ObjectMetaArgs(
            name=name,
            namespace=self._args.namespace,
            labels={**self._labels, **without_none(labels)},
            annotations=without_none(annotations) or None,
        )

    def _options_after(self, *resources: pulumi.Resource) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, depends_on=list(resources))

    def _make_secret(
        self, title: str, name: str, data: Mapping[str, pulumi.Input[str]], namespace: pulumi.Resource
    ) -> tuple[Secret, pulumi.Input[str]]:
        """Make a Secret; return it and its name, which the engine changes with the content, so that the pods,
        which read it at their start, are replaced. Without an engine the name is fixed.
        """
        opts = self._options_after(namespace)
        opts.additional_secret_outputs = ["data", "stringData"]
        is_named = runs_without_engine.get()
        secret = Secret(
            title,
            metadata=self._object_metadata(name if is_named else None),
            immutable=None if is_named else True,
            string_data=dict(data),
            opts=opts,
        )
        if is_named:
            return secret, name
        # It is not secret, even if an old state marks it as secret.
        return secret, pulumi.Output.unsecret(secret.metadata).apply(lambda found: found.get("name"))

    def _make_object(
        self, type_: type[Any], title: str, namespace: pulumi.Resource, /, **more: Any
    ) -> pulumi.Resource:
        """Make an object that needs the namespace only, by default with the operator's own metadata."""
        opts = self._options_after(namespace)
        made: pulumi.Resource = type_(title, opts=opts, **{"metadata": self._object_metadata(), **more})
        return made


MONITORING_API_VERSION = "monitoring.coreos.com/v1"


def service_monitor_spec(labels: dict[str, str], args: EurekubeOperatorArgs) -> dict[str, Any]:
    """Return the ``spec`` of a ServiceMonitor for the Service with these labels."""
    return {
        "namespaceSelector": {"matchNames": [args.namespace]},
        "selector": {"matchLabels": labels},
        "endpoints": [{"port": "http", "path": "/metrics", "interval": "30s"}],
    }


def prometheus_rule_spec(args: EurekubeOperatorArgs) -> dict[str, Any]:
    """Return a PrometheusRule's ``spec``: the alerts of ``examples/monitoring``, for this operator's pods."""
    (document,) = read_yaml_documents("monitoring", "examples/monitoring")
    groups = [
        {
            **group,
            "name": f"{group['name']}-{args.namespace}",
            "rules": [_limit_rule_to_operator(rule, args) for rule in group["rules"]],
        }
        for group in document["spec"]["groups"]
    ]
    return {"groups": groups}


def _limit_rule_to_operator(rule: dict[str, Any], args: EurekubeOperatorArgs) -> dict[str, Any]:
    """Return an alert's rule for the series of one operator only, selected by namespace."""
    selected = re.sub(r"\beurekube_\w+", rf'\g<0>{{namespace="{args.namespace}"}}', rule["expr"])
    return {**rule, "expr": selected}
