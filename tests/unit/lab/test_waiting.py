"""Readiness checks of the lab's servers."""

from __future__ import annotations

import gc
import itertools
import socket
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from lab.waiting import growing_pauses_seconds, is_answered_ok


class Answering(BaseHTTPRequestHandler):
    """A handler that answers with the status in the path."""

    def do_GET(self) -> None:
        """Answer with the status and a word."""
        self.send_response(int(self.path[1:]))
        self.end_headers()
        self.wfile.write(b"word")

    def log_message(self, *_: object) -> None:
        """Log nothing, as standard error is for failures."""


@pytest.fixture
def port() -> Iterator[int]:
    """Yield a server's port."""
    with HTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("status", "expected"), [(200, True), (202, False), (403, False), (500, False)])
def test_only_200_is_ready(port: int, status: int, expected: bool) -> None:
    """Only status 200 counts as ready, and a check leaves no connection open."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    assert is_answered_ok(opener, f"http://127.0.0.1:{port}/{status}") is expected
    gc.collect()  # warns of what is open


def test_nobody_there_is_not_ready() -> None:
    """A refused connection counts as not ready, and raises no error."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert not is_answered_ok(urllib.request.build_opener(), f"http://127.0.0.1:{port}/")


def test_checks_are_frequent_at_first_and_rare_in_the_end() -> None:
    """The pauses between checks grow from at most 0.02 s to 0.25 s."""
    pauses = list(itertools.islice(growing_pauses_seconds(), 40))
    assert pauses[0] <= 0.02
    assert pauses == sorted(pauses)
    assert sum(pauses[:10]) < 1.0
    assert max(pauses) == 0.25
