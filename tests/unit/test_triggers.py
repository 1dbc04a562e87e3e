"""The webhook that is told of changed endpoints, against a real HTTP server."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from eurekube_provider.operator import triggers
from eurekube_provider.operator.settings import WebhookSettings
from eurekube_provider.operator.triggers import AppKey, Webhook
from lab.waiting import wait_until

KEY = ("shop", "rating")
OTHER = ("shop", "order")
SECRET = "key"


@dataclass
class Call:
    """A call as it arrived."""

    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> dict[str, Any]:
        """The body as JSON."""
        return dict(json.loads(self.body))

    @property
    def services(self) -> list[tuple[str, str, list[str]]]:
        """What it told of each Service."""
        return [(one["namespace"], one["app"], one["addresses"]) for one in self.document["services"]]


class Receiver:
    """A server that records calls and answers with the next of ``answers``, else with 204."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.answers: list[int] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                code = receiver.answers.pop(0) if receiver.answers else 204
                self.send_response(code)
                if code in (302, 307):
                    self.send_header("Location", "/elsewhere")
                self.end_headers()
                receiver.calls.append(Call(dict(self.headers), body))

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """End it."""
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Where the webhook leads."""
    running = Receiver()
    yield running
    running.stop()


@pytest.fixture
def addresses() -> dict[AppKey, list[str]]:
    """Where each Service can be called now."""
    return {KEY: ["10.0.0.1:80"], OTHER: []}


Start = Callable[..., Webhook]


@pytest.fixture
def start(
    receiver: Receiver, addresses: dict[AppKey, list[str]], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Start]:
    """Start webhooks that know the addresses of now and try again soon."""
    monkeypatch.setattr(triggers, "_FIRST_RETRY_SECONDS", 0.02)
    running: list[Webhook] = []

    def started(
        *services: str, debounce_seconds: float = 0.05, may_call: Callable[[], bool] = lambda: True
    ) -> Webhook:
        settings = WebhookSettings(receiver.url, SECRET, services, debounce_seconds)
        webhook = Webhook(settings, "eks", lambda key: addresses.get(key, []), may_call)
        webhook.start([KEY, OTHER])
        running.append(webhook)
        return webhook

    yield started
    for webhook in running:
        webhook.stop()


def test_a_changed_set_of_addresses_is_told(
    receiver: Receiver, addresses: dict[AppKey, list[str]], start: Start
) -> None:
    """The call names cluster, Service and its addresses now, sorted and each once."""
    webhook = start()
    addresses[KEY] = ["10.0.0.2:80", "10.0.0.1:80", "10.0.0.2:80"]
    webhook.touch(KEY)
    wait_until(lambda: receiver.calls, "the call", 5)
    document = receiver.calls[0].document
    assert receiver.calls[0].services == [("shop", "rating", ["10.0.0.1:80", "10.0.0.2:80"])]
    assert (document["event"], document["cluster"]) == ("EndpointsChanged", "eks")
    assert document["id"] == receiver.calls[0].headers["Idempotency-Key"]
    assert document["time"].endswith("Z")


def test_calls_are_signed(receiver: Receiver, addresses: dict[AppKey, list[str]], start: Start) -> None:
    """Whoever knows the key can prove that the body came from us."""
    webhook = start()
    addresses[KEY] = []
    webhook.touch(KEY)
    wait_until(lambda: receiver.calls, "the call", 5)
    expected = hmac.new(SECRET.encode(), receiver.calls[0].body, hashlib.sha256).hexdigest()
    assert receiver.calls[0].headers["X-Eurekube-Signature-256"] == f"sha256={expected}"


def test_the_signature_is_frozen() -> None:
    """Receivers verify exactly this."""
    assert triggers.signature("key", b"{}") == (
        "sha256=a777724d943eb48dc69bca8a4a6d57a04db3f9ec7e1de4e581e860265bdf3032"
    )


def test_what_did_not_change_is_not_told(
    receiver: Receiver, addresses: dict[AppKey, list[str]], start: Start
) -> None:
    """An event that leaves the set of addresses as it is calls nobody; a later change still does."""
    webhook = start()
    webhook.touch(KEY)
    addresses[OTHER] = ["10.0.0.9:80"]
    webhook.touch(OTHER)
    wait_until(lambda: receiver.calls, "the call", 5)
    assert receiver.calls[0].services == [("shop", "order", ["10.0.0.9:80"])]
    addresses[KEY] = ["10.0.0.2:80"]
    webhook.touch(KEY)
    wait_until(lambda: len(receiver.calls) == 2, "the second call", 5)
    assert receiver.calls[1].services == [("shop", "rating", ["10.0.0.2:80"])]


def test_many_changes_are_one_call(
    receiver: Receiver, addresses: dict[AppKey, list[str]], start: Start
) -> None:
    """What changes within the quiet time is told together, as it stands at the end."""
    webhook = start(debounce_seconds=0.3)
    for number in range(20):
        addresses[KEY] = [f"10.0.0.{number}:80"]
        webhook.touch(KEY)
    addresses[OTHER] = ["10.0.0.9:80"]
    webhook.touch(OTHER)
    wait_until(lambda: receiver.calls, "the call", 5)
    assert [call.services for call in receiver.calls] == [
        [("shop", "order", ["10.0.0.9:80"]), ("shop", "rating", ["10.0.0.19:80"])]
    ]


def test_endless_change_does_not_postpone_a_call_for_ever(
    receiver: Receiver, addresses: dict[AppKey, list[str]], start: Start
) -> None:
    """Where the endpoints never come to rest, the call comes all the same."""
    webhook = start(debounce_seconds=0.1)
    number = 0

    def called_while_changing() -> bool:
        nonlocal number
        number += 1
        addresses[KEY] = [f"10.0.0.{number}:80"]
        webhook.touch(KEY)
        return bool(receiver.calls)

    wait_until(called_while_changing, "a call in spite of the changes", 5)


@pytest.mark.parametrize("refusals", [[500], [503, 404, 302]])
def test_a_call_that_was_not_taken_is_repeated(
    receiver: Receiver, addresses: dict[AppKey, list[str]], start: Start, refusals: list[int]
) -> None:
    """Each try of one call has the same id and body, until one is answered with success."""
    webhook = start()
    receiver.answers = [*refusals]
    addresses[KEY] = []
    webhook.touch(KEY)
    wait_until(lambda: len(receiver.calls) == len(refusals) + 1, "the last try", 5)
    assert len({call.headers["Idempotency-Key"] for call in receiver.calls}) == 1
    assert len({call.body for call in receiver.calls}) == 1


def test_newer_changes_go_along_with_the_next_try(
    receiver: Receiver, addresses: dict[AppKey, list[str]], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a try that failed the next one says what holds then, under an id of its own."""
    monkeypatch.setattr(triggers, "_FIRST_RETRY_SECONDS", 0.4)
    webhook = start()
    receiver.answers = [500]
    addresses[KEY] = ["10.0.0.2:80"]
    webhook.touch(KEY)
    wait_until(lambda: receiver.calls, "the first try", 5)
    addresses[KEY], addresses[OTHER] = ["10.0.0.3:80"], ["10.0.0.9:80"]
    webhook.touch(OTHER)
    wait_until(lambda: len(receiver.calls) == 2, "the second try", 5)
    assert receiver.calls[1].services == [
        ("shop", "order", ["10.0.0.9:80"]),
        ("shop", "rating", ["10.0.0.3:80"]),
    ]
    assert receiver.calls[0].document["id"] != receiver.calls[1].document["id"]


def test_only_chosen_services_are_told(
    receiver: Receiver, addresses: dict[AppKey, list[str]], start: Start
) -> None:
    """Patterns of namespace and app say whom the webhook is told of."""
    webhook = start("*/order")
    addresses[KEY], addresses[OTHER] = [], ["10.0.0.9:80"]
    webhook.touch(KEY)
    webhook.touch(OTHER)
    wait_until(lambda: receiver.calls, "the call", 5)
    assert [call.services for call in receiver.calls] == [[("shop", "order", ["10.0.0.9:80"])]]


def test_a_standby_tells_what_it_saw_when_it_begins_to_lead(
    receiver: Receiver, addresses: dict[AppKey, list[str]], start: Start
) -> None:
    """Who led before may not have come to it; but what changed long ago was told."""
    leads = [False]
    webhook = start(may_call=lambda: leads[0])
    for key, address in ((OTHER, "10.0.0.8:80"), (KEY, "10.0.0.9:80")):
        addresses[key] = [address]
        webhook.touch(key)
        wait_until(lambda key=key: key in webhook._left, "the change to be seen", 10.0)  # type: ignore[misc]
    webhook._left[OTHER] -= triggers.REMEMBERED_SECONDS
    assert receiver.calls == []
    leads[0] = True
    webhook.lead()
    wait_until(lambda: receiver.calls, "the call", 10.0)
    (call,) = receiver.calls
    assert call.services == [(*KEY, ["10.0.0.9:80"])]
