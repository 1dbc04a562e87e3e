"""Mutants of the safety rules apply to the present code; ``make mutants`` runs them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tests.mutants.harms import Harm, harms
from tests.mutants.mutant import ROOT, DoesNotApply, Mutant, mutants
from tests.mutants.workplace import PYTEST, Verdict, Workplace


@cache
def text(file: str) -> str:
    """Return the text of a file of the repository."""
    return (ROOT / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.name)
def test_a_mutant_fits_the_code_of_today(mutant: Mutant) -> None:
    """A mutant applies to its file, and its tests exist, so that `make mutants` does not fail late."""
    assert mutant.applied(text(mutant.file)) != text(mutant.file)
    assert re.fullmatch(r"[A-Z].*\.", mutant.rule), "a rule is a sentence"
    for test in mutant.tests:
        file, _, name = test.partition("::")
        assert f"\ndef {name.partition('[')[0]}(" in text(file), f"there is no test {test}"


def test_a_case_that_a_mutant_names_is_one_of_today(request: pytest.FixtureRequest) -> None:
    """Each parametrized case that a mutant names still exists."""
    named = {test for mutant in mutants() for test in mutant.tests if "[" in test}
    named -= {item.nodeid for item in request.session.items}  # of a whole run that is all of them
    if named:
        assert named - _collected(sorted({test.partition("::")[0] for test in named})) == set()


def _collected(files: Sequence[str]) -> set[str]:
    """Return the ids of all tests in these files."""
    collecting = subprocess.run(
        [*PYTEST, "--collect-only", *files],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert collecting.returncode == 0, collecting.stdout + collecting.stderr
    return set(collecting.stdout.splitlines())


@pytest.mark.parametrize("harm", harms(), ids=lambda harm: harm.name)
def test_a_fix_that_is_taken_back_fits_the_code_of_today(harm: Harm) -> None:
    """The reversal of each recorded fix applies to the present code, so that its harm can be reproduced."""
    code: dict[str, str] = {}
    for change in harm.changes:
        code[change.file] = change.applied(code.get(change.file, text(change.file)))
    assert all(changed != text(file) for file, changed in code.items())


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("if mine:\n    go()\n", "no more"),
        ("if ours:\n    go()\nif ours:\n    go()\n", "more than once"),
        ("if ours:\n    go()\nelif theirs:\n    stop()\n", "is no Python"),
    ],
)
def test_a_mutant_that_does_not_fit_says_why(code: str, why: str) -> None:
    """A mutant raises if its lines are missing, occur twice, make invalid Python, or change nothing."""
    mutant = Mutant("any", "A rule.", "x.py", "if ours:\n    go()\n", "go()\n", ("t.py::t",))
    with pytest.raises(DoesNotApply, match=why):
        mutant.applied(code)
    same = Mutant("same", "A rule.", "x.py", "go()\n", "go()  \n", ("t.py::t",))
    with pytest.raises(DoesNotApply, match="says the same"):
        same.applied("go()\n")


def test_a_mutant_is_killed_by_its_test_and_by_no_other(tmp_path: Path) -> None:
    """A mutant is killed by its own test, survives another test, and is undecided with a missing test; the
    code is restored.
    """
    one = next(each for each in mutants() if each.name == "timestamps-do-not-grow")
    elsewhere = replace(
        one, tests=("tests/unit/eureka/test_writer.py::test_every_write_is_preceded_by_a_read",)
    )
    nowhere = replace(one, tests=("tests/unit/eureka/test_writer.py::test_that_is_not_there",))
    place = Workplace(tmp_path)
    assert place.unchanged([one, elsewhere]) == ""
    verdicts = [place.trial(each).verdict for each in (one, elsewhere, nowhere)]
    assert verdicts == [Verdict.KILLED, Verdict.SURVIVED, Verdict.UNDECIDED]
    assert (tmp_path / one.file).read_text() == text(one.file)
    assert "FAILED" in place.unchanged([nowhere]) or "not found" in place.unchanged([nowhere])
