"""What a state need not hold of a registration."""

from __future__ import annotations

from typing import Any

import pytest

from eurekube_provider.core.defaults import DEFAULTED, completed, shortened
from tests.unit.test_resources_properties import checked


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"ip_address": "192.0.2.11"},
        {"secure_port": 8443},
        {"secure_port": 443},
        {"secure_port": 8443, "secure_port_enabled": False},
        {"vip_address": "Billing"},
        {"secure_vip_address": "safe"},
        {"metadata": {"tier": "1"}, "zone": "a"},
        {"duration_seconds": 120, "renewal_interval_seconds": 60},
        {"drain_seconds": 5, "on_conflict": "adopt"},
    ],
)
def test_what_is_left_out_comes_back(changes: dict[str, Any]) -> None:
    """Whatever was written, and whether or not the names of it are kept."""
    full = checked(**changes)
    assert full == completed(shortened(full, ()))
    assert full == completed(shortened(full, changes))


def test_only_what_differs_from_its_default_is_kept() -> None:
    """The rest is as long as all of it, in every state and at every step."""
    assert set() == DEFAULTED & shortened(checked(), ()).keys()
    assert DEFAULTED & shortened(checked(vip_address="Billing"), ()).keys() == {"vip_address"}


def test_a_default_follows_what_it_is_made_from() -> None:
    """An address that was left out is the new host name; one that stayed behind is kept."""
    short = shortened(checked(), ())
    assert completed({**short, "host_name": "192.0.2.99"})["ip_address"] == "192.0.2.99"
    drifted = {**checked(), "host_name": "192.0.2.99"}
    assert shortened(drifted, ())["ip_address"] == "192.0.2.10"
