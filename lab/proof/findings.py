"""What the proof found, as plain values: each application's calls, and how long removed pods were called."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from lab.pod import Life
from lab.proof.calls import Tally
from lab.proof.form import Form
from lab.proof.subjects import Subject


@dataclass(frozen=True, slots=True)
class Finding:
    """One application.

    :ivar rate: calls a second of the client that called least.
    :ivar slowest_answer_seconds: of the calls that were answered.
    :ivar removed: how many pods were deleted while it was called.
    :ivar killed: how many of these had to be killed at the end of their grace period.
    :ivar still_called_seconds: how long after the beginning of its deletion a pod was called at most.
    :ivar bound_seconds: what the arithmetic says about that, without the margin.
    :ivar failures: in each second since things began to happen; a second without any is left out.
    :ivar outcomes: of the failed calls.
    """

    scenario: str
    strategy: str
    application: str
    calls: int
    failed: int
    rate: float
    slowest_answer_seconds: float
    removed: int
    killed: int
    still_called_seconds: float
    bound_seconds: float
    failures: dict[int, int] = field(default_factory=dict)
    outcomes: dict[str, int] = field(default_factory=dict)


def found(subject: Subject, form: Form, calls: Tally, lives: Iterable[Life], began: float) -> Finding:
    """Put together what is known of one application; `began` is when things began to happen."""
    ended = [life for life in lives if life.labels.get("app") == subject.name and life.deleted_at is not None]
    still_called = [calls.last_called.get(life.address, 0.0) - (life.deleted_at or 0.0) for life in ended]
    seconds = Counter(int(call.at - began) for call in calls.failures)
    return Finding(
        subject.scenario,
        subject.strategy,
        subject.name,
        sum(calls.calls.values()),
        len(calls.failures),
        round(calls.rate, 2),
        calls.slowest_answer_seconds,
        len(ended),
        sum(life.was_killed for life in ended),
        round(max([0.0, *still_called]), 1),
        subject.bound_seconds(form.drain),
        dict(sorted(seconds.items())),
        dict(Counter(call.outcome.split(":")[0][:80] for call in calls.failures).most_common(6)),
    )


def document(findings: Iterable[Finding], form: Form, events: list[tuple[float, str]]) -> dict[str, Any]:
    """The whole, for a JSON file; `events` are what was done, in seconds since things began to happen."""
    return {
        "drain": {**asdict(form.drain), "prestop_seconds": form.drain.prestop_seconds},
        "events": [{"second": round(second, 1), "what": what} for second, what in events],
        "findings": [asdict(finding) for finding in findings],
    }
