"""A running program's inputs for a resource that registers, beside its own arguments.

Pulumi marks as secret only properties with the name of a secret input, and a dynamic provider cannot mark
others. So the program gives every property that the check will derive from a secret (an address from a host
name, a zone from metadata, an id from names) a secret stand-in, which the check replaces.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pulumi

from eurekube_provider.core.identity import StackOwner
from eurekube_provider.registrations.connections import DEFAULT_CONNECTION_NAME
from eurekube_provider.registrations.properties import SECRET_PLACEHOLDER, Properties
from eurekube_provider.resources.arguments import ArgumentDefault, as_dictionary
from eurekube_provider.resources.program import (
    default_renewer,
    program_connection,
    program_organization,
    runs_without_engine,
    warn_of_unknown_keys,
)

IN_UPDATE_KEY = "in_update"
"""An input, outside of previews, that never enters the state: only with it may a check ask Eureka.

Its value tells the resource from others of the same name in the program.
"""

IN_PREVIEW_KEY = "in_preview"
"""The same input in previews."""

_declaration_numbers = itertools.count(1)


def properties_with_configuration(name: str, args: Any) -> Properties:
    """Return the arguments of a resource, with the values from the running program's configuration.

    :raises ProgramError: no Eureka is configured, or the named connection is missing.
    """
    warn_of_unknown_keys()
    given = {"renewer": ArgumentDefault.FROM_CONFIG, **as_dictionary(args)}
    if given["renewer"] is ArgumentDefault.FROM_CONFIG:
        given["renewer"] = default_renewer()
    elif given["renewer"] is None:
        given["renewer"] = ""  # None would vanish on the way to the check, which says what is wrong with it
    connection = given.get("connection") or DEFAULT_CONNECTION_NAME
    if not runs_without_engine.get():
        given[IN_PREVIEW_KEY if pulumi.runtime.is_dry_run() else IN_UPDATE_KEY] = next(_declaration_numbers)
    return {
        **given,
        "connection": None if connection == DEFAULT_CONNECTION_NAME else connection,
        "service_url": ",".join(program_connection(connection).service_urls),
        "owner": str(StackOwner(program_organization(), pulumi.get_project(), pulumi.get_stack(), name)),
    }


def add_secret_stand_ins(given: Mapping[str, Any], sources: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return properties with a stand-in for each derived one whose source may be a secret."""
    result = dict(given)
    if runs_without_engine.get():  # there is no state; what is printed is masked by its text
        return result
    for name, others in sources.items():
        if given.get(name) is not None:
            continue
        values = [given[other] for other in others if _contains_output(given.get(other))]
        if values:
            result[name] = _stand_in_if_secret(values)
    return result


def _contains_output(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_contains_output, value.values()))
    return isinstance(value, pulumi.Output)


def _stand_in_if_secret(values: Sequence[Any]) -> pulumi.Output[str | None]:
    """Return :data:`SECRET_PLACEHOLDER` as a secret output if a value is a secret, else an output of None."""
    every: pulumi.Output[Any] = pulumi.Output.all(*values)

    async def stand_in() -> str | None:
        return SECRET_PLACEHOLDER if await every.is_secret() else None

    async def is_known() -> bool:
        return True

    return pulumi.Output(set(), stand_in(), is_known(), every.is_secret())
