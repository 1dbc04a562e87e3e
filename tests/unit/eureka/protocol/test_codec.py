"""Conversion between Eureka's JSON and the model, with the oddities of real servers."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eurekube_provider.core.model import EMPTY_MAPPING, DataCenter, EurekaLease, Instance, Port, Status
from eurekube_provider.eureka.protocol.codec import (
    instance_from_json,
    instance_to_json_object,
    instance_to_json_text,
    instances_from_json,
    instances_from_text,
)
from tests.unit.strategies import instances, json_values, texts

DOCUMENT: dict[str, Any] = {
    "instanceId": "rating-1",
    "app": "RATING",
    "hostName": "10.0.0.1",
    "ipAddr": "10.0.0.1",
    "status": "UP",
    "port": {"$": 8080, "@enabled": "true"},
}


def read(**fields: Any) -> Instance:
    """Parse the document of a plain instance in which these fields are replaced."""
    return instance_from_json({**DOCUMENT, **fields})


def listing(*entries: Any) -> dict[str, Any]:
    """Return the JSON of a full list with one application."""
    return {"applications": {"application": [{"name": "RATING", "instance": list(entries)}]}}


@given(instances)
def test_round_trip(instance: Instance) -> None:
    """An instance is read back as it was sent, except two fields that the server sets: override and update
    time.
    """
    sent = json.loads(json.dumps(instance_to_json_object(instance)))
    expected = replace(instance, overridden_status=Status.UNKNOWN, last_updated_timestamp_ms=None)
    assert instance_from_json(sent) == expected


def test_the_end_of_a_lease_is_read_and_makes_no_other_instance() -> None:
    """The end of a lease is read from ``lastRenewalTimestamp``; two instances that differ only in this end
    are equal, because each renewal moves it.
    """
    renewed = read(leaseInfo={"durationInSecs": 90, "lastRenewalTimestamp": 1700000090000})
    assert renewed.lease_ends_ms == 1700000090000
    assert renewed == replace(renewed, lease_ends_ms=None) == read()
    assert read().lease_ends_ms is None


@given(instances)
def test_an_override_is_never_sent(instance: Instance) -> None:
    """A registration is always sent with the override UNKNOWN, so that it never creates an override at a
    server.
    """
    document = instance_to_json_object(instance)
    assert document["overriddenStatus"] == "UNKNOWN"
    assert "overriddenstatus" not in document


@given(instances)
def test_ports_and_timestamps_go_in_the_form_that_servers_accept(instance: Instance) -> None:
    """Ports are sent as objects, and the data centre with its Java class: servers refuse (400) or lose
    other forms.
    """
    document = instance_to_json_object(instance)
    assert {"$", "@enabled"} == document["port"].keys() == document["securePort"].keys()
    assert {"@class", "name"} <= document["dataCenterInfo"].keys()
    assert all(isinstance(value, str) for value in document["metadata"].values())


@given(st.dictionaries(texts.map(lambda text: f"x-{text}"), json_values, max_size=3))
def test_unknown_fields_survive(fields: dict[str, Any]) -> None:
    """A field that the model does not know, such as one of a later Eureka, is sent back unchanged."""
    assert instance_to_json_object(read(**fields)).items() >= fields.items()


def test_an_unknown_field_never_replaces_a_known_one() -> None:
    """The model's own fields win over a kept unknown field of the same name."""
    instance = replace(read(), unknown_fields={"status": "DOWN"})
    assert instance_to_json_object(instance)["status"] == "UP"


@pytest.mark.parametrize("spelling", ["overriddenStatus", "overriddenstatus"])
def test_both_spellings_of_the_override(spelling: str) -> None:
    """An override is read in the server's and in the old clients' spelling."""
    assert read(**{spelling: "OUT_OF_SERVICE"}).overridden_status is Status.OUT_OF_SERVICE


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"$": 80, "@enabled": "true"}, Port(80, enabled=True)),
        ({"$": 80, "@enabled": "false"}, Port(80, enabled=False)),
        ({"$": 80, "@enabled": True}, Port(80, enabled=True)),
        ({"$": 80, "@enabled": False}, Port(80, enabled=False)),
        ({"$": "80", "@enabled": "TRUE"}, Port(80, enabled=True)),
        ({"$": 80}, Port(80, enabled=True)),
        (80, Port(80, enabled=True)),
        ("80", Port(80, enabled=True)),
        (None, Port(7001, enabled=True)),
        ({}, Port(7001, enabled=True)),
    ],
)
def test_ports_in_every_form(value: Any, expected: Port) -> None:
    """A port is read from a number, or from an object with a text or a Boolean flag; without a value it is
    7001.
    """
    assert read(port=value).port == expected


def test_secure_port_is_disabled_by_default() -> None:
    """A document without a secure port is read with port 7002, disabled."""
    assert read().secure_port == Port(7002, enabled=False)


def test_the_class_of_empty_metadata_is_no_metadata() -> None:
    """The key ``@class`` names the Java type of the map, and is not read as metadata."""
    assert read(metadata={"@class": "java.util.Collections$EmptyMap"}).metadata == {}


@pytest.mark.parametrize(
    ("value", "expected"), [(None, {}), ({"a": None}, {"a": ""}), ({"a": 1}, {"a": "1"}), ("x", {})]
)
def test_metadata_values_are_text(value: Any, expected: dict[str, str]) -> None:
    """Metadata is read as a map from text to text; a number becomes text, null an empty text."""
    assert read(metadata=value).metadata == expected


@pytest.mark.parametrize(
    ("value", "expected"), [("up", Status.UP), ("", Status.UNKNOWN), ("ODD", Status.UNKNOWN)]
)
def test_statuses_in_every_form(value: str, expected: Status) -> None:
    """A status is read in any case, and one that Eureka does not know is UNKNOWN."""
    assert read(status=value).status is expected


def test_missing_fields_have_eurekas_defaults() -> None:
    """An instance with a name and a host only is read with the defaults of InstanceInfo."""
    instance = instance_from_json({"app": "rating", "hostName": "h"})
    assert instance == Instance(
        "RATING",
        "h",
        "h",
        "",
        Port(7001),
        secure_port=Port(7002, enabled=False),
        status=Status.UNKNOWN,
    )
    assert (instance.lease, instance.data_center) == (EurekaLease(), DataCenter())
    assert instance.last_dirty_timestamp_ms is None


def test_the_host_name_stands_in_for_a_missing_id() -> None:
    """An instance without an id, as old clients send it, gets its host name as id, as at servers."""
    document = {key: value for key, value in DOCUMENT.items() if key != "instanceId"}
    assert instance_from_json(document).instance_id == "10.0.0.1"


def test_the_address_stands_in_for_a_missing_host_name() -> None:
    """An instance without a host name is called at its address."""
    assert read(hostName=None).host_name == "10.0.0.1"


def test_timestamps_are_numbers_or_text() -> None:
    """Servers send timestamps as text, some writers as numbers."""
    assert read(lastDirtyTimestamp="17").last_dirty_timestamp_ms == 17
    assert read(lastDirtyTimestamp=17).last_dirty_timestamp_ms == 17
    assert read(lastDirtyTimestamp="").last_dirty_timestamp_ms is None


def test_amazon_data_centers_are_kept() -> None:
    """A cloud instance's data centre is sent back as it came."""
    data_center = {
        "@class": "com.netflix.appinfo.AmazonInfo",
        "name": "Amazon",
        "metadata": {"availability-zone": "us-east-1a"},
    }
    instance = read(dataCenterInfo=data_center)
    assert instance.zone == "us-east-1a"
    assert instance_to_json_object(instance)["dataCenterInfo"] == data_center


AMAZON = "com.netflix.appinfo.AmazonInfo"
OWN = "com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo"


@pytest.mark.parametrize(
    ("given", "data_center", "expected"),
    [
        (None, {"@class": AMAZON, "name": "Amazon", "metadata": {"instance-id": "i-1"}}, "i-1"),
        ("", {"@class": AMAZON, "name": "Amazon", "metadata": {"instance-id": "i-1"}}, "i-1"),
        ("own", {"@class": AMAZON, "name": "Amazon", "metadata": {"instance-id": "i-1"}}, "own"),
        (None, {"@class": AMAZON, "name": "Amazon", "metadata": {"instance-id": "null"}}, "null"),
        (None, {"@class": AMAZON, "name": "Amazon", "metadata": {"instance-id": " "}}, " "),
        (None, {"@class": AMAZON, "name": "Amazon", "metadata": {"instance-id": ""}}, "vm-1"),
        (None, {"@class": AMAZON, "name": "Amazon", "metadata": {}}, "vm-1"),
        (None, {"name": "Amazon", "metadata": {"instance-id": "i-1"}}, "i-1"),
        (None, {"@class": OWN, "name": "MyOwn", "metadata": {"instance-id": "i-1"}}, "vm-1"),
        (None, {"@class": OWN, "name": "Netflix"}, "vm-1"),
        (None, None, "vm-1"),
        (None, "Amazon", "vm-1"),
    ],
)
def test_an_id_that_was_not_sent_is_the_servers(given: str | None, data_center: Any, expected: str) -> None:
    """A missing id is taken from Amazon's data centre metadata, else from the host name, as the server's
    ``getId``
    does.
    """
    found = read(instanceId=given, hostName="vm-1", dataCenterInfo=data_center)
    assert (found.instance_id, found.unreadable) == (expected, "")


def test_two_machines_with_one_host_name_are_two() -> None:
    """Two instances of one host name without ids are told apart by their Amazon instance ids."""
    machines = [
        {
            **DOCUMENT,
            "instanceId": None,
            "dataCenterInfo": {"@class": AMAZON, "name": "Amazon", "metadata": {"instance-id": name}},
        }
        for name in ("i-1", "i-2")
    ]
    assert [one.key for one in instances_from_json(listing(*machines))] == [
        ("RATING", "i-1"),
        ("RATING", "i-2"),
    ]


@pytest.mark.parametrize(
    "document",
    [
        listing(DOCUMENT),
        {"applications": {"application": {"name": "RATING", "instance": DOCUMENT}}},
        {"application": {"name": "RATING", "instance": [DOCUMENT]}},
        {"application": {"name": "RATING", "instance": DOCUMENT}},
    ],
    ids=["lists", "single objects", "one application", "one application, single object"],
)
def test_single_objects_instead_of_lists(document: dict[str, Any]) -> None:
    """A single object in place of a list, as some servers write it, is read as a list of one."""
    assert instances_from_json(document) == [read()]


@pytest.mark.parametrize(
    "document",
    [
        {"applications": {"versions__delta": "1", "apps__hashcode": "", "application": []}},
        {"applications": {}},
        {"applications": None},
        {"applications": {"application": {"name": "RATING"}}},
        {"applications": {"application": [{"name": "RATING", "instance": None}]}},
    ],
)
def test_empty_lists(document: dict[str, Any]) -> None:
    """Every way to write a registry without instances is read as an empty list."""
    assert instances_from_json(document) == []


@pytest.mark.parametrize("bad", ["a/b", "a\\b", "a;b", "a%b", "a\nb", "a\u2028b", ".", "..", "a\ud800b"])
def test_an_id_that_no_request_can_name_is_kept_and_reported(bad: str) -> None:
    """An instance whose id fits into no URL is listed with its status and address, marked as unreadable, and
    not confused with another instance.
    """
    odd, other = instances_from_json(listing({**DOCUMENT, "instanceId": bad}, DOCUMENT))
    assert (odd.key, odd.status, odd.ip_address) == (("RATING", bad), Status.UP, "10.0.0.1")
    assert odd.unreadable == f"no request can name the id {bad!r}"
    assert other == read()
    assert other.unreadable == ""


def test_an_application_that_no_request_can_name_is_reported() -> None:
    """An instance whose application fits into no URL is marked as unreadable; servers accept one in a
    body.
    """
    assert read(app="a/b").unreadable == "no request can name the application 'A/B'"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"port": {"$": "x"}}, "port: 'x' is no number"),
        ({"port": {"$": None}}, "port: None is no number"),
        ({"port": "x"}, "port: 'x' is no number"),
        ({"securePort": {"$": []}}, "port: [] is no number"),
        ({"lastDirtyTimestamp": "x"}, "timestamp: 'x' is no number"),
        ({"lastUpdatedTimestamp": float("inf")}, "timestamp: inf is no number"),
        ({"leaseInfo": {"durationInSecs": "x"}}, "lease: 'x' is no number"),
        ({"status": "passing"}, "status: 'passing' is none of Eureka's"),
        ({"metadata": ["a"]}, "metadata is no object, so that nobody knows who owns it"),
        ({"ipAddr": "198.51.100.071"}, "some read 198.51.100.57"),
        ({"ipAddr": "9" * 5000, "metadata": "a"}, "metadata is no object"),
    ],
)
def test_one_broken_instance_is_reported_and_hides_none_of_the_others(
    fields: dict[str, Any], expected: str
) -> None:
    """A field with a meaningless value gets its default and marks its instance as unreadable; the rest of the
    list is read.
    """
    odd, other = instances_from_json(listing({**DOCUMENT, **fields}, {**DOCUMENT, "instanceId": "other"}))
    assert expected in odd.unreadable
    assert odd.key == read().key
    assert other == read(instanceId="other")


def test_what_has_no_id_is_one_of_its_own() -> None:
    """Each list entry without an id is kept as an instance with a key of its own, and marked as
    unreadable.
    """
    nameless = {
        key: value for key, value in DOCUMENT.items() if key not in ("instanceId", "hostName", "ipAddr")
    }
    found = instances_from_json(listing(nameless, "nothing", None, nameless, DOCUMENT))
    assert [one.application for one in found] == ["RATING"] * 5
    assert len({one.key for one in found}) == 5
    assert [bool(one.unreadable) for one in found] == [True] * 4 + [False]
    assert (found[0].unreadable, found[1].unreadable) == ("it has no id", "it is no instance")


def test_what_names_no_application_is_of_the_list_around_it() -> None:
    """An instance that names no application gets the name of the application that lists it."""
    nameless = {key: value for key, value in DOCUMENT.items() if key != "app"}
    assert instances_from_text(json.dumps(listing({**nameless, "leaseInfo": {}}))) == [read()]


FIELDS = (
    *(
        "instanceId",
        "app",
        "hostName",
        "ipAddr",
        "status",
        "overriddenStatus",
        "port",
        "securePort",
        "metadata",
    ),
    *(
        "vipAddress",
        "leaseInfo",
        "dataCenterInfo",
        "lastDirtyTimestamp",
        "lastUpdatedTimestamp",
        "homePageUrl",
    ),
)


@given(json_values | st.dictionaries(st.sampled_from(FIELDS), json_values))
def test_whatever_stands_in_a_list_is_read(value: Any) -> None:
    """No value makes a list unreadable, and no entry of the list is dropped."""
    entry = {**DOCUMENT, **value} if isinstance(value, dict) else value
    text = json.dumps(listing(entry, {**DOCUMENT, "leaseInfo": {}}))
    assert len(instances_from_text(text)) == len(instances_from_json(json.loads(text))) == 2


@given(st.lists(instances, max_size=4))
def test_lists_keep_every_instance(listed: list[Instance]) -> None:
    """A list is read completely and in order."""
    found = instances_from_json(listing(*map(instance_to_json_object, listed)))
    assert [one.key for one in found] == [one.key for one in listed]


@given(st.lists(instances, max_size=4))
def test_a_text_is_read_as_its_json(listed: list[Instance]) -> None:
    """Reading a list while it is parsed gives the same as parsing it first, broken instances included."""
    document = listing(
        *map(instance_to_json_object, listed), {**DOCUMENT, "instanceId": "a/b", "leaseInfo": {}}
    )
    assert instances_from_text(json.dumps(document).encode()) == instances_from_json(document)


def test_metadata_is_never_taken_for_an_instance() -> None:
    """Metadata with the keys of an instance is still read as metadata."""
    metadata = {"ipAddr": "10.0.0.9", "leaseInfo": "none", "instanceId": "x", "app": "OTHER"}
    text = json.dumps(listing({**DOCUMENT, "leaseInfo": {}, "metadata": metadata}))
    assert instances_from_text(text) == [read(metadata=metadata)]


def test_empty_instances_share_nothing_that_changes() -> None:
    """Default metadata and equal metadata are shared between instances, and are read-only."""
    one, other = read(metadata={"zone": "a"}), read(metadata={"zone": "a"})
    assert one.metadata is other.metadata
    for shared in (EMPTY_MAPPING, one.metadata):
        with pytest.raises(TypeError):
            shared["x"] = 1  # type: ignore[index]


@given(instances)
def test_a_replica_says_what_a_registration_says(instance: Instance) -> None:
    """The text of a replica has the registration's known fields and the overridden status; unknown fields are
    left out.
    """
    plain = instance_to_json_object(replace(instance, unknown_fields=EMPTY_MAPPING))
    expected = {**plain, "overriddenStatus": instance.overridden_status.value}
    assert json.loads(instance_to_json_text(instance, overridden=instance.overridden_status)) == expected


def test_texts_are_shared_and_not_kept_for_ever() -> None:
    """Equal texts of two instances are one object, but are not interned: Python 3.12.0 to 3.12.6 never frees
    interned texts.
    """

    def fresh(word: str) -> str:
        return "".join(["of-this-test-only-", word])

    one, two = (
        read(
            app=fresh("app").upper(), vipAddress=fresh("vip"), metadata={fresh("key"): fresh("value"), **more}
        )
        for more in ({}, {"more": "x"})
    )
    assert one.application is two.application
    assert one.vip_address is two.vip_address
    assert one.metadata[fresh("key")] is two.metadata[fresh("key")]
    for text in (fresh("app").upper(), fresh("vip"), fresh("key"), fresh("value")):
        assert sys.intern(text) is text
