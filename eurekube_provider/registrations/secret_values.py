"""Pulumi's marks of secret values between engine and plugin.

Source: sdk/go/common/resource/sig of pulumi/pulumi.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SIGNATURE_KEY = "4dabf18193072939515e22adb298388d"
"""The key under which an object in Pulumi's protocol names its special kind, such as a secret."""

SECRET_SIGNATURE = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 - how one is marked


def as_secret(value: Any) -> dict[str, Any]:
    """Return ``value`` as Pulumi's engine reads a secret: encrypted in the state, and shown to nobody."""
    return {SIGNATURE_KEY: SECRET_SIGNATURE, "value": value}


def is_secret(value: Any) -> bool:
    """Return whether a value is one that :func:`as_secret` makes."""
    return isinstance(value, Mapping) and value.get(SIGNATURE_KEY) == SECRET_SIGNATURE
