"""Secrets that are derived from secrets: an address from a host name, a zone from metadata, an id from names.

Pulumi marks as secret, in state and preview, only properties with the name of a secret input; a dynamic
provider sees plain values and cannot mark others. So the program gives every property that the check will
derive from a secret a secret stand-in value; the check replaces it by the derived value. Only the run of the
program knows which values are secrets, once they are resolved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi

from eurekube_provider.registrations.properties import FROM_SECRET
from eurekube_provider.resources.program import is_rendered


def with_derived_secrets(given: Mapping[str, Any], sources: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return properties with a stand-in for each one that derives from a possible secret.

    :param sources: the derived properties, each with its sources.
    """
    result = dict(given)
    if is_rendered.get():  # without an engine there is no state; what is printed is masked by its text
        return result
    for name, others in sources.items():
        if given.get(name) is not None:
            continue
        values = [given[other] for other in others if _holds_output(given.get(other))]
        if values:
            result[name] = _if_secret(values)
    return result


def _holds_output(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_holds_output, value.values()))
    return isinstance(value, pulumi.Output)


def _if_secret(values: Sequence[Any]) -> pulumi.Output[str | None]:
    """Return an output of :data:`FROM_SECRET`, as a secret, where one of the values is a secret; else of
    None.
    """
    every: pulumi.Output[Any] = pulumi.Output.all(*values)

    async def text() -> str | None:
        return FROM_SECRET if await every.is_secret() else None

    async def always() -> bool:
        return True

    return pulumi.Output(set(), text(), always(), every.is_secret())
