"""A problem: something that is wrong with one thing, and what fixes it.

It is this value throughout a process. What leaves the process, as a condition's message, an Event or JSON, is
one text: :attr:`Problem.text` writes it, and :meth:`Problem.of` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

_SEPARATOR = "; to fix it: "


@dataclass(frozen=True, slots=True)
class Problem:
    """The reason of a condition and its message: mostly something that is wrong, and what fixes it.

    :ivar reason: one word, by which tables have what is to be known of it.
    :ivar message: a sentence.
    :ivar remedy: the remedy; empty where none is known, and where nothing is wrong.
    """

    reason: str
    message: str
    remedy: str = ""

    @classmethod
    def of(cls, condition: Mapping[str, Any]) -> Problem:
        """Read a condition, of whatever object; what it lacks is empty."""
        message, _, remedy = str(condition.get("message") or "").partition(_SEPARATOR)
        return cls(str(condition.get("reason") or ""), message, remedy)

    @property
    def text(self) -> str:
        """The message of a condition that says it: frozen, since other replicas and versions read it."""
        return f"{self.message}{_SEPARATOR}{self.remedy}" if self.remedy else self.message

    def __str__(self) -> str:
        """Return reason and message, without what fixes it."""
        return f"{self.reason}: {self.message}"

    def with_remedy(self, remedies: Mapping[str, str]) -> Problem:
        """Return it with what fixes it: what it knows itself, else what a table has by its reason."""
        return self if self.remedy else replace(self, remedy=remedies.get(self.reason, ""))
