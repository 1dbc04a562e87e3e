"""The webhook target against a real HTTP server: signatures, retries and time-outs."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from eurekube_provider.core.stack_refresh import StackAction
from eurekube_provider.operator.triggers import webhook
from eurekube_provider.operator.triggers.targets import (
    StackRun,
    StackRunOutcome,
    StackRunResult,
    Webhook,
    WebhookFormat,
)
from eurekube_provider.operator.triggers.webhook import signature, timed_signature, webhook_runner

SECRET = "key"
DRIP = -1


@dataclass
class Call:
    """A received call."""

    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> dict[str, Any]:
        """The body as JSON."""
        return dict(json.loads(self.body))


class Receiver:
    """A server that records calls and answers with the next of ``answers``, else with 204; 0 stands for no
    answer, and
    :data:`DRIP` for an endless header.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.answers: list[int] = []
        self.sends_hints = False
        self.released = threading.Event()
        self.drips_ended = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.calls.append(Call(dict(self.headers), body))
                code = receiver.answers.pop(0) if receiver.answers else 204
                if code == DRIP:
                    self.wfile.write(b"HTTP/1.1 204 No Content\r\n")
                    with suppress(OSError):
                        while not receiver.released.wait(0.05):
                            self.wfile.write(b"X-Drip: x\r\n")
                    receiver.drips_ended.set()
                    return
                if code == 0:
                    receiver.released.wait(30)
                    return
                if receiver.sends_hints:
                    self.wfile.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")
                self.send_response(code)
                if code in (302, 307):
                    self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?token=hidden"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """Stop the server."""
        self.released.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Yield a running server, and stop it after the test."""
    running = Receiver()
    yield running
    running.stop()


def run(timeout_seconds: float = 10.0, addresses: dict[str, tuple[str, ...]] | None = None) -> StackRun:
    """Return a request for a run."""
    return StackRun(
        namespace="shop",
        name="rating",
        action=StackAction.UP,
        cluster="eks",
        addresses=addresses or {"shop/rating": ("10.0.0.1:80", "10.0.0.2:80")},
        idempotency_key="abc",
        attempt=1,
        timeout_seconds=timeout_seconds,
        cancelled=threading.Event(),
    )


def called(receiver: Receiver, asked: StackRun | None = None, **more: Any) -> StackRunResult:
    """Call the receiver with short pauses between tries, and return the result."""
    return webhook_runner(Webhook(receiver.url, SECRET, **more), first_retry_seconds=0.02)(asked or run())


def test_a_call_says_everything(receiver: Receiver) -> None:
    """The body names the cluster, StackRefresh, action and addresses; its id is the idempotency key."""
    assert called(receiver) == StackRunResult(StackRunOutcome.SUCCEEDED, "the call was taken")
    (call,) = receiver.calls
    document = call.document
    assert document == {
        "id": "abc",
        "event": "StackRefresh",
        "cluster": "eks",
        "namespace": "shop",
        "name": "rating",
        "action": "Up",
        "services": [
            {
                "namespace": "shop",
                "name": "rating",
                "ready": 2,
                "addresses": ["10.0.0.1:80", "10.0.0.2:80"],
            }
        ],
    }
    assert call.headers["Idempotency-Key"] == "abc"


def test_calls_are_signed(receiver: Receiver) -> None:
    """The header has an HMAC of the body, which a receiver with the key can verify."""
    called(receiver)
    expected = hmac.new(SECRET.encode(), receiver.calls[0].body, hashlib.sha256).hexdigest()
    assert receiver.calls[0].headers["X-Eurekube-Signature-256"] == f"sha256={expected}"


def test_the_signature_is_frozen() -> None:
    """The signature of a fixed body must not change, since receivers verify its form."""
    assert signature("key", b"{}") == (
        "sha256=a777724d943eb48dc69bca8a4a6d57a04db3f9ec7e1de4e581e860265bdf3032"
    )


def test_a_repository_dispatch(receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call has GitHub's form and the configured token, not a netrc's, and stays small with many
    addresses.
    """
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login other password other\n")
    monkeypatch.setenv("NETRC", str(netrc))
    hosts = tuple(f"10.0.{number // 250}.{number % 250}:80" for number in range(10_000))
    many = run(addresses={f"shop/{number}": hosts for number in range(200)})
    called(receiver, many, form=WebhookFormat.REPOSITORY_DISPATCH, authorization="Bearer t0ken")
    (call,) = receiver.calls
    assert call.headers["Authorization"] == "Bearer t0ken"
    assert call.document["event_type"] == "eurekube-refresh"
    payload = call.document["client_payload"]
    assert (payload["id"], payload["action"], len(payload)) == ("abc", "Up", 7)
    assert payload["services"][0] == {"namespace": "shop", "name": "0", "ready": 10_000}
    assert len(call.body) < 60_000


@pytest.mark.parametrize("refusals", [[500], [503, 429, 502], [408, 409]])
def test_a_call_that_was_not_taken_is_repeated(receiver: Receiver, refusals: list[int]) -> None:
    """Each retry has the same key and body, until one succeeds."""
    receiver.answers = [*refusals]
    assert called(receiver).message == f"the call was taken at the try no. {len(refusals) + 1}"
    assert len(receiver.calls) == len(refusals) + 1
    assert {call.headers["Idempotency-Key"] for call in receiver.calls} == {"abc"}
    assert len({call.body for call in receiver.calls}) == 1


def test_an_interim_answer_takes_no_call(receiver: Receiver) -> None:
    """Hints that come before a refusal are no success."""
    receiver.sends_hints, receiver.answers = True, [404]
    result = called(receiver)
    assert result.outcome is StackRunOutcome.FAILED
    assert "it answered 404" in result.message


@pytest.mark.parametrize("answer", [302, 307, 400, 401, 404])
def test_a_call_that_is_not_wanted_fails_at_once(receiver: Receiver, answer: int) -> None:
    """A redirect or a client error is not retried, and the message does not show the URL."""
    receiver.answers = [answer]
    result = called(receiver)
    assert result.outcome is StackRunOutcome.FAILED
    assert f"it answered {answer}" in result.message
    assert "hidden" not in result.message
    assert len(receiver.calls) == 1


def test_the_deadline_ends_the_tries(receiver: Receiver) -> None:
    """A server that keeps failing is called until the run's time-out."""
    receiver.answers = [500] * 1000
    began = time.monotonic()
    result = called(receiver, run(timeout_seconds=1.0))
    assert time.monotonic() - began < 5
    assert result.outcome is StackRunOutcome.FAILED
    assert result.message.startswith(f"the webhook was called {len(receiver.calls)} times")


def test_a_server_that_is_silent(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call without an answer ends after a time-out, and the next one may succeed."""
    monkeypatch.setattr(webhook, "LONGEST_CALL_SECONDS", 0.3)
    receiver.answers = [0]
    assert called(receiver).message == "the call was taken at the try no. 2"


def test_nobody_listens() -> None:
    """The message gives the kind of error without the URL, which may be a secret."""
    nobody = Webhook("http://127.0.0.1:9/hidden", SECRET)
    result = webhook_runner(nobody, first_retry_seconds=0.05)(run(timeout_seconds=0.2))
    assert result.outcome is StackRunOutcome.FAILED
    assert "no answer (ConnectionError)" in result.message
    assert "hidden" not in result.message


def test_an_operator_that_ends_gives_up(receiver: Receiver) -> None:
    """A cancelled run does not wait for the next try."""
    receiver.answers = [500] * 10
    asked = run(timeout_seconds=60.0)
    asked.cancelled.set()
    result = webhook_runner(Webhook(receiver.url, SECRET), first_retry_seconds=30.0)(asked)
    assert result.message == "given up, since the operator ends"


def test_an_answer_that_drips_keeps_no_call(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """An endless answer that arrives byte by byte is cut off after the time-out, and counts as failed."""
    monkeypatch.setattr(webhook, "LONGEST_CALL_SECONDS", 0.5)
    receiver.answers = [DRIP]
    assert called(receiver).message == "the call was taken at the try no. 2"
    assert receiver.drips_ended.wait(20)
    assert not receiver.released.is_set()
    receiver.answers = [DRIP] * 1000
    result = called(receiver, run(timeout_seconds=1.0))
    assert result.outcome is StackRunOutcome.FAILED
    assert "no whole answer within" in result.message


def test_an_operator_that_ends_waits_for_no_answer(receiver: Receiver) -> None:
    """A cancelled run ends at once, also during an endless answer or none."""
    for answer in (DRIP, 0):
        receiver.answers, asked = [answer], run(timeout_seconds=600.0)
        threading.Timer(0.3, asked.cancelled.set).start()
        began = time.monotonic()
        assert called(receiver, asked).message == "given up, since the operator ends"
        assert time.monotonic() - began < 5


def test_the_same_key_has_the_same_body(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later call with the same key repeats the body; only the timed signature differs."""
    called(receiver)
    later = time.time() + 3600
    monkeypatch.setattr(time, "time", lambda: later)
    called(receiver)
    first, second = receiver.calls
    assert first.body == second.body
    signed = second.headers["X-Eurekube-Signature"]
    assert signed == timed_signature(SECRET, second.body, int(later))
    assert signed != first.headers["X-Eurekube-Signature"]
    of_time = hmac.new(SECRET.encode(), f"{int(later)}.".encode() + second.body, hashlib.sha256).hexdigest()
    assert signed == f"t={int(later)},v1={of_time}"


def test_a_header_that_cannot_be_sent_is_not_shown(receiver: Receiver) -> None:
    """The HTTP library's error contains the header; the result does not, and the call is not retried."""
    result = called(receiver, authorization="Bearer hidden\nother")
    assert result.outcome is StackRunOutcome.FAILED
    assert result.message.startswith("the webhook was called once and took nothing: ")
    assert "hidden" not in result.message
    assert receiver.calls == []
