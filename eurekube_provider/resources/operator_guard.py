"""The resource that keeps an operator while other stacks' syncers need it: it is deleted before the
operator's other resources, and asks the cluster first.

Pulumi's plugin process imports this module, whose path is in users' states: it is never renamed or moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi
from pulumi.dynamic import CheckResult, CreateResult, DiffResult, Resource, ResourceProvider, UpdateResult
from pulumi.runtime import get_config

from eurekube_provider.registrations.names import has_camel_case_name
from eurekube_provider.resources.dynamic_provider import (
    from_pulumi_properties,
    refuse_state_from_native_provider,
)
from eurekube_provider.resources.guarded_operator import (
    guard_id,
    is_guard_changed,
    refuse_deletion_while_needed,
)
from eurekube_provider.resources.plugin import set_up_plugin_process


class OperatorGuardProvider(ResourceProvider):
    """The dynamic provider of the guard. It has no attributes, since states name it."""

    serialize_as_secret_always = False  # the provider's pickle holds no secret

    def configure(self, _req: Any) -> None:
        """Prepare the plugin process, so that it shows our errors as one sentence."""
        set_up_plugin_process()

    def check(self, _olds: Any, news: Any) -> CheckResult:
        """Accept the inputs unchanged: only the component writes this resource."""
        if has_camel_case_name(_olds):
            return refuse_state_from_native_provider(
                news, "keep the component eurekube.Operator in the program"
            )
        return CheckResult(news, [])

    def diff(self, _id: str, _olds: Any, _news: Any) -> DiffResult:
        """Compare the guard's properties; a change is an update."""
        return DiffResult(
            changes=is_guard_changed(from_pulumi_properties(_olds), from_pulumi_properties(_news))
        )

    def create(self, props: Any) -> CreateResult:
        """Store the properties that the deletion needs; ask no cluster."""
        return CreateResult(guard_id(props), _without_own_keys_of_pulumi(props))

    def update(self, _id: str, _olds: Any, _news: Any) -> UpdateResult:
        """Store the properties that the deletion needs."""
        return UpdateResult(_without_own_keys_of_pulumi(_news))

    def delete(self, _id: str, _props: Any) -> None:
        """Refuse the deletion by OperatorStillNeeded, also where the cluster cannot be asked."""
        refuse_deletion_while_needed(_props)


def _without_own_keys_of_pulumi(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in properties.items() if not key.startswith("__") and value is not None}


class OperatorGuard(Resource, module="eurekube", name="OperatorGuard"):
    """The guard of an operator, served by the dynamic provider."""

    def __init__(self, name: str, inputs: Mapping[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(OperatorGuardProvider(), name, dict(inputs), opts)


def kubeconfig_inputs(provider: pulumi.ProviderResource | None) -> dict[str, pulumi.Input[Any]]:
    """Return kubeconfig and context of a program's Kubernetes provider, or of the stack's own."""
    names = ("kubeconfig", "context")
    if provider is None:
        given: dict[str, Any] = {name: get_config(f"kubernetes:{name}") for name in names}
    else:
        given = {name: vars(provider).get(name) for name in names}
    known = {name: value for name, value in given.items() if value is not None}
    if "kubeconfig" in known:
        known["kubeconfig"] = pulumi.Output.secret(known["kubeconfig"])
    return known
