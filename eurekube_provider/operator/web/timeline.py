"""The last changes as a time line, in which equal changes of many instances are one entry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

MOST_NAMED_INSTANCES = 5
"""Most instances that an entry names; the others are counted."""


def timeline_entries(changes: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return entries that join the changes made in the same second for one syncer, application and action.

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
                "why": _cause_without_instance_names(one),
            },
        )
        if len(entry["instances"]) < MOST_NAMED_INSTANCES:
            entry["instances"].append(one["instanceId"])
        else:
            entry["more"] += 1
        if entry["why"] != _cause_without_instance_names(one):
            entry["why"] = "for several reasons"
    return list(entries.values())


def _cause_without_instance_names(change: Mapping[str, Any]) -> str:
    """Return the reason of a change, without the names of its instance."""
    return "was not in Eureka" if change["action"] == "registered" else str(change["cause"])
