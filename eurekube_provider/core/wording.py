"""The wording of lists, numbers and unknown names in messages, and the conversion of names to camel case."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

MAX_JOINED_SENTENCES = 3
"""The most sentences of one kind in a message; the rest is counted."""


def format_list(texts: Sequence[str], limit: int) -> str:
    """List the first texts, and how many more there are: ``a, b and 4 more``."""
    rest = len(texts) - limit
    return ", ".join(texts[:limit]) + (f" and {rest} more" if rest > 0 else "")


def join_sentences(sentences: Sequence[str], what: str = "more") -> str:
    """Join the first few sentences, and say how many more there are: ``a; b; c; and 2 more``."""
    rest = len(sentences) - MAX_JOINED_SENTENCES
    return "; ".join(sentences[:MAX_JOINED_SENTENCES]) + (f"; and {rest} {what}" if rest > 0 else "")


def format_count(number: int, noun: str = "instance", *, grouped: bool = False) -> str:
    """Return a number with its noun, whose plural ends in s: ``1 instance``, ``2 instances``.

    :param grouped: True if thousands are set apart: ``1,000 instances``.
    """
    digits = f"{number:,}" if grouped else str(number)
    return f"{digits} {noun}" if number == 1 else f"{digits} {noun}s"


def suggest_name(name: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown name: its closest match (``port is one``) or all (``there are a, b``)."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    return f"{near[0]} is one" if near else f"there are {', '.join(names)}"


def camel_case(name: str) -> str:
    """Return ``match_labels`` as ``matchLabels``."""
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)
