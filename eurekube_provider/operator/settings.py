"""The operator's configuration: flags, environment and file, under the same names.

Secrets come from the environment or from files of their own only, since every process of the machine can read
a flag, and many people can read a configuration file.
"""

from __future__ import annotations

import argparse
import math
import os
import socket
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from eurekube_provider.core.drain_time import Drain
from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.identity import check_cluster_name
from eurekube_provider.core.networks import Network
from eurekube_provider.core.syncer import DEFAULT_CONNECTION_NAME, ROUTED_ADVERTISE_KINDS, Advertise
from eurekube_provider.eureka.connection import SECRET_SETTING_NAMES, Connection
from eurekube_provider.kube.elector import ElectionTiming
from eurekube_provider.operator.options import (
    BOOL_TYPE,
    CONNECTION_OPTIONS,
    NAME_LIST_TYPE,
    NETWORKS_TYPE,
    OBJECT_NAME_TYPE,
    SECONDS_TYPE,
    TEXT_TYPE,
    WHOLE_SECONDS_TYPE,
    Option,
    SourcedText,
    ValueType,
    add_flags,
    build_connection,
    choice_type,
    environment_variable_name,
    flag_or_environment_texts,
    key_value_pairs_type,
    option_field,
    options_of,
    parse_named_entries,
    read_yaml_mapping,
    texts_from_mapping,
)
from eurekube_provider.operator.triggers.targets import Target, parse_targets
from eurekube_provider.operator.web.http_server import parse_address

_MISSING_URL_MESSAGE = (
    "no Eureka URL is configured: set --eureka-url or EUREKA_URL, e.g. http://eureka:8761/eureka, or"
    " connections: default: url: in the file that --config names"
)


def _is_pair_allowed(allowed: frozenset[tuple[str, str]], source: str, target: str) -> bool:
    """Return whether the allowed pairs include a source with its target; ``*`` in a pair stands for any."""
    return not allowed.isdisjoint(((source, target), (source, "*"), ("*", target), ("*", "*")))


def _check_web_address(text: str) -> str:
    parse_address(text)
    return text


def _parse_routed_kinds(text: str) -> tuple[Advertise, ...]:
    by_name = {str(one).lower(): one for one in sorted(ROUTED_ADVERTISE_KINDS)}
    names = [name.lower() for name in NAME_LIST_TYPE.parse(text)]
    if not by_name.keys() >= set(names):
        raise ValueError(f"must be {' or '.join(by_name.values())}, or both with a comma")
    return tuple(by_name[name] for name in dict.fromkeys(names))


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of the operator; each option is a flag, an environment variable and a key of the file.

    :param connections: the Eureka clusters by name; there is always one called ``default``.
    """

    connections: Mapping[str, Connection]
    targets: Mapping[str, Target] = field(default_factory=dict)
    operator_name: str = option_field(
        TEXT_TYPE, "eurekube", "whom stacks name to have their registrations renewed"
    )
    pod_name: str = option_field(
        TEXT_TYPE,
        socket.gethostname(),
        "who this process is, in Events and logs",
        default_text="the host's name",
    )
    cluster_name: str | None = option_field(
        ValueType(check_cluster_name),
        None,
        "part of every instance id",
        default_text="the first 8 characters of kube-system's UID",
    )
    previous_cluster_names: tuple[str, ...] = option_field(
        replace(
            NAME_LIST_TYPE, parse=lambda text: tuple(map(check_cluster_name, NAME_LIST_TYPE.parse(text)))
        ),
        (),
        "names that the cluster had before: what its syncers have under these is taken over",
        name="previous-cluster-name",
        default_text="those that the Lease remembers",
    )
    cluster_domain: str = option_field(
        ValueType(lambda text: text.strip("."), metavar="DOMAIN"),
        "cluster.local",
        "the cluster's DNS domain, for Services that are advertised by name",
    )
    take_over_cluster: bool = option_field(
        BOOL_TYPE, default=False, text="go on although the cluster's name is in use with another UID"
    )
    watch_namespaces: tuple[str, ...] = option_field(
        NAME_LIST_TYPE, (), "the namespaces to look at", name="watch-namespace", default_text="all"
    )
    cross_namespace: frozenset[tuple[str, str]] = option_field(
        key_value_pairs_type("FROM=TO[,...]", "FROM=TO, e.g. platform=* or team-a=shop"),
        frozenset(),
        "syncers in FROM may select Services in TO; * is any",
        default_text="none",
    )
    publish: frozenset[tuple[str, str]] = option_field(
        key_value_pairs_type("NAMESPACE=NAME[,...]", "NAMESPACE=NAME, e.g. shop=ratings or platform=*"),
        frozenset(),
        "syncers in NAMESPACE may publish under the application or VIP address NAME, which is not their"
        " Service's, and the condition NameNotReserved says nothing of it; * is any",
        default_text=(
            "none: a name that no other namespace has is allowed, unless strict-names says otherwise"
        ),
    )
    strict_names: bool = option_field(
        BOOL_TYPE,
        default=False,
        text="refuse each application and VIP address that is not the name of the syncer's Service, unless"
        " publish allows it",
    )
    reserve: frozenset[tuple[str, str]] = option_field(
        key_value_pairs_type("NAMESPACE=NAME[,...]", "NAMESPACE=NAME, e.g. payments=billing or shop=rating*"),
        frozenset(),
        "only syncers in NAMESPACE may publish under the application or VIP address NAME; several namespaces"
        " of one NAME share it. Of the NAMEs that fit, the longest counts; * is any",
        default_text="none: the first namespace that registers a name keeps it",
    )
    kubeconfig: str | None = option_field(
        TEXT_TYPE,
        None,
        "how to reach the Kubernetes API from outside",
        metavar="FILE",
        default_text="in-cluster, else KUBECONFIG",
        # KUBECONFIG may list several files: that is the Kubernetes client's to read.
        has_environment_variable=False,
    )
    context: str | None = option_field(
        TEXT_TYPE, None, "the kubeconfig's context", default_text="its current one"
    )
    leader_elect: bool = option_field(
        BOOL_TYPE, default=True, text="share the work with other replicas, of which one changes things"
    )
    lease_name: str | None = option_field(
        OBJECT_NAME_TYPE,
        None,
        "the Lease that the replicas of this operator share",
        default_text="OPERATOR-NAME-leader",
    )
    lease_namespace: str | None = option_field(
        OBJECT_NAME_TYPE,
        None,
        "where that Lease is",
        default_text="POD_NAMESPACE, else the pod's or the context's own",
    )
    lease_duration_seconds: float = option_field(
        SECONDS_TYPE, 15.0, "a replica that is silent for as long is replaced"
    )
    renew_deadline_seconds: float = option_field(
        SECONDS_TYPE, 10.0, "one that could not renew the Lease for as long stops writing"
    )
    retry_period_seconds: float = option_field(
        SECONDS_TYPE, 2.0, "how often the Lease is renewed, or looked at"
    )
    release_after_seconds: float = option_field(
        SECONDS_TYPE, 600.0, "deleted syncers wait so long for a Eureka that is away"
    )
    resync_seconds: float = option_field(SECONDS_TYPE, 15.0, "how often the whole registry is read")
    drain_seconds: int | None = option_field(
        WHOLE_SECONDS_TYPE,
        None,
        "callers may call a pod for so long after its deletion began: syncers whose pods end sooner show "
        "DrainTooShort; 0 for none",
        default_text="120, of which 17 are the Lease's duration and a retry",
    )
    gate_namespaces: tuple[str, ...] = option_field(
        NAME_LIST_TYPE,
        (),
        "the namespaces whose pods may declare the readiness gate eurekube.io/callers-know; * is all that "
        "are looked at",
        name="gate-namespace",
        default_text="none",
    )
    mirrors: bool = option_field(
        BOOL_TYPE,
        default=False,
        text="serve EurekaMirrors: show applications registered in Eureka as Services; needs mirror-cidrs",
    )
    mirror_cidrs: tuple[Network, ...] = option_field(
        NETWORKS_TYPE,
        (),
        "the networks whose addresses mirrors may show, e.g. 10.20.0.0/16: anyone who may register in Eureka"
        " sends the cluster's calls there",
        default_text="none",
    )
    advertise_cidrs: tuple[Network, ...] = option_field(
        NETWORKS_TYPE,
        (),
        "the networks of which syncers may give an address by hand (spec.address), e.g. 198.51.100.0/24; "
        "needs cluster-cidrs",
        default_text="none",
    )
    advertise_hosts: tuple[str, ...] = option_field(
        NAME_LIST_TYPE,
        (),
        "the hosts that syncers may give by hand: a name, or with a dot before it all names below, e.g. "
        ".lb.example.com",
        default_text="none",
    )
    advertise_from: tuple[Advertise, ...] = option_field(
        replace(NAME_LIST_TYPE, parse=_parse_routed_kinds, metavar="KIND[,KIND...]"),
        (),
        "Ingress, Gateway, or both with a comma: syncers may give callers the host and the address of those"
        " (spec.advertise); people who may write Ingresses or HTTPRoutes choose the host",
        default_text="none",
    )
    cluster_cidrs: tuple[Network, ...] = option_field(
        NETWORKS_TYPE,
        (),
        "networks of this cluster's pods and Services, which mirrors never show, beside what the API tells,"
        " and of which no syncer may give an address by hand",
        default_text="what the API tells",
    )
    web_address: str = option_field(
        ValueType(_check_web_address, metavar="HOST:PORT"),
        ":8080",
        "where to serve health, metrics and the status page; empty for nowhere",
        value_if_empty="",
    )
    status_page: bool = option_field(
        BOOL_TYPE,
        default=True,
        text="serve the status page and its data, which show every watched namespace to anyone who"
        " reaches them; false for health and metrics alone",
    )
    log_format: str = option_field(
        choice_type("auto", "json", "text"),
        "auto",
        "how logs are written: auto is text on a terminal, and json elsewhere",
    )
    log_level: str = option_field(
        choice_type("DEBUG", "INFO", "WARNING", "ERROR", read=str.upper),
        "INFO",
        "the lowest level that is logged: DEBUG, INFO, WARNING or ERROR",
        metavar="LEVEL",
    )

    @property
    def lease_timing(self) -> ElectionTiming:
        return ElectionTiming(
            self.lease_duration_seconds, self.renew_deadline_seconds, self.retry_period_seconds
        )

    @property
    def needed_drain_seconds(self) -> int:
        """Seconds for which callers may call a pod after its deletion began; 0 to check no pod."""
        if self.drain_seconds is not None:
            return self.drain_seconds
        take_over_seconds = self.lease_duration_seconds + self.retry_period_seconds
        return Drain(take_over_seconds=take_over_seconds).prestop_seconds

    @property
    def seconds_until_callers_know_pods(self) -> int:
        """Seconds that callers need to learn of a pod that every server of Eureka shows.

        If ``drain-seconds`` is set: those seconds less the times of a take-over and of replication.
        """
        if not self.drain_seconds:
            return Drain().known_after_seconds
        default = Drain(take_over_seconds=self.lease_duration_seconds + self.retry_period_seconds)
        rest_seconds = default.take_over_seconds + default.replication_seconds
        return max(math.ceil(self.drain_seconds - rest_seconds), math.ceil(default.margin_seconds))

    @property
    def watched_gate_namespaces(self) -> tuple[str | None, ...]:
        """Namespaces whose pods are watched for the readiness gate; None among them for all."""
        if "*" in self.gate_namespaces:
            return self.watch_namespaces or (None,)
        return self.gate_namespaces

    def lease_namespace_and_name(self, own_namespace: str) -> tuple[str, str]:
        """Return the namespace and name of the Lease that the replicas share."""
        return self.lease_namespace or own_namespace, self.lease_name or f"{self.operator_name}-leader"

    def may_select(self, syncer_namespace: str, service_namespace: str) -> bool:
        """Return whether syncers of a namespace may select Services of another one; of their own they may."""
        return syncer_namespace == service_namespace or _is_pair_allowed(
            self.cross_namespace, syncer_namespace, service_namespace
        )

    def may_publish(self, syncer_namespace: str, name: str) -> bool:
        """Return whether a namespace's syncers may publish under a name, in any case, not their Service's."""
        names = frozenset((namespace, allowed.lower()) for namespace, allowed in self.publish)
        return _is_pair_allowed(names, syncer_namespace, name.lower())

    def watches_namespace(self, namespace: str) -> bool:
        """Return whether the operator watches objects of this namespace."""
        return not self.watch_namespaces or namespace in self.watch_namespaces


_SETTING_OPTIONS = options_of(Settings)

ALL_OPTIONS = (
    *(replace(one, name=f"eureka-{one.name}") for one in CONNECTION_OPTIONS),
    *_SETTING_OPTIONS.values(),
)

CONFIG_OPTION = Option(
    "config", "FILE", TEXT_TYPE, None, "YAML file with the same names, further connections, and targets"
)
_ENVIRONMENT_ONLY_OPTIONS = ("eureka-password", "eureka-token")
"""Settings that only environment variables may give in clear, such as EUREKA_PASSWORD."""


def add_setting_flags(parser: argparse.ArgumentParser, only: Container[str] | None = None) -> None:
    """Add the flags of all settings.

    :param only: the names of the wanted settings; None for all.
    """
    add_flags(parser, [one for one in (CONFIG_OPTION, *ALL_OPTIONS) if only is None or one.name in only])


def load_settings(
    flags: Mapping[str, str | None] | None = None,
    environment: Mapping[str, str] = os.environ,
    *,
    needs_eureka: bool = True,
) -> Settings:
    """Return the settings from flags, environment and file, in this order of precedence.

    :param flags: by name with underscores, as argparse has them.
    :param needs_eureka: False to have no default connection where nobody gave its URL.
    :raises ConfigurationError: a value that cannot be used; says where it stands, and what would do.
    """
    nearest = flag_or_environment_texts((CONFIG_OPTION, *ALL_OPTIONS), flags or {}, environment)
    written: dict[str, SourcedText] = {}
    others: dict[str, dict[str, SourcedText]] = {}
    targets: dict[str, Target] = {}
    path = ""
    if (file := nearest.get(CONFIG_OPTION.name)) is not None:
        path = file.text
        document = read_yaml_mapping(file.text, file.where)
        targets = parse_targets(document.pop("targets", None) or {}, f"{file.text}: targets")
        written, others = _parse_config_file(file, document)
    given = {**written, **nearest}
    values = {one.name: one.read(given.get(one.name)) for one in ALL_OPTIONS}

    def find_secret(name: str) -> SourcedText | str | None:
        named, by_file = nearest.get(f"{name}-file"), written.get(f"{name}-file")
        plain = environment.get(environment_variable_name(name)) or None
        if named and named.text:
            return named
        return plain if named or plain else by_file

    connections = {}
    if needs_eureka or "eureka-url" in given:
        connections[DEFAULT_CONNECTION_NAME] = build_connection(
            {one.name: given.get(f"eureka-{one.name}") for one in CONNECTION_OPTIONS},
            {name: find_secret(f"eureka-{name}") for name in SECRET_SETTING_NAMES},
            _MISSING_URL_MESSAGE,
        )
    for name, entries in others.items():
        connections[name] = build_connection(
            entries,
            {secret_name: entries.get(f"{secret_name}-file") for secret_name in SECRET_SETTING_NAMES},
            f"{path}: connections: {name}: there is no url: add one, e.g. url: http://eureka:8761/eureka",
        )
    named = {name: values[one.name] for name, one in _SETTING_OPTIONS.items()}
    named["lease_name"] = named["lease_name"] or _default_lease_name(named["operator_name"])
    named["lease_namespace"] = named["lease_namespace"] or environment.get("POD_NAMESPACE") or None
    settings = Settings(connections=connections, targets=targets, **named)
    _ = settings.lease_timing  # says what does not fit together
    if settings.mirrors and not settings.mirror_cidrs:
        raise ConfigurationError(
            "--mirrors is true and --mirror-cidrs names no network: no address could be mirrored; name the"
            " networks of the machines that are to be called, e.g. 10.20.0.0/16"
        )
    if blind := [
        one for one in settings.gate_namespaces if one != "*" and not settings.watches_namespace(one)
    ]:
        raise ConfigurationError(
            f"--gate-namespace names {', '.join(blind)}, and --watch-namespace does not: whose pods wait"
            " there could not be seen, and their gates would open at once; name it in both, or in neither"
        )
    if settings.advertise_cidrs and not settings.cluster_cidrs:
        raise ConfigurationError(
            "--advertise-cidrs needs --cluster-cidrs: name the networks of this cluster's pods and Services,"
            " of which no syncer may give an address by hand"
        )
    return settings


def _default_lease_name(operator_name: str) -> str:
    try:
        return str(OBJECT_NAME_TYPE.parse(f"{operator_name}-leader"))
    except ValueError as error:
        raise ConfigurationError(
            f"--operator-name: {operator_name!r}-leader {error}; set --lease-name to another one"
        ) from None


def _parse_config_file(
    file: SourcedText, document: dict[str, Any]
) -> tuple[dict[str, SourcedText], dict[str, dict[str, SourcedText]]]:
    """Return the file's options, and its connections except the default connection.

    Keys of the default connection are options: ``url`` below ``default`` is ``eureka-url``.
    """
    place = f"{file.text}: connections"
    connections = parse_named_entries(
        document.pop("connections", None) or {}, place, "url", "eu-1: {url: http://...}"
    )
    written = texts_from_mapping(file.text, document, ALL_OPTIONS, _ENVIRONMENT_ONLY_OPTIONS)
    others = {
        name: texts_from_mapping(f"{place}: {name}", entries, CONNECTION_OPTIONS, SECRET_SETTING_NAMES)
        for name, entries in connections.items()
    }
    for key, given in others.pop(DEFAULT_CONNECTION_NAME, {}).items():
        if f"eureka-{key}" in written:
            raise ConfigurationError(f"{given.where}: eureka-{key} says the same once more: keep one of them")
        written[f"eureka-{key}"] = given
    return written, others
