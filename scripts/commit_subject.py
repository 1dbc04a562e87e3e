"""Check the subject of a commit, for the commit-msg hook: ``python -m scripts.commit_subject FILE``.

The verbs and the length are those that CONTRIBUTING.md gives.
"""

from __future__ import annotations

import sys
from pathlib import Path

VERBS = (
    "add",
    "build",
    "document",
    "drop",
    "fix",
    "measure",
    "merge",
    "move",
    "pin",
    "release",
    "remove",
    "rename",
    "replace",
    "revert",
    "simplify",
    "speed",
    "split",
    "test",
    "update",
    "upgrade",
)
"""Verbs that a commit's subject may begin with."""

MAX_SUBJECT_LETTERS = 72
"""Most characters of a subject."""


def find_subject_fault(subject: str) -> str | None:
    """Return the fault of a subject and its remedy; None for a good subject."""
    first = subject.split(" ", 1)[0].lower()
    if first not in VERBS:
        return f"the subject begins with {first!r}: begin with one of {', '.join(VERBS)}"
    if len(subject) > MAX_SUBJECT_LETTERS:
        return f"the subject has {len(subject)} letters: say it in {MAX_SUBJECT_LETTERS}, and why in the body"
    return None


def main(paths: list[str]) -> int:
    """Check the commit message in a file; its first line that is no comment is the subject."""
    lines = Path(paths[0]).read_text(encoding="utf-8").splitlines()
    subject = next((line.strip() for line in lines if line.strip() and not line.startswith("#")), "")
    fault = find_subject_fault(subject)
    if fault:
        print(f"{subject}\n{fault}", file=sys.stderr)
    return 1 if fault else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
