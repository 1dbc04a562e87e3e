"""One StackRefresh, as the leading replica knows it: whether it may run its target, and when it must act
next.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from eurekube_provider.core.brake import HOLD_SECONDS, RELEASE_ANNOTATION, doubt_of_source
from eurekube_provider.core.condition_types import RefreshReason
from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.schedule import Pace, Schedule
from eurekube_provider.core.stack_refresh import (
    Addresses,
    Endpoints,
    StackRefresh,
    addresses_of,
    ready_endpoints,
)
from eurekube_provider.core.syncer import Selector
from eurekube_provider.operator.index import Object
from eurekube_provider.operator.settings import Settings
from eurekube_provider.operator.triggers.trigger_state import TriggerState

Selected = Callable[[Selector], tuple[list[Object], list[Object]]]
"""Function that returns the Services that a selector matches, and their EndpointSlices."""

Due = tuple[str, Addresses, Endpoints]
"""The state to run for: its digest, and the addresses and endpoints behind the digest."""

SeenTerminating = Callable[[str, str], bool]
"""Function that returns whether a pod (or address) of a namespace was seen terminating."""


class UnknownTarget(ConfigurationError):
    """Error of a StackRefresh that names a target which the operator does not have."""


@dataclass(slots=True)
class TriggerEntry:
    """One StackRefresh as the leader knows it: its spec, its state, and its schedule.

    :ivar item: the object, with the status that was written last.
    :ivar refresh: the parsed spec; None while the StackRefresh is refused.
    :ivar compared_touch: the last touch after which the wanted endpoints were compared with the served ones.
    :ivar is_unwritten: True if its status is to be written.
    :ivar not_before: the earliest time of the next try, since the Kubernetes API refused something.
    :ivar ran_for: the endpoints that the last run was for; None where this process did not begin it.
    :ivar held_since: since when the wanted endpoints look like a broken source; None where they do not.
    :ivar is_released: a person said that the change is meant.
    """

    item: Object
    state: TriggerState
    schedule: Schedule
    refresh: StackRefresh | None = None
    pace: Pace = field(default_factory=lambda: Pace(0.0, 0.0))
    compared_touch: float | None = None
    is_unwritten: bool = False
    not_before: float = -math.inf
    ran_for: Endpoints | None = None
    held_since: float | None = None
    is_released: bool = False

    @property
    def uid(self) -> str:
        """UID of the StackRefresh."""
        return str(self.item["metadata"].get("uid"))

    def validate(self, settings: Settings) -> bool:
        """Parse and check the spec; return whether it may run, and put a refusal into the state."""
        before = self.state
        try:
            self.refresh = StackRefresh.from_object(self.item)
            self.pace = pace_of(self.refresh, settings)
        except ConfigurationError as error:
            self.refresh = None
            reason = RefreshReason.NOT_ALLOWED
            if isinstance(error, UnknownTarget):
                reason = RefreshReason.UNKNOWN_TARGET
            self.state = before.refused(reason, str(error))
            self.is_unwritten = True
            return False
        self.state = before.accepted(is_paused=self.refresh.is_paused)
        status = self.item.get("status") or {}
        is_new = status.get("observedGeneration") != self.item["metadata"].get("generation")
        self.is_unwritten = self.is_unwritten or is_new or self.state != before
        return True

    def next_at(self, earliest: float | None) -> float | None:
        """Return when this entry must be looked at next; None while it has nothing to do.

        :param earliest: when a run of its target may begin; None while it cannot.
        """
        times = [self.not_before] if self.is_unwritten else []
        debounced, due = self.schedule.debounced_at(self.pace), self._due_at(earliest)
        if self.refresh is not None and debounced is not None:
            if self.compared_touch != self.schedule.last_touch:
                times.append(max(debounced, self.not_before))
            elif due is not None and not self.refresh.is_paused:
                times.append(max(due, self.not_before))
        return min(times, default=None)

    def _due_at(self, earliest: float | None) -> float | None:
        due = self.schedule.due_at(self.pace)
        if due is None or earliest is None:
            return None
        held_until = -math.inf if self.held_since is None else self.held_since + HOLD_SECONDS
        return max(due, earliest, held_until)

    def due_at(self, earliest: float = -math.inf) -> float | None:
        """Return when the stack runs, if the addresses have changed; None while nothing may have changed.

        :param earliest: when a run of its target may begin, should it be free.
        """
        if self.refresh is None or self.refresh.is_paused:
            return None
        due = self._due_at(earliest)
        return None if due is None else max(due, self.not_before)

    def reconcile(
        self, now: float, selected: Selected, seen_terminating: SeenTerminating, earliest: float | None
    ) -> Due | None:
        """Compare the wanted endpoints with the served ones, if it is time.

        :param earliest: when a run of its target may begin; None while it cannot.
        :returns: the endpoints to run for, if a run is due as well.
        """
        debounced, due = self.schedule.debounced_at(self.pace), self._due_at(earliest)
        if self.refresh is None or debounced is None or debounced > now:
            return None
        if self.compared_touch == self.schedule.last_touch and not self._runs_at(now, due):
            return None
        before = self.state
        services, slices = selected(self.refresh.selector)
        endpoints = ready_endpoints(services, slices)
        addresses = addresses_of(services, endpoints)
        self.compared_touch = self.schedule.last_touch
        wanted = self.refresh.digest(addresses)
        self.state = before.observing(addresses)
        doubt = "" if wanted == self.schedule.served else self._doubt(endpoints, seen_terminating)
        self.is_released = bool(doubt) and RELEASE_ANNOTATION in (
            self.item["metadata"].get("annotations") or {}
        )
        if not doubt or self.is_released:
            self.held_since = None
        elif self.held_since is None:
            self.held_since = now
        due = self._due_at(earliest)
        if wanted == self.schedule.served:
            self.schedule = self.schedule.settled()
            self.state = self.state.in_line()
        elif not addresses and not self.state.runs:
            self.schedule = self.schedule.settled()
            selector = self.refresh.selector
            nothing = f"no Service in {selector.namespace} {selector.describe()}"
            self.state = self.state.refused(RefreshReason.NO_MATCHING_SERVICE, nothing)
        elif self._runs_at(now, due):
            return wanted, addresses, endpoints
        elif self.held_since is not None and not self.refresh.is_paused:
            self.state = self.state.held(
                f"{doubt}: held back for {HOLD_SECONDS:.0f} s in case the source is broken; if it is meant,"
                f" annotate the StackRefresh with {RELEASE_ANNOTATION}=now"
            )
        else:
            free = self._due_at(-math.inf if earliest is None else earliest) or now
            self.state = self.state.waiting(free - now)
        self.is_unwritten = self.is_unwritten or self.state != before
        return None

    def _runs_at(self, now: float, due: float | None) -> bool:
        return due is not None and due <= now and self.refresh is not None and not self.refresh.is_paused

    def _doubt(self, endpoints: Endpoints, seen_terminating: SeenTerminating) -> str:
        """Return why the present endpoints, compared with those of the last run, look like a broken
        source.
        """
        if self.ran_for is None:  # another process began it: how many there were is all that is known
            count = self.state.served_addresses
            going, coming = max(0, count - len(endpoints)), max(0, len(endpoints) - count)
            return doubt_of_source(count, going, going, coming)
        leaving = self.ran_for.keys() - endpoints.keys()
        doubted = sum(
            not seen_terminating(pod, place) for place, pod in map(self.ran_for.__getitem__, leaving)
        )
        arriving = len(endpoints.keys() - self.ran_for.keys())
        return doubt_of_source(len(self.ran_for), len(leaving), doubted, arriving)


def pace_of(refresh: StackRefresh, settings: Settings) -> Pace:
    """Return how often a StackRefresh may run.

    :raises ConfigurationError: it may not run at all.
    """
    target = settings.targets.get(refresh.target)
    if target is None:
        known = ", ".join(sorted(settings.targets)) or "none"
        raise UnknownTarget(
            f"spec.target is {refresh.target!r}, and the operator's configuration has no target of that"
            f" name; there are: {known}"
        )
    pace = target.pace_of(refresh)
    there = refresh.selector.namespace
    if not settings.may_select(refresh.namespace, there):
        raise ConfigurationError(
            f"spec.selector.namespace is {there}, and {refresh.namespace} may not select Services there:"
            f" allow it in the operator's configuration with --cross-namespace {refresh.namespace}={there}"
        )
    if not settings.watches(there):
        raise ConfigurationError(
            f"spec.selector.namespace is {there}, which this operator does not watch: add it to"
            " --watch-namespace"
        )
    return pace


def run_key(entry: TriggerEntry, wanted: str) -> str:
    """Return the key of a run, which stays the same for every try by any replica until one succeeds."""
    text = f"{entry.uid}/{entry.state.runs}/{wanted}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]
