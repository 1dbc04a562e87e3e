"""What every EurekaInstance has where its program says nothing, so that its state need not hold it.

Pulumi's engine writes the whole state anew at every step of every resource, and what that costs goes by the
number of properties.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from eurekube_provider.registrations.properties import PROPERTIES

FIXED: Mapping[str, Any] = MappingProxyType(
    {each.name: each.default for each in PROPERTIES if each.default is not None}
)
"""The defaults that are the same for every registration."""


def shortened(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Properties without those that have their fixed default, whether or not they were written.

    A secure port that is enabled stays beside what enables it.
    """
    kept = {"secure_port"} if properties.get("secure_port_enabled") else set()
    return {
        key: value
        for key, value in properties.items()
        if key not in FIXED or value != FIXED[key] or key in kept
    }


def completed(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of :func:`shortened`; complete ones stay what they are."""
    return {**FIXED, **properties}
