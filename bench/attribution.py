"""The stages between the API server and Eureka in which a change spends its time, from a traced operator's
notes.

Each change is followed from its patch to the answer of the request that wrote it, and every moment between
belongs to one stage.
"""

from __future__ import annotations

import bisect
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.churn import GONE, Change

SyncerKey = tuple[str, str]

STAGES = (
    "API server, until the watch event is taken",
    "the change before it on the same key",
    "queue",
    "decision",
    "waiting in the writer",
    "Eureka, the reads before",
    "the writer's own work between requests",
    "Eureka, the write",
)
TOTAL_ROW = "in all"
WAIT_PARTS = ("of the wait: others' writes are under way", "of the wait: only others' reads are")
"""Parts of the wait in the writer: writes of other changes are under way, or only reads of other changes."""

MEDIAN_COLUMN = "the median change"
SLOWEST_COLUMN = "the slowest hundredth"


@dataclass(frozen=True, slots=True)
class Taken:
    """Note that a reflector has taken an event of an EndpointSlice."""

    at: float
    place: tuple[str, str]
    version: str


@dataclass(frozen=True, slots=True)
class Begun:
    """Note that a worker has taken a key from the queue."""

    at: float
    key: SyncerKey


@dataclass(frozen=True, slots=True)
class Done:
    """Note that a worker has finished with a key."""

    at: float
    key: SyncerKey


@dataclass(frozen=True, slots=True)
class Decided:
    """Note that the decision for a syncer is made."""

    at: float
    key: SyncerKey


@dataclass(frozen=True, slots=True)
class RequestItem:
    """The part of a request that concerns one instance.

    :ivar action: ``Read``, ``Renew``, ``Register`` or ``Cancel``.
    :ivar status: the status of a registration.
    """

    action: str
    application: str
    instance_id: str
    status: str


@dataclass(frozen=True, slots=True)
class Asked:
    """Note that a request to Eureka was answered, or given up.

    :ivar by: the name of the thread that sent it, up to its number.
    """

    at: float
    answered: float
    by: str
    is_batch: bool
    items: tuple[RequestItem, ...]


Note = Taken | Begun | Done | Decided | Asked
_LONGEST_REQUEST_SECONDS = 5.0
_NOTE_TYPES: dict[str, type[Note]] = {one.__name__: one for one in (Taken, Begun, Done, Decided, Asked)}


def notes_to_json(notes: Iterable[Note]) -> list[list[Any]]:
    """Return notes as JSON values."""
    return [[type(note).__name__, asdict(note)] for note in notes]


def notes_from_json(document: Iterable[Sequence[Any]]) -> list[Note]:
    """Return the notes in a document of :func:`notes_to_json`."""
    notes: list[Note] = []
    for kind, values in document:
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
        }
        if kind == Asked.__name__:
            fields["items"] = tuple(RequestItem(**item) for item in fields["items"])
        notes.append(_NOTE_TYPES[kind](**fields))
    return notes


class Trace:
    """The notes of one operator, indexed by slice, syncer and instance."""

    def __init__(self, notes: Iterable[Note]) -> None:
        self._taken: dict[tuple[tuple[str, str], str], float] = {}
        self._begun: dict[SyncerKey, list[float]] = defaultdict(list)
        self._done: dict[SyncerKey, list[float]] = defaultdict(list)
        self._decided: dict[SyncerKey, list[float]] = defaultdict(list)
        self._asked: dict[tuple[str, str], list[tuple[Asked, RequestItem]]] = defaultdict(list)
        self.requests: list[Asked] = []
        for note in sorted(notes, key=lambda one: one.at):
            match note:
                case Taken():
                    self._taken.setdefault((note.place, note.version), note.at)
                case Begun():
                    self._begun[note.key].append(note.at)
                case Done():
                    self._done[note.key].append(note.at)
                case Decided():
                    self._decided[note.key].append(note.at)
                case Asked():
                    self.requests.append(note)
                    for item in note.items:
                        self._asked[item.application, item.instance_id].append((note, item))

        self._starts = [note.at for note in self.requests]

    def stage_milliseconds(self, change: Change) -> dict[str, float] | None:
        """Return the milliseconds that a change spent in each stage, and the parts of its wait in the writer.

        :returns: None where no request wrote the change: a later change came first, or the trace ended.
        """
        taken = self._taken.get(((change.namespace, change.name), change.version))
        if taken is None:
            return None
        asked = [one for one in self._asked[change.key] if one[0].at >= taken]
        write = next((note for note, item in asked if _is_write_of(item, change.state)), None)
        if write is None:
            return None
        key = (change.namespace, change.name)
        begun = max(taken, _last_time_until(self._begun[key], write.at) or taken)
        decided = min(write.at, max(begun, _first_time_from(self._decided[key], begun) or begun))
        reads = [note for note, item in asked if item.action == "Read" and decided <= note.at < write.at]
        first = min([write.at, *(note.at for note in reads)])
        reading = _covered_seconds([(note.at, min(note.answered, write.at)) for note in reads])
        before = self._seconds_at_work(key, taken, begun)
        seconds = (
            taken - change.sent,
            before,
            begun - taken - before,
            decided - begun,
            first - decided,
            reading,
            write.at - first - reading,
            write.answered - write.at,
        )
        waits = self._seconds_under_way(decided, first)
        names = (*STAGES, *WAIT_PARTS)
        return {name: each * 1000 for name, each in zip(names, (*seconds, *waits), strict=True)}

    def _seconds_under_way(self, since: float, until: float) -> tuple[float, float]:
        """Return the seconds of a span in which writes were under way, and those in which only reads were."""
        begin = bisect.bisect_left(self._starts, since - _LONGEST_REQUEST_SECONDS)
        end = bisect.bisect_right(self._starts, until)
        writes, both = [], []
        for note in self.requests[begin:end]:
            span = (max(note.at, since), min(note.answered, until))
            kinds = {_KIND_BY_ACTION[item.action] for item in note.items} - {"renewals"}
            if span[0] < span[1] and kinds:
                both.append(span)
                if "writes" in kinds:
                    writes.append(span)
        return _covered_seconds(writes), _covered_seconds(both) - _covered_seconds(writes)

    def _seconds_at_work(self, key: SyncerKey, since: float, until: float) -> float:
        """Return the seconds of a span in which a worker had the key for an earlier change."""
        spans = []
        for begun in self._begun[key]:
            if begun < until:
                done = _first_time_from(self._done[key], begun)
                spans.append((max(begun, since), min(until if done is None else done, until)))
        return _covered_seconds([(begin, end) for begin, end in spans if begin < end])


def _is_write_of(item: RequestItem, state: str) -> bool:
    if state == GONE:
        return item.action == "Cancel"
    return item.action == "Register" and item.status == state


def _last_time_until(times: Sequence[float], until: float) -> float | None:
    place = bisect.bisect_right(times, until)
    return times[place - 1] if place else None


def _first_time_from(times: Sequence[float], since: float) -> float | None:
    place = bisect.bisect_left(times, since)
    return times[place] if place < len(times) else None


def _covered_seconds(spans: Iterable[tuple[float, float]]) -> float:
    """Return the seconds that at least one of these spans covers."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        if end > reached:
            total += end - max(begin, reached)
            reached = end
    return total


def mean_stage_milliseconds(changes: Iterable[Change], trace: Trace) -> dict[str, dict[str, float]]:
    """Return the mean milliseconds of each stage, of the changes around the median and of the slowest ones.

    The first group is the tenth of all changes around the median, so that one odd change does not stand for
    all.

    :returns: by column and stage, and :data:`TOTAL_ROW`; empty where no change was traced.
    """
    found = [stages for change in changes if (stages := trace.stage_milliseconds(change)) is not None]
    found.sort(key=_total_milliseconds)
    if not found:
        return {}
    middle = found[len(found) * 45 // 100 : len(found) * 55 // 100 + 1]
    slowest = found[-max(1, len(found) // 100) :]
    return {MEDIAN_COLUMN: _mean_stages(middle), SLOWEST_COLUMN: _mean_stages(slowest)}


def _total_milliseconds(stages: Mapping[str, float]) -> float:
    return sum(stages[stage] for stage in STAGES)


def _mean_stages(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    means = {name: statistics.fmean(stages[name] for stages in found) for name in (*STAGES, *WAIT_PARTS)}
    in_all = {name: means[name] for name in STAGES} | {TOTAL_ROW: _total_milliseconds(means)}
    return in_all | {name: means[name] for name in WAIT_PARTS}


def count_traffic(trace: Trace, spans: Iterable[tuple[float, float]], changes: int) -> dict[str, float]:
    """Return the requests for each change by kind, the reads also by sender, and the items in each batch.

    :param spans: begin and end of the times that count, by the monotonic clock.
    :param changes: how many changes were made in these times.
    """
    times = list(spans)
    counts: Counter[str] = Counter()
    items: Counter[str] = Counter()
    by_thread: Counter[str] = Counter()
    for request in trace.requests:
        if not request.items or not any(begin <= request.at < end for begin, end in times):
            continue
        of_each = Counter(_KIND_BY_ACTION[item.action] for item in request.items)
        kind = next(kind for kind in ("writes", "reads", "renewals") if of_each[kind])
        named = f"batches of {kind}" if request.is_batch else f"single {kind}"
        counts[named] += 1
        if kind == "reads":
            by_thread[f"{named}, by {request.by}"] += 1
        if request.is_batch:
            items[kind] += of_each[kind]
    each = {f"{name} a change": count / changes for name, count in sorted((counts + by_thread).items())}
    return each | {f"{kind} a batch": items[kind] / counts[f"batches of {kind}"] for kind in sorted(items)}


_KIND_BY_ACTION = {"Register": "writes", "Cancel": "writes", "Read": "reads", "Renew": "renewals"}
