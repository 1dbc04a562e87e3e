"""What an EurekaInstance has where its program says nothing, so that no state need hold it.

Pulumi's engine writes the whole state anew at every step: what stands there without need makes each of a
thousand resources dearer, and by more than its own size.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from eurekube_provider.core.model import EurekaLease

_FIXED: Mapping[str, Any] = {
    "port_enabled": True,
    "secure_port": 443,
    "secure_port_enabled": False,
    "renewal_interval_seconds": EurekaLease().renewal_interval_seconds,
    "duration_seconds": EurekaLease().duration_seconds,
    "on_conflict": "fail",
    "drain_seconds": 0,
}

DEFAULTED = frozenset({*_FIXED, "metadata", "ip_address", "vip_address", "secure_vip_address"})
"""The properties that have a default which the others tell. That of the id, which outlives what it was made
from, is none."""


def completed(properties: Mapping[str, Any]) -> dict[str, Any]:
    """``properties`` with the default of everything that is not among them."""
    return {**_defaults(properties), **properties}


def shortened(properties: Mapping[str, Any], written: Container[str]) -> dict[str, Any]:
    """``properties`` without what :func:`completed` gives back.

    :param properties: all that have a default are among them, or are at it.
    :param written: names that stay, whatever their values: a program sees in its preview what it wrote.
    """
    defaults = _defaults(properties)
    return {
        name: value
        for name, value in properties.items()
        if name in written or name not in DEFAULTED or value != defaults.get(name)
    }


def _defaults(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The default of each, as far as it can be told; those made of unknown parts are as unknown."""
    defaults = {**_FIXED, "metadata": {}}
    if "host_name" in properties:
        # As given: a look-up here would make the preview depend on somebody's resolver.
        defaults["ip_address"] = properties["host_name"]
    if "application" in properties:
        application = properties["application"]
        vip_address = application.lower() if isinstance(application, str) else application
        defaults["vip_address"] = vip_address
        defaults["secure_vip_address"] = properties.get("vip_address") or vip_address
    return defaults
