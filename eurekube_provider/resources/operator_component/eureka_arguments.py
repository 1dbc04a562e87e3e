"""The named connections of an operator beside the default one, so that it renews what a stack registers
there: entries of its file, and their credentials.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NotRequired, TypedDict

import pulumi

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.objects import is_object_name
from eurekube_provider.core.syncer import DEFAULT_CONNECTION_NAME
from eurekube_provider.eureka.connection import BatchMode, split_credentials
from eurekube_provider.resources.arguments import SECRET_FIELD_METADATA, as_arguments

_FILE_KEY_BY_ARGUMENT = {
    "password": "password-file",
    "token": "token-file",
    "ca_certificate": "ca-file",
    "client_certificate": "client-certificate",
    "client_key": "client-key",
}
"""Arguments that are kept in a Secret, each with the key by which the operator's file names its path."""


@dataclass(kw_only=True, slots=True)
class EurekaConnectionArgs:
    """Another Eureka that the operator serves.

    :ivar urls: service URLs without credentials.
    :ivar user: for HTTP basic authentication, in clear; what follows is kept in a Secret.
    :ivar password: for HTTP basic authentication.
    :ivar token: a bearer token instead of user and password.
    :ivar ca_certificate: PEM text of the authorities to trust for https.
    :ivar client_certificate: PEM text of the certificate to show (mTLS).
    :ivar client_key: PEM text of its key.
    :ivar proxy: URL of a proxy, without credentials.
    :ivar zone: servers of this zone are asked first, of URLs such as ``zone-a=http://...``.
    :ivar mode: ``auto``, ``rest`` or ``batch``.
    :ivar max_answer_mib: the largest answer that is read, in MiB, also once it is decompressed; 128.
    """

    urls: Sequence[str]
    user: str | None = None
    password: pulumi.Input[str] | None = field(default=None, metadata=SECRET_FIELD_METADATA)
    token: pulumi.Input[str] | None = field(default=None, metadata=SECRET_FIELD_METADATA)
    ca_certificate: pulumi.Input[str] | None = None
    client_certificate: pulumi.Input[str] | None = field(default=None, metadata=SECRET_FIELD_METADATA)
    client_key: pulumi.Input[str] | None = field(default=None, metadata=SECRET_FIELD_METADATA)
    proxy: str | None = None
    zone: str | None = None
    mode: str | None = None
    max_answer_mib: int | None = None


class EurekaConnectionArgsDict(TypedDict):
    """A dictionary with the keys of :class:`EurekaConnectionArgs`."""

    urls: Sequence[str]
    user: NotRequired[str | None]
    password: NotRequired[pulumi.Input[str] | None]
    token: NotRequired[pulumi.Input[str] | None]
    ca_certificate: NotRequired[pulumi.Input[str] | None]
    client_certificate: NotRequired[pulumi.Input[str] | None]
    client_key: NotRequired[pulumi.Input[str] | None]
    proxy: NotRequired[str | None]
    zone: NotRequired[str | None]
    mode: NotRequired[str | None]
    max_answer_mib: NotRequired[int | None]


ConnectionsArgument = Mapping[str, EurekaConnectionArgs | EurekaConnectionArgsDict]


def parse_connections(given: ConnectionsArgument) -> dict[str, EurekaConnectionArgs]:
    """Return named connections, each given as class or dictionary, as the class, checked.

    :raises ConfigurationError: one sentence that names the connection; no credential is repeated.
    """
    if not isinstance(given, Mapping):
        raise ConfigurationError("connections must be a map from names to connections with urls")
    found = {}
    for name, one in sorted(given.items()):
        where = f"connections: {name}"
        if not isinstance(name, str) or not is_object_name(name) or "." in name or len(name) > 63:
            raise ConfigurationError(f"{where} must be a name of small letters, digits and dashes")
        if name == DEFAULT_CONNECTION_NAME:
            raise ConfigurationError(f"{where} is what eureka_urls and the arguments beside it describe")
        found[name] = as_arguments(EurekaConnectionArgs, one, f"{where}: ")
        _check_connection(where, found[name])
    return found


def connection_file_entries(
    connections: Mapping[str, EurekaConnectionArgs], directory: str
) -> dict[str, Any]:
    """Return the connections for the operator's file, which finds their secrets in ``directory``."""
    return {
        name: {
            "url": list(one.urls),
            **{
                key.replace("_", "-"): value
                for key in ("user", "proxy", "zone", "mode", "max_answer_mib")
                if (value := getattr(one, key))
            },
            **{
                key: f"{directory}/{_secret_file_name(name, part)}"
                for part, key in _FILE_KEY_BY_ARGUMENT.items()
                if getattr(one, part) is not None
            },
        }
        for name, one in connections.items()
    }


def connection_secrets_by_file_name(
    connections: Mapping[str, EurekaConnectionArgs],
) -> dict[str, pulumi.Input[str]]:
    """Return the Secret's content for the connections, by file name."""
    return {
        _secret_file_name(name, part): value
        for name, one in connections.items()
        for part in _FILE_KEY_BY_ARGUMENT
        if (value := getattr(one, part)) is not None
    }


def _secret_file_name(name: str, part: str) -> str:
    return f"connection.{name}.{part.replace('_', '-')}"


def _check_connection(where: str, one: EurekaConnectionArgs) -> None:
    """Refuse a connection with URLs, credentials or a mode that the operator could not use."""
    if not isinstance(one.urls, Collection) or isinstance(one.urls, str | bytes | Mapping) or not one.urls:
        raise ConfigurationError(f"{where}: urls must be a list, e.g. ['http://eureka:8761/eureka']")
    for url in (*(text.partition("=")[2] or text for text in one.urls), *([one.proxy] if one.proxy else [])):
        if "@" in url or split_credentials(url)[1] is not None:
            raise ConfigurationError(
                f"{where}: no URL may carry credentials, which would stand in clear: give user and password"
            )
    if one.token is not None and (one.user is not None or one.password is not None):
        raise ConfigurationError(f"{where}: Eureka takes a user and password or a bearer token, not both")
    if one.password is not None and one.user is None:
        raise ConfigurationError(f"{where}: password means nothing without a user")
    if one.client_key is not None and one.client_certificate is None:
        raise ConfigurationError(f"{where}: client_key means nothing without client_certificate")
    if one.mode is not None and one.mode not in tuple(BatchMode):
        raise ConfigurationError(f"{where}: mode {one.mode!r} must be one of {', '.join(BatchMode)}")
