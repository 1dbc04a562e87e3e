"""A problem: a fault of one object, and its remedy.

Within a process a problem is this value. Outside, as a condition's message, an Event or JSON, it is one text:
:attr:`Problem.text` writes it, and :meth:`Problem.of` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

_REMEDY_SEPARATOR = "; to fix it: "


@dataclass(frozen=True, slots=True)
class Problem:
    """The reason of a condition and its message: mostly a fault, and its remedy.

    :ivar reason: one word, by which tables look up more about the problem.
    :ivar message: a sentence.
    :ivar remedy: the remedy; empty where none is known, and where nothing is wrong.
    """

    reason: str
    message: str
    remedy: str = ""

    @classmethod
    def of(cls, condition: Mapping[str, Any]) -> Problem:
        """Read a problem from a condition of any object; missing parts are empty."""
        message, _, remedy = str(condition.get("message") or "").partition(_REMEDY_SEPARATOR)
        return cls(str(condition.get("reason") or ""), message, remedy)

    @property
    def text(self) -> str:
        """The text of the problem in a condition's message. Its form is frozen, since other replicas and
        versions read it.
        """
        return f"{self.message}{_REMEDY_SEPARATOR}{self.remedy}" if self.remedy else self.message

    def __str__(self) -> str:
        """Return reason and message, without the remedy."""
        return f"{self.reason}: {self.message}"

    def with_remedy(self, remedies: Mapping[str, str]) -> Problem:
        """Return the problem with its own remedy, else with the one that a table has for its reason."""
        return self if self.remedy else replace(self, remedy=remedies.get(self.reason, ""))
