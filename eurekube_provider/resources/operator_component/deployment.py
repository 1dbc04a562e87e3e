"""The operator's Deployment: its pods' container, permissions and spreading over nodes."""

from __future__ import annotations

import pulumi
import pulumi_kubernetes.apps.v1 as apps
import pulumi_kubernetes.core.v1 as core
import pulumi_kubernetes.meta.v1 as meta

from eurekube_provider.resources.operator_component.credentials import CREDENTIALS_SECRET_NAME
from eurekube_provider.resources.operator_component.operator_arguments import (
    OPERATOR_OBJECT_NAME,
    WEB_PORT,
    EurekubeOperatorArgs,
    operator_selector,
)
from eurekube_provider.resources.operator_component.pod_arguments import toleration_fields, without_none
from eurekube_provider.resources.operator_component.target_arguments import (
    CONFIG_OBJECTS_NAME,
    config_checksum_annotation,
    config_mounts,
    config_path_variables,
    config_volumes,
)

_TERMINATION_GRACE_SECONDS = 45
"""Seconds that a pod may take to stop: the operator needs one, or more while a server does not answer."""

_SPREAD_TOPOLOGY_KEYS = ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
"""Topology keys over which pods are spread, as far as there are several nodes and zones."""


def operator_deployment_spec(
    name: str,
    args: EurekubeOperatorArgs,
    credentials_secret: pulumi.Input[str] = CREDENTIALS_SECRET_NAME,
    targets_secret: pulumi.Input[str] = CONFIG_OBJECTS_NAME,
) -> apps.DeploymentSpecArgs:
    """Return the ``spec`` of the Deployment of the operator ``name``.

    :param credentials_secret: the Secret with the credentials for the default Eureka.
    :param targets_secret: the Secret with the files that the configuration file names: those of targets and
        of further connections.
    """
    selector = operator_selector(name)
    scraped = {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(WEB_PORT),
        "prometheus.io/path": "/metrics",
    }
    # Two scrapes of one pod would count everything twice.
    annotations = {
        **({} if args.service_monitor else scraped),
        **without_none(args.pod_annotations),
        **args.credentials.version_annotation(),
        **config_checksum_annotation(args.config_file_content),
    }
    volumes = [
        *args.credentials.volumes(credentials_secret),
        *config_volumes(args.config_file_content, args.config_file_secrets, targets_secret),
    ]
    return apps.DeploymentSpecArgs(
        replicas=args.replicas,
        strategy=apps.DeploymentStrategyArgs(
            type="RollingUpdate",
            rolling_update=apps.RollingUpdateDeploymentArgs(max_surge=1, max_unavailable=0),
        ),
        selector=meta.LabelSelectorArgs(match_labels=selector),
        template=core.PodTemplateSpecArgs(
            metadata=meta.ObjectMetaArgs(
                labels={**without_none(args.pod_labels), **selector}, annotations=annotations or None
            ),
            spec=core.PodSpecArgs(
                image_pull_secrets=[
                    core.LocalObjectReferenceArgs(name=secret) for secret in args.image_pull_secrets
                ]
                or None,
                node_selector=without_none(args.node_selector) or None,
                tolerations=[core.TolerationArgs(**each) for each in toleration_fields(args.tolerations)]
                or None,
                priority_class_name=args.priority_class_name,
                service_account_name=OPERATOR_OBJECT_NAME,
                termination_grace_period_seconds=_TERMINATION_GRACE_SECONDS,
                topology_spread_constraints=[
                    core.TopologySpreadConstraintArgs(
                        max_skew=1,
                        topology_key=key,
                        when_unsatisfiable="ScheduleAnyway",
                        label_selector=meta.LabelSelectorArgs(match_labels=selector),
                    )
                    for key in _SPREAD_TOPOLOGY_KEYS
                ],
                security_context=core.PodSecurityContextArgs(
                    run_as_non_root=True, seccomp_profile=core.SeccompProfileArgs(type="RuntimeDefault")
                ),
                containers=[_operator_container(args, credentials_secret)],
                volumes=volumes or None,
            ),
        ),
    )


def _operator_container(
    args: EurekubeOperatorArgs, credentials_secret: pulumi.Input[str]
) -> core.ContainerArgs:
    mounts = [*args.credentials.mounts(), *config_mounts(args.config_file_content)]
    return core.ContainerArgs(
        name="operator",
        image=args.image_reference,
        command=["python", "-m", "eurekube_provider.operator"],
        env=_operator_environment(args, credentials_secret),
        ports=[core.ContainerPortArgs(name="http", container_port=WEB_PORT, protocol="TCP")],
        # A loop counts as stuck after minutes only; the probe itself need not wait any longer.
        liveness_probe=_http_probe("/healthz", period_seconds=10),
        readiness_probe=_http_probe("/readyz", period_seconds=5),
        resources=core.ResourceRequirementsArgs(
            requests=dict(args.resources.get("requests", {})),
            limits=dict(args.resources.get("limits", {})),
        ),
        security_context=core.SecurityContextArgs(
            allow_privilege_escalation=False,
            read_only_root_filesystem=True,
            capabilities=core.CapabilitiesArgs(drop=["ALL"]),
        ),
        volume_mounts=mounts or None,
    )


def _operator_environment(
    args: EurekubeOperatorArgs, credentials_secret: pulumi.Input[str]
) -> list[core.EnvVarArgs]:
    plain: dict[str, pulumi.Input[str] | None] = {
        "EUREKA_URL": ",".join(args.eureka_urls),
        "WEB_ADDRESS": f":{WEB_PORT}",
        "OPERATOR_NAME": args.operator_name,
        "LEASE_NAME": args.lease_name,
        "CLUSTER_NAME": args.cluster_name,
        "WATCH_NAMESPACE": ",".join(args.watch_namespaces) or None,
        "RESERVE": ",".join(args.reserve) or None,
        "PUBLISH": ",".join(args.publish) or None,
        "CROSS_NAMESPACE": ",".join(args.cross_namespace) or None,
        "STRICT_NAMES": "true" if args.strict_names else None,
        "GATE_NAMESPACE": ",".join(args.gate_namespaces) or None,
        "MIRRORS": "true" if args.mirrors else None,
        "MIRROR_CIDRS": ",".join(args.mirror_cidrs) or None,
        "ADVERTISE_FROM": ",".join(args.advertise_from) or None,
        "CLUSTER_CIDRS": ",".join(args.cluster_cidrs) or None,
        **args.credentials.file_variables(),
        **config_path_variables(args.config_file_content),
        **args.environment,
    }
    sources = {
        f"POD_{key.upper()}": core.EnvVarSourceArgs(
            field_ref=core.ObjectFieldSelectorArgs(api_version="v1", field_path=f"metadata.{key}")
        )
        for key in ("name", "namespace")
    }
    sources |= args.credentials.secret_variables(credentials_secret)
    return [
        *(core.EnvVarArgs(name=key, value=value) for key, value in plain.items() if value is not None),
        *(core.EnvVarArgs(name=key, value_from=source) for key, source in sources.items()),
    ]


def _http_probe(path: str, period_seconds: int) -> core.ProbeArgs:
    return core.ProbeArgs(
        http_get=core.HTTPGetActionArgs(path=path, port="http"),
        period_seconds=period_seconds,
        timeout_seconds=5,
        failure_threshold=3,
    )
