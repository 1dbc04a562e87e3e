"""The owner of registrations that ``pulumi do`` makes without a state, or without a project.

Everybody has the same URN there, and the engine passes any instance that was read to a deletion. So its user
gives an owner as ``eurekube:doOwner``, and only that owner's instances are changed or removed.
"""

from __future__ import annotations

import re

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.identity import NATIVE_INSTANCE_TYPE, StackOwner
from eurekube_provider.core.stack_identity import DEFAULT_ORGANIZATION
from eurekube_provider.provider.configuration import Configuration
from eurekube_provider.registrations.connections import DEFAULT_CONNECTION_NAME
from eurekube_provider.registrations.defaults import with_defaults
from eurekube_provider.registrations.properties import ID_IS_DEFAULT_PROPERTY, Properties

_STATELESS_PROJECT_NAME = "pulumi:do"
"""The project part of these owners. Pulumi allows no colon in a project's name, so that no stack has it."""

_CLI_GLOBAL_PROJECT_NAME = "default-global-project"
"""The project in which the CLI runs ``pulumi do`` outside of a project; do_global.go of pulumi/pulumi."""

_OWNER_NAME_PATTERN = re.compile(r"[A-Za-z0-9_.\-]+")


def stateless_owner(configuration: Configuration, application: str, instance_id: str) -> StackOwner:
    """Return the owner of one registration without a state. Each has its own, since an update removes its
    owner's other instances. Application and id are normalised as in the check.
    """
    organization = configuration("organization") or DEFAULT_ORGANIZATION
    name = f"{application.strip().upper()}/{instance_id.strip()}"
    return StackOwner(organization, _STATELESS_PROJECT_NAME, configuration("doOwner") or "nobody", name)


def refuse_stack_shared_by_everybody(configuration: Configuration, project: str) -> None:
    """Refuse ``pulumi do`` outside of a project without an organization: everybody has that stack."""
    if project == _CLI_GLOBAL_PROJECT_NAME and not configuration("organization"):
        raise ConfigurationError(
            "outside of a project pulumi do has a stack that everybody has, so that two people would take"
            " each other's registrations: run it in a project, or set organization to a name of your own"
            " (--eurekube:organization NAME)"
        )


def require_do_owner(configuration: Configuration, token: str) -> None:
    """Require a usable ``doOwner`` for a registration without a state, and one instance as the resource."""
    owner = configuration("doOwner")
    if not owner:
        raise ConfigurationError(
            "pulumi do --stateless gives everybody one URN, so that nobody could tell whose a registration"
            " is: leave out --stateless, and a stack owns it, or set doOwner to a name of your own"
            " (--eurekube:do-owner NAME, or doOwner in the file of --provider-file)"
        )
    if not _OWNER_NAME_PATTERN.fullmatch(owner):
        raise ConfigurationError("doOwner must be letters, digits, dots, dashes and underscores")
    if "/" in (configuration("organization") or ""):  # this command checks no configuration
        raise ConfigurationError("organization must have no slash, which separates an owner's parts")
    if token != NATIVE_INSTANCE_TYPE:
        raise ConfigurationError(
            f"without a state nobody could tell which registrations a {token} has: leave out --stateless, or"
            f" use {NATIVE_INSTANCE_TYPE} for each"
        )


def require_default_connection(properties: Properties) -> None:
    """Require the provider's own Eureka for a registration without a state: later commands know no other."""
    if properties.get("connection") not in (None, DEFAULT_CONNECTION_NAME):
        raise ConfigurationError(
            "without a state nothing remembers a connection: leave it out, and give the provider the URL of"
            " that Eureka (--eurekube:url URL), for each command alike"
        )


def require_instance_id(properties: Properties) -> None:
    """Require an instance id for a registration without a state: others would have the default one, too."""
    if with_defaults(properties)[ID_IS_DEFAULT_PROPERTY]:
        raise ConfigurationError(
            "without a state instanceId must be given, since many would have a default one"
        )
