"""Preview, up, refresh and drift of a stack, through Pulumi's Automation API.

A failed run, or one that another run's lock keeps out, is an outcome and no exception. Credentials, the
backend and the passphrase come from the environment, as for the CLI.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from pulumi.automation import LocalWorkspace, Stack
from pulumi.automation.errors import CommandError, ConcurrentUpdateError, InvalidVersionError

from eurekube_provider.automation.cancellable import CancellableCommand
from eurekube_provider.automation.locks import ProcessRecords, StackBusy, parse_holders, remove_lock
from eurekube_provider.automation.stack_run import RunOutcome, StackOperation, StackRun
from eurekube_provider.automation.steps import UNCHANGING_OPERATIONS, StepLog, strip_colour_marks
from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.stack_identity import PROJECT_FILE_NAMES, stack_identity
from eurekube_provider.registrations.connections import FAIL_UNREADABLE_REFRESH_VARIABLE

_STATE_WRITING_OPERATIONS = (StackOperation.UP, StackOperation.REFRESH)
_EUREKA_READING_OPERATIONS = (StackOperation.REFRESH, StackOperation.DRIFT)
_UNINFORMATIVE_ERROR_PREFIXES = (
    "update failed",
    "preview failed",
    "refresh failed",
    "resource registration failed",
)


@dataclass(frozen=True, slots=True)
class StackTarget:
    """One stack of a project.

    :ivar stack: the stack's name, or ``organization/project/stack``.
    :ivar timeout_seconds: the seconds after which a run is cancelled, default 600.
    """

    stack: str
    work_dir: Path
    timeout_seconds: float = 600.0


class StackRunner:
    """A runner of one operation, which can be cancelled; raises ConfigurationError without project or CLI."""

    def __init__(self, target: StackTarget) -> None:
        self.target = target
        self.log = StepLog()
        project, work_dir = _read_project_file(target.work_dir), str(target.work_dir.resolve())
        backend = os.environ.get("PULUMI_BACKEND_URL", "")
        home = Path(os.environ.get("PULUMI_HOME") or Path.home() / ".pulumi")
        self._records = ProcessRecords(
            home / "eurekube-runs", stack_identity(target.stack, project, backend, work_dir)
        )
        try:
            self._command = CancellableCommand(self._records)
        except FileNotFoundError:
            raise ConfigurationError("there is no Pulumi CLI on PATH: install it, or extend PATH") from None
        except InvalidVersionError as error:
            raise ConfigurationError(f"the Pulumi CLI on PATH cannot be used: {error}") from None

    def cancel(self, why: str) -> None:
        """End the run in order: steps under way are finished, and the stack is released. Return at once."""
        self._command.cancel(why)

    def run(self, action: StackOperation) -> StackRun:
        """Run an operation, and return its result, also if it failed, or another run holds the stack
        (LOCKED). A lock that a dead run of ours left is removed first.

        :raises ConfigurationError: the run cannot be recorded.
        """
        began = time.monotonic()
        limit = f"it took longer than {self.target.timeout_seconds:g} s and was cancelled"
        timer = threading.Timer(self.target.timeout_seconds, self.cancel, [limit])
        timer.daemon = True
        timer.start()
        log, outcome, message = self.log, RunOutcome.FAILED, ""
        try:
            with self._records.claim_stack() if action in _STATE_WRITING_OPERATIONS else nullcontext():
                released = self._run_despite_dead_lock(action)
            is_changed = any(
                count for name, count in log.changes.items() if name not in UNCHANGING_OPERATIONS
            )
            outcome = RunOutcome.CHANGED if is_changed else RunOutcome.UNCHANGED
            counted = ", ".join(f"{count} {name}" for name, count in sorted(log.changes.items()) if count)
            message = f"{action} of {self.target.stack}: {counted or 'it has no resources'}{released}"
        except ConcurrentUpdateError as error:
            outcome, message = RunOutcome.LOCKED, self._locked_message(str(error))
        except StackBusy as error:
            outcome = RunOutcome.LOCKED
            message = (
                f"{self.target.stack} is locked by another run of ours (worker {error}); nothing was done"
            )
        except CommandError as error:
            why = self._command.cancel_reason or _failure_message(log, str(error))
            message = f"{action} of {self.target.stack} failed: {why}"
        finally:
            timer.cancel()
        seconds = time.monotonic() - began
        changing = tuple(step for step in log.steps if step.is_change)
        return StackRun(action, self.target.stack, outcome, log.changes, seconds, message, changing)

    def _run_despite_dead_lock(self, action: StackOperation) -> str:
        """Run an operation, again if a dead run of ours locked the stack; return a sentence on that."""
        # A refresh or a check for drift must fail where Eureka cannot be read.
        variables = {FAIL_UNREADABLE_REFRESH_VARIABLE: "true"} if action in _EUREKA_READING_OPERATIONS else {}
        stack = Stack.select(
            self.target.stack, _ProjectWorkspace(self.target.work_dir, self._command, variables)
        )
        released = ""
        try:
            _call_pulumi(stack, action, self.log)
        except ConcurrentUpdateError as error:
            found = parse_holders(str(error))
            if not self._records.were_locks_left_by_dead_runs(found):
                raise
            self._records.kill_orphaned_providers()
            if not all(remove_lock(holder) for holder in found):
                raise
            _call_pulumi(stack, action, self.log)
            released = "; the lock of an earlier run of ours that had died was released"
        if action in _STATE_WRITING_OPERATIONS:
            self._records.remove_dead_records()  # this run held the stack, so that no dead run can hold it
        return released

    def _locked_message(self, error: str) -> str:
        """Return a sentence that names the holders of the stack's locks, from Pulumi's refusal."""
        found = parse_holders(error)
        named = ", ".join(map(str, found)) or "another update that is under way"
        message = f"{self.target.stack} is locked by {named}; nothing was done"
        if self._records.were_locks_left_by_dead_runs(found):
            message += (
                "; it is a run of ours that died, and its lock is no file that can be removed alone: see that"
                f" nothing else works on the stack, then delete {', '.join(each.lock_url for each in found)}"
            )
        return message


class _ProjectWorkspace(LocalWorkspace):
    """The project's folder. Every command names its stack, so that the selected stack stays as it is."""

    def __init__(self, work_dir: Path, command: CancellableCommand, variables: Mapping[str, str]) -> None:
        super().__init__(work_dir=str(work_dir), pulumi_command=command, env_vars=variables)

    def select_stack(self, stack_name: str) -> None:
        """Do nothing: the first command fails anyway if the stack does not exist."""


def preview(target: StackTarget) -> StackRun:
    """Preview an ``up``; ask neither Eureka nor the cluster if the program has no lookups."""
    return StackRunner(target).run(StackOperation.PREVIEW)


def up(target: StackTarget) -> StackRun:
    """Run the program, and change Eureka and the cluster accordingly."""
    return StackRunner(target).run(StackOperation.UP)


def refresh(target: StackTarget) -> StackRun:
    """Bring the state to the contents of Eureka and the cluster; change nothing in them."""
    return StackRunner(target).run(StackOperation.REFRESH)


def drift(target: StackTarget) -> StackRun:
    """Find changes that were made without the stack; change nothing, not even the state."""
    return StackRunner(target).run(StackOperation.DRIFT)


def _call_pulumi(stack: Stack, action: StackOperation, log: StepLog) -> None:
    calls: dict[StackOperation, Callable[..., Any]] = {
        StackOperation.UP: partial(stack.up, show_secrets=False),
        StackOperation.REFRESH: partial(stack.refresh, show_secrets=False),
        StackOperation.DRIFT: partial(stack.preview_refresh, show_secrets=False),
        StackOperation.PREVIEW: stack.preview,
    }
    calls[action](on_event=log.add, color="never")


def _read_project_file(work_dir: Path) -> Mapping[str, Any]:
    for name in PROJECT_FILE_NAMES:
        if (work_dir / name).is_file():
            try:
                project = yaml.safe_load((work_dir / name).read_text())
            except (OSError, ValueError, yaml.YAMLError):
                project = None  # the CLI reports the error in the file
            return project if isinstance(project, Mapping) else {}
    raise ConfigurationError(f"{work_dir} has no Pulumi.yaml: name the folder of a project")


def _failure_message(log: StepLog, error: str) -> str:
    """Return why a run failed: the first meaningful error, and the number of others."""
    messages = dict.fromkeys(problem.message for problem in log.problems)
    reasons = [text for text in messages if text and not text.startswith(_UNINFORMATIVE_ERROR_PREFIXES)]
    if not reasons:
        lines = [strip_colour_marks(line) for line in error.splitlines()]
        reasons = [line.partition("error: ")[2] for line in lines if "error: " in line] or [error.strip()]
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    lines = [line.strip() for line in reasons[0].splitlines() if line.strip()]
    return f"{lines[-1] if 'Traceback' in reasons[0] else lines[0]}{more}"
