"""The configuration of the stack's default provider (``eurekube:url`` ...), or of one that a program makes.

The latter takes no credentials from the environment if it has a URL of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.model import EMPTY_MAPPING
from eurekube_provider.core.wording import suggest_name
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.registrations.connections import (
    OFFLINE_VARIABLE,
    SETTING_NAMES_BY_CONNECTION_FIELD,
    abandoned_urls,
    configured_connection,
    connection_problems,
    may_hold_credentials,
)
from eurekube_provider.registrations.properties import contains_unknown
from eurekube_provider.registrations.property_check import CheckFailure
from eurekube_provider.registrations.values import UNKNOWN


@dataclass(frozen=True, slots=True)
class ConfigurationKey:
    """One key of the configuration; its name is Pulumi's, and its type one of the package's schema."""

    description: str
    type: str = "string"
    is_secret: bool = False


_Key = ConfigurationKey
CONFIGURATION_KEYS: Mapping[str, ConfigurationKey] = {
    "url": _Key("The URLs of one Eureka, with a comma between them: http://eureka-1:8761/eureka,http://..."),
    "user": _Key("For HTTP basic authentication."),
    "password": _Key("For HTTP basic authentication.", is_secret=True),
    "token": _Key("A bearer token, in place of user and password.", is_secret=True),
    "caFile": _Key("A PEM file with the authorities to trust for https."),
    "clientCertificate": _Key("A PEM file with the certificate to show (mTLS)."),
    "clientKey": _Key("A PEM file with its key, where that is another file."),
    "proxy": _Key("The URL of a proxy.", is_secret=True),
    "zone": _Key("The zone whose Eureka servers are asked first, where the URLs are written zone=URL."),
    "mode": _Key("How many changes at once are sent: auto, rest or batch."),
    "maxAnswerMib": _Key(
        "The largest answer of Eureka that is read, in MiB, also once it is decompressed: 128."
    ),
    "connections": _Key(
        "Other Eurekas by name, each with the keys above; a resource names one as its connection.", "object"
    ),
    "operatorName": _Key("Who renews what is registered, where a resource does not say: eurekube."),
    "organization": _Key(
        "Whom registrations belong to, where the backend is a bucket or a folder, or the stack is another"
        " organization's than the one that is called organization."
    ),
    "abandonedUrls": _Key("URLs of servers that are gone for good, or known by another URL now.", "object"),
    "offline": _Key("Whether previews ask no server.", "boolean"),
    "refreshBeforeUpdate": _Key(
        "Whether each preview, update and destroy first reads what is registered, with the configuration of "
        "the last update: false.",
        "boolean",
    ),
    "doOwner": _Key("As whom pulumi do --stateless registers, patches and deletes. No stack reads it."),
    "kubeconfig": _Key("The file that says how to reach the cluster whose endpoints are looked up."),
    "context": _Key("Which of its contexts."),
}

KEYS_OF_PROJECT_PROGRAM = frozenset({"clusterName", "namespaces", "operator", "registrations", "syncers"})
"""Keys of a stack's configuration that belong to this project's program, in the same namespace."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """The configuration of a provider; a :data:`~eurekube_provider.registrations.connections.SettingLookup`.

    :ivar is_default_provider: True for the stack's default provider, False for one that a program made.
    :ivar is_stateless: True if there is no stack, and so no state and no unique URN.
    :ivar connections_made: connections by name and URLs, so that each is made once.
    """

    values: Mapping[str, Any] = field(default_factory=lambda: EMPTY_MAPPING)
    is_default_provider: bool = True
    is_stateless: bool = False
    connections_made: dict[Any, Connection] = field(default_factory=dict, repr=False, compare=False)

    def __call__(self, key: str) -> str | None:
        """Return the value of a key, an object as JSON; None for a missing or unknown value."""
        value = self.values.get(key)
        if value is None or contains_unknown(value):
            return None
        if isinstance(value, bool):
            return str(value).lower()
        return value if isinstance(value, str) else json.dumps(value)

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment variables that replace missing keys; none for a program's own Eureka."""
        return os.environ if self.is_default_provider or not self.values.get("url") else EMPTY_MAPPING

    @property
    def is_offline(self) -> bool:
        """True if a preview must ask no server."""
        return _is_true(self("offline")) or _is_true(os.environ.get(OFFLINE_VARIABLE))

    @property
    def refreshes_before_update(self) -> bool:
        """True if the engine is to read a registration before each preview, update and destroy."""
        return _is_true(self("refreshBeforeUpdate"))

    def secret_keys(self) -> frozenset[str]:
        """Return the keys whose values hold a credential, also one that a program or a file has in clear."""
        found = {
            key for key in self.values if key in CONFIGURATION_KEYS and CONFIGURATION_KEYS[key].is_secret
        }
        if "@" in json.dumps(self.values.get("url"), default=str):
            found.add("url")
        if may_hold_credentials(self.values.get("connections")):
            found.add("connections")
        return frozenset(found)

    def problems(self) -> list[CheckFailure]:
        """Return the unusable values, with their remedies; no message repeats a secret."""
        known = {*CONFIGURATION_KEYS, *(KEYS_OF_PROJECT_PROGRAM if self.is_default_provider else ())}
        found = [
            CheckFailure(key, f"there is no such key; {suggest_name(key, CONFIGURATION_KEYS)}")
            for key in self.values
            if key not in known and not key.startswith(("__", "version", "pluginDownloadURL"))
        ]
        if "/" in (self("organization") or ""):
            found.append(CheckFailure("organization", "must have no slash, which separates an owner's parts"))
        found += [
            CheckFailure(flag, "must be true or false")
            for flag in ("offline", "refreshBeforeUpdate")
            if (self(flag) or "false").lower() not in ("true", "1", "false", "0")
        ]
        named = self.values.get("connections")
        if named not in (None, UNKNOWN):
            found += [CheckFailure("connections", message) for message in connection_problems(self, named)]
        if any(contains_unknown(self.values.get(key)) for key in SETTING_NAMES_BY_CONNECTION_FIELD):
            return found
        if self("url"):
            try:
                configured_connection(self)
            except ConfigurationError as error:
                found.append(CheckFailure("url", str(error)))
        try:
            abandoned_urls(self)
        except ConfigurationError as error:
            found.append(CheckFailure("abandonedUrls", str(error)))
        return found


def _is_true(text: str | None) -> bool:
    return (text or "").lower() in ("true", "1")
