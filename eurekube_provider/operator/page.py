"""The status page: HTML and CSS in one answer, made from the same document as ``/status.json``.

Works without scripts, and may run none. Names come from the cluster and from Eureka, so that every text is
escaped where it becomes HTML: by :func:`tag`, which takes as it is only what it made itself.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from html import escape
from urllib.parse import urlencode

from eurekube_provider.operator.overview import (
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

_STYLE = """
:root{color-scheme:light dark;--fg:#1c2430;--dim:#5b6675;--bg:#f6f7f9;--card:#fff;--line:#dde2e8;--ok:#17683a;
--okbg:#dff3e6;--bad:#9b1c1c;--badbg:#fbe3e3;--mid:#7a4d00;--midbg:#fdf0d3;--link:#0b57a4}
@media(prefers-color-scheme:dark){:root{--fg:#e4e8ee;--dim:#9aa6b4;--bg:#14181d;--card:#1c2229;--line:#313a44;
--ok:#8fe0ab;--okbg:#123822;--bad:#ffb1ab;--badbg:#4a1717;--mid:#ffd98a;--midbg:#42310b;--link:#8cc2ff}}
*{box-sizing:border-box}
body{margin:0;font:15px/1.45 system-ui,sans-serif;color:var(--fg);background:var(--bg)}
main{max-width:1180px;margin:0 auto;padding:1rem}
h1{font-size:1.35rem;margin:0 0 .2rem;display:flex;flex-wrap:wrap;gap:.5rem;align-items:center}
h2{font-size:1.05rem;margin:1.6rem 0 .5rem}h3{font-size:.95rem;margin:1rem 0 .4rem;overflow-wrap:anywhere}
p{margin:.2rem 0}.dim{color:var(--dim)}a{color:var(--link)}
.mark{display:inline-block;padding:0 .5em;border-radius:1em;font-size:.8rem;font-weight:600;line-height:1.7;
white-space:nowrap;background:var(--line)}
.ok{color:var(--ok);background:var(--okbg)}.bad{color:var(--bad);background:var(--badbg)}
.mid{color:var(--mid);background:var(--midbg)}
.note{border-left:4px solid var(--bad);background:var(--badbg);color:var(--bad);padding:.5rem .8rem;
margin:.6rem 0;border-radius:4px;overflow-wrap:anywhere}.note.mid{border-color:var(--mid);
background:var(--midbg);color:var(--mid)}
.sheet{background:var(--card);border:1px solid var(--line);border-radius:8px;overflow-x:auto}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:top;padding:.4rem .7rem;border-bottom:1px solid var(--line)}
tr:last-child td{border-bottom:0}th{font-size:.8rem;color:var(--dim);font-weight:600;white-space:nowrap}
td.n{white-space:nowrap}td.w{overflow-wrap:anywhere}
form{display:flex;flex-wrap:wrap;gap:.5rem;align-items:end;margin:.5rem 0}
label{font-size:.8rem;color:var(--dim);display:grid;gap:.15rem}
input,button{font:inherit;color:inherit;background:var(--card);border:1px solid var(--line);border-radius:6px;
padding:.3rem .6rem;max-width:100%}
@media(max-width:700px){thead{display:none}table,tbody,tr,td{display:block}
tr{padding:.5rem .2rem;border-bottom:1px solid var(--line)}tr:last-child{border-bottom:0}
td{border:0;padding:.15rem .6rem;display:grid;grid-template-columns:7.5rem 1fr;gap:.5rem}
td:has(div:empty){display:none}td.n,td.w{white-space:normal;overflow-wrap:anywhere}
td::before{content:attr(data-label);color:var(--dim);font-size:.8rem}}
"""

_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'"
)
"""The page's ``Content-Security-Policy``: its own style, and nothing else."""


class Html(str):
    """A text that is HTML already."""

    __slots__ = ()


def tag(name: str, *children: str, **attributes: str | bool) -> Html:
    """An element; every text in it that is not :class:`Html` is escaped.

    :param attributes: ``class_`` for class, ``data_label`` for data-label; True stands without a value, False
        and the empty text are left out.
    """
    shown = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(str(value))}"')
        for key, value in attributes.items()
        if value is not False and value != ""
    )
    if name in ("input", "meta", "option"):
        return Html(f"<{name}{shown}>")
    return Html(f"<{name}{shown}>{joined(children)}</{name}>")


def joined(children: Iterable[str]) -> Html:
    """One after the other, escaped where they are not HTML yet."""
    return Html("".join(one if isinstance(one, Html) else escape(one) for one in children))


def without_data(sentence: str) -> str:
    """The page while there is nothing to show but one sentence."""
    body = joined([tag("h1", "Eurekube", _mark("not ready", "mid")), tag("p", sentence)])
    return _document("Eurekube", body, refreshes=True)


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
            _stacks(data),
            _changes(data),
        ]
    )
    return _document(f"Eurekube {operator['name']} on {operator['cluster']}", body, refreshes=refreshes)


def _document(title: str, body: Html, *, refreshes: bool) -> str:
    refresh = tag("meta", http_equiv="refresh", content=str(REFRESH_SECONDS)) if refreshes else Html()
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name_="viewport", content="width=device-width,initial-scale=1"),
        refresh,
        tag("title", title),
        tag("style", Html(_STYLE)),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, tag('body', tag('main', body)), lang='en')}\n"


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
                _mark("live" if health["live"] else "stuck", "ok" if health["live"] else "bad"),
                _mark("ready" if health["ready"] else "not ready", "ok" if health["ready"] else "bad"),
                _mark(role, kind),
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
        state = _mark("not asked yet", "")
    else:
        state = _mark("up", "ok") if row["up"] else _mark("away", "bad")
    renewals = (
        "not known"
        if row["renewalsLastMinute"] is None
        else f"{row['renewalsLastMinute']} in the last minute, threshold {row['renewalsThreshold']}"
    )
    endangered = {
        None: Html("not known"),
        True: _mark("on, or near", "mid"),
        False: _mark("off", "ok"),
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
                ("Syncer", "Mode", "Application", "Ready", "Eureka/Kubernetes", "What is wrong", "Looked at"),
                rows,
            ),
            tag("p", f"and {rest} more: use the filter", class_="dim") if rest else Html(),
        ]
    )


def _syncer(data: Overview, row: SyncerRow) -> list[str]:
    if row["ready"] is None:
        ready = _mark("not known", "")
    else:
        ready = _mark("ready", "ok") if row["ready"] else _mark(row["reason"], "bad")
    wrong = "" if row["ready"] else row["message"]
    if row["heldSince"]:
        wrong = joined([tag("p", "braked for ", _ago(data, row["heldSince"], suffix="")), wrong])
    refused = f", {row['refused']} refused" if row["refused"] else ""
    name = f"{row['namespace']}/{row['name']}"
    return [
        tag("a", name, href=f"?{urlencode({'syncer': name})}"),
        row["mode"],
        row["application"],
        ready,
        tag("span", f"{row['registered']}/{row['desired']}{refused}", title="in Eureka/in Kubernetes"),
        wrong,
        _ago(data, row["lookedAt"]),
    ]


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
        _mark(row["action"], kind),
        row["application"],
        row["instanceId"],
        row["syncer"],
        row["why"],
    ]


_NARROW = frozenset(
    {"State", "Since", "Started", "Mode", "Ready", "Eureka/Kubernetes", "Looked at", "When", "What"}
    | {"In Kubernetes", "In Eureka"}
)
_WIDE = frozenset({"Server", "Instance", "What is wrong", "Why", "Owner"})


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


def _mark(text: str, kind: str) -> Html:
    return tag("span", text, class_=f"mark {kind}".strip())


def _ago(data: Overview, stamp: str | None, suffix: str = " ago") -> Html:
    """How long ago something was, and on a closer look when."""
    if stamp is None:
        return Html("—")
    seconds = max(0.0, (datetime.fromisoformat(data["now"]) - datetime.fromisoformat(stamp)).total_seconds())
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return tag("time", f"{seconds // length:.0f} {unit}{suffix}", datetime=stamp, title=stamp)
    return tag("time", f"{seconds:.0f} s{suffix}", datetime=stamp, title=stamp)


def _url(data: Overview, path: str = "./", **more: str) -> str:
    """A link that keeps the filter."""
    query = {key: str(value) for key, value in data["filter"].items() if value} | more
    return f"{path}?{urlencode(query)}" if query else path
