"""A running program's inputs for a resource that registers, beside its own arguments."""

from __future__ import annotations

from typing import Any

import pulumi

from eurekube_provider.core.identity import StackOwner
from eurekube_provider.registrations.connections import DEFAULT_CONNECTION_NAME
from eurekube_provider.registrations.properties import Properties
from eurekube_provider.resources.arguments import ArgumentDefault, as_dictionary
from eurekube_provider.resources.program import (
    default_renewer,
    program_connection,
    program_organization,
    runs_without_engine,
)

IN_UPDATE_KEY = "in_update"
"""An input, outside of previews, that never enters the state: only with it may a check ask Eureka."""


def properties_with_configuration(name: str, args: Any) -> Properties:
    """Return the arguments of the resource ``name``, with the values from the running program's
    configuration.

    :raises ProgramError: no Eureka is configured, or the named connection is missing.
    """
    given = {"renewer": ArgumentDefault.FROM_CONFIG, **as_dictionary(args)}
    if given["renewer"] is ArgumentDefault.FROM_CONFIG:
        given["renewer"] = default_renewer()
    elif given["renewer"] is None:
        given["renewer"] = ""  # None would vanish on the way to the check, which says what is wrong with it
    connection = given.get("connection") or DEFAULT_CONNECTION_NAME
    if not runs_without_engine.get() and not pulumi.runtime.is_dry_run():
        given[IN_UPDATE_KEY] = True
    return {
        **given,
        "connection": None if connection == DEFAULT_CONNECTION_NAME else connection,
        "service_url": ",".join(program_connection(connection).service_urls),
        "owner": str(StackOwner(program_organization(), pulumi.get_project(), pulumi.get_stack(), name)),
    }
