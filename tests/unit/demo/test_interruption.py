"""Signals that interrupt the demo between two steps only."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from eurekube_provider.demo.interruption import Interrupted, InterruptionHandler


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_raised_by_the_next_pause(number: signal.Signals) -> None:
    """A signal raises Interrupted at the next pause and not before, so that a started step completes."""
    with InterruptionHandler() as interruption:
        interruption.pause(0.01)
        signal.raise_signal(number)
        time.sleep(0.01)
        is_complete = True
        with pytest.raises(Interrupted):
            interruption.pause()
    assert is_complete


def test_a_signal_ends_a_long_pause() -> None:
    """A signal during a long pause ends the pause at once."""
    sender = threading.Timer(0.1, signal.raise_signal, (signal.SIGINT,))
    with InterruptionHandler() as interruption:
        began = time.monotonic()
        sender.start()
        with pytest.raises(Interrupted):
            interruption.pause(60)
    sender.join()
    assert time.monotonic() - began < 30


def test_later_signals_do_not_disturb_the_clearing_up() -> None:
    """Further signals during the clean-up are ignored; afterwards the former handlers are restored."""
    before = signal.getsignal(signal.SIGTERM)
    with InterruptionHandler() as interruption:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(Interrupted):
            interruption.pause()
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
