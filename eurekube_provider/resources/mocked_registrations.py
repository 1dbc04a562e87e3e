"""Registrations of a program that runs under Pulumi's mocks, which call no provider.

The mocks here answer as the provider's check leaves a registration: defaults and instance ids filled in.
"""

from __future__ import annotations

from typing import Any

from pulumi.runtime import mocks, rpc

from eurekube_provider.core.identity import APPLICATION_TYPE, INSTANCE_TYPE
from eurekube_provider.registrations.members import check_members
from eurekube_provider.registrations.properties import Properties
from eurekube_provider.registrations.property_check import check
from eurekube_provider.resources.program_inputs import IN_UPDATE

_CHECKS = {INSTANCE_TYPE: check, APPLICATION_TYPE: check_members}
_NO_PROPERTIES = ("__provider", IN_UPDATE)
"""Inputs that a provider takes out before its check."""


class MockedRegistrations(mocks.Mocks):
    """Takes note of every resource; answers with its inputs, of a registration as the check leaves them.

    :ivar resources: every resource, in the order in which the program makes them.
    :ivar registrations: the checked properties of everything that is to be registered, by type and by name.
    :ivar refused: the names of registrations that the check refuses, and why: they are among the others, too.
    """

    def __init__(self) -> None:
        self.resources: list[mocks.MockResourceArgs] = []
        self.registrations: dict[str, dict[str, Properties]] = {kind: {} for kind in _CHECKS}
        self.refused: dict[str, str] = {}

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[Any, Any], list[tuple[str, str]] | None]:  # noqa: ARG002
        """Answer a function of a provider with nothing."""
        return {}, None

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[Any, Any]]:
        """Take note of a resource."""
        self.resources.append(args)
        if args.typ not in _CHECKS:
            return f"{args.name}-id", args.inputs
        written = plain_value(args.inputs)
        checked = _CHECKS[args.typ](
            {}, {key: value for key, value in written.items() if key not in _NO_PROPERTIES}
        )
        if checked.problems:
            reasons = "; ".join(f"{problem.property}: {problem.reason}" for problem in checked.problems)
            self.refused[args.name] = f"the registration {args.name!r} cannot be made: {reasons}"
        self.registrations[args.typ][args.name] = checked.properties
        return f"{args.name}-id", checked.properties


def plain_value(value: Any) -> Any:
    """Return inputs as mocks get them without secrets' wrappings, with whole numbers as integers."""
    value = rpc.unwrap_rpc_secret(value)
    if isinstance(value, dict):
        return {key: plain_value(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [plain_value(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
