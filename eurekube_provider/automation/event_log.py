"""The reader of Pulumi's output about a run: the document of ``preview --json``, or an event log.

``pulumi preview --json`` leaves out unchanged resources unless ``--show-sames`` is given. An event log
(``--event-log``, or ``--json`` with PULUMI_ENABLE_STREAMING_JSON_PREVIEW) is one event of the engine a line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pulumi.automation.events import EngineEvent

from eurekube_provider.automation.steps import (
    EngineErrorReport,
    ResourceState,
    Step,
    StepLog,
    strip_colour_marks,
)
from eurekube_provider.core.errors import ConfigurationError


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
