"""A running program: what it does to the process that it runs in."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from eurekube_provider.resources.program import leave_quietly_when_interrupted


@pytest.fixture(autouse=True)
def interrupt() -> Iterator[None]:
    """Set back what the process does on SIGINT."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_program_of_its_own_process_leaves_quietly() -> None:
    """It handles SIGINT itself from then on."""
    before = signal.getsignal(signal.SIGINT)
    leave_quietly_when_interrupted()
    assert signal.getsignal(signal.SIGINT) is not before


def test_an_inline_program_leaves_signals_alone() -> None:
    """In another thread it neither fails nor changes what the process does on SIGINT."""
    before = signal.getsignal(signal.SIGINT)
    with ThreadPoolExecutor(1) as thread:
        thread.submit(leave_quietly_when_interrupted).result()
    assert signal.getsignal(signal.SIGINT) is before
