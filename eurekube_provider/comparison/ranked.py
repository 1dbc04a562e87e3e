"""Words that stand in an order."""

from __future__ import annotations

from enum import StrEnum


class Ranked(StrEnum):
    """An enumeration whose members stand in their order, the first one first."""

    @property
    def rank(self) -> int:
        """The place of this member in the order, from 0."""
        return list(type(self)).index(self)
