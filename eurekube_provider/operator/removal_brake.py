"""Holds back removals that look like a broken source: for a minute, or until a person says go on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from eurekube_provider.core.brake import WINDOW_SECONDS, brings, judge, takes_away
from eurekube_provider.core.condition_types import ConditionType
from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.plan import Plan
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.registry import Registry
from eurekube_provider.core.sliding_window import SlidingWindow
from eurekube_provider.kube.access import MERGE_PATCH, SYNCERS, KubeAccess
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.sources import Sources

_log = logging.getLogger(__name__)

RELEASE_ANNOTATION = "eurekube.io/release-brake"
"""With any value on a syncer: the removals are meant; go on at once. Taken off when it was obeyed."""


@dataclass(frozen=True, slots=True)
class HeldRemovals:
    """Removals that wait.

    :param wait_seconds: when to reconcile again.
    :param held_seconds: for how long they have waited.
    """

    problem: Problem
    wait_seconds: float
    held_seconds: float


class Brake:
    """The brake of one operator; any number of workers may share it.

    :param registries: all of them: an operator's share is that of all that it has registered.
    """

    def __init__(
        self,
        cluster: Cluster,
        registries: Collection[Registry],
        access: KubeAccess,
        sources: Sources,
        clock: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._registries = registries
        self._access = access
        self._sources = sources
        self._lock = threading.Lock()
        self._held_since: dict[SyncerKey, tuple[float, str]] = {}  # and until when, as people are told
        self._window: SlidingWindow[SyncerKey, tuple[str, str]] = SlidingWindow(WINDOW_SECONDS)

    def check(
        self,
        key: SyncerKey,
        syncer: Mapping[str, Any],
        steps: Plan,
        owner: str,
        *,
        is_repacked: bool = False,
    ) -> tuple[Plan, HeldRemovals | None]:
        """What of ``steps`` may be done now, and what the rest waits for.

        :param is_repacked: see :func:`~eurekube_provider.core.brake.judge`.
        """
        seen_terminating = self._sources.seen_terminating
        now = self._clock()
        leaving = {
            change.instance.key
            for change in steps.changes
            if takes_away(change) and not seen_terminating(change.instance.instance_id)
        }
        coming = {change.instance.key for change in steps.changes if brings(change)}
        with self._lock:
            recent = self._window.recent(now, key, leaving, coming)
            self._window.note(now, key, (), coming)
            if not leaving:
                self._held_since.pop(key, None)
                return steps, None
        up = sum(registry.up(owner=owner) for registry in self._registries)
        of_all = sum(registry.up(cluster=self._cluster.name) for registry in self._registries)
        judgement = judge(steps, up, of_all, recent, seen_terminating, is_repacked=is_repacked)
        is_released = bool(judgement.reason) and RELEASE_ANNOTATION in (
            syncer["metadata"].get("annotations") or {}
        )
        with self._lock:
            if judgement.reason and not is_released:
                ends = datetime.now(UTC) + timedelta(seconds=judgement.hold_seconds)
                since, until = self._held_since.setdefault(key, (now, f"{ends:%Y-%m-%dT%H:%M:%SZ}"))
                waited = now - since
                if waited < judgement.hold_seconds:
                    if waited == 0:
                        about = {"syncer": "/".join(key), "reason": judgement.reason}
                        _log.warning("removals are held back", extra=about)
                    problem = Problem(
                        ConditionType.BRAKED,
                        f"{judgement.reason}: held back until {until} in case the source is broken",
                        f"if the removals are meant, annotate the syncer with {RELEASE_ANNOTATION}=now",
                    )
                    return judgement.held_back(steps), HeldRemovals(
                        problem, judgement.hold_seconds - waited + 0.1, waited
                    )
            self._held_since.pop(key, None)
            self._window.note(now, key, leaving, ())
        if is_released:
            self._take_off(key)
        return steps, None

    def forget(self, key: SyncerKey) -> None:
        """Forget since when removals of a syncer wait."""
        with self._lock:
            self._held_since.pop(key, None)

    def forget_all(self) -> None:
        """Forget what was counted: another replica held back and removed meanwhile."""
        with self._lock:
            self._held_since.clear()
            self._window.clear()

    def _take_off(self, key: SyncerKey) -> None:
        """The annotation was obeyed, and shall not release the next hold as well."""
        _log.warning("a person released the brake", extra={"syncer": "/".join(key)})
        try:
            body = {"metadata": {"annotations": {RELEASE_ANNOTATION: None}}}
            self._access.request("PATCH", SYNCERS.path(*key), body=body, content_type=MERGE_PATCH)
        except KubernetesError as error:
            _log.warning("the annotation was not taken off", extra={"error": str(error)})
