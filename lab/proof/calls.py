"""The calls that clients recorded: one line each, see `Calls` of `lab/spring-client`."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ANSWERED_OUTCOME = "ok"


@dataclass(frozen=True, slots=True)
class Call:
    """One call.

    :ivar at: when it began, in seconds since 1970.
    :ivar target: the host; empty where none was chosen.
    """

    at: float
    seconds: float
    client: str
    application: str
    target: str
    outcome: str

    @property
    def has_failed(self) -> bool:
        """True if the caller got anything but an answer 200."""
        return self.outcome != ANSWERED_OUTCOME


def read_calls(file: Path) -> Iterator[Call]:
    """Yield the calls of one client's file, without an incomplete last line."""
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            if line.endswith("\n"):
                at, client, application, target, took, outcome = line.rstrip("\n").split(",", 5)
                yield Call(int(at) / 1000, int(took) / 1000, client, application, target, outcome)


@dataclass(slots=True)
class CallTally:
    """The results of one application's calls.

    :ivar failures: the calls that failed.
    :ivar last_called: by address, when its last call began.
    :ivar first_at, last_at: when the first and the last call began.
    """

    calls: Counter[str] = field(default_factory=Counter)
    """Number of calls by client."""

    failures: list[Call] = field(default_factory=list)
    last_called: dict[str, float] = field(default_factory=dict)
    slowest_answer_seconds: float = 0.0
    first_at: float = float("inf")
    last_at: float = 0.0

    def add(self, call: Call) -> None:
        """Count one call."""
        self.calls[call.client] += 1
        self.first_at = min(self.first_at, call.at)
        self.last_at = max(self.last_at, call.at)
        if call.has_failed:
            self.failures.append(call)
        else:
            self.slowest_answer_seconds = max(self.slowest_answer_seconds, call.seconds)
        if call.target:
            self.last_called[call.target] = max(call.at, self.last_called.get(call.target, 0.0))

    @property
    def lowest_rate(self) -> float:
        """Calls a second of the client that called least."""
        return min(self.calls.values(), default=0) / max(1.0, self.last_at - self.first_at)


def tally_calls(
    files: Iterable[Path], since: float = 0.0, until: float = float("inf")
) -> dict[str, CallTally]:
    """Return the results of the calls that began between two times, by application."""
    found: dict[str, CallTally] = {}
    for file in files:
        for call in read_calls(file):
            if since <= call.at < until:
                found.setdefault(call.application, CallTally()).add(call)
    return found
