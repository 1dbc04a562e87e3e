"""Age of a record: the number of later commits that touched the measured code."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import age, record
from bench.__main__ import BENCHMARKS
from bench.record import MeasuredCode, TreeState, make_record
from tests.unit.bench import played
from tests.unit.bench.played import found

Commit = Callable[[str], str]


@pytest.fixture
def commit(tmp_path: Path) -> Commit:
    """Return a function that commits a change of a file in a new repository and returns the commit."""

    def git(*arguments: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        command = ["git", "-C", str(tmp_path), *who, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def change(name: str) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(path.read_text() + "more" if path.exists() else "first")
        git("add", ".")
        git("commit", "--quiet", "--message", f"Change {name}")
        return git("rev-parse", "HEAD")

    git("init", "--quiet")
    return change


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that writes a record of P8 measured at a commit."""
    monkeypatch.setattr(record, "RESULTS_FOLDER", tmp_path / "results")

    def measured_at(commit: str) -> None:
        written = make_record([found(1.0)], MeasuredCode("2026-11-27", commit[:7], TreeState.COMMITTED))
        assert written is not None
        record.write_record(written)

    return measured_at


def test_only_commits_that_touched_what_is_measured_count(
    commit: Commit, results: Callable[[str], None], tmp_path: Path
) -> None:
    """Only commits that touched the measured packages or the benchmark's own file are counted."""
    first = commit("eurekube_provider/core/plan.py")
    results(first)
    benchmarks = [("P8", played.__name__)]
    assert age.describe_ages(benchmarks, tmp_path) == [
        ("P8", f"2026-11-27, `{first[:7]}`: 0 commits since touched what it measures")
    ]
    commit("docs/index.md")
    commit("eurekube_provider/core/model.py")
    assert age.describe_ages(benchmarks, tmp_path)[0][1].endswith(": 1 commit since touched what it measures")
    commit("tests/unit/bench/played.py")
    assert age.describe_ages(benchmarks, tmp_path)[0][1].endswith(
        ": 2 commits since touched what it measures"
    )


def test_a_record_without_its_commit_or_none_is_said(
    commit: Commit, results: Callable[[str], None], tmp_path: Path
) -> None:
    """The text says that there is no record, or that its commit is not in this repository."""
    commit("README.md")
    assert age.describe_ages([("P8", played.__name__)], tmp_path) == [("P8", "not measured")]
    results("abcdef0")
    assert age.describe_ages([("P8", played.__name__)], tmp_path)[0][1].endswith(
        "this repository has no such commit"
    )


def test_a_release_refuses_records_older_than_the_release_before(
    commit: Commit, results: Callable[[str], None], tmp_path: Path
) -> None:
    """Records older than the former release are too old; the first release accepts any."""

    def tag(name: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), "tag", name], check=True)

    first = commit("README.md")
    tag("v1.0.0")
    results(first)
    assert age.find_outdated_records(["P8"], "v1.0.0", tmp_path) == []
    commit("README.md")
    tag("v1.1.0")
    assert age.find_outdated_records(["P8"], "v1.1.0", tmp_path) == []
    latest = commit("README.md")
    tag("v1.2.0")
    assert age.find_outdated_records(["P8", "P1"], "v1.2.0", tmp_path) == [
        f"the record of P8 (2026-11-27, `{first[:7]}`) is older than v1.1.0: make bench ONLY=P8",
        "P1 has not been measured: make bench ONLY=P1",
    ]
    results(latest)
    assert age.find_outdated_records(["P8"], "v1.2.0", tmp_path) == []


@pytest.mark.parametrize("module", BENCHMARKS.values())
def test_each_path_that_is_measured_is_there(module: str) -> None:
    """Each path that a benchmark names as measured exists, so that a rename is noticed."""
    paths = age.measured_paths(module)
    assert [path for path in paths if not (age.ROOT / path).exists()] == []
    assert any(path.startswith("eurekube_provider/") for path in paths)
