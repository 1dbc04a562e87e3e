"""A problem, and its text in a condition."""

from __future__ import annotations

import pytest

from eurekube_provider.core.problem import Problem
from eurekube_provider.core.remedies import SYNCER_REMEDIES


@pytest.mark.parametrize("remedy", ["", "set spec.paused to false", "wait; if it stays: ask"])
def test_a_condition_is_read_as_it_was_written(remedy: str) -> None:
    """A problem read from a condition equals the one that was written, since other replicas and versions
    read it.
    """
    problem = Problem("Paused", "nothing is changed; 3 changes wait", remedy)
    assert problem.text == f"nothing is changed; 3 changes wait{'; to fix it: ' if remedy else ''}{remedy}"
    assert Problem.of({"type": "Paused", "reason": "Paused", "message": problem.text}) == problem


def test_a_condition_that_lacks_something_is_read_all_the_same() -> None:
    """A condition without reason or message, whoever wrote it, is read as an empty problem."""
    assert Problem.of({}) == Problem.of({"reason": None, "message": None}) == Problem("", "")


def test_a_problem_keeps_what_it_knows_better_than_a_table() -> None:
    """A problem's own remedy wins over the table's; without either it has none."""
    plain, exact = Problem("Paused", "waits"), Problem("Paused", "waits", "go on")
    assert plain.with_remedy(SYNCER_REMEDIES) == Problem("Paused", "waits", SYNCER_REMEDIES["Paused"])
    assert exact.with_remedy(SYNCER_REMEDIES) == exact
    assert Problem("Synced", "all there").with_remedy(SYNCER_REMEDIES).text == "all there"


def test_one_line_of_it_leaves_out_what_fixes_it() -> None:
    """The short form omits the remedy, which is printed once for all problems of that kind."""
    assert str(Problem("Paused", "waits", "go on")) == "Paused: waits"
