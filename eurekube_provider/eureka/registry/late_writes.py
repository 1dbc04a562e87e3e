"""What was sent to Eureka and not answered: a server that was frozen may carry it out when it is back.

By then it may have been undone. A registration that comes after the removal is newer than what was removed,
and an OUT_OF_SERVICE that comes after our mark was taken off passes for a person's, for ever. So both are
remembered for as long as a list may take to show them.

An OUT_OF_SERVICE that was answered may come late as well. A server waits 0.2 s for each of its peers, takes a
busy one for one that was not told, and tells it again for half a minute: also what was taken off meanwhile.
It tells that one only, so that this OUT_OF_SERVICE stands at some servers, and a person's at all of them.
So what we set or took off is remembered, too, and each server is looked at.

A server also sends what changed within half a second in an order of its own: a registration takes the place
of the one before it, and so goes ahead of what was taken off between the two. Its peer then holds the last
contents with the status that was asked for before. Their timestamps are the same, so that no renewal finds
that the two servers differ.

Where a pod of the same name follows within that half second, the last one's OUT_OF_SERVICE may so come over
its registration, and go to every server. What stands everywhere just after ours was set, or removed, is taken
for ours: Eureka does not say who set a status, and nobody else knew of the new pod yet.

Source: ReplicationTaskProcessor and AcceptorExecutor of Netflix/eureka.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from eurekube_provider.core.identity import LEAVING_KEY
from eurekube_provider.core.model import Instance, Key, Status
from eurekube_provider.eureka import windows

MOST_REMEMBERED = 10_000


def overtaken(held: Mapping[str, Instance | None], ours: Instance) -> tuple[str, ...]:
    """The servers that hold another status than we wrote last, where another one holds that one.

    A status that somebody set over it is theirs, and what is newer may be anybody's.

    :param held: by the servers that answered.
    """
    if ours.is_overridden or ours.status is Status.OUT_OF_SERVICE:
        return ()
    plain = {
        url: one
        for url, one in held.items()
        if one is not None and one.owner == ours.owner and not one.is_overridden
    }
    if not any(
        one.written_at_ms == ours.written_at_ms and one.status is ours.status for one in plain.values()
    ):
        return ()
    return tuple(
        url
        for url, one in plain.items()
        if one.written_at_ms <= ours.written_at_ms and one.status is not ours.status
    )


class LateWrites:
    """Remembers the unanswered writes to one registry; any number of threads may share it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._overridden: dict[Key, float] = {}  # oldest first
        self._sent: dict[tuple[Key, bool], tuple[float, Instance]] = {}  # oldest first; a status by itself

    def note(self, sent: Instance) -> None:
        """No answer came to this, be it a registration or, with an override, a status."""
        name = (sent.key, sent.is_overridden)
        with self._lock:
            self._purge()
            self._sent.pop(name, None)
            self._sent[name] = (self._clock(), sent)

    def note_many(self, sent: Iterable[Instance]) -> None:
        """No answer came to a batch of these: registrations, which carry a person's status along."""
        for one in sent:
            own = one.status if one.is_leaving else Status.UP
            self.note(replace(one, status=own, overridden_status=Status.UNKNOWN))

    def override(self, instance: Instance) -> None:
        """A status over the instance's own is about to be set or taken off, or was removed with it."""
        now = self._clock()
        with self._lock:
            self._overridden.pop(instance.key, None)
            self._overridden[instance.key] = now
            while True:
                oldest = next(iter(self._overridden))
                is_old = self._overridden[oldest] < now - windows.STATUS_TOLD_AGAIN
                if not is_old and len(self._overridden) <= MOST_REMEMBERED:
                    return
                del self._overridden[oldest]

    def may_be_told_again(self, found: Instance) -> bool:
        """Whether this OUT_OF_SERVICE passes for a person's, and we set or took one off a minute ago."""
        return self._was_overridden(found, windows.STATUS_TOLD_AGAIN)

    def is_just_set(self, found: Instance) -> bool:
        """Whether this OUT_OF_SERVICE passes for a person's, and came too soon after ours to be one's."""
        return self._was_overridden(found, windows.OUR_STATUS)

    def _was_overridden(self, found: Instance, within_seconds: float) -> bool:
        if found.overridden_status is not Status.OUT_OF_SERVICE or found.is_leaving:
            return False
        with self._lock:
            at = self._overridden.get(found.key)
        return at is not None and self._clock() - at < within_seconds

    def newest(self, removed: Instance) -> Instance:
        """``removed``, or what was sent of it later and may still come."""
        with self._lock:
            self._purge()
            _, sent = self._sent.get((removed.key, False), (0.0, removed))
        return (
            max(removed, sent, key=lambda one: one.written_at_ms) if sent.owner == removed.owner else removed
        )

    def marked(self, held: Iterable[Instance]) -> list[Instance]:
        """Put our mark on instances whose OUT_OF_SERVICE may be one of ours that came late."""
        with self._lock:
            self._purge()
            # A registration as leaving may be late, too, and keep the status that came with it.
            asked_for = {
                key for (key, _), (_, sent) in self._sent.items() if sent.status is Status.OUT_OF_SERVICE
            }
        if not asked_for:
            return list(held)
        return [self._marked(one) if one.key in asked_for else one for one in held]

    @staticmethod
    def as_ours(instance: Instance) -> Instance:
        """Copy the instance with our mark, which has its status undone."""
        return replace(instance, metadata={**instance.metadata, LEAVING_KEY: "true"})

    @classmethod
    def _marked(cls, instance: Instance) -> Instance:
        if instance.overridden_status is not Status.OUT_OF_SERVICE or instance.is_leaving:
            return instance
        return cls.as_ours(instance)

    def _purge(self) -> None:
        """Forget what is old; the lock is held."""
        since = self._clock() - windows.UNLISTED
        while self._sent:
            name = next(iter(self._sent))
            if self._sent[name][0] >= since and len(self._sent) < MOST_REMEMBERED:
                return
            del self._sent[name]
