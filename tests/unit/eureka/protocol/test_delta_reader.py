"""Incremental reading of deltas: only new text is parsed, and the result is that of a full parse."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eurekube_provider.core.model import Instance, InstanceKey, intern_text
from eurekube_provider.dev.eureka import documents
from eurekube_provider.eureka.listing import Listing
from eurekube_provider.eureka.protocol import delta_reader
from eurekube_provider.eureka.protocol.delta import (
    Delta,
    DeltaChange,
    build_delta,
    delta_from_text,
    parse_delta_change,
)
from eurekube_provider.eureka.protocol.delta_reader import DeltaReader

Document = dict[str, Any]
Held = dict[InstanceKey, Instance]


def item(name: str = "a", application: str = "RATING", **more: Any) -> Document:
    """Return an instance in a delta, as a server writes it."""
    return {
        "instanceId": name,
        "hostName": "10.0.0.1",
        "app": application,
        "ipAddr": "10.0.0.1",
        "status": "UP",
        "leaseInfo": {"durationInSecs": 90, "lastRenewalTimestamp": 1, "evictionTimestamp": 0},
        "metadata": {},
        "lastUpdatedTimestamp": "1700",
        "lastDirtyTimestamp": "1600",
        "actionType": "ADDED",
        **more,
    }


def text_of(*items: Document) -> bytes:
    """Return the text of a delta with these items, grouped by application."""
    by_name: dict[str, list[Document]] = {}
    for one in items:
        by_name.setdefault(one["app"], []).append(one)
    listed = [{"name": name, "instance": those} for name, those in by_name.items()]
    applications = {"versions__delta": "7", "apps__hashcode": "UP_1_", "application": listed}
    return documents.to_compact_json({"applications": applications}).encode()


def following(
    texts: Sequence[bytes], understand: Callable[[bytes, Mapping[InstanceKey, Instance]], Delta]
) -> list[Delta]:
    """Read each delta in turn, each with the instances that the deltas before it have left."""
    held: Held = {}
    found = []
    for text in texts:
        found.append(understand(text, held))
        for key, instance in found[-1].changes.items():
            held.pop(key, None)
            if instance is not None:
                held[key] = instance
    return found


def said(delta: Delta) -> tuple[object, ...]:
    """Return what a delta says, however it is divided into parts."""
    kept = delta.version, delta.status_counts, delta.changes, delta.evicted_keys
    return (*kept, sorted(delta.departed_keys))


def reading(reader: DeltaReader) -> Callable[[bytes, Mapping[InstanceKey, Instance]], Delta]:
    """Return the reader's method for a text in one piece."""
    return lambda text, held: reader.read(lambda: (text,), held)


@pytest.fixture
def understood(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that collects the ids of the instances whose text is parsed."""
    found: list[str] = []

    def noting(document: Any, held: Mapping[InstanceKey, Instance]) -> DeltaChange | None:
        found.append(document.get("instanceId") or document["hostName"])
        return parse_delta_change(document, held)

    monkeypatch.setattr(delta_reader, "parse_delta_change", noting)
    return found


def test_what_stood_in_the_last_delta_is_not_read_again(understood: list[str]) -> None:
    """An item of the last delta is not parsed again, even with another lease; changed and new items are."""
    renewed = item("b", leaseInfo={"durationInSecs": 90, "lastRenewalTimestamp": 2})
    second = text_of(item("a"), renewed, item("c", status="DOWN"), item("d"), item("z"))
    one = DeltaReader()
    before, after = following([text_of(*map(item, "abcz")), second], reading(one))
    assert understood == ["a", "b", "c", "z", "c", "d"]
    assert said(after) == said(delta_from_text(second))
    assert after.changes["RATING", "b"] is before.changes["RATING", "b"]


def test_nothing_is_remembered_of_the_delta_before_the_last(understood: list[str]) -> None:
    """An item that was missing in the last delta is parsed again: the reader remembers one delta."""
    texts = [text_of(item("a"), item("z")), text_of(item("z")), text_of(item("a"), item("z"))]
    following(texts, reading(DeltaReader()))
    assert understood == ["a", "z", "a"]


def test_a_reader_that_forgets_reads_all_of_the_next_one(understood: list[str]) -> None:
    """After ``forget`` every item of the next delta is parsed, as after a list, which may hold other
    instances.
    """
    one = DeltaReader()
    text = text_of(item("a"))
    reading(one)(text, {})
    one.forget_texts()
    reading(one)(text, {})
    assert understood == ["a", "a"]


def test_of_what_is_gone_the_lease_counts() -> None:
    """Two deletions of an instance that differ in the lease are read separately: the lease tells an eviction
    from a deregistration.
    """
    lease = {"durationInSecs": 90, "lastRenewalTimestamp": 1_000_000}
    left = item("a", actionType="DELETED", leaseInfo={**lease, "evictionTimestamp": 1_000_001})
    lapsed = item("a", actionType="DELETED", leaseInfo={**lease, "evictionTimestamp": 2_000_000})
    found = following([text_of(left), text_of(lapsed), text_of(left)], reading(DeltaReader()))
    assert [one.evicted_keys for one in found] == [frozenset(), {("RATING", "a")}, frozenset()]


def test_an_application_that_did_not_change_is_the_same_object() -> None:
    """An application's part of a delta stays the same object while nothing but leases changes in it, and the
    changes since a delta are those of the other parts.
    """
    renewed = item("a", leaseInfo={"durationInSecs": 90, "lastRenewalTimestamp": 2})
    order, down = item("b", "ORDER"), item("b", "ORDER", status="DOWN")
    before, after = following([text_of(item("a"), order), text_of(renewed, down)], reading(DeltaReader()))
    assert after.parts[0] is before.parts[0]
    assert after.changes_since(before) == {("ORDER", "b"): after.changes["ORDER", "b"]}


def test_what_two_parts_say_of_one_instance_is_taken_as_a_whole() -> None:
    """Where two parts of a delta, or of the one before, name the same instance, all changes count as new: a
    part that stays may be what holds now that the other one is gone.
    """
    ups, downs = (delta_from_text(text_of(item("a", status=status))).parts for status in ("UP", "DOWN"))
    both = build_delta({"versions__delta": 1, "apps__hashcode": ""}, [*ups, *downs])
    left = build_delta({"versions__delta": 2, "apps__hashcode": ""}, [*ups])
    assert left.changes_since(both) == left.changes != {}
    assert both.changes_since(left) == both.changes
    assert left.changes_since(left) == {}


NASTY = [
    '{"instanceId":"',
    '{"name":"',
    ']},{"name":"',
    "]}]}}",
    '"leaseInfo":{',
    "}",
    "]}",
    "\\",
    '"',
    "0",
    "ü",
    "",
    "zone-a",
]
"""Metadata values that resemble parts of a delta's text."""

items = st.builds(
    item,
    st.sampled_from("abc"),
    st.sampled_from(["RATING", "ORDER"]),
    status=st.sampled_from(["UP", "DOWN"]),
    actionType=st.sampled_from(["ADDED", "MODIFIED", "DELETED"]),
    lastUpdatedTimestamp=st.sampled_from(["1700", "1701"]),
    leaseInfo=st.fixed_dictionaries(
        {"durationInSecs": st.just(90)},
        optional={
            "lastRenewalTimestamp": st.sampled_from([1, 10]),
            "evictionTimestamp": st.sampled_from([0, 1_000_000]),
        },
    ),
    metadata=st.dictionaries(st.sampled_from(["zone", "x"]), st.sampled_from(NASTY)),
)


@settings(deadline=None)  # of others' work on the machine
@given(st.lists(st.builds(lambda each: text_of(*each), st.lists(items, max_size=6)), min_size=1, max_size=5))
def test_it_comes_to_what_reading_all_of_it_comes_to(texts: list[bytes]) -> None:
    """The incremental reader gives the same deltas as a full parse, for items in any order and with any
    text.
    """
    found = following(texts, reading(DeltaReader()))
    assert [*map(said, found)] == [*map(said, following(texts, delta_from_text))]
    listing = Listing()
    for before, delta in itertools.pairwise((Delta(0, ""), *found)):
        listing, whole = (
            listing.with_changes(delta.changes_since(before)),
            listing.with_changes(delta.changes),
        )
        assert listing.by_key == whole.by_key


ODD = [
    text_of(item("a")).replace(b'[{"instanceId"', b'{"instanceId"').replace(b"}]}]", b"}}]"),
    text_of({key: value for key, value in item("a").items() if key != "instanceId"}),
    text_of(item("a"), {key: value for key, value in item("b").items() if key != "instanceId"}, item("c")),
    text_of(item("a"), item("b", actionType="ARCHIVED"), item("c")),
    text_of(item("a"), item("b")).replace(b'},{"instanceId"', b'},1,{"instanceId"'),
    text_of(item("a"), item("b")).replace(b'[{"instanceId"', b'[0,{"instanceId"'),
    text_of(item("a"), item("b/c")),
    json.dumps(json.loads(text_of(item("a"), item("b")))).encode(),
    text_of(item("a", metadata={"other": item("b")})),
    text_of(item("a", other={"instanceId": "b"}), item("c")),
    text_of(item("a", other={"name": "b"}), item("c", "ORDER")),
    text_of(item("a", other=[{"name": "b"}, [{"name": "b"}]]), item("c", "ORDER")),
    text_of(item("a"), item("c", "ORDER")).replace(
        b'{"applications"', b'{"more":{"name":"x"},"applications"'
    ),
    text_of(item("a"), item("c", "ORDER")).replace(
        b'"application":', b'"application":[{"name":"x"}],"application":'
    ),
    text_of(item("a"), item("c", "ORDER")).removesuffix(b"}}") + b',"more":1}}',
    text_of(item("a")).replace(b'"RATING","instance"', b'"ORDER","instance"'),
    text_of(),
]


@pytest.mark.parametrize("text", ODD)
def test_what_is_written_otherwise_is_read_as_before(text: bytes) -> None:
    """Deltas in an unusual form (an object for a list, other spaces, an object that resembles an instance)
    give the same result as a full parse.
    """
    found, whole = following([text, text], reading(DeltaReader())), following([text, text], delta_from_text)
    assert [*map(said, found)] == [*map(said, whole)]


def test_an_instance_without_an_id_has_no_other_read_again(understood: list[str]) -> None:
    """An instance without an id is parsed again with each change of its application, and the texts of the
    others are still remembered.
    """
    bare = {**item(), "hostName": "b"}
    del bare["instanceId"]
    texts = [text_of(item("a"), bare, *more, item("c")) for more in ([], [], [item("d")])]
    found = following(texts, reading(DeltaReader()))
    assert set(found[1].changes) == {("RATING", "a"), ("RATING", "b"), ("RATING", "c")}
    assert found[0].parts[0] is found[1].parts[0]
    assert sorted(understood) == ["a", "b", "b", "c", "d"]


@pytest.mark.parametrize(
    "text",
    [
        text_of(item("a"), item("b"))[:-3],
        text_of(item("a"), item("b")) + b"}",
        text_of(item("a"), item("b")).replace(b'"actionType":"ADDED"},', b'"actionType":"ADDED"}'),
    ],
)
def test_what_cannot_be_read_is_refused(text: bytes) -> None:
    """A delta that is no valid JSON raises, even where most of its text was read before."""
    before = text_of(item("a"), item("b"))
    with pytest.raises((ValueError, KeyError)):
        delta_from_text(text)
    with pytest.raises((ValueError, KeyError)):
        following([before, text], reading(DeltaReader()))


def test_a_long_text_between_instances_is_not_remembered() -> None:
    """Entries without an id are part of the text between, which differs each time: it is not interned."""
    nameless = {key: value for key, value in item("x").items() if key != "instanceId"}
    before = intern_text.cache_info().currsize
    for number in range(20):
        text = text_of(item("a"), {**nameless, "hostName": f"h{number}"}, item("b"))
        DeltaReader().read(partial(iter, [text]), {})
    assert intern_text.cache_info().currsize - before < 30
