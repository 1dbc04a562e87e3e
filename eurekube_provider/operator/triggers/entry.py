"""One StackRefresh, as the leading replica knows it: whether it may work, and what it needs next."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.refresh import Addresses, Refresh, ready_addresses
from eurekube_provider.core.schedule import Pace, Schedule
from eurekube_provider.core.syncer import Selector
from eurekube_provider.operator.settings import Settings
from eurekube_provider.operator.triggers.standing import Standing

Object = dict[str, Any]
Selected = Callable[[Selector], tuple[list[Object], list[Object]]]
"""The Services that a selector means, and their EndpointSlices."""


class UnknownTarget(ConfigurationError):
    """A StackRefresh names a target that the operator does not have."""


@dataclass(slots=True)
class Entry:
    """One StackRefresh.

    :ivar item: the object, with the status that was written last.
    :ivar refresh: None while it cannot work as it is.
    :ivar looked_at: the last touch that was looked at.
    :ivar is_unwritten: whether its status is to be written.
    :ivar not_before: nothing is done before, since the Kubernetes API refused something.
    """

    item: Object
    standing: Standing
    schedule: Schedule
    refresh: Refresh | None = None
    pace: Pace = field(default_factory=lambda: Pace(0.0, 0.0))
    looked_at: float | None = None
    is_unwritten: bool = False
    not_before: float = -math.inf

    @property
    def uid(self) -> str:
        """What tells it from another one of its name."""
        return str(self.item["metadata"].get("uid"))

    def admit(self, settings: Settings) -> ConfigurationError | None:
        """Find out whether it may work; returns why not."""
        before = self.standing
        try:
            self.refresh = Refresh.from_object(self.item)
            self.pace = pace_of(self.refresh, settings)
        except ConfigurationError as error:
            self.refresh = None
            reason = "UnknownTarget" if isinstance(error, UnknownTarget) else "NotAllowed"
            self.standing = before.refused(reason, str(error))
            self.is_unwritten = True
            return error
        self.standing = before.admitted(is_paused=self.refresh.is_paused)
        status = self.item.get("status") or {}
        is_new = status.get("observedGeneration") != self.item["metadata"].get("generation")
        self.is_unwritten = self.is_unwritten or is_new or self.standing != before
        return None

    def next_at(self, *, may_begin: bool) -> float | None:
        """When there is something to do; None while there is not.

        :param may_begin: whether a run of its target can begin at all.
        """
        times = [self.not_before] if self.is_unwritten else []
        look, due = self.schedule.look_at(self.pace), self.schedule.due_at(self.pace)
        if self.refresh is not None and look is not None and due is not None:
            if self.looked_at != self.schedule.last_touch:
                times.append(max(look, self.not_before))
            elif may_begin and not self.refresh.is_paused:
                times.append(max(due, self.not_before))
        return min(times, default=None)

    def due_at(self) -> float | None:
        """When it runs, should there be something to run for; None while nothing may have changed."""
        if self.refresh is None or self.refresh.is_paused:
            return None
        due = self.schedule.due_at(self.pace)
        return None if due is None else max(due, self.not_before)

    def look(self, now: float, selected: Selected, *, may_begin: bool) -> tuple[str, Addresses] | None:
        """If it is time, compare what is wanted with what was served.

        :param may_begin: whether a run of its target can begin.
        :returns: what to run for, when it is time for that, too.
        """
        look, due = self.schedule.look_at(self.pace), self.schedule.due_at(self.pace)
        if self.refresh is None or look is None or due is None or look > now:
            return None
        runs = due <= now and may_begin and not self.refresh.is_paused
        if self.looked_at == self.schedule.last_touch and not runs:
            return None
        before = self.standing
        addresses = ready_addresses(*selected(self.refresh.selector))
        self.looked_at = self.schedule.last_touch
        wanted = self.refresh.digest(addresses)
        self.standing = before.observing(addresses)
        if wanted == self.schedule.served:
            self.schedule = self.schedule.settled()
            self.standing = self.standing.in_line()
        elif not addresses and not self.standing.runs:
            self.schedule = self.schedule.settled()
            self.standing = self.standing.refused("NoMatchingService", _nothing(self.refresh))
        elif runs:
            return wanted, addresses
        else:
            self.standing = self.standing.waiting(due - now)
        self.is_unwritten = self.is_unwritten or self.standing != before
        return None


def pace_of(refresh: Refresh, settings: Settings) -> Pace:
    """How often a StackRefresh may run.

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


def run_key(entry: Entry, wanted: str) -> str:
    """What names a run, whichever replica tries it: the same until one goes well."""
    text = f"{entry.uid}/{entry.standing.runs}/{wanted}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def says(status: Mapping[str, Any], patch: Mapping[str, Any]) -> bool:
    """Whether a status holds already what a merge patch would write."""

    def told(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: told(one) for key, one in value.items() if one is not None}
        return value

    return all(told(status.get(key)) == told(value) for key, value in patch.items())


def _nothing(refresh: Refresh) -> str:
    return f"no Service in {refresh.selector.namespace} {refresh.selector.describe()}"
