"""When Python's garbage collector rests."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

MADE_MEANWHILE = 20_000
"""How many more objects there are before the young ones are collected again. Python's default is 700: one
answer of Eureka makes more, and the collection then came between it and the writes that follow from it."""

_lock = threading.Lock()
_resting = 0


def settle_down() -> None:
    """Have the collector leave alone what there is by now, and come seldom from now on.

    For a process that has made what it works with. What it makes from then on is mostly freed without the
    collector, which finds little in each of its rounds, however long they take.
    """
    gc.freeze()
    gc.set_threshold(MADE_MEANWHILE, *gc.get_threshold()[1:])


@contextmanager
def without_collection() -> Iterator[None]:
    """Have the garbage collector rest while the block makes many objects at once, as from a long text.

    It would go through all of them, and now and then through all that the process holds, to find none that is
    garbage: up to twice the time of reading the text. Any number of threads may be within at once; it goes on
    with the end of the last one. Where it was off already it stays off.
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
