"""What people hear of a look at a syncer: log, Events and the object's status. Others write them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from eurekube_provider.core.condition_types import ConditionType, Reason
from eurekube_provider.core.mapping import UNREAD
from eurekube_provider.core.plan import Action, Outcome
from eurekube_provider.kube.events import EventRecorder, EventType
from eurekube_provider.operator.conditions import Report
from eurekube_provider.operator.deletion import Deleted
from eurekube_provider.operator.index import SyncerKey, key_of
from eurekube_provider.operator.status import StatusWriter

_log = logging.getLogger(__name__)

Object = Mapping[str, Any]


class StatusPublisher:
    """Tells of looks; any number of workers may share it, each with a syncer of its own."""

    def __init__(self, events: EventRecorder, statuses: StatusWriter) -> None:
        self._events = events
        self._statuses = statuses
        self._cut_off: set[SyncerKey] = set()

    def publish_reconcile(self, syncer: Object, found: Report, outcome: Outcome, seconds: float) -> None:
        """Of one look, and what was done at it, also in the log.

        :param seconds: how long it took.
        """
        done = {action: sum(change.action is action for change in outcome.done) for action in Action}
        if outcome.done:
            _log.info(
                "Eureka was brought in line",
                extra={
                    "syncer": "/".join(key_of(syncer)),
                    "application": found.application,
                    **{str(action): count for action, count in done.items() if count},
                    "milliseconds": round(seconds * 1000, 1),
                },
            )
        for action, reason in ((Action.REGISTER, "Registered"), (Action.DEREGISTER, "Deregistered")):
            if done[action]:
                verb = reason.lower()
                self._events.tally(syncer, reason, done[action], f"of {found.application} {verb}")
        self.publish(syncer, found)

    def publish(self, syncer: Object, found: Report) -> None:
        """Have status and Events written."""
        key = key_of(syncer)
        for reason, message in found.problems.items():
            if reason != ConditionType.PAUSED and reason not in UNREAD:
                self._events.record(syncer, EventType.WARNING, reason, message)
        if Reason.EUREKA_UNREACHABLE in found.problems:
            self._cut_off.add(key)
        elif key in self._cut_off:
            self._cut_off.discard(key)
            self._events.record(syncer, EventType.NORMAL, "EurekaReachable", "Eureka answers again")
        self._statuses.report(syncer, found)

    def publish_deletion(self, syncer: Object, deleted: Deleted) -> None:
        """What became of a deleted syncer."""
        if deleted.deregistered:
            self._events.tally(syncer, "Deregistered", deleted.deregistered, "taken out of Eureka")
        if deleted.left_behind:
            self._events.record(syncer, EventType.WARNING, "LeftBehind", deleted.left_behind)

    def forget(self, key: SyncerKey) -> None:
        """The syncer is gone."""
        self._statuses.forget(key)
        self._cut_off.discard(key)

    def forget_all(self) -> None:
        """Another replica tells from now on."""
        self._statuses.forget_all()
        self._cut_off.clear()
