"""A Eureka server's own status and peers, read from ``/status``."""

from __future__ import annotations

import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from email.utils import parsedate_to_datetime


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """A server's ``/status``.

    :param uptime: as the server words it, e.g. ``0 days 00:03``: days, hours and minutes.
    :param started_timestamp_ms: when the server described itself first, by its own clock: another value
        means that it was restarted since. None where it does not say.
    :param identity: of this run of the server: it tells by the same one, whatever its URL; None where it does
        not say.
    :param clock_ahead_seconds: how far its clock is ahead of ours, to a second or two; None where it does not
        say.
    """

    uptime: str
    started_timestamp_ms: int | None
    registered_replicas: tuple[str, ...]
    clock_ahead_seconds: float | None = None
    identity: tuple[str, ...] | None = None


def status_from_xml(text: str, date: str | None) -> ServerStatus | None:
    """Read the answer; None where it is not Eureka's.

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
    return ServerStatus(
        uptime=root.findtext(".//server-uptime") or "",
        started_timestamp_ms=int(started) if started.isdigit() else None,
        registered_replicas=tuple(url.strip() for url in replicas if url.strip()),
        clock_ahead_seconds=_ahead(date),
        identity=(*itself, started) if any(itself) and started else None,
    )


def _ahead(date: str | None) -> float | None:
    """How far the clock that wrote a Date header is ahead of ours."""
    try:
        return parsedate_to_datetime(date or "").timestamp() - time.time()
    except ValueError:
        return None
