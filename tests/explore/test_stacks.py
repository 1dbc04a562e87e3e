"""No order of events of a stack's registrations does harm: each single fault of an edit, and some pairs."""

from __future__ import annotations

import logging
import random

import pytest

from tests.explore.explorer import Explored, explore, told
from tests.explore.programs import EDITS, SECOND_THOUGHTS, Edit
from tests.explore.world import Fault

PAIRS_AN_EDIT = 60
"""Drawn by the edit's name, so that a failure is found again; ``make explore`` draws more and larger sets."""


@pytest.fixture(autouse=True)
def quiet() -> None:
    """Thousands of lost requests are logged as such."""
    logging.disable(logging.CRITICAL)


@pytest.mark.parametrize("edit", [*EDITS, *SECOND_THOUGHTS], ids=lambda edit: edit.name)
def test_every_single_fault(edit: Edit) -> None:
    """A request that is lost, or at which the process dies, costs no caller anything; the next run heals."""
    for faults, outcome in explore(edit, most_faults=1):
        assert not outcome.violations, told(edit, faults, outcome)


AT_TWO = (
    "remove with a drain, and think better of it",
    "moved without an alias",
    "another spelling of the URL, with a drain",
    "status enforced",
    "application: drain, and think better of it",
    "application: one more, one less",
)
"""What two servers are tried with in each run of the tests; ``make explore`` tries all."""


@pytest.mark.parametrize("edit", [one for one in EDITS if one.name in AT_TWO], ids=lambda edit: edit.name)
def test_every_single_fault_at_two_servers(edit: Edit) -> None:
    """Nor where they tell each other half a second later."""
    for faults, outcome in explore(edit, most_faults=1, servers=2):
        assert not outcome.violations, told(edit, faults, outcome)


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_pairs_of_faults(edit: Edit) -> None:
    """Neither do two of them, in one run or in two."""
    draw = random.Random(edit.name)  # noqa: S311 - a test
    requests = Explored(edit, {}).run().requests
    for _ in range(PAIRS_AN_EDIT):
        first, second = sorted(draw.sample(range(2 * requests), 2))
        faults = {first: draw.choice(list(Fault)), second: draw.choice(list(Fault))}
        outcome = Explored(edit, faults).run()
        assert not outcome.violations, told(edit, faults, outcome)


def test_the_explorer_finds_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removals that took whatever the owner has would be found within one edit."""
    monkeypatch.setattr(
        "eurekube_provider.resources.registration.Registration.is_it",
        lambda self, held: held.owner == self.owner,
    )
    edit = next(one for one in EDITS if one.name == "moved without an alias, something else fails")
    assert any(outcome.violations for _, outcome in explore(edit, most_faults=1))
