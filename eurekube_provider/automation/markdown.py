"""A summary as Markdown for a pull request's comment: a short table, and details folded away. Texts from a
program or from Eureka are in code spans, so that a forge reads no markup, mention or link.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

from eurekube_provider.automation.summary import (
    ApplicationChange,
    ChangeKind,
    DiscoveryChange,
    DiscoverySummary,
    WarningConcern,
)
from eurekube_provider.core.quoting import printable
from eurekube_provider.core.wording import format_count

MAX_COMMENT_CHARACTERS = 60_000
"""The greatest number of characters of a comment. GitHub refuses a comment of more than 65,536."""

MAX_LISTED_CHANGES = 25
"""The greatest number of changes that are listed for each application, and of items in a section."""

MAX_QUOTED_TEXT_CHARACTERS = 300
"""The greatest number of characters of one text from a program or from Eureka."""

_NON_NAME_CHARACTERS = re.compile(r"[^\w./-]")
"""Matches each character that no name of a project or stack has."""

VERB_BY_KIND = {
    ChangeKind.REGISTERS: "register",
    ChangeKind.LEAVES: "leave",
    ChangeKind.MOVES: "move",
    ChangeKind.CHANGES: "change",
}
_DRIFT_PHRASE_BY_KIND = {
    ChangeKind.REGISTERS: "is there, though the stack does not know it",
    ChangeKind.LEAVES: "is gone",
    ChangeKind.MOVES: "is registered elsewhere",
    ChangeKind.CHANGES: "was changed",
}
_SYNCER_PHRASE_BY_KIND = {
    ChangeKind.REGISTERS: "comes: the endpoints that it selects register",
    ChangeKind.LEAVES: "goes: its instances leave first",
    ChangeKind.CHANGES: "changes",
}


def comment_marker(summary: DiscoverySummary) -> str:
    """Return the first line of a stack's comment, by which the next run finds it again."""
    return (
        f"<!-- eurekube summary of {_NON_NAME_CHARACTERS.sub('-', f'{summary.project}/{summary.stack}')} -->"
    )


def format_comment(summary: DiscoverySummary) -> str:
    """Return the effect of an update on discovery, as a comment for a pull request."""
    return _fit_comment(summary, "Discovery", _headline(summary), is_drift=False)


def format_drift_report(summary: DiscoverySummary) -> str:
    """Return a report of changes that were made without the stack."""
    count = sum(len(each.changes) for each in summary.applications) + len(summary.syncers)
    differences = format_count(count, "difference", grouped=True)
    said = f"**{differences}** between the stack and what is there." if count else ""
    return _fit_comment(summary, "Drift", said or _no_drift_headline(summary), is_drift=True)


def _no_drift_headline(summary: DiscoverySummary) -> str:
    """Return the headline of a report in which no registration and no syncer differs."""
    if summary.has_failed:
        return ""
    if _has_unknown_changes(summary):
        return "There is a difference between the stack and what is there, see the warnings."
    if summary.other_changes:
        return "No registration and no syncer was changed behind the stack's back; other resources were."
    return "Nothing was changed behind the stack's back."


def code_span(text: str) -> str:
    """Return a code span that shows ``text``, whatever characters it has."""
    return f"`{_as_one_line(text).replace('`', chr(39)).replace('|', '¦') or ' '}`"


def _as_one_line(text: str) -> str:
    """Return a text as one line of limited length."""
    line = " ".join(printable(text).split())
    return line if len(line) <= MAX_QUOTED_TEXT_CHARACTERS else f"{line[:MAX_QUOTED_TEXT_CHARACTERS]}…"


def _fit_comment(summary: DiscoverySummary, title: str, headline: str, *, is_drift: bool) -> str:
    for max_listed in (MAX_LISTED_CHANGES, 5, 0):
        text = _join_until_too_long(_comment_lines(summary, title, headline, max_listed, is_drift=is_drift))
        if len(text) <= MAX_COMMENT_CHARACTERS:
            return text
    # Cut at a line's end, and outside of folded details: a code span that is cut open would become markup.
    whole = text[: text.rindex("\n", 0, MAX_COMMENT_CHARACTERS)]
    if whole.count("<details>") > whole.count("</details>"):
        whole = whole[: whole.rindex("<details>")]
    return f"{whole}\n\n…\n"


def _join_until_too_long(lines: Iterable[str]) -> str:
    taken, length = [], 0
    for line in lines:
        taken.append(line)
        length += len(line) + 1
        if length > MAX_COMMENT_CHARACTERS + 1:
            break
    return "\n".join(taken)


def _comment_lines(
    summary: DiscoverySummary, title: str, headline: str, max_listed: int, *, is_drift: bool
) -> Iterable[str]:
    yield comment_marker(summary)
    yield f"### {title} of {code_span(f'{summary.project}/{summary.stack}')}"
    yield ""
    if summary.has_failed:
        yield "**The preview failed**, so that something may be missing below.\n"
    if headline:
        yield headline
    yield from _table_lines(summary, is_drift=is_drift)
    yield from _section_lines(
        "Refused", (f"{code_span(each.name)}: {code_span(each.reason)}" for each in summary.refused)
    )
    warnings = (
        f"**{each.concern}** {code_span(each.about)}: {code_span(each.text)}" for each in summary.warnings
    )
    yield from _section_lines("Warnings", warnings)
    words = _DRIFT_PHRASE_BY_KIND if is_drift else _SYNCER_PHRASE_BY_KIND
    syncers = (
        f"{code_span(each.name)} {words[each.kind]}{_format_details(each)}" for each in summary.syncers
    )
    yield from _section_lines("Syncers", syncers)
    for each in summary.applications:
        yield from _application_detail_lines(each, max_listed, is_drift=is_drift)
    if summary.other_changes:
        others = (
            f"{count} {_NON_NAME_CHARACTERS.sub('', name)}" for name, count in summary.other_changes.items()
        )
        yield f"\nOther resources: {', '.join(others)}."
    yield ""


def _headline(summary: DiscoverySummary) -> str:
    if not summary.applications and not summary.syncers:
        return (
            "Nothing changes in Eureka." if not (summary.has_failed or _has_unknown_changes(summary)) else ""
        )
    parts: list[str] = []
    for kind, verb in VERB_BY_KIND.items():
        if count := sum(len(each.changes_of_kind(kind)) for each in summary.applications):
            what = f"{count:,}" if parts else format_count(count, grouped=True)
            parts.append(f"{what} {verb}{'s' if count == 1 else ''}")
    if summary.syncers:
        verb = "changes" if len(summary.syncers) == 1 else "change"
        parts.append(f"{format_count(len(summary.syncers), 'syncer', grouped=True)} {verb}")
    applications = format_count(len(summary.applications), "application", grouped=True)
    return f"**{', '.join(parts)}**" + (f" in {applications}." if summary.applications else ".")


def _has_unknown_changes(summary: DiscoverySummary) -> bool:
    """Return whether a warning says that more may change than the summary reports."""
    return any(each.concern is WarningConcern.UNKNOWN for each in summary.warnings)


def _table_lines(summary: DiscoverySummary, *, is_drift: bool) -> Iterable[str]:
    if not summary.applications:
        return
    several = len({each.service_url for each in summary.applications}) > 1
    titles = "unknown | gone | elsewhere | changed" if is_drift else " | ".join(VERB_BY_KIND)
    yield f"\n| application | {titles} | instances |"
    yield "|---|--:|--:|--:|--:|--:|"
    for each in summary.applications:
        name = code_span(each.application) + (f" at {code_span(each.service_url)}" if several else "")
        counts = " | ".join(str(len(each.changes_of_kind(kind)) or "") for kind in VERB_BY_KIND)
        total = (
            f"{each.before:,} → {each.after:,}" if each.before is not None and each.after is not None else ""
        )
        yield f"| {name} | {counts} | {total} |"


def _section_lines(title: str, items: Iterable[str]) -> Iterable[str]:
    rest = list(items)
    if not rest:
        return
    yield f"\n**{title}**\n"
    yield from (f"- {item}" for item in rest[:MAX_LISTED_CHANGES])
    if len(rest) > MAX_LISTED_CHANGES:
        yield f"- and {len(rest) - MAX_LISTED_CHANGES:,} more"


def _application_detail_lines(
    application: ApplicationChange, max_listed: int, *, is_drift: bool
) -> Iterable[str]:
    said = "what was found" if is_drift else "what happens to each instance"
    name = escape(_as_one_line(application.application))
    yield f"\n<details><summary><code>{name}</code>: {said}</summary>\n"
    for kind in VERB_BY_KIND:
        changes = application.changes_of_kind(kind)
        alike: dict[str, list[DiscoveryChange]] = {}
        for change in changes:
            alike.setdefault(_format_details(change) + _format_drain(change), []).append(change)
        groups = [each for each in alike.values() if len(each) > MAX_LISTED_CHANGES]
        for each in groups:
            names = ", ".join(code_span(change.name) for change in each[: min(max_listed, 5)])
            done = _verb_phrase(kind, each[0], is_drift=is_drift)
            yield f"- {len(each):,} {done}{_format_details(each[0])}: {names} …"
        singles = [change for change in changes if not any(change in each for each in groups)]
        for change in singles[:max_listed]:
            at = f" at {code_span(change.address)}" if change.address else ""
            verb = _DRIFT_PHRASE_BY_KIND[kind] if is_drift else f"{kind}"
            yield f"- {code_span(change.name)} {verb}{at}{_format_drain(change)}{_format_details(change)}"
        if len(singles) > max_listed:
            verb = _verb_phrase(kind, singles[0], is_drift=is_drift)
            yield f"- and {len(singles) - max_listed:,} more {verb}"
    yield "\n</details>"


def _verb_phrase(kind: ChangeKind, example: DiscoveryChange, *, is_drift: bool) -> str:
    return _DRIFT_PHRASE_BY_KIND[kind] if is_drift else f"{VERB_BY_KIND[kind]}{_format_drain(example)}"


def _format_drain(change: DiscoveryChange) -> str:
    return f", drained for {change.drain_seconds} s before" if change.drain_seconds else ""


def _format_details(change: DiscoveryChange) -> str:
    parts = [
        f"{code_span(name)} {code_span(old) if old else 'unset'} → {code_span(new) if new else 'unset'}"
        for name, (old, new) in change.details.items()
    ]
    return f" ({', '.join(parts)})" if parts else ""
