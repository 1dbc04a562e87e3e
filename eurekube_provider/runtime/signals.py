"""A stop event for processes that run until SIGTERM or SIGINT."""

from __future__ import annotations

import os
import signal
import threading


def stop_event_on_signals() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set from now on. Call it on the main thread, once in a process.

    A signal handler runs on the main thread between any two of its steps, even while that thread holds the
    event's own lock. So the handler only writes a byte, and another thread sets the event.
    """
    stop = threading.Event()
    reader, writer = os.pipe()

    def wait_for_signal() -> None:
        os.read(reader, 1)
        stop.set()

    threading.Thread(target=wait_for_signal, name="signals", daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os.write(writer, b"."))
    return stop
