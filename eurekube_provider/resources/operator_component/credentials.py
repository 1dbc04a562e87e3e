"""The operator's credentials and trusted certificates: from a Secret of its own, or an existing one."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import NotRequired, TypedDict

import pulumi

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.objects import is_object_name
from eurekube_provider.resources.labels import OPERATOR_APP_NAME

CREDENTIALS_SECRET_NAME = f"{OPERATOR_APP_NAME}-eureka"
"""The name of the Secret that the component makes; the engine adds a suffix for each new content."""

CREDENTIALS_VERSION_ANNOTATION = "eurekube.io/eureka-secret-version"

CREDENTIALS_DIRECTORY = "/etc/eurekube"
"""The directory of the entries that are files in the container."""


@dataclass(frozen=True, slots=True)
class SecretEntry:
    """One entry that a Secret may hold.

    :ivar name: the name of the component's argument.
    :ivar key: the key in the Secret that the component makes, and the name of a file.
    :ivar variable: the environment variable with the value, or with the path of the file.
    """

    name: str
    key: str
    variable: str
    is_file: bool = False


CA_ENTRY = SecretEntry("ca_certificate", "ca.crt", "EUREKA_CA_FILE", is_file=True)
SECRET_ENTRIES = (
    SecretEntry("user", "user", "EUREKA_USER"),
    SecretEntry("password", "password", "EUREKA_PASSWORD"),
    SecretEntry("token", "token", "EUREKA_TOKEN"),
    CA_ENTRY,
    SecretEntry("client_certificate", "tls.crt", "EUREKA_CLIENT_CERTIFICATE", is_file=True),
    SecretEntry("client_key", "tls.key", "EUREKA_CLIENT_KEY", is_file=True),
)

_SECRET_VARIABLE_NAMES = ("EUREKA_PASSWORD", "EUREKA_TOKEN")


@dataclass(kw_only=True, slots=True)
class EurekaSecretArgs:
    """A Secret in the operator's namespace that somebody else makes, e.g. External Secrets or Sealed Secrets.

    The operator takes from it what a key is given for, and no more.

    :ivar name: the Secret's name.
    :ivar user_key: under which key it has the user, e.g. ``username``.
    :ivar password_key: under which key it has the password.
    :ivar token_key: under which key it has a bearer token.
    :ivar ca_certificate_key: under which key it has the authorities to trust.
    :ivar client_certificate_key: under which key it has the certificate to show.
    :ivar client_key_key: the client certificate's key, unless that lies beside the certificate.
    :ivar version: any text that changes with what the Secret holds, e.g. its resourceVersion: another one
        replaces the pods, which read it at their start. No hash of a password: it stands in clear.
    """

    name: pulumi.Input[str]
    user_key: str | None = None
    password_key: str | None = None
    token_key: str | None = None
    ca_certificate_key: str | None = None
    client_certificate_key: str | None = None
    client_key_key: str | None = None
    version: pulumi.Input[str] | None = None


class EurekaSecretArgsDict(TypedDict):
    """A dictionary with the keys of :class:`EurekaSecretArgs`."""

    name: pulumi.Input[str]
    user_key: NotRequired[str | None]
    password_key: NotRequired[str | None]
    token_key: NotRequired[str | None]
    ca_certificate_key: NotRequired[str | None]
    client_certificate_key: NotRequired[str | None]
    client_key_key: NotRequired[str | None]
    version: NotRequired[pulumi.Input[str] | None]


@dataclass(frozen=True, slots=True)
class SecretKeyRef:
    """The key of a Secret under which the pods find one entry.

    :ivar secret: the Secret's name; None for the Secret that the component makes.
    """

    entry: SecretEntry
    secret: pulumi.Input[str] | None
    key: str


class Credentials:
    """An operator's credentials and certificates for Eureka.

    :param given: the component's own arguments, by the names of :data:`SECRET_ENTRIES`.
    :param secret: the existing Secret; None without one.
    """

    def __init__(
        self, given: Mapping[str, pulumi.Input[str] | None], secret: EurekaSecretArgs | None
    ) -> None:
        self.secret = secret
        self.secret_content = {
            entry.key: value for entry in SECRET_ENTRIES if (value := given.get(entry.name)) is not None
        }
        """Content of the Secret that the component makes, by key."""
        self.refs = [
            SecretKeyRef(entry, None, entry.key)
            for entry in SECRET_ENTRIES
            if entry.key in self.secret_content
        ]
        if secret is not None:
            keys = ((entry, getattr(secret, f"{entry.name}_key")) for entry in SECRET_ENTRIES)
            self.refs += [SecretKeyRef(entry, secret.name, key) for entry, key in keys if key is not None]

    def check(self, environment: Collection[str]) -> None:
        """Refuse credentials with which the operator could not start, or that would stand in clear.

        :param environment: the names of the further variables.
        :raises ConfigurationError: one sentence that names the argument, and repeats no value.
        """
        if self.secret is not None:
            self._check_secret(self.secret)
        said = {ref.entry.name for ref in self.refs}
        for ref in self.refs:
            if ref.entry.variable in environment:
                raise ConfigurationError(
                    f"environment must not set {ref.entry.variable}:"
                    f" {self._argument_name(ref.entry.name)} says it"
                )
        for variable in _SECRET_VARIABLE_NAMES:
            if variable in environment:
                name = variable.removeprefix("EUREKA_").lower()
                raise ConfigurationError(
                    f"environment must not set {variable}, which would stand in clear in the Deployment: give"
                    f" {name}, or eureka_secret with a {name}_key"
                )
        if "token" in said and said & {"user", "password"}:
            raise ConfigurationError(
                "Eureka takes a user and password or a bearer token, not both: leave"
                f" {self._argument_name('token')} away, or the others"
            )
        if "password" in said and "user" not in said and "EUREKA_USER" not in environment:
            raise ConfigurationError(
                f"{self._argument_name('password')} means nothing without a user: add"
                f" {self._argument_name('user')}, or EUREKA_USER to environment"
            )
        if "client_key" in said and "client_certificate" not in said:
            raise ConfigurationError(
                f"{self._argument_name('client_key')} means nothing without its certificate: add"
                f" {self._argument_name('client_certificate')}"
            )

    def _check_secret(self, secret: EurekaSecretArgs) -> None:
        keys = {
            item.name: value
            for item in fields(secret)
            if item.name not in ("name", "version") and (value := getattr(secret, item.name)) is not None
        }
        name = secret.name
        if isinstance(name, str) and not is_object_name(name):
            raise ConfigurationError(
                f"eureka_secret: the name {name!r} must be a Secret's: small letters, digits, '-' and '.'"
            )
        if name == CREDENTIALS_SECRET_NAME:
            raise ConfigurationError(
                f"eureka_secret: {name} is the Secret that this component makes itself, and takes away where"
                " it is not needed: call the other one otherwise"
            )
        if not keys:
            raise ConfigurationError(
                "eureka_secret takes nothing from the Secret: say under which keys it has what, e.g."
                " user_key='username' and password_key='password'"
            )
        for argument, key in keys.items():
            if not isinstance(key, str) or not re.fullmatch(r"[-._a-zA-Z0-9]{1,253}", key):
                raise ConfigurationError(
                    f"eureka_secret: {argument} must be one of the Secret's keys, which consist of letters, "
                    "digits, '-', '_' and '.'"
                )
        own = [entry.name for entry in SECRET_ENTRIES if entry.key in self.secret_content]
        for given in own:
            if given != CA_ENTRY.name or f"{CA_ENTRY.name}_key" in keys:
                raise ConfigurationError(
                    f"{given} and eureka_secret cannot both be given: the operator has"
                    f" {'it' if f'{given}_key' in keys else 'its credentials'} from one of them"
                )

    def _argument_name(self, name: str) -> str:
        """Return the argument that gives an entry: the component's own, or a key's in ``eureka_secret``."""
        return name if self.secret is None or name == CA_ENTRY.name else f"eureka_secret.{name}_key"
