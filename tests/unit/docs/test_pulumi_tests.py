"""The page about tests with Pulumi agrees with the tests' skip marks."""

from __future__ import annotations

import subprocess
import sys

from scripts.generated_pages import ROOT
from scripts.pulumi_tests import SKIP_REASONS_PAGE, find_pulumi_test_files


def test_each_reason_to_skip_is_on_the_page() -> None:
    """The page lists each reason to skip with its tests; `make reference` writes it."""
    command = [sys.executable, "-m", "scripts.pulumi_tests", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, (
        f"run make reference: {SKIP_REASONS_PAGE.name} is old\n{done.stdout}{done.stderr}"
    )


def test_they_are_skipped_by_their_marks_alone() -> None:
    """No test with Pulumi calls ``pytest.skip``, which the page could not list."""
    files = find_pulumi_test_files()
    assert len(files) > 10
    assert [file.name for file in files if "pytest.skip(" in file.read_text("utf-8")] == []
