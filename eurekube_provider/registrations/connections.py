"""How to reach Eureka, as a stack's configuration and the environment say.

One precedence for the program, the dynamic providers and the command line: the configuration wins over the
environment. A stack that registers at several Eurekas names the others under ``eurekube:connections``; a
resource only says the name. Credentials are found anew each time, and never enter properties or state.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.wording import nearest
from eurekube_provider.eureka.connection import (
    NAMES,
    SECRETS,
    Connection,
    from_environment,
    split_credentials,
)

NAMESPACE = "eurekube"
"""The namespace of the configuration keys, whatever the project's name: ``eurekube:url``."""

OFFLINE_VARIABLE = "EUREKUBE_OFFLINE"
"""The environment's word for ``eurekube:offline``: with it a preview asks no server."""

DEFAULT_OPERATOR_NAME = "eurekube"
"""Who renews a registration where neither it nor ``eurekube:operatorName`` names somebody."""

DEFAULT_CONNECTION = "default"
"""The connection that ``eurekube:url`` and the keys beside it describe."""

FIELDS = {re.sub("-(.)", lambda found: found[1].upper(), name): name for name in NAMES}
"""What a connection consists of, in camelCase, and the same as :meth:`Connection.configured` calls it."""

_CAMEL = {known: field for field, known in FIELDS.items()}

Setting = Callable[[str], str | None]
"""Looks up a key of the configuration, without its namespace.

What has an attribute ``environment`` says with it which variables stand for what is not configured; for any
other those of this process do. What has an attribute ``connections_made`` never changes: a connection is made
of it once and kept there, unless a file has its secret, which may be another one by now.
"""


def _environment(setting: Setting) -> Mapping[str, str]:
    found: Mapping[str, str] = getattr(setting, "environment", os.environ)
    return found


def configured_connection(
    setting: Setting,
    environment: Mapping[str, str] | None = None,
    service_url: str | None = None,
    name: str = DEFAULT_CONNECTION,
) -> Connection:
    """The connection that the configuration and the environment describe.

    The default one is ``eurekube:url``, ``eurekube:user`` and so on, else EUREKA_URL, EUREKA_USER ...; one
    of another name is an entry of ``eurekube:connections``, else EUREKA_<NAME>_URL, EUREKA_<NAME>_USER ...

    :param service_url: use these URLs, of a state say, with the credentials that are configured today.
    :raises ConfigurationError: no URL, one that is none, no connection of that name, a name that is no text,
        credentials of two kinds, a file that is not there.
    """
    if not isinstance(name, str):  # a program may hand over whatever its language lets it write
        raise ConfigurationError("connection must be a text: the name of a connection")
    if environment is not None:
        return _configured(setting, environment, service_url, name)
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


def connection_of_state(setting: Setting, service_urls: Iterable[str], name: str) -> Connection:
    """The connection to the servers that a state names, whatever is configured by now.

    Servers that no connection leads to get no credentials, since theirs may have been others; those of a
    connection that has no URL belong to the state's.

    :raises ConfigurationError: the connection of this name is there, and wrong.
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
    """The connection that is configured and shares a URL with these, and so leads to the same Eureka.

    :param name: is asked first.
    :raises ConfigurationError: the connection of this name is there, and wrong.
    """
    urls = set(service_urls)
    if _has_url(setting, name):
        own = configured_connection(setting, name=name)
        if not urls.isdisjoint(own.service_urls):
            return own
    others = (_connection_if_usable(setting, each) for each in connection_names(setting))
    return next((other for other in others if other and not urls.isdisjoint(other.service_urls)), None)


def abandoned_urls(setting: Setting) -> frozenset[str]:
    """The servers at which nothing is to be removed any more: ``eurekube:abandonedUrls``.

    They are gone for good, or lead to an Eureka that is known by another URL now.

    :raises ConfigurationError: it is neither a list of URLs nor a text with commas.
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
    """The connections that the configuration describes; of those in the environment only the default one.

    :raises ConfigurationError: ``eurekube:connections`` is no object.
    """
    default = setting("url") or from_environment("url", _environment(setting), _prefix(DEFAULT_CONNECTION))
    named = _object(setting("connections") or "{}", f"{NAMESPACE}:connections")
    return [*([DEFAULT_CONNECTION] if default else []), *sorted(named)]


def _has_url(setting: Setting, name: str) -> bool:
    """Whether the configuration or the environment says where a connection leads."""
    if from_environment("url", _environment(setting), _prefix(name)):
        return True
    if name == DEFAULT_CONNECTION:
        return bool(setting("url"))
    is_there = _is_there(setting, name)
    return is_there and bool(_settings_of_entry(setting, _environment(setting), name)("url"))


def _is_there(setting: Setting, name: str) -> bool:
    """Whether there is a connection of this name."""
    if name == DEFAULT_CONNECTION or from_environment("url", _environment(setting), _prefix(name)):
        return True
    return name in _object(setting("connections") or "{}", f"{NAMESPACE}:connections")


def _connection_if_usable(setting: Setting, name: str) -> Connection | None:
    """A connection that is not the one that is asked for: what is wrong with it is not to be said here."""
    try:
        return configured_connection(setting, name=name)
    except ConfigurationError:
        return None


def _settings_of_entry(setting: Setting, environment: Mapping[str, str], name: str) -> Setting:
    """The settings of one entry of ``eurekube:connections``; no message repeats a value of it."""
    where = f"{NAMESPACE}:connections"
    connections = _object(setting("connections") or "{}", where)
    if DEFAULT_CONNECTION in connections:
        raise ConfigurationError(
            f"{where}: {DEFAULT_CONNECTION!r} is the name of {NAMESPACE}:url and the keys beside it; call"
            " this connection otherwise"
        )
    if name not in connections and not from_environment("url", environment, _prefix(name)):
        known = ", ".join([DEFAULT_CONNECTION, *sorted(connections)])
        raise ConfigurationError(
            f"there is no connection {name!r} (there are {known}): pulumi config set --path"
            f" {where}.{name}.url http://eureka.example.com:8761/eureka"
        )
    entry = _object(connections.get(name) or {}, f"{where}.{name}")
    for field, value in entry.items():
        if field not in FIELDS:
            raise ConfigurationError(f"{where}.{name}: there is no field {field!r}; {nearest(field, FIELDS)}")
        if not isinstance(value, str):
            raise ConfigurationError(f"{where}.{name}.{field} must be a text")
    return entry.get


def _object(value: Any, where: str) -> dict[str, Any]:
    """An object of the configuration, which arrives as JSON."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    if not isinstance(value, dict):
        raise ConfigurationError(
            f"{where} must be an object: pulumi config set --path {NAMESPACE}:connections.eu.url http://..."
        )
    return value


def _prefix(name: str) -> str:
    """What the environment variables of a connection begin with: EUREKA_, or EUREKA_EU_1_ for ``eu-1``."""
    if name == DEFAULT_CONNECTION:
        return "EUREKA_"
    return f"EUREKA_{re.sub('[^A-Za-z0-9]', '_', name).upper()}_"
