"""All that is remembered of one key in one Eureka.

A record holds no clock, lock or thread: times are arguments, by a clock that goes on while the machine
sleeps. :mod:`.rules` says what follows from it, and :mod:`.table` keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from eurekube_provider.core.model import Instance, Key
from eurekube_provider.eureka import windows


@dataclass(frozen=True, slots=True)
class Sent:
    """A write of ours that no server answered, and when it was sent."""

    instance: Instance
    at: float

    def may_come(self, now: float) -> bool:
        """Return whether a server that was frozen may still carry it out, or a list show it late."""
        return now - self.at <= windows.UNLISTED


@dataclass(frozen=True, slots=True)
class Look:
    """A look at one server for what was removed, or for what may come late.

    :ivar instance: as it was removed, or sent last.
    :ivar at: when it is due.
    :ivar number: how many went before.
    :ivar is_removed: True if it was removed; else it only may come, and somebody may want it.
    :ivar former: the owner before, who gave it to its owner. What one of them wrote later is not removed.
    """

    instance: Instance
    at: float
    number: int = 0
    is_removed: bool = True
    former: Set[str] = frozenset()

    def following(self, after_seconds: Sequence[float]) -> Look | None:
        """Return the look after this one; None after the last.

        :param after_seconds: after the removal, when it is looked for.
        """
        number = self.number + 1
        if number >= len(after_seconds):
            return None
        return replace(self, at=self.at + after_seconds[number] - after_seconds[self.number], number=number)


@dataclass(frozen=True, slots=True)
class Dropped:
    """A stack's registration that is renewed no more, or never was.

    :ivar at: when it was looked at last.
    :ivar lacking: the servers that held it no more when its renewal missed it: it was removed there.
    """

    instance: Instance
    at: float
    lacking: Set[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Spreading:
    """A registration of ours that not every server was seen to hold yet.

    :ivar at: when the first server took it.
    :ivar seen: the servers that took it, or were seen to hold it, by URL.
    :ivar is_leaving: True if its removal has begun: it replaces nothing.
    """

    at: float
    seen: Set[str] = frozenset()
    is_leaving: bool = False


@dataclass(slots=True)
class Record:
    """All that is known of one key.

    :ivar key: the one object that all indexes share.
    :ivar held: the instance there, as far as known; None for none.
    :ivar is_firm: True if that is known by a write or an uncached read of ours, and not by a list alone.
    :ivar touched_at: when it was written, read past the caches or removed, if so lately that a list may say
        otherwise.
    :ivar former_owners: the owners before it was handed over: a server that is away may not know of that.
    :ivar lost: the instance as it stood when the servers forgot it, by owner: for who puts back what stood.
    :ivar lost_override: the instance as it stood when the servers forgot it, with a person's status over it.
    :ivar sent: a registration that no server answered; one that is frozen may carry it out when it is back.
    :ivar status_sent: likewise a status over the instance's own.
    :ivar overridden_at: when a status was set over the instance's own, or taken off, or removed with it.
    :ivar looks: when each server is looked at for it, by URL: it was removed, or may come late.
    :ivar accepted_at: when each server last accepted its renewal, by URL; of stacks' registrations only.
    :ivar lacking_since: since when each server answers renewals that it does not hold it, by URL.
    :ivar spreading: where it was seen since it came UP; None where that is every server, or long ago.
    :ivar dropped: a stack's registration that is not renewed, since it was removed.
    :ivar left_at: when a server said that it was deregistered or evicted, and does not stand again.
    :ivar evicted_at: when one of several servers said that it evicted it, and does not hold it again. It held
        it: that none holds it any more is then no absence of what was never there.
    :ivar asked_at: when somebody last asked the servers whether it left.
    :ivar waits_at: when somebody last wanted to, and had to wait.
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
        """Forget what is too old to say anything; returns whether anything is left that will expire."""
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
        """Return whether nothing is known."""
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
"""For how long each time of a record says something."""

_EXPIRING = (*_KEPT_SECONDS, "sent", "status_sent", "accepted_at", "lacking_since", "spreading", "dropped")


def _lately(answers: dict[str, float], now: float) -> dict[str, float] | None:
    """Return what servers answered to renewals so lately that it says something; None for nothing."""
    return {url: at for url, at in answers.items() if now - at < windows.RENEWAL_REMEMBERED} or None
