"""The status page, made from the same document as ``/status.json`` by the template ``status.html``.

Names come from the cluster and from Eureka: Jinja2 escapes every text where it becomes HTML, and the page may
load nothing and run no script.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from eurekube_provider.comparison.discrepancy import MAX_NAMED_DIFFERENCES
from eurekube_provider.comparison.findings import MAX_NAMED_SUBJECTS, Severity
from eurekube_provider.comparison.reported_state import SyncState
from eurekube_provider.core.problem import Problem
from eurekube_provider.operator.web.overview import JsonObject

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

PAGE_REFRESH_SECONDS = 10
"""Seconds after which the browser loads the page again."""

MOST_SYNCERS_WITH_DIFFERENCES = 20
"""Most syncers whose differences the page lists; the others are counted."""

MOST_SHOWN_FINDINGS = 6
"""Most findings that are shown, the worst first; the others are counted."""

MOST_NAMED_INSTANCES = 5
"""Most instances that an entry names; the others are counted."""

_TEMPLATE_FOLDER = Path(__file__).parent / "templates"
_STYLE_SHEET = (_TEMPLATE_FOLDER / "style.css").read_text(encoding="utf-8")
_STYLE_SHEET_HASH = base64.b64encode(hashlib.sha256(_STYLE_SHEET.encode()).digest()).decode()
PAGE_SECURITY_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_SHEET_HASH}'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
"""The page's ``Content-Security-Policy``, which allows its own style sheet and nothing else."""


def _bar_width_percent(count: int, whole: int) -> int:
    """Return a bar's width in percent; any count above 0 is at least 3 wide, so that it can be seen."""
    return 0 if count <= 0 or whole <= 0 else max(3, round(100 * count / whole))


def _format_duration(seconds: float) -> str:
    """Return a duration in the largest unit that fits at least twice; 0 s for a negative one."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _parse_problem(message: str) -> Problem:
    return Problem.of({"message": message})


def _mark_up_code(text: str) -> Markup:
    from markupsafe import Markup, escape  # which comes with Jinja2

    parts = text.split("`")
    if len(parts) % 2 == 0:  # a command that does not end is text
        return escape("`".join(parts))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(parts)
    )


@cache
def _page_template() -> Template:
    """Return the page's template; Jinja2, which takes 3 MiB, is loaded only when somebody opens the page."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATE_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "bar": _bar_width_percent,
        "duration": _format_duration,
        "problem": _parse_problem,
        "with_code": _mark_up_code,
    }
    environment.globals |= {
        "style": _STYLE_SHEET,
        "refresh_seconds": PAGE_REFRESH_SECONDS,
        "most_differing_syncers": MOST_SYNCERS_WITH_DIFFERENCES,
        "most_subjects": MAX_NAMED_SUBJECTS,
        "most_of_a_group": MAX_NAMED_DIFFERENCES,
        "states": list(SyncState),
    }
    return environment.get_template("status.html")


def html_without_data(sentence: str) -> str:
    """Return the status page as HTML with one sentence, for an operator that has no data yet."""
    return _page_template().render(sentence=sentence, operator=None, refreshes=True)


def status_page_html(data: JsonObject, *, refreshes: bool = True) -> str:
    """Return the status page as HTML."""
    now = datetime.fromisoformat(data["now"])

    def seconds_until(stamp: str) -> float:
        return (datetime.fromisoformat(stamp) - now).total_seconds()

    def url(path: str = "./", **more: str) -> str:
        """Return a link that keeps the filter."""
        kept = {key: str(value) for key, value in data["filter"].items() if value}
        query = {key: value for key, value in (kept | more).items() if value}
        return f"{path}?{urlencode(query)}" if query else path

    every = [one for one in data["troubles"] if one["severity"] != Severity.NOTE]
    shown = every
    if data["filter"]["syncer"] or data["filter"]["application"]:
        names = {
            *map(_row_name, data["syncers"]),
            *(f"EurekaMirror {_row_name(row)}" for row in data["mirrors"]),
            *(f"StackRefresh {_row_name(row)}" for row in data["stackRefreshes"]),
        }
        messages = dict(map(_syncer_name_and_sentence, data["syncers"]))
        shown = [
            _with_shown_example(one, messages)
            for one in every
            if names.intersection(one["subjects"]) or not _concerns_custom_resources(one)
        ]
    return _page_template().render(
        **data,
        boxes=shown[:MOST_SHOWN_FINDINGS],
        other_troubles=len(every) - len(shown[:MOST_SHOWN_FINDINGS]),
        sentence="",
        refreshes=refreshes,
        seconds_until=seconds_until,
        url=url,
        groups={_row_name(row): _group_by_cause(row["differences"]) for row in data["syncers"]},
        reported_once=_names_explained_above(
            [
                *map(_syncer_name_and_sentence, data["syncers"]),
                *(
                    (f"EurekaMirror {_row_name(row)}", str(row["why"]).partition(": ")[2])
                    for row in data["mirrors"]
                ),
            ],
            {one["message"] for one in shown[:MOST_SHOWN_FINDINGS]},
        ),
        entries=timeline_entries(data["changes"]),
    )


def _row_name(row: JsonObject) -> str:
    return f"{row['namespace']}/{row['name']}"


def _with_shown_example(finding: JsonObject, messages: dict[str, str]) -> JsonObject:
    own = [one for one in finding["subjects"] if one in messages]
    if not own or not finding["message"].startswith("e.g. "):
        return finding
    rest = [one for one in finding["subjects"] if one not in messages]
    return {**finding, "subjects": [*own, *rest], "message": f"e.g. {own[0]}: {messages[own[0]]}"}


def _concerns_custom_resources(finding: JsonObject) -> bool:
    subjects = finding["subjects"]
    return bool(subjects) and all("/" in one and "://" not in one for one in subjects)


def _group_by_cause(differences: list[JsonObject]) -> list[tuple[str, list[JsonObject]]]:
    """Return the differences of a syncer by cause, the largest group first."""
    groups: dict[str, list[JsonObject]] = {}
    for one in differences:
        groups.setdefault(one["cause"] or one["why"], []).append(one)
    return sorted(groups.items(), key=lambda group: -len(group[1]))


def _syncer_name_and_sentence(row: JsonObject) -> tuple[str, str]:
    return _row_name(row), str(row["message"] if not row["ready"] else row["syncMessage"])


def _names_explained_above(sentences: Iterable[tuple[str, str]], boxes: set[str]) -> set[str]:
    """Return the names of syncers and mirrors whose sentence is already shown above their row."""
    seen = {_parse_problem(one).message for one in boxes}
    repeated = set()
    for name, sentence in sentences:
        message = _parse_problem(sentence).message
        if message in seen:
            repeated.add(name)
        seen.add(message)
    return repeated


def timeline_entries(changes: Iterable[JsonObject]) -> list[JsonObject]:
    """Return entries that join the changes made in the same second for one syncer, application and action.

    :param changes: newest first, as the document has them.
    """
    entries: dict[tuple[str, ...], JsonObject] = {}
    for one in changes:
        alike = {key: one[key] for key in ("at", "action", "syncer", "application")}
        # without the names of the instance
        why = "was not in Eureka" if one["action"] == "registered" else str(one["cause"])
        entry = entries.setdefault(tuple(alike.values()), {**alike, "instances": [], "more": 0, "why": why})
        if len(entry["instances"]) < MOST_NAMED_INSTANCES:
            entry["instances"].append(one["instanceId"])
        else:
            entry["more"] += 1
        if entry["why"] != why:
            entry["why"] = "for several reasons"
    return list(entries.values())
