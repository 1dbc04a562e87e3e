"""The operator's Deployment: its pods' container, permissions and spreading over nodes."""

from __future__ import annotations

import hashlib

import pulumi
import pulumi_kubernetes.apps.v1 as apps
import pulumi_kubernetes.core.v1 as core
import pulumi_kubernetes.meta.v1 as meta

from eurekube_provider.resources.operator_component.credentials import (
    CREDENTIALS_DIRECTORY,
    CREDENTIALS_SECRET_NAME,
    CREDENTIALS_VERSION_ANNOTATION,
)
from eurekube_provider.resources.operator_component.operator_arguments import (
    OPERATOR_OBJECT_NAME,
    WEB_PORT,
    EurekubeOperatorArgs,
    operator_selector,
)
from eurekube_provider.resources.operator_component.pod_arguments import toleration_fields, without_none
from eurekube_provider.resources.operator_component.target_arguments import (
    CONFIG_CHECKSUM_ANNOTATION,
    CONFIG_DIRECTORY,
    CONFIG_FILE_NAME,
    CONFIG_OBJECTS_NAME,
    config_file_text,
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
    """Return the ``spec`` of the Deployment of the operator ``name``, with the names of two Secrets: with the
    credentials for the default Eureka, and with the files that the configuration file names.
    """
    selector = operator_selector(name)
    scraped = {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(WEB_PORT),
        "prometheus.io/path": "/metrics",
    }
    # Two scrapes of one pod would count everything twice.
    annotations: dict[str, pulumi.Input[str]] = {
        **({} if args.service_monitor else scraped),
        **without_none(args.pod_annotations),
    }
    # The pods read Secret and file at their start: a change replaces them.
    if args.credentials.secret is not None and args.credentials.secret.version is not None:
        annotations[CREDENTIALS_VERSION_ANNOTATION] = args.credentials.secret.version
    if args.config_file_content:
        digest = hashlib.sha256(config_file_text(args.config_file_content).encode()).hexdigest()
        annotations[CONFIG_CHECKSUM_ANNOTATION] = digest[:16]
    config_map = core.ConfigMapProjectionArgs(name=CONFIG_OBJECTS_NAME)
    secret = core.SecretProjectionArgs(name=targets_secret) if args.config_file_secrets else None
    config_files = [core.VolumeProjectionArgs(config_map=config_map)] if args.config_file_content else []
    config_files += [core.VolumeProjectionArgs(secret=secret)] if config_files and secret else []
    directories = {
        ("eureka", CREDENTIALS_DIRECTORY): _credential_files(args, credentials_secret),
        ("targets", CONFIG_DIRECTORY): config_files,
    }
    volumes = [
        core.VolumeArgs(name=name, projected=core.ProjectedVolumeSourceArgs(sources=sources))
        for (name, _), sources in directories.items()
        if sources
    ]
    mounts = [
        core.VolumeMountArgs(name=name, mount_path=path, read_only=True)
        for (name, path), sources in directories.items()
        if sources
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
                containers=[_operator_container(args, credentials_secret, mounts)],
                volumes=volumes or None,
            ),
        ),
    )


def _credential_files(
    args: EurekubeOperatorArgs, own_secret: pulumi.Input[str]
) -> list[core.VolumeProjectionArgs]:
    return [
        core.VolumeProjectionArgs(
            secret=core.SecretProjectionArgs(
                name=ref.secret or own_secret, items=[core.KeyToPathArgs(key=ref.key, path=ref.entry.key)]
            )
        )
        for ref in args.credentials.refs
        if ref.entry.is_file
    ]


def _operator_container(
    args: EurekubeOperatorArgs, credentials_secret: pulumi.Input[str], mounts: list[core.VolumeMountArgs]
) -> core.ContainerArgs:
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
            requests=dict(args.resources.get("requests", {})), limits=dict(args.resources.get("limits", {}))
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
        **{
            ref.entry.variable: f"{CREDENTIALS_DIRECTORY}/{ref.entry.key}"
            for ref in args.credentials.refs
            if ref.entry.is_file
        },
        "CONFIG": f"{CONFIG_DIRECTORY}/{CONFIG_FILE_NAME}" if args.config_file_content else None,
        **args.environment,
    }
    sources = {
        f"POD_{key.upper()}": core.EnvVarSourceArgs(
            field_ref=core.ObjectFieldSelectorArgs(api_version="v1", field_path=f"metadata.{key}")
        )
        for key in ("name", "namespace")
    }
    sources |= {
        ref.entry.variable: core.EnvVarSourceArgs(
            secret_key_ref=core.SecretKeySelectorArgs(name=ref.secret or credentials_secret, key=ref.key)
        )
        for ref in args.credentials.refs
        if not ref.entry.is_file
    }
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
