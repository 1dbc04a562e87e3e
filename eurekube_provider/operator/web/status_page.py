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

from eurekube_provider.comparison.discrepancy import MOST_OF_A_GROUP
from eurekube_provider.comparison.findings import MOST_SUBJECTS, Severity
from eurekube_provider.comparison.reported_state import SyncState
from eurekube_provider.core.problem import Problem
from eurekube_provider.operator.web.overview import Document
from eurekube_provider.operator.web.timeline import timeline

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

REFRESH_SECONDS = 10
MOST_SYNCERS_WITH_DIFFERENCES = 20

MOST_FINDINGS = 6
"""Most findings that are shown, the worst first; the others are counted."""

_FOLDER = Path(__file__).parent / "templates"
_STYLE = (_FOLDER / "style.css").read_text(encoding="utf-8")
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'"
)
"""The page's ``Content-Security-Policy``, which allows its own style sheet and nothing else."""


def _bar(count: int, whole: int) -> int:
    """Return a bar's width in percent of ``whole``; any count above 0 is at least 3 wide, so that it can
    be seen.
    """
    return 0 if count <= 0 or whole <= 0 else max(3, round(100 * count / whole))


def _duration(seconds: float) -> str:
    """Return a duration in the largest unit that fits at least twice; 0 s for a negative one."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _problem(message: str) -> Problem:
    """Return a message of the document without its remedy, which the boxes above the rows show."""
    return Problem.of({"message": message})


def _with_code(text: str) -> Markup:
    """Return a text as HTML, in which the parts between backquotes are code."""
    from markupsafe import Markup, escape  # which comes with Jinja2

    parts = text.split("`")
    if len(parts) % 2 == 0:  # a command that does not end is text
        return escape("`".join(parts))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(parts)
    )


@cache
def _page() -> Template:
    """Return the page's template; Jinja2, which takes 3 MiB, is loaded only when somebody opens the page."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"bar": _bar, "duration": _duration, "problem": _problem, "with_code": _with_code}
    environment.globals |= {
        "style": _STYLE,
        "refresh_seconds": REFRESH_SECONDS,
        "most_differing_syncers": MOST_SYNCERS_WITH_DIFFERENCES,
        "most_subjects": MOST_SUBJECTS,
        "most_of_a_group": MOST_OF_A_GROUP,
        "states": list(SyncState),
    }
    return environment.get_template("status.html")


def without_data(sentence: str) -> str:
    """Return the page with one sentence, while there is no data to show."""
    return _page().render(sentence=sentence, operator=None, refreshes=True)


def html(data: Document, *, refreshes: bool = True) -> str:
    """Return the whole page as HTML.

    :param refreshes: True if the browser reloads the page by itself, every :data:`REFRESH_SECONDS`.
    """
    now = datetime.fromisoformat(data["now"])

    def ahead(stamp: str) -> float:
        """Return the seconds from now until a time."""
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
            *map(_name, data["syncers"]),
            *(f"EurekaMirror {_name(row)}" for row in data["mirrors"]),
            *(f"StackRefresh {_name(row)}" for row in data["stackRefreshes"]),
        }
        shown = [one for one in every if names.intersection(one["subjects"]) or not _is_of_objects(one)]
        shown = [_by_an_example(one, dict(map(_sentence, data["syncers"]))) for one in shown]
    return _page().render(
        **data,
        boxes=shown[:MOST_FINDINGS],
        other_troubles=len(every) - len(shown[:MOST_FINDINGS]),
        sentence="",
        refreshes=refreshes,
        ahead=ahead,
        url=url,
        groups={_name(row): _grouped(row["differences"]) for row in data["syncers"]},
        reported_once=_reported_once(
            [*map(_sentence, data["syncers"]), *map(_sentence_of_mirror, data["mirrors"])],
            {one["message"] for one in shown[:MOST_FINDINGS]},
        ),
        entries=timeline(data["changes"]),
    )


def _name(row: Document) -> str:
    return f"{row['namespace']}/{row['name']}"


def _by_an_example(finding: Document, messages: dict[str, str]) -> Document:
    """Return a finding whose example is a syncer that the filtered page shows."""
    own = [one for one in finding["subjects"] if one in messages]
    if not own or not finding["message"].startswith("e.g. "):
        return finding
    rest = [one for one in finding["subjects"] if one not in messages]
    return {**finding, "subjects": [*own, *rest], "message": f"e.g. {own[0]}: {messages[own[0]]}"}


def _is_of_objects(finding: Document) -> bool:
    """Return whether a finding concerns syncers, mirrors or StackRefreshes, and no server."""
    subjects = finding["subjects"]
    return bool(subjects) and all("/" in one and "://" not in one for one in subjects)


def _grouped(differences: list[Document]) -> list[tuple[str, list[Document]]]:
    """Return the differences of a syncer by cause, the largest group first."""
    groups: dict[str, list[Document]] = {}
    for one in differences:
        groups.setdefault(one["cause"] or one["why"], []).append(one)
    return sorted(groups.items(), key=lambda group: -len(group[1]))


def _sentence(row: Document) -> tuple[str, str]:
    """Return a syncer's name, and the sentence on what is wrong with it."""
    return _name(row), str(row["message"] if not row["ready"] else row["syncMessage"])


def _sentence_of_mirror(row: Document) -> tuple[str, str]:
    """Return a mirror's name, and the sentence on what is wrong with it."""
    return f"EurekaMirror {_name(row)}", str(row["why"]).partition(": ")[2]


def _reported_once(sentences: Iterable[tuple[str, str]], boxes: set[str]) -> set[str]:
    """Return the names whose sentence already stands above them: their rows show the reason alone.

    :param sentences: the sentences, each with the name of a syncer or mirror.
    :param boxes: the sentences of the boxes above the table.
    """
    seen = {_problem(one).message for one in boxes}
    repeated = set()
    for name, sentence in sentences:
        message = _problem(sentence).message
        if message in seen:
            repeated.add(name)
        seen.add(message)
    return repeated
