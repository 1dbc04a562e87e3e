"""Registrations under Pulumi's mocks, which call no provider, as the provider's check leaves them."""

from __future__ import annotations

from typing import Any

from pulumi.runtime import mocks, rpc

from eurekube_provider.core.identity import DYNAMIC_APPLICATION_TYPE, DYNAMIC_INSTANCE_TYPE
from eurekube_provider.registrations.members import check_application
from eurekube_provider.registrations.properties import Properties
from eurekube_provider.registrations.property_check import check
from eurekube_provider.resources.program_inputs import IN_PREVIEW_KEY, IN_UPDATE_KEY

_CHECK_FUNCTION_BY_TYPE = {DYNAMIC_INSTANCE_TYPE: check, DYNAMIC_APPLICATION_TYPE: check_application}
_INPUTS_REMOVED_BY_PROVIDER = ("__provider", IN_PREVIEW_KEY, IN_UPDATE_KEY)


class MockedRegistrations(mocks.Mocks):
    """Pulumi mocks that record every resource, and answer with its inputs; registrations are checked.

    :ivar registrations: the checked properties of every registration, by type and by name.
    :ivar refused: the reason of each registration that the check refuses, by name.
    """

    def __init__(self) -> None:
        self.resources: list[mocks.MockResourceArgs] = []
        self.registrations: dict[str, dict[str, Properties]] = {kind: {} for kind in _CHECK_FUNCTION_BY_TYPE}
        self.refused: dict[str, str] = {}

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[Any, Any], list[tuple[str, str]] | None]:  # noqa: ARG002
        """Answer a provider's function with an empty result."""
        return {}, None

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[Any, Any]]:
        """Record a resource, and return its id and outputs."""
        self.resources.append(args)
        if args.typ not in _CHECK_FUNCTION_BY_TYPE:
            return f"{args.name}-id", args.inputs
        written = unwrap_mock_value(args.inputs)
        checked = _CHECK_FUNCTION_BY_TYPE[args.typ](
            {}, {key: value for key, value in written.items() if key not in _INPUTS_REMOVED_BY_PROVIDER}
        )
        if checked.problems:
            reasons = "; ".join(f"{problem.property}: {problem.reason}" for problem in checked.problems)
            self.refused[args.name] = f"the registration {args.name!r} cannot be made: {reasons}"
        self.registrations[args.typ][args.name] = checked.properties
        return f"{args.name}-id", checked.properties


def unwrap_mock_value(value: Any) -> Any:
    """Return a mock's inputs without secrets' wrappings, with whole numbers as integers."""
    value = rpc.unwrap_rpc_secret(value)
    if isinstance(value, dict):
        return {key: unwrap_mock_value(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [unwrap_mock_value(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
