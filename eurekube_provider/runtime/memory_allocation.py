"""The settings of the C library's memory allocator for a process that runs for months."""

from __future__ import annotations

import sys
from contextlib import suppress

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
"""The numbers of glibc's settings in ``malloc.h``."""

_MAPPED_FROM_BYTES = 128 * 1024
"""The size from which a block is a mapping of its own, which the system gets back with the block: glibc's
default, which glibc raises with each larger block that is freed, up to 32 MiB, unless it is set.
"""


def give_back_freed_memory() -> None:
    """Have the C library give freed memory back to the system; call before threads are started.

    By default glibc keeps the memory of large answers for the next ones, and has a heap for each of several
    threads. At 10,000 instances that is 16 MiB. One heap is enough for threads of which one runs at a time.
    Other C libraries have no such settings.
    """
    if sys.platform != "linux":
        return
    with suppress(ImportError, OSError, AttributeError):  # as in a Python without a C library to load
        import ctypes

        set_option = ctypes.CDLL(None).mallopt
        set_option(_M_ARENA_MAX, 1)
        set_option(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)
