"""Pauses of Python's garbage collector."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

COLLECTION_THRESHOLD_OBJECTS = 20_000
"""The number of new objects that starts a collection of the youngest generation. Python's default is 700: one
answer of Eureka makes more, and the collection then delayed the writes that follow from the answer.
"""

_pause_lock = threading.Lock()
_pause_count = 0


def freeze_objects_and_collect_rarely() -> None:
    """Exempt all present objects from garbage collection, and collect rarely from now on.

    For a process that has made its long-lived objects. Most later ones are freed without the collector, which
    finds little in each of its rounds, however long they take.
    """
    gc.freeze()
    gc.set_threshold(COLLECTION_THRESHOLD_OBJECTS, *gc.get_threshold()[1:])


@contextmanager
def pause_collection() -> Iterator[None]:
    """Pause the garbage collector while the block makes many objects at once, as from a long text.

    The collector would visit all of them, and now and then all objects of the process, and find no garbage:
    that takes up to twice the time of parsing the text. Any number of threads may be in such blocks at once;
    the collector resumes when the last one ends. If it was off before, it stays off.
    """
    global _pause_count  # noqa: PLW0603 - the collector is the process's
    with _pause_lock:
        rests = _pause_count > 0 or gc.isenabled()
        if rests:
            _pause_count += 1
            gc.disable()
    try:
        yield
    finally:
        with _pause_lock:
            if rests:
                _pause_count -= 1
                if not _pause_count:
                    gc.enable()
