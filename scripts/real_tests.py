"""The tests on real servers that share a machine: four workers at a time, then once more what failed.

A busy machine delays four labs with some forty servers by tens of seconds now and then, and a test's time
limit is over. So at most :data:`MAX_REPEATED_TESTS` failed tests run once more, one by one, without the
others. A test that fails again fails the run; one that passes then is named in the last lines, to be looked
into. Proofs, which count failed calls, run alone from the beginning, and are never repeated. Arguments of the
command, such as ``--nightly=leave-out``, are passed to pytest.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTEST_COMMAND = (sys.executable, "-m", "pytest")
MAX_REPEATED_TESTS = 3
"""Failed tests that run once more: if more fail, the machine is not the cause."""

TEST_SELECTION = (
    "-m",
    "not alone and not faults",
    "tests/system",
    "tests/interop",
    "tests/contract",
    "tests/registries",
)
# Of four workers some always wait, one of them for its first minutes: together they keep two cores busy.
PARALLEL_OPTIONS = ("-n", "4", "--dist", "loadfile", "--no-loadscope-reorder")
_TESTS_FAILED_EXIT_CODE = 1
"""pytest's exit code if tests failed, and nothing else was wrong."""


def run_tests(
    project: Path = ROOT,
    selection: Sequence[str] = TEST_SELECTION,
    parallel_options: Sequence[str] = PARALLEL_OPTIONS,
) -> int:
    """Run the tests, and return pytest's exit code.

    :param selection: pytest's arguments that select the tests.
    :param parallel_options: pytest's arguments for the run with several workers.
    """
    # A former run's failures do not count.
    code = _run_pytest(project, "--cache-clear", *parallel_options, *selection)
    failed = _read_last_failures(project)
    if code != _TESTS_FAILED_EXIT_CODE or not failed:
        return code
    if len(failed) > MAX_REPEATED_TESTS:
        print(f"{len(failed)} tests failed: none runs again", flush=True)
        return code
    print(f"running {len(failed)} failed tests again, one by one", flush=True)
    code = _run_pytest(project, *failed)
    again = _read_last_failures(project)
    for name in failed:
        print(f"failed {'twice' if name in again else 'beside others, passed alone'}: {name}", flush=True)
    return code


def _run_pytest(project: Path, *arguments: str) -> int:
    return subprocess.run([*PYTEST_COMMAND, *arguments], cwd=project, check=False).returncode


def _read_last_failures(project: Path) -> list[str]:
    """Return the names of the tests that failed in the last run."""
    file = project / ".pytest_cache" / "v" / "cache" / "lastfailed"
    return sorted(json.loads(file.read_text())) if file.exists() else []


if __name__ == "__main__":
    sys.exit(run_tests(selection=(*TEST_SELECTION, *sys.argv[1:])))
