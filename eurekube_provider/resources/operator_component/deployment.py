"""The operator's Deployment: what its pods run, may do, and how they are spread."""

import pulumi
from pulumi_kubernetes.apps.v1 import (
    DeploymentSpecArgs,
    DeploymentStrategyArgs,
    RollingUpdateDeploymentArgs,
)
from pulumi_kubernetes.core.v1 import (
    CapabilitiesArgs,
    ContainerArgs,
    ContainerPortArgs,
    EnvVarArgs,
    EnvVarSourceArgs,
    HTTPGetActionArgs,
    ObjectFieldSelectorArgs,
    PodSecurityContextArgs,
    PodSpecArgs,
    PodTemplateSpecArgs,
    ProbeArgs,
    ResourceRequirementsArgs,
    SeccompProfileArgs,
    SecurityContextArgs,
    TopologySpreadConstraintArgs,
)
from pulumi_kubernetes.meta.v1 import LabelSelectorArgs, ObjectMetaArgs

from eurekube_provider.resources.operator_component.operator_arguments import (
    ACCOUNT,
    WEB_PORT,
    EurekubeOperatorArgs,
    operator_selector,
)
from eurekube_provider.resources.operator_component.target_arguments import (
    targets_annotation,
    targets_mount,
    targets_variables,
    targets_volume,
)

_GRACE_SECONDS = 45
"""The operator stops within a second, and needs longer only for requests that nobody answers."""

_APART = ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
"""On several nodes and in several zones where there are several, and on one where there is one."""


def operator_deployment(name: str, args: EurekubeOperatorArgs) -> DeploymentSpecArgs:
    """The ``spec`` of the Deployment of the operator of this name."""
    selector = operator_selector(name)
    scraped = {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(WEB_PORT),
        "prometheus.io/path": "/metrics",
    }
    # Two scrapes of one pod would count everything twice.
    annotations = {**({} if args.service_monitor else scraped), **targets_annotation(args.file_content)}
    volumes = [*args.credentials.volume(), *targets_volume(args.file_content, args.file_secrets)]
    return DeploymentSpecArgs(
        replicas=args.replicas,
        strategy=DeploymentStrategyArgs(
            type="RollingUpdate",
            rolling_update=RollingUpdateDeploymentArgs(max_surge=1, max_unavailable=0),
        ),
        selector=LabelSelectorArgs(match_labels=selector),
        template=PodTemplateSpecArgs(
            metadata=ObjectMetaArgs(labels=selector, annotations=annotations or None),
            spec=PodSpecArgs(
                service_account_name=ACCOUNT,
                termination_grace_period_seconds=_GRACE_SECONDS,
                topology_spread_constraints=[_spread(key, selector) for key in _APART],
                security_context=PodSecurityContextArgs(
                    run_as_non_root=True, seccomp_profile=SeccompProfileArgs(type="RuntimeDefault")
                ),
                containers=[_container(args)],
                volumes=volumes or None,
            ),
        ),
    )


def _spread(topology_key: str, selector: dict[str, str]) -> TopologySpreadConstraintArgs:
    return TopologySpreadConstraintArgs(
        max_skew=1,
        topology_key=topology_key,
        when_unsatisfiable="ScheduleAnyway",
        label_selector=LabelSelectorArgs(match_labels=selector),
    )


def _container(args: EurekubeOperatorArgs) -> ContainerArgs:
    mounts = [*args.credentials.mount(), *targets_mount(args.file_content)]
    return ContainerArgs(
        name="operator",
        image=args.image_reference,
        command=["python", "-m", "eurekube_provider.operator"],
        env=_environment(args),
        ports=[ContainerPortArgs(name="http", container_port=WEB_PORT, protocol="TCP")],
        # A loop counts as stuck after minutes only; the probe itself need not wait any longer.
        liveness_probe=_probe("/healthz", period_seconds=10),
        readiness_probe=_probe("/readyz", period_seconds=5),
        resources=ResourceRequirementsArgs(
            requests=dict(args.resources.get("requests", {})),
            limits=dict(args.resources.get("limits", {})),
        ),
        security_context=SecurityContextArgs(
            allow_privilege_escalation=False,
            read_only_root_filesystem=True,
            capabilities=CapabilitiesArgs(drop=["ALL"]),
        ),
        volume_mounts=mounts or None,
    )


def _environment(args: EurekubeOperatorArgs) -> list[EnvVarArgs]:
    plain: dict[str, pulumi.Input[str] | None] = {
        "EUREKA_URL": ",".join(args.eureka_urls),
        "WEB_ADDRESS": f":{WEB_PORT}",
        "OPERATOR_NAME": args.operator_name,
        "LEASE_NAME": args.lease_name,
        "CLUSTER_NAME": args.cluster_name,
        "WATCH_NAMESPACE": ",".join(args.watch_namespaces) or None,
        **args.credentials.variables(),
        **targets_variables(args.file_content),
        **args.environment,
    }
    sources = {
        f"POD_{key.upper()}": EnvVarSourceArgs(
            field_ref=ObjectFieldSelectorArgs(api_version="v1", field_path=f"metadata.{key}")
        )
        for key in ("name", "namespace")
    }
    sources |= args.credentials.references()
    return [
        *(EnvVarArgs(name=key, value=value) for key, value in plain.items() if value is not None),
        *(EnvVarArgs(name=key, value_from=source) for key, source in sources.items()),
    ]


def _probe(path: str, period_seconds: int) -> ProbeArgs:
    return ProbeArgs(
        http_get=HTTPGetActionArgs(path=path, port="http"),
        period_seconds=period_seconds,
        timeout_seconds=5,
        failure_threshold=3,
    )
