"""The page with the reasons for which Pulumi tests are skipped: `make reference` writes it, `--check` only
compares.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import pytest

from scripts.generated_pages import ROOT, replace_table

SKIP_REASONS_PAGE = ROOT / "docs" / "project" / "pulumi-tests.md"
TESTS_FOLDER = ROOT / "tests" / "system"
PYTEST_MARK = "pulumi"
_FIRST_CELL = "skipped because of"


class _SkipReasons:
    """A pytest plugin that collects the reasons for which tests may be skipped.

    :ivar tests: file name and name of each marked test, by reason.
    """

    def __init__(self) -> None:
        self.count = 0
        self.tests: dict[str, list[tuple[str, str]]] = defaultdict(list)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.count = len(session.items)
        for item in session.items:
            for mark in item.iter_markers("skipif"):
                self.tests[mark.kwargs["reason"]].append((item.path.name, item.name))


def find_pulumi_test_files() -> list[Path]:
    """Return the test files that contain tests with Pulumi."""
    return [
        file
        for file in sorted(TESTS_FOLDER.glob("test_*.py"))
        if f"mark.{PYTEST_MARK}" in file.read_text("utf-8")
    ]


def skip_reasons_table() -> str:
    """Return the table of reasons, the most frequent first, each with its tests."""
    files = map(str, find_pulumi_test_files())
    reasons = _SkipReasons()
    options = ["--collect-only", "--quiet", "--quiet", "-p", "no:cacheprovider", "-m", PYTEST_MARK]
    if pytest.main([*options, *files], plugins=[reasons]) != pytest.ExitCode.OK:
        raise SystemExit("the tests cannot be collected: pytest says above why")
    lines = [f"| {_FIRST_CELL} | of {reasons.count} tests | which |", "|---|---:|---|"]
    for reason, tests in sorted(reasons.tests.items(), key=lambda found: (-len(found[1]), found[0])):
        which = "all" if len(tests) == reasons.count else _format_tests_by_file(tests)
        lines.append(f"| {reason} | {len(tests)} | {which} |")
    return "\n".join(lines) + "\n"


def _format_tests_by_file(tests: list[tuple[str, str]]) -> str:
    by_file: dict[str, list[str]] = defaultdict(list)
    for file, test in tests:
        by_file[file].append(f"`{test}`")
    return "; ".join(f"{file}: {', '.join(names)}" for file, names in sorted(by_file.items()))


def main() -> int:
    """Write the page; with `--check`, only compare it, and return 1 if it differs."""
    before = SKIP_REASONS_PAGE.read_text("utf-8")
    after = replace_table(before, _FIRST_CELL, skip_reasons_table())
    if "--check" in sys.argv:
        return int(before != after)
    SKIP_REASONS_PAGE.write_text(after, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
