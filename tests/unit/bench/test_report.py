"""The benchmark page: verdict, date and commit of each record."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import record, report
from bench.record import MeasuredCode, TreeState, make_record
from tests.unit.bench.played import BAR, found

CODE = MeasuredCode("2026-11-27", "abc1234", TreeState.COMMITTED)


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the page of three runs, one of which missed its bar, and a void run."""
    runs = [found(300.0), found(100.0, held=False), found(200.0), found(1.0, void="5 % idle")]
    written = make_record(runs, CODE)
    assert written is not None
    monkeypatch.setattr(record, "RESULTS_FOLDER", tmp_path)
    monkeypatch.setattr(report, "TITLES", {"P8": "Churn"})
    record.write_record(written)
    (text,) = report.render_pages().values()
    return text


def test_the_overview_says_what_is_not_held(page: str) -> None:
    """The overview has one row for each benchmark with verdict, date and commit."""
    row = "| P8. Churn | **not held** (held in 2 of 3 runs) | 2026-11-27, `abc1234` |"
    assert row in page.partition("## ")[0]


def test_a_section_says_whether_when_and_of_what(page: str) -> None:
    """A section has the bar with its verdict, date and commit, and the figures."""
    section = page.partition("## ")[2]
    assert f"Bar: {BAR}: **not held** (held in 2 of 3 runs).\n" in section
    assert "; 2026-11-27, `abc1234`.\n" in section
    assert "| p50, ms | 100 | 20 |\n| p99, ms | 200 | 80 |\n" in section


def test_a_section_says_where_the_time_goes(page: str) -> None:
    """A section has the stages of the recorded run."""
    assert (
        "| where the time goes | the median change |\n|---|---:|\n| queue | 1.5 |\n| in all | 40 |\n" in page
    )


def test_a_benchmark_without_a_record_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A benchmark without a record has a row "not measured", and no section."""
    monkeypatch.setattr(record, "RESULTS_FOLDER", tmp_path)
    monkeypatch.setattr(report, "TITLES", {"P8": "Churn"})
    (text,) = report.render_pages().values()
    assert "| P8. Churn | | not measured |" in text
    assert "## P8" not in text


def test_a_section_has_the_headlines_of_each_run(page: str) -> None:
    """A section has each valid run's headlines, and the reasons of void runs."""
    assert (
        "| run | p99, ms: ours | p99, ms: kopf | p50, ms: ours | p50, ms: kopf | bar |\n"
        "|---|---:|---:|---:|---:|---|\n"
        "| 1 | 300 | 80 | 150 | 20 | held |\n"
        "| 2 | 100 | 80 | 50 | 20 | not held |\n"
        "| 3 | 200 | 80 | 100 | 20 | held |\n"
    ) in page
    assert "One more run was void: 5 % idle.\n" in page
