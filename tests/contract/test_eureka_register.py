"""Registrations at a server: its checks, answers and effects."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

import pytest

from eurekube_provider.core.errors import RegistryRejected
from eurekube_provider.core.identity import label_to_metadata_key
from eurekube_provider.core.model import Status
from eurekube_provider.core.text import MAX_NAME_LENGTH_IN_URL, describe_unfit_name, describe_unreadable_text
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.protocol.codec import instance_from_json, instances_from_json
from eurekube_provider.eureka.protocol.peer import Peer
from tests.contract.conftest import DATA_CENTER, Server, document, one, rating
from tests.server_fields import without_server_fields


def test_a_registration_can_be_read_at_once(server: Server, app: str) -> None:
    """A registration is answered with 204, and a read of the instance shows it at once."""
    assert server.get(app) is None
    assert server.register(document(app)) == 204
    held = server.get(app)
    assert held is not None
    assert (held["instanceId"], held["app"], held["status"]) == (one(app), app.upper(), "UP")


def test_our_instance_comes_back_as_it_was_sent(peer: Peer, app: str) -> None:
    """Every field of our instance survives the way to a real server and back."""
    sent = rating(
        app,
        metadata={"zone": "a", "eurekube.owner": "cluster/a/b/c", "text": 'ä & <b> "c"'},
        status=Status.DOWN,
        home_page_url="http://10.0.0.1:8080/",
        status_page_url="http://10.0.0.1:8080/info",
        health_check_url="http://10.0.0.1:8080/health",
        vip_address="other",
        last_dirty_timestamp_ms=1_700_000_000_000,
    )
    peer.register(sent)
    held = peer.read(*sent.key)
    assert held is not None
    assert without_server_fields(held) == without_server_fields(sent)
    assert held.last_dirty_timestamp_ms == sent.last_dirty_timestamp_ms


@pytest.mark.parametrize("field", ["hostName", "ipAddr", "app", "dataCenterInfo"])
def test_fields_that_must_be_there(server: Server, app: str, field: str) -> None:
    """A registration without one of these fields is answered with 400."""
    assert server.register(document(app, **{field: None}), app.upper()) == 400
    assert server.get(app) is None


def test_a_data_center_needs_a_class_and_a_name(server: Server, app: str) -> None:
    """A data centre without its class or without its name is answered with 400."""
    for key in DATA_CENTER:
        partial = {name: value for name, value in DATA_CENTER.items() if name != key}
        assert server.register(document(app, dataCenterInfo=partial)) == 400


def test_the_application_of_body_and_path_must_agree(server: Server, app: str) -> None:
    """A body for another application is answered with 400; the same name in another case is accepted."""
    assert server.register(document(app, app="OTHER"), app.upper()) == 400
    assert server.register(document(app, app=app.lower()), app.upper()) == 204
    assert server.status(app) == "UP"


def test_a_body_needs_its_root(server: Server, app: str) -> None:
    """A registration without the root ``instance`` is answered with 400."""
    answer = server.send("POST", f"/apps/{app.upper()}", json=document(app))
    assert answer.status_code == 400


def test_a_missing_id_is_the_host_name(server: Server, app: str) -> None:
    """If no instance id is sent, the server and our reader use the host name."""
    assert server.register(document(app, instanceId=None, hostName=app)) == 204
    held = server.get(app, app)
    assert held is not None
    assert instance_from_json(held).instance_id == app


def test_ids_that_were_not_sent(server: Server, peer: Peer, app: str) -> None:
    """If no instance id is sent, an Amazon data centre's id is used before the host name, and a list then
    shows no id at all.
    """
    amazon = {
        "@class": "com.netflix.appinfo.AmazonInfo",
        "name": "Amazon",
        "metadata": {"instance-id": f"i-{app}"},
    }
    for host in ("vm-1", "vm-2"):
        of_host = {**amazon, "metadata": {"instance-id": f"i-{host}"}}
        assert server.register(document(app, instanceId=None, hostName="vm", dataCenterInfo=of_host)) == 204
        held = peer.read(app.upper(), f"i-{host}")
        assert held is not None
        assert (held.instance_id, held.unreadable) == (f"i-{host}", "")
    assert server.get(app, "vm") is None
    assert server.register(document(app, instanceId="", hostName="vm", dataCenterInfo=amazon)) == 204
    listed = server.of_application(app)
    assert not any(one.get("instanceId") for one in listed)
    assert {instance_from_json(one).instance_id for one in listed} == {f"i-{app}", "i-vm-1", "i-vm-2"}


@pytest.mark.parametrize(
    "port", [8080, "8080", {"$": 8080, "@enabled": "true", "x": 1}], ids=["number", "text", "another key"]
)
def test_ports_must_be_objects(server: Server, app: str, port: Any) -> None:
    """A port must be an object with these two keys; else the answer is 400."""
    assert server.register(document(app, port=port)) == 400


def test_missing_ports_are_eurekas_defaults(server: Server, app: str) -> None:
    """Without ports an instance gets port 7001 and a disabled port 7002, as our reader assumes."""
    assert server.register(document(app, port=None, securePort=None)) == 204
    held = server.get(app)
    assert held is not None
    assert held["port"] == {"$": 7001, "@enabled": "true"}
    assert held["securePort"] == {"$": 7002, "@enabled": "false"}


@pytest.mark.parametrize("enabled", [True, "true"], ids=["flag", "text"])
def test_enabled_may_be_a_flag_or_text(server: Server, app: str, enabled: Any) -> None:
    """``@enabled`` may be a boolean or a text."""
    assert server.register(document(app, securePort={"$": 443, "@enabled": enabled})) == 204
    held = server.get(app)
    assert held is not None
    assert held["securePort"]["@enabled"] == "true"


@pytest.mark.parametrize("letter", ["/", "\\", ";", "%", "\n", "\r", "\u2028", "\u2029"])
def test_ids_that_cannot_be_addressed(server: Server, app: str, letter: str) -> None:
    """Such ids can be registered and listed, but not read, renewed or removed: our code refuses them."""
    bad = f"a{letter}b"
    assert describe_unfit_name(bad)
    assert server.register(document(app, bad)) == 204
    assert [one["instanceId"] for one in server.of_application(app)] == [bad]
    paths = {f"/apps/{app.upper()}/{quote(bad, safe='')}", *([f"/apps/{app.upper()}/a/b"] * (letter == "/"))}
    for method, path in itertools.product(("GET", "PUT", "DELETE"), paths):
        assert server.send(method, path).status_code in (400, 404, 405)
    assert [one["instanceId"] for one in server.of_application(app)] == [bad]


def test_an_id_that_is_too_long_for_a_request(server: Server, app: str) -> None:
    """A longer id than a request line allows can be registered in a body, but not addressed; our bound
    leaves room for a token.
    """
    for length, answer in ((MAX_NAME_LENGTH_IN_URL, 200), (8200, 400)):
        name = "a" * length
        assert (describe_unfit_name(name) == "") is (answer == 200)
        assert server.register(document(app, name)) == 204
        path = f"/apps/{app.upper()}/{name}"
        headers = {"Authorization": f"Bearer {'t' * 4096}"}
        for method, url in (("PUT", f"{path}/status?value=UP"), ("PUT", path), ("DELETE", path)):
            assert server.send(method, url, headers=headers).status_code == answer


@pytest.mark.real_server("a development server has not this fault")
def test_one_data_center_empties_every_list(quick: Server, app: str) -> None:
    """One client's odd data centre makes the rendering of every list fail, and the answer is empty."""
    odd = {"@class": "com.netflix.appinfo.MyDataCenterInfo", "name": "Amazon"}
    reader = Peer(quick.url, Connection((quick.url,)))
    try:
        assert quick.register(document(app, dataCenterInfo=odd)) == 204
        answer = quick.send("GET", "/apps", headers={"Accept": "application/json"})
        assert (answer.status_code, answer.content) == (200, b"")
        with pytest.raises(RegistryRejected):
            reader.list_instances()
    finally:
        quick.cancel(app)
        reader.close()
    assert quick.send("GET", "/apps", headers={"Accept": "application/json"}).content


@pytest.mark.parametrize(
    "letter", ["\x01", "\x1f", "\ufffe", "\uffff", "\t", "\n", "\x7f", "\ufdd0", "\U0010ffff"]
)
@pytest.mark.parametrize("field", ["metadata", "vipAddress"])
def test_one_character_breaks_the_list(quick: Server, app: str, letter: str, field: str) -> None:
    """The server accepts characters that XML forbids: then no XML reader can parse the list."""
    text = f"a{letter}b"
    value = {"key": text} if field == "metadata" else text
    try:
        assert quick.register(document(app, **{field: value})) == 204
        answer = quick.send("GET", "/apps", headers={"Accept": "application/xml"})
        assert answer.status_code == 200
        if describe_unreadable_text(text):
            with pytest.raises(ElementTree.ParseError):
                ElementTree.fromstring(answer.text)  # noqa: S314 - a server of ours
        else:
            found = ElementTree.fromstring(answer.text)  # noqa: S314 - a server of ours
            where = "metadata/key" if field == "metadata" else field
            texts = [one.text for one in found.findall(f"application[name='{app.upper()}']/instance/{where}")]
            assert texts == [text]
    finally:
        quick.cancel(app)


@pytest.mark.parametrize(
    "instance_id",
    ["rating-1.shop.eks:rating:8080", "with space", "ümlaut", "a+b&c=d", "a,b@c", "[fd00::1]:80"],
)
def test_any_other_id_can_be_addressed(peer: Peer, app: str, instance_id: str) -> None:
    """An id in percent-encoding can be registered, read, renewed, overridden and removed."""
    sent = rating(app, instance_id)
    peer.register(sent)
    held = peer.read(*sent.key)
    assert held is not None
    assert held.instance_id == instance_id
    assert peer.renew(sent)
    assert peer.set_status(sent, Status.OUT_OF_SERVICE)
    assert peer.clear_status(sent)
    assert peer.deregister(*sent.key)
    assert peer.read(*sent.key) is None


def test_what_is_not_there(server: Server, app: str) -> None:
    """Renewing, removing, or changing the status of an unknown instance is answered with 404."""
    assert server.renew(app) == 404
    assert server.cancel(app) == 404
    assert server.put_status(app, "OUT_OF_SERVICE") == 404
    assert server.delete_status(app, "UP") == 404


def test_a_removal(server: Server, app: str) -> None:
    """A removal is answered with 200, and takes effect at once."""
    server.register(document(app))
    assert server.cancel(app) == 200
    assert server.get(app) is None
    assert server.cancel(app) == 404


def test_an_older_registration_is_dropped_in_silence(server: Server, app: str) -> None:
    """A registration with an older timestamp is answered with 204, but the stored data stay."""
    server.register(document(app, lastDirtyTimestamp="2000", ipAddr="10.0.0.2"))
    assert server.register(document(app, lastDirtyTimestamp="1999", ipAddr="10.0.0.3")) == 204
    held = server.get(app)
    assert held is not None
    assert (held["ipAddr"], held["lastDirtyTimestamp"]) == ("10.0.0.2", "2000")


@pytest.mark.parametrize("timestamp", ["2000", "2001"], ids=["equal", "newer"])
def test_an_equal_or_newer_registration_counts(server: Server, app: str, timestamp: str) -> None:
    """A registration with the same timestamp or a newer one replaces the stored data."""
    server.register(document(app, lastDirtyTimestamp="2000", ipAddr="10.0.0.2"))
    server.register(document(app, lastDirtyTimestamp=timestamp, ipAddr="10.0.0.3"))
    held = server.get(app)
    assert held is not None
    assert (held["ipAddr"], held["lastDirtyTimestamp"]) == ("10.0.0.3", timestamp)


def test_a_registration_without_timestamp_has_the_servers_clock(server: Server, app: str) -> None:
    """Without a timestamp the server uses its own time, which later registrations must exceed."""
    server.register(document(app))
    held = server.get(app)
    assert held is not None
    assert int(held["lastDirtyTimestamp"]) > 1_700_000_000_000
    server.register(document(app, lastDirtyTimestamp="2000", ipAddr="10.0.0.3"))
    assert server.get(app) == held | {
        key: value
        for key, value in (server.get(app) or {}).items()
        if key in ("lastUpdatedTimestamp", "leaseInfo")
    }


def test_a_heartbeat_and_its_timestamp(server: Server, app: str) -> None:
    """A heartbeat with a newer timestamp is answered with 404, so that the sender registers again; an
    older one renews.
    """
    server.register(document(app, lastDirtyTimestamp="2000"))
    assert server.renew(app) == 200
    assert server.renew(app, lastDirtyTimestamp=2000) == 200
    assert server.renew(app, lastDirtyTimestamp=1999) == 200
    assert server.renew(app, lastDirtyTimestamp=2001) == 404
    assert server.status(app) == "UP"


def test_a_heartbeats_status_is_ignored(server: Server, app: str) -> None:
    """A heartbeat never changes the status; only a registration does."""
    server.register(document(app))
    assert server.renew(app, status="DOWN") == 200
    assert server.status(app) == "UP"


def test_an_unknown_field_is_accepted(server: Server, app: str) -> None:
    """A registration may have a field that the server does not know."""
    assert server.register(document(app, fieldOfALaterEureka={"a": [1]})) == 204
    assert server.status(app) == "UP"


def test_metadata_keys_come_back_in_json(server: Server, app: str) -> None:
    """Metadata keys with dots and dashes, such as ours, are read back in JSON as they were sent."""
    metadata = {
        "eurekube.owner": "cluster/a/b/c",
        "eurekube.cluster-uid": "u",
        "app.kubernetes.io.part-of": "x",
    }
    server.register(document(app, metadata=metadata))
    held = server.get(app)
    assert held is not None
    assert held["metadata"] == metadata


@pytest.mark.parametrize(
    ("key", "arrives"),
    [("a.b-c", "a.b-c"), ("a/b", "a_.002fb"), ("1a", "_.0031a"), ("a b", "a_.0020b"), ("a_b", "a__b")],
)
def test_keys_in_xml(server: Server, app: str, key: str, arrives: str) -> None:
    """In XML letters, dots and dashes of a metadata key stay; other characters are escaped, and
    underscores doubled.
    """
    server.register(document(app, metadata={key: "1"}))
    answer = server.send("GET", f"/apps/{app.upper()}/{one(app)}", headers={"Accept": "application/xml"})
    found = ElementTree.fromstring(answer.text).find("metadata")  # noqa: S314 - a server of ours
    assert found is not None
    assert [child.tag for child in found] == [arrives]


@pytest.mark.parametrize("label", ["app.kubernetes.io/part-of", "version", "a b/c"])
def test_labels_arrive_in_xml_as_we_fit_them(server: Server, app: str, label: str) -> None:
    """The metadata key that we make of a label is unchanged in XML."""
    key = label_to_metadata_key(label)
    server.register(document(app, metadata={key: "1"}))
    answer = server.send("GET", f"/apps/{app.upper()}/{one(app)}", headers={"Accept": "application/xml"})
    assert f"<{key}>1</{key}>" in answer.text


def test_empty_metadata_has_a_class_at_most(server: Server, app: str) -> None:
    """The server may answer empty metadata as the name of a Java class, which our reader ignores."""
    server.register(document(app, metadata=None))
    held = server.get(app)
    assert held is not None
    assert instance_from_json(held).metadata == {}


def test_what_servers_send_is_read(peer: Peer, server: Server, app: str) -> None:
    """Our reader understands a plain client's registration, and can register it again unchanged."""
    server.register(
        document(app, metadata={"a": "1"}, fieldOfALaterEureka=1, isCoordinatingDiscoveryServer="false")
    )
    first = peer.read(app, one(app))
    assert first is not None
    peer.register(replace(first, last_dirty_timestamp_ms=(first.last_dirty_timestamp_ms or 0) + 1))
    second = peer.read(app, one(app))
    assert second is not None
    assert without_server_fields(second) == without_server_fields(first)


def test_applications_are_found_in_any_case(server: Server, app: str) -> None:
    """The server upper-cases the application in a path."""
    server.register(document(app))
    assert server.send("GET", f"/apps/{app.lower()}/{one(app)}").status_code == 200


def test_clients_find_a_vip_only_as_it_is_written(server: Server, app: str) -> None:
    """A VIP address is looked up with its case: our default is the lower-cased name, as Spring asks for
    it.
    """
    server.register(document(app, vipAddress=app.lower()))
    found = [server.send("GET", f"/vips/{vip}") for vip in (app.lower(), app.upper())]
    assert [len(instances_from_json(answer.json())) for answer in found] == [1, 0]
