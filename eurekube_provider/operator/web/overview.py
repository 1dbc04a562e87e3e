"""The status document: all that the operator knows, for ``/status.json`` and the status page.

The keys are stable. Nothing here asks a server anything, and no lock is held for longer than a copy takes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from eurekube_provider.comparison.comparing import (
    ALL_SERVICES_PLACEHOLDER,
    Comparison,
    InstanceCount,
    compare_without_kubernetes,
    count_instances,
    has_own_status_row,
)
from eurekube_provider.comparison.findings import (
    Severity,
    StatusFinding,
    build_finding,
    eureka_findings,
    headline,
    status_findings,
)
from eurekube_provider.comparison.managers import Manager, ManagerKind, manager_of
from eurekube_provider.comparison.pairs import pair_endpoints_with_instances
from eurekube_provider.comparison.reported_state import SyncState, reported_state_of_object
from eurekube_provider.comparison.seen_remedies import FindingName, ObservedReason, observed_problem
from eurekube_provider.core.identity import ClusterOwner
from eurekube_provider.core.model import Status
from eurekube_provider.core.objects import Object, is_ready, key_of, parse_api_time
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.registry import Figures, Misconfigured, Registry
from eurekube_provider.core.syncer import Mode, connection_name
from eurekube_provider.core.wording import format_count
from eurekube_provider.operator.conditions import SyncerReport
from eurekube_provider.operator.triggers.trigger_state import StackRefreshState
from eurekube_provider.operator.triggers.triggers import StackRefreshController
from eurekube_provider.operator.web.running_operator import RunningOperator
from eurekube_provider.runtime.clock import format_utc_time
from eurekube_provider.version import __version__

if TYPE_CHECKING:
    from eurekube_provider.comparison.mirror_state import MirrorState

MOST_STACK_REGISTRATIONS = MOST_STACK_REFRESHES = MOST_MIRRORS = 50
"""Most rows of each of these tables in the status document; the others are only counted."""

PAGE_SIZE = 50
"""Number of rows on a page."""

MOST_ENDPOINT_INSTANCE_PAIRS = 40
"""Most pairs that are shown of one syncer, those that disagree first; the others are counted."""

MOST_SHOWN_INSTANCES = 40
"""Most instances that are listed of an owner that is no syncer of this cluster."""

JsonObject = dict[str, Any]
"""A JSON object of the status document, of which ``docs/reference/web.md`` lists the keys."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A filter and a page; an empty text asks for everything.

    :ivar syncer: ``namespace/name`` of the only syncer to show.
    :ivar application: name, in any case, of the only application to show.
    :ivar state: state of the syncers to show, e.g. ``not ready``.
    :ivar find: a part of a syncer's or an application's name, in any case.
    :ivar page: from 1; None for all rows at once.
    """

    syncer: str = ""
    application: str = ""
    state: str = ""
    find: str = ""
    page: int | None = None

    @classmethod
    def from_query(cls, query: Mapping[str, str], *, is_paged: bool) -> PageRequest:
        """Parse a URL's parameters; an invalid one counts as absent.

        :param is_paged: True if the first page is meant where none is named.
        """
        state = query.get("state", "").strip()
        number = query.get("page", "").strip()
        page = int(number) if number.isascii() and number.isdigit() and len(number) < 7 else 0
        return cls(
            query.get("syncer", "").strip(),
            query.get("application", "").strip(),
            state if state in list(SyncState) else "",
            query.get("find", "").strip(),
            max(1, page) if page or is_paged else None,
        )

    def matches_names(self, syncer: str, application: str) -> bool:
        """Return whether the filter lets a syncer (empty for none) and an application through."""
        return (not self.syncer or syncer == self.syncer) and (
            not self.application or application.upper() == self.application.upper()
        )

    def matches_row(self, row: Mapping[str, Any]) -> bool:
        """Return whether the filter lets a syncer's row through."""
        name = f"{row['namespace']}/{row['name']}"
        if not self.matches_names(name, row["application"]):
            return False
        is_named = not self.find or self.find.lower() in f"{name} {row['application']}".lower()
        return is_named and (not self.state or row["state"] == self.state)

    def filter_to_dict(self) -> dict[str, str]:
        """Return the filter without the page number as plain JSON values."""
        return {name: getattr(self, name) for name in ("syncer", "application", "state", "find")}


UNFILTERED_REQUEST = PageRequest()


def build_status_document(
    operator: RunningOperator, page_request: PageRequest = UNFILTERED_REQUEST
) -> JsonObject:
    """Return the status document of the operator, with the rows that a request asks for."""
    now = time.time()
    figures = {name: registry.figures(in_full=True) for name, registry in operator.registries.items()}
    problems = [loop.problem_sentence for loop in operator.liveness() if loop.problem_sentence]
    missing = operator.not_ready_sentences()
    unread = [f"{kind} may be old: {error}" for kind, error in operator.sources.failures.items()]
    eurekas = [_eureka_row(name, one, figures[name]) for name, one in operator.registries.items()]
    items = {key_of(item): item for item in filter(has_own_status_row, operator.sources.syncers.objects())}
    every = {key: _syncer_comparison(operator, item) for key, item in items.items()}
    syncers = [_syncer_row(operator, items[key], every[key]) for key in items]
    listed = sorted(
        filter(page_request.matches_row, syncers),  # as `eurekube status` orders them
        key=lambda row: (SyncState(row["state"]).rank, row["application"], row["namespace"], row["name"]),
    )
    stacks = [
        row for row in _stack_registration_rows(figures) if page_request.matches_names("", row["application"])
    ]
    refreshes = refresh_row_dicts(operator.triggers) if operator.triggers else []
    refreshes = [row for row in refreshes if page_request.matches_names("", row["application"])]
    mirrors = _mirror_states(operator, now)
    shown_mirrors = [
        one
        for one in mirrors
        if not page_request.syncer
        and (not page_request.application or one.shows_application(page_request.application.upper()))
    ]
    findings = [
        *(build_finding(Severity.FAULT, FindingName.OPERATOR_STUCK, one) for one in problems),
        *(build_finding(Severity.FAULT, FindingName.OPERATOR_NOT_READY, one) for one in missing),
        *(build_finding(Severity.WARNING, FindingName.KUBERNETES_UNREAD, one) for one in unread),
        *(finding for one in eurekas for finding in _eureka_row_findings(one)),
        *_refresh_findings(refreshes),
    ]
    found = status_findings(sorted(every.values(), key=lambda one: one.sort_key), findings, mirrors)
    pages = max(1, -(-len(listed) // PAGE_SIZE))
    page = min(page_request.page, pages) if page_request.page else None
    shown = listed if page is None else listed[(page - 1) * PAGE_SIZE : page * PAGE_SIZE]
    for row in shown:
        _add_counts_to_row(operator, items[row["namespace"], row["name"]], row)
    settings = operator.settings
    return {
        "now": format_utc_time(now),
        "filter": page_request.filter_to_dict(),
        "headline": headline(list(every.values()), mirrors),
        "worst": str(found[0].severity) if found else None,
        "troubles": [finding.to_dict() for finding in found],
        "operator": {
            "name": settings.operator_name,
            "cluster": operator.cluster.name,
            "clusterUid": operator.cluster.uid,
            "replica": settings.pod_name,
            "role": {True: "leader", False: "standby", None: "single"}[operator.is_leader()],
            "version": __version__,
            "startedAt": format_utc_time(operator.started_at),
            "kubernetes": operator.kubernetes_url,
            "watchNamespaces": list(settings.watch_namespaces),
            "queueDepth": operator.queue.depth,
        },
        "health": {
            "live": not problems,
            "ready": not missing,
            "problems": [*problems, *missing, *unread],
        },
        "eurekas": eurekas,
        "syncerCount": len(syncers),
        "listedCount": len(listed),
        "page": page,
        "pages": pages,
        "syncers": shown,
        "application": _application_view(operator, page_request.application)
        if page_request.application
        else None,
        "mirrorCount": len(shown_mirrors),
        "mirrors": [one.to_dict() for one in shown_mirrors[:MOST_MIRRORS]],
        "stackRefreshCount": len(refreshes),
        "stackRefreshes": refreshes[:MOST_STACK_REFRESHES],
        "stackRegistrationCount": len(stacks),
        "stackRegistrations": stacks[:MOST_STACK_REGISTRATIONS],
        "changes": [
            {
                "at": format_utc_time(recent.at),
                "action": recent.action,
                "application": recent.application,
                "instanceId": recent.instance_id,
                "syncer": "/".join(recent.syncer),
                "why": recent.why,
                "cause": recent.cause,
            }
            for recent in operator.controller.history.recent_changes()
            if page_request.matches_names("/".join(recent.syncer), recent.application)
        ],
    }


def _application_view(operator: RunningOperator, application: str) -> JsonObject:
    """Return the endpoints and instances of an application's syncers, and the instances of other owners."""
    name = application.upper()
    kept_by = partial(manager_of, cluster=operator.cluster.name)
    keys = sorted(operator.sources.syncers_of(name))
    known = {
        eureka: registry.known_instances(application=name) for eureka, registry in operator.registries.items()
    }
    kept = [(one, kept_by(one)) for instances in known.values() for one in instances]
    syncers = []
    for key in keys:
        manager = Manager(ManagerKind.SYNCER, "/".join(key))
        pairs = pair_endpoints_with_instances(
            operator.sources.slices_of_syncer(key),
            [one for one, whose in kept if whose == manager],
            {one.ip_address: (one, str(whose)) for one, whose in kept if whose != manager},
        )
        shown = [one.to_dict() for one in pairs[:MOST_ENDPOINT_INSTANCE_PAIRS]]
        syncers.append({"syncer": manager.name, "pairs": shown, "more": len(pairs) - len(shown)})
    own = {(eureka, Manager(ManagerKind.SYNCER, "/".join(key))) for eureka in known for key in keys}
    others = sorted(compare_without_kubernetes(known, kept_by, own), key=lambda one: one.sort_key)
    beside = [
        {
            "keeper": str(one.manager),
            "eureka": one.eureka_name,
            "up": one.eureka.up if one.eureka else None,
            "total": one.eureka.total if one.eureka else None,
            "instances": [
                {"instanceId": each.instance_id, "status": str(each.status), "address": each.ip_address}
                for each in known[one.eureka_name]
                if kept_by(each) == one.manager
            ][:MOST_SHOWN_INSTANCES],
        }
        for one in others
    ]
    return {"name": name, "syncers": syncers, "others": beside}


def _mirror_states(operator: RunningOperator, now_seconds: float) -> list[MirrorState]:
    if operator.mirrors is None:
        return []
    # Only here: without mirrors none of it takes memory.
    from eurekube_provider.comparison.mirror_state import mirror_states

    return mirror_states(operator.mirrors.objects.mirrors.objects(), now_seconds)


def _add_counts_to_row(operator: RunningOperator, item: Object, row: JsonObject) -> None:
    """Put the counts of endpoints and instances into a syncer's row; called only for rows that are shown."""
    key = key_of(item)
    there = operator.instances_of(key)
    row["registeredUp"] = count_instances(there).up
    row["registered"] = len(there)
    endpoints = [one for each in operator.sources.slices_of_syncer(key) for one in each["endpoints"]]
    ready = sum(map(is_ready, endpoints))
    is_pod = row["mode"] == Mode.POD
    row["desiredUp"] = min(ready, row["desired"]) if is_pod else row["desired"] if ready else 0


def _syncer_comparison(operator: RunningOperator, item: Object) -> Comparison:
    """Return a syncer's comparison by this replica's last reconcile, or else by its status."""
    key = key_of(item)
    last = operator.controller.history.last.get(key)
    report = _current_report(operator, item)
    selector = (item.get("spec") or {}).get("selector") or {}
    named = str(selector.get("app") or selector.get("service") or "").upper()
    return Comparison(
        ALL_SERVICES_PLACEHOLDER if selector.get("services") else report.application or named,
        Manager(ManagerKind.SYNCER, "/".join(key)),
        report.state,
        connection_name(item),
        report.problem,
        InstanceCount(report.desired),
        None,
        (last.differing_count or 0) if last else 0,
        last.first_differences if last else (),
    )


def _syncer_row(operator: RunningOperator, item: Object, compared: Comparison) -> JsonObject:
    key, spec = key_of(item), item.get("spec") or {}
    last = operator.controller.history.last.get(key)
    report = _current_report(operator, item)
    return {
        "namespace": key[0],
        "name": key[1],
        "mode": str(spec.get("mode", "")),
        "application": compared.application,
        "state": str(compared.state),
        **report.to_dict(),
        "desired": report.desired,
        "desiredUp": None,
        "registered": report.registered,
        "registeredUp": None,
        "refused": report.refused,
        "heldSince": None
        if last is None or last.removals_held_since is None
        else format_utc_time(last.removals_held_since),
        "lookedAt": format_utc_time(last.ended_at) if last else None,
        "differing": compared.differing_count,
        "differences": [{**one.to_dict(), "cause": one.cause} for one in compared.differences],
    }


def _current_report(operator: RunningOperator, item: Object) -> SyncerReport:
    """Return a syncer's report by this replica's last reconcile or else by its status.

    While this replica may not write, no reconcile tells of instances that Eureka has lost since.
    """
    key = key_of(item)
    last = operator.controller.history.last.get(key)
    report = last.report if last else _report_from_status(item)
    if operator.is_leader() is not False:
        return report
    owner = str(ClusterOwner(operator.cluster.name, *key))
    lost = sum(len(one.instances_lost_by_registry(owner)) for one in operator.registries.values())
    if not lost:
        return report
    sentence = (
        f"Eureka has lost {format_count(lost)}, and this replica may not register them: it does not lead"
    )
    why = observed_problem(ObservedReason.DIFFERS, sentence)
    report = replace(report, is_synced=False, synced=why)
    is_up = any(one.status is Status.UP for one in operator.instances_of(key))
    return report if is_up else replace(report, is_ready=False, ready=why)


def _report_from_status(item: Object) -> SyncerReport:
    """Return the report that a syncer's status holds, written by another replica."""
    status, reported = item.get("status") or {}, reported_state_of_object(item)
    return SyncerReport(
        reported.is_ready,
        reported.ready,
        reported.is_synced,
        reported.synced,
        application=str(status.get("application") or ""),
        desired=int(status.get("desired", 0)),
        refused=int(status.get("refused", 0)),
    )


def _eureka_row(name: str, registry: Registry, figures: Figures) -> JsonObject:
    condition = registry.condition()
    return {
        "name": name,
        "servers": [
            {
                "url": server.url,
                "up": server.is_up,
                "since": None if server.is_up is None else format_utc_time(server.state_since_unix),
                "error": server.error,
                "startedAt": None if server.started_at is None else format_utc_time(server.started_at),
                "renewalsLastMinute": server.renewals_last_minute,
                "renewalsThreshold": server.renewals_threshold,
                "selfPreservation": server.is_in_or_near_self_preservation,
            }
            for server in figures.servers
        ],
        "readAt": None if figures.read_at is None else format_utc_time(figures.read_at),
        "error": "" if isinstance(condition, Misconfigured) else str(condition.error or ""),
        "registered": figures.registered,
        "held": figures.renewed_here,
        "share": round(figures.renewed_share, 4),
        "warning": figures.share_warning,
        "renewalsLastMinute": round(figures.renewals_last_minute, 1),
        "renewalsExpected": figures.expected_renewals_per_minute,
    }


def _stack_registration_rows(figures: Mapping[str, Figures]) -> list[JsonObject]:
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
        for instance in one.renewed_for_stacks
    ]


def _eureka_row_findings(row: JsonObject) -> list[StatusFinding]:
    servers = row["servers"]
    return eureka_findings(
        row["name"],
        error=row["error"],
        failed_servers=[(one["url"], one["error"]) for one in servers if one["up"] is False],
        endangered=[one["url"] for one in servers if one["selfPreservation"]],
        share_warning=row["warning"],
    )


def refresh_row_dicts(triggers: StackRefreshController) -> list[JsonObject]:
    """Return a row for each StackRefresh, those that are not ready first.

    The leader's rows show its own state; another replica's rows show the objects' statuses, without the next
    run, which only the leader knows.
    """
    states, due = triggers.states(), triggers.next_run_times()
    rows = [
        _refresh_row_dict(item, states.get(key) or StackRefreshState.from_object(item), due.get(key))
        for item in triggers.reflectors.objects()
        for key in [key_of(item)]
    ]
    return sorted(rows, key=lambda row: (row["ready"] is True, row["namespace"], row["name"]))


def _refresh_row_dict(item: Object, state: StackRefreshState, due: float | None) -> JsonObject:
    metadata, spec, run = item["metadata"], item.get("spec") or {}, state.last_run
    begun = parse_api_time(run.get("startTime"))
    return {
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "application": str((spec.get("selector") or {}).get("app") or "").upper(),
        "action": str(spec.get("action", "")),
        "target": str(spec.get("target", "")),
        "paused": bool(spec.get("paused")),
        "ready": state.is_ready,
        "reason": state.ready.reason,
        "message": state.ready.text,
        "synced": state.is_synced,
        "syncReason": state.synced.reason,
        "syncMessage": state.synced.text,
        "addresses": state.address_count,
        "failures": state.consecutive_failures,
        "outcome": str(run.get("outcome") or ""),
        "lastRunAt": None if begun is None else format_utc_time(begun.timestamp()),
        "nextRunAt": None if due is None else format_utc_time(due),
    }


def _refresh_findings(rows: Iterable[JsonObject]) -> list[StatusFinding]:
    """Return a finding for each reason for which StackRefreshes are refused or their last run failed."""
    by_reason: dict[str, list[JsonObject]] = {}
    for row in rows:
        if row["ready"] is False:
            by_reason.setdefault(row["reason"], []).append(row)
    return [
        StatusFinding(
            Severity.WARNING,
            Problem.of(those[0]),
            tuple(f"StackRefresh {one['namespace']}/{one['name']}" for one in those),
        )
        for those in by_reason.values()
    ]
