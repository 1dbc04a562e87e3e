"""The stack's configuration, read as the arguments of its resources, for ``__main__.py``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import pulumi
from pulumi.runtime import is_config_secret

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.wording import camel_case, suggest_name
from eurekube_provider.eureka.connection import BatchMode, Connection
from eurekube_provider.registrations.connections import (
    CONFIG_NAMESPACE,
    DEFAULT_CONNECTION_NAME,
    connection_names,
)
from eurekube_provider.resources.arguments import EurekaInstanceArgs
from eurekube_provider.resources.operator_component.credentials import EurekaSecretArgs
from eurekube_provider.resources.operator_component.eureka_arguments import EurekaConnectionArgs
from eurekube_provider.resources.operator_component.operator_arguments import EurekubeOperatorArgs
from eurekube_provider.resources.operator_component.pod_arguments import PodArgs
from eurekube_provider.resources.program import (
    ConvertToProgramError,
    default_renewer,
    program_connection,
    program_setting,
    runs_without_engine,
    warn_of_plaintext_credentials,
    warn_of_unknown_keys,
)
from eurekube_provider.resources.syncer_component import EurekaSyncerArgs

_T = TypeVar("_T")

_OPERATOR_SETTING_KEYS = (
    *("namespace", "create_namespace", "image", "tag", "replicas", "watch_namespaces", "user_roles"),
    *("resources", "environment", "eureka_secret", "targets"),
    *("network_policy", "web_namespaces", "egress_ports", "egress_cidrs"),
    *("service_monitor", "prometheus_rule", "monitoring_labels", "keep_crds", "force_destroy"),
    *(item.name for item in fields(PodArgs)),
)
"""Keys of ``eurekube:operator``; the operator's other arguments follow from other keys."""


@dataclass(frozen=True, slots=True)
class StackSettings:
    """All settings of the program, see the ``config`` of Pulumi.yaml.

    :ivar kubeconfig: relative to the program's directory where it is not absolute; None for the default
        provider's way to the cluster.
    :ivar context: a context of the kubeconfig; None for its current one.
    :ivar namespaces: the namespaces that the program makes, and removes.
    :ivar syncers: arguments by resource name, as in ``registrations``.
    """

    operator: EurekubeOperatorArgs
    kubeconfig: Path | None = None
    context: str | None = None
    namespaces: tuple[str, ...] = ()
    syncers: Mapping[str, EurekaSyncerArgs] = field(default_factory=dict)
    registrations: Mapping[str, EurekaInstanceArgs] = field(default_factory=dict)

    @classmethod
    @ConvertToProgramError()
    def load(cls) -> StackSettings:
        """Read the running program's configuration; raise ProgramError where a key is missing or wrong."""
        warn_of_plaintext_credentials()
        warn_of_unknown_keys()
        return cls(
            operator=_read_operator(),
            kubeconfig=_read_kubeconfig_path(),
            context=program_setting("context"),
            namespaces=tuple(_read_text_list("namespaces")),
            syncers=_read_arguments_by_name("syncers", EurekaSyncerArgs),
            registrations=_read_arguments_by_name("registrations", EurekaInstanceArgs),
        )


def _read_operator() -> EurekubeOperatorArgs:
    """Return the operator's arguments from ``eurekube:operator`` and the keys about Eureka."""
    written = _read_json_setting("operator", dict) or {}
    given = _parse_object("operator", EurekubeOperatorArgs, written, _OPERATOR_SETTING_KEYS)
    connection = program_connection()
    secret = given["eureka_secret"] = _read_eureka_secret(given.get("eureka_secret"))
    ca_certificate = connection.ca_file.read_text("utf-8") if connection.ca_file else None
    has_own_file = "CONFIG" in (given.get("environment") or {})
    return EurekubeOperatorArgs(
        **given,
        connections={} if has_own_file else _read_connections(secret),
        **(_credential_arguments(connection) if secret is None else {}),
        eureka_urls=connection.service_urls,
        ca_certificate=None if secret is not None and secret.ca_certificate_key else ca_certificate,
        operator_name=default_renewer(),
        cluster_name=program_setting("clusterName"),
    )


def _read_connections(secret: EurekaSecretArgs | None) -> dict[str, EurekaConnectionArgs]:
    """Return the stack's named connections, so that its operator renews the stack's instances there; with an
    existing Secret none with credentials.
    """
    found = {}
    for name in connection_names(program_setting):
        if name == DEFAULT_CONNECTION_NAME:
            continue
        one = program_connection(name)
        credentials = _credential_arguments(one)
        if secret is not None and any(credentials.values()):
            continue
        found[name] = EurekaConnectionArgs(
            urls=list(one.service_urls),
            **credentials,
            ca_certificate=one.ca_file.read_text("utf-8") if one.ca_file else None,
            mode=None if one.mode is BatchMode.AUTO else str(one.mode),
        )
    return found


def _credential_arguments(connection: Connection) -> dict[str, Any]:
    """Return this stack's own credentials for Eureka as operator arguments; all but the user are secrets."""
    files = (connection.client_certificate, connection.client_key)
    certificate, key = (path.read_text("utf-8") if path else None for path in files)
    secrets = {
        "password": connection.password,
        "token": connection.token,
        "client_certificate": certificate,  # whose file may hold the key, too
        "client_key": key,
    }
    kept = {name: pulumi.Output.secret(value) for name, value in secrets.items() if value is not None}
    return {"user": connection.user, **kept}


def _read_eureka_secret(written: Any) -> EurekaSecretArgs | None:
    if written is None:
        return None
    where = "operator.eurekaSecret"
    if not isinstance(written, dict):
        raise ConfigurationError(f"{CONFIG_NAMESPACE}:{where} must be an object with a name")
    known = [item.name for item in fields(EurekaSecretArgs)]
    return EurekaSecretArgs(**_parse_object(where, EurekaSecretArgs, written, known))


def _read_kubeconfig_path() -> Path | None:
    text = program_setting("kubeconfig")
    if text is None:
        return None
    # Relative as it is written: it is an input of Pulumi's Kubernetes provider, which runs in the program's
    # directory as well, and the state is shared by machines that keep the project in folders of their own.
    path = Path(text).expanduser()
    if not path.is_file() and not runs_without_engine.get():  # only the engine's provider reads it here
        raise ConfigurationError(
            f"{CONFIG_NAMESPACE}:kubeconfig: {path.absolute()} does not exist; start the cluster first"
            f" (make lab-up), or set {CONFIG_NAMESPACE}:kubeconfig to one that is there"
        )
    return path


def _read_text_list(key: str) -> list[str]:
    values = _read_json_setting(key, list) or []
    for value in values:
        if not isinstance(value, str):
            raise ConfigurationError(f"{CONFIG_NAMESPACE}:{key}: {value!r} must be a name")
    return values


def _read_arguments_by_name(key: str, kind: type[Any]) -> dict[str, Any]:
    """Read a list of objects that each have a ``name``, and return their arguments by that name."""
    result: dict[str, Any] = {}
    for number, entry in enumerate(_read_json_setting(key, list) or []):
        where = f"{key}[{number}]"
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise ConfigurationError(f"{CONFIG_NAMESPACE}:{where} must be an object with a name")
        name = entry["name"]
        if name in result:
            raise ConfigurationError(f"{CONFIG_NAMESPACE}:{where}: there are two of the name {name!r}")
        known = tuple(item.name for item in fields(kind) if item.name != "name")
        rest = {item: value for item, value in entry.items() if item != "name"}
        result[name] = kind(**_parse_object(where, kind, rest, known))
    return result


def _parse_object(
    where: str, kind: type[Any], written: Mapping[str, Any], known: Iterable[str]
) -> dict[str, Any]:
    """Return a configuration's object as arguments of ``kind``, in snake case; refuse unknown keys."""
    names = {camel_case(name): name for name in known}
    for key in written:
        if key not in names:
            raise ConfigurationError(
                f"{CONFIG_NAMESPACE}:{where}: there is no key {key!r}; {suggest_name(key, names)}"
            )
    given = {names[key]: value for key, value in written.items() if value is not None}
    for item in fields(kind):
        required = item.default is MISSING and item.default_factory is MISSING
        if required and item.name in names.values() and item.name not in given:
            raise ConfigurationError(f"{CONFIG_NAMESPACE}:{where}: {camel_case(item.name)} is required")
    return given


def _read_json_setting(key: str, kind: type[_T]) -> _T | None:
    """Return the list or object of ``eurekube:<key>``; None where the key is not set."""
    text = program_setting(key)
    if text is None:
        return None
    if is_config_secret(f"{CONFIG_NAMESPACE}:{key}"):
        raise ConfigurationError(
            f"{CONFIG_NAMESPACE}:{key} must not be a secret, since its parts go into properties in clear: "
            f"only {CONFIG_NAMESPACE}:url, {CONFIG_NAMESPACE}:user and {CONFIG_NAMESPACE}:password may be one"
        )
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if not isinstance(value, kind):
        word = "a list" if kind is list else "an object"
        raise ConfigurationError(f"{CONFIG_NAMESPACE}:{key} must be {word}, not {text!r}")
    return value
