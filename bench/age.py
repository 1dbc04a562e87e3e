"""The age of each benchmark's record: ``python -m bench.age`` counts the commits that touched the measured
code.

A benchmark's module lists these paths as ``MEASURES``; its own file and the lock file count as well.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench import record
from bench.record import Record, format_measured_at

ROOT = Path(__file__).parents[1]

REGISTRY_PATHS = tuple(f"eurekube_provider/{name}" for name in ("core", "eureka", "runtime"))
"""Paths of the code that speaks to Eureka."""

OPERATOR_PATHS = (*REGISTRY_PATHS, "eurekube_provider/kube", "eurekube_provider/operator")
"""Paths of the operator's code."""

STACK_PATHS = (
    *REGISTRY_PATHS,
    "eurekube_provider/provider",
    "eurekube_provider/registrations",
    "eurekube_provider/resources",
)
"""Paths of the Pulumi providers' code."""

_LOCK_FILE = "requirements.lock"


def measured_paths(module: str) -> tuple[str, ...]:
    """Return the paths that the benchmark of a module measures."""
    measures: Sequence[str] = importlib.import_module(module).MEASURES
    return (*measures, f"{module.replace('.', '/')}.py", _LOCK_FILE)


def count_commits_since(commit: str, paths: Iterable[str], repository: Path = ROOT) -> int | None:
    """Return how many commits after ``commit`` touched some paths; None where the repository lacks
    ``commit``.
    """
    done = _run_git(repository, "rev-list", "--count", f"{commit}..HEAD", "--", *paths)
    return int(done.stdout) if done.returncode == 0 else None


def describe_ages(benchmarks: Iterable[tuple[str, str]], repository: Path = ROOT) -> list[tuple[str, str]]:
    """Return the age of each benchmark's record, in words.

    :param benchmarks: name and module of each.
    """
    return [
        (name, _describe_age(record.find_record(name), measured_paths(module), repository))
        for name, module in benchmarks
    ]


def _describe_age(found: Record | None, paths: Iterable[str], repository: Path) -> str:
    if found is None:
        return "not measured"
    count = count_commits_since(found["measured"]["commit"], paths, repository)
    if count is None:
        return f"{format_measured_at(found)}: this repository has no such commit"
    return (
        f"{format_measured_at(found)}: {count} commit{'' if count == 1 else 's'} since touched what it "
        "measures"
    )


def find_outdated_records(names: Iterable[str], tag: str, repository: Path = ROOT) -> list[str]:
    """Return a sentence for each benchmark whose record is missing, or older than the release before ``tag``.

    If no earlier release exists, no record is too old.
    """
    described = _run_git(
        repository, "describe", "--tags", "--abbrev=0", "--match=v*", f"--exclude={tag}", "HEAD"
    )
    before = described.stdout.strip()
    if described.returncode != 0:
        return []
    said = []
    for name in names:
        found = record.find_record(name)
        if found is None:
            said.append(f"{name} has not been measured: make bench ONLY={name}")
        elif _run_git(
            repository, "merge-base", "--is-ancestor", before, found["measured"]["commit"]
        ).returncode:
            said.append(
                f"the record of {name} ({format_measured_at(found)}) is older than {before}: make bench "
                f"ONLY={name}"
            )
    return said


def _run_git(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def main() -> int:
    """Print the age of each benchmark's record."""
    from bench.__main__ import BENCHMARKS

    for name, age in describe_ages(BENCHMARKS.items()):
        print(f"{name:5} {age}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
