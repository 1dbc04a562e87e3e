"""Owner of registrations that ``pulumi do`` makes without a state, or without a project.

That command has no state, and gives everybody the same URN. So who registers says who it is, as
``eurekube:doOwner``, and what is changed or removed must be that owner's in Eureka at that moment: the
engine hands to a deletion what a read reported, no matter whose it is.
"""

from __future__ import annotations

import re

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.identity import NATIVE_INSTANCE_TYPE, StackOwner
from eurekube_provider.core.stack_identity import DEFAULT_ORGANIZATION
from eurekube_provider.provider.configuration import Configuration
from eurekube_provider.registrations.connections import DEFAULT_CONNECTION
from eurekube_provider.registrations.defaults import completed
from eurekube_provider.registrations.properties import DEFAULT_ID, Properties

_PROJECT = "pulumi:do"
"""No project of Pulumi's has a colon, so that no stack is taken for one of these owners."""

_EVERYBODYS_PROJECT = "default-global-project"
"""The project in which the CLI runs ``pulumi do`` outside of a project; do_global.go of pulumi/pulumi."""

_NAME = re.compile(r"[A-Za-z0-9_.\-]+")


def owner_of(configuration: Configuration, application: str, instance_id: str) -> StackOwner:
    """The owner of one registration: each has its own, since an update removes what else its owner has.

    Names are taken as the check of a registration makes them, however somebody writes them.
    """
    organization = configuration.organization or DEFAULT_ORGANIZATION
    name = f"{application.strip().upper()}/{instance_id.strip()}"
    return StackOwner(organization, _PROJECT, configuration.do_owner or "nobody", name)


def require_a_stack_of_ones_own(configuration: Configuration, project: str) -> None:
    """Do nothing in a project, or where the organization tells one person's stack from another's.

    :raises ConfigurationError: the stack is called as everybody's is who runs ``pulumi do`` in no project.
    """
    if project == _EVERYBODYS_PROJECT and not configuration.organization:
        raise ConfigurationError(
            "outside of a project pulumi do has a stack that everybody has, so that two people would take"
            " each other's registrations: run it in a project, or set organization to a name of your own"
            " (--eurekube:organization NAME)"
        )


def require_do_owner(configuration: Configuration, token: str) -> None:
    """Do nothing where it is said who registers, and what that is can be determined from all others.

    :raises ConfigurationError: it is not said, or by a name that cannot be part of an owner, or it is many.
    """
    owner = configuration.do_owner
    if not owner:
        raise ConfigurationError(
            "pulumi do --stateless gives everybody one URN, so that nobody could tell whose a registration"
            " is: leave out --stateless, and a stack owns it, or set doOwner to a name of your own"
            " (--eurekube:do-owner NAME, or doOwner in the file of --provider-file)"
        )
    if not _NAME.fullmatch(owner):
        raise ConfigurationError("doOwner must be letters, digits, dots, dashes and underscores")
    if "/" in (configuration.organization or ""):  # this command checks no configuration
        raise ConfigurationError("organization must have no slash, which separates an owner's parts")
    if token != NATIVE_INSTANCE_TYPE:
        raise ConfigurationError(
            f"without a state nobody could tell which registrations a {token} has: leave out --stateless, or"
            f" use {NATIVE_INSTANCE_TYPE} for each"
        )


def require_the_providers_eureka(properties: Properties) -> None:
    """Do nothing for a registration at the Eureka that a patch and a deletion will ask.

    :raises ConfigurationError: it names another connection, of which they would not know.
    """
    if properties.get("connection") not in (None, DEFAULT_CONNECTION):
        raise ConfigurationError(
            "without a state nothing remembers a connection: leave it out, and give the provider the URL of"
            " that Eureka (--eurekube:url URL), for each command alike"
        )


def require_an_id(properties: Properties) -> None:
    """Do nothing for an id that a person has given.

    :raises ConfigurationError: it is the default one, which another registration would have as well.
    """
    if completed(properties)[DEFAULT_ID]:
        raise ConfigurationError(
            "without a state instanceId must be given, since many would have a default one"
        )
