"""Connections to Eureka: a stack's configuration wins over the environment, for every caller.

A stack names further Eurekas under ``eurekube:connections``; a resource gives only the name. Credentials are
looked up for each call, and never enter properties or state.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from eurekube_provider.core.errors import ConfigurationError, FileUnreadable
from eurekube_provider.core.quoting import REDACTION_PLACEHOLDER
from eurekube_provider.core.wording import suggest_name
from eurekube_provider.eureka.connection import (
    SECRET_SETTING_NAMES,
    SETTING_NAMES,
    Connection,
    setting_from_environment,
    split_credentials,
)
from eurekube_provider.registrations.properties import contains_unknown
from eurekube_provider.registrations.values import UNKNOWN

CONFIG_NAMESPACE = "eurekube"
"""The namespace of the configuration keys, whatever the project's name: ``eurekube:url``."""

OFFLINE_VARIABLE = "EUREKUBE_OFFLINE"
"""The environment variable for ``eurekube:offline``: a preview then asks no server."""

FAIL_UNREADABLE_REFRESH_VARIABLE = "EUREKUBE_MUST_READ"
"""The environment variable that makes every refresh fail where Eureka cannot be read."""

DEFAULT_OPERATOR_NAME = "eurekube"
"""The renewer of a registration where neither the registration nor ``eurekube:operatorName`` names one."""

DEFAULT_CONNECTION_NAME = "default"
"""The name of the connection that ``eurekube:url`` and the keys beside it describe."""

SETTING_NAMES_BY_CONNECTION_FIELD = {
    re.sub("-(.)", lambda found: found[1].upper(), name): name for name in SETTING_NAMES
}
"""Keys of a connection in camelCase, each with its name in :meth:`Connection.from_settings`."""

CONFIGURATION_KEY_NAMES = frozenset(
    {
        *SETTING_NAMES_BY_CONNECTION_FIELD,
        *("connections", "operatorName", "organization", "abandonedUrls", "offline", "refreshBeforeUpdate"),
        *("doOwner", "kubeconfig", "context"),
        *("clusterName", "namespaces", "operator", "registrations", "syncers"),
    }
)
"""All keys of a stack's configuration: of the providers, and of this project's program."""

_PLACEHOLDER_URL = "http://eureka.invalid/eureka"
"""A stand-in URL for a connection that has none, so that its other fields can be checked."""

_NUMERIC_CONNECTION_FIELD = "maxAnswerMib"
"""The one field of a connection that may be a number."""

_MIN_HIDDEN_LETTERS = 4
"""The least length of a value that is hidden in messages; a shorter one occurs in any text by chance."""

_CONNECTION_FIELDS_BY_SETTING_NAME = {
    known: field for field, known in SETTING_NAMES_BY_CONNECTION_FIELD.items()
}

_CONNECTIONS_KEY = f"{CONFIG_NAMESPACE}:connections"

SettingLookup = Callable[[str], str | None]
"""A function that looks up a key of the configuration, given without its namespace.

An attribute ``environment`` holds the variables that replace missing keys; without the attribute, those of
this process do. A function with an attribute ``connections_made`` never changes its answers: a connection is
made once and kept there, unless its secret is in a file, whose content may change.
"""


def must_fail_unreadable_refresh() -> bool:
    """Return whether a refresh must fail where Eureka cannot be read: EUREKUBE_MUST_READ, not false or 0."""
    return os.environ.get(FAIL_UNREADABLE_REFRESH_VARIABLE, "").lower() not in ("", "false", "0")


def configured_connection(
    setting: SettingLookup, *, service_url: str | None = None, name: str = DEFAULT_CONNECTION_NAME
) -> Connection:
    """Return the connection that the configuration and the environment describe.

    The default one is ``eurekube:url``, ``eurekube:user`` and so on, else EUREKA_URL, EUREKA_USER ...; one of
    another name is an entry of ``eurekube:connections``, else EUREKA_<NAME>_URL, EUREKA_<NAME>_USER ...

    :param service_url: use these URLs, such as a state's, with the credentials that are configured today.
    :raises ConfigurationError: the URL is missing or malformed, no connection has that name, the name is no
        text, there are credentials of two kinds, or a file is missing.
    """
    if not isinstance(name, str):  # a program may hand over whatever its language lets it write
        raise ConfigurationError("connection must be a text: the name of a connection")
    key = (name, service_url)
    made: dict[Any, Connection] | None = getattr(setting, "connections_made", None)
    environment, prefix = _environment(setting), _variable_prefix(name)
    if made is None or any(
        f"{prefix}{secret.upper()}_FILE" in environment for secret in SECRET_SETTING_NAMES
    ):
        made = {}
    if key not in made:
        is_default = name == DEFAULT_CONNECTION_NAME
        written = setting if is_default else _connection_setting_lookup(setting, name)
        made[key] = _build_connection(setting, written, service_url, name)
    return made[key]


def _build_connection(
    setting: SettingLookup, written: SettingLookup, service_url: str | None, name: str
) -> Connection:
    """Make a connection from its fields, which ``written`` looks up, and the environment."""
    said: dict[str, str | None] = {}

    def field_value(part: str) -> str | None:
        if part not in said:
            said[part] = written(_CONNECTION_FIELDS_BY_SETTING_NAME[part]) or _environment_setting(
                setting, name, part
            )
        return said[part]

    url = field_value("url") or ""
    if name != DEFAULT_CONNECTION_NAME and not url and not service_url:
        raise ConfigurationError(
            f"the connection {name!r} has no URL: pulumi config set --path"
            f" {_CONNECTIONS_KEY}.{name}.url http://eureka.example.com:8761/eureka"
        )
    if field_value("user") is None and "@" in url:
        in_url = Connection.parse(url)
        said |= {"user": in_url.user, "password": in_url.password}
    if service_url:
        said |= {"url": service_url, "zone": None}  # the state's URLs are in order already
    return Connection.from_settings(field_value)


def connection_problems(setting: SettingLookup, connections: Any = None) -> list[str]:
    """Return the problems of each entry of ``eurekube:connections``, also of entries that no resource names.

    Each problem is one sentence, which begins with ``eurekube:connections`` and repeats no credential. A
    missing URL is no problem: the credentials are for the URLs of a state. A file that is not on this machine
    is no problem here: :func:`configured_connection` refuses it where a resource names the connection.

    :param connections: entries to check in place of the configured ones; a value in them may be
        :data:`~eurekube_provider.registrations.values.UNKNOWN`.
    """
    try:
        named = (
            _parse_json_object(connections, _CONNECTIONS_KEY) if connections else _named_connections(setting)
        )
    except ConfigurationError as error:
        return [str(error)]
    problems = []
    for name in sorted(named):
        try:
            entry = _parse_connection_settings(named, name)
            if contains_unknown(entry):
                continue
            has_url = entry.get("url") or _environment_setting(setting, name, "url")
            _build_connection(setting, entry.get, None if has_url else _PLACEHOLDER_URL, name)
        except FileUnreadable:
            continue
        except ConfigurationError as error:
            message = _hide_connection_values(str(error), named[name])
            is_located = message.startswith(_CONNECTIONS_KEY)
            problems.append(message if is_located else f"{_CONNECTIONS_KEY}.{name}: {message}")
    return problems


def may_hold_credentials(connections: Any) -> bool:
    """Return whether ``eurekube:connections`` has more than URLs without credentials and known fields.

    An entry that cannot be read, or a field of an unknown name, may hold a credential.
    """
    try:
        named = _parse_json_object(connections or "{}", "")
        entries = [_parse_connection_settings(named, name) for name in named]
    except ConfigurationError:
        return True
    return any(
        SETTING_NAMES_BY_CONNECTION_FIELD[field] in SECRET_SETTING_NAMES
        or field == "proxy"
        or (isinstance(value, str) and "@" in value)
        for entry in entries
        for field, value in entry.items()
    )


def connection_of_state(setting: SettingLookup, service_urls: Iterable[str], name: str) -> Connection:
    """Return the connection to the servers that a state names, even if the configuration has changed.

    Servers that no configured connection leads to get no credentials, since those may belong to other
    servers; a connection without a URL gives its credentials to the state's servers.

    :raises ConfigurationError: the connection of this name is configured, and wrong.
    """
    urls = tuple(service_urls)
    known = connection_sharing_url(setting, urls, name)
    if known is not None:
        return known
    if _has_url(setting, name):
        secrets = ("user", "password", "token", "secret_file", "client_certificate", "client_key")
        no_secrets: dict[str, Any] = dict.fromkeys(secrets)
        return replace(configured_connection(setting, name=name), service_urls=urls, **no_secrets)
    if name == DEFAULT_CONNECTION_NAME or name in _named_connections(setting):
        return configured_connection(setting, service_url=",".join(urls), name=name)
    return Connection.parse(urls)


def connection_sharing_url(
    setting: SettingLookup, service_urls: Iterable[str], name: str
) -> Connection | None:
    """Return the configured connection, ``name`` first, that shares a URL and so leads to the same Eureka.

    :raises ConfigurationError: the connection of this name is configured, and wrong.
    """
    urls = set(service_urls)
    if _has_url(setting, name):
        own = configured_connection(setting, name=name)
        if not urls.isdisjoint(own.service_urls):
            return own
    for each in connection_names(setting):
        with suppress(ConfigurationError):  # which others report
            other = configured_connection(setting, name=each)
            if not urls.isdisjoint(other.service_urls):
                return other
    return None


def abandoned_urls(setting: SettingLookup) -> frozenset[str]:
    """Return the URLs of ``eurekube:abandonedUrls``: gone for good, or of a Eureka that has another URL now.

    :raises ConfigurationError: the value is neither a list of URLs nor a text with commas.
    """
    text = setting("abandonedUrls")
    if not text:
        return frozenset()
    try:
        written = json.loads(text)
    except ValueError:
        written = text.split(",")
    if not isinstance(written, list) or not all(isinstance(each, str) for each in written):
        raise ConfigurationError(f"{CONFIG_NAMESPACE}:abandonedUrls must be a list of URLs")
    return frozenset(split_credentials(each.strip())[0] for each in written if each.strip())


def connection_names(setting: SettingLookup) -> list[str]:
    """Return the names of the configured connections; of those in the environment only the default one.

    :raises ConfigurationError: ``eurekube:connections`` is no object.
    """
    default = [DEFAULT_CONNECTION_NAME] if _has_url(setting, DEFAULT_CONNECTION_NAME) else []
    return [*default, *sorted(_named_connections(setting))]


def _environment(setting: SettingLookup) -> Mapping[str, str]:
    found: Mapping[str, str] = getattr(setting, "environment", os.environ)
    return found


def _environment_setting(setting: SettingLookup, name: str, part: str) -> str | None:
    """Return a part of a connection, such as its ``url``, from the environment."""
    return setting_from_environment(part, _environment(setting), _variable_prefix(name))


def _named_connections(setting: SettingLookup) -> dict[str, Any]:
    """Return the entries of ``eurekube:connections``, as they are written."""
    return _parse_json_object(setting("connections") or "{}", _CONNECTIONS_KEY)


def _has_url(setting: SettingLookup, name: str) -> bool:
    """Return whether the configuration or the environment gives a connection its URL."""
    if _environment_setting(setting, name, "url"):
        return True
    if name == DEFAULT_CONNECTION_NAME:
        return bool(setting("url"))
    return name in _named_connections(setting) and bool(_connection_setting_lookup(setting, name)("url"))


def _connection_setting_lookup(setting: SettingLookup, name: str) -> SettingLookup:
    """Return a lookup of the fields of one named connection; error messages repeat none of its values."""
    connections = _named_connections(setting)
    _refuse_default_name(connections)
    if name not in connections and not _environment_setting(setting, name, "url"):
        known = ", ".join([DEFAULT_CONNECTION_NAME, *sorted(connections)])
        raise ConfigurationError(
            f"there is no connection {name!r} (there are {known}): pulumi config set --path"
            f" {_CONNECTIONS_KEY}.{name}.url http://eureka.example.com:8761/eureka"
        )
    return _parse_connection_settings(connections, name).get


def _refuse_default_name(connections: Mapping[str, Any]) -> None:
    if DEFAULT_CONNECTION_NAME in connections:
        raise ConfigurationError(
            f"{_CONNECTIONS_KEY}: {DEFAULT_CONNECTION_NAME!r} is the name of"
            f" {CONFIG_NAMESPACE}:url and the keys beside it; call this connection otherwise"
        )


def _parse_connection_settings(connections: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the fields of one named connection, all of known names; a value may be unknown."""
    where = f"{_CONNECTIONS_KEY}.{name}"
    if name == DEFAULT_CONNECTION_NAME:
        _refuse_default_name(connections)
    written = connections.get(name) or {}
    if written is UNKNOWN:
        return {"url": UNKNOWN}
    entry = _parse_json_object(written, where)
    size = entry.get(_NUMERIC_CONNECTION_FIELD)
    if isinstance(size, int | float) and not isinstance(size, bool) and size % 1 == 0:
        entry[_NUMERIC_CONNECTION_FIELD] = str(int(size))  # Pulumi's CLI makes a number of it
    for field, value in entry.items():
        if field not in SETTING_NAMES_BY_CONNECTION_FIELD:
            raise ConfigurationError(
                f"{where}: there is no field {field!r}; "
                f"{suggest_name(field, SETTING_NAMES_BY_CONNECTION_FIELD)}"
            )
        if not isinstance(value, str) and value is not UNKNOWN:
            raise ConfigurationError(f"{where}.{field} must be a text: write it in quotes")
    return entry


def _hide_connection_values(message: str, entry: Any) -> str:
    """Hide an entry's values in a message, since each may be a misplaced credential; paths stay."""
    values = entry.values() if isinstance(entry, Mapping) else ()
    for value in values:
        if isinstance(value, str) and len(value.strip()) >= _MIN_HIDDEN_LETTERS and "/" not in value:
            message = message.replace(value, REDACTION_PLACEHOLDER)
    return message


def _parse_json_object(value: Any, where: str) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    if not isinstance(value, Mapping):
        raise ConfigurationError(
            f"{where} must be an object: pulumi config set --path {_CONNECTIONS_KEY}.eu.url http://..."
        )
    return dict(value)


def _variable_prefix(name: str) -> str:
    """Return the prefix of a connection's environment variables: EUREKA_, or EUREKA_EU_1_ for ``eu-1``."""
    if name == DEFAULT_CONNECTION_NAME:
        return "EUREKA_"
    return f"EUREKA_{re.sub('[^A-Za-z0-9]', '_', name).upper()}_"
