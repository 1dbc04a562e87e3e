"""Generated programs end as a fresh start would."""

from __future__ import annotations

import logging

import pytest

from tests.explore.generated import tried

SEQUENCES = 200


@pytest.fixture(autouse=True)
def quiet() -> None:
    """Lost requests are logged as such."""
    logging.disable(logging.CRITICAL)


def test_every_end_is_that_of_a_fresh_start() -> None:
    """Whatever two to five programs came before the last, and whatever answers they lost."""
    for seed in range(SEQUENCES):
        assert not (told := tried(seed)), told


def test_what_was_on_its_way_to_an_enforced_status_goes_on_to_be_called() -> None:
    """A new member still STARTING when its update failed; the next program enforces nothing."""
    assert not (told := tried(275562288)), told
