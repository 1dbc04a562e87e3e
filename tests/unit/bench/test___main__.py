"""Output and exit codes of `python -m bench`."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from bench import __main__ as bench
from bench import record
from bench.__main__ import BENCHMARKS, main
from bench.report import TITLES
from tests.unit.bench import played
from tests.unit.bench.played import found


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder for records, with P8 replaced by the prepared benchmark and without a report."""
    monkeypatch.setattr(record, "RESULTS_FOLDER", tmp_path)
    monkeypatch.setitem(BENCHMARKS, "P8", played.__name__)
    monkeypatch.setattr(bench, "write_report", lambda: None)
    monkeypatch.setattr(played, "waiting", [])
    return tmp_path


def test_three_runs_are_one_record(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each run's headlines are printed, and recorded with the figures of the median run."""
    played.waiting += [found(300.0), found(100.0), found(200.0)]
    assert main(["--only", "p8", "--repeat", "3"]) == 0
    written = json.loads((results / "P8.json").read_text())
    assert (written["ours"]["p99_ms"], len(written["repeated"])) == (200.0, 3)
    assert (
        "P8, valid run 3: held: p99, ms: ours 200, kopf 80; p50, ms: ours 100, kopf 20"
        in capsys.readouterr().err
    )


def test_a_bar_that_is_not_held_is_recorded(results: Path) -> None:
    """A run that misses its bar is recorded, and the exit code is 1."""
    played.waiting.append(found(300.0, held=False))
    assert main(["--only", "P8"]) == 1
    assert json.loads((results / "P8.json").read_text())["held"] is False


def test_void_runs_leave_the_last_record_alone(results: Path) -> None:
    """If all runs are void, as on a loaded machine, the last record stays."""
    (results / "P8.json").write_text("of yesterday")
    played.waiting += [found(1.0, void="5 % idle"), found(1.0, void="3 % idle")]
    assert main(["--only", "P8", "--repeat", "2"]) == 1
    assert (results / "P8.json").read_text() == "of yesterday"


def test_a_void_run_makes_the_exit_code_1(results: Path) -> None:
    """A void run makes the exit code 1, and valid runs are recorded."""
    played.waiting += [found(1.0, void="5 % idle"), found(2.0)]
    assert main(["--only", "P8", "--repeat", "2"]) == 1
    assert json.loads((results / "P8.json").read_text())["void"] == ["5 % idle"]


def test_fewer_runs_than_a_record_needs_are_none(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fewer runs than a benchmark's RUNS make no record; without ``--repeat`` it runs that often."""
    monkeypatch.setattr(played, "RUNS", 2, raising=False)
    played.waiting += [found(1.0)]
    assert main(["--only", "P8", "--repeat", "1"]) == 0
    assert list(results.iterdir()) == []
    assert "P8: 1 valid of the 2 runs that are a record" in capsys.readouterr().err
    played.waiting += [found(1.0), found(2.0)]
    assert main(["--only", "P8"]) == 0
    assert len(record.read_record("P8")["repeated"]) == 2


def test_a_program_that_is_missing_is_said_before_anything_runs(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing program of any chosen benchmark ends the command before the first one runs."""
    monkeypatch.setattr(played, "PROGRAMS", ("sh", "pulumi-language-cobol"), raising=False)
    with pytest.raises(SystemExit) as ended:
        main(["--only", "P7,P8"])
    assert ended.value.code == 2
    assert "nothing was measured: P8 needs pulumi-language-cobol" in capsys.readouterr().err
    assert list(results.iterdir()) == []


def test_a_name_is_found_however_it_is_written(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of benchmarks are found in upper or lower case, also with an ``x`` in them."""
    monkeypatch.setitem(BENCHMARKS, "P8x3", played.__name__)
    played.waiting += [found(1.0)]
    assert main(["--only", "P8X3", "--quick"]) == 0
    assert played.waiting == []
    assert list(results.iterdir()) == []


def test_a_quick_run_writes_nothing(results: Path) -> None:
    """A run with ``--quick`` writes no record."""
    played.waiting += [found(1.0), found(2.0)]
    assert main(["--only", "P8", "--repeat", "2", "--quick"]) == 0
    assert list(results.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--only", "P99"], "no such benchmark: P99"), (["--repeat", "0"], "--repeat is 0")],
)
def test_what_cannot_be_run_is_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unknown benchmark or a repeat of 0 is refused before anything runs."""
    with pytest.raises(SystemExit):
        main(arguments)
    assert said in capsys.readouterr().err


def test_each_benchmark_has_a_section_of_the_page() -> None:
    """The page has a section for each benchmark, in the order in which they run."""
    assert list(TITLES) == list(BENCHMARKS)


@pytest.mark.parametrize("name", [each for each in BENCHMARKS if record.find_record(each)])
def test_a_record_is_judged_by_the_bar_that_the_benchmark_has(name: str) -> None:
    """A record has the benchmark's present bar; a changed bar needs a new measurement or judgement."""
    assert record.read_record(name)["bar"] == importlib.import_module(BENCHMARKS[name]).BAR
