"""Whom a drain asks for."""

from __future__ import annotations

import pytest

from eurekube_provider.core.model import Instance, Port
from eurekube_provider.core.text import MOST_NAME_LETTERS, name_problem
from eurekube_provider.eureka.status_override import can_be_asked_for


@pytest.mark.parametrize(("instance_id", "is_asked"), [("a;b", False), ("a%b", False), ("vm 1:8080", True)])
def test_what_no_url_can_name_is_not_asked_for(instance_id: str, is_asked: bool) -> None:
    """A server lets it register, and refuses its id in every request."""
    assert can_be_asked_for(Instance("rating", instance_id, "vm", "10.0.0.1", Port(8080))) is is_asked


def test_what_somebody_gave_a_long_id_can_be_drained() -> None:
    """We give none so long, and what others have registered is asked for as ever."""
    long = "x" * (MOST_NAME_LETTERS + 1)
    assert "letters in a URL" in name_problem(long)
    assert can_be_asked_for(Instance("rating", long, "vm", "10.0.0.1", Port(8080)))
