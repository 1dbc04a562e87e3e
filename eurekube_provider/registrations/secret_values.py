"""Pulumi's marks of secret values between engine and plugin.

Source: sdk/go/common/resource/sig of pulumi/pulumi.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

SIGNATURE_KEY = "4dabf18193072939515e22adb298388d"
"""The key under which an object in Pulumi's protocol names its special kind, such as a secret."""

SECRET_SIGNATURE = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 - how one is marked

OUTPUT_SIGNATURE = "d0e6a833031e9bbcd3f4e8bde6ca49a4"
"""The mark of a value that may be unknown or a secret."""


def as_secret(value: Any) -> dict[str, Any]:
    """Return ``value`` as Pulumi's engine reads a secret: encrypted in the state, and shown to nobody."""
    return {SIGNATURE_KEY: SECRET_SIGNATURE, "value": value}


def is_secret(value: Any) -> bool:
    """Return whether a value is one that :func:`as_secret` makes."""
    return isinstance(value, Mapping) and value.get(SIGNATURE_KEY) == SECRET_SIGNATURE


def secret_texts(value: Any, *, is_within_secret: bool = False) -> Iterator[str]:
    """Yield the texts in a value that are secrets, or parts of one."""
    if isinstance(value, Mapping):
        kind = value.get(SIGNATURE_KEY)
        if kind in (SECRET_SIGNATURE, OUTPUT_SIGNATURE):
            is_within_secret = is_within_secret or kind == SECRET_SIGNATURE or bool(value.get("secret"))
            yield from secret_texts(value.get("value"), is_within_secret=is_within_secret)
            return
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from secret_texts(item, is_within_secret=is_within_secret)
    elif is_within_secret and isinstance(value, str):
        yield value
