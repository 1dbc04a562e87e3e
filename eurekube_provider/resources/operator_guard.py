"""The resource that keeps an operator where syncers of others need it: its deletion asks the cluster first.

Pulumi deletes it before everything else of the operator. Pulumi's plugin process imports this module, outside
of any program, and its path is written into the state of every user: never renamed or moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi
from pulumi.dynamic import CheckResult, CreateResult, DiffResult, Resource, ResourceProvider, UpdateResult
from pulumi.runtime import get_config

from eurekube_provider.registrations.names import are_schemas
from eurekube_provider.resources.dynamic_provider import moved_back, read_in
from eurekube_provider.resources.guarded_operator import changed, guard_id, guard_inputs, may_go
from eurekube_provider.resources.plugin import set_up


class OperatorGuardProvider(ResourceProvider):
    """Lets a guard be deleted when its operator may go. Without attributes, since a state names it."""

    serialize_as_secret_always = False  # there is nothing in it

    def configure(self, _req: Any) -> None:
        """Have errors shown as one sentence."""
        set_up()

    def check(self, _olds: Any, news: Any) -> CheckResult:
        """Complete nothing: only the component writes this resource."""
        if are_schemas(_olds):
            return moved_back(news, "keep the component eurekube.Operator in the program")
        return CheckResult(news, [])

    def diff(self, _id: str, _olds: Any, _news: Any) -> DiffResult:
        """A change is an update of what the deletion will ask."""
        return DiffResult(changes=bool(changed(read_in(_olds), read_in(_news))))

    def create(self, props: Any) -> CreateResult:
        """Keep what the deletion will ask; nothing is asked before."""
        return CreateResult(guard_id(props), guard_inputs(props))

    def update(self, _id: str, _olds: Any, _news: Any) -> UpdateResult:
        """Remember what the deletion will ask."""
        return UpdateResult(guard_inputs(_news))

    def delete(self, _id: str, _props: Any) -> None:
        """Refuse while it is needed.

        :raises OperatorStillNeeded: it is, or nobody can tell.
        """
        may_go(_props)


class OperatorGuard(Resource, module="eurekube", name="OperatorGuard"):
    """A guard of the dynamic provider."""

    def __init__(self, name: str, inputs: Mapping[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(OperatorGuardProvider(), name, dict(inputs), opts)


def cluster_inputs(provider: pulumi.ProviderResource | None) -> dict[str, pulumi.Input[Any]]:
    """How the Kubernetes provider of an operator reaches its cluster, so that its guard asks the same one.

    :param provider: the one that a program chose; None for the stack's own.
    """
    names = ("kubeconfig", "context")
    if provider is None:
        given: dict[str, Any] = {name: get_config(f"kubernetes:{name}") for name in names}
    else:
        given = {name: vars(provider).get(name) for name in names}
    known = {name: value for name, value in given.items() if value is not None}
    if "kubeconfig" in known:
        known["kubeconfig"] = pulumi.Output.secret(known["kubeconfig"])
    return known
