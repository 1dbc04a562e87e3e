"""Counts of requests that Eureka servers answered, by client and kind, from their access logs.

Contestants are measured unchanged, so their requests are counted at the servers. Each server writes one line
for each request, for all contestants alike.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self


class RequestKind(StrEnum):
    """The kinds of requests that are counted apart."""

    READ = "single reads"
    WRITE = "single writes"
    BATCH = "batches"
    """Batches, including those of renewals: a line does not show a batch's content."""

    OTHER = "other requests"
    """Lists, deltas, statuses of servers, and single renewals."""


@dataclass(frozen=True, slots=True)
class UserAgents:
    """The user agents of the contestants, by their beginning."""

    ours: str = "eurekube"
    kopf: str = "python-requests"
    raw: str = "raw"


USER_AGENTS = UserAgents()


def request_kind(method: str, path: str) -> RequestKind:
    """Return the kind of a request by method and path, which begins with ``/eureka``."""
    parts = path.strip("/").split("/")[1:]
    if parts[:2] == ["peerreplication", "batch"]:
        return RequestKind.BATCH
    if not parts or parts[0] not in ("apps", "instances"):
        return RequestKind.OTHER
    names = parts[1:]
    if method == "GET":
        is_one = len(names) == 2 or parts[0] == "instances"
        return RequestKind.READ if is_one else RequestKind.OTHER
    is_renewal = method == "PUT" and len(names) == 2
    return RequestKind.OTHER if is_renewal or not names else RequestKind.WRITE


class AccessLog:
    """The access logs of a lab's servers; leaving the block removes them.

    :ivar settings: the settings with which the servers must be started.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="eurekube-access-")
        settings = {
            "enabled": "true",
            "directory": self._folder.name,
            "prefix": "access-${server.port}",
            "pattern": "%{begin:msec}t %m %U %{User-Agent}i",
            "buffered": "false",  # else the end of it comes half a minute later
        }
        self.settings = {f"server.tomcat.accesslog.{name}": value for name, value in settings.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._folder.cleanup()

    def count_requests(self, agent: str, spans: Iterable[tuple[float, float]]) -> Counter[RequestKind]:
        """Count a client's requests within some spans of time, at all servers together.

        :param agent: the beginning of its user agent.
        :param spans: begin and end of each by Unix time, in seconds.
        """
        times = list(spans)
        return Counter(
            kind for at, kind in self._requests(agent) if any(begin <= at < end for begin, end in times)
        )

    def _requests(self, agent: str) -> Iterator[tuple[float, RequestKind]]:
        for path in sorted(Path(self._folder.name).iterdir()):
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                at, _, rest = line.partition(" ")
                method, _, rest = rest.partition(" ")
                asked, _, client = rest.partition(" ")
                if client.startswith(agent):
                    yield int(at) / 1000, request_kind(method, asked)


def requests_per_change(
    counts: Counter[RequestKind], changes: int, batches_of_changes: int | None = None
) -> dict[str, float]:
    """Return the number of requests for each change: those that may belong to changes together, and each
    kind.

    :param changes: how many changes were made that Eureka must show.
    :param batches_of_changes: how many batches came with a change, where changes are so far apart that the
        others are known to be renewals; None where any batch may be of a change.
    """
    batches = counts[RequestKind.BATCH] if batches_of_changes is None else batches_of_changes
    of_changes = counts[RequestKind.READ] + counts[RequestKind.WRITE] + batches
    found = {
        "requests a change": of_changes / changes,
        **{f"{kind} a change": counts[kind] / changes for kind in RequestKind},
    }
    if batches_of_changes is not None:
        found["batches a change, that come with it"] = batches_of_changes / changes
    return found


def unix_seconds() -> float:
    """Return the Unix time in seconds, as access logs have it."""
    return time.time()
