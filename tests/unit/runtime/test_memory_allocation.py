"""The settings of the C library's memory allocator."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace

import pytest

from eurekube_provider.runtime.memory_allocation import give_back_freed_memory


def test_there_is_one_heap_and_large_blocks_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Linux glibc is told to keep one heap, and to map large blocks by themselves."""
    told: list[tuple[int, int]] = []
    library = SimpleNamespace(mallopt=lambda option, value: told.append((option, value)))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    give_back_freed_memory()
    assert told == [(-8, 1), (-3, 128 * 1024)]


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_another_library_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    """A C library without these settings, such as musl, is no error."""
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace())
    give_back_freed_memory()
