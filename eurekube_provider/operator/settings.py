"""The operator's configuration: flags and environment, under the same names.

``--watch-namespace`` is ``WATCH_NAMESPACE``: a flag wins over the environment. Secrets come from the
environment or from files only, since a flag can be read by every process of the machine.
"""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.identity import check_cluster_name
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Mode

_MISSING_URL = "no Eureka URL is configured: set --eureka-url or EUREKA_URL, e.g. http://eureka:8761/eureka"


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """Whom to tell that endpoints changed.

    :param services: ``namespace/app`` patterns, ``*`` for any namespace or any app; empty for all.
    :param secret: key of the HMAC signature.
    :param debounce_seconds: a call waits until nothing has changed for as long.
    """

    url: str
    secret: str = field(repr=False)
    services: tuple[str, ...] = ()
    debounce_seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that the operator can be told.

    :param cluster_name: None for the first 8 characters of the kube-system namespace's UID.
    :param cluster_domain: the cluster's DNS domain, for host names of Services.
    :param watch_namespaces: empty for all.
    :param cross_namespace: ``from=to`` pairs, ``*`` for any: syncers of the namespace ``from`` may select
        Services of the namespace ``to``.
    :param resync_seconds: how often the whole registry is listed, to find what drifted and what stacks ask
        this operator to renew.
    """

    connection: Connection
    eureka_mode: Mode = Mode.AUTO
    operator_name: str = "eurekube"
    pod_name: str = "eurekube"
    cluster_name: str | None = None
    cluster_domain: str = "cluster.local"
    take_over_cluster: bool = False
    watch_namespaces: tuple[str, ...] = ()
    cross_namespace: frozenset[tuple[str, str]] = frozenset()
    webhook: WebhookSettings | None = None
    kubeconfig: str | None = None
    context: str | None = None
    resync_seconds: float = 15.0
    log_format: str = "json"
    log_level: str = "INFO"

    def may_select(self, syncer_namespace: str, service_namespace: str) -> bool:
        """Whether a syncer may publish Services of another namespace; always of its own."""
        return syncer_namespace == service_namespace or any(
            pair in self.cross_namespace
            for pair in (
                (syncer_namespace, service_namespace),
                (syncer_namespace, "*"),
                ("*", service_namespace),
                ("*", "*"),
            )
        )

    def watches(self, namespace: str) -> bool:
        """Whether objects of this namespace are seen at all."""
        return not self.watch_namespaces or namespace in self.watch_namespaces


def parser() -> argparse.ArgumentParser:
    """The command line; every flag names its environment variable."""
    result = argparse.ArgumentParser(
        prog="python -m eurekube_provider.operator",
        description="Keeps the endpoints of Kubernetes Services registered in Netflix Eureka.",
        epilog="Eureka's password: EUREKA_PASSWORD, or a file named by EUREKA_PASSWORD_FILE; a bearer token"
        " instead: EUREKA_TOKEN or EUREKA_TOKEN_FILE."
        " The webhook's key: WEBHOOK_SECRET or WEBHOOK_SECRET_FILE.",
    )
    for flag, metavar, text in (
        ("eureka-url", "URL[,URL...]", "the Eureka servers, e.g. http://eureka:8761/eureka"),
        ("eureka-user", "NAME", "user for HTTP basic authentication"),
        ("eureka-ca-file", "FILE", "PEM file with the authorities to trust for https"),
        ("eureka-client-certificate", "FILE", "PEM file with the certificate to show (mTLS)"),
        ("eureka-client-key", "FILE", "PEM file with its key, unless that lies in the certificate's file"),
        ("eureka-proxy", "URL", "proxy to Eureka [HTTP_PROXY, HTTPS_PROXY, NO_PROXY]"),
        ("eureka-zone", "NAME", "ask the servers given as NAME=URL first"),
        ("eureka-mode", "auto|rest|batch", "how many changes at once are sent [auto]"),
        ("operator-name", "NAME", "whom stacks name to have their registrations renewed [eurekube]"),
        ("pod-name", "NAME", "who this process is, in Events and logs [the host's name]"),
        ("cluster-name", "NAME", "part of every instance id [first 8 characters of kube-system's UID]"),
        (
            "cluster-domain",
            "DOMAIN",
            "the cluster's DNS domain, for Services advertised by name [cluster.local]",
        ),
        ("take-over-cluster", "true|false", "go on although the cluster's name is in use with another UID"),
        ("watch-namespace", "NAME[,NAME...]", "the namespaces to look at [all]"),
        ("cross-namespace", "FROM=TO[,...]", "syncers in FROM may select Services in TO; * is any [none]"),
        ("webhook-url", "URL", "called, signed, when the addresses of a Service change"),
        ("webhook-services", "NAMESPACE/APP[,...]", "which Services the webhook is told of; * is any [all]"),
        ("webhook-debounce-seconds", "SECONDS", "quiet time before the webhook is called [5]"),
        ("kubeconfig", "FILE", "how to reach the Kubernetes API from outside [in-cluster, else KUBECONFIG]"),
        ("context", "NAME", "the kubeconfig's context [its current one]"),
        ("resync-seconds", "SECONDS", "how often the whole registry is read [15]"),
        ("log-format", "json|text", "[json]"),
        ("log-level", "LEVEL", "DEBUG, INFO, WARNING or ERROR [INFO]"),
    ):
        result.add_argument(f"--{flag}", metavar=metavar, help=f"{text}; {_variable(flag)}")
    return result


def settings_from(
    arguments: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ
) -> Settings:
    """Read flags and environment.

    :raises ConfigurationError: a value that cannot be used; says which, and what would do.
    """
    flags = vars(parser().parse_args(arguments))

    def text(flag: str) -> str:
        value = flags[flag.replace("-", "_")]
        # KUBECONFIG may list several files: that is the Kubernetes client's to read, not a flag's value.
        if value is None and flag != "kubeconfig":
            value = environment.get(_variable(flag))
        return str(value or "").strip()

    if not text("eureka-url"):
        raise ConfigurationError(_MISSING_URL)
    webhook = None
    if text("webhook-url"):
        secret = _secret("WEBHOOK_SECRET", environment)
        if not secret:
            raise ConfigurationError(
                "--webhook-url needs a key to sign with: set WEBHOOK_SECRET or WEBHOOK_SECRET_FILE"
            )
        webhook = WebhookSettings(
            url=_http_url("webhook-url", text("webhook-url")),
            secret=secret,
            services=_names(text("webhook-services")),
            debounce_seconds=_seconds("webhook-debounce-seconds", text("webhook-debounce-seconds") or "5"),
        )
        for pattern in webhook.services:
            if pattern.count("/") != 1:
                raise ConfigurationError(
                    f"--webhook-services: {pattern!r} must be NAMESPACE/APP, e.g. shop/rating or shop/*"
                )
    return Settings(
        connection=Connection.parse(
            text("eureka-url"),
            text("eureka-user") or None,
            _secret("EUREKA_PASSWORD", environment),
            text("eureka-ca-file") or None,
            token=_secret("EUREKA_TOKEN", environment),
            client_certificate=text("eureka-client-certificate") or None,
            client_key=text("eureka-client-key") or None,
            proxy=text("eureka-proxy") or None,
            zone=text("eureka-zone") or None,
        ),
        eureka_mode=Mode(_choice("eureka-mode", text("eureka-mode") or "auto", tuple(Mode))),
        operator_name=text("operator-name") or "eurekube",
        pod_name=text("pod-name") or socket.gethostname(),
        cluster_name=check_cluster_name(text("cluster-name")) if text("cluster-name") else None,
        cluster_domain=text("cluster-domain").strip(".") or "cluster.local",
        take_over_cluster=_truth("take-over-cluster", text("take-over-cluster") or "false"),
        watch_namespaces=_names(text("watch-namespace")),
        cross_namespace=frozenset(_pair(item) for item in _names(text("cross-namespace"))),
        webhook=webhook,
        kubeconfig=text("kubeconfig") or None,
        context=text("context") or None,
        resync_seconds=_seconds("resync-seconds", text("resync-seconds") or "15"),
        log_format=_choice("log-format", text("log-format") or "json", ("json", "text")),
        log_level=_choice(
            "log-level", (text("log-level") or "INFO").upper(), ("DEBUG", "INFO", "WARNING", "ERROR")
        ),
    )


def _variable(flag: str) -> str:
    return flag.upper().replace("-", "_")


def _secret(variable: str, environment: Mapping[str, str]) -> str | None:
    path = environment.get(f"{variable}_FILE")
    if not path:
        return environment.get(variable) or None
    try:
        return Path(path).read_text(encoding="utf-8").strip() or None
    except OSError as error:
        raise ConfigurationError(f"{variable}_FILE: {path} cannot be read ({error.strerror})") from None


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _pair(text: str) -> tuple[str, str]:
    source, separator, target = text.partition("=")
    if not separator or not source or not target:
        raise ConfigurationError(
            f"--cross-namespace: {text!r} must be FROM=TO, e.g. platform=* or team-a=shop"
        )
    return source, target


def _seconds(flag: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.1 <= value <= 86400:
        raise ConfigurationError(f"--{flag}: {text!r} must be a number of seconds between 0.1 and 86400")
    return value


def _truth(flag: str, text: str) -> bool:
    return _choice(flag, text.lower(), ("true", "false")) == "true"


def _choice(flag: str, text: str, allowed: tuple[str, ...]) -> str:
    if text not in allowed:
        raise ConfigurationError(f"--{flag}: {text!r} must be one of {', '.join(allowed)}")
    return text


def _http_url(flag: str, text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise ConfigurationError(f"--{flag}: {text!r} must start with http:// or https://")
    return text
