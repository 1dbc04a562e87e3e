"""The plans and results of syncers and mirrors, recorded for the output of ``--once`` and ``--dry-run``."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eurekube_provider.core.condition_types import Reason
from eurekube_provider.core.mirror_source import MirrorSource
from eurekube_provider.core.model import Instance, InstanceKey
from eurekube_provider.core.plan import Plan, PlanOutcome
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.quoting import printable_lines
from eurekube_provider.core.registry import Registry
from eurekube_provider.core.wording import format_count
from eurekube_provider.kube.access import KubeAccess
from eurekube_provider.operator.conditions import EUREKA_ERROR_REASONS, SyncerReport
from eurekube_provider.operator.index import SyncerKey

if TYPE_CHECKING:
    from eurekube_provider.core.mirror_conditions import MirrorReport
    from eurekube_provider.operator.mirror.mirror_objects import MirrorKey

_log = logging.getLogger(__name__)

LONGEST_READ_WAIT_SECONDS = 15.0
"""Most seconds that ``--once`` waits until Eureka and the cluster have been read."""

UNCACHED_READS_AFTER_START_SECONDS = 60.0
"""Seconds after the start in which ``--dry-run`` reads each instance instead of trusting Eureka's cached
lists: other replicas may just have changed something.
"""

LONGEST_FINAL_WRITE_SECONDS_OF_ONCE = 60.0
"""Most seconds that ``--once`` waits at its end for its statuses and Events: nobody writes them later."""

_FAILURE_REASONS = EUREKA_ERROR_REASONS | {Reason.KUBERNETES_ERROR, Reason.FAILED}
"""Reasons of Synced after a reconcile that failed; every other reason describes the syncer itself."""

_NOT_RECONCILED_PROBLEM = Problem("NotLookedAt", "it could not be looked at; the log says why")


@dataclass(frozen=True, slots=True)
class RecordedMirror:
    """The result of one reconcile of a mirror.

    :ivar report: None for a mirror that was deleted, or whose reconcile reported nothing new.
    :ivar writes: real or planned writes, such as ``+ Service review``.
    """

    report: MirrorReport | None = None
    writes: tuple[str, ...] = ()
    was_reconciled: bool = False

    @property
    def problem(self) -> Problem | None:
        """The mirror's problem; None for a synced mirror."""
        if not self.was_reconciled:
            return _NOT_RECONCILED_PROBLEM
        is_synced, problem = self.report.synced_condition if self.report else (True, None)
        return None if is_synced else problem

    @property
    def has_failed(self) -> bool:
        """True if the mirror was not reconciled, or the Kubernetes API or Eureka failed."""
        from eurekube_provider.core.mirror_conditions import MirrorCondition  # where mirrors are served only

        problem = self.problem
        failures = (
            _NOT_RECONCILED_PROBLEM.reason,
            Reason.KUBERNETES_ERROR,
            MirrorCondition.SOURCE_UNREACHABLE,
        )
        return problem is not None and problem.reason in failures


class RunReport:
    """The plans and outcomes of an operator with ``--dry-run`` or ``--once``, and their output.

    :param is_once: the operator ends once everything was reconciled.
    :param is_dry: no plan is carried out.
    """

    def __init__(self, *, is_once: bool, is_dry: bool, output: str = "text") -> None:
        self.is_once = is_once
        self.is_dry = is_dry
        self._output = output
        self._was_printed = False
        self._keys: dict[str, SyncerKey] = {}
        self._deleted: frozenset[SyncerKey] = frozenset()
        self._lock = threading.Lock()
        self._entries: dict[str, dict[str, tuple[Plan, PlanOutcome]]] = {}  # by owner and registry
        self._reports: Mapping[SyncerKey, SyncerReport] = {}
        self._mirrors: dict[MirrorKey, RecordedMirror] = {}

    def record_plan(self, plan: Plan, owner: str, name: str, outcome: PlanOutcome) -> None:
        """Record an owner's plan at the registry of this name, and the plan's outcome."""
        with self._lock:
            entries = self._entries.setdefault(owner, {})
            before = entries.get(name)
            entries[name] = plan, outcome
            if before and not self.is_dry:  # a syncer may need several reconciles in one pass
                entries[name] = (
                    Plan(before[0].changes + plan.changes, plan.refusals),
                    PlanOutcome(before[1].done + outcome.done, outcome.failures),
                )
        if self.is_dry and not self.is_once and (before[0] if before else Plan()) != plan:
            _log.info(
                "dry run: planned changes, making none", extra={"owner": owner, "plan": plan.describe()}
            )

    def record_mirror(self, key: MirrorKey, report: MirrorReport | None, writes: list[str]) -> None:
        """Record the report of one reconcile of a mirror, and its writes, real or planned."""
        with self._lock:
            before = self._mirrors.get(key, RecordedMirror())
            every = tuple(writes) if self.is_dry else (*before.writes, *writes)
            self._mirrors[key] = RecordedMirror(report or before.report, every, was_reconciled=True)
        if self.is_dry and not self.is_once and before.writes != every:
            extra = {"mirror": "/".join(key), "plan": "\n".join(every) or "nothing"}
            _log.info("dry run: planned a mirror's writes, making none", extra=extra)

    @property
    def has_failed(self) -> bool:
        """True if a change or a reconcile failed, or if a syncer or mirror was not reconciled."""
        with self._lock:
            return (
                not self._was_printed
                or any(self._failures(owner) for owner in self._entries)
                or any(report.synced.reason in _FAILURE_REASONS for report in self._reports.values())
                or any(not self._is_recorded_owner(owner) for owner in self._keys)
                or any(one.has_failed for one in self._mirrors.values())
            )

    def print(
        self,
        owners: Mapping[SyncerKey, str],
        reports: Mapping[SyncerKey, SyncerReport],
        deleted: frozenset[SyncerKey] = frozenset(),
        mirrors: Iterable[MirrorKey] = (),
    ) -> None:
        """Print every plan, its outcome, and the faults of syncers and mirrors.

        :param owners: the owner of each syncer that should have been reconciled.
        :param deleted: syncers that were deleted, and waited for an operator to remove their finalizer.
        """
        with self._lock:
            self._reports, self._deleted = reports, deleted
            self._keys = {owner: key for key, owner in owners.items()}
            self._was_printed = True
            every = sorted({*self._keys, *self._entries})
            for key in mirrors:
                self._mirrors.setdefault(key, RecordedMirror())
            if self._output == "json":
                text = to_json_text(
                    {
                        "dryRun": self.is_dry,
                        "syncers": [self._owner_as_dict(owner) for owner in every],
                        "mirrors": [
                            {
                                "mirror": "/".join(key),
                                "problem": _problem_dict(one.problem),
                                "writes": list(one.writes),
                            }
                            for key, one in sorted(self._mirrors.items())
                        ],
                    }
                )
            else:
                text = (
                    "".join(map(self._owner_as_text, every))
                    or "there are no syncers, and nothing is left of one\n"
                )
                text += "".join(map(_mirror_text, sorted(self._mirrors.items(), key=lambda one: one[0])))
        sys.stdout.write(printable_lines(text))
        sys.stdout.flush()

    def _owner_as_dict(self, owner: str) -> dict[str, Any]:
        plans = [plan.to_dict() for plan, _ in self._entries.get(owner, {}).values()]
        return {
            "owner": owner,
            "problem": _problem_dict(self._problem(owner)),
            "plans": plans,
            "released": self._is_finalizer_removed(owner),
            "failures": self._failures(owner),
        }

    def _owner_as_text(self, owner: str) -> str:
        lines = [f"{owner}:"]
        lines += _problem_lines(self._problem(owner))
        is_finalizer_removed = self._is_finalizer_removed(owner)
        for plan, _ in self._entries.get(owner, {}).values():
            if plan or plan.refusals or not is_finalizer_removed:
                lines += plan.describe().splitlines()
        if is_finalizer_removed:
            lines.append(
                "would be released: it was deleted, and waits for an operator to let it go"
                if self.is_dry
                else "released: it was deleted, and waited for an operator to let it go"
            )
        lines += [f"failed: {failure['error']}" for failure in self._failures(owner)]
        return "\n  ".join(lines) + "\n"

    def _is_finalizer_removed(self, owner: str) -> bool:
        key = self._keys.get(owner)
        return key in self._deleted and key not in self._reports and not self._failures(owner)

    def _is_recorded_owner(self, owner: str) -> bool:
        key = self._keys[owner]
        return owner in self._entries or key in self._reports or key in self._deleted

    def _problem(self, owner: str) -> Problem | None:
        """Return the problem of the owner's syncer; None for a synced or a deleted syncer."""
        key = self._keys.get(owner)
        if key is None:
            return None
        report = self._reports.get(key)
        if report is None:  # nothing is said of one on its way out, whose instances go
            return None if self._is_recorded_owner(owner) else _NOT_RECONCILED_PROBLEM
        return None if report.is_synced else report.synced

    def _failures(self, owner: str) -> list[dict[str, str]]:
        return [
            {
                "application": failure.change.instance.application,
                "instanceId": failure.change.instance.instance_id,
                "error": str(failure.error),
            }
            for _, outcome in self._entries.get(owner, {}).values()
            for failure in outcome.failures
        ]


def _problem_dict(problem: Problem | None) -> dict[str, str] | None:
    return {"reason": problem.reason, "message": problem.text} if problem else None


def _problem_lines(problem: Problem | None) -> list[str]:
    return [f"! {problem.reason}: {problem.text}"] if problem else []


def _mirror_text(entry: tuple[MirrorKey, RecordedMirror]) -> str:
    key, one = entry
    lines = [f"mirror {'/'.join(key)}:"]
    lines += _problem_lines(one.problem)
    count = len(one.writes)
    lines += [*one.writes, format_count(count, "write") if count else "nothing to do"]
    return "\n  ".join(lines) + "\n"


class RecordingRegistry:
    """A registry that records each plan in a run report; in a dry run it is only read."""

    def __init__(self, registry: Registry, name: str, run_report: RunReport) -> None:
        self._registry, self._name, self._run_report = registry, name, run_report
        self._reads_each_until = time.monotonic() + UNCACHED_READS_AFTER_START_SECONDS
        self.start, self.stop, self.liveness = registry.start, registry.stop, registry.liveness
        self.condition, self.figures = registry.condition, registry.figures
        self.known_instances, self.get = registry.known_instances, registry.get
        self.read_everywhere = registry.read_everywhere
        self.owners, self.cluster_names = registry.owners, registry.cluster_names
        self.count_up_instances = registry.count_up_instances
        self.instances_lost_by_registry = registry.instances_lost_by_registry
        self.stop_tracking_lost_instances = registry.stop_tracking_lost_instances
        if isinstance(registry, MirrorSource):
            self.call_after_reads = registry.call_after_reads
            self.instances_by_application = registry.instances_by_application
            self.look_up_unlisted = registry.look_up_unlisted
        self.keep_registered: Callable[..., None] = registry.keep_registered
        self.let_lapse: Callable[[Instance], None] = registry.let_lapse
        self.start_leading: Callable[[int], None] = registry.start_leading
        self.stand_by: Callable[[], None] = registry.stand_by
        if run_report.is_dry:
            self.keep_registered = self.let_lapse = self.start_leading = self.stand_by = _do_nothing

    def refresh(self, keys: Iterable[InstanceKey], *, include_known: bool = False) -> None:
        """Read each instance, also listed ones while lists may be old: a plan starts from what is there."""
        is_doubted = self._run_report.is_once or time.monotonic() < self._reads_each_until
        if is_doubted or not include_known:
            self._registry.refresh(keys, include_known=is_doubted)

    def apply(self, plan: Plan, owner: str) -> PlanOutcome:
        """Record a plan and its outcome; carry the plan out unless this is a dry run."""
        outcome = PlanOutcome() if self._run_report.is_dry else self._registry.apply(plan, owner)
        self._run_report.record_plan(plan, owner, self._name, outcome)
        return outcome


def _do_nothing(*_: object) -> None:
    """Do nothing, in place of a registry's method in a dry run."""


def to_json_text(value: Mapping[str, Any] | Iterable[Any]) -> str:
    """Return a value as indented JSON with a newline at its end."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


class DryRunAccess(KubeAccess):
    """Access to the Kubernetes API that sends reads only; a write returns its own body."""

    sends_writes = False

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        *rest: Any,
        **more: Any,
    ) -> dict[str, Any]:
        """Send a GET; answer any other request with its own body, without sending it."""
        if method == "GET":
            return super().request(method, path, query, body, *rest, **more)
        return dict(body or {})
