"""The hand-over of the Lease from a leader that alone does not reach a Eureka to a replica that does.

A leader goes on renewing its Lease while no Eureka answers it, and all its instances would lapse although
another replica could renew them. So it notes in the Lease from which connections it is cut off. Another
replica that reads this note tries its own connections, and asks for the Lease if it lacks less. The leader
ends all changes that are under way, and hands the Lease over, as long as it is still asked and still cut off.
While all is well nothing is asked or written for this; where no replica reaches Eureka, nobody asks.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from eurekube_provider.core.errors import KubernetesError, RegistryError
from eurekube_provider.core.hand_over import (
    CUT_OFF_AFTER_SECONDS,
    CUT_OFF_NOTE_ANNOTATION,
    LEASE_REQUEST_ANNOTATION,
    REQUEST_INTERVAL_SECONDS,
    REQUEST_VALID_SECONDS,
    CutOffNote,
    LeaseRequest,
    format_cut_off_note,
    format_lease_request,
    grants_lease,
    parse_cut_off_note,
    parse_lease_request,
    was_handed_over_lately,
)
from eurekube_provider.core.objects import Object
from eurekube_provider.core.registry import Failing, Healthy, Registry, reading_error
from eurekube_provider.kube.elector import Elector
from eurekube_provider.runtime.clock import boot_clock_seconds, format_utc_time

_log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Seconds between two looks at the connections' conditions, and at the Lease as it was last read."""

_ANY_KEY = ("EUREKUBE", "none")  # asked for where no instance is known: 404 is an answer, too


@dataclass(slots=True)
class _ConnectionState:
    """The answers of one connection, as this process saw them. Times are by the clock of the hand-over.

    :ivar failing_since: since when no usable answer came; None while the connection is well.
    :ivar since_text: the same as RFC 3339.
    :ivar answered_renewals: the number of renewals that had been answered by ``failing_since``.
    """

    failed_at: float
    failing_since: float | None = None
    since_text: str = ""
    answered_renewals: int = 0


class HandOver:
    """One replica's part in the hand-over of the Lease, whether it leads or stands by.

    :param identity: this replica's in the Lease.
    :param is_cluster_copy_current: returns True while this replica could change something as the leader.
    """

    def __init__(
        self,
        identity: str,
        registries: Mapping[str, Registry],
        is_cluster_copy_current: Callable[[], bool],
        clock: Callable[[], float] = boot_clock_seconds,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._identity = identity
        self._registries = registries
        self._is_cluster_copy_current = is_cluster_copy_current
        self._clock = clock
        self._wall_clock = wall_clock
        self._lock = threading.Lock()
        self._states: dict[str, _ConnectionState] = {}
        self._request: tuple[LeaseRequest, float] | None = None
        self._tried: tuple[CutOffNote, float] | None = None
        self._logged: frozenset[str] = frozenset()
        self._stopped = threading.Event()

    def start(self, elector: Elector) -> None:
        """Begin to look at the connections and at the Lease."""
        threading.Thread(target=self._run, args=(elector,), name="hand-over", daemon=True).start()

    def stop(self) -> None:
        """Ask for the Lease no more."""
        self._stopped.set()

    def add_note(self, metadata: Object) -> Object:
        """Return the metadata of a Lease that this replica writes, with its note if it is cut off.

        A request that stands there is taken out and remembered.
        """
        request, now = parse_lease_request(metadata), self._clock()
        if request is not None and not was_handed_over_lately(metadata, self._wall_clock()):
            self._request = request, now
        elif self._request is not None and now - self._request[1] >= REQUEST_VALID_SECONDS:
            self._request = None
        note = self.note_if_cut_off()
        cut_off = note.cut_off if note is not None else frozenset()
        if cut_off - self._logged:
            _log.warning(
                "noted in the Lease that this replica is cut off from Eureka, another one may ask to lead",
                extra={"eureka": ",".join(sorted(cut_off))},
            )
        self._logged = cut_off
        annotations = dict(metadata.get("annotations") or {})
        annotations.pop(LEASE_REQUEST_ANNOTATION, None)
        annotations.pop(CUT_OFF_NOTE_ANNOTATION, None)
        if note is not None:
            annotations[CUT_OFF_NOTE_ANNOTATION] = format_cut_off_note(note)
        return {**metadata, "annotations": annotations}

    def find_successor(self) -> str:
        """Return the replica to which this one hands the Lease over at this moment; empty for none."""
        remembered = self._request
        if remembered is None:
            return ""
        request, received_at = remembered
        age_seconds = self._clock() - received_at
        return request.asker if grants_lease(request, age_seconds, self.note_if_cut_off()) else ""

    def look(self, elector: Elector) -> None:
        """Look at each connection, and ask for the Lease if its holder is cut off and this replica is not."""
        with self._lock:
            self._update_states()
            now = self._clock()
            well = {
                name for name, one in self._states.items() if now - one.failed_at >= CUT_OFF_AFTER_SECONDS
            }
        note = self._note_to_answer(elector.lease)
        if note is None or not note.is_better_off(well) or not self._is_cluster_copy_current():
            return
        tried, tried_at = self._tried or (None, now)
        if note == tried and now - tried_at < REQUEST_INTERVAL_SECONDS:
            return
        self._tried = note, now
        if not note.is_better_off({name for name in well if _gives_answer(self._registries[name])}):
            return
        request = format_lease_request(
            LeaseRequest(self._identity, note), format_utc_time(self._wall_clock())
        )
        try:
            has_asked = not self._stopped.is_set() and elector.annotate_lease(
                lambda read: {LEASE_REQUEST_ANNOTATION: request} if self._note_to_answer(read) == note else {}
            )
        except KubernetesError as error:
            if error.status_code == 409:
                self._tried = None  # it was written meanwhile: it is asked for at the next look
            else:
                _log.warning("failed to ask the leader for the Lease, retrying", extra={"error": str(error)})
            return
        if has_asked and note != tried:
            _log.warning(
                "asked the leader for the Lease: it is cut off from Eureka, and this replica is not",
                extra={"holder": note.holder, "eureka": ",".join(sorted(note.cut_off))},
            )

    def note_if_cut_off(self) -> CutOffNote | None:
        """Return this replica's note at this moment; None while no connection has failed for long."""
        with self._lock:
            self._update_states()
            now = self._clock()
            since = {
                name: one.since_text
                if one.failing_since is not None and now - one.failing_since >= CUT_OFF_AFTER_SECONDS
                else ""
                for name, one in self._states.items()
            }
        return CutOffNote(self._identity, since) if any(since.values()) else None

    def _update_states(self) -> None:
        """Note which connections fail; the lock must be held."""
        now = self._clock()
        for name, registry in self._registries.items():
            state = self._states.setdefault(name, _ConnectionState(now))
            condition = registry.condition()
            is_slow = isinstance(condition, Failing) and not condition.lasts
            if condition != Healthy() and not is_slow:
                state.failed_at = now
            if reading_error(condition) is None:
                state.failing_since = None
                continue
            figures = registry.figures()
            answered = figures.accepted_renewals + figures.missing_renewals
            if state.failing_since is None or answered != state.answered_renewals:
                state.failing_since, state.since_text = now, format_utc_time(self._wall_clock())
                state.answered_renewals = answered

    def _note_to_answer(self, lease: Object | None) -> CutOffNote | None:
        """Return the note of a Lease's present holder that this replica may answer; None for none."""
        note = None if lease is None else parse_cut_off_note(lease["metadata"])
        if lease is None or note is None or was_handed_over_lately(lease["metadata"], self._wall_clock()):
            return None
        holder = (lease.get("spec") or {}).get("holderIdentity")
        return note if note.holder == holder != self._identity else None

    def _run(self, elector: Elector) -> None:
        while not self._stopped.wait(LOOK_SECONDS):
            try:
                self.look(elector)
            except Exception:  # noqa: BLE001 - the thread must look again
                _log.exception("failed to look for a leader that is cut off from Eureka, retrying")


def _gives_answer(registry: Registry) -> bool:
    """Ask a registry for one instance, past all caches; return whether a server answers."""
    key = next((one.key for one in registry.known_instances()), _ANY_KEY)
    try:
        registry.read_everywhere([key])
    except RegistryError:
        return False
    return True
