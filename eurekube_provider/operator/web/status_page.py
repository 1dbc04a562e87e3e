"""The status page, made from the same document as ``/status.json``; of what, says ``markup``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from urllib.parse import urlencode

from eurekube_provider.operator.triggers.rows import RefreshRow
from eurekube_provider.operator.web.markup import Html, document, joined, mark, tag
from eurekube_provider.operator.web.overview import (
    ChangeRow,
    EurekaRow,
    Overview,
    ServerRow,
    StackRow,
    SyncerRow,
)

REFRESH_SECONDS = 10
MOST_SYNCERS = 200
"""As many rows are shown; the others are found with the filter."""

MOST_SYNCERS_WITH_DIFFERENCES = 20


def without_data(sentence: str) -> str:
    """The page while there is nothing to show but one sentence."""
    body = joined([tag("h1", "Eurekube", mark("not ready", "mid")), tag("p", sentence)])
    return document("Eurekube", body, REFRESH_SECONDS)


def html(data: Overview, *, refreshes: bool = True) -> str:
    """The whole page.

    :param refreshes: whether the browser asks again by itself, every :data:`REFRESH_SECONDS`.
    """
    operator = data["operator"]
    body = joined(
        [
            _head(data, refreshes=refreshes),
            *(_eureka(data, one) for one in data["eurekas"]),
            _syncers(data, refreshes=refreshes),
            _differences(data),
            _refreshes(data),
            _stacks(data),
            _changes(data),
        ]
    )
    title = f"Eurekube {operator['name']} on {operator['cluster']}"
    return document(title, body, REFRESH_SECONDS if refreshes else None)


def _head(data: Overview, *, refreshes: bool) -> Html:
    operator, health = data["operator"], data["health"]
    kind = {"leader": "ok", "standby": "mid"}.get(operator["role"], "")
    role = {"single": "no election"}.get(operator["role"], operator["role"])
    where = ", ".join(operator["watchNamespaces"]) or "all namespaces"
    link = (
        tag("a", "stop refreshing", href=_url(data, refresh="off"))
        if refreshes
        else tag("a", f"refresh every {REFRESH_SECONDS} s", href=_url(data))
    )
    return joined(
        [
            tag(
                "h1",
                f"Eurekube operator {operator['name']}",
                mark("live" if health["live"] else "stuck", "ok" if health["live"] else "bad"),
                mark("ready" if health["ready"] else "not ready", "ok" if health["ready"] else "bad"),
                mark(role, kind),
            ),
            tag(
                "p",
                f"cluster {operator['cluster']} · replica {operator['replica']} · version"
                f" {operator['version']} · runs for ",
                _ago(data, operator["startedAt"], suffix=""),
                f" · {where} of {operator['kubernetes']} · {operator['queueDepth']} in the queue",
                class_="dim",
            ),
            tag(
                "p",
                f"As of {data['now']} · ",
                link,
                " · ",
                tag("a", "as JSON", href=_url(data, "status.json")),
            ),
            *(tag("p", problem, class_="note") for problem in health["problems"]),
        ]
    )


def _eureka(data: Overview, one: EurekaRow) -> Html:
    rows = [_server(data, server) for server in one["servers"]]
    notes = []
    if one["error"]:
        notes.append(tag("p", f"Eureka cannot be read: {one['error']}", class_="note"))
    if one["warning"]:
        notes.append(tag("p", one["warning"], class_="note mid"))
    read = joined(["read ", _ago(data, one["readAt"])]) if one["readAt"] else Html("not read yet")
    return joined(
        [
            tag("h2", f"Eureka {one['name']}"),
            tag(
                "p",
                f"{one['held']} of {one['registered']} instances are renewed here ({one['share']:.0%}) ·"
                f" renewals in the last minute: {one['renewalsLastMinute']:g}, expected:"
                f" {one['renewalsExpected']} · ",
                read,
            ),
            *notes,
            _table(("Server", "State", "Since", "Started", "Renewals", "Self-preservation"), rows),
        ]
    )


def _server(data: Overview, row: ServerRow) -> list[str]:
    if row["up"] is None:
        state = mark("not asked yet", "")
    else:
        state = mark("up", "ok") if row["up"] else mark("away", "bad")
    renewals = (
        "not known"
        if row["renewalsLastMinute"] is None
        else f"{row['renewalsLastMinute']} in the last minute, threshold {row['renewalsThreshold']}"
    )
    endangered = {
        None: Html("not known"),
        True: mark("on, or near", "mid"),
        False: mark("off", "ok"),
    }[row["selfPreservation"]]
    server = joined([row["url"], tag("p", row["error"], class_="dim")]) if row["error"] else row["url"]
    return [
        server,
        state,
        _ago(data, row["since"]),
        _ago(data, row["startedAt"]),
        renewals,
        endangered,
    ]


def _syncers(data: Overview, *, refreshes: bool) -> Html:
    shown = data["syncers"][:MOST_SYNCERS]
    rest = len(data["syncers"]) - len(shown)
    total = data["syncerCount"]
    count = str(total) if len(data["syncers"]) == total else f"{len(data['syncers'])} of {total}"
    rows = [_syncer(data, row) for row in shown]
    return joined(
        [
            tag("h2", f"Syncers ({count})"),
            _form(data, refreshes=refreshes),
            _table(
                (
                    "Syncer",
                    "Mode",
                    "Application",
                    "Ready",
                    "Synced",
                    "Eureka/Kubernetes",
                    "What is wrong",
                    "Looked at",
                ),
                rows,
            ),
            tag("p", f"and {rest} more: use the filter", class_="dim") if rest else Html(),
        ]
    )


def _syncer(data: Overview, row: SyncerRow) -> list[str]:
    ready, synced = _ready_and_synced(row)
    wrong = row["message"] if not row["ready"] else "" if row["synced"] else row["syncMessage"]
    if row["heldSince"]:
        wrong = joined([tag("p", "braked for ", _ago(data, row["heldSince"], suffix="")), wrong])
    refused = f", {row['refused']} refused" if row["refused"] else ""
    name = f"{row['namespace']}/{row['name']}"
    return [
        tag("a", name, href=f"?{urlencode({'syncer': name})}"),
        row["mode"],
        row["application"],
        ready,
        synced,
        tag("span", f"{row['registered']}/{row['desired']}{refused}", title="in Eureka/in Kubernetes"),
        wrong,
        _ago(data, row["lookedAt"]),
    ]


def _ready_and_synced(row: SyncerRow | RefreshRow) -> tuple[Html, Html]:
    """The two conditions, by their reasons where they do not hold."""
    if row["ready"] is None:
        ready = mark("not known", "")
    else:
        ready = mark("ready", "ok") if row["ready"] else mark(row["reason"], "bad")
    return ready, mark("synced", "ok") if row["synced"] else mark(row["syncReason"], "mid")


def _form(data: Overview, *, refreshes: bool) -> Html:
    names = [f"{row['namespace']}/{row['name']}" for row in data["syncers"][:MOST_SYNCERS]]
    applications = sorted({row["application"] for row in data["syncers"][:MOST_SYNCERS]})
    chosen = data["filter"]
    is_filtered = chosen["syncer"] or chosen["application"]
    return tag(
        "form",
        tag(
            "label",
            "Syncer",
            tag("input", name_="syncer", list_="s", value=chosen["syncer"], placeholder="namespace/name"),
        ),
        tag(
            "label", "Application", tag("input", name_="application", list_="a", value=chosen["application"])
        ),
        Html() if refreshes else tag("input", type_="hidden", name_="refresh", value="off"),
        tag("datalist", *(tag("option", value=one) for one in names), id_="s"),
        tag("datalist", *(tag("option", value=one) for one in applications), id_="a"),
        tag("button", "Filter"),
        tag("a", "show all", href="./" if refreshes else "./?refresh=off") if is_filtered else Html(),
        method="get",
    )


def _differences(data: Overview) -> Html:
    differing = [row for row in data["syncers"] if row["differing"]]
    if not differing:
        return Html()
    parts = [tag("h2", "What differs, and why")]
    for row in differing[:MOST_SYNCERS_WITH_DIFFERENCES]:
        rows = [
            [one["instanceId"], one["kubernetes"] or "—", one["eureka"] or "—", one["why"]]
            for one in row["differences"]
        ]
        rest = row["differing"] - len(rows)
        parts += [
            tag("h3", f"{row['namespace']}/{row['name']} · {row['application']}"),
            _table(("Instance", "In Kubernetes", "In Eureka", "Why"), rows),
            tag("p", f"and {rest} more", class_="dim") if rest else Html(),
        ]
    left = len(differing) - MOST_SYNCERS_WITH_DIFFERENCES
    if left > 0:
        parts.append(tag("p", f"and {left} more syncers: use the filter", class_="dim"))
    return joined(parts)


def _refreshes(data: Overview) -> Html:
    rows = [_refresh(data, row) for row in data["stackRefreshes"]]
    if not rows:
        return Html()
    rest = data["stackRefreshCount"] - len(rows)
    return joined(
        [
            tag("h2", f"Stack refreshes ({data['stackRefreshCount']})"),
            _table(
                ("Stack refresh", "Action", "Target", "Ready", "Synced", "Last run", "Next run", "Message"),
                rows,
            ),
            tag("p", f"and {rest} more", class_="dim") if rest else Html(),
        ]
    )


def _refresh(data: Overview, row: RefreshRow) -> list[str]:
    ready, synced = _ready_and_synced(row)
    if row["paused"]:
        ready = joined([ready, " ", mark("paused", "mid")])
    last = joined([row["outcome"], " ", _ago(data, row["lastRunAt"])]) if row["outcome"] else "—"
    failures = f"{row['failures']} failed in a row: " if row["failures"] > 1 else ""
    return [
        f"{row['namespace']}/{row['name']}",
        row["action"],
        row["target"],
        ready,
        synced,
        last,
        _until(data, row["nextRunAt"]),
        failures + row["message"],
    ]


def _stacks(data: Overview) -> Html:
    rows = [_stack(row) for row in data["stackRegistrations"]]
    if not rows:
        return Html()
    rest = data["stackRegistrationCount"] - len(rows)
    return joined(
        [
            tag("h2", f"Renewed for stacks ({data['stackRegistrationCount']})"),
            _table(("Application", "Instance", "Status", "Address", "Owner"), rows),
            tag("p", f"and {rest} more", class_="dim") if rest else Html(),
        ]
    )


def _stack(row: StackRow) -> list[str]:
    return [row["application"], row["instanceId"], row["status"], row["address"], row["owner"]]


def _changes(data: Overview) -> Html:
    rows = [_change(data, row) for row in data["changes"]]
    if not rows:
        return joined([tag("h2", "Recent changes"), tag("p", "none since the start", class_="dim")])
    return joined(
        [
            tag("h2", f"Recent changes (the last {len(rows)})"),
            _table(("When", "What", "Application", "Instance", "Syncer", "Why"), rows),
        ]
    )


def _change(data: Overview, row: ChangeRow) -> list[str]:
    kind = {"registered": "ok", "refused": "bad", "deregistered": "mid"}.get(row["action"], "")
    return [
        _ago(data, row["at"]),
        mark(row["action"], kind),
        row["application"],
        row["instanceId"],
        row["syncer"],
        row["why"],
    ]


_NARROW = frozenset(
    {"State", "Since", "Started", "Mode", "Ready", "Eureka/Kubernetes", "Looked at", "When", "What"}
    | {"In Kubernetes", "In Eureka", "Action", "Synced", "Last run", "Next run"}
)
_WIDE = frozenset({"Server", "Instance", "What is wrong", "Why", "Owner", "Stack refresh", "Message"})


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Html:
    """Rows of texts below their headings; on a narrow screen each cell names its heading itself."""
    lines = [
        tag(
            "tr",
            *(
                tag(
                    "td",
                    tag("div", cell),
                    class_="n" if heading in _NARROW else "w" if heading in _WIDE else "",
                    data_label=heading,
                )
                for heading, cell in zip(headings, row, strict=True)
            ),
        )
        for row in rows
    ]
    head = tag("thead", tag("tr", *(tag("th", heading) for heading in headings)))
    return tag("div", tag("table", head, tag("tbody", *lines)), class_="sheet")


def _ago(data: Overview, stamp: str | None, suffix: str = " ago") -> Html:
    """How long ago something was, and on a closer look when."""
    if stamp is None:
        return Html("—")
    return tag("time", _long(-_ahead(data, stamp)) + suffix, datetime=stamp, title=stamp)


def _until(data: Overview, stamp: str | None) -> Html:
    """In what time something is due, and on a closer look when."""
    if stamp is None:
        return Html("—")
    seconds = _ahead(data, stamp)
    return tag("time", f"in {_long(seconds)}" if seconds > 0 else "due", datetime=stamp, title=stamp)


def _ahead(data: Overview, stamp: str) -> float:
    return (datetime.fromisoformat(stamp) - datetime.fromisoformat(data["now"])).total_seconds()


def _long(seconds: float) -> str:
    """How long it is, in the largest unit of which there are two; 0 s for less than nothing."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _url(data: Overview, path: str = "./", **more: str) -> str:
    """A link that keeps the filter."""
    query = {key: str(value) for key, value in data["filter"].items() if value} | more
    return f"{path}?{urlencode(query)}" if query else path
