"""What the operator knows, as one document: ``/status.json``, and what the status page is made of.

The keys are stable. Nothing here asks a server anything, and no lock is held for longer than a copy takes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from eurekube_provider.core.condition_types import ConditionType
from eurekube_provider.core.objects import Object, conditions_of
from eurekube_provider.core.registry import Figures, Refused, Registry
from eurekube_provider.operator.conditions import Report
from eurekube_provider.operator.index import key_of
from eurekube_provider.operator.triggers.rows import rows
from eurekube_provider.operator.web.running_operator import RunningOperator
from eurekube_provider.version import __version__

MOST_STACK_REGISTRATIONS = MOST_STACK_REFRESHES = 50

Document = dict[str, Any]
"""What becomes JSON; ``docs/web.md`` lists its keys, to which a test holds it."""


def overview(operator: RunningOperator, syncer: str = "", application: str = "") -> Document:
    """Collect what is known now.

    :param syncer: ``namespace/name``: show this one only.
    :param application: in any case: show what concerns this one only.
    """
    wanted = application.upper()
    figures = {name: registry.figures(in_full=True) for name, registry in operator.registries.items()}
    problems = [loop.problem for loop in operator.liveness() if loop.problem]
    missing = operator.not_ready()
    syncers = [_syncer(operator, item) for item in operator.sources.syncers.objects()]

    def is_shown(of_syncer: str, of_application: str) -> bool:
        """Whether it was asked for; what is no syncer's is not shown with a single one."""
        return (not syncer or of_syncer == syncer) and (not wanted or of_application.upper() == wanted)

    shown = [row for row in syncers if is_shown(f"{row['namespace']}/{row['name']}", row["application"])]
    stacks = [row for row in _stacks(figures) if is_shown("", row["application"])]
    refreshes = rows(operator.triggers) if operator.triggers else []
    refreshes = [row for row in refreshes if is_shown("", row["application"])]
    settings = operator.settings
    return {
        "now": _stamp(time.time()),
        "filter": {"syncer": syncer, "application": application},
        "operator": {
            "name": settings.operator_name,
            "cluster": operator.cluster.name,
            "clusterUid": operator.cluster.uid,
            "replica": settings.pod_name,
            "role": {True: "leader", False: "standby", None: "single"}[operator.is_leader()],
            "version": __version__,
            "startedAt": _stamp(operator.started_at),
            "kubernetes": operator.kubernetes_url,
            "watchNamespaces": list(settings.watch_namespaces),
            "queueDepth": operator.queue.depth,
        },
        "health": {
            "live": not problems,
            "ready": not missing,
            "problems": [
                *problems,
                *missing,
                *(f"{kind} may be old: {error}" for kind, error in operator.sources.failures.items()),
            ],
        },
        "eurekas": [_eureka(name, one, figures[name]) for name, one in operator.registries.items()],
        "syncerCount": len(syncers),
        "syncers": sorted(shown, key=_worst_first),
        "stackRefreshCount": len(refreshes),
        "stackRefreshes": refreshes[:MOST_STACK_REFRESHES],
        "stackRegistrationCount": len(stacks),
        "stackRegistrations": stacks[:MOST_STACK_REGISTRATIONS],
        "changes": [
            {
                "at": _stamp(recent.at),
                "action": recent.action,
                "application": recent.application,
                "instanceId": recent.instance_id,
                "syncer": "/".join(recent.syncer),
                "why": recent.why,
            }
            for recent in operator.controller.history.recent()
            if is_shown("/".join(recent.syncer), recent.application)
        ],
    }


def _worst_first(row: Document) -> tuple[bool, bool, str, str]:
    """The order of the syncers: what callers may not find, then what differs, then all that is well."""
    return (row["ready"] is True, row["synced"] is True, row["namespace"], row["name"])


_NOT_LOOKED_AT = Report(
    is_ready=None,
    reason="NotLookedAt",
    message="the operator has not looked at it yet",
    is_synced=None,
    sync_reason="NotLookedAt",
)


def _syncer(operator: RunningOperator, item: Object) -> Document:
    """One row: our own last look, or what the object's status says where we have not looked (yet)."""
    key, spec = key_of(item), item.get("spec") or {}
    look = operator.controller.history.last.get(key)
    report = look.report if look else _reported(item)
    return {
        "namespace": key[0],
        "name": key[1],
        "mode": str(spec.get("mode", "")),
        "application": report.application or str((spec.get("selector") or {}).get("app", "")).upper(),
        "ready": report.is_ready,
        "reason": report.reason,
        "message": report.message,
        "synced": report.is_synced,
        "syncReason": report.sync_reason,
        "syncMessage": report.sync_message,
        "desired": report.desired,
        "registered": operator.registered(key),
        "refused": report.refused,
        "heldSince": None if look is None or look.held_since is None else _stamp(look.held_since),
        "lookedAt": _stamp(look.at) if look else None,
        "differing": look.differing if look else 0,
        "differences": [
            {
                "application": one.application,
                "instanceId": one.instance_id,
                "kubernetes": one.kubernetes,
                "eureka": one.eureka,
                "why": one.why,
            }
            for one in (look.differences if look else ())
        ],
    }


def _reported(item: Object) -> Report:
    """What another replica wrote into a syncer's status."""
    status, conditions = item.get("status") or {}, conditions_of(item)
    ready, synced = conditions.get(ConditionType.READY), conditions.get(ConditionType.SYNCED) or {}
    if ready is None:
        return _NOT_LOOKED_AT
    return Report(
        is_ready={"True": True, "False": False}.get(ready.get("status", "")),
        reason=str(ready.get("reason", "")),
        message=str(ready.get("message", "")),
        application=str(status.get("application") or ""),
        is_synced={"True": True, "False": False}.get(synced.get("status", "")),
        sync_reason=str(synced.get("reason", "")),
        sync_message=str(synced.get("message", "")),
        desired=int(status.get("desired", 0)),
        refused=int(status.get("refused", 0)),
    )


def _eureka(name: str, registry: Registry, figures: Figures) -> Document:
    condition = registry.condition()
    return {
        "name": name,
        "servers": [
            {
                "url": server.url,
                "up": server.is_up,
                "since": None if server.is_up is None else _stamp(server.since),
                "error": server.error,
                "startedAt": None if server.started_at is None else _stamp(server.started_at),
                "renewalsLastMinute": server.renewals_last_minute,
                "renewalsThreshold": server.renewals_threshold,
                "selfPreservation": server.is_endangered,
            }
            for server in figures.servers
        ],
        "readAt": None if figures.read_at is None else _stamp(figures.read_at),
        "error": "" if isinstance(condition, Refused) else str(condition.error or ""),
        "registered": figures.registered,
        "held": figures.held,
        "share": round(figures.share, 4),
        "warning": figures.warning,
        "renewalsLastMinute": round(figures.renewals_last_minute, 1),
        "renewalsExpected": figures.renewals_expected,
    }


def _stacks(figures: Mapping[str, Figures]) -> list[Document]:
    return [
        {
            "eureka": name,
            "application": instance.application,
            "instanceId": instance.instance_id,
            "status": str(instance.status),
            "address": f"{instance.ip_address}:{instance.port.number}",
            "owner": instance.owner or "",
        }
        for name, one in figures.items()
        for instance in one.for_stacks
    ]


def _stamp(seconds: float) -> str:
    """Unix time as RFC 3339, in UTC."""
    # Twice as fast as by a datetime, and there is one for each syncer.
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
