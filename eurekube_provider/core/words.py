"""How lists are told to a person."""

from __future__ import annotations

from collections.abc import Sequence


def listed(texts: Sequence[str], most: int) -> str:
    """The first few, and how many more there are: ``a, b and 4 more``."""
    rest = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {rest} more" if rest > 0 else "")
