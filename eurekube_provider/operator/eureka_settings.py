"""The connections to Eureka in the operator's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.eureka.connection import BatchMode, Connection, read_secret
from eurekube_provider.operator.options import FILE, NAMES, TEXT, Option, SourcedText, ValueType, choice

CONNECTION_OPTIONS = (
    Option(
        "url",
        "URL[,URL...]",
        ValueType(str, NAMES.accepts, NAMES.word),
        None,
        "the Eureka servers, e.g. http://eureka:8761/eureka",
    ),
    Option("user", "NAME", TEXT, None, "user for HTTP basic authentication"),
    Option(
        "password-file", "FILE", TEXT, None, "file with the user's password; read anew once it is refused"
    ),
    Option(
        "token-file",
        "FILE",
        TEXT,
        None,
        "file with a bearer token, instead of user and password; read anew once it is refused",
    ),
    Option("ca-file", "FILE", FILE, None, "PEM file with the authorities to trust for https"),
    Option("client-certificate", "FILE", FILE, None, "PEM file with the certificate to show (mTLS)"),
    Option(
        "client-key", "FILE", FILE, None, "PEM file with its key, unless that lies in the certificate's file"
    ),
    Option("proxy", "URL", TEXT, None, "proxy to Eureka", shown="HTTP_PROXY, HTTPS_PROXY, NO_PROXY"),
    Option("zone", "NAME", TEXT, None, "ask the servers given as NAME=URL first"),
    Option(
        "mode",
        "auto|rest|batch",
        choice(*BatchMode),
        str(BatchMode.AUTO),
        "how many changes at once are sent",
    ),
)
"""What is said of a connection; for the one called default with ``eureka-`` before it."""


def connection_from(
    given: Mapping[str, SourcedText | None], secrets: Mapping[str, SourcedText | str | None], missing: str
) -> Connection:
    """One connection.

    :param given: by the names of :data:`CONNECTION_OPTIONS`.
    :param secrets: by name: password and token, or the file that holds it.
    :param missing: the complaint where there is no URL.
    :raises ConfigurationError: there is none, or something of it cannot be used.
    """
    url = given.get("url")
    if url is None or not url.text:
        raise ConfigurationError(missing)
    files = {name: one for name, one in secrets.items() if isinstance(one, SourcedText) and one.text}
    plain = {name: one for name, one in secrets.items() if isinstance(one, str)}
    known = {
        **plain,
        **{name: read_secret(file.text, file.where) for name, file in files.items()},
        **{option.name: option.read(given.get(option.name)) for option in CONNECTION_OPTIONS},
    }
    try:
        connection = Connection.configured(known.get)
        file = files.get("password" if connection.token is None else "token")
        return replace(connection, secret_file=Path(file.text) if file else None)
    except ConfigurationError as error:
        raise ConfigurationError(f"{url.where}: {error}") from None
