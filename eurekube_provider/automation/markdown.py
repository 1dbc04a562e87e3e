"""A summary as Markdown for a pull request's comment: a short table, and details folded away.

Texts from a program or from Eureka are put in code spans, so that a forge never reads them as markup, a
mention, a link, or an issue's number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

from eurekube_provider.automation.discovery import (
    ApplicationChange,
    ChangeKind,
    Concern,
    Discovery,
    DiscoveryChange,
)
from eurekube_provider.core.quoting import printable
from eurekube_provider.core.wording import counted

LARGEST = 60_000
"""The greatest number of characters of a comment. GitHub refuses a comment of more than 65,536."""

LISTED = 25
"""The number of changes that are listed for each application, and of names where many change alike."""

LONGEST = 300
"""The greatest number of characters of one text from a program or from Eureka."""

_NO_NAME = re.compile(r"[^\w./-]")
"""Characters that no name of a project or stack has."""

VERBS = {
    ChangeKind.REGISTERS: "register",
    ChangeKind.LEAVES: "leave",
    ChangeKind.MOVES: "move",
    ChangeKind.CHANGES: "change",
}
_FOUND = {
    ChangeKind.REGISTERS: "is there, though the stack does not know it",
    ChangeKind.LEAVES: "is gone",
    ChangeKind.MOVES: "is registered elsewhere",
    ChangeKind.CHANGES: "was changed",
}
_SYNCERS = {
    ChangeKind.REGISTERS: "comes: the endpoints that it selects register",
    ChangeKind.LEAVES: "goes: its instances leave first",
    ChangeKind.CHANGES: "changes",
}


def marker(summary: Discovery) -> str:
    """Return the first line of a stack's comment, by which the next run finds it again."""
    return f"<!-- eurekube summary of {_NO_NAME.sub('-', f'{summary.project}/{summary.stack}')} -->"


def comment(summary: Discovery) -> str:
    """Return the effect of an update on discovery, as a comment for a pull request."""
    return _fitted(summary, "Discovery", _headline(summary), found=False)


def drift_report(summary: Discovery) -> str:
    """Return a report of changes that were made without the stack."""
    count = sum(len(each.changes) for each in summary.applications) + len(summary.syncers)
    differences = counted(count, "difference", grouped=True)
    said = f"**{differences}** between the stack and what is there." if count else ""
    return _fitted(summary, "Drift", said or _no_drift(summary), found=True)


def _no_drift(summary: Discovery) -> str:
    """Return the headline of a report in which no registration and no syncer differs."""
    if summary.has_failed:
        return ""
    if _is_unsure(summary):
        return "There is a difference between the stack and what is there, see the warnings."
    if summary.other_changes:
        return "No registration and no syncer was changed behind the stack's back; other resources were."
    return "Nothing was changed behind the stack's back."


def code(text: str) -> str:
    """Return a code span that shows ``text``, whatever characters it has."""
    return f"`{_one_line(text).replace('`', chr(39)).replace('|', '¦') or ' '}`"


def _one_line(text: str) -> str:
    """Return a text as one line of limited length."""
    line = " ".join(printable(text).split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}…"


def _fitted(summary: Discovery, title: str, headline: str, *, found: bool) -> str:
    """Return the comment, with as many details as fit into it."""
    for listed in (LISTED, 5, 0):
        text = _beginning(_lines(summary, title, headline, listed, found=found))
        if len(text) <= LARGEST:
            return text
    # At a line's end, and outside of what is folded: what is cut open would be markup again.
    whole = text[: text.rindex("\n", 0, LARGEST)]
    if whole.count("<details>") > whole.count("</details>"):
        whole = whole[: whole.rindex("<details>")]
    return f"{whole}\n\n…\n"


def _beginning(lines: Iterable[str]) -> str:
    """Join lines, and stop once they are too long for a comment."""
    taken, length = [], 0
    for line in lines:
        taken.append(line)
        length += len(line) + 1
        if length > LARGEST + 1:
            break
    return "\n".join(taken)


def _lines(summary: Discovery, title: str, headline: str, listed: int, *, found: bool) -> Iterable[str]:
    yield marker(summary)
    yield f"### {title} of {code(f'{summary.project}/{summary.stack}')}"
    yield ""
    if summary.has_failed:
        yield "**The preview failed**, so that something may be missing below.\n"
    if headline:
        yield headline
    yield from _table(summary, found=found)
    yield from _section("Refused", (f"{code(each.name)}: {code(each.reason)}" for each in summary.refused))
    warnings = (f"**{each.concern}** {code(each.about)}: {code(each.text)}" for each in summary.warnings)
    yield from _section("Warnings", warnings)
    words = _FOUND if found else _SYNCERS
    syncers = (f"{code(each.name)} {words[each.kind]}{_details(each)}" for each in summary.syncers)
    yield from _section("Syncers", syncers)
    for each in summary.applications:
        yield from _folded(each, listed, found=found)
    if summary.other_changes:
        others = (f"{count} {_NO_NAME.sub('', name)}" for name, count in summary.other_changes.items())
        yield f"\nOther resources: {', '.join(others)}."
    yield ""


def _headline(summary: Discovery) -> str:
    if not summary.applications and not summary.syncers:
        return "Nothing changes in Eureka." if not (summary.has_failed or _is_unsure(summary)) else ""
    parts: list[str] = []
    for kind, verb in VERBS.items():
        if count := sum(len(each.of(kind)) for each in summary.applications):
            what = f"{count:,}" if parts else counted(count, grouped=True)
            parts.append(f"{what} {verb}{'s' if count == 1 else ''}")
    if summary.syncers:
        verb = "changes" if len(summary.syncers) == 1 else "change"
        parts.append(f"{counted(len(summary.syncers), 'syncer', grouped=True)} {verb}")
    applications = counted(len(summary.applications), "application", grouped=True)
    return f"**{', '.join(parts)}**" + (f" in {applications}." if summary.applications else ".")


def _is_unsure(summary: Discovery) -> bool:
    """Return whether a warning says that more may change than the summary reports."""
    return any(each.concern is Concern.UNKNOWN for each in summary.warnings)


def _table(summary: Discovery, *, found: bool) -> Iterable[str]:
    if not summary.applications:
        return
    several = len({each.service_url for each in summary.applications}) > 1
    titles = "unknown | gone | elsewhere | changed" if found else " | ".join(VERBS)
    yield f"\n| application | {titles} | instances |"
    yield "|---|--:|--:|--:|--:|--:|"
    for each in summary.applications:
        name = code(each.application) + (f" at {code(each.service_url)}" if several else "")
        counts = " | ".join(str(len(each.of(kind)) or "") for kind in VERBS)
        total = (
            f"{each.before:,} → {each.after:,}" if each.before is not None and each.after is not None else ""
        )
        yield f"| {name} | {counts} | {total} |"


def _section(title: str, items: Iterable[str]) -> Iterable[str]:
    rest = list(items)
    if not rest:
        return
    yield f"\n**{title}**\n"
    yield from (f"- {item}" for item in rest[:LISTED])
    if len(rest) > LISTED:
        yield f"- and {len(rest) - LISTED:,} more"


def _folded(of: ApplicationChange, listed: int, *, found: bool) -> Iterable[str]:
    said = "what was found" if found else "what happens to each instance"
    yield f"\n<details><summary><code>{escape(_one_line(of.application))}</code>: {said}</summary>\n"
    for kind in VERBS:
        changes = of.of(kind)
        alike: dict[str, list[DiscoveryChange]] = {}
        for change in changes:
            alike.setdefault(_details(change) + _drained(change), []).append(change)
        groups = [each for each in alike.values() if len(each) > LISTED]
        for each in groups:
            names = ", ".join(code(change.name) for change in each[: min(listed, 5)])
            yield f"- {len(each):,} {_verb(kind, each[0], found=found)}{_details(each[0])}: {names} …"
        singles = [change for change in changes if not any(change in each for each in groups)]
        for change in singles[:listed]:
            at = f" at {code(change.address)}" if change.address else ""
            verb = _FOUND[kind] if found else f"{kind}"
            yield f"- {code(change.name)} {verb}{at}{_drained(change)}{_details(change)}"
        if len(singles) > listed:
            yield f"- and {len(singles) - listed:,} more {_verb(kind, singles[0], found=found)}"
    yield "\n</details>"


def _verb(kind: ChangeKind, example: DiscoveryChange, *, found: bool) -> str:
    return _FOUND[kind] if found else f"{VERBS[kind]}{_drained(example)}"


def _drained(change: DiscoveryChange) -> str:
    return f", drained for {change.drain_seconds} s before" if change.drain_seconds else ""


def _details(change: DiscoveryChange) -> str:
    parts = [
        f"{code(name)} {code(old) if old else 'unset'} → {code(new) if new else 'unset'}"
        for name, (old, new) in change.details.items()
    ]
    return f" ({', '.join(parts)})" if parts else ""
