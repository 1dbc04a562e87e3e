"""Secrets that are derived from secrets: an address from a host name, a zone from metadata, an id from names.

Pulumi marks as secret, in state and preview, what has the name of a secret input; a dynamic provider sees
plain values and cannot say more. So the program gives every property that the check will derive from
something secret a value that says nothing but that, itself a secret; the check puts the derived one in its
place. Whether something is a secret is known in the run of the program only, when it is resolved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi

from eurekube_provider.registrations.properties import FROM_SECRET
from eurekube_provider.resources.program import is_rendered


def with_derived_secrets(given: Mapping[str, Any], sources: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return properties with those that are derived from what may be a secret.

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
    """:data:`FROM_SECRET` as a secret where one of the values is one, else nothing; known in any case."""
    every: pulumi.Output[Any] = pulumi.Output.all(*values)

    async def text() -> str | None:
        return FROM_SECRET if await every.is_secret() else None

    async def always() -> bool:
        return True

    return pulumi.Output(set(), text(), always(), every.is_secret())
