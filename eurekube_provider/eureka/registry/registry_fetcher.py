"""The whole registry, read repeatedly at the price of its changes.

Ten thousand instances are eight megabytes of JSON; parsing them takes longer than everything else that an
idle operator does. So the list is read once and followed by a server's deltas, as by every Java client.

List and delta are two cached answers, each made again every half minute, at an unknown time. A delta that is
older than the list would bring back instances that have left the list. So a delta counts only if it is known
to be newer: a different delta was answered after the list had been read, or the one that is read right after
the list makes no change to it. Until then lists are read. From then on the held registry is the one at the
time of the delta, which is no older than a list would be.

The list itself is read again in any doubt:

* another server answers, or one that was started since, or the start time is not known;
* nothing was read for so long that the server may have forgotten a change;
* the delta stays the same for a minute: a server may keep an answer that was made while an instance came, for
three minutes or until something else changes;
* the delta cannot be read, or its counts do not match: deltas then rest for some minutes. A delta request
without any answer does not count at first, since its server may have been away altogether. Once the server is
back its list is read, then its delta, which tells which instances left meanwhile. If delta requests go
unanswered again, deltas rest;
* five minutes have passed: counts do not reveal that one instance came and another left. Nobody waits for
this list: it is asked for, then the delta, and the delta is passed on before the list is parsed.

Source: ResponseCacheImpl and AbstractInstanceRegistry of Netflix/eureka.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from eurekube_provider.core.errors import RegistryError
from eurekube_provider.core.model import FindInstance, Instance, InstanceKey
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.listing import Listing
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol.delta import Delta
from eurekube_provider.eureka.protocol.delta_reader import DeltaReader
from eurekube_provider.eureka.protocol.instance_texts import TextPieces
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.runtime.clock import boot_clock_seconds


@dataclass(frozen=True, slots=True)
class _DeltaCursor:
    """The last delta that was read, with the list before it. Each time was taken before its request.

    :ivar started_ms: when the server was started.
    :ivar fingerprint: the fingerprint of the last delta, which is ``delta``.
    :ivar matches_held: True if the held registry is the last delta's; False if only the next one is newer.
    :ivar listed_at: when the list was read; ``read_at`` list or delta; ``changed_at`` another delta.
    """

    url: str
    started_ms: int
    fingerprint: bytes
    delta: Delta
    matches_held: bool
    listed_at: float
    read_at: float
    changed_at: float


@dataclass(frozen=True, slots=True)
class _DeferredList:
    """A list that is still to be parsed; a delta was answered after it.

    :ivar asked_at: when the list was asked for.
    """

    fingerprint: bytes
    parse: Callable[[], list[Instance]]
    asked_at: float


SMALL_DELTA_INSTANCES = 1000
"""The number of a delta's instances up to which it is never considered larger than the list."""


class RegistryFetcher:
    """The registry as its servers list it. For one thread.

    An instance that is listed again unchanged stays the same object, so that lists share their memory.

    :param departures_seen: called with the keys that a server says were deregistered, each time that it says
        so, and apart with those that one of several servers evicted: others may have their renewals.
    :param find_known: returns a written instance, with which the listed one shares id, address and URLs.
    """

    def __init__(
        self,
        peers: Peers,
        clock: Callable[[], float] = boot_clock_seconds,
        departures_seen: Callable[[Sequence[InstanceKey], Sequence[InstanceKey]], None] = lambda _, __: None,
        find_known: FindInstance = lambda _: None,
    ) -> None:
        self._peers = peers
        self._clock = clock
        self._fingerprint = b""
        self._held = Listing()
        self._cursor: _DeltaCursor | None = None
        self._find_known = find_known
        self._deltas = DeltaReader(find_known)
        self._deferred: _DeferredList | None = None
        self._rests_until = self._unanswered_at = -windows.FULL_LIST_INTERVAL_SECONDS
        self._wants_proofs = False
        self.departures_seen = departures_seen

    def read(
        self,
        started_ms_by_url: Mapping[str, int] | None = None,
        *,
        in_doubt: bool = True,
        wants_departure_proofs: bool = False,
    ) -> Listing:
        """List the registry, from the first server that answers.

        :param started_ms_by_url: when the server at each URL was started, where that is known.
        :param in_doubt: True to read the list itself, whatever deltas say.
        :param wants_departure_proofs: True to read a delta even beside a list in doubt, or one larger than
            the list, since a delta proves which instances left.
        :raises RegistryError: no server answered.
        """
        started, self._wants_proofs = started_ms_by_url or {}, wants_departure_proofs
        return self._peers.list_from_first_server(
            lambda peer: self._read(peer, started.get(peer.url), in_doubt=in_doubt)
        )

    def _read(self, peer: Peer, started_ms: int | None, *, in_doubt: bool) -> Listing:
        now = self._clock()
        cursor, self._cursor = self._cursor, None  # unless all goes well
        self._deferred = None
        if (
            cursor is None
            or in_doubt
            or (cursor.url, cursor.started_ms) != (peer.url, started_ms)
            or now - cursor.read_at > windows.LONGEST_DELTA_GAP_SECONDS
            or not self._update_by_delta_or_list(peer, cursor, now)
        ):
            self._store_list(*peer.list_if_changed(self._fingerprint, self._find_known))
            if started_ms is not None and now >= self._rests_until:
                if not in_doubt:
                    self._begin_following(peer, started_ms, now, cursor)
                elif self._wants_proofs:
                    self._read_delta_beside_list(peer, in_doubt=True)
        return self._held

    @property
    def has_deferred_list(self) -> bool:
        """True if a list still waits to be parsed by :meth:`parse_deferred_list`."""
        return self._deferred is not None

    def parse_deferred_list(self) -> Listing:
        """Parse the deferred list, and return its instances with the changes of the later delta.

        :raises RegistryError: the list cannot be parsed.
        """
        deferred, self._deferred = self._deferred, None
        cursor, self._cursor = self._cursor, None  # unless all goes well
        if deferred is not None and cursor is not None:
            self._store_list(deferred.fingerprint, deferred.parse())
            held = self._held.with_changes(cursor.delta.changes)
            fits = held.status_counts == cursor.delta.status_counts
            if fits and held is not self._held:  # the delta is newer, and was passed on
                self._held, self._fingerprint = held, b""
            self._cursor = replace(cursor, matches_held=fits, listed_at=deferred.asked_at)
        return self._held

    def _update_by_delta_or_list(self, peer: Peer, cursor: _DeltaCursor, now: float) -> bool:
        """Update the held registry by the delta, or by a list that is due; return False if it is in doubt.

        :raises RegistryUnreachable: no answer came.
        """
        if now - cursor.listed_at <= windows.FULL_LIST_INTERVAL_SECONDS:
            return self._apply_next_delta(peer, cursor, now)
        fingerprint, understand = peer.fetch_unparsed_list_if_changed(self._fingerprint, self._find_known)
        if understand is None:  # it is the one of five minutes ago
            self._begin_following(peer, cursor.started_ms, now, cursor)
            return True
        try:
            follows = self._apply_next_delta(peer, cursor, now)
        except RegistryError:
            self._pause_deltas(now)
            follows = False  # the list was read, which is what counts
        if follows:
            self._deferred = _DeferredList(fingerprint, understand, now)
        else:
            self._store_list(fingerprint, understand())
            if now >= self._rests_until:
                self._begin_following(peer, cursor.started_ms, now, cursor)
        return True

    def _parse_delta(self, pieces: TextPieces) -> Delta:
        return self._deltas.read(pieces, self._held.by_key)

    def _store_list(self, fingerprint: bytes, instances: list[Instance] | None) -> None:
        """Replace the held registry by a list; None stands for an unchanged list."""
        self._deltas.forget_texts()
        self._fingerprint = fingerprint
        if instances is not None:
            before = self._held.by_key
            self._held = Listing.of(
                old if (old := before.get(one.key)) == one and old is not None else one for one in instances
            )

    def _begin_following(self, peer: Peer, started_ms: int, now: float, before: _DeltaCursor | None) -> None:
        """Read the first delta after a list; later deltas are compared with it."""
        fingerprint, delta = self._read_delta_beside_list(peer, in_doubt=False)
        if delta is None or self._is_delta_too_large(delta):
            self._pause_deltas(now)
            return
        is_same = before is not None and (before.url, before.fingerprint) == (peer.url, fingerprint)
        self._cursor = _DeltaCursor(
            url=peer.url,
            started_ms=started_ms,
            fingerprint=fingerprint,
            delta=delta,
            matches_held=self._held.with_changes(delta.changes) is self._held
            and self._held.status_counts == delta.status_counts,
            listed_at=now,
            read_at=now,
            changed_at=before.changed_at if before is not None and is_same else now,
        )

    def _read_delta_beside_list(self, peer: Peer, *, in_doubt: bool) -> tuple[bytes, Delta | None]:
        """Read a delta right after the list, and report who left in the last minutes, while nobody asked
        here: that is as provable as who leaves from now on.

        :returns: its fingerprint and the delta, None for one that cannot be read: the list is what counts.
        """
        try:
            fingerprint, delta = peer.read_delta_if_changed(b"", self._parse_delta) or (b"", None)
        except RegistryError:
            return b"", None
        if delta is not None:
            gone = [key for key in delta.departed_keys if key not in self._held.by_key]
            self._report_departures(delta, gone, in_doubt=in_doubt)
        return fingerprint, delta

    def _apply_next_delta(self, peer: Peer, cursor: _DeltaCursor, now: float) -> bool:
        """Update the held registry by the delta; return False if only the list can tell.

        :raises RegistryUnreachable: no answer came.
        """
        try:
            found = peer.read_delta_if_changed(cursor.fingerprint, self._parse_delta)
        except RegistryError:
            if now - self._unanswered_at < windows.FULL_LIST_INTERVAL_SECONDS:
                self._pause_deltas(now)
            self._unanswered_at = now
            raise
        if found is None:
            self._pause_deltas(now)
            return False
        fingerprint, delta = found
        if delta is None:
            if (
                not cursor.matches_held
                or now - max(cursor.listed_at, cursor.changed_at)
                > windows.DOUBT_UNCHANGED_DELTA_AFTER_SECONDS
            ):
                return False
            self._cursor = replace(cursor, read_at=now)
            return True
        if now - cursor.changed_at > windows.LONGEST_DELTA_GAP_SECONDS:
            return False
        changes = delta.changes_since(cursor.delta) if cursor.matches_held else delta.changes
        held = self._held.with_changes(changes)
        if delta.version < cursor.delta.version or held.status_counts != delta.status_counts:
            self._pause_deltas(now)
            return False
        self._report_departures(delta, delta.departed_keys, in_doubt=False)
        if held is not self._held:
            self._held, self._fingerprint = held, b""  # what the last list said holds no more
        if self._is_delta_too_large(delta):
            self._pause_deltas(now)
            return True  # the list is read from now on
        self._cursor = replace(
            cursor, fingerprint=fingerprint, delta=delta, matches_held=True, read_at=now, changed_at=now
        )
        return True

    def _is_delta_too_large(self, delta: Delta) -> bool:
        """Return whether lists are read instead of a delta, which repeats each change for three minutes.

        With many changes a delta may be many times the registry: the server renders it, and parsing it blocks
        the interpreter. Where deltas are needed as proofs of removals, they are followed all the same.
        """
        return delta.change_count > max(SMALL_DELTA_INSTANCES, len(self._held)) and not self._wants_proofs

    def _report_departures(self, delta: Delta, keys: Sequence[InstanceKey], *, in_doubt: bool) -> None:
        """Report which keys left every server, and which this one, or in doubt one at its URL, evicted."""
        here_alone = delta.evicted_keys if in_doubt or len(self._peers.peers) > 1 else frozenset()
        left = [key for key in keys if key not in here_alone]
        self.departures_seen(left, [key for key in keys if key in here_alone])

    def _pause_deltas(self, now: float) -> None:
        self._rests_until = now + windows.FULL_LIST_INTERVAL_SECONDS
