"""Arguments of an EurekubeOperator, and the refusal of wrong ones before anything is made."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NotRequired
from urllib.parse import urlsplit

import pulumi

from eurekube_provider import __version__
from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.identity import check_cluster_name
from eurekube_provider.core.model import EMPTY_MAPPING
from eurekube_provider.core.networks import parse_networks
from eurekube_provider.core.objects import is_object_name
from eurekube_provider.core.syncer import ROUTED_ADVERTISE_KINDS
from eurekube_provider.eureka.connection import split_credentials
from eurekube_provider.resources.arguments import SECRET_FIELD_METADATA, args_or_keywords, as_arguments
from eurekube_provider.resources.labels import OPERATOR_APP_NAME, SELECTOR_LABEL_KEY
from eurekube_provider.resources.operator_component.credentials import (
    SECRET_ENTRIES,
    Credentials,
    EurekaSecretArgs,
    EurekaSecretArgsDict,
)
from eurekube_provider.resources.operator_component.eureka_arguments import (
    EurekaConnectionArgs,
    EurekaConnectionArgsDict,
    connection_file_entries,
    connection_secrets_by_file_name,
    parse_connections,
)
from eurekube_provider.resources.operator_component.pod_arguments import (
    PodArgs,
    PodArgsDict,
    check_list,
    check_text_map,
)
from eurekube_provider.resources.operator_component.target_arguments import (
    CONFIG_DIRECTORY,
    TargetArgs,
    TargetArgsDict,
    check_targets,
    target_file_entries,
)
from eurekube_provider.resources.program import ConvertToProgramError

DEFAULT_IMAGE = "ghcr.io/eurekube/eurekube-operator"

OPERATOR_OBJECT_NAME = OPERATOR_APP_NAME
"""The name of the ServiceAccount and of the other objects in the operator's namespace."""

WEB_PORT = 8080
"""The container's port, named ``http``, for health, metrics and the status page."""

_REASON_BY_RESERVED_VARIABLE = {
    "WEB_ADDRESS": f"probes and Service rely on port {WEB_PORT}",
    "OPERATOR_NAME": "operator_name is the argument for it",
    "LEASE_NAME": "the rights name the Lease that follows from operator_name",
}
"""Environment variables that a program may not set, each with the reason."""

_NAME_PAIR_PATTERN = re.compile(r"[-A-Za-z0-9._*?!\[\]]+=[-A-Za-z0-9._*?!\[\]]+")
_NAME_PAIR_ARGUMENTS = ("reserve", "publish", "cross_namespace")
_FLAG_ARGUMENTS = ("create_namespace", "keep_crds", "force_destroy", "mirrors", "strict_names", "user_roles")
_EXAMPLE_BY_LIST_ARGUMENT = {
    "eureka_urls": "['http://eureka:8761/eureka']",
    "watch_namespaces": "['shop']",
    "reserve": "['payments=billing']",
    "publish": "['shop=ratings']",
    "cross_namespace": "['platform=shop']",
    "gate_namespaces": "['shop']",
    "web_namespaces": "['monitoring']",
    "mirror_cidrs": "['10.20.0.0/16']",
    "advertise_from": "['Ingress']",
    "cluster_cidrs": "['10.42.0.0/16']",
    "egress_ports": "[3128]",
    "egress_cidrs": "['192.0.2.0/24']",
}
"""Arguments that are lists, each with an example for errors."""


@dataclass(kw_only=True, slots=True)
class EurekubeOperatorArgs(PodArgs):
    """Arguments of an EurekubeOperator, beside :class:`PodArgs`.

    :ivar eureka_urls: service URLs without credentials.
    :ivar user: for HTTP basic authentication at Eureka; kept in a Secret, as are the other credentials.
    :ivar password: for HTTP basic authentication at Eureka.
    :ivar token: a bearer token for Eureka, instead of user and password.
    :ivar ca_certificate: PEM text of the authorities to trust for https.
    :ivar client_certificate: PEM text of the certificate to show to Eureka (mTLS).
    :ivar client_key: PEM text of the key of ``client_certificate``, unless that has it.
    :ivar eureka_secret: a Secret that somebody else makes, instead of credentials; only
        ``ca_certificate`` may be given beside it.
    :ivar connections: further Eurekas by name, which syncers and registrations name as their ``connection``:
        the operator registers and renews there as well.
    :ivar namespace: where the operator lives.
    :ivar create_namespace: True if ``namespace`` is made with the operator, and removed with all that is in
        it. False for one that is there already, and stays. From True to False, what was made stays as well.
    :ivar operator_name: the name that registrations give as their renewer, and part of the name of the Lease.
    :ivar cluster_name: part of every instance id; default the first 8 characters of kube-system's UID.
    :ivar watch_namespaces: the namespaces to look at, and to have rights in; empty for all.
    :ivar reserve: in a shared cluster, ``NAMESPACE=NAME``: only syncers of these namespaces may publish under
        the application or VIP address; ``*`` stands for any letters.
    :ivar publish: ``NAMESPACE=NAME``: syncers of these namespaces may publish under a name that is not their
        Service's.
    :ivar cross_namespace: ``FROM=TO``: syncers of a namespace may select Services of another one.
    :ivar strict_names: True if each name that is not the Service's own is refused, unless ``publish`` allows
        it.
    :ivar user_roles: True if people with the role ``view``, ``edit`` or ``admin`` in a namespace may read
        EurekaSyncers, EurekaMirrors and StackRefreshes there, and write them with ``edit`` or ``admin``.
    :ivar image: the operator's image; one that names no tag or digest itself gets ``tag``.
    :ivar tag: of the image; default this package's version.
    :ivar replicas: how many pods: one leads, the others take over when it goes. 0 where the operator runs
        elsewhere.
    :ivar gate_namespaces: the namespaces whose pods may declare the readiness gate
        ``eurekube.io/callers-know``; ``*`` for all that are watched. The operator may write the status of
        their pods then.
    :ivar mirrors: True if EurekaMirrors are served: applications registered in Eureka become Services. The
        operator may write Services and EndpointSlices then.
    :ivar mirror_cidrs: with ``mirrors``, the networks whose addresses may be mirrored, at least one.
    :ivar advertise_from: ``Ingress``, ``Gateway`` or both: syncers may give callers the host and the address
        of those. The operator may read Ingresses, or Gateways and HTTPRoutes, then.
    :ivar cluster_cidrs: networks of this cluster's own pods and Services, which are never mirrored, beside
        those that the API tells.
    :ivar resources: requests and limits of the container.
    :ivar environment: further variables, e.g. ``LOG_LEVEL``; not those that follow from other arguments.
        Values are texts, numbers too.
    :ivar targets: the targets that StackRefreshes may run, by name, with the keys that
        docs/guides/triggers.md has.
    :ivar target_secrets: the contents of ``/etc/eurekube-targets/NAME``, by that name; kept in a Secret, and
        read when the operator starts.
    :ivar network_policy: True if a NetworkPolicy lets the pods be called at their web port only, and call
        only DNS, the Kubernetes API (443, 6443) and the ports of ``eureka_urls``.
    :ivar web_namespaces: with ``network_policy``, the namespaces that may call the web port, e.g. that of
        Prometheus; empty for all.
    :ivar egress_ports: with ``network_policy``, further TCP ports that may be called: of a proxy, a webhook,
        another Eureka, an API server at another port.
    :ivar egress_cidrs: with ``network_policy``, the networks in which these ports may be called; empty for
        any. Those of Eureka and of the Kubernetes API belong to them. DNS may be called anywhere.
    :ivar service_monitor: True if a ServiceMonitor has the Prometheus Operator scrape the pods.
    :ivar prometheus_rule: True if a PrometheusRule brings the alerts.
    :ivar monitoring_labels: of ServiceMonitor and PrometheusRule, where Prometheus selects by labels, e.g.
        ``release``.
    :ivar keep_crds: True if the CRD, and with it every syncer of the cluster, outlives this component.
        Decide once: from False to True, Pulumi removes the CRD that it owned, and every syncer with it.
    :ivar force_destroy: True if the operator may be destroyed while it still serves EurekaSyncers or
        EurekaMirrors that this stack does not own. It counts from the ``up`` on that brought it into the
        state.
    """

    eureka_urls: Sequence[str]
    user: pulumi.Input[str] | None = None
    password: pulumi.Input[str] | None = field(default=None, metadata=SECRET_FIELD_METADATA)
    token: pulumi.Input[str] | None = field(default=None, metadata=SECRET_FIELD_METADATA)
    ca_certificate: pulumi.Input[str] | None = None
    client_certificate: pulumi.Input[str] | None = field(default=None, metadata=SECRET_FIELD_METADATA)
    client_key: pulumi.Input[str] | None = field(default=None, metadata=SECRET_FIELD_METADATA)
    eureka_secret: EurekaSecretArgs | EurekaSecretArgsDict | None = None
    connections: Mapping[str, EurekaConnectionArgs | EurekaConnectionArgsDict] = field(default_factory=dict)
    namespace: str = "eurekube-system"
    create_namespace: bool = True
    operator_name: str = "eurekube"
    cluster_name: str | None = None
    watch_namespaces: Sequence[str] = ()
    reserve: Sequence[str] = ()
    publish: Sequence[str] = ()
    cross_namespace: Sequence[str] = ()
    strict_names: bool = False
    user_roles: bool = True
    image: pulumi.Input[str] = DEFAULT_IMAGE
    tag: pulumi.Input[str] | None = None
    replicas: int = 3
    gate_namespaces: Sequence[str] = ()
    mirrors: bool = False
    mirror_cidrs: Sequence[str] = ()
    advertise_from: Sequence[str] = ()
    cluster_cidrs: Sequence[str] = ()
    resources: Mapping[str, Mapping[str, str]] = field(
        default_factory=lambda: {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
    )
    environment: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    targets: Mapping[str, TargetArgs | TargetArgsDict] = field(default_factory=dict)
    target_secrets: Mapping[str, pulumi.Input[str]] = field(
        default_factory=dict, metadata=SECRET_FIELD_METADATA
    )
    network_policy: bool = False
    web_namespaces: Sequence[str] = ()
    egress_ports: Sequence[int] = ()
    egress_cidrs: Sequence[str] = ()
    service_monitor: bool = False
    prometheus_rule: bool = False
    monitoring_labels: Mapping[str, str] = field(default_factory=dict)
    keep_crds: bool = True
    force_destroy: bool = False

    @property
    def lease_name(self) -> str:
        """The name of the Lease that the replicas share."""
        return f"{self.operator_name}-leader"

    @property
    def image_reference(self) -> pulumi.Input[str]:
        """The image's reference with tag or digest."""
        if isinstance(self.image, str) and isinstance(self.tag, str | None):
            return _image_reference((self.image, self.tag))
        return pulumi.Output.all(self.image, self.tag).apply(
            lambda both: _image_reference((both[0], both[1]))
        )

    @property
    def eureka_ports(self) -> list[int]:
        """The TCP ports of all service URLs, sorted."""
        # Each may stand behind its zone: ``zone-a=http://...``.
        named = [text for one in parse_connections(self.connections).values() for text in one.urls]
        parts = [urlsplit(url) for url in (*self.eureka_urls, *(text[text.find("http") :] for text in named))]
        return sorted({part.port or (443 if part.scheme == "https" else 80) for part in parts})

    @property
    def credentials(self) -> Credentials:
        """Return the operator's credentials for Eureka.

        :raises ConfigurationError: ``eureka_secret`` is a dictionary with other keys than its arguments.
        """
        given = {entry.name: getattr(self, entry.name) for entry in SECRET_ENTRIES}
        secret = self.eureka_secret
        if secret is not None:
            secret = as_arguments(EurekaSecretArgs, secret, "eureka_secret: ")
        return Credentials(given, secret)

    @property
    def config_file_content(self) -> dict[str, Any]:
        """Return the content of the operator's configuration file; empty for no file."""
        connections = connection_file_entries(parse_connections(self.connections), CONFIG_DIRECTORY)
        content = {"targets": target_file_entries(self.targets), "connections": connections}
        return {key: value for key, value in content.items() if value}

    @property
    def config_file_secrets(self) -> dict[str, pulumi.Input[str]]:
        """Return the secrets that the configuration file refers to, by file name."""
        return {**self.target_secrets, **connection_secrets_by_file_name(parse_connections(self.connections))}

    def check(self) -> None:
        """Refuse arguments that would only fail in the cluster, or show a secret in the Deployment.

        :raises ConfigurationError: one sentence that names the argument.
        """
        for name, example in _EXAMPLE_BY_LIST_ARGUMENT.items():
            check_list(name, getattr(self, name), example)
        for name in ("watch_namespaces", "web_namespaces"):
            _check_namespaces(name, getattr(self, name))
        _check_namespaces("gate_namespaces", [one for one in self.gate_namespaces if one != "*"])
        if blind := [
            one for one in self.gate_namespaces if one not in ("*", *(self.watch_namespaces or [one]))
        ]:
            raise ConfigurationError(f"gate_namespaces names {blind[0]}, and watch_namespaces does not")
        if wrong := [one for one in self.advertise_from if one not in tuple(ROUTED_ADVERTISE_KINDS)]:
            raise ConfigurationError(f"advertise_from: {wrong[0]!r} must be Ingress or Gateway")
        check_text_map("environment", self.environment)
        self.check_pod_arguments()
        if not self.eureka_urls:
            raise ConfigurationError("eureka_urls needs at least one service URL")
        for url in self.eureka_urls:
            if split_credentials(url)[1] is not None:
                raise ConfigurationError(
                    "eureka_urls must not carry credentials, which would stand in clear in the Deployment:"
                    " give user and password instead"
                )
        self.credentials.check(self.environment)
        if not isinstance(self.replicas, int) or self.replicas < 0:
            raise ConfigurationError(f"replicas must be a whole number from 0 on, not {self.replicas!r}")
        for name, why in _REASON_BY_RESERVED_VARIABLE.items():
            if name in self.environment:
                raise ConfigurationError(f"environment must not set {name}: {why}")
        if isinstance(self.image, str) and self.tag is not None and _has_tag_or_digest(self.image):
            raise ConfigurationError(f"the image {self.image!r} has a tag or digest already: give no tag")
        for name in _FLAG_ARGUMENTS:
            if not isinstance(getattr(self, name), bool):
                raise ConfigurationError(f"{name} must be true or false")
        self._check_networks()
        self._check_names()
        for port in self.egress_ports:
            if not isinstance(port, int) or not 1 <= port <= 65535:
                raise ConfigurationError(f"egress_ports: {port!r} must be a port from 1 to 65535")
        for name in ("web_namespaces", "egress_ports", "egress_cidrs"):
            if getattr(self, name) and not self.network_policy:
                raise ConfigurationError(f"{name} means nothing without network_policy")
        if not isinstance(self.operator_name, str) or not is_object_name(self.lease_name):
            raise ConfigurationError(
                f"operator_name {self.operator_name!r} must be lower case letters, digits, '-' and '.', at"
                " most 246 characters: the replicas' Lease is named by it"
            )
        if self.cluster_name:
            check_cluster_name(self.cluster_name)
        check_targets(self.targets, self.target_secrets)
        own = [name for name in ("targets", "connections") if getattr(self, name)]
        parse_connections(self.connections)
        if own and "CONFIG" in self.environment:
            raise ConfigurationError(
                f"environment must not set CONFIG: the {own[0]} are in a file of their own"
            )

    def _check_names(self) -> None:
        for name in _NAME_PAIR_ARGUMENTS:
            given = getattr(self, name)
            wrong = [
                one for one in given if not isinstance(one, str) or not _NAME_PAIR_PATTERN.fullmatch(one)
            ]
            if wrong:
                raise ConfigurationError(
                    f"{name}: {wrong[0]!r} must be two names, as in {_EXAMPLE_BY_LIST_ARGUMENT[name]}"
                )
        for name in (*_NAME_PAIR_ARGUMENTS, "strict_names", "advertise_from"):
            if getattr(self, name) and name.upper() in self.environment:
                raise ConfigurationError(f"environment must not set {name.upper()}: {name} says it")

    def _check_networks(self) -> None:
        if self.mirrors and not self.mirror_cidrs:
            raise ConfigurationError(
                "mirrors needs mirror_cidrs, the networks of the machines that may be called, e.g. "
                "['10.20.0.0/16']"
            )
        if self.mirror_cidrs and not self.mirrors:
            raise ConfigurationError("mirror_cidrs means nothing without mirrors")
        for name in ("mirror_cidrs", "cluster_cidrs", "egress_cidrs"):
            try:
                parse_networks(getattr(self, name))
            except ValueError as error:
                raise ConfigurationError(f"{name}: {error}") from None


class EurekubeOperatorArgsDict(PodArgsDict):
    """A dictionary with the keys of :class:`EurekubeOperatorArgs`."""

    eureka_urls: Sequence[str]
    user: NotRequired[pulumi.Input[str] | None]
    password: NotRequired[pulumi.Input[str] | None]
    token: NotRequired[pulumi.Input[str] | None]
    ca_certificate: NotRequired[pulumi.Input[str] | None]
    client_certificate: NotRequired[pulumi.Input[str] | None]
    client_key: NotRequired[pulumi.Input[str] | None]
    eureka_secret: NotRequired[EurekaSecretArgs | EurekaSecretArgsDict | None]
    connections: NotRequired[Mapping[str, EurekaConnectionArgs | EurekaConnectionArgsDict]]
    namespace: NotRequired[str]
    create_namespace: NotRequired[bool]
    operator_name: NotRequired[str]
    cluster_name: NotRequired[str | None]
    watch_namespaces: NotRequired[Sequence[str]]
    reserve: NotRequired[Sequence[str]]
    publish: NotRequired[Sequence[str]]
    cross_namespace: NotRequired[Sequence[str]]
    strict_names: NotRequired[bool]
    user_roles: NotRequired[bool]
    image: NotRequired[pulumi.Input[str]]
    tag: NotRequired[pulumi.Input[str] | None]
    replicas: NotRequired[int]
    gate_namespaces: NotRequired[Sequence[str]]
    mirrors: NotRequired[bool]
    mirror_cidrs: NotRequired[Sequence[str]]
    advertise_from: NotRequired[Sequence[str]]
    cluster_cidrs: NotRequired[Sequence[str]]
    resources: NotRequired[Mapping[str, Mapping[str, str]]]
    environment: NotRequired[Mapping[str, pulumi.Input[str]]]
    targets: NotRequired[Mapping[str, TargetArgs | TargetArgsDict]]
    target_secrets: NotRequired[Mapping[str, pulumi.Input[str]]]
    network_policy: NotRequired[bool]
    web_namespaces: NotRequired[Sequence[str]]
    egress_ports: NotRequired[Sequence[int]]
    egress_cidrs: NotRequired[Sequence[str]]
    service_monitor: NotRequired[bool]
    prometheus_rule: NotRequired[bool]
    monitoring_labels: NotRequired[Mapping[str, str]]
    keep_crds: NotRequired[bool]
    force_destroy: NotRequired[bool]


@ConvertToProgramError("EurekubeOperator: ")
def parse_operator_args(
    given: EurekubeOperatorArgs | EurekubeOperatorArgsDict | None, keywords: Mapping[str, Any] = EMPTY_MAPPING
) -> EurekubeOperatorArgs:
    """Return an operator's arguments, given as class, dictionary or keywords, as the class, checked.

    :raises ProgramError: one sentence that names the argument.
    """
    args = as_arguments(EurekubeOperatorArgs, args_or_keywords(given, keywords))
    args.check()
    return args


def _check_namespaces(name: str, namespaces: Collection[Any]) -> None:
    for namespace in namespaces:
        if not isinstance(namespace, str) or not is_object_name(namespace):
            raise ConfigurationError(
                f"{name}: {namespace!r} must be a namespace's name: lower case letters, digits and '-', in "
                "quotes if it is a number"
            )


def _has_tag_or_digest(image: str) -> bool:
    """Return whether an image names a tag or a digest; a registry's port is no tag."""
    return "@" in image or ":" in image.rpartition("/")[2]


def _image_reference(image_and_tag: tuple[str, str | None]) -> str:
    image, tag = image_and_tag
    return image if _has_tag_or_digest(image) else f"{image}:{tag or __version__}"


def operator_selector(name: str) -> dict[str, str]:
    """Return the labels that select the pods of the operator ``name``."""
    return {SELECTOR_LABEL_KEY: OPERATOR_APP_NAME, "app.kubernetes.io/instance": name}
