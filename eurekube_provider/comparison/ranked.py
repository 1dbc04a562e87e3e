"""Enumerations whose members have an order."""

from __future__ import annotations

from enum import StrEnum


class RankedEnum(StrEnum):
    """An enumeration whose members are ordered as they are written."""

    @property
    def rank(self) -> int:
        """The index of this member, from 0."""
        return list(type(self)).index(self)
