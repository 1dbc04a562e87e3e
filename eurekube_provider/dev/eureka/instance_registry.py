"""The content of one Eureka server, and the rules by which it changes: leases, statuses and overrides.

Source: AbstractInstanceRegistry, PeerAwareInstanceRegistryImpl, Lease and the rules of
``com.netflix.eureka.registry.rule`` (Netflix/eureka 2.0.x); InstanceRegistry of spring-cloud-netflix.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from eurekube_provider.dev.eureka.virtual_clock import Clock

Document = dict[str, Any]

UNKNOWN = "UNKNOWN"
_OVERRIDABLE_STATUSES = ("UP", "OUT_OF_SERVICE")

DELTA_RETENTION_MS = 180_000
DELTA_SWEEP_INTERVAL_MS = 30_000
EVICTION_INTERVAL_MS = 60_000
OVERRIDE_LIFE_MS = 3_600_000
RENEWAL_THRESHOLD_SHARE = 0.85
RENEWALS_PER_CLIENT_AND_MINUTE = 2


@dataclass(slots=True, eq=False)
class InstanceInfo:
    """An instance as a server holds it, shared with replication queues, and changed in place.

    :ivar fields: the instance's other fields, by their names in JSON.
    :ivar status: the status that callers see.
    :ivar overridden: the override of the status; ``UNKNOWN`` without one.
    :ivar dirty_ms: ``lastDirtyTimestamp``.
    :ivar updated_ms: ``lastUpdatedTimestamp``.
    :ivar action: the last change, ``actionType``: ``ADDED``, ``MODIFIED`` or ``DELETED``.
    """

    app: str
    id: str
    fields: Document
    status: str
    overridden: str
    dirty_ms: int
    duration_s: int
    renewal_interval_s: int
    updated_ms: int = 0
    action: str = "ADDED"

    def copy(self) -> InstanceInfo:
        """Return the instance as another server would read it from the wire."""
        metadata = dict(self.fields.get("metadata") or {})
        return replace(self, fields={**self.fields, "metadata": metadata})


@dataclass(slots=True, eq=False)
class Lease:
    """The lease of an instance.

    :ivar updated_ms: the time of the registration, or that of the last renewal plus the duration: a renewed
        instance therefore lives twice its duration.
    :ivar evicted_ms: the time of the removal; 0 before.
    :ivar up_ms: the time at which the instance was UP first; 0 before.
    """

    holder: InstanceInfo
    registered_ms: int
    updated_ms: int
    duration_ms: int
    evicted_ms: int = 0
    up_ms: int = 0

    def renew(self, now_ms: int) -> None:
        self.updated_ms = now_ms + self.duration_ms

    def is_expired(self, now_ms: int, more_ms: int = 0) -> bool:
        """Return whether the lease has ended; ``more_ms`` extends it."""
        return self.evicted_ms > 0 or now_ms > self.updated_ms + self.duration_ms + more_ms


@dataclass(slots=True)
class MinuteRate:
    """A count of events in the last whole minute."""

    last_minute: int = 0
    current_minute: int = 0

    def begin_new_minute(self) -> None:
        """Make the count of this minute that of the last one, and count from 0."""
        self.last_minute, self.current_minute = self.current_minute, 0


@dataclass(slots=True)
class InstanceRegistry:
    """The registry of one server.

    :ivar replicate: gets each change to forward: the action, application, id, instance and status.
    :ivar invalidate: gets the application, VIP and secure VIP address of each change that lists show.
    :ivar recent_changes: the changes that a delta shows, each with its time in milliseconds.
    :ivar expected_clients: the number of clients from which the server expects renewals.
    :ivar renewal_threshold: with no more renewals in a minute, the server is in self-preservation.
    :ivar overrides: by instance id, the override of the status, and when it was last set or read.
    """

    clock: Clock
    replicate: Callable[[str, str, str, InstanceInfo | None, str | None], None]
    invalidate: Callable[[str, str, str], None]
    self_preservation: bool = True
    eviction_interval_ms: int = EVICTION_INTERVAL_MS
    random: random.Random = field(default_factory=lambda: random.Random(0))  # noqa: S311 - a model
    leases: dict[str, dict[str, Lease]] = field(default_factory=dict)
    recent_changes: deque[tuple[int, Lease]] = field(default_factory=deque)
    renewals: MinuteRate = field(default_factory=MinuteRate)
    expected_clients: int = 1
    renewal_threshold: int = 0
    overrides: dict[str, tuple[str, int]] = field(default_factory=dict)
    _last_eviction_ms: int | None = None
    _end_timer_functions: list[Callable[[], None]] = field(default_factory=list)

    def open(self, copied_count: int = 0) -> None:
        """Begin to serve, with so many instances copied from a neighbour; Spring counts 0 as 1."""
        self.expected_clients = copied_count or 1
        self._update_threshold()
        now = self.clock.now_ms
        self._end_timer_functions = [
            self.clock.run_every(now + 60_000, 60_000, self.renewals.begin_new_minute),
            self.clock.run_every(now + self.eviction_interval_ms, self.eviction_interval_ms, self._evict),
            self.clock.run_every(
                now + DELTA_SWEEP_INTERVAL_MS, DELTA_SWEEP_INTERVAL_MS, self._drop_old_changes
            ),
        ]

    def close(self) -> None:
        for end in self._end_timer_functions:
            end()

    def read_override_and_extend_it(self, instance_id: str) -> str | None:
        """Return the override of an instance's status, and keep it for another hour; None without one."""
        found = self.overrides.get(instance_id)
        if found is None or self.clock.now_ms - found[1] >= OVERRIDE_LIFE_MS:
            self.overrides.pop(instance_id, None)
            return None
        self.overrides[instance_id] = (found[0], self.clock.now_ms)
        return found[0]

    def set_override(self, instance_id: str, status: str) -> None:
        self.overrides[instance_id] = (status, self.clock.now_ms)

    def get(self, app: str, instance_id: str) -> InstanceInfo | None:
        """Return an instance as an uncached read does: none whose lease has ended while evictions are on."""
        lease = self.leases.get(app, {}).get(instance_id)
        if lease is None or (self.are_evictions_enabled and lease.is_expired(self.clock.now_ms)):
            return None
        return lease.holder

    def all_leases(self) -> Iterator[Lease]:
        for leases in self.leases.values():
            yield from leases.values()

    def register(self, info: InstanceInfo, *, replicated: bool) -> None:
        """Register an instance; one that is held with a newer timestamp stays, and gets a new lease."""
        now = self.clock.now_ms
        held = self.leases.setdefault(info.app, {})
        existing = held.get(info.id)
        sent = info
        if existing is None:
            self.expected_clients += 1 if self.expected_clients > 0 else 0
            self._update_threshold()
        elif existing.holder.dirty_ms > info.dirty_ms:
            info = existing.holder
        lease = Lease(info, now, now, (sent.duration_s or 90) * 1000)
        if existing is not None:
            lease.up_ms = existing.up_ms
        held[info.id] = lease
        if info.overridden != UNKNOWN and self.read_override_and_extend_it(info.id) is None:
            self.set_override(info.id, info.overridden)
        override = self.read_override_and_extend_it(info.id)
        if override is not None:
            info.overridden = override
        info.status = self._effective_status(info, existing, replicated=replicated)
        if info.status == "UP":
            lease.up_ms = lease.up_ms or now
        self._record_change(lease, "ADDED")
        if not replicated:
            # What came is forwarded, even where it was not taken.
            self.replicate("Register", sent.app, sent.id, sent, None)

    def renew(self, app: str, instance_id: str, *, replicated: bool) -> bool:
        """Renew an instance; return False where it is not held, or its status is not known."""
        lease = self.leases.get(app, {}).get(instance_id)
        if lease is None:
            return False
        status = self._effective_status(lease.holder, lease, replicated=replicated)
        if status == UNKNOWN:
            return False
        lease.holder.status = status  # neither lists nor deltas are notified of it
        self.renewals.current_minute += 1
        lease.renew(self.clock.now_ms)
        if not replicated:
            self.replicate(
                "Heartbeat",
                app,
                instance_id,
                self.get(app, instance_id),
                self.read_override_and_extend_it(instance_id),
            )
        return True

    def cancel(self, app: str, instance_id: str, *, replicated: bool) -> bool:
        """Remove an instance; return False, and replicate nothing, where it is not held."""
        if not self._remove(app, instance_id):
            return False
        if not replicated:
            self.replicate("Cancel", app, instance_id, None, None)
        return True

    def set_status(
        self, app: str, instance_id: str, status: str, dirty_ms: int | None, *, replicated: bool
    ) -> bool:
        """Set an override of an instance's status; an instance that has that status already gets none."""
        lease = self.leases.get(app, {}).get(instance_id)
        if lease is None:
            return False
        lease.renew(self.clock.now_ms)
        if lease.holder.status != status:
            if status == "UP":
                lease.up_ms = lease.up_ms or self.clock.now_ms
            self.set_override(instance_id, status)
            self._set_status_and_override(lease, status, status, dirty_ms)
        if not replicated:
            self.replicate("StatusUpdate", app, instance_id, self.get(app, instance_id), status)
        return True

    def clear_status(
        self, app: str, instance_id: str, status: str, dirty_ms: int | None, *, replicated: bool
    ) -> bool:
        """Remove the override of an instance's status, and set its own status to ``status``."""
        lease = self.leases.get(app, {}).get(instance_id)
        if lease is None:
            return False
        lease.renew(self.clock.now_ms)
        had = self.read_override_and_extend_it(instance_id)
        self.overrides.pop(instance_id, None)
        if had is not None:
            self._set_status_and_override(lease, status, UNKNOWN, dirty_ms)
        if not replicated:
            self.replicate("DeleteStatusOverride", app, instance_id, self.get(app, instance_id), None)
        return True

    def store_override_of_peer(self, app: str, instance_id: str, status: str) -> None:
        """Store the override that a peer holds for an instance, unless this server holds the same."""
        if self.read_override_and_extend_it(instance_id) != status:
            self.set_override(instance_id, status)
            info = self.get(app, instance_id)
            if info is not None:
                info.overridden = status

    @property
    def are_evictions_enabled(self) -> bool:
        """True if leases may end: the server is not in self-preservation."""
        if not self.self_preservation:
            return True
        return self.renewal_threshold > 0 and self.renewals.last_minute > self.renewal_threshold

    def _effective_status(self, info: InstanceInfo, existing: Lease | None, *, replicated: bool) -> str:
        """Return the status that the first matching rule gives an instance."""
        if info.status not in _OVERRIDABLE_STATUSES:
            return info.status
        override = self.read_override_and_extend_it(info.id)
        if override is not None:
            return override
        if not replicated and existing is not None and existing.holder.status in _OVERRIDABLE_STATUSES:
            return existing.holder.status
        return info.status

    def _set_status_and_override(
        self, lease: Lease, status: str, overridden: str, dirty_ms: int | None
    ) -> None:
        info = lease.holder
        info.status, info.overridden = status, overridden
        info.dirty_ms = max(info.dirty_ms, dirty_ms or 0)
        self._record_change(lease, "MODIFIED")

    def _record_change(self, lease: Lease, action: str) -> None:
        info = lease.holder
        info.action = action
        self.recent_changes.append((self.clock.now_ms, lease))
        info.updated_ms = self.clock.now_ms
        self.invalidate(
            info.app, info.fields.get("vipAddress") or "", info.fields.get("secureVipAddress") or ""
        )

    def _remove(self, app: str, instance_id: str) -> bool:
        lease = self.leases.get(app, {}).pop(instance_id, None)
        self.overrides.pop(instance_id, None)
        if lease is None:
            return False
        lease.evicted_ms = lease.evicted_ms or self.clock.now_ms
        self._record_change(lease, "DELETED")
        self.expected_clients -= 1 if self.expected_clients > 0 else 0
        self._update_threshold()
        return True

    def _update_threshold(self) -> None:
        self.renewal_threshold = int(
            self.expected_clients * RENEWALS_PER_CLIENT_AND_MINUTE * RENEWAL_THRESHOLD_SHARE
        )

    def _evict(self) -> None:
        """Evict ended leases once a minute, but only so many that self-preservation does not begin."""
        now = self.clock.now_ms
        late = (
            0
            if self._last_eviction_ms is None
            else max(0, now - self._last_eviction_ms - self.eviction_interval_ms)
        )
        self._last_eviction_ms = now
        if not self.are_evictions_enabled:
            return
        leases = list(self.all_leases())
        expired = [lease for lease in leases if lease.is_expired(now, late)]
        most = len(leases) - int(len(leases) * RENEWAL_THRESHOLD_SHARE)
        for lease in self.random.sample(expired, min(len(expired), most)):
            self._remove(lease.holder.app, lease.holder.id)

    def _drop_old_changes(self) -> None:
        while self.recent_changes and self.recent_changes[0][0] < self.clock.now_ms - DELTA_RETENTION_MS:
            self.recent_changes.popleft()
