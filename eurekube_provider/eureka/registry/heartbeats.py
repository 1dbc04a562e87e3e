"""Heartbeats: the renewed instances, and their senders, each with its own queue, threads and back-off.

A slow server delays its own sender, and no other.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import methodcaller
from typing import Protocol

from eurekube_provider.core.errors import LeadershipLost, RegistryError, RegistryRejected
from eurekube_provider.core.model import Instance, InstanceKey
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.batches import register_copies_at
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol import batch
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.rules import is_owned_by_stack, may_copy_between_servers
from eurekube_provider.eureka.uncached_reads import read_instances
from eurekube_provider.runtime.clock import boot_clock_seconds

_log = logging.getLogger(__name__)

MOST_REFUSALS_LOGGED = 10
"""The most instances with refused renewals that are logged by name within
:data:`.windows.REFUSAL_LOG_WINDOW_SECONDS`.
"""

_RENEWED_STATUS_CODES = (200, 409)
_JUDGED_STATUS_CODES = (*_RENEWED_STATUS_CODES, 404)


class HeartbeatListener(Protocol):
    """A listener for the findings of renewals; called on their threads, with no lock held."""

    def instances_missing(self, instances: Sequence[Instance], peer: Peer | None) -> None:
        """Report that a server does not hold these instances (404).

        :param peer: the server, in batches, whose renewals go on; None for plain ones, which end.
        """

    def newer_version_found(self, stored: Instance) -> None:
        """Report that a server holds a newer version of a renewed instance: somebody else wrote it."""

    def server_answers_again(self, peer: Peer) -> None:
        """Report that a server answers again after a failure."""


@dataclass(slots=True, eq=False)
class RenewedInstance:
    """One instance that is renewed.

    :ivar period: the number of ticks between two renewals.
    :ivar due: the tick of the next renewal.
    :ivar in_flight: the number of renewals that are under way.
    :ivar turn: the number of renewals so far.
    :ivar is_refused: True if the last renewal was refused.
    :ivar refused_since: by sender, since when its renewals are refused, or when it was last registered
        instead.
    """

    instance: Instance
    period: int
    due: int = 0
    in_flight: int = 0
    turn: int = 0
    is_refused: bool = False
    refused_since: dict[HeartbeatSender, float] | None = None


@dataclass(frozen=True, slots=True)
class RenewalCounts:
    """The renewals so far, on every server together.

    :ivar accepted: the successful renewals since the start; ``missing`` got a 404, ``failed`` no answer.
    :ivar accepted_last_minute: the number of successful renewals within the last 60 seconds.
    :ivar refused_instances: how many instances Eureka last refused to renew.
    :ivar overdue_seconds: for how long the most overdue renewal is due.
    """

    accepted: int
    missing: int
    failed: int
    accepted_last_minute: int
    refused_instances: int
    overdue_seconds: float


class SharedRenewalState:
    """The state that renewals and their senders share; ``lock`` guards all of it.

    :ivar settled: notified when renewals that were under way have ended.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.settled = threading.Condition(self.lock)
        self.entries: dict[InstanceKey, RenewedInstance] = {}
        self.listener: HeartbeatListener | None = None
        self.stopped = False
        self.stands_by = False
        self.accepted = self.missed = self.failed = 0
        self._minute: deque[tuple[float, int]] = deque()
        self._in_minute = 0

    def count_answers(self, *, accepted: int, missed: int) -> None:
        """Add answered renewals to the counts, by result."""
        self.accepted += accepted
        self.missed += missed
        if accepted:
            self._minute.append((time.monotonic(), accepted))
            self._in_minute += accepted
        self.accepted_last_minute()

    def accepted_last_minute(self) -> int:
        """Return the number of renewals accepted within the last 60 seconds."""
        while self._minute and self._minute[0][0] < time.monotonic() - 60.0:
            self._in_minute -= self._minute.popleft()[1]
        return self._in_minute


class HeartbeatSender:
    """The sender of renewals to one server, in batches; or of plain renewals, to whichever server answers.

    :ivar work: wakes only this sender's threads: one without work costs as much as a renewal.
    """

    def __init__(self, state: SharedRenewalState, peers: Peers, peer: Peer | None) -> None:
        self.peer = peer
        self.pending: OrderedDict[InstanceKey, float] = OrderedDict()
        """The keys of the renewals that wait, and the time since which each waits."""
        self.work = threading.Condition(state.lock)
        self._state = state
        self._peers = peers
        self._lost: list[Instance] = []
        self._lost_at = 0.0
        self._prober: int | None = None
        self._named: deque[float] = deque(maxlen=MOST_REFUSALS_LOGGED)
        self._retry_seconds = 0.0
        self._failing_since = 0.0
        self._accepted_at = 0.0
        self._is_answer_noted = True  # since it began to fail
        self._retries_now = False

    def failing_seconds(self) -> float:
        """Return the seconds for which nothing has reached the server; 0 while renewals succeed."""
        return boot_clock_seconds() - self._failing_since if self._failing_since else 0.0

    def overdue_seconds(self) -> float:
        """Return the seconds for which the most overdue renewal has been due; the state's lock must be
        held."""
        return boot_clock_seconds() - next(iter(self.pending.values())) if self.pending else 0.0

    def enqueue(self, due: dict[InstanceKey, None]) -> None:
        """Queue these renewals; the state's lock must be held."""
        now = boot_clock_seconds()
        for key in due:
            self.pending.setdefault(key, now)
        self.work.notify(len(due))

    def retry_now(self) -> None:
        """End the back-off, since the server answers again; the state's lock must be held."""
        self._retries_now = True
        self.work.notify_all()

    def run(self, batch_size: int) -> None:
        """Send queued renewals until the end; on one thread of its own, or on several."""
        while (taken := self._take_queued(batch_size)) is not None:
            try:
                found = self._send_renewals(taken)
            except RegistryError as error:
                self._process_failure(taken, error)
            except Exception as error:  # noqa: BLE001 - the sender must go on
                _log.exception("failed to renew instances: unexpected error, retrying")
                self._process_failure(taken, error)
            else:
                self._process_answers(taken, found)

    def _take_queued(self, batch_size: int) -> list[RenewedInstance] | None:
        state = self._state
        with state.lock:
            while not state.stopped:
                if self._retry_seconds and self.pending:
                    if self._prober is not None:  # one thread finds out when all can go on
                        self.work.wait()
                        continue
                    self._prober = threading.get_ident()
                    self.work.wait_for(lambda: state.stopped or self._retries_now, self._retry_seconds)
                    if self._state.stopped:
                        return None
                self._retries_now = False
                taken: list[RenewedInstance] = []
                # A server that comes back is slow at first: one renewal tells soonest that it answers.
                most = 1 if self._retry_seconds else batch_size
                while self.pending and len(taken) < most:
                    key, _ = self.pending.popitem(last=False)
                    entry = state.entries.get(key)
                    if entry is not None:
                        entry.in_flight += 1
                        entry.turn += 1
                        taken.append(entry)
                if taken:
                    return taken
                self._end_own_probe()
                self.work.wait()
            return None

    def _end_own_probe(self) -> bool:
        """End this thread's probe of a server that does not answer, so that another thread may probe;
        return False if this thread was not probing.
        """
        if self._prober != threading.get_ident():
            return False
        self._prober = None
        return True

    def _send_renewals(self, entries: list[RenewedInstance]) -> list[batch.ItemResponse]:
        if self.peer is not None:
            answers = self.peer.send_batch([batch.heartbeat_item(entry.instance) for entry in entries])
            pairs = zip(entries, answers, strict=True)
            self._register_long_refused([one for one, answer in pairs if _is_refusal(answer.status_code)])
            return answers
        (entry,) = entries
        try:
            return [batch.ItemResponse(200 if self._peers.renew(entry.instance, entry.turn) else 404)]
        except RegistryError as error:
            is_refusal = _is_refusal(error.status_code)
            if is_refusal:
                self._register_long_refused(entries)
            # A 500 may be a fault of the server until it has accepted another renewal, or a registration.
            since = (entry.refused_since or {}).get(self, math.inf)
            is_alone = isinstance(error, RegistryRejected) or (is_refusal and since <= self._accepted_at)
            if error.status_code is None or not is_alone:
                raise
            with self._state.lock:
                self._log_refusal_once(entry, str(error), error.url)
            return [batch.ItemResponse(error.status_code)]

    def _register_long_refused(self, refused: list[RenewedInstance]) -> None:
        """Register those instances as they stand whose renewals have been refused for half of their Eureka
        leases: a registration begins a lease, too. Raises nothing.

        A stack's instance is left to lapse: its program may just have removed it.
        """
        now, ours = boot_clock_seconds(), dict[InstanceKey, Instance]()
        with self._state.lock:
            for entry in refused:
                since = (entry.refused_since or {}).get(self) or self._failing_since or now
                lasts_long = now - since >= entry.instance.lease.duration_seconds / 2
                if lasts_long and not is_owned_by_stack(entry.instance):
                    entry.refused_since = {**(entry.refused_since or {}), self: now}
                    ours[entry.instance.key] = entry.instance
        if not ours or not self._peers.may_write():
            return
        with suppress(RegistryError, LeadershipLost):
            held = read_instances(self.peer or self._peers, ours)
            again = [
                one
                for key, one in held.items()
                if one is not None and one.owner == ours[key].owner and may_copy_between_servers(one, None)
            ]
            if self.peer is not None:
                register_copies_at(self.peer, again)
            else:
                for one in again:
                    self._peers.ask_in_turn(methodcaller("register", one))
            self._accepted_at = boot_clock_seconds()

    def _process_answers(self, entries: list[RenewedInstance], found: list[batch.ItemResponse]) -> None:
        state = self._state
        missing: list[Instance] = []
        newer: list[Instance] = []
        if self.peer is not None:
            pairs = zip(entries, found, strict=True)
            renewed = (one.instance for one, said in pairs if said.status_code in _RENEWED_STATUS_CODES)
            self._peers.table.note_accepted_renewals(self.peer.url, renewed)
        with state.lock:
            judged = [answer for answer in found if answer.status_code in _JUDGED_STATUS_CODES]
            if judged:
                self._accepted_at = boot_clock_seconds()
            was_away = self._note_answer_and_check_recovery(len(judged))
            for entry, answer in zip(entries, found, strict=True):
                entry.in_flight -= 1
                key = entry.instance.key
                if state.entries.get(key) is not entry:
                    continue  # removed meanwhile
                if entry.refused_since and answer.status_code in _JUDGED_STATUS_CODES:
                    entry.refused_since.pop(self, None)
                if answer.status_code == 404:
                    missing.append(entry.instance)
                    if self.peer is None:
                        del state.entries[key]
                elif answer.status_code not in _RENEWED_STATUS_CODES:
                    url = self.peer.url if self.peer is not None else ""
                    self._log_refusal_once(entry, f"{self.peer} answered {answer.status_code}", url)
                else:
                    entry.is_refused = False
                    if answer.instance is not None:
                        newer.append(answer.instance)  # a 409, which renews all the same
            codes = [answer.status_code for answer in found]
            accepted, missed = sum(map(_RENEWED_STATUS_CODES.__contains__, codes)), codes.count(404)
            state.count_answers(accepted=accepted, missed=missed)
            state.failed += len(codes) - accepted - missed
            state.settled.notify_all()
        self._notify_listener(missing, newer, was_away=was_away)

    def _add_missing_and_take_reportable(self, missing: list[Instance]) -> list[Instance]:
        """Return the missing instances to report now: none while more renewals are about to be sent.

        A server that lost its memory misses thousands, a few of each application in each batch. If each batch
        were reported by itself, they would be registered again in many small steps.
        """
        with self._state.lock:
            now = boot_clock_seconds()
            if not self._lost:
                self._lost_at = now
            self._lost += missing
            if self.peer and self.pending and now - self._lost_at < windows.GATHER_MISSING_SECONDS:
                return []
            lost, self._lost = self._lost, []
            if self.peer is None:
                return lost  # nobody renews these any more
            return [instance for instance in lost if instance.key in self._state.entries]

    def _notify_listener(self, missing: list[Instance], newer: list[Instance], *, was_away: bool) -> None:
        listener = self._state.listener
        if listener is None:
            return
        try:
            if was_away and self.peer is not None:
                listener.server_answers_again(self.peer)
            missing = self._add_missing_and_take_reportable(missing)
            if missing:
                listener.instances_missing(missing, self.peer)
            for stored in newer:
                listener.newer_version_found(stored)
        except RegistryError as error:
            _log.warning(
                "failed to repair instances that a renewal found missing or changed, retrying after their "
                "next renewal",
                extra={"error": str(error)},
            )
        except Exception:  # noqa: BLE001 - the sender must go on
            _log.exception(
                "failed to repair instances found missing or changed: unexpected error, going on with the "
                "renewals"
            )

    def _note_answer_and_check_recovery(self, sent: int) -> bool:
        """Note that the server answers, and let all threads go on; return whether this is the first answer
        since it began to fail. The state's lock must be held.

        :param sent: the number of renewals that it did not refuse. The failure lasts while it answers probes
            alone: some answer small requests only, and their instances need plain renewals.
        """
        self._end_own_probe()
        was_away, self._retry_seconds = self._retry_seconds > 0, 0.0
        if was_away:
            self.work.notify_all()
        is_news, self._is_answer_noted = was_away and not self._is_answer_noted, True
        # One renewal tells nothing of a batch.
        if sent > 1 or (sent and (self.peer is None or not self.pending)):
            self._failing_since = 0.0
        return is_news

    def _log_refusal_once(self, entry: RenewedInstance, error: str, url: str) -> None:
        """Log once that an instance is not renewed; the state's lock must be held.

        :param url: the server that refused; empty where it is not known.
        """
        now = boot_clock_seconds()
        entry.refused_since = {self: now, **(entry.refused_since or {})}
        if entry.is_refused or self._state.entries.get(entry.instance.key) is not entry:
            return
        entry.is_refused = True
        is_full = len(self._named) == MOST_REFUSALS_LOGGED
        if is_full and now - self._named[0] < windows.REFUSAL_LOG_WINDOW_SECONDS:
            return
        self._named.append(now)
        _log.warning(
            "Eureka server refused to renew an instance, retrying at its next turn: if this goes on, it is "
            "registered again, or lapses there where that is refused, too",
            extra={
                "application": entry.instance.application,
                "instance": entry.instance.instance_id,
                "error": error,
                **({"url": url} if url else {}),
            },
        )

    def _process_failure(self, entries: list[RenewedInstance], error: Exception) -> None:
        state = self._state
        with state.lock:
            is_news = not self._failing_since
            if is_news:
                self._failing_since, self._is_answer_noted = boot_clock_seconds(), False
            for entry in entries:
                entry.in_flight -= 1
                key = entry.instance.key
                if self.peer is None:  # all have waited since then, whichever the probe was for
                    entry.refused_since = {self: self._failing_since, **(entry.refused_since or {})}
                if state.entries.get(key) is entry:
                    self.pending.setdefault(key, boot_clock_seconds())
            state.failed += len(entries)
            # What was under way with a probe tells nothing more.
            if self._end_own_probe() or not self._retry_seconds:
                self._retry_seconds = min(
                    max(self._retry_seconds * 2, windows.FIRST_RETRY_SECONDS), windows.LONGEST_RETRY_SECONDS
                )
            state.settled.notify_all()
            retry_seconds = self._retry_seconds
        if is_news:
            url = self.peer.url if self.peer is not None else getattr(error, "url", "")
            _log.warning(
                "failed to renew instances, retrying: they lapse in Eureka if this goes on",
                extra={
                    "count": len(entries),
                    "error": str(error),
                    "retry_seconds": retry_seconds,
                    **({"url": url} if url else {}),
                },
            )


def _is_refusal(status_code: int | None) -> bool:
    """Return whether an answer may be a server's refusal to renew an instance. Any other 5xx is a gateway's,
    and a server that asks for patience, or for a password, gets no registrations in place of renewals.
    """
    is_client_or_server_error = status_code is not None and 400 <= status_code <= 500
    return is_client_or_server_error and status_code not in (401, *_JUDGED_STATUS_CODES, 408, 429)
