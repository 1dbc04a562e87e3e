"""The component EurekubeOperator: CRD, namespace, ServiceAccount, rights, Deployment and Service.

Works under the SDK's mocks as well as with an engine: every name is explicit, nothing is taken from what a
server computes, and the CRD is read as YAML.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi_kubernetes.apiextensions.v1.CustomResourceDefinition import CustomResourceDefinition
from pulumi_kubernetes.apiextensions.v1.CustomResourceDefinitionPatch import CustomResourceDefinitionPatch
from pulumi_kubernetes.apps.v1 import (
    DeploymentSpecArgs,
    DeploymentStrategyArgs,
    RollingUpdateDeploymentArgs,
)
from pulumi_kubernetes.apps.v1.Deployment import Deployment
from pulumi_kubernetes.core.v1 import (
    AffinityArgs,
    CapabilitiesArgs,
    ContainerArgs,
    ContainerPortArgs,
    EnvVarArgs,
    EnvVarSourceArgs,
    HTTPGetActionArgs,
    KeyToPathArgs,
    ObjectFieldSelectorArgs,
    PodAffinityTermArgs,
    PodAntiAffinityArgs,
    PodSecurityContextArgs,
    PodSpecArgs,
    PodTemplateSpecArgs,
    ProbeArgs,
    ResourceRequirementsArgs,
    SeccompProfileArgs,
    SecretKeySelectorArgs,
    SecretVolumeSourceArgs,
    SecurityContextArgs,
    ServicePortArgs,
    ServiceSpecArgs,
    VolumeArgs,
    VolumeMountArgs,
    WeightedPodAffinityTermArgs,
)
from pulumi_kubernetes.core.v1.Namespace import Namespace
from pulumi_kubernetes.core.v1.Secret import Secret
from pulumi_kubernetes.core.v1.Service import Service
from pulumi_kubernetes.core.v1.ServiceAccount import ServiceAccount
from pulumi_kubernetes.meta.v1 import LabelSelectorArgs, ObjectMetaArgs
from pulumi_kubernetes.policy.v1 import PodDisruptionBudgetSpecArgs
from pulumi_kubernetes.policy.v1.PodDisruptionBudget import PodDisruptionBudget
from pulumi_kubernetes.rbac.v1 import PolicyRuleArgs, RoleRefArgs, SubjectArgs
from pulumi_kubernetes.rbac.v1.ClusterRole import ClusterRole
from pulumi_kubernetes.rbac.v1.ClusterRoleBinding import ClusterRoleBinding
from pulumi_kubernetes.rbac.v1.Role import Role
from pulumi_kubernetes.rbac.v1.RoleBinding import RoleBinding

from eurekube_provider import __version__
from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.identity import check_cluster_name
from eurekube_provider.eureka.connection import split_credentials
from eurekube_provider.kube.rights import CLUSTER, WORK, Rule, election
from eurekube_provider.resources.crds import crd_documents
from eurekube_provider.resources.labels import object_labels
from eurekube_provider.resources.program import ProgramError

DEFAULT_IMAGE = f"ghcr.io/eurekube/eurekube-operator:{__version__}"
ACCOUNT = "eurekube-operator"
"""The name of the ServiceAccount, and of what lives beside it in its namespace."""

WEB_PORT = 8080
"""Where the container serves health, metrics and the status page, under the port name ``http``."""

_CREDENTIALS = f"{ACCOUNT}-eureka"
_CA_DIRECTORY = "/etc/eurekube"

_GRACE_SECONDS = 45
"""The operator stops within a second, and needs longer only for requests that nobody answers."""


@dataclass(kw_only=True, slots=True)
class EurekubeOperatorArgs:
    """What an EurekubeOperator is made from.

    :ivar eureka_urls: service URLs without credentials.
    :ivar user: for HTTP basic authentication; kept in a Secret, as is ``password``.
    :ivar token: a bearer token instead of user and password; kept in the same Secret.
    :ivar ca_certificate: PEM text of the authorities to trust for https; kept in the same Secret.
    :ivar namespace: where the operator lives; it is made, and removed, with it.
    :ivar operator_name: whom registrations name as their renewer.
    :ivar cluster_name: part of every instance id; default the first 8 characters of kube-system's UID.
    :ivar watch_namespaces: the namespaces to look at, and to have rights in; empty for all.
    :ivar image: the operator's image.
    :ivar replicas: one leads, the others take over when it goes. 0 where the operator runs elsewhere.
    :ivar resources: requests and limits of the container.
    :ivar environment: further variables, e.g. ``LOG_LEVEL``; not ``WEB_ADDRESS``, which the probes rely on.
    :ivar keep_crds: whether the CRD, and with it every syncer of the cluster, outlives this component.
        Decide once: from False to True, Pulumi removes the CRD that it owned, and every syncer with it.
    """

    eureka_urls: Sequence[str]
    user: pulumi.Input[str] | None = None
    password: pulumi.Input[str] | None = None
    token: pulumi.Input[str] | None = None
    ca_certificate: pulumi.Input[str] | None = None
    namespace: str = "eurekube-system"
    operator_name: str = "eurekube"
    cluster_name: str | None = None
    watch_namespaces: Sequence[str] = ()
    image: pulumi.Input[str] = DEFAULT_IMAGE
    replicas: int = 3
    resources: Mapping[str, Mapping[str, str]] = field(
        default_factory=lambda: {
            "requests": {"cpu": "50m", "memory": "128Mi"},
            "limits": {"memory": "512Mi"},
        }
    )
    environment: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    keep_crds: bool = True


class EurekubeOperator(pulumi.ComponentResource):
    """The operator of a cluster; several in one cluster need namespaces and operator names of their own."""

    namespace: pulumi.Output[str]
    service_account: pulumi.Output[str]
    operator_name: pulumi.Output[str]

    def __init__(
        self, name: str, args: EurekubeOperatorArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        _check(args)
        super().__init__("eurekube:index:EurekubeOperator", name, None, opts)
        self._args = args
        self._labels = object_labels("operator", name)
        self._child = pulumi.ResourceOptions(parent=self)
        crds = [self._crd(document) for document in crd_documents()]
        namespace = Namespace(
            f"{name}-namespace",
            metadata=ObjectMetaArgs(
                name=args.namespace,
                labels={**self._labels, "pod-security.kubernetes.io/enforce": "restricted"},
            ),
            opts=self._child,
        )
        account = ServiceAccount(f"{name}-account", metadata=self._metadata(), opts=self._after(namespace))
        rights = [*self._rights(name), *self._election_rights(name, namespace)]
        secret = self._secret(name, namespace)
        deployment = Deployment(
            name,
            metadata=self._metadata(),
            spec=self._deployment(name),
            opts=self._after(account, *crds, *rights, *([secret] if secret else [])),
        )
        if args.replicas > 1:
            self._disruption_budget(name, namespace)
        Service(
            f"{name}-service",
            metadata=self._metadata(),
            spec=ServiceSpecArgs(
                selector=self._selector(name),
                ports=[ServicePortArgs(name="http", port=WEB_PORT, target_port="http", protocol="TCP")],
            ),
            opts=self._after(namespace),
        )
        self.namespace = pulumi.Output.from_input(args.namespace)
        self.service_account = pulumi.Output.from_input(ACCOUNT)
        self.operator_name = pulumi.Output.from_input(args.operator_name)
        self.deployment = deployment
        self.register_outputs(
            {
                "namespace": self.namespace,
                "service_account": self.service_account,
                "operator_name": self.operator_name,
            }
        )

    def _metadata(self, name: str = ACCOUNT, namespace: str | None = None) -> ObjectMetaArgs:
        return ObjectMetaArgs(
            name=name, namespace=namespace or self._args.namespace, labels=dict(self._labels)
        )

    def _after(self, *resources: pulumi.Resource) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, depends_on=list(resources))

    def _crd(self, document: dict[str, Any]) -> pulumi.Resource:
        """The CRD. One that is kept must be taken over again by the next stack, which only a patch does."""
        name: str = document["metadata"]["name"]
        metadata: Any = document["metadata"]
        if not self._args.keep_crds:
            return CustomResourceDefinition(name, metadata=metadata, spec=document["spec"], opts=self._child)
        forced: Any = {**metadata, "annotations": {"pulumi.com/patchForce": "true"}}
        kept = pulumi.ResourceOptions(parent=self, retain_on_delete=True)
        return CustomResourceDefinitionPatch(name, metadata=forced, spec=document["spec"], opts=kept)

    def _rights(self, name: str) -> list[pulumi.Resource]:
        """All namespaces: one ClusterRole. Listed ones: a Role in each, and what has no namespace."""
        namespaces = self._args.watch_namespaces
        # Outside of the operator's namespace another operator may have rights as well.
        shared = f"{ACCOUNT}-{self._args.namespace}"
        role = ClusterRole(
            f"{name}-role",
            metadata=ObjectMetaArgs(name=shared, labels=dict(self._labels)),
            rules=_rules([*CLUSTER] if namespaces else [*WORK, *CLUSTER]),
            opts=self._child,
        )
        binding = ClusterRoleBinding(
            f"{name}-binding",
            metadata=ObjectMetaArgs(name=shared, labels=dict(self._labels)),
            role_ref=_role_ref("ClusterRole", shared),
            subjects=self._subjects(),
            opts=self._after(role),
        )
        rights: list[pulumi.Resource] = [role, binding]
        for namespace in namespaces:
            local_role = Role(
                f"{name}-role-{namespace}",
                metadata=self._metadata(shared, namespace),
                rules=_rules(WORK),
                opts=self._child,
            )
            local_binding = RoleBinding(
                f"{name}-binding-{namespace}",
                metadata=self._metadata(shared, namespace),
                role_ref=_role_ref("Role", shared),
                subjects=self._subjects(),
                opts=self._after(local_role),
            )
            rights += [local_role, local_binding]
        return rights

    def _election_rights(self, name: str, namespace: pulumi.Resource) -> list[pulumi.Resource]:
        """A Role in the operator's own namespace, where the Lease is."""
        role = Role(
            f"{name}-election",
            metadata=self._metadata(),
            rules=_rules(election(_lease(self._args))),
            opts=self._after(namespace),
        )
        binding = RoleBinding(
            f"{name}-election",
            metadata=self._metadata(),
            role_ref=_role_ref("Role", ACCOUNT),
            subjects=self._subjects(),
            opts=self._after(role),
        )
        return [role, binding]

    def _disruption_budget(self, name: str, namespace: pulumi.Resource) -> None:
        PodDisruptionBudget(
            name,
            metadata=self._metadata(),
            spec=PodDisruptionBudgetSpecArgs(
                max_unavailable=1, selector=LabelSelectorArgs(match_labels=_selector(name))
            ),
            opts=self._after(namespace),
        )

    def _subjects(self) -> list[SubjectArgs]:
        return [SubjectArgs(kind="ServiceAccount", name=ACCOUNT, namespace=self._args.namespace)]

    def _secret(self, name: str, namespace: pulumi.Resource) -> Secret | None:
        given = {
            "user": self._args.user,
            "password": self._args.password,
            "token": self._args.token,
            "ca.crt": self._args.ca_certificate,
        }
        data = {key: value for key, value in given.items() if value is not None}
        if not data:
            return None
        return Secret(
            f"{name}-eureka",
            metadata=self._metadata(_CREDENTIALS),
            string_data=data,
            opts=pulumi.ResourceOptions(
                parent=self, depends_on=[namespace], additional_secret_outputs=["data", "stringData"]
            ),
        )

    def _selector(self, name: str) -> dict[str, str]:
        return {"app.kubernetes.io/name": ACCOUNT, "app.kubernetes.io/instance": name}

    def _deployment(self, name: str) -> DeploymentSpecArgs:
        selector = self._selector(name)
        scraped = {
            "prometheus.io/scrape": "true",
            "prometheus.io/port": str(WEB_PORT),
            "prometheus.io/path": "/metrics",
        }
        has_ca = self._args.ca_certificate is not None
        ca = SecretVolumeSourceArgs(
            secret_name=_CREDENTIALS, items=[KeyToPathArgs(key="ca.crt", path="ca.crt")]
        )
        return DeploymentSpecArgs(
            replicas=self._args.replicas,
            strategy=DeploymentStrategyArgs(
                type="RollingUpdate",
                rolling_update=RollingUpdateDeploymentArgs(max_surge=1, max_unavailable=0),
            ),
            selector=LabelSelectorArgs(match_labels=selector),
            template=PodTemplateSpecArgs(
                metadata=ObjectMetaArgs(labels=selector, annotations=scraped),
                spec=PodSpecArgs(
                    service_account_name=ACCOUNT,
                    termination_grace_period_seconds=_GRACE_SECONDS,
                    affinity=_apart(selector),
                    security_context=PodSecurityContextArgs(
                        run_as_non_root=True, seccomp_profile=SeccompProfileArgs(type="RuntimeDefault")
                    ),
                    containers=[self._container()],
                    volumes=[VolumeArgs(name="ca", secret=ca)] if has_ca else None,
                ),
            ),
        )

    def _container(self) -> ContainerArgs:
        ca = VolumeMountArgs(name="ca", mount_path=_CA_DIRECTORY, read_only=True)
        return ContainerArgs(
            name="operator",
            image=self._args.image,
            command=["python", "-m", "eurekube_provider.operator"],
            env=self._environment(),
            ports=[ContainerPortArgs(name="http", container_port=WEB_PORT, protocol="TCP")],
            # A loop counts as stuck after minutes only; the probe itself need not wait any longer.
            liveness_probe=_probe("/healthz", period_seconds=10),
            readiness_probe=_probe("/readyz", period_seconds=5),
            resources=ResourceRequirementsArgs(
                requests=dict(self._args.resources.get("requests", {})),
                limits=dict(self._args.resources.get("limits", {})),
            ),
            security_context=SecurityContextArgs(
                allow_privilege_escalation=False,
                read_only_root_filesystem=True,
                capabilities=CapabilitiesArgs(drop=["ALL"]),
            ),
            volume_mounts=[ca] if self._args.ca_certificate is not None else None,
        )

    def _environment(self) -> list[EnvVarArgs]:
        args = self._args
        plain: dict[str, pulumi.Input[str] | None] = {
            "EUREKA_URL": ",".join(args.eureka_urls),
            "WEB_ADDRESS": f":{WEB_PORT}",
            "OPERATOR_NAME": args.operator_name,
            "LEASE_NAME": _lease(args),
            "CLUSTER_NAME": args.cluster_name,
            "WATCH_NAMESPACE": ",".join(args.watch_namespaces) or None,
            "EUREKA_CA_FILE": f"{_CA_DIRECTORY}/ca.crt" if args.ca_certificate is not None else None,
            **args.environment,
        }
        sources = {
            f"POD_{key.upper()}": EnvVarSourceArgs(
                field_ref=ObjectFieldSelectorArgs(api_version="v1", field_path=f"metadata.{key}")
            )
            for key in ("name", "namespace")
        }
        for key, given in (("user", args.user), ("password", args.password), ("token", args.token)):
            if given is not None:
                reference = SecretKeySelectorArgs(name=_CREDENTIALS, key=key)
                sources[f"EUREKA_{key.upper()}"] = EnvVarSourceArgs(secret_key_ref=reference)
        return [
            *(EnvVarArgs(name=key, value=value) for key, value in plain.items() if value is not None),
            *(EnvVarArgs(name=key, value_from=source) for key, source in sources.items()),
        ]


def _lease(args: EurekubeOperatorArgs) -> str:
    return f"{args.operator_name}-leader"


def _selector(name: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": ACCOUNT, "app.kubernetes.io/instance": name}


def _apart(selector: dict[str, str]) -> AffinityArgs:
    """On several nodes where there are several."""
    others = PodAffinityTermArgs(
        label_selector=LabelSelectorArgs(match_labels=selector), topology_key="kubernetes.io/hostname"
    )
    return AffinityArgs(
        pod_anti_affinity=PodAntiAffinityArgs(
            preferred_during_scheduling_ignored_during_execution=[
                WeightedPodAffinityTermArgs(weight=100, pod_affinity_term=others)
            ]
        )
    )


def _check(args: EurekubeOperatorArgs) -> None:
    """Refuse what would only fail in the cluster, or stand in clear in the Deployment.

    :raises ProgramError: no URL, a URL with credentials, a cluster name that cannot be one, replicas that
        are no number.
    """
    try:
        if not args.eureka_urls:
            raise ConfigurationError("EurekubeOperator: eureka_urls needs at least one service URL")
        for url in args.eureka_urls:
            if split_credentials(url)[1] is not None:
                raise ConfigurationError(
                    "EurekubeOperator: eureka_urls must not carry credentials, which would stand in clear in"
                    " the Deployment: give user and password instead"
                )
        if not isinstance(args.replicas, int) or args.replicas < 0:
            raise ConfigurationError(
                f"EurekubeOperator: replicas must be a whole number from 0 on, not {args.replicas!r}"
            )
        if "WEB_ADDRESS" in args.environment:
            raise ConfigurationError(
                "EurekubeOperator: environment must not set WEB_ADDRESS: probes and Service rely on port"
                f" {WEB_PORT}"
            )
        if args.cluster_name:
            check_cluster_name(args.cluster_name)
    except ConfigurationError as error:
        raise ProgramError(str(error)) from None


def _probe(path: str, period_seconds: int) -> ProbeArgs:
    return ProbeArgs(
        http_get=HTTPGetActionArgs(path=path, port="http"),
        period_seconds=period_seconds,
        timeout_seconds=5,
        failure_threshold=3,
    )


def _role_ref(kind: str, name: str) -> RoleRefArgs:
    return RoleRefArgs(api_group="rbac.authorization.k8s.io", kind=kind, name=name)


def _rules(rules: Sequence[Rule]) -> list[PolicyRuleArgs]:
    return [
        PolicyRuleArgs(
            api_groups=list(rule.api_groups),
            resources=list(rule.resources),
            resource_names=list(rule.resource_names) or None,
            verbs=list(rule.verbs),
        )
        for rule in rules
    ]
