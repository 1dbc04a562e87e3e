"""Signals that end a process."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import signal, threading
from eurekube_provider.runtime.signals import stop_event_on_signals

stop = stop_event_on_signals()
with stop._cond:  # as within wait(), when a signal comes at the wrong moment
    signal.raise_signal(signal.{name})
assert stop.wait(10)
print("ended")
"""


def test_a_signal_at_any_moment_ends_it() -> None:
    """A signal ends the process even if it arrives while the waiting thread holds the event's lock."""
    for name in ("SIGTERM", "SIGINT"):
        program = [sys.executable, "-c", PROGRAM.format(name=name)]
        done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout == "ended\n"
