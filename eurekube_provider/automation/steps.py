"""The steps of a run, one for each resource: from the engine's events, an event log or ``preview --json``.

``pulumi preview --json`` leaves out unchanged resources unless ``--show-sames`` is given. An event log
(``--event-log``, or ``--json`` with PULUMI_ENABLE_STREAMING_JSON_PREVIEW) is one event of the engine a line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from pulumi.automation.events import EngineEvent, StepEventStateMetadata

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.identity import (
    DYNAMIC_APPLICATION_TYPE,
    DYNAMIC_INSTANCE_TYPE,
    NATIVE_APPLICATION_TYPE,
    NATIVE_INSTANCE_TYPE,
)
from eurekube_provider.registrations.names import rename_properties, to_snake_case
from eurekube_provider.registrations.secret_values import SECRET_SIGNATURE, SIGNATURE_KEY

UNCHANGING_OPERATIONS = frozenset({"same", "read", "refresh"})
"""Steps that Pulumi counts as operations although they change nothing."""

REPLACEMENT_HALF_OPERATIONS = frozenset({"create-replacement", "delete-replaced"})
"""The two parts of a ``replace``, left out since the ``replace`` has both states."""

_DYNAMIC_TYPE_BY_NATIVE = {
    NATIVE_INSTANCE_TYPE: DYNAMIC_INSTANCE_TYPE,
    NATIVE_APPLICATION_TYPE: DYNAMIC_APPLICATION_TYPE,
}
"""The dynamic provider's resource type for each type of the native provider."""

MASKED_VALUE = "[secret]"
"""Placeholder of a secret in the document of a preview."""


@dataclass(frozen=True, slots=True)
class ResourceState:
    """The state of a resource before or after a step.

    :ivar outputs: the provider's outputs; in a preview, of a new resource, its inputs.
    """

    inputs: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_pulumi(cls, inputs: Mapping[str, Any] | None, outputs: Mapping[str, Any] | None) -> Self:
        """Make a state of Pulumi's, with :data:`MASKED_VALUE` for each secret in either of its forms."""
        return cls(_mask_secrets(inputs or {}), _mask_secrets(outputs or {}))


@dataclass(frozen=True, slots=True)
class Step:
    """An operation of Pulumi on one resource.

    :ivar operation: the operation in Pulumi's words: ``create``, ``update``, ``delete``, ``replace`` ...
    :ivar type: the resource's type, e.g. ``pulumi-python:dynamic/eurekube:EurekaInstance``.
    :ivar old, new: the state before and after; None where the resource is new or removed.
    """

    operation: str
    urn: str
    type: str
    old: ResourceState | None
    new: ResourceState | None

    @property
    def name(self) -> str:
        """The resource's name in its program."""
        return self.urn.rpartition("::")[2]

    @property
    def is_change(self) -> bool:
        return self.operation not in UNCHANGING_OPERATIONS


@dataclass(frozen=True, slots=True)
class EngineErrorReport:
    """The engine's report of an error, without colour marks; ``urn`` is empty for one of no resource."""

    message: str
    urn: str = ""


class StepLog:
    """The steps, errors and, once the run has ended, numbers by operation that the engine reports."""

    def __init__(self) -> None:
        self.problems: list[EngineErrorReport] = []
        self.changes: dict[str, int] = {}
        self._steps: dict[str, Step] = {}

    def add(self, event: EngineEvent) -> None:
        """Add an event of the engine; a later event about the same resource replaces an earlier one."""
        step_event = event.res_outputs_event or event.resource_pre_event
        if step_event is not None:
            data = step_event.metadata
            self.add_step(
                Step(
                    data.op.value,
                    data.urn,
                    data.type,
                    _state_from_event(data.old),
                    _state_from_event(data.new),
                )
            )
        said = event.diagnostic_event
        if said is not None and said.severity == "error":
            self.problems.append(EngineErrorReport(strip_colour_marks(said.message), said.urn or ""))
        if event.summary_event is not None:
            counted = event.summary_event.resource_changes
            self.changes = {str(getattr(op, "value", op)): count for op, count in counted.items()}

    def add_step(self, step: Step) -> None:
        """Add a step, in the form of the dynamic provider; ignore the halves of a replacement."""
        if step.operation not in REPLACEMENT_HALF_OPERATIONS:
            self._steps[step.urn] = _as_dynamic_step(step)

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps, in the engine's order."""
        return tuple(self._steps.values())


def strip_colour_marks(text: str) -> str:
    """Strip colour marks such as ``<{%fg 1%}>`` from a message of the engine."""
    while "<{%" in text and "%}>" in text:
        before, _, rest = text.partition("<{%")
        text = before + rest.partition("%}>")[2]
    return text.strip()


def _as_dynamic_step(step: Step) -> Step:
    """Return a native resource's step with the dynamic provider's type and names; other steps unchanged."""
    type_ = _DYNAMIC_TYPE_BY_NATIVE.get(step.type)
    if type_ is None:
        return step
    old, new = (
        state
        and ResourceState(
            rename_properties(state.inputs, to_snake_case), rename_properties(state.outputs, to_snake_case)
        )
        for state in (step.old, step.new)
    )
    return replace(step, type=type_, old=old, new=new)


def _state_from_event(state: StepEventStateMetadata | None) -> ResourceState | None:
    return None if state is None else ResourceState.from_pulumi(state.inputs, state.outputs)


def _mask_secrets(value: Any) -> Any:
    if isinstance(value, Mapping):
        if value.get(SIGNATURE_KEY) == SECRET_SIGNATURE:
            return MASKED_VALUE
        return {name: _mask_secrets(item) for name, item in value.items()}
    return [_mask_secrets(item) for item in value] if isinstance(value, list) else value


def read_event_log(text: str) -> StepLog:
    """Return the steps in a preview's document or an event log; raise ConfigurationError for other text."""
    log = StepLog()
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    try:
        if isinstance(document, dict) and "sequence" not in document:
            _read_preview_document(document, log)
        else:
            for line in filter(None, map(str.strip, text.splitlines())):
                log.add(EngineEvent.from_json(json.loads(line)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(
            "this is neither what 'pulumi preview --json' prints nor an event log of Pulumi's"
            f" ({type(error).__name__}: {error})"
        ) from None
    if not log.changes and not log.problems and not log.steps:
        raise ConfigurationError("there is nothing in it: neither a step nor an error; did the preview run?")
    return log


def _read_preview_document(document: Mapping[str, Any], log: StepLog) -> None:
    for step in document.get("steps") or ():
        old, new = step.get("oldState"), step.get("newState")
        kind = (new or old)["type"]
        log.add_step(
            Step(step["op"], step["urn"], kind, _state_from_document(old), _state_from_document(new))
        )
    for said in document.get("diagnostics") or ():
        if said.get("severity") == "error":
            log.problems.append(EngineErrorReport(strip_colour_marks(said["message"]), said.get("urn") or ""))
    log.changes = dict(document.get("changeSummary") or {})


def _state_from_document(document: Mapping[str, Any] | None) -> ResourceState | None:
    if document is None:
        return None
    return ResourceState.from_pulumi(document.get("inputs"), document.get("outputs"))
