"""Pauses of Python's garbage collector."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

MADE_MEANWHILE = 20_000
"""The number of new objects after which the young ones are collected. Python's default is 700: one answer
of Eureka makes more, and the collection then delayed the writes that follow from the answer.
"""

_lock = threading.Lock()
_resting = 0


def settle_down() -> None:
    """Exempt all present objects from garbage collection, and collect rarely from now on.

    For a process that has made its long-lived objects. Most later ones are freed without the collector, which
    finds little in each of its rounds, however long they take.
    """
    gc.freeze()
    gc.set_threshold(MADE_MEANWHILE, *gc.get_threshold()[1:])


@contextmanager
def without_collection() -> Iterator[None]:
    """Pause the garbage collector while the block makes many objects at once, as from a long text.

    The collector would visit all of them, and now and then all objects of the process, and find no garbage:
    that takes up to twice the time of parsing the text. Any number of threads may be in such blocks at once;
    the collector resumes when the last one ends. If it was off before, it stays off.
    """
    global _resting  # noqa: PLW0603 - the collector is the process's
    with _lock:
        rests = _resting > 0 or gc.isenabled()
        if rests:
            _resting += 1
            gc.disable()
    try:
        yield
    finally:
        with _lock:
            if rests:
                _resting -= 1
                if not _resting:
                    gc.enable()
