"""A plain HTTP client in a pod: it knows a URL, and nothing of Eureka or Kubernetes.

Run as a script (`python -I -S http_caller.py FILE CALLS_A_SECOND WAY,APPLICATION,URL ...`), without any other
module of the lab. `new` looks the name up and connects for each call, as `urllib` does. `open` keeps its
connection, as pools do, and where that was closed between two calls it sends the call again on a new one, as
pools do too. Each call becomes a line of the file: when it began (milliseconds since 1970), the way, the
application, who answered, milliseconds, and `ok`, `ok again` (on a new connection) or the error.
"""

import http.client
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TextIO
from urllib.parse import urlsplit

_TIMEOUT_SECONDS = 3.0
_file_lock = threading.Lock()

_MakeCall = Callable[[], tuple[str, str]]
"""A function that makes one call, and returns the text of the answer and the call's outcome."""


def _caller_on_new_connections(url: str) -> _MakeCall:
    """Return a function that calls a URL, each time on a new connection."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def call() -> tuple[str, str]:
        with opener.open(url, timeout=_TIMEOUT_SECONDS) as answer:
            return answer.read().decode().strip(), "ok"

    return call


def _caller_on_open_connection(url: str) -> _MakeCall:
    """Return a function that calls a URL on one connection, and again on a new one where that has ended."""
    parts = urlsplit(url)
    connection: http.client.HTTPConnection | None = None

    def ask() -> str:
        nonlocal connection
        if connection is None:
            connection = http.client.HTTPConnection(parts.netloc, timeout=_TIMEOUT_SECONDS)
        try:
            connection.request("GET", parts.path or "/")
            return connection.getresponse().read().decode().strip()
        except (OSError, http.client.HTTPException):
            connection.close()
            connection = None
            raise

    def call() -> tuple[str, str]:
        was_open = connection is not None
        try:
            return ask(), "ok"
        except (OSError, http.client.HTTPException):
            if not was_open:
                raise
            return ask(), "ok again"

    return call


_CALLER_MAKER_BY_WAY = {"new": _caller_on_new_connections, "open": _caller_on_open_connection}


def _call_repeatedly(way: str, application: str, url: str, pause_seconds: float, file: TextIO) -> None:
    """Call a URL again and again, and write each call into the file."""
    call = _CALLER_MAKER_BY_WAY[way](url)
    following = time.monotonic()
    while True:
        began = time.time()
        target = ""
        try:
            target, outcome = call()
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            outcome = " ".join(f"{type(reason).__name__} {reason}".replace(",", " ").split())
        took = round((time.time() - began) * 1000)
        with _file_lock:
            file.write(f"{round(began * 1000)},{way},{application},{target},{took},{outcome}\n")
            file.flush()
        following = max(following + pause_seconds, time.monotonic())
        time.sleep(max(0.0, following - time.monotonic()))


def main(path: str, per_second: str, *orders: str) -> None:
    """Make the calls of all orders, `WAY,APPLICATION,URL`, side by side, until the process is ended."""
    with Path(path).open("w", encoding="utf-8") as file:
        threads = [
            threading.Thread(
                target=_call_repeatedly, args=(*order.split(",", 2), 1 / float(per_second), file)
            )
            for order in orders
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
