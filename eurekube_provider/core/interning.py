"""Interning of texts: ten thousand instances repeat the same few.

Not ``sys.intern``: what it was given once stays for ever on Python 3.12.0 to 3.12.6, and metadata that change
with each rollout would fill the memory.
"""

from functools import lru_cache

MOST_INTERNED = 16_384
"""Texts that are remembered; what was not asked for longest is forgotten first."""


@lru_cache(maxsize=MOST_INTERNED)
def interned(text: str) -> str:
    """Return a text that is equal to this one, and one object for all that ask."""
    return text
