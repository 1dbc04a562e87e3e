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
