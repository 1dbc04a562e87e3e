"""The endpoint by which Eureka servers send each other batches of changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eurekube_provider.core.model import Status
from eurekube_provider.eureka.batches import register_copies_at
from eurekube_provider.eureka.protocol import batch
from eurekube_provider.eureka.protocol.peer import Peer
from tests.contract.conftest import DATA_CENTER, Server, document, item, one, rating
from tests.server_fields import without_server_fields


def registering(app: str, **fields: Any) -> dict[str, Any]:
    """Return a batch item that registers an application's document."""
    return item("Register", app, instanceInfo=document(app, **fields), status="UP", lastDirtyTimestamp=2000)


def test_answers_come_in_order(server: Server, app: str) -> None:
    """The answers have the order of the items, and a failed item does not stop the others."""
    other = f"{app}-other"
    assert server.codes(
        item("Heartbeat", app),
        registering(app),
        item("Heartbeat", app),
        item("Cancel", other),
        item("Cancel", app),
    ) == [404, 200, 200, 404, 200]


def test_an_empty_batch(server: Server) -> None:
    """An empty batch succeeds, so that it can test whether batches are allowed."""
    assert server.codes() == []


def test_an_unknown_field_fails_the_whole_batch(server: Server, app: str) -> None:
    """If one item has a field that the server does not know, the batch is answered with 400 and nothing in
    it is done.
    """
    assert (
        server.batch(registering(app), {**item("Heartbeat", app), "fieldOfALaterEureka": 1}).status_code
        == 400
    )
    assert server.get(app) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"dataCenterInfo": {**DATA_CENTER, "fieldOfALaterEureka": 1}},
        {"port": {"$": 80, "@enabled": "true", "fieldOfALaterEureka": 1}},
    ],
    ids=["data centre", "port"],
)
def test_an_unknown_field_deep_in_an_instance_fails_it_too(
    server: Server, app: str, fields: dict[str, Any]
) -> None:
    """Data centres and ports are parsed strictly: one odd instance makes the whole batch fail."""
    assert server.batch(registering(f"{app}-good"), registering(app, **fields)).status_code == 400
    assert server.get(f"{app}-good") is None


def test_an_unknown_field_of_an_instance_is_passed_over(server: Server, app: str) -> None:
    """The server accepts unknown fields of an instance, in a batch as in a plain registration."""
    assert server.codes(registering(app, fieldOfALaterEureka=1)) == [200]
    assert server.status(app) == "UP"


def test_a_registration_that_is_refused_answers_success(server: Server, app: str) -> None:
    """A registration without a data centre is answered with 200 and not stored: our code therefore reads
    afterwards.
    """
    assert server.codes(registering(app, dataCenterInfo=None)) == [200]
    assert server.get(app) is None


def test_an_item_that_makes_no_sense_is_a_500(server: Server, app: str) -> None:
    """An item without an application is answered with 500, and the other items are carried out."""
    broken = {key: value for key, value in item("Heartbeat", app).items() if key != "appName"}
    assert server.codes(broken, registering(app)) == [500, 200]


def test_a_heartbeat_with_an_older_timestamp_reads(server: Server, app: str) -> None:
    """A heartbeat with an older timestamp is answered with 409 and the instance that the server holds: our
    way to read many instances past all caches.
    """
    server.register(document(app, lastDirtyTimestamp="2000", metadata={"a": "1"}))
    answer = server.batch(item("Heartbeat", app, lastDirtyTimestamp=1, status="UP")).json()["responseList"][0]
    assert answer["statusCode"] == 409
    assert answer["responseEntity"]["lastDirtyTimestamp"] == "2000"
    assert answer["responseEntity"]["metadata"] == {"a": "1"}


@pytest.mark.parametrize(("timestamp", "code"), [(2000, 200), (None, 200), (2001, 404)])
def test_a_heartbeat_with_another_timestamp(
    server: Server, app: str, timestamp: int | None, code: int
) -> None:
    """A heartbeat with an equal timestamp or none renews; a newer one is answered with 404, so that the
    sender registers again.
    """
    server.register(document(app, lastDirtyTimestamp="2000"))
    assert server.codes(item("Heartbeat", app, lastDirtyTimestamp=timestamp, status="UP")) == [code]


def test_a_removal_and_a_status(server: Server, app: str) -> None:
    """Items can set a status, clear it, and remove an instance."""
    server.register(document(app))
    update = item("StatusUpdate", app, status="OUT_OF_SERVICE", lastDirtyTimestamp=2000)
    assert server.codes(update) == [200]
    assert server.overridden(app) == ("OUT_OF_SERVICE", "OUT_OF_SERVICE")
    assert server.codes(item("DeleteStatusOverride", app, status="UP", lastDirtyTimestamp=2000)) == [200]
    assert server.overridden(app) == ("UP", "UNKNOWN")
    assert server.codes(item("Cancel", app), item("Cancel", app)) == [200, 404]


def test_clearing_a_status_needs_a_timestamp(server: Server, app: str) -> None:
    """Without a timestamp the item that clears a status is answered with 500."""
    server.register(document(app))
    assert server.codes(item("DeleteStatusOverride", app, status="UP")) == [500]


def test_a_registration_skips_the_rule_that_keeps_a_status(server: Server, app: str) -> None:
    """In a batch UP replaces OUT_OF_SERVICE, because the registration counts as another server's."""
    server.register(document(app, status="OUT_OF_SERVICE", lastDirtyTimestamp="1999"))
    assert server.codes(registering(app, lastDirtyTimestamp="2000")) == [200]
    assert server.status(app) == "UP"


def test_a_registration_in_a_batch_brings_its_override(server: Server, app: str) -> None:
    """A registration in a batch may carry an override, so that a restarted server learns it from a peer."""
    sent = registering(app, status="OUT_OF_SERVICE", overriddenStatus="OUT_OF_SERVICE")
    assert server.codes(sent) == [200]
    assert server.overridden(app) == ("OUT_OF_SERVICE", "OUT_OF_SERVICE")
    server.register(document(app, status="UP"))
    assert server.overridden(app) == ("OUT_OF_SERVICE", "OUT_OF_SERVICE")


def test_an_override_holds_against_a_registration_in_a_batch(server: Server, app: str) -> None:
    """If the server has an override, a batch item without one does not clear it."""
    server.register(document(app, lastDirtyTimestamp="1999"))
    server.put_status(app, "OUT_OF_SERVICE")
    assert server.codes(registering(app, lastDirtyTimestamp="2000")) == [200]
    assert server.overridden(app) == ("OUT_OF_SERVICE", "OUT_OF_SERVICE")


def test_our_batches_are_understood(peer: Peer, app: str) -> None:
    """Each kind of item that our code sends has the intended effect on a real server."""
    instance = rating(
        app,
        metadata={"eurekube.owner": "cluster/a/b/c", "é": "ü"},
        last_dirty_timestamp_ms=2000,
        unknown_fields={"fieldOfALaterEureka": 1},
    )
    assert peer.send_batch([batch.heartbeat_item(instance)]) == [batch.ItemResponse(404)]
    assert peer.send_batch([batch.registration_item(instance)]) == [batch.ItemResponse(200)]
    assert peer.send_batch([batch.heartbeat_item(instance)]) == [batch.ItemResponse(200)]
    (answer,) = peer.send_batch([batch.heartbeat_item(instance, batch.READ_BY_HEARTBEAT_TIMESTAMP_MS)])
    assert answer.status_code == 409
    assert answer.instance is not None
    assert without_server_fields(answer.instance) == without_server_fields(instance)
    assert peer.set_status(instance, Status.OUT_OF_SERVICE)
    held = peer.read(*instance.key)
    assert held is not None
    assert (held.status, held.overridden_status) == (Status.OUT_OF_SERVICE, Status.OUT_OF_SERVICE)
    assert peer.send_batch([batch.registration_item(replace(held, last_dirty_timestamp_ms=3000))]) == [
        batch.ItemResponse(200)
    ]
    assert peer.send_batch([batch.cancellation_item(instance)]) == [batch.ItemResponse(200)]
    assert peer.read(*instance.key) is None


def test_the_largest_batch(peer: Peer, app: str) -> None:
    """A server accepts a batch with the largest number of items that servers send each other."""
    instances = [rating(app, f"{one(app)}-{number}") for number in range(batch.MOST_ITEMS_PER_BATCH)]
    answers = peer.send_batch([batch.registration_item(instance) for instance in instances])
    assert answers == [batch.ItemResponse(200)] * batch.MOST_ITEMS_PER_BATCH


@pytest.mark.parametrize("status", [Status.UP, Status.OUT_OF_SERVICE])
def test_one_batch_reads_removes_and_reads(peer: Peer, app: str, status: Status) -> None:
    """A removal in a batch is read before and after in the same batch; what was another owner's can be put
    back as it was, an override included.
    """
    theirs = rating(app, metadata={"eurekube.owner": "stack/a/b/c"}, last_dirty_timestamp_ms=2000)
    peer.register(theirs)
    if status is Status.OUT_OF_SERVICE:
        assert peer.set_status(theirs, status)
    before = peer.read(*theirs.key)
    assert before is not None
    read = batch.heartbeat_item(theirs, batch.READ_BY_HEARTBEAT_TIMESTAMP_MS)
    found, gone, left = peer.send_batch([read, batch.cancellation_item(theirs), read])
    assert (found.status_code, gone.status_code, left.status_code) == (409, 200, 404)
    assert found.instance is not None
    register_copies_at(peer, [found.instance])
    after = peer.read(*theirs.key)
    assert after is not None
    assert without_server_fields(after) == without_server_fields(before)
    assert (after.status, after.overridden_status, after.written_at_ms) == (
        before.status,
        before.overridden_status,
        before.written_at_ms,
    )
