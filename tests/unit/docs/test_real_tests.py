"""The run of the tests on real servers repeats a few failed tests alone, and hides no failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.real_tests import MAX_REPEATED_TESTS, run_tests

TESTS = """
from pathlib import Path

def count(name):
    file = Path(__file__).with_name(name)
    number = len(file.read_text()) if file.exists() else 0
    file.write_text("x" * (number + 1))
    return number

def test_passes():
    assert count("passes") == 0

def test_fails_once():
    assert count("once") > 0
"""
ALWAYS = """
def test_fails_always():
    assert False
"""
MANY = """
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_fails(number):
    assert False
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a folder with one test that passes at its second run, and one that may run once only."""
    (tmp_path / "test_some.py").write_text(TESTS)
    return tmp_path


def test_a_test_that_passes_alone_is_named(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A test that failed beside others and passes alone does not fail the run; the others run once."""
    assert run_tests(project, ["test_some.py"], []) == 0
    assert "failed beside others, passed alone: test_some.py::test_fails_once" in capfd.readouterr().out
    assert (project / "passes").read_text() == "x"


def test_a_test_that_fails_twice_fails_the_run(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """One test that fails again fails the run."""
    (project / "test_some.py").write_text(TESTS + ALWAYS)
    assert run_tests(project, ["test_some.py"], []) == 1
    said = capfd.readouterr().out
    assert "failed twice: test_some.py::test_fails_always" in said
    assert "failed beside others, passed alone: test_some.py::test_fails_once" in said


def test_many_failures_are_not_repeated(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """More failures than a busy machine causes fail the run at once."""
    (project / "test_some.py").write_text(MANY.format(count=MAX_REPEATED_TESTS + 1))
    assert run_tests(project, ["test_some.py"], []) == 1
    assert f"{MAX_REPEATED_TESTS + 1} tests failed: none runs again" in capfd.readouterr().out


def test_an_error_of_the_run_itself_is_not_repeated(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A module that cannot be collected fails the run with pytest's own code."""
    (project / "test_some.py").write_text("import nothing_of_this_name\n")
    assert run_tests(project, ["test_some.py"], []) == 2
    assert "again" not in capfd.readouterr().out
