"""The signals that end a process that would run for ever."""

import os
import signal
import threading


def stopping() -> threading.Event:
    """An event that SIGTERM and SIGINT set from now on. On the main thread, once in a process.

    A handler runs on the main thread between any two of its steps, also while that holds the event's own
    lock; it only writes a byte here, and another thread sets the event.
    """
    stop = threading.Event()
    reader, writer = os.pipe()

    def listen() -> None:
        os.read(reader, 1)
        stop.set()

    threading.Thread(target=listen, name="signals", daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os.write(writer, b"."))
    return stop
