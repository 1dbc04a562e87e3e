"""Parsing of instances; ``tests/contract/test_dev_server.py`` compares each case with real servers."""

from __future__ import annotations

from typing import Any

import pytest

from eurekube_provider.dev.eureka.documents import (
    AMAZON_DATA_CENTER_CLASS,
    JSON_MEDIA_TYPE,
    XML_MEDIA_TYPE,
    UnreadableBody,
    instance_info_document,
    parse_batch_items,
    parse_instance_info,
    preferred_media_type,
    registration_refusal,
)
from tests.model.commands import DATA_CENTER

NOW_MS = 1_000


def sent(**fields: Any) -> dict[str, Any]:
    """Return the document of a registration; a field that is None is left out."""
    found = {"app": "rating", "hostName": "h", "ipAddr": "10.0.0.1", "dataCenterInfo": DATA_CENTER, **fields}
    return {key: value for key, value in found.items() if value is not None}


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", XML_MEDIA_TYPE),
        ("*/*", XML_MEDIA_TYPE),
        ("application/json", JSON_MEDIA_TYPE),
        ("*/*, application/json", JSON_MEDIA_TYPE),
        ("application/xml, application/json", XML_MEDIA_TYPE),
        ("application/json;q=0.1, application/xml;q=0.9", XML_MEDIA_TYPE),
        ("text/html, application/json;q=0.2", JSON_MEDIA_TYPE),
        ("application/json;q=0", None),
        ("application/json;q=much", None),
        ("image/png", None),
    ],
)
def test_which_form_a_client_prefers(accept: str, expected: str | None) -> None:
    """The form is chosen by quality, then a named type before a wildcard, then by order; XML for a client
    that accepts anything.
    """
    assert preferred_media_type(accept) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"instanceId": "own"}, "own"),
        ({}, "h"),
        ({"instanceId": ""}, "h"),
        ({"dataCenterInfo": {"@class": AMAZON_DATA_CENTER_CLASS, "metadata": {"instance-id": "i-1"}}}, "i-1"),
        (
            {
                "dataCenterInfo": {"@class": AMAZON_DATA_CENTER_CLASS, "metadata": {"instance-id": "i-1"}},
                "instanceId": "own",
            },
            "own",
        ),
        ({"dataCenterInfo": {"@class": AMAZON_DATA_CENTER_CLASS, "metadata": {}}}, "h"),
    ],
)
def test_the_id_of_an_instance(fields: dict[str, Any], expected: str) -> None:
    """An instance's id is its own, else that of its Amazon data centre, else its host name."""
    assert parse_instance_info(sent(**fields), NOW_MS).id == expected


def test_what_is_missing_is_filled_in_and_what_is_unknown_is_dropped() -> None:
    """A server's document of an instance has defaults for missing fields, and no unknown fields."""
    document = instance_info_document(parse_instance_info(sent(unknown=1), NOW_MS), None)
    assert document["port"] == {"$": 7001, "@enabled": "true"}
    assert document["securePort"] == {"$": 7002, "@enabled": "false"}
    assert (document["countryId"], document["lastDirtyTimestamp"]) == (1, str(NOW_MS))
    assert document["leaseInfo"]["durationInSecs"] == 90
    assert document["metadata"] == {"@class": "java.util.Collections$EmptyMap"}
    assert "unknown" not in document


@pytest.mark.parametrize(
    "fields",
    [
        {"app": None},
        {"port": 8080},
        {"port": {"other": 1}},
        {"metadata": "text"},
        {"metadata": {"key": {"nested": 1}}},
        {"leaseInfo": 5},
        {"dataCenterInfo": {"name": "MyOwn"}},
        {"dataCenterInfo": {**DATA_CENTER, "other": 1}},
    ],
)
def test_what_a_server_cannot_read(fields: dict[str, Any]) -> None:
    """A registration with a field of a wrong type is refused as a whole."""
    with pytest.raises(UnreadableBody):
        parse_instance_info(sent(**fields), NOW_MS)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"hostName": None, "instanceId": "i"}, "Missing hostname"),
        ({"ipAddr": ""}, "Missing ip address"),
        ({"app": ""}, "Missing appName"),
        ({"app": "other"}, "Mismatched appName, expecting RATING but was OTHER"),
        ({"dataCenterInfo": None}, "Missing dataCenterInfo"),
        ({"dataCenterInfo": {"@class": DATA_CENTER["@class"]}}, "Missing dataCenterInfo Name"),
        ({}, None),
    ],
)
def test_what_a_server_reads_and_refuses(fields: dict[str, Any], said: str | None) -> None:
    """An incomplete or mismatched registration is refused with the real server's words."""
    assert registration_refusal(parse_instance_info(sent(**fields), NOW_MS), "RATING") == said


@pytest.mark.parametrize("body", [[], {"replicationList": {}}, {"replicationList": [5]}, {"other": []}])
def test_what_is_no_batch(body: Any) -> None:
    """A batch with one malformed part is refused as a whole."""
    with pytest.raises(UnreadableBody):
        parse_batch_items(body, NOW_MS)
