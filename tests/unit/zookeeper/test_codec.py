"""Conversion between Curator's ServiceInstance and the model, and nodes with other content."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eurekube_provider.core.model import EurekaLease, Instance, Port, Status, same_contents_but_status
from eurekube_provider.zookeeper.codec import (
    PAYLOAD_CLASS,
    SPRING_STATUS_KEY,
    STATUS_WRITTEN_BY_EUREKUBE_KEY,
    Node,
    decode_node,
    encode_node,
)

STAT = SimpleNamespace(version=3, mzxid=7, mtime=1_000, ctime=900)
OWNED = {"eurekube.owner": "cluster/lab/shop/rating", "eurekube.cluster-uid": "uid-1", "zone": "a"}
PLAIN = Instance(
    "Rating",
    "rating-1.shop.lab:rating:8080",
    "10.0.0.1",
    "10.0.0.1",
    Port(8080),
    vip_address="Rating",
    metadata=OWNED,
    home_page_url="http://10.0.0.1:8080/",
)


def read(data: bytes, instance: Instance = PLAIN) -> Node:
    """Decode a node's content at the instance's path."""
    return decode_node(f"/services/{instance.vip_address}/{instance.instance_id}", data, STAT)


def document(instance: Instance = PLAIN) -> dict[str, Any]:
    """Return the JSON document written for an instance."""
    found: dict[str, Any] = json.loads(encode_node(instance, 5))
    return found


def test_springs_layout() -> None:
    """An instance is written as Spring's ServiceInstanceRegistration does, with the name's own case."""
    written = document()
    assert (written["name"], written["id"]) == ("Rating", PLAIN.instance_id)
    assert (written["address"], written["port"], written["sslPort"]) == ("10.0.0.1", 8080, None)
    assert written["payload"]["@class"] == PAYLOAD_CLASS
    assert written["payload"]["metadata"] == {
        **OWNED,
        SPRING_STATUS_KEY: "UP",
        STATUS_WRITTEN_BY_EUREKUBE_KEY: "UP",
    }
    assert (written["registrationTimeUTC"], written["serviceType"]) == (5, "PERMANENT")
    spec = "".join(
        f"{{{one['value']}}}" if one["variable"] else one["value"] for one in written["uriSpec"]["parts"]
    )
    assert spec == "{scheme}://{address}:{port}"


def test_https_is_called_at_the_secure_port() -> None:
    """For HTTPS the URI spec uses ``ssl-port``, because Curator's ``port`` is the plain one."""
    secure = replace(PLAIN, port=Port(8443, enabled=False), secure_port=Port(8443))
    written = document(secure)
    assert (written["port"], written["sslPort"]) == (None, 8443)
    assert written["uriSpec"]["parts"][-1] == {"value": "ssl-port", "variable": True}


@given(
    st.builds(
        Instance,
        application=st.sampled_from(["Rating", "STARS"]),
        instance_id=st.just("a"),
        host_name=st.sampled_from(["10.0.0.1", "[2001:db8::1]", "rating.shop.svc"]),
        ip_address=st.sampled_from(["10.0.0.1", "2001:db8::1"]),
        port=st.builds(Port, st.integers(1, 65535), st.just(True)),
        secure_port=st.builds(Port, st.integers(1, 65535), st.booleans()),
        vip_address=st.sampled_from(["rating", "Rating"]),
        secure_vip_address=st.sampled_from(["", "other"]),
        status=st.sampled_from([Status.UP, Status.DOWN, Status.OUT_OF_SERVICE]),
        metadata=st.dictionaries(st.sampled_from(["zone", "eurekube.owner"]), st.text(min_size=1)),
        lease=st.builds(EurekaLease, st.integers(1, 99), st.integers(1, 99)),
        home_page_url=st.sampled_from(["", "http://10.0.0.1:8080/home"]),
        health_check_url=st.sampled_from(["", "http://10.0.0.1:8080/health"]),
    )
)
def test_what_is_written_is_what_is_read(instance: Instance) -> None:
    """An instance is read back with all fields, also those outside Spring's layout, so that a second plan
    is empty.
    """
    found = read(encode_node(instance, 5), instance).instance
    assert same_contents_but_status(instance, found)
    assert (found.application, found.status, found.is_overridden) == (
        instance.application,
        instance.status,
        False,
    )


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"[" * 100_000,
        json.dumps({**document(), "payload": {"@class": "com.example.Other"}}).encode(),
        json.dumps({**document(), "payload": None}).encode(),
        json.dumps({**document(), "id": "another"}).encode(),
        json.dumps({**document(), "port": None}).encode(),
        json.dumps({**document(), "port": "eighty"}).encode(),
        json.dumps({**document(), "port": 1e400}).encode(),
        json.dumps({**document(), "payload": {"@class": PAYLOAD_CLASS, "metadata": ["a"]}}).encode(),
        json.dumps(
            {**document(), "payload": {"@class": PAYLOAD_CLASS, "metadata": {"eurekube.instance": "["}}}
        ).encode(),
        json.dumps(
            {
                **document(),
                "payload": {"@class": PAYLOAD_CLASS, "metadata": {"eurekube.instance": '{"port":["a"]}'}},
            }
        ).encode(),
    ],
)
def test_what_cannot_be_read_is_shown_as_that(data: bytes) -> None:
    """An unreadable node becomes an instance by its path, marked as unreadable, without an owner and with
    status
    UNKNOWN.
    """
    node = read(data)
    assert node.instance.unreadable.startswith(f"node {node.path}: ")
    assert (node.instance.key, node.instance.owner) == (PLAIN.key, None)
    assert node.instance.status is Status.UNKNOWN


@pytest.mark.parametrize(
    ("shown", "status", "is_overridden"),
    [
        ("UP", Status.UP, False),
        ("", Status.UP, False),
        ("OUT_OF_SERVICE", Status.OUT_OF_SERVICE, True),
        ("DOWN", Status.DOWN, True),
        ("PAUSED", Status.OUT_OF_SERVICE, True),
    ],
)
def test_a_status_that_somebody_set(shown: str, status: Status, *, is_overridden: bool) -> None:
    """A status in the node that differs from the one written by Eurekube is an override, and is kept when
    contents change.
    """
    written = document()
    written["payload"]["metadata"][SPRING_STATUS_KEY] = shown
    node = read(json.dumps(written).encode())
    assert (node.instance.status, node.instance.is_overridden) == (status, is_overridden)
    again = json.loads(encode_node(replace(PLAIN, metadata={**OWNED, "color": "red"}), 9, node))
    expected = shown if is_overridden else "UP"
    assert again["payload"]["metadata"][SPRING_STATUS_KEY] == expected
    assert again["payload"]["metadata"]["color"] == "red"
    assert again["registrationTimeUTC"] == 5


def test_a_status_that_somebody_set_is_handed_over_as_that() -> None:
    """A syncer that takes over an instance keeps its override as an override."""
    written = document()
    written["payload"]["metadata"][SPRING_STATUS_KEY] = "OUT_OF_SERVICE"
    node = read(json.dumps(written).encode())
    heirs = replace(node.instance, metadata={**OWNED, "eurekube.owner": "cluster/lab/shop/order"})
    assert read(encode_node(heirs, 9, node)).instance.is_overridden


def test_what_registered_itself_has_its_status_for_its_own() -> None:
    """A self-registered instance's OUT_OF_SERVICE, as set by an actuator call, is its own status and no
    override.
    """
    written = document(replace(PLAIN, metadata={}))
    written["payload"]["metadata"] = {SPRING_STATUS_KEY: "OUT_OF_SERVICE"}
    found = read(json.dumps(written).encode()).instance
    assert (found.owner, found.status, found.is_overridden) == (None, Status.OUT_OF_SERVICE, False)


def test_the_reason_why_it_cannot_be_read_is_short() -> None:
    """Somebody else chooses it, and it stands in conditions."""
    node = read(json.dumps({**document(), "payload": {"@class": "x" * 100_000}}).encode())
    assert len(node.instance.unreadable) < 500
