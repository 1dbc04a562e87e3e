"""The check of a registration's inputs: defaults, normal forms and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from eurekube_provider.registrations.properties import contains_unknown
from eurekube_provider.registrations.property_check import check
from eurekube_provider.registrations.values import UNKNOWN

OWNER = "stack/organization/shop/dev/billing"
LEAST = {
    "application": "Billing",
    "host_name": "192.0.2.10",
    "port": 8080.0,
    "renewer": "eurekube",
    "service_url": "http://eureka:8761/eureka/",
    "owner": OWNER,
}


def checked(**changes: Any) -> dict[str, Any]:
    """Return a registration's checked properties, without problems."""
    result = check({}, {**LEAST, **changes})
    assert result.problems == ()
    return result.properties


def reasons(**changes: Any) -> dict[str, str]:
    """Return the problems by property."""
    return {problem.property: problem.reason for problem in check({}, {**LEAST, **changes}).problems}


def test_defaults_are_filled_in() -> None:
    """The required inputs alone yield a complete registration."""
    assert checked() == {
        "application": "BILLING",
        "instance_id": "billing.dev.shop:billing:8080",
        "instance_id_is_default": True,
        "host_name": "192.0.2.10",
        "ip_address": "192.0.2.10",
        "port": 8080,
        "port_enabled": True,
        "secure_port": 443,
        "secure_port_enabled": False,
        "vip_address": "billing",
        "secure_vip_address": "billing",
        "metadata": {},
        "renewal_interval_seconds": 30,
        "duration_seconds": 90,
        "renewer": "eurekube",
        "on_conflict": "fail",
        "drain_seconds": 0,
        "connection": "default",
        "service_url": "http://eureka:8761/eureka",
        "owner": OWNER,
    }


def test_checking_twice_changes_nothing() -> None:
    """Checked properties pass the next check unchanged, as Pulumi sends them again."""
    once = checked(metadata={"zone": "a", "tier": 1.0}, status="DOWN")
    assert once == check(once, {**once, "instance_id": None}).properties


def test_floats_become_whole_numbers_and_texts() -> None:
    """Pulumi sends every number as a float, which must not show in ids or metadata."""
    properties = checked(secure_port=8443.0, drain_seconds=5.0, metadata={"management.port": 8081.0})
    assert tuple(properties[key] for key in ("secure_port", "secure_port_enabled", "drain_seconds")) == (
        8443,
        True,
        5,
    )
    assert properties["metadata"] == {"management.port": "8081"}
    assert isinstance(properties["port"], int)


def test_keys_without_a_value_are_as_if_not_written() -> None:
    """None counts as not given, since Pulumi drops it on the way."""
    assert checked() == checked(zone=None, status=None, secure_port=None, overridden_status=None)


def test_an_explicit_vip_address_keeps_its_case() -> None:
    """Eureka's server compares VIP addresses with their case."""
    properties = checked(vip_address="Billing-API")
    assert (properties["vip_address"], properties["secure_vip_address"]) == ("Billing-API", "Billing-API")


def test_a_zone_in_the_metadata_is_the_zone() -> None:
    """``zone`` and ``metadata.zone`` yield the same properties, so that they are no drift; two values are
    refused.
    """
    assert checked(zone="zone-a") == checked(metadata={"zone": "zone-a"})
    assert "zone" in reasons(zone="zone-a", metadata={"zone": "zone-b"})


@pytest.mark.parametrize("name", [*LEAST, "zone", "status", "metadata", "instance_id", "drain_seconds"])
def test_unknown_values_pass(name: str) -> None:
    """Any property may be unknown in a preview, without a problem."""
    properties = checked(**{name: UNKNOWN})
    assert properties[name] is UNKNOWN
    assert contains_unknown(properties)


@pytest.mark.parametrize("name", ["application", "port", "owner"])
def test_a_default_id_of_unknown_parts_is_unknown(name: str) -> None:
    """The default id is unknown if the application, port or owner is."""
    assert checked(**{name: UNKNOWN})["instance_id"] is UNKNOWN


def test_unknown_values_inside_metadata_pass() -> None:
    """One value of the metadata may be unknown while others are checked."""
    assert checked(metadata={"a": UNKNOWN, "b": 1})["metadata"] == {"a": UNKNOWN, "b": "1"}


def test_a_default_id_survives_a_renamed_stack() -> None:
    """The default id of the old state is kept, since a new id would register every instance again."""
    olds = checked()
    renamed = check(olds, {**LEAST, "owner": "stack/organization/shop/production/billing"})
    assert olds["instance_id"] == renamed.properties["instance_id"]


def test_a_default_id_follows_the_port() -> None:
    """The default id contains the port, and changes with it."""
    moved = check(checked(), {**LEAST, "port": 9090.0})
    assert moved.properties["instance_id"] == "billing.dev.shop:billing:9090"


def test_an_id_that_is_no_longer_written_gives_way_to_the_default() -> None:
    """A former id is kept only if it was the default."""
    olds = checked(instance_id="legacy-1")
    assert check(olds, LEAST).properties["instance_id"] == "billing.dev.shop:billing:8080"


@pytest.mark.parametrize("renewer", ["", "  ", None, 3])
def test_a_registration_without_a_renewer_is_refused(renewer: Any) -> None:
    """The instance would lapse while Pulumi's state still has it."""
    assert "lapses after 90 seconds" in reasons(renewer=renewer)["renewer"]


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("application", None, "is required"),
        ("application", "a/b", "without a slash"),
        ("host_name", "http://billing", "without http://"),
        ("port", 0, "0 must be a whole number from 1 to 65535"),
        ("port", 80.5, "whole number"),
        ("port", True, "whole number"),
        ("port", "8080", "'8080' must be a whole number"),
        ("port_enabled", "yes", "true or false"),
        ("status", "UNKNOWN", "one of UP, DOWN"),
        ("metadata", {"a/b": "1"}, "'a.b'"),
        ("metadata", {"eurekube.owner": "me"}, "Eurekube's own"),
        ("metadata", {"a": {"b": "c"}}, "not nested"),
        ("metadata", ["a"], "map of texts"),
        ("duration_seconds", 30, "take three times as long"),
        ("home_page_url", "/home", "http://"),
        ("on_conflict", "steal", "fail or adopt"),
        ("service_url", "eureka:8761", "must look like http://"),
        ("owner", "cluster/a/b/c", "stack/"),
        ("instance_id", "a/b", "without a slash"),
        ("instance_id", "a\\b", "never read or remove it again"),
        ("instance_id", "a;b", "without ';'"),
        ("instance_id", "..", "without such a name"),
        ("instance_id", "a\ufffe", "U+FFFE"),
        ("application", "a\\b", "never read or remove it again"),
        ("application", "a\uffff", "U+FFFF"),
        ("host_name", "a\ufffe", "U+FFFE"),
        ("vip_address", "a\x01b", "U+0001"),
        ("zone", "\ud800", "U+D800"),
        ("metadata", {"a": "b\ufffe"}, "the value of 'a' has the character U+FFFE"),
        ("metadata", {f"k{i}": "x" * 510 for i in range(8)} | {"a": "\u00e4" * 10}, "4117 bytes together"),
        ("home_page_url", "http://a/\ufffe", "U+FFFE"),
        ("renewer", "a\ufffe", "U+FFFE"),
        ("owner", "stack/o/p/s/a\ufffe", "U+FFFE"),
        ("vip_adress", "billing", "vip_address is one"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_reason(name: str, value: Any, reason: str) -> None:
    """Each problem names the property with the unusable value."""
    assert reason in reasons(**{name: value})[name]


def test_what_a_state_holds_is_read_though_it_would_be_refused_today() -> None:
    """A state older than a rule must be comparable, and its registration removable."""
    written = {"metadata": {"a": "b" * 5000}, "instance_id": "a;b", "vip_address": "a\ufffe"}
    found = check({}, {**LEAST, **written}).properties
    assert {name: found[name] for name in written} == written


def test_large_metadata_of_an_earlier_release_go_on() -> None:
    """Metadata above the bound get a warning if the state has them, also when some are dropped; larger
    ones are refused.
    """
    large = {"a": "b" * 5000, "c": "d" * 5000, "zone": "z"}
    olds = check({}, {**LEAST, "metadata": large}).properties
    for metadata in (large, {"a": large["a"]}):
        found = check(olds, {**LEAST, "metadata": metadata})
        assert not found.problems
        (warning,) = found.warnings
        assert "more than 4096" in warning.reason
        assert "stay" in warning.reason
    for metadata in ({**large, "e": "f"}, {**large, "a": "b" * 5001}):
        (problem,) = check(olds, {**LEAST, "metadata": metadata}).problems
        assert "more than 4096" in problem.reason


def test_all_problems_are_reported_at_once() -> None:
    """One check reports the problems of all properties."""
    assert {"port", "host_name", "status"} == set(reasons(port=-1, host_name=None, status="UPP"))


@pytest.mark.parametrize("written", ["fd00::1", "[fd00::1]"])
def test_an_ipv6_address_has_brackets_where_a_url_is_made_of_it(written: str) -> None:
    """The host name, from which Spring builds URLs, gets brackets; the IP address has none."""
    for given in ({"host_name": written}, {"host_name": written, "ip_address": written}):
        found = checked(**given)
        assert (found["host_name"], found["ip_address"]) == ("[fd00::1]", "fd00::1")
    found = checked(host_name="billing", ip_address=written)
    assert (found["host_name"], found["ip_address"]) == ("billing", "fd00::1")
