"""The proof's findings as plain values: each application's calls, and how long removed pods were called."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from lab.pod import PodLife
from lab.proof.calls import CallTally
from lab.proof.form import ProofSettings
from lab.proof.subjects import Subject
from lab.proof.witness import ServerView


class Verdict(StrEnum):
    """The verdict on the calls to an application and its removed pods."""

    HELD = "no call failed, and no pod was called for too long"
    STALE = "a Eureka server showed for too long what it had no longer, and nothing else went wrong"
    BROKEN = "calls failed, or a pod was called for too long"


@dataclass(frozen=True, slots=True)
class RemovedPod:
    """One pod that was deleted; times are in seconds.

    :ivar deleted: when its deletion began, after the disturbances began.
    :ivar called: how long it was called after its deletion began.
    :ivar gone: how long after its deletion began its address was taken away; 0 where that was not seen.
    :ivar failed: number of failed calls to it.
    """

    pod: str
    address: str
    deleted: float
    called: float
    gone: float
    failed: int
    servers: Sequence[ServerView] = ()

    def is_server_to_blame(self, settings: ProofSettings, limit_seconds: float) -> bool:
        """Return whether the pod was called too long only because a server showed outdated lists."""
        drain = settings.drain
        stale = max((one.stale for one in self.servers), default=0.0)
        is_stale = stale > drain.server_cache_seconds + drain.replication_seconds
        return is_stale and self.called - stale <= limit_seconds < self.called


@dataclass(frozen=True, slots=True)
class Finding:
    """The findings on one application.

    :ivar rate: calls a second of the client that called least.
    :ivar slowest_answer_seconds: of the calls that were answered.
    :ivar removed: how many pods were deleted while it was called.
    :ivar killed: how many of these had to be killed at the end of their grace period.
    :ivar still_called_seconds: how long a pod was called at most after its deletion began.
    :ivar bound_seconds: the computed bound, without the margin.
    :ivar failures: failed calls by second since the disturbances began; seconds without any are left out.
    :ivar outcomes: of the failed calls.
    :ivar verdict: a :class:`Verdict`; meaningless for an application that does not drain.
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
    verdict: Verdict = Verdict.HELD
    pods: list[RemovedPod] = field(default_factory=list)


def decide_verdict(
    pods: Iterable[RemovedPod], failed: Iterable[str], settings: ProofSettings, bound_seconds: float
) -> Verdict:
    """Return the verdict on removed pods, and on failed calls, given by the addresses to which they went."""
    limit_seconds = bound_seconds + settings.drain.margin_seconds
    wrong, forgiven = set(failed), set()
    for pod in pods:
        if pod.called > limit_seconds:
            wrong.add(pod.address)
        if pod.is_server_to_blame(settings, limit_seconds):
            forgiven.add(pod.address)
    if not wrong:
        return Verdict.HELD
    return Verdict.STALE if wrong <= forgiven else Verdict.BROKEN


def make_finding(
    subject: Subject,
    settings: ProofSettings,
    calls: CallTally,
    lives: Iterable[PodLife],
    began: float,
    find_server_views: Callable[[PodLife], Sequence[ServerView]] = lambda _: (),
) -> Finding:
    """Return the findings on one application.

    `began` is when the disturbances began, and `find_server_views` returns each server's view of a pod.
    """
    failed = Counter(call.target for call in calls.failures)
    bound = subject.longest_called_seconds(settings.drain)
    ended = [life for life in lives if life.labels.get("app") == subject.name and life.deleted_at is not None]
    pods = [_describe_removed_pod(life, calls, failed, began, find_server_views) for life in ended]
    seconds = Counter(int(call.at - began) for call in calls.failures)
    return Finding(
        subject.scenario,
        subject.strategy,
        subject.name,
        sum(calls.calls.values()),
        len(calls.failures),
        round(calls.lowest_rate, 2),
        calls.slowest_answer_seconds,
        len(ended),
        sum(life.was_killed for life in ended),
        max([0.0, *(pod.called for pod in pods)]),
        bound,
        dict(sorted(seconds.items())),
        dict(Counter(call.outcome.split(":")[0][:80] for call in calls.failures).most_common(6)),
        decide_verdict(pods, failed, settings, bound),
        pods,
    )


def _describe_removed_pod(
    life: PodLife,
    calls: CallTally,
    failed: Counter[str],
    began: float,
    find_server_views: Callable[[PodLife], Sequence[ServerView]],
) -> RemovedPod:
    deleted_at = life.deleted_at or 0.0
    return RemovedPod(
        life.name,
        life.address,
        round(deleted_at - began, 1),
        round(max(0.0, calls.last_called.get(life.address, 0.0) - deleted_at), 1),
        round(max(0.0, (life.gone_at or 0.0) - deleted_at), 1),
        failed[life.address],
        find_server_views(life),
    )


def make_report(
    findings: Iterable[Finding], settings: ProofSettings, events: list[tuple[float, str]]
) -> dict[str, Any]:
    """Return the whole report as JSON values; `events` are the disturbances, in seconds since the first
    one.
    """
    return {
        "drain": {**asdict(settings.drain), "prestop_seconds": settings.drain.prestop_seconds},
        "events": [{"second": round(second, 1), "what": what} for second, what in events],
        "findings": [asdict(finding) for finding in findings],
    }
