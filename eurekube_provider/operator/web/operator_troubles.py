"""Faults of the operator itself, its Eurekas and its StackRefreshes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from eurekube_provider.comparison.seen_remedies import TroubleName
from eurekube_provider.comparison.troubles import Severity, Trouble, eureka_troubles, trouble
from eurekube_provider.core.problem import Problem


def operator_troubles(stuck: Sequence[str], missing: Sequence[str], unread: Sequence[str]) -> list[Trouble]:
    """Return the faults that keep the operator from its work.

    :param stuck: a sentence for each loop that does not go on.
    :param missing: a sentence for each thing that was not read yet.
    :param unread: a sentence for each kind of object that cannot be read at the moment.
    """
    return [
        *(trouble(Severity.FAULT, TroubleName.OPERATOR_STUCK, sentence) for sentence in stuck),
        *(trouble(Severity.FAULT, TroubleName.OPERATOR_NOT_READY, sentence) for sentence in missing),
        *(trouble(Severity.WARNING, TroubleName.KUBERNETES_UNREAD, sentence) for sentence in unread),
    ]


def troubles_at(eureka: Mapping[str, Any]) -> list[Trouble]:
    """Return the faults of one Eureka.

    :param eureka: its part of the document.
    """
    servers = eureka["servers"]
    return eureka_troubles(
        eureka["name"],
        error=eureka["error"],
        away=[(one["url"], one["error"]) for one in servers if one["up"] is False],
        endangered=[one["url"] for one in servers if one["selfPreservation"]],
        warning=eureka["warning"],
    )


def refresh_troubles(refreshes: Iterable[Mapping[str, Any]]) -> list[Trouble]:
    """StackRefreshes whose last run failed, or that are refused; those with one reason are one trouble.

    :param refreshes: their part of the document.
    """
    by_reason: dict[str, list[Mapping[str, Any]]] = {}
    for row in refreshes:
        if row["ready"] is False:
            by_reason.setdefault(row["reason"], []).append(row)
    return [
        Trouble(
            Severity.WARNING,
            Problem.of(those[0]),
            tuple(f"StackRefresh {one['namespace']}/{one['name']}" for one in those),
        )
        for those in by_reason.values()
    ]
