"""Differences between inputs, as a preview shows them."""

from __future__ import annotations

from typing import Any

from pulumi.runtime.proto import provider_pb2 as proto

from eurekube_provider.provider.differences import detailed_diff


def kinds(olds: dict[str, Any], news: dict[str, Any], *replaces: str) -> dict[str, str]:
    """Return the kind of each difference by its path."""
    found = detailed_diff(olds, news, replaces)
    return {path: proto.PropertyDiff.Kind.Name(each.kind) for path, each in found.items()}


def test_what_came_went_and_changed() -> None:
    """Properties have their names in the schema; a map's entries differ by key."""
    olds = {"host_name": "a", "zone": "z", "metadata": {"k": "1", "a b": "2"}}
    news = {"host_name": "b", "drain_seconds": 5, "metadata": {"k": "2"}}
    assert kinds(olds, news) == {
        "hostName": "UPDATE",
        "zone": "DELETE",
        "drainSeconds": "ADD",
        "metadata.k": "UPDATE",
        'metadata["a b"]': "DELETE",
    }


def test_instances_by_their_keys() -> None:
    """A program's key of an instance is kept as it is; the properties of the instance have the schema's
    names.
    """
    olds = {"instances": {"vm-1": {"host_name": "a"}, "b": {"host_name": "b"}}}
    news = {"instances": {"vm-1": {"host_name": "c"}}}
    assert kinds(olds, news) == {'instances["vm-1"].hostName': "UPDATE", "instances.b": "DELETE"}


def test_a_key_that_is_no_name_is_written_as_the_engine_reads_it() -> None:
    """The engine aborts the update if it cannot parse a path, so that keys with quotes are escaped."""
    olds = {"instances": {'a"b': {"host_name": "a"}, "c\\": {"host_name": "c"}}}
    news = {"instances": {'a"b': {"host_name": "b"}, 'd\\"e': {"host_name": "d"}}}
    assert kinds(olds, news) == {
        r'instances["a\"b"].hostName': "UPDATE",
        r'instances["d\\"e"]': "ADD",
        "instances": "UPDATE",
    }


def test_what_makes_a_new_registration_says_so() -> None:
    """A replaced property is shown although the inputs are equal, since the URLs of Eureka may have
    changed.
    """
    assert kinds({"application": "A"}, {"application": "B"}, "application") == {
        "application": "UPDATE_REPLACE"
    }
    assert kinds({}, {"instance_id": "x"}, "instance_id", "service_url") == {
        "instanceId": "ADD_REPLACE",
        "serviceUrl": "UPDATE_REPLACE",
    }


def test_what_the_check_fills_in_is_not_reported() -> None:
    """An import has the required inputs only: a default that the check adds is no difference, another
    value or an owner is.
    """
    olds = {"application": "A", "host_name": "a", "port": 1}
    filled = {
        "ip_address": "a",
        "vip_address": "a",
        "drain_seconds": 0,
        "connection": "default",
        "service_url": "http://eureka:8761/eureka",
        "instance_id": "x.dev.shop:a:1",
        "instance_id_is_default": True,
    }
    assert kinds(olds, {**olds, **filled}) == {}
    assert kinds({**olds, **filled}, olds) == {}
    changed = {**filled, "ip_address": "b", "vip_address": "c", "drain_seconds": 5, "owner": "stack/o/p/s/x"}
    assert kinds(olds, {**olds, **changed}) == {
        "ipAddress": "ADD",
        "vipAddress": "ADD",
        "drainSeconds": "ADD",
        "owner": "ADD",
    }
