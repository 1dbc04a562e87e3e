"""Wording of lists and of unknown names in messages, and the other way in which names are written."""

import difflib
import re
from collections.abc import Iterable, Sequence


def listed(texts: Sequence[str], most: int) -> str:
    """List the first texts, and how many more there are: ``a, b and 4 more``."""
    rest = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {rest} more" if rest > 0 else "")


def nearest(name: str, known: Iterable[str]) -> str:
    """Say what an unknown name may have meant: ``port is one``, or ``there are host, port``."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    return f"{near[0]} is one" if near else f"there are {', '.join(names)}"


def camel_case(name: str) -> str:
    """Write ``match_labels`` as ``matchLabels``."""
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)
