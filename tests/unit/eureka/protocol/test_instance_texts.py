"""The reader of a list that makes each instance as soon as its text has come."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eurekube_provider.core.model import Instance, Port
from eurekube_provider.dev.eureka.documents import to_compact_json
from eurekube_provider.eureka.protocol import instance_texts
from eurekube_provider.eureka.protocol.codec import instance_to_json_object, instances_from_text
from eurekube_provider.eureka.protocol.instance_texts import instances_from_pieces
from tests.unit.strategies import instances

WRITTEN = Instance(
    application="RATING",
    instance_id="rating-1",
    host_name="rating-1.shop",
    ip_address="10.0.0.1",
    port=Port(8080),
    home_page_url="http://rating-1.shop:8080/",
    last_dirty_timestamp_ms=1_700_000_000_000,
)


def entry_of(instance: Instance, **fields: Any) -> dict[str, Any]:
    """Return an entry of a list as servers write it: its id comes first."""
    document = instance_to_json_object(instance)
    return {"instanceId": document["instanceId"], **document, **fields}


def text_of(*entries: Any) -> bytes:
    """Return the text of a list with one application."""
    application = [{"name": "RATING", "instance": list(entries)}]
    return to_compact_json({"applications": {"application": application}}).encode()


def read(text: bytes, size: int = 7) -> list[Instance]:
    """Read a text that comes in pieces of this size."""
    return instances_from_pieces(lambda: [text[at : at + size] for at in range(0, len(text), size)])


@given(st.lists(instances, max_size=4), st.integers(1, 400))
def test_a_list_in_pieces_is_read_as_a_whole(listed: list[Instance], size: int) -> None:
    """Wherever a piece ends, the instances are those of the whole text, in their order."""
    text = text_of(*map(entry_of, listed))
    assert read(text, size) == instances_from_text(text)


def test_no_text_is_parsed_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list as servers write it is never read as one text, not even with an entry that names no id."""

    def refuse(_: object) -> list[Instance]:
        raise AssertionError("the whole text was parsed")

    monkeypatch.setattr(instance_texts, "instances_from_text", refuse)
    nameless = {key: value for key, value in entry_of(WRITTEN).items() if key != "instanceId"}
    odd = replace(WRITTEN, instance_id="b", metadata={"instanceId": "odd", "zone": "a"})
    found = read(text_of(entry_of(WRITTEN), nameless, "nothing", entry_of(odd)))
    assert [one.instance_id for one in found][::3] == ["rating-1", "b"]
    assert [bool(one.unreadable) for one in found] == [False, False, True, False]
    assert found[3].metadata == odd.metadata


@pytest.mark.parametrize(
    "entries",
    [
        [{key: value for key, value in entry_of(WRITTEN).items() if key != "app"}],
        [entry_of(WRITTEN, odd=[entry_of(WRITTEN)])],
        [entry_of(WRITTEN), 1],
        [0, entry_of(WRITTEN)],
        [],
    ],
)
def test_another_text_is_read_all_the_same(entries: list[Any]) -> None:
    """A text as no server writes it is read as one text, with the same result."""
    text = text_of(*entries)
    assert read(text) == instances_from_text(text)


def test_a_text_without_instances_is_not_gathered_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long text in another notation is read as one text."""
    monkeypatch.setattr(instance_texts, "LARGEST_PART_BYTES", 100)
    text = json.dumps(json.loads(text_of(entry_of(WRITTEN)))).encode()
    assert read(text) == instances_from_text(text)


@pytest.mark.parametrize("text", [b"", b"<html>", text_of(entry_of(WRITTEN))[:-2]])
def test_what_is_no_json_is_refused(text: bytes) -> None:
    """A text that is no JSON raises an error, also if only its end is missing."""
    with pytest.raises(json.JSONDecodeError):
        read(text)


def test_a_listed_instance_shares_what_is_equal() -> None:
    """The id, the address and the URLs of a known version are in memory once; what differs stays."""
    known = replace(WRITTEN, home_page_url="http://elsewhere/")
    (found,) = instances_from_pieces(lambda: [text_of(entry_of(WRITTEN))], {known.key: known}.get)
    assert found == WRITTEN
    assert found.key is known.key
    assert found.instance_id is known.instance_id
    assert found.ip_address is known.ip_address
    assert found.home_page_url == WRITTEN.home_page_url
