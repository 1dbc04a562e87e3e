"""The steps of a run, one for each resource, read from the events of Pulumi's engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from pulumi.automation.events import EngineEvent, StepEventStateMetadata

from eurekube_provider.core.identity import (
    APPLICATION_TYPE,
    INSTANCE_TYPE,
    NATIVE_APPLICATION_TYPE,
    NATIVE_INSTANCE_TYPE,
)
from eurekube_provider.registrations.names import renamed, snake
from eurekube_provider.registrations.secret_values import SECRET, SIGNATURE

UNCHANGED = frozenset({"same", "read", "refresh"})
"""Steps that Pulumi counts as operations although they change nothing."""

HALVES = frozenset({"create-replacement", "delete-replaced"})
"""The two parts of a ``replace``, left out since the ``replace`` has both states."""

_NATIVE = {NATIVE_INSTANCE_TYPE: INSTANCE_TYPE, NATIVE_APPLICATION_TYPE: APPLICATION_TYPE}
"""The dynamic provider's resource type for each type of the native provider."""

MASKED = "[secret]"
"""Placeholder of a secret in the document of a preview."""


@dataclass(frozen=True, slots=True)
class State:
    """The state of a resource before or after a step.

    :ivar inputs: the program's inputs.
    :ivar outputs: the provider's outputs; in a preview, of a new resource, its inputs.
    """

    inputs: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_pulumi(cls, inputs: Mapping[str, Any] | None, outputs: Mapping[str, Any] | None) -> Self:
        """Make a state of Pulumi's inputs and outputs, with :data:`MASKED` for each secret in either of
        its forms.
        """
        return cls(_masked(inputs or {}), _masked(outputs or {}))


@dataclass(frozen=True, slots=True)
class Step:
    """An operation of Pulumi on one resource.

    :ivar operation: the operation in Pulumi's words: ``create``, ``update``, ``delete``, ``replace`` ...
    :ivar type: the resource's type, e.g. ``pulumi-python:dynamic/eurekube:EurekaInstance``.
    :ivar old: the state before; None for a new resource.
    :ivar new: the state after; None for a removed resource.
    """

    operation: str
    urn: str
    type: str
    old: State | None
    new: State | None

    @property
    def name(self) -> str:
        """The resource's name in its program."""
        return self.urn.rpartition("::")[2]

    @property
    def is_change(self) -> bool:
        """True if the step changes the resource."""
        return self.operation not in UNCHANGED


@dataclass(frozen=True, slots=True)
class EngineError:
    """An error that the engine reported.

    :ivar urn: the URN of the resource concerned; empty for an error of the program or of no resource.
    """

    message: str
    urn: str = ""


class StepLog:
    """The steps and errors that the engine reports while it works.

    :ivar problems: the engine's error messages, without colours.
    :ivar changes: the number of resources by operation, once the run has ended.
    """

    def __init__(self) -> None:
        self.problems: list[EngineError] = []
        self.changes: dict[str, int] = {}
        self._steps: dict[str, Step] = {}

    def add(self, event: EngineEvent) -> None:
        """Add an event of the engine; a later event about the same resource replaces an earlier one."""
        step_event = event.res_outputs_event or event.resource_pre_event
        if step_event is not None:
            data = step_event.metadata
            self.add_step(Step(data.op.value, data.urn, data.type, _state(data.old), _state(data.new)))
        said = event.diagnostic_event
        if said is not None and said.severity == "error":
            self.problems.append(EngineError(plain(said.message), said.urn or ""))
        if event.summary_event is not None:
            counted = event.summary_event.resource_changes
            self.changes = {str(getattr(op, "value", op)): count for op, count in counted.items()}

    def add_step(self, step: Step) -> None:
        """Add a step, a native resource's in the form of the dynamic provider; ignore the halves of a
        replacement.
        """
        if step.operation not in HALVES:
            self._steps[step.urn] = _in_one_form(step)

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps, in the engine's order."""
        return tuple(self._steps.values())


def plain(text: str) -> str:
    """Strip colour marks such as ``<{%fg 1%}>`` from a message of the engine."""
    while "<{%" in text and "%}>" in text:
        before, _, rest = text.partition("<{%")
        text = before + rest.partition("%}>")[2]
    return text.strip()


def _in_one_form(step: Step) -> Step:
    type_ = _NATIVE.get(step.type)
    if type_ is None:
        return step
    old, new = (
        state and State(renamed(state.inputs, snake), renamed(state.outputs, snake))
        for state in (step.old, step.new)
    )
    return replace(step, type=type_, old=old, new=new)


def _state(state: StepEventStateMetadata | None) -> State | None:
    return None if state is None else State.from_pulumi(state.inputs, state.outputs)


def _masked(value: Any) -> Any:
    if isinstance(value, Mapping):
        if value.get(SIGNATURE) == SECRET:
            return MASKED
        return {name: _masked(item) for name, item in value.items()}
    return [_masked(item) for item in value] if isinstance(value, list) else value
