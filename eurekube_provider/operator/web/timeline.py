"""The last changes as a time line: what was done to many instances at once is one entry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

MOST_NAMED = 5
"""How many instances of one entry are named; the rest is counted."""


def timeline(changes: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Put changes together that were made in the same second for one syncer, application and action.

    :param changes: newest first, as the document has them.
    """
    entries: dict[tuple[str, ...], dict[str, Any]] = {}
    for one in changes:
        key = (one["at"], one["action"], one["syncer"], one["application"])
        entry = entries.setdefault(
            key,
            {
                "at": one["at"],
                "action": one["action"],
                "syncer": one["syncer"],
                "application": one["application"],
                "instances": [],
                "more": 0,
                "why": _cause(one),
            },
        )
        if len(entry["instances"]) < MOST_NAMED:
            entry["instances"].append(one["instanceId"])
        else:
            entry["more"] += 1
        if entry["why"] != _cause(one):
            entry["why"] = "for several reasons"
    return list(entries.values())


def _cause(change: Mapping[str, Any]) -> str:
    """Why a change was made, without what is this instance's alone."""
    return "was not in Eureka" if change["action"] == "registered" else str(change["cause"])
