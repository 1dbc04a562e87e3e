"""The transform DrainBeforeStop: ``core.prestop`` for Pulumi's values, which may be secret or unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi.runtime import rpc

from eurekube_provider.core.drain_time import Drain
from eurekube_provider.core.prestop import PreStopHook, ValueTransform, add_drain_to_workload
from eurekube_provider.resources.labels import OPERATOR_APP_NAME, SELECTOR_LABEL_KEY
from eurekube_provider.resources.program import ConvertToProgramError, ProgramError

_WORKLOAD_KIND_BY_TYPE = {
    "kubernetes:apps/v1:Deployment": "Deployment",
    "kubernetes:apps/v1:StatefulSet": "StatefulSet",
}


@dataclass(frozen=True, slots=True, eq=False)
class DrainBeforeStop:
    """A transform that gives pods a waiting preStop, a grace period long enough for it, and
    ``minReadySeconds``.

    Use it in ``ResourceOptions(transforms=[...])`` of a resource or a component, whose children it then
    changes as well, or for ``pulumi.runtime.register_resource_transform``. The operator's own pods are left
    as they are.

    :ivar drain: how long callers still call an instance that has left Eureka; default 120 s.
    :ivar hook: ``exec`` where the cluster is older than 1.30 and images have a ``sleep``.
    :ivar containers: the names of the containers that get a preStop; default all, since a sidecar that ends
        at once breaks the application's calls.
    :ivar match_labels: only pods that carry these labels.
    :ivar readiness_gate: True if pods declare the readiness gate ``eurekube.io/callers-know``, in place of
        ``minReadySeconds``. While no operator serves it, no new pod becomes ready.
    """

    drain: Drain = field(default_factory=Drain)
    hook: PreStopHook | str = PreStopHook.SLEEP
    containers: Sequence[str] = ()
    match_labels: Mapping[str, str] = field(default_factory=dict)
    readiness_gate: bool = False

    def __post_init__(self) -> None:
        if self.hook not in list(PreStopHook):
            raise ProgramError(f"DrainBeforeStop: hook must be {' or '.join(PreStopHook)}, not {self.hook!r}")
        if isinstance(self.containers, str):
            raise ProgramError(f"DrainBeforeStop: containers must be a list: write [{self.containers!r}]")

    def __call__(self, args: pulumi.ResourceTransformArgs) -> pulumi.ResourceTransformResult | None:
        """Change a workload that Pulumi is about to register; return None for any other resource.

        :raises ProgramError: one of its containers has a preStop already.
        """
        kind = _WORKLOAD_KIND_BY_TYPE.get(args.type_)
        if kind is None or "spec" not in args.props:
            return None

        @ConvertToProgramError(f"{kind} {args.name!r}: DrainBeforeStop: ")
        def add_drain_to_spec(spec: Mapping[str, Any]) -> Mapping[str, Any]:
            if not self._applies_to(spec):
                return spec
            return add_drain_to_workload(
                kind,
                spec,
                self.drain,
                PreStopHook(self.hook),
                self.containers,
                _apply_within_output,
                declares_gate=self.readiness_gate,
            )

        return pulumi.ResourceTransformResult(
            props={**args.props, "spec": _apply_within_output(args.props["spec"], add_drain_to_spec)},
            opts=args.opts,
        )

    def _applies_to(self, spec: Mapping[str, Any]) -> bool:
        """Return whether a workload's pods have the labels; unknown labels match nothing."""
        labels: Any = spec
        for key in ("template", "metadata", "labels"):
            labels = labels.get(key) if isinstance(labels, Mapping) else None
        known = labels if isinstance(labels, Mapping) else {}
        if known.get(SELECTOR_LABEL_KEY) == OPERATOR_APP_NAME:
            return False
        return all(known.get(key) == value for key, value in self.match_labels.items())


def _apply_within_output(value: Any, change: ValueTransform) -> Any:
    """Return ``change(value)``, as an output or a secret if the value is one."""
    if rpc.is_rpc_secret(value):
        return pulumi.Output.secret(rpc.unwrap_rpc_secret(value)).apply(change)
    if isinstance(value, pulumi.Output | pulumi.output.Unknown):
        return pulumi.Output.from_input(value).apply(change)
    return change(value)
