"""The values that a registration's state can leave out, and their restoration."""

from __future__ import annotations

from typing import Any

import pytest

from eurekube_provider.registrations.defaults import FIXED_DEFAULTS, with_defaults, without_fixed_defaults
from tests.unit.registrations.test_properties import checked


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"port_enabled": False},
        {"secure_port": 8443},
        {"secure_port": 443},
        {"secure_port": 8443, "secure_port_enabled": False},
        {"metadata": {"tier": "1"}, "zone": "a"},
        {"duration_seconds": 120, "renewal_interval_seconds": 60},
        {"drain_seconds": 5, "on_conflict": "adopt", "connection": "eu"},
    ],
)
def test_what_is_left_out_comes_back(changes: dict[str, Any]) -> None:
    """Shortened properties expand to the original, in whatever form they were written."""
    assert with_defaults(without_fixed_defaults(checked(**changes))) == checked(**changes)


def test_only_what_differs_from_its_default_is_kept() -> None:
    """A written default is dropped like an omitted one, so that a refresh yields the same state."""
    assert set() == FIXED_DEFAULTS.keys() & without_fixed_defaults(checked()).keys()
    assert without_fixed_defaults(checked(drain_seconds=0, secure_port=443.0)) == {
        **without_fixed_defaults(checked()),
        "secure_port": 443,
        "secure_port_enabled": True,  # who names the port means it
    }
    assert FIXED_DEFAULTS.keys() & without_fixed_defaults(checked(drain_seconds=5)).keys() == {
        "drain_seconds"
    }
