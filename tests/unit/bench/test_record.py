"""A record has the median run's figures, all runs' headlines, date and commit."""

from __future__ import annotations

import datetime
import json
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest

from bench import record
from bench.__main__ import BENCHMARKS
from bench.record import MeasuredCode, TreeState, format_measured_at, format_verdict, make_record
from tests.unit.bench.played import found

CODE = MeasuredCode("2026-11-27", "abc1234", TreeState.COMMITTED)


def test_the_run_with_the_median_headline_is_recorded() -> None:
    """All figures of a record are the median run's; every run's headlines are recorded, too."""
    written = make_record([found(300.0), found(100.0), found(200.0)], CODE)
    assert written is not None
    assert written["ours"] == {"p50_ms": 100.0, "p99_ms": 200.0}
    assert [run["figures"]["p99_ms"] for run in written["repeated"]] == [
        {"ours": 300.0, "kopf": 80.0},
        {"ours": 100.0, "kopf": 80.0},
        {"ours": 200.0, "kopf": 80.0},
    ]
    assert written["headlines"] == written["repeated"][2]["figures"]
    assert list(written["headlines"]) == ["p99_ms", "p50_ms"]


def test_of_two_runs_in_the_middle_the_lower_one_is_recorded() -> None:
    """With an even number of runs the lower of the two middle ones is recorded."""
    written = make_record([found(4.0), found(2.0), found(3.0), found(1.0)], CODE)
    assert written is not None
    assert written["ours"]["p99_ms"] == 2.0


@pytest.mark.parametrize(
    ("held", "verdict_of_all"),
    [
        ([True], "held"),
        ([False], "**not held**"),
        ([True, True, True], "held"),
        ([True, False, True], "**not held** (held in 2 of 3 runs)"),
    ],
)
def test_a_bar_is_held_if_each_run_held_it(held: list[bool], verdict_of_all: str) -> None:
    """The verdict is "held" only if every run held the bar, even if the median run did."""
    written = make_record([found(100.0, held=each) for each in held], CODE)
    assert written is not None
    assert format_verdict(written) == verdict_of_all


def test_a_void_run_counts_for_nothing() -> None:
    """A void run's figures are in no record; its reason is."""
    written = make_record([found(10.0, held=False, void="5 % idle"), found(200.0)], CODE)
    assert written is not None
    assert (written["ours"]["p99_ms"], written["held"], written["void"]) == (200.0, True, ["5 % idle"])
    assert len(written["repeated"]) == 1
    assert make_record([found(10.0, void="5 % idle")], CODE) is None


def test_what_is_only_shown_is_not_recorded() -> None:
    """A record leaves out title and notes, and has date, commit and state of the tree."""
    written = make_record([found(1.0)], CODE)
    assert written is not None
    assert written.keys().isdisjoint({"title", "notes"})
    assert written["measured"] == {"date": "2026-11-27", "commit": "abc1234", "tree": "as committed"}


def test_the_code_that_is_measured_is_what_is_checked_out(tmp_path: Path) -> None:
    """Uncommitted changes of results and pages do not count as a change of the measured code; those of a
    module do.
    """

    def git(*arguments: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        command = ["git", "-C", str(tmp_path), *who, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def write(name: str, text: str) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    for name in ("bench/p8_churn.py", "bench/results/P8.json", "docs/index.md"):
        write(name, "before")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "Add all")
    write("bench/results/P8.json", "after")
    write("docs/index.md", "after")
    code = MeasuredCode.checked_out_in(tmp_path)
    assert git("rev-parse", "HEAD").startswith(code.commit)
    assert len(code.commit) == 7
    assert datetime.date.fromisoformat(code.date) <= datetime.datetime.now(datetime.UTC).date()
    assert code.tree == TreeState.COMMITTED
    write("bench/p8_churn.py", "after")
    assert MeasuredCode.checked_out_in(tmp_path).tree == TreeState.CHANGED


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        (TreeState.COMMITTED, "2026-11-27, `abc1234`"),
        (TreeState.CHANGED, "2026-11-27, `abc1234` with changes"),
        (TreeState.UNKNOWN, "recorded on 2026-11-27 by `abc1234`"),
    ],
)
def test_a_page_says_how_far_the_commit_is_known(tree: TreeState, words: str) -> None:
    """The text says whether the commit is the measured one, had changes, or only recorded the result."""
    code = MeasuredCode(CODE.date, CODE.commit, tree)
    assert format_measured_at({"measured": asdict(code)}) == words


def test_what_is_written_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record is written as JSON, named after its benchmark, and read back unchanged."""
    monkeypatch.setattr(record, "RESULTS_FOLDER", tmp_path)
    written = make_record([found(1.0)], CODE)
    assert written is not None
    record.write_record(written)
    assert json.loads((tmp_path / "P8.json").read_text()) == written == record.read_record("P8")


@pytest.mark.parametrize("name", [each for each in BENCHMARKS if record.find_record(each)])
def test_each_record_says_when_and_of_which_code(name: str) -> None:
    """Each committed record has a date, a commit and the state of the tree."""
    code = record.read_record(name)["measured"]
    assert datetime.date.fromisoformat(code["date"])
    assert TreeState(code["tree"])
    assert len(code["commit"]) == 7
