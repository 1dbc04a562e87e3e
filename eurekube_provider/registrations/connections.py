"""Connections to Eureka, read from a stack's configuration and the environment.

One precedence for the program, the dynamic providers and the command line: the configuration wins over the
environment. A stack that registers at several Eurekas names the others under ``eurekube:connections``; a
resource gives only the name. Credentials are looked up for each call, and never enter properties or state.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from eurekube_provider.core.errors import ConfigurationError, FileUnreadable
from eurekube_provider.core.quoting import HIDDEN
from eurekube_provider.core.wording import nearest
from eurekube_provider.eureka.connection import (
    NAMES,
    SECRETS,
    Connection,
    from_environment,
    split_credentials,
)
from eurekube_provider.registrations.properties import contains_unknown
from eurekube_provider.registrations.values import UNKNOWN

NAMESPACE = "eurekube"
"""The namespace of the configuration keys, whatever the project's name: ``eurekube:url``."""

OFFLINE_VARIABLE = "EUREKUBE_OFFLINE"
"""The environment variable for ``eurekube:offline``: a preview then asks no server."""

MUST_READ_VARIABLE = "EUREKUBE_MUST_READ"
"""The environment variable that makes every refresh fail where Eureka cannot be read."""

DEFAULT_OPERATOR_NAME = "eurekube"
"""The renewer of a registration where neither the registration nor ``eurekube:operatorName`` names one."""

DEFAULT_CONNECTION = "default"
"""The name of the connection that ``eurekube:url`` and the keys beside it describe."""

FIELDS = {re.sub("-(.)", lambda found: found[1].upper(), name): name for name in NAMES}
"""Keys of a connection in camelCase, each with its name in :meth:`Connection.configured`."""

_NOWHERE = "http://eureka.invalid/eureka"
"""A stand-in URL for a connection that has none, so that its other fields can be checked."""

_SIZE = "maxAnswerMib"
"""The one field of a connection that may be a number."""

_SHORTEST = 4
"""The least length of a value that is hidden in messages; a shorter one occurs in any text by chance."""

_CAMEL = {known: field for field, known in FIELDS.items()}

Setting = Callable[[str], str | None]
"""A function that looks up a key of the configuration, given without its namespace.

An attribute ``environment`` holds the variables that replace missing keys; without the attribute, those of
this process do. A function with an attribute ``connections_made`` never changes its answers: a connection is
made once and kept there, unless its secret is in a file, whose content may change.
"""


def must_read() -> bool:
    """Return whether each refresh must fail where Eureka cannot be read: EUREKUBE_MUST_READ is set, not to
    false or 0.
    """
    return os.environ.get(MUST_READ_VARIABLE, "").lower() not in ("", "false", "0")


def _environment(setting: Setting) -> Mapping[str, str]:
    found: Mapping[str, str] = getattr(setting, "environment", os.environ)
    return found


def configured_connection(
    setting: Setting, *, service_url: str | None = None, name: str = DEFAULT_CONNECTION
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
    environment = _environment(setting)
    made: dict[Any, Connection] | None = getattr(setting, "connections_made", None)
    if made is None or any(f"{_prefix(name)}{secret.upper()}_FILE" in environment for secret in SECRETS):
        return _configured(setting, environment, service_url, name)
    if (name, service_url) not in made:
        made[name, service_url] = _configured(setting, environment, service_url, name)
    return made[name, service_url]


def _configured(
    setting: Setting, environment: Mapping[str, str], service_url: str | None, name: str
) -> Connection:
    written = setting if name == DEFAULT_CONNECTION else _settings_of_entry(setting, environment, name)
    return _made_of(written, environment, service_url, name)


def _made_of(
    written: Setting, environment: Mapping[str, str], service_url: str | None, name: str
) -> Connection:
    """Make a connection of its configured fields and the environment, without any other connection's
    fields.
    """
    prefix = _prefix(name)
    said: dict[str, str | None] = {}

    def known(part: str) -> str | None:
        if part not in said:
            said[part] = written(_CAMEL[part]) or from_environment(part, environment, prefix)
        return said[part]

    url = known("url") or ""
    if name != DEFAULT_CONNECTION and not url and not service_url:
        raise ConfigurationError(
            f"the connection {name!r} has no URL: pulumi config set --path"
            f" {NAMESPACE}:connections.{name}.url http://eureka.example.com:8761/eureka"
        )
    if known("user") is None and "@" in url:
        in_url = Connection.parse(url)
        said |= {"user": in_url.user, "password": in_url.password}
    if service_url:
        said |= {"url": service_url, "zone": None}  # the state's URLs are in order already
    return Connection.configured(known)


def connection_problems(setting: Setting, connections: Any = None) -> list[str]:
    """Return the problems of each entry of ``eurekube:connections``, also of entries that no resource names.

    Each problem is one sentence, which begins with ``eurekube:connections`` and repeats no credential. A
    missing URL is no problem: the credentials are for the URLs of a state. A file that is not on this machine
    is no problem here: :func:`configured_connection` refuses it where a resource names the connection.

    :param connections: entries to check in place of the configured ones; a value in them may be
        :data:`~eurekube_provider.registrations.values.UNKNOWN`.
    """
    where = f"{NAMESPACE}:connections"
    try:
        named = _object(connections or setting("connections") or "{}", where)
    except ConfigurationError as error:
        return [str(error)]
    environment = _environment(setting)
    problems = []
    for name in sorted(named):
        try:
            entry = _entry_of(named, name)
            if contains_unknown(entry):
                continue
            has_url = entry.get("url") or from_environment("url", environment, _prefix(name))
            _made_of(entry.get, environment, None if has_url else _NOWHERE, name)
        except FileUnreadable:
            continue
        except ConfigurationError as error:
            message = _without_values(str(error), named[name])
            problems.append(message if message.startswith(where) else f"{where}.{name}: {message}")
    return problems


def may_hold_credentials(connections: Any) -> bool:
    """Return whether ``eurekube:connections`` has more than URLs without credentials and known fields.

    An entry that cannot be read, or a field of an unknown name, may hold a credential.
    """
    try:
        named = _object(connections or "{}", "")
        entries = [_entry_of(named, name) for name in named]
    except ConfigurationError:
        return True
    return any(
        FIELDS[field] in SECRETS or field == "proxy" or (isinstance(value, str) and "@" in value)
        for entry in entries
        for field, value in entry.items()
    )


def connection_of_state(setting: Setting, service_urls: Iterable[str], name: str) -> Connection:
    """Return the connection to the servers that a state names, even if the configuration has changed.

    Servers that no configured connection leads to get no credentials, since those may belong to other
    servers; a connection without a URL gives its credentials to the state's servers.

    :raises ConfigurationError: the connection of this name is configured, and wrong.
    """
    urls = tuple(service_urls)
    known = connection_to(setting, urls, name)
    if known is not None:
        return known
    if _has_url(setting, name):
        return replace(
            configured_connection(setting, name=name),
            service_urls=urls,
            user=None,
            password=None,
            token=None,
            secret_file=None,
            client_certificate=None,
            client_key=None,
        )
    if _is_there(setting, name):
        return configured_connection(setting, service_url=",".join(urls), name=name)
    return Connection.parse(urls)


def connection_to(setting: Setting, service_urls: Iterable[str], name: str) -> Connection | None:
    """Return the configured connection that shares a URL with ``service_urls``, and so leads to the same
    Eureka.

    :param name: the connection that is tried first.
    :raises ConfigurationError: the connection of this name is configured, and wrong.
    """
    urls = set(service_urls)
    if _has_url(setting, name):
        own = configured_connection(setting, name=name)
        if not urls.isdisjoint(own.service_urls):
            return own
    others = (_connection_if_usable(setting, each) for each in connection_names(setting))
    return next((other for other in others if other and not urls.isdisjoint(other.service_urls)), None)


def abandoned_urls(setting: Setting) -> frozenset[str]:
    """Return the URLs of ``eurekube:abandonedUrls``: servers from which no registration is removed any more.

    These servers are gone for good, or lead to a Eureka that is known by another URL now.

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
        raise ConfigurationError(f"{NAMESPACE}:abandonedUrls must be a list of URLs")
    return frozenset(split_credentials(each.strip())[0] for each in written if each.strip())


def connection_names(setting: Setting) -> list[str]:
    """Return the names of the configured connections; of those in the environment only the default one.

    :raises ConfigurationError: ``eurekube:connections`` is no object.
    """
    default = setting("url") or from_environment("url", _environment(setting), _prefix(DEFAULT_CONNECTION))
    named = _object(setting("connections") or "{}", f"{NAMESPACE}:connections")
    return [*([DEFAULT_CONNECTION] if default else []), *sorted(named)]


def _has_url(setting: Setting, name: str) -> bool:
    """Return whether the configuration or the environment gives a connection its URL."""
    if from_environment("url", _environment(setting), _prefix(name)):
        return True
    if name == DEFAULT_CONNECTION:
        return bool(setting("url"))
    is_there = _is_there(setting, name)
    return is_there and bool(_settings_of_entry(setting, _environment(setting), name)("url"))


def _is_there(setting: Setting, name: str) -> bool:
    """Return whether the configuration or the environment has a connection of this name."""
    if name == DEFAULT_CONNECTION or from_environment("url", _environment(setting), _prefix(name)):
        return True
    return name in _object(setting("connections") or "{}", f"{NAMESPACE}:connections")


def _connection_if_usable(setting: Setting, name: str) -> Connection | None:
    """Return the connection of this name; None where its configuration is wrong, which others report."""
    try:
        return configured_connection(setting, name=name)
    except ConfigurationError:
        return None


def _settings_of_entry(setting: Setting, environment: Mapping[str, str], name: str) -> Setting:
    """Return the look-up of one entry of ``eurekube:connections``; error messages repeat none of its
    values.
    """
    where = f"{NAMESPACE}:connections"
    connections = _object(setting("connections") or "{}", where)
    _refuse_default(connections)
    if name not in connections and not from_environment("url", environment, _prefix(name)):
        known = ", ".join([DEFAULT_CONNECTION, *sorted(connections)])
        raise ConfigurationError(
            f"there is no connection {name!r} (there are {known}): pulumi config set --path"
            f" {where}.{name}.url http://eureka.example.com:8761/eureka"
        )
    return _entry_of(connections, name).get


def _refuse_default(connections: Mapping[str, Any]) -> None:
    if DEFAULT_CONNECTION in connections:
        raise ConfigurationError(
            f"{NAMESPACE}:connections: {DEFAULT_CONNECTION!r} is the name of {NAMESPACE}:url and the keys"
            " beside it; call this connection otherwise"
        )


def _entry_of(connections: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return one entry of ``eurekube:connections`` and require known fields; a value may be unknown."""
    where = f"{NAMESPACE}:connections.{name}"
    if name == DEFAULT_CONNECTION:
        _refuse_default(connections)
    written = connections.get(name) or {}
    if written is UNKNOWN:
        return {"url": UNKNOWN}
    entry = _object(written, where)
    size = entry.get(_SIZE)
    if isinstance(size, int | float) and not isinstance(size, bool) and size % 1 == 0:
        entry[_SIZE] = str(int(size))  # Pulumi's CLI makes a number of it
    for field, value in entry.items():
        if field not in FIELDS:
            raise ConfigurationError(f"{where}: there is no field {field!r}; {nearest(field, FIELDS)}")
        if not isinstance(value, str) and value is not UNKNOWN:
            raise ConfigurationError(f"{where}.{field} must be a text: write it in quotes")
    return entry


def _without_values(message: str, entry: Any) -> str:
    """Hide the values of a connection's entry in a message, since each may be a misplaced credential;
    paths stay.
    """
    values = entry.values() if isinstance(entry, Mapping) else ()
    for value in values:
        if isinstance(value, str) and len(value.strip()) >= _SHORTEST and "/" not in value:
            message = message.replace(value, HIDDEN)
    return message


def _object(value: Any, where: str) -> dict[str, Any]:
    """Return a JSON object of the configuration, parsed."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    if not isinstance(value, Mapping):
        raise ConfigurationError(
            f"{where} must be an object: pulumi config set --path {NAMESPACE}:connections.eu.url http://..."
        )
    return dict(value)


def _prefix(name: str) -> str:
    """Return the prefix of a connection's environment variables: EUREKA_, or EUREKA_EU_1_ for ``eu-1``."""
    if name == DEFAULT_CONNECTION:
        return "EUREKA_"
    return f"EUREKA_{re.sub('[^A-Za-z0-9]', '_', name).upper()}_"
