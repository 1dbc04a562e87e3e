"""One StackRefresh as the leading replica knows it: its permission to run a target, and its next run."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from eurekube_provider.core.brake import (
    BRAKE_HOLD_SECONDS,
    RELEASE_BRAKE_ANNOTATION,
    describe_suspicious_address_loss,
)
from eurekube_provider.core.condition_types import RefreshReason
from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.schedule import RunLimits, Schedule
from eurekube_provider.core.stack_refresh import (
    AddressesByService,
    ReadyEndpoints,
    StackRefresh,
    find_ready_endpoints,
    group_addresses_by_service,
)
from eurekube_provider.core.syncer import Selector, has_annotation
from eurekube_provider.operator.index import Object
from eurekube_provider.operator.settings import Settings
from eurekube_provider.operator.triggers.trigger_state import StackRefreshState

SelectServices = Callable[[Selector], tuple[list[Object], list[Object]]]
"""Function that returns the Services that a selector matches, and their EndpointSlices."""

DueRun = tuple[str, AddressesByService, ReadyEndpoints]
"""A run that is due: the digest of the wanted addresses, those addresses by Service, and their endpoints."""

WasSeenTerminating = Callable[[str, str], bool]
"""Function that returns whether a pod (or address) of a namespace was seen terminating."""


class UnknownTarget(ConfigurationError):
    """Error of a StackRefresh that names a target which the operator does not have."""


@dataclass(slots=True)
class StackRefreshEntry:
    """One StackRefresh as the leader knows it: its spec, its state, and its schedule.

    All times are monotonic.

    :ivar refresh_object: the custom resource, with the status that was written last.
    :ivar refresh: the parsed spec; None while the StackRefresh is refused.
    :ivar last_compared_change_at: time of the last change after which the endpoints were compared with those
        of the last run.
    :ivar last_run_endpoints: the endpoints that the last run was for; None if another process began that run.
    :ivar braked_since: time since when the brake holds a run back, as its endpoints look like a broken
        source; None if it holds none back.
    :ivar is_brake_released: True if a person confirmed the change with the release annotation;
        ``is_release_spent`` if nothing was held that it could release.
    """

    refresh_object: Object
    state: StackRefreshState
    schedule: Schedule
    refresh: StackRefresh | None = None
    run_limits: RunLimits = field(default_factory=lambda: RunLimits(0.0, 0.0))
    last_compared_change_at: float | None = None
    last_run_endpoints: ReadyEndpoints | None = None
    braked_since: float | None = None
    is_brake_released: bool = False
    is_release_spent: bool = False

    @property
    def uid(self) -> str:
        return str(self.refresh_object["metadata"].get("uid"))

    def parse_and_check_spec(self, settings: Settings) -> bool:
        """Parse and check the spec; return whether its target may run. A refusal is put into the state."""
        try:
            self.refresh = StackRefresh.from_object(self.refresh_object)
            self.run_limits = run_limits_of(self.refresh, settings)
        except ConfigurationError as error:
            self.refresh = None
            reason = RefreshReason.NOT_ALLOWED
            if isinstance(error, UnknownTarget):
                reason = RefreshReason.UNKNOWN_TARGET
            self.state = self.state.as_refused(reason, str(error))
            return False
        self.state = self.state.as_valid(is_paused=self.refresh.is_paused)
        return True

    def next_check_at(self, earliest_run_at: float | None) -> float | None:
        """Return when this StackRefresh must be reconciled next; None while nothing is to be done."""
        debounced = self.schedule.debounce_ends_at(self.run_limits)
        if self.refresh is None or debounced is None:
            return None
        has_changed = self.last_compared_change_at != self.schedule.last_change_at
        return debounced if has_changed else self.run_due_at(earliest_run_at)

    def run_due_at(self, earliest_run_at: float | None, *, even_if_paused: bool = False) -> float | None:
        """Return when a run for changed addresses is due; None while nothing changed, or while paused.

        :param earliest_run_at: when a run of its target may begin; None while it cannot.
        """
        due = self.schedule.run_due_at(self.run_limits)
        if self.refresh is None or due is None or earliest_run_at is None:
            return None
        if self.refresh.is_paused and not even_if_paused:
            return None
        held_until = -math.inf if self.braked_since is None else self.braked_since + BRAKE_HOLD_SECONDS
        return max(due, earliest_run_at, held_until)

    def compare_with_last_run(
        self,
        now: float,
        selected: SelectServices,
        seen_terminating: WasSeenTerminating,
        earliest_run_at: float | None,
    ) -> DueRun | None:
        """Compare the present endpoints with those of the last run, once the debounce is over.

        :returns: the endpoints to run for, if a run is due as well.
        """
        next_at = self.next_check_at(earliest_run_at)
        if self.refresh is None or next_at is None or next_at > now:
            return None
        services, slices = selected(self.refresh.selector)
        endpoints = find_ready_endpoints(services, slices)
        addresses = group_addresses_by_service(services, endpoints)
        self.last_compared_change_at = self.schedule.last_change_at
        wanted_digest = self.refresh.digest(addresses)
        self.state = self.state.with_addresses(addresses)
        doubt = (
            ""
            if wanted_digest == self.schedule.served_digest
            else self._broken_source_sentence(endpoints, seen_terminating)
        )
        is_annotated = has_annotation(self.refresh_object, RELEASE_BRAKE_ANNOTATION)
        self.is_brake_released, self.is_release_spent = (
            is_annotated and bool(doubt),
            is_annotated and not doubt,
        )
        if not doubt or self.is_brake_released:
            self.braked_since = None
        elif self.braked_since is None:
            self.braked_since = now
        if wanted_digest == self.schedule.served_digest:
            self.schedule = self.schedule.after_no_difference()
            self.state = self.state.as_synced()
        elif not addresses and not self.state.successful_runs:
            self.schedule = self.schedule.after_no_difference()
            selector = self.refresh.selector
            nothing = f"no Service in {selector.namespace} {selector.describe()}"
            self.state = self.state.as_refused(RefreshReason.NO_MATCHING_SERVICE, nothing)
        elif (due_at := self.run_due_at(earliest_run_at)) is not None and due_at <= now:
            return wanted_digest, addresses, endpoints
        elif self.braked_since is not None and not self.refresh.is_paused:
            self.state = self.state.as_braked(
                f"{doubt}: held back for {BRAKE_HOLD_SECONDS:.0f} s in case the source is broken; if it is "
                f"meant, annotate the StackRefresh with {RELEASE_BRAKE_ANNOTATION}=now"
            )
        else:
            earliest = -math.inf if earliest_run_at is None else earliest_run_at
            free = self.run_due_at(earliest, even_if_paused=True) or now
            self.state = self.state.as_waiting(free - now)
        return None

    def _broken_source_sentence(self, endpoints: ReadyEndpoints, seen_terminating: WasSeenTerminating) -> str:
        """Return why the endpoints, compared with the last run's, look like a broken source."""
        if self.last_run_endpoints is None:
            # Another process began it: how many there were is all that is known.
            count = int(self.state.last_run.get("addresses") or 0)
            going, coming = max(0, count - len(endpoints)), max(0, len(endpoints) - count)
            return describe_suspicious_address_loss(count, going, going, coming)
        leaving = self.last_run_endpoints.keys() - endpoints.keys()
        doubted = sum(
            not seen_terminating(pod, place)
            for place, pod in map(self.last_run_endpoints.__getitem__, leaving)
        )
        arriving = len(endpoints.keys() - self.last_run_endpoints.keys())
        return describe_suspicious_address_loss(len(self.last_run_endpoints), len(leaving), doubted, arriving)


def run_limits_of(refresh: StackRefresh, settings: Settings) -> RunLimits:
    """Return how often a StackRefresh may run.

    :raises ConfigurationError: it may not run at all.
    """
    target = settings.targets.get(refresh.target)
    if target is None:
        known = ", ".join(sorted(settings.targets)) or "none"
        raise UnknownTarget(
            f"spec.target is {refresh.target!r}, and the operator's configuration has no target of that "
            f"name; there are: {known}"
        )
    run_limits = target.run_limits_of(refresh)
    there = refresh.selector.namespace
    if not settings.may_select(refresh.namespace, there):
        raise ConfigurationError(
            f"spec.selector.namespace is {there}, and {refresh.namespace} may not select Services there:"
            f" allow it in the operator's configuration with --cross-namespace {refresh.namespace}={there}"
        )
    if not settings.watches_namespace(there):
        raise ConfigurationError(
            f"spec.selector.namespace is {there}, which this operator does not watch: add it to "
            "--watch-namespace"
        )
    return run_limits


def idempotency_key(entry: StackRefreshEntry, wanted_digest: str) -> str:
    """Return the key of a run, which stays the same for every try by any replica until one succeeds."""
    text = f"{entry.uid}/{entry.state.successful_runs}/{wanted_digest}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]
