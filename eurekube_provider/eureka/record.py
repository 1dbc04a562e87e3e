"""All that is remembered of one instance (an application and an id) in one Eureka.

A record has no clock, lock or thread: times are arguments, by a clock that goes on while the machine sleeps.
:mod:`.rules` draws conclusions from a record, and :mod:`.table` keeps the records.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from eurekube_provider.core.model import Instance, InstanceKey
from eurekube_provider.eureka import windows


@dataclass(frozen=True, slots=True)
class UnansweredWrite:
    """A write of this process that no server answered, and when it was sent."""

    instance: Instance
    sent_at: float

    def may_still_arrive(self, now: float) -> bool:
        """Return whether a frozen server may still carry the write out, or a list show it late."""
        return now - self.sent_at <= windows.LONGEST_LIST_LAG_SECONDS


@dataclass(frozen=True, slots=True)
class PlannedCheck:
    """A planned check of one server for an instance that was removed, or may still come.

    :ivar instance: the instance as it was removed, or last sent.
    :ivar due_at: when the check is due.
    :ivar checks_before: how many checks went before.
    :ivar is_removed: True if the instance was removed; False if it may come late, and its owner may want it.
    :ivar former_owners: the owners before a hand-over; what one of them wrote later is not removed.
    """

    instance: Instance
    due_at: float
    checks_before: int = 0
    is_removed: bool = True
    former_owners: Set[str] = frozenset()

    def next_check(self, after_seconds: Sequence[float]) -> PlannedCheck | None:
        """Return the check after this one; None after the last.

        :param after_seconds: the seconds after the removal at which the server is checked.
        """
        number = self.checks_before + 1
        if number >= len(after_seconds):
            return None
        return replace(
            self,
            due_at=self.due_at + after_seconds[number] - after_seconds[self.checks_before],
            checks_before=number,
        )


@dataclass(frozen=True, slots=True)
class DroppedStackRegistration:
    """A stack's registration that is not renewed, since it was removed.

    :ivar asked_at: when the servers were last asked for it.
    :ivar lacking_urls: the servers that answered its renewal with 404: it was removed there.
    """

    instance: Instance
    asked_at: float
    lacking_urls: Set[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SpreadingRegistration:
    """A registration by this process that not every server was seen to hold yet.

    :ivar registered_at: when the first server took it.
    :ivar holder_urls: the servers that took it, or were seen to hold it, by URL.
    :ivar is_leaving: True if its removal has begun: it replaces no other instance.
    """

    registered_at: float
    holder_urls: Set[str] = frozenset()
    is_leaving: bool = False


@dataclass(slots=True)
class InstanceRecord:
    """All that is known of one instance, by its application and id.

    :ivar key: the application and the id, as one object that all indexes share.
    :ivar instance: the instance in Eureka, as far as known; None for none.
    :ivar is_confirmed: True if a write or an uncached read showed ``instance``, and not a list alone.
    :ivar confirmed_at: when it was written, read or removed, if so recently that a list may differ.
    :ivar former_owners: the owners before a hand-over: a server that was away may not know of the hand-over.
    :ivar lost_by_owner: by owner, the instance as it was when the servers forgot it, to be restored.
    :ivar lost_overridden_instance: the instance, with a person's override, that the servers forgot.
    :ivar unanswered_registration: one that a frozen server may carry out when it is back.
    :ivar unanswered_override: an override that no server answered.
    :ivar override_changed_at: when an override was set, cleared, or removed with the instance.
    :ivar checks_by_url: by URL, the next check for an instance that was removed, or may come late.
    :ivar renewed_at_by_url: by URL, when each server last accepted a renewal; for stacks' registrations only.
    :ivar lacking_since_by_url: by URL, the time since which each server answers renewals with 404.
    :ivar spreading: the servers where it was seen since it came UP; None for all, or long ago.
    :ivar dropped: a stack's registration that is not renewed, since it was removed.
    :ivar left_at: when a server said that it was deregistered or evicted; None if it is back.
    :ivar evicted_at: when one of several servers said that it evicted the instance; None if it holds it
        again. The eviction proves that it was there, so that its absence means that it left.
    :ivar departure_asked_at: when the servers were last asked whether the instance left.
    :ivar departure_deferred_at: when that question last had to wait.
    """

    key: InstanceKey
    instance: Instance | None = None
    is_confirmed: bool = False
    confirmed_at: float | None = None
    former_owners: frozenset[str] = frozenset()
    lost_by_owner: dict[str, Instance] | None = None
    lost_overridden_instance: Instance | None = None
    unanswered_registration: UnansweredWrite | None = None
    unanswered_override: UnansweredWrite | None = None
    override_changed_at: float | None = None
    checks_by_url: dict[str, PlannedCheck] | None = None
    renewed_at_by_url: dict[str, float] | None = None
    lacking_since_by_url: dict[str, float] | None = None
    spreading: SpreadingRegistration | None = None
    dropped: DroppedStackRegistration | None = None
    left_at: float | None = None
    evicted_at: float | None = None
    departure_asked_at: float | None = None
    departure_deferred_at: float | None = None

    def forget_expired_and_check_any_left(self, now: float) -> bool:
        """Forget entries that are too old to mean anything; return whether others that expire are left."""
        for name, seconds in _FIELD_LIFETIME_SECONDS.items():
            at = getattr(self, name)
            if at is not None and now - at >= seconds:
                setattr(self, name, None)
        for name in ("unanswered_registration", "unanswered_override"):
            sent: UnansweredWrite | None = getattr(self, name)
            if sent is not None and not sent.may_still_arrive(now):
                setattr(self, name, None)
        for name in ("renewed_at_by_url", "lacking_since_by_url"):
            at_by_url: dict[str, float] = getattr(self, name) or {}
            young = {url: at for url, at in at_by_url.items() if now - at < windows.REMEMBER_RENEWAL_SECONDS}
            setattr(self, name, young or None)
        spreading = self.spreading
        if spreading and now - spreading.registered_at >= windows.SUCCESSORS_SPREAD_SECONDS:
            self.spreading = None
        # For as long as a list shows it: what nobody renews may stand at a server that spares it.
        dropped = self.dropped
        if dropped and self.instance is None and now - dropped.asked_at >= windows.MEMORY_LOSS_SECONDS:
            self.dropped = None
        return any(getattr(self, name) is not None for name in _EXPIRING_FIELDS)

    def is_empty(self) -> bool:
        """Return whether the record contains nothing but its key."""
        return self == InstanceRecord(self.key)


_FIELD_LIFETIME_SECONDS = {
    "confirmed_at": windows.LONGEST_LIST_LAG_SECONDS,
    "override_changed_at": windows.STATUS_MAY_RETURN_SECONDS,
    "left_at": windows.KEEP_DEPARTURE_PROOF_SECONDS,
    "evicted_at": windows.KEEP_DEPARTURE_PROOF_SECONDS,
    "departure_asked_at": windows.KEEP_DEPARTURE_PROOF_SECONDS,
    "departure_deferred_at": windows.DEFERRED_QUESTION_TURN_SECONDS,
}
"""By field of a record that is a time, the seconds after which it no longer means anything."""

_EXPIRING_FIELDS = (
    *_FIELD_LIFETIME_SECONDS,
    "unanswered_registration",
    "unanswered_override",
    "renewed_at_by_url",
    "lacking_since_by_url",
    "spreading",
    "dropped",
)
