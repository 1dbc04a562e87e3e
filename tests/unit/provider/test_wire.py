"""The conversion of properties from and to Pulumi's messages."""

from __future__ import annotations

from typing import Any

from google.protobuf import struct_pb2
from hypothesis import given
from hypothesis import strategies as st

from eurekube_provider.provider.wire import (
    UNKNOWN_TEXT,
    decode_properties,
    encode_properties,
)
from eurekube_provider.registrations.members import APPLICATION_INPUT_NAMES, APPLICATION_OUTPUT_NAMES
from eurekube_provider.registrations.names import INSTANCES_PROPERTY, to_camel_case, to_snake_case
from eurekube_provider.registrations.properties import INPUT_NAMES, OUTPUT_ONLY_NAMES
from eurekube_provider.registrations.secret_values import OUTPUT_SIGNATURE, SECRET_SIGNATURE, SIGNATURE_KEY
from eurekube_provider.registrations.values import UNKNOWN


def message(properties: dict[str, Any]) -> Any:
    """Return properties as a message of the engine."""
    found: Any = struct_pb2.Struct()  # type: ignore[attr-defined]
    found.update(properties)
    return found


def secret(value: Any) -> dict[str, Any]:
    """Return a secret as the engine encodes it."""
    return {SIGNATURE_KEY: SECRET_SIGNATURE, "value": value}


def plain(value: Any) -> Any:
    """Return a message as dictionaries."""
    if isinstance(value, struct_pb2.Struct):  # type: ignore[attr-defined]
        return {key: plain(item) for key, item in value.items()}
    return value


def test_names_are_the_schemas_and_come_back() -> None:
    """Every property's name converts between snake and camel case, whichever provider wrote the state."""
    for name in {*INPUT_NAMES, *OUTPUT_ONLY_NAMES, *APPLICATION_INPUT_NAMES, *APPLICATION_OUTPUT_NAMES}:
        assert to_snake_case(to_camel_case(name)) == to_snake_case(name) == name
    for written in ("hostName", "host_name"):
        assert decode_properties(message({written: "a", "__provider": "x"})).properties == {"host_name": "a"}


def test_a_secret_within_an_output_stays_one() -> None:
    """An engine may send a map as an output that contains a secret entry."""
    output = {
        SIGNATURE_KEY: OUTPUT_SIGNATURE,
        "value": {"open": "1", "hidden": secret("2")},
        "dependencies": [],
    }
    found = decode_properties(message({"metadata": output}))
    assert found.properties == {"metadata": {"open": "1", "hidden": "2"}}
    assert found.secrets == {("metadata", "hidden")}


def test_a_programs_own_keys_are_no_names() -> None:
    """Keys of metadata and of instances are not converted, not even within a secret."""
    given_there = {
        "metadata": {"myKey": "1"},
        INSTANCES_PROPERTY: {"vmOne": {"hostName": "a", "metadata": {"otherKey": "2"}}},
    }
    there = decode_properties(message({**given_there, "statuses": secret({"vmOne": "DOWN"})}))
    assert there.properties == {
        "metadata": {"myKey": "1"},
        INSTANCES_PROPERTY: {"vmOne": {"host_name": "a", "metadata": {"otherKey": "2"}}},
        "statuses": {"vmOne": "DOWN"},
    }
    assert plain(encode_properties(there.properties, there.secrets)) == {
        **given_there,
        "statuses": secret({"vmOne": "DOWN"}),
    }


def test_a_secret_stays_one_where_it_stands() -> None:
    """Exactly the values that were secret are secret after the conversion, at any depth."""
    wrapped = {
        "hostName": secret("a"),
        "metadata": {"k": secret("1"), "l": "2"},
        INSTANCES_PROPERTY: {
            "vmOne": {"hostName": secret("b"), "port": 1.0},
            "two": secret({"hostName": "c"}),
        },
    }
    there = decode_properties(message(wrapped))
    assert there.secrets == {
        ("host_name",),
        ("metadata", "k"),
        (INSTANCES_PROPERTY, "vmOne", "host_name"),
        (INSTANCES_PROPERTY, "two"),
    }
    assert there.properties["host_name"] == "a"
    assert plain(encode_properties(there.properties, there.secrets)) == wrapped
    assert (there.contains_secret("metadata"), there.contains_secret("port")) == (True, False)


def test_what_is_not_known_yet_is_one_thing() -> None:
    """An unknown value at any depth, also within a secret, becomes UNKNOWN."""
    there = decode_properties(message({"port": UNKNOWN_TEXT, "metadata": {"a": secret(UNKNOWN_TEXT)}}))
    assert there.properties == {"port": UNKNOWN, "metadata": {"a": UNKNOWN}}
    assert plain(encode_properties({"port": UNKNOWN})) == {"port": UNKNOWN_TEXT}


@given(st.sampled_from([float("inf"), float("-inf"), 1e300, 0.5]))
def test_any_number_arrives(number: float) -> None:
    """The conversion keeps any number; the check refuses invalid ports."""
    assert decode_properties(message({"port": number})).properties == {"port": number}
