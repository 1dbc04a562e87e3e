"""The report of the mirror proof: the calls' results, and how long each machine was called after it left
Eureka.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.coredns import DNS_TTL_SECONDS
from lab.mirror_proof.stage import (
    CLIENT_FETCH_SECONDS,
    DRAIN_SECONDS,
    HEADLESS_REVIEW,
    LEGACY,
    LOAD_BALANCER_CACHE_SECONDS,
    RESYNC_SECONDS,
    REVIEW,
    SERVER_CACHE_SECONDS,
    SLICE_UPDATE_SECONDS,
)
from lab.pod import PodLife
from lab.proof.calls import Call, read_calls
from lab.proof.witness import ServerView
from lab.service_proxy import EndpointChange

ANSWERED_ON_NEW_CONNECTION_OUTCOME = "ok again"
"""Outcome of a call answered on a new connection, since the old one was closed between two calls."""

NEW_CONNECTION_CLIENT_NAME = "new"
"""Name of the caller that looks the name up and connects for each call."""

SPRING_CLIENT_NAME = "load balancer"
"""Name of the caller outside the cluster: Spring's client, which asks Eureka."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One disturbance and its times, in seconds since 1970."""

    name: str
    began: float
    ended: float

    @property
    def seconds(self) -> float:
        """Duration in seconds."""
        return self.ended - self.began


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The data that one run of the proof recorded.

    :ivar changes: changes of endpoints, as the played kube-proxy saw them.
    :ivar find_server_views: returns how long each Eureka server listed a machine after it left.
    """

    phases: Sequence[Phase]
    call_files: Sequence[Path]
    lives: Sequence[PodLife]
    changes: Sequence[EndpointChange]
    find_server_views: Callable[[PodLife], list[ServerView]]


def make_report(recorded: RunRecord) -> dict[str, Any]:
    """Return the report as JSON values: calls by phase, application and caller, and an entry for each
    machine that left.
    """
    calls = [call for file in recorded.call_files for call in read_calls(file)]
    first = recorded.phases[0]
    return {
        "bounds": {
            "server_cache_seconds": SERVER_CACHE_SECONDS,
            "resync_seconds": RESYNC_SECONDS,
            "slices_seconds": SLICE_UPDATE_SECONDS,
            "dns_seconds": DNS_TTL_SECONDS,
            "spring_seconds": SERVER_CACHE_SECONDS + CLIENT_FETCH_SECONDS + LOAD_BALANCER_CACHE_SECONDS,
            "drain_seconds": DRAIN_SECONDS,
        },
        "phases": {
            phase.name: {
                "seconds": round(phase.seconds, 1),
                "calls": _count_calls([one for one in calls if phase.began <= one.at < phase.ended]),
            }
            for phase in recorded.phases
        },
        "machines": [
            _describe_machine(life, recorded, [one for one in calls if one.target == life.address])
            for life in recorded.lives
            if life.deleted_at is not None and first.began <= life.deleted_at < first.ended
        ],
    }


def _count_calls(calls: Sequence[Call]) -> list[dict[str, Any]]:
    """Return the counts of calls by application and caller."""
    pairs = sorted({(one.application, one.client) for one in calls})
    found = []
    for application, client in pairs:
        mine = [one for one in calls if (one.application, one.client) == (application, client)]
        failed = [one for one in mine if one.outcome not in ("ok", ANSWERED_ON_NEW_CONNECTION_OUTCOME)]
        found.append(
            {
                "application": application,
                "client": client,
                "calls": len(mine),
                "failed": len(failed),
                "on_new_connection": sum(one.outcome == ANSWERED_ON_NEW_CONNECTION_OUTCOME for one in mine),
                "outcomes": dict(Counter(one.outcome for one in failed)),
                "machines": len({one.target for one in mine if one.target}),
            }
        )
    return found


def _describe_machine(life: PodLife, recorded: RunRecord, calls: Sequence[Call]) -> dict[str, Any]:
    """Return the events of a machine, in seconds after it began to leave Eureka.

    The last call of each caller is None if the caller did not call it after that.
    """
    left = life.deleted_at or 0.0

    def last_called(application: str, client: str) -> float | None:
        times = [
            one.at - left
            for one in calls
            if (one.application, one.client) == (application, client) and one.at >= left
        ]
        return round(max(times), 2) if times else None

    gone = {
        one.service: round(one.at - left, 2)
        for one in recorded.changes
        if one.address == life.address and not one.is_ready and one.at >= left
    }
    application = life.labels["app"]
    names = [REVIEW, HEADLESS_REVIEW] if application == REVIEW else [LEGACY]
    return {
        "machine": life.name,
        "application": application,
        "stopped_after": round((life.reported_at or 0.0) - left, 2),
        "shown_by_eureka_until": max((one.shown for one in recorded.find_server_views(life)), default=0.0),
        "left_slices_after": {name: gone.get(name) for name in names},
        "last_called_after": {name: last_called(name, NEW_CONNECTION_CLIENT_NAME) for name in names},
        "last_called_by_spring_after": last_called(application, SPRING_CLIENT_NAME),
    }
