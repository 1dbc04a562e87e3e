"""Random programs end with the same registrations as a fresh start with the last one."""

from __future__ import annotations

import logging
import random

import pytest

from eurekube_provider.resources.arguments import RegistrationContentsArgsDict
from tests.explore.campaign import SHELLS
from tests.explore.generated import described, program, tried

SEQUENCES = 80


@pytest.fixture(autouse=True)
def quiet() -> None:
    """Disable logging, since each lost request is logged."""
    logging.disable(logging.CRITICAL)


def test_every_end_is_that_of_a_fresh_start() -> None:
    """After two to five programs with lost answers, Eureka and state are as if only the last one had run."""
    for seed in range(SEQUENCES):
        assert not (failure := tried(seed, SHELLS[seed % 2])), failure


def test_every_described_property_is_drawn() -> None:
    """A property that the resources gain later is drawn without being named here."""
    for seed in range(40):
        assert not (failure := tried(seed, SHELLS[seed % 2], described=True)), failure
    drawn = random.Random(1)  # noqa: S311 - a test
    programs = [program(drawn, described()) for _ in range(300)]
    named = {name for each in programs for resource in each.values() for name in resource}
    assert named >= set(RegistrationContentsArgsDict.__annotations__)


def test_an_instance_on_its_way_to_a_status_stays_callable() -> None:
    """An instance that is STARTING because its update failed is callable again when the next program sets
    no status.
    """
    assert not (failure := tried(275562288)), failure
