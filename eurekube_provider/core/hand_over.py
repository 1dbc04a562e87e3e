"""The rules by which a leader that alone does not reach a Eureka hands its Lease over, and the notes there.

The leader notes the connections without a usable answer in its Lease. A replica that is better off asks for
the Lease there, and the leader hands it over if it is still cut off. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from eurekube_provider.core.objects import Object, parse_api_time

CUT_OFF_NOTE_ANNOTATION = "eurekube.io/cut-off-from-eureka"
LEASE_REQUEST_ANNOTATION = "eurekube.io/lease-wanted-by"
HANDED_OVER_AT_ANNOTATION = "eurekube.io/lease-handed-over-at"
"""The annotations of a Lease for its hand-over."""

CUT_OFF_AFTER_SECONDS = 20.0
"""Seconds without a usable answer after which a leader notes that it is cut off.

So long must another replica's connections have been well before it asks for the Lease: where Eureka was
restarted, one replica sees it again some seconds before the other. A hand-over takes some 15 s more, and an
instance whose first renewal fails lives on for 65 s (90 s less an interval of 25 s).
"""

REQUEST_INTERVAL_SECONDS = 5.0
"""Seconds between two requests of a replica for the Lease, for as long as it is better off."""

REQUEST_VALID_SECONDS = 10.0
"""Seconds for which a request counts, from when the holder read it: one may be lost, and a replica that ended
asks no more.
"""

HAND_OVER_INTERVAL_SECONDS = 120.0
"""The fewest seconds between two hand-overs of a Lease, so that replicas do not exchange it where Eureka is
flaky. An instance whose next renewal fails lives on for longer: 155 s (180 s less an interval of 25 s).
"""


@dataclass(frozen=True, slots=True)
class CutOffNote:
    """The connections of a Lease's holder.

    :ivar holder: the holder's identity, since another one may have kept the note that stood there.
    :ivar since_by_connection: since when each connection gave no usable answer; empty for one that is well.
    """

    holder: str
    since_by_connection: Mapping[str, str]

    @property
    def cut_off(self) -> frozenset[str]:
        """The connections without a usable answer."""
        return frozenset(name for name, since in self.since_by_connection.items() if since)

    def is_better_off(self, usable: Collection[str]) -> bool:
        """Return whether a replica with these usable connections lacks a part of what the holder lacks."""
        return self.since_by_connection.keys() - set(usable) < self.cut_off


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """The request of a replica for the Lease.

    :ivar asker: the replica's identity.
    :ivar note: the note that it answers, and no later one.
    """

    asker: str
    note: CutOffNote


def parse_cut_off_note(metadata: Object) -> CutOffNote | None:
    """Return the note in a Lease's metadata; None for none that can be read."""
    return _parse_note(_parse_json(metadata, CUT_OFF_NOTE_ANNOTATION))


def parse_lease_request(metadata: Object) -> LeaseRequest | None:
    """Return the request in a Lease's metadata; None for none that can be read."""
    found = _parse_json(metadata, LEASE_REQUEST_ANNOTATION)
    note = _parse_note(found.get("note")) if isinstance(found, dict) else None
    return LeaseRequest(str(found["asker"]), note) if note and found.get("asker") else None


def format_cut_off_note(note: CutOffNote) -> str:
    """Return the note as an annotation's value."""
    return json.dumps(_note_as_json(note))


def format_lease_request(request: LeaseRequest, at: str) -> str:
    """Return the request as an annotation's value.

    :param at: the time for people, as RFC 3339.
    """
    return json.dumps({"asker": request.asker, "at": at, "note": _note_as_json(request.note)})


def was_handed_over_lately(metadata: Object, now: float) -> bool:
    """Return whether a Lease was handed over so lately, at a Unix time, that it must not be again."""
    at = parse_api_time((metadata.get("annotations") or {}).get(HANDED_OVER_AT_ANNOTATION))
    return at is not None and abs(now - at.timestamp()) < HAND_OVER_INTERVAL_SECONDS


def grants_lease(request: LeaseRequest, age_seconds: float, present_note: CutOffNote | None) -> bool:
    """Return whether a holder hands its Lease over: it was asked recently, because of what it still lacks.

    :param present_note: the holder's note at this moment; None where each connection is well.
    """
    return age_seconds < REQUEST_VALID_SECONDS and request.note == present_note


def _parse_json(metadata: Object, annotation: str) -> Any:
    try:
        return json.loads((metadata.get("annotations") or {}).get(annotation) or "null")
    except (ValueError, RecursionError):
        return None


def _note_as_json(note: CutOffNote) -> Object:
    return {"holder": note.holder, "since": dict(note.since_by_connection)}


def _parse_note(found: Any) -> CutOffNote | None:
    since = found.get("since") if isinstance(found, dict) else None
    if not isinstance(since, dict):
        return None
    return CutOffNote(str(found.get("holder")), {name: str(at or "") for name, at in since.items()})
