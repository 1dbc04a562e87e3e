"""The tests on real servers that share a machine: four workers at a time, then once more what failed.

A busy machine delays four labs with some forty servers by tens of seconds now and then, and a test's time
limit is over. So at most :data:`MOST_AGAIN` failed tests run once more, one by one, without the others. A
test that fails again fails the run; one that passes then is named in the last lines, to be looked into.
Proofs, which count failed calls, run alone from the beginning, and are never repeated.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTEST = (sys.executable, "-m", "pytest")
MOST_AGAIN = 3
"""Failed tests that run once more: if more fail, the machine is not the cause."""

WHICH = (
    "-m",
    "not alone and not faults",
    "tests/system",
    "tests/interop",
    "tests/contract",
    "tests/registries",
)
# Of four workers some always wait, one of them for its first minutes: together they keep two cores busy.
BESIDE = ("-n", "4", "--dist", "loadfile", "--no-loadscope-reorder")
_FAILED = 1
"""pytest's exit code if tests failed, and nothing else was wrong."""


def run(project: Path = ROOT, which: Sequence[str] = WHICH, beside: Sequence[str] = BESIDE) -> int:
    """Run the tests, and return pytest's exit code.

    :param which: pytest's arguments that select the tests.
    :param beside: pytest's arguments for the run with several workers.
    """
    # A former run's failures do not count.
    code = _pytest(project, "--cache-clear", *beside, *which)
    failed = _failed(project)
    if code != _FAILED or not failed:
        return code
    if len(failed) > MOST_AGAIN:
        print(f"{len(failed)} tests failed: none runs again", flush=True)
        return code
    print(f"running {len(failed)} failed tests again, one by one", flush=True)
    code = _pytest(project, *failed)
    again = _failed(project)
    for name in failed:
        print(f"failed {'twice' if name in again else 'beside others, passed alone'}: {name}", flush=True)
    return code


def _pytest(project: Path, *arguments: str) -> int:
    return subprocess.run([*PYTEST, *arguments], cwd=project, check=False).returncode


def _failed(project: Path) -> list[str]:
    """Return the names of the tests that failed in the last run."""
    file = project / ".pytest_cache" / "v" / "cache" / "lastfailed"
    return sorted(json.loads(file.read_text())) if file.exists() else []


if __name__ == "__main__":
    sys.exit(run())
