"""The tracer of the operator: the functions that it wraps, and the actions read from requests."""

from __future__ import annotations

import pytest
from kubernetes import client

from bench.attribution import Asked, Begun, Decided, Done, RequestItem, Taken
from bench.bookkeeping import SyncerFleet
from bench.traced_operator import Tracer, parse_request_items
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.dev.eureka.serving import EurekaServers
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.protocol import batch
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.protocol.transport import Transport
from eurekube_provider.kube.access import ENDPOINT_SLICES, KubeAccess
from eurekube_provider.kube.reflector import Reflector
from eurekube_provider.operator.queue import WorkQueue
from eurekube_provider.operator.reconciler import Reconciler

INSTANCE = Instance(
    application="rating",
    instance_id="pod-1.shop.bench:rating:8080",
    host_name="10.0.0.1",
    ip_address="10.0.0.1",
    port=Port(8080),
)
KEY = INSTANCE.key


@pytest.fixture
def tracer(monkeypatch: pytest.MonkeyPatch) -> Tracer:
    """Return a tracer installed in this process until the test ends."""
    for owner, name in ((Reflector, "apply_event"), (Reconciler, "decide"), (Transport, "request")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    for name in ("get", "done"):
        monkeypatch.setattr(WorkQueue, name, getattr(WorkQueue, name))
    made = Tracer()
    made.install()
    return made


def test_an_event_of_a_slice_is_noted(tracer: Tracer) -> None:
    """An EndpointSlice's event is noted with its key and version, by which its patch is found; other kinds
    are not.
    """
    access = KubeAccess(client.Configuration(host="http://127.0.0.1:1"))
    taken = []
    reflector = Reflector(access, ENDPOINT_SLICES, lambda item, _: item, lambda _, new: taken.append(new))
    metadata = {"namespace": "shop", "name": "rating-1", "resourceVersion": "7"}
    reflector.apply_event("ADDED", {"kind": "EndpointSlice", "metadata": metadata})
    reflector.apply_event("ADDED", {"kind": "Service", "metadata": {**metadata, "name": "rating"}})
    assert [type(note) for note in tracer.notes()] == [Taken]
    assert [(one.place, one.version) for one in tracer.notes() if isinstance(one, Taken)] == [
        (("shop", "rating-1"), "7")
    ]
    assert len(taken) == 2


def test_a_reconcile_is_noted(tracer: Tracer) -> None:
    """A reconcile is noted when a worker takes its key, when it is decided, and when the worker is done."""
    key = ("shop", "rating")
    queue: WorkQueue[tuple[str, str]] = WorkQueue()
    queue.add(key)
    assert queue.get() == key
    queue.done(key)
    queue.close()
    assert queue.get() is None
    SyncerFleet(1).reconciles.run()
    found = tracer.notes()
    assert [type(note) for note in found] == [Begun, Done, Decided]
    assert [note.key for note in found if isinstance(note, Begun | Done)] == [key, key]


def test_a_request_is_noted_with_what_it_does(tracer: Tracer) -> None:
    """Each kind of request is noted with its actions and instances, as the operator's client sends it."""
    read, renewal = (RequestItem(action, *KEY, "UP") for action in ("Read", "Renew"))
    registration, removal = RequestItem("Register", *KEY, "UP"), RequestItem("Cancel", *KEY, "")
    with EurekaServers(quick=True) as servers:
        peer = Peer(servers.urls[0], Connection.parse(servers.urls[0]))
        peer.register(INSTANCE)
        peer.read(*KEY)
        peer.renew(INSTANCE)
        peer.send_batch([batch.registration_item(INSTANCE), batch.heartbeat_item(INSTANCE)])
        peer.send_batch([batch.heartbeat_item(INSTANCE, batch.READ_BY_HEARTBEAT_TIMESTAMP_MS)])
        peer.send_batch([batch.cancellation_item(INSTANCE)])
        peer.deregister(*KEY)
        peer.list_instances()
        peer.read_delta_if_changed(b"")
        peer.close()
    asked = [note for note in tracer.notes() if isinstance(note, Asked)]
    assert [(one.is_batch, one.items) for one in asked] == [
        (False, (registration,)),
        (False, (RequestItem("Read", *KEY, ""),)),
        (False, (RequestItem("Renew", *KEY, ""),)),
        (True, (registration, renewal)),
        (True, (read,)),
        (True, (removal,)),
        (False, (removal,)),
        (False, ()),
        (False, ()),
    ]
    assert all(one.at < one.answered for one in asked)
    assert {one.by for one in asked} == {"MainThread"}


def test_a_path_is_read_as_the_server_reads_it() -> None:
    """Percent-encoded ids are decoded, and a request for a status has no action."""
    assert parse_request_items("DELETE", "/apps/RATING/a%3A8080?x=1", None) == (
        RequestItem("Cancel", "RATING", "a:8080", ""),
    )
    assert parse_request_items("PUT", "/apps/RATING/a/status", None) == ()
