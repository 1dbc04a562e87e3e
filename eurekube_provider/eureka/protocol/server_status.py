"""A Eureka server's own status and peers, read from ``/status``."""

from __future__ import annotations

import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from email.utils import parsedate_to_datetime


@dataclass(frozen=True, slots=True)
class StatusPage:
    """A server's ``/status``.

    :param uptime: in the server's notation, e.g. ``0 days 00:03``: days, hours and minutes.
    :param started_timestamp_ms: when the server first described itself, by its own clock: another value means
        that it was restarted since. None where the server does not say.
    :param registered_replicas: the URLs of its peers, as it writes them.
    :param identity: identifies this run of the server, whatever URL leads to it; None for unknown.
    :param clock_ahead_seconds: by how much its clock is ahead of this machine's; None for unknown.
    """

    uptime: str
    started_timestamp_ms: int | None
    registered_replicas: tuple[str, ...]
    clock_ahead_seconds: float | None = None
    identity: tuple[str, ...] | None = None


def status_from_xml(text: str, date: str | None) -> StatusPage | None:
    """Parse the answer of ``/status``; None where it is not Eureka's.

    :param date: the answer's ``Date`` header.
    """
    try:
        # The server's own answer, and expat since 2.6 bounds entity expansion.
        root = ElementTree.fromstring(text)  # noqa: S314
    except ElementTree.ParseError:
        return None
    if root.find("applicationStats") is None:
        return None

    replicas = (root.findtext(".//registered-replicas") or "").split(",")
    started = root.findtext("./instanceInfo/lastUpdatedTimestamp") or ""
    itself = tuple(root.findtext(f"./instanceInfo/{one}") or "" for one in ("instanceId", "hostName", "port"))
    return StatusPage(
        uptime=root.findtext(".//server-uptime") or "",
        started_timestamp_ms=int(started) if started.isdecimal() and len(started) < 19 else None,
        registered_replicas=tuple(url.strip() for url in replicas if url.strip()),
        clock_ahead_seconds=_clock_ahead_seconds(date),
        identity=(*itself, started) if any(itself) and started else None,
    )


def _clock_ahead_seconds(date: str | None) -> float | None:
    """Return how far, in seconds, the clock that wrote a Date header is ahead of this machine's."""
    try:
        return parsedate_to_datetime(date or "").timestamp() - time.time()
    except ValueError:
        return None
