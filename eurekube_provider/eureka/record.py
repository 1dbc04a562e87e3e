"""All that is remembered of one instance's key in one Eureka.

A record has no clock, lock or thread: times are arguments, by a clock that goes on while the machine sleeps.
:mod:`.rules` draws conclusions from a record, and :mod:`.table` keeps the records.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from eurekube_provider.core.model import Instance, Key
from eurekube_provider.eureka import windows


@dataclass(frozen=True, slots=True)
class Sent:
    """A write of this process that no server answered, and when it was sent."""

    instance: Instance
    at: float

    def may_come(self, now: float) -> bool:
        """Return whether a frozen server may still carry the write out, or a list show it late."""
        return now - self.at <= windows.UNLISTED


@dataclass(frozen=True, slots=True)
class Look:
    """A planned check of one server for an instance that was removed, or that may come late.

    :ivar instance: the instance as it was removed, or last sent.
    :ivar at: when the check is due.
    :ivar number: how many checks went before.
    :ivar is_removed: True if the instance was removed; False if it may come late, and its owner may want it.
    :ivar former: the owners before, who gave the instance to its owner. A version that one of these owners
        wrote later is not removed.
    """

    instance: Instance
    at: float
    number: int = 0
    is_removed: bool = True
    former: Set[str] = frozenset()

    def following(self, after_seconds: Sequence[float]) -> Look | None:
        """Return the check after this one; None after the last.

        :param after_seconds: the seconds after the removal at which the server is checked.
        """
        number = self.number + 1
        if number >= len(after_seconds):
            return None
        return replace(self, at=self.at + after_seconds[number] - after_seconds[self.number], number=number)


@dataclass(frozen=True, slots=True)
class Dropped:
    """A stack's registration that is no longer renewed, or never was.

    :ivar at: when the servers were last asked for it.
    :ivar lacking: the servers that no longer held it when its renewal missed it: it was removed there.
    """

    instance: Instance
    at: float
    lacking: Set[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Spreading:
    """A registration by this process that not every server was seen to hold yet.

    :ivar at: when the first server took it.
    :ivar seen: the servers that took it, or were seen to hold it, by URL.
    :ivar is_leaving: True if its removal has begun: it replaces no other instance.
    """

    at: float
    seen: Set[str] = frozenset()
    is_leaving: bool = False


@dataclass(slots=True)
class Record:
    """All that is known of one key.

    :ivar key: the one object that all indexes share.
    :ivar held: the instance in Eureka, as far as known; None for none.
    :ivar is_firm: True if a write or an uncached read of this process showed ``held``, and not a list alone.
    :ivar touched_at: when the instance was written, read past the caches or removed, if so recently that a
        list may say otherwise.
    :ivar former_owners: the owners before a hand-over: a server that was away may not know of the hand-over.
    :ivar lost: by owner, the instance as it was when the servers forgot it, so that it can be restored.
    :ivar lost_override: the instance as it was when the servers forgot it, with a person's override.
    :ivar sent: a registration that no server answered; a frozen server may carry it out when it is back.
    :ivar status_sent: the same for an override.
    :ivar overridden_at: when an override was set, cleared, or removed with the instance.
    :ivar looks: by URL, the next check of each server for an instance that was removed, or may come late.
    :ivar accepted_at: by URL, when each server last accepted a renewal; for stacks' registrations only.
    :ivar lacking_since: by URL, the time since which each server answers renewals that it does not hold the
        instance.
    :ivar spreading: the servers where the instance was seen since it came UP; None where that is every
        server, or long ago.
    :ivar dropped: a stack's registration that is not renewed, since it was removed.
    :ivar left_at: when a server said that the instance was deregistered or evicted; None if it was registered
        again.
    :ivar evicted_at: when one of several servers said that it evicted the instance; None if it holds it
        again. The eviction proves that the instance once existed there, so that its absence means that it
        left.
    :ivar asked_at: when the servers were last asked whether the instance left.
    :ivar waits_at: when that question last had to wait.
    """

    key: Key
    held: Instance | None = None
    is_firm: bool = False
    touched_at: float | None = None
    former_owners: frozenset[str] = frozenset()
    lost: dict[str, Instance] | None = None
    lost_override: Instance | None = None
    sent: Sent | None = None
    status_sent: Sent | None = None
    overridden_at: float | None = None
    looks: dict[str, Look] | None = None
    accepted_at: dict[str, float] | None = None
    lacking_since: dict[str, float] | None = None
    spreading: Spreading | None = None
    dropped: Dropped | None = None
    left_at: float | None = None
    evicted_at: float | None = None
    asked_at: float | None = None
    waits_at: float | None = None

    def expire(self, now: float) -> bool:
        """Forget entries that are too old to mean anything; return whether any is left that will expire."""
        for name, seconds in _KEPT_SECONDS.items():
            at = getattr(self, name)
            if at is not None and now - at >= seconds:
                setattr(self, name, None)
        if self.sent is not None and not self.sent.may_come(now):
            self.sent = None
        if self.status_sent is not None and not self.status_sent.may_come(now):
            self.status_sent = None
        if self.accepted_at is not None:
            self.accepted_at = _lately(self.accepted_at, now)
        if self.lacking_since is not None:
            self.lacking_since = _lately(self.lacking_since, now)
        if self.spreading is not None and now - self.spreading.at >= windows.SUCCESSORS_SENT:
            self.spreading = None
        # For as long as a list shows it: what nobody renews may stand at a server that spares it.
        if self.dropped is not None and self.held is None and now - self.dropped.at >= windows.MEMORY_LOST:
            self.dropped = None
        return any(getattr(self, name) is not None for name in _EXPIRING)

    def is_blank(self) -> bool:
        """Return whether the record contains nothing."""
        names = (*_EXPIRING, "held", "lost", "lost_override", "looks")
        return not self.former_owners and all(getattr(self, name) is None for name in names)


_KEPT_SECONDS = {
    "touched_at": windows.UNLISTED,
    "overridden_at": windows.STATUS_SENT_AGAIN,
    "left_at": windows.PROOF_KEPT,
    "evicted_at": windows.PROOF_KEPT,
    "asked_at": windows.PROOF_KEPT,
    "waits_at": windows.PROOF_TURN,
}
"""By field of a record that is a time, the seconds after which it no longer means anything."""

_EXPIRING = (*_KEPT_SECONDS, "sent", "status_sent", "accepted_at", "lacking_since", "spreading", "dropped")


def _lately(answers: dict[str, float], now: float) -> dict[str, float] | None:
    """Return those of the servers' answers to renewals that are recent enough to mean something; None for
    none.
    """
    return {url: at for url, at in answers.items() if now - at < windows.RENEWAL_REMEMBERED} or None
