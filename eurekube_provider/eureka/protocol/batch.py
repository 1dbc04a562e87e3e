"""Eureka's peer batches: many heartbeats, registrations or removals in one request.

Servers send them to each other; they are a hundred times cheaper than single requests. A server does not
forward the items of a batch to other servers, and answers 200 for a register item even when it dropped it.

Source: PeerReplicationResource and ReplicationInstance of Netflix/eureka.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from eurekube_provider.core.model import Instance
from eurekube_provider.eureka.protocol.codec import (
    encode_json,
    instance_from_json,
    instance_to_json_text,
    quote_json,
)

T = TypeVar("T")

MOST_ITEMS_PER_BATCH = 250
"""The most items in one batch: as many as servers send each other at once."""

READ_BY_HEARTBEAT_TIMESTAMP_MS = 1
"""A timestamp for heartbeats that a server answers with the instance that it holds (409): a read."""


@dataclass(frozen=True, slots=True)
class ItemResponse:
    """A server's answer for one item of a batch.

    :param status_code: 200; 404 where the server does not hold the instance; 409 where it holds a newer one.
    :param instance: the newer instance, for 409.
    """

    status_code: int
    instance: Instance | None = None


def heartbeat_item(instance: Instance, timestamp_ms: int | None = None) -> bytes:
    """Return the item that renews ``instance``.

    :param timestamp_ms: the timestamp of the contents to claim; None for the instance's own.
    """
    stamp = instance.last_dirty_timestamp_ms if timestamp_ms is None else timestamp_ms
    # Written by hand, since a cold start and each round of renewals need one of each instance.
    return (
        f'{{"action":"Heartbeat","appName":{quote_json(instance.application)},"id":{quote_json(instance.instance_id)},'
        f'"status":"{instance.status.value}","lastDirtyTimestamp":{"null" if stamp is None else stamp}}}'
    ).encode()


def registration_item(instance: Instance) -> bytes:
    """Return the item that makes a server hold ``instance`` as given, its overridden status included."""
    stamp = instance.last_dirty_timestamp_ms
    return (
        f'{{"action":"Register","appName":{quote_json(instance.application)},"id":{quote_json(instance.instance_id)},'
        f'"status":"{instance.status.value}","lastDirtyTimestamp":{"null" if stamp is None else stamp},'
        f'"instanceInfo":{instance_to_json_text(instance, overridden=instance.overridden_status)}}}'
    ).encode()


def cancellation_item(instance: Instance) -> bytes:
    """Return the item that removes ``instance``."""
    item = {"action": "Cancel", "appName": instance.application, "id": instance.instance_id}
    return encode_json(item).encode()


def batch_body(items: Iterable[bytes]) -> bytes:
    """Return the request body of a batch with these items."""
    return b'{"replicationList":[' + b",".join(items) + b"]}"


def parse_item_responses(document: Mapping[str, Any]) -> list[ItemResponse]:
    """Parse the response to a batch: an answer for each item, in their order."""
    return [_parse_item_response(entry) for entry in document["responseList"]]


def chunks(things: Iterable[T], size: int = MOST_ITEMS_PER_BATCH) -> Iterator[Sequence[T]]:
    """Split items into sequences of at most ``size``, by default as many as a batch may hold."""
    remaining = iter(things)
    while chunk := list(islice(remaining, size)):
        yield chunk


_HEARTBEAT_PREFIX = b'{"action":"Heartbeat",'

_RESPONSES_WITHOUT_INSTANCE: dict[int, ItemResponse] = {200: ItemResponse(200), 404: ItemResponse(404)}


def _parse_item_response(entry: Mapping[str, Any]) -> ItemResponse:
    code, entity = int(entry["statusCode"]), entry.get("responseEntity")
    if not entity:
        return _RESPONSES_WITHOUT_INSTANCE.get(code) or ItemResponse(code)
    return ItemResponse(code, instance_from_json(entity))


def is_heartbeat_item(item: bytes) -> bool:
    """Return whether an item only renews, and changes nothing."""
    return item.startswith(_HEARTBEAT_PREFIX)
