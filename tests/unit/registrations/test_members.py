"""An application's many registrations: the check of its inputs, and the registration of each instance."""

from __future__ import annotations

from typing import Any

import pytest

from eurekube_provider.registrations.difference import StateDifference, diff
from eurekube_provider.registrations.members import (
    check_application,
    member_inputs_matching,
    member_properties,
)
from eurekube_provider.registrations.properties import contains_unknown
from eurekube_provider.registrations.values import UNKNOWN
from tests.unit.registrations.test_properties import LEAST, OWNER

ALL = {
    "application": "Billing",
    "port": 8080.0,
    "renewer": "eurekube",
    "service_url": "http://eureka:8761/eureka",
    "owner": OWNER,
    "instances": {"a": {"host_name": "192.0.2.1"}, "b": {"host_name": "192.0.2.2"}},
}


def checked(olds: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """Return an application's checked properties, without problems."""
    result = check_application(olds or {}, {**ALL, **changes})
    assert result.problems == ()
    return result.properties


def reasons(**changes: Any) -> dict[str, str]:
    """Return the problems by property."""
    return {each.property: each.reason for each in check_application({}, {**ALL, **changes}).problems}


def test_only_what_was_written_is_kept() -> None:
    """Defaults of each instance are left out, since the state has inputs and outputs."""
    assert checked(metadata={"tier": 1.0}, secure_port=None) == {
        "application": "BILLING",
        "port": 8080,
        "metadata": {"tier": "1"},
        "instances": ALL["instances"],
        "id_base": "billing.dev.shop",
        "renewer": "eurekube",
        "on_conflict": "fail",
        "drain_seconds": 0,
        "connection": "default",
        "service_url": "http://eureka:8761/eureka",
        "owner": OWNER,
    }


def test_an_instance_has_what_its_application_has() -> None:
    """An instance inherits properties that it does not set; metadata are merged by key."""
    made = member_properties(
        checked(
            metadata={"tier": "1", "team": "a", "zone": "zone-a"},
            instances={
                "a": {"host_name": "h", "metadata": {"tier": "2", "zone": "zone-b"}, "secure_port": 8443.0},
                "b": {"host_name": "i", "port": 9090.0, "instance_id": "own"},
            },
        )
    )
    assert made["a"]["metadata"] == {"tier": "2", "team": "a"}
    assert (made["a"]["zone"], made["b"]["zone"]) == ("zone-b", "zone-a")
    assert (made["a"]["secure_port"], made["a"]["secure_port_enabled"]) == (8443, True)
    assert (made["a"]["instance_id"], made["b"]["instance_id"]) == ("a.billing.dev.shop:billing:8080", "own")
    assert (made["a"]["port"], made["b"]["port"]) == (8080, 9090)


def test_checking_twice_changes_nothing() -> None:
    """Checked properties pass another check unchanged."""
    once = checked(metadata={"zone": "a", "n": 1.0}, instances={"a": {"host_name": "h", "port": 1.0}})
    assert check_application(once, once).properties == once


def test_ids_survive_a_renamed_stack() -> None:
    """The common end of the default ids is taken from the old state."""
    olds = checked()
    renamed = checked(olds, owner="stack/organization/shop/production/invoices")
    assert member_properties(renamed)["a"]["instance_id"] == member_properties(olds)["a"]["instance_id"]
    assert diff(olds, renamed) == StateDifference(has_changes=True)


@pytest.mark.parametrize(
    "changes",
    [
        {"instances": UNKNOWN},
        {"instances": {"a": UNKNOWN}},
        {"instances": {"a": {"host_name": UNKNOWN, "metadata": {"x": UNKNOWN}}}},
        {"port": UNKNOWN},
        {"metadata": UNKNOWN},
        {"application": UNKNOWN},
    ],
)
def test_unknown_values_pass(changes: dict[str, Any]) -> None:
    """Any value may be unknown in a preview, and counts as a change."""
    news = checked(**changes)
    assert contains_unknown(news)
    assert diff(checked(), news).has_changes


@pytest.mark.parametrize(
    ("changes", "where", "reason"),
    [
        ({"instances": None}, "instances", "is required"),
        ({"instances": ["a"]}, "instances", "a map from a key"),
        ({"instances": {"a/b": {"host_name": "h"}}}, "instances.a/b", "no slash"),
        ({"instances": {"a": {}}}, "instances.a.host_name", "is required"),
        (
            {"instances": {"a": {"host_name": "h", "hostname": "h"}}},
            "instances.a.hostname",
            "host_name is one",
        ),
        ({"instances": {"a": {"host_name": "h", "port": 0}}}, "instances.a.port", "from 1 to 65535"),
        ({"instances": {"a": {"host_name": "h"}}, "port": None}, "instances.a.port", "is required"),
        ({"instances": {"a": {"host_name": "h", "renewer": "x"}}}, "instances.a.renewer", "no such property"),
        ({"port": 70000}, "port", "from 1 to 65535"),
        ({"renewer": ""}, "renewer", "lapses after 90 seconds"),
        ({"instance": {}}, "instance", "instances is one"),
        (
            {
                "instances": {
                    "a": {"host_name": "h", "instance_id": "x"},
                    "b": {"host_name": "i", "instance_id": "x"},
                }
            },
            "instances.b.instance_id",
            "that of 'a' too",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_where_it_stands(
    changes: dict[str, Any], where: str, reason: str
) -> None:
    """A fault of the application is reported once, not for each instance."""
    found = reasons(**changes)
    assert reason in found[where]
    assert list(found) == [where]


@pytest.mark.parametrize(
    "differs",
    [
        {"host_name": "192.0.2.99"},
        {"metadata": {"tier": "2", "added": "x"}},
        {"metadata": {}},
        {"zone": None},
        {"secure_port": 8443, "secure_port_enabled": True},
        {"vip_address": "other"},
        {"home_page_url": "http://x/"},
    ],
)
def test_what_is_written_fits_what_is_held(differs: dict[str, Any]) -> None:
    """A refresh writes, for an instance, little more than the properties that differ from the
    application's.
    """
    properties = checked(metadata={"tier": "1"}, zone="zone-a")
    held = {**member_properties(properties)["a"], **differs}
    written = member_inputs_matching(properties, "a", held)
    made = member_properties({**properties, "instances": {"a": written}})["a"]
    gone = {key: "" for key in properties["metadata"] if key not in held["metadata"]}
    wanted = {**held, "metadata": {**gone, **held["metadata"]}}
    assert made == {key: value for key, value in wanted.items() if value is not None}
    assert len(written) <= 2 + len(differs)


def test_another_application_or_other_servers_are_a_replacement() -> None:
    """Every other property, an instance's id included, is updated in place."""
    olds = checked()
    assert diff(olds, checked(olds)) == StateDifference(has_changes=False)
    assert diff(olds, checked(olds, port=9090)) == StateDifference(has_changes=True)
    assert diff(olds, checked(olds, application="x")).replaces == ("application",)
    other = diff(olds, checked(olds, service_url="http://other/eureka"))
    assert other == StateDifference(has_changes=True, replaces=("service_url",))


def test_a_host_that_was_once_registered_without_brackets_is_a_change() -> None:
    """Eureka holds the IPv6 host without brackets, although the check adds them to the state's inputs."""
    news = checked(instances={"a": {"host_name": "fd00::1"}})
    assert news["instances"]["a"]["host_name"] == "[fd00::1]"
    assert not diff(news, news).has_changes
    assert diff({**news, "instances": {"a": {"host_name": "fd00::1"}}}, news).has_changes


def test_what_belongs_to_others_is_a_change() -> None:
    """An update then tries again, and its error names the owner."""
    assert diff({**checked(), "held_by_others": {"a": "cluster/a/b/c"}}, checked()).has_changes


def test_the_defaults_are_those_of_a_single_registration() -> None:
    """An input has the same default in EurekaInstance and EurekaApplication."""
    from eurekube_provider.registrations.property_check import check

    alone = check({}, {**LEAST, "instance_id": "x"}).properties
    (one,) = member_properties(
        checked(instances={"a": {"host_name": "192.0.2.10", "instance_id": "x"}})
    ).values()
    assert one == alone


@pytest.mark.parametrize("port", [float("inf"), float("-inf"), float("nan")])
def test_a_port_without_an_end_is_refused(port: float) -> None:
    """Infinity and NaN are refused like any invalid port, with the property's name."""
    application = {**ALL, "instances": {"a": {"host_name": "192.0.2.1", "port": port}}}
    (problem,) = check_application({}, application).problems
    assert problem.property == "instances.a.port"
    assert "must be a whole number from 1 to 65535" in problem.reason


@pytest.mark.parametrize("where", ["application", "instance"])
def test_large_metadata_of_an_earlier_release_go_on(where: str) -> None:
    """Metadata above the bound get a warning if the state has them, and are refused if they grow."""

    def written(metadata: dict[str, str]) -> dict[str, Any]:
        own = {"host_name": "h", **({"metadata": metadata} if where == "instance" else {})}
        above = {"metadata": metadata} if where == "application" else {}
        return {**ALL, **above, "instances": {"a": own}}

    large = {"a": "b" * 5000, "zone": "z"}
    olds = check_application({}, written(large)).properties
    found = check_application(olds, written(large))
    assert not found.problems
    assert "more than 4096" in found.warnings[-1].reason
    assert "more than 4096" in check_application(olds, written({**large, "c": "d"})).problems[0].reason


TWICE = {"a": {"host_name": "192.0.2.1"}, "b": {"host_name": "192.0.2.1"}}


@pytest.mark.parametrize(
    ("instances", "is_refused"),
    [
        (TWICE, True),
        ({key: {"host_name": key, "ip_address": "192.0.2.1"} for key in ("a", "b")}, False),
        (
            {
                "a": {"host_name": "x.example.com"},
                "b": {"host_name": "X.example.com", "ip_address": "x.example.com"},
            },
            True,
        ),
        ({key: {"host_name": "192.0.2.1", "vip_address": key} for key in ("a", "b")}, False),
        ({"a": {"host_name": "192.0.2.1"}, "b": {"host_name": "192.0.2.1", "vip_address": "BILLING"}}, True),
        ({key: {"host_name": "192.0.2.1", "zone": key} for key in ("a", "b")}, False),
        ({key: {"host_name": "192.0.2.1", "metadata": {"zone": key}} for key in ("a", "b")}, False),
        ({key: {"host_name": "192.0.2.1", "metadata": {"tier": key}} for key in ("a", "b")}, True),
        ({"a": {"host_name": "192.0.2.1"}, "b": {"host_name": "192.0.2.1", "status": "UP"}}, True),
        (
            {"a": {"host_name": "192.0.2.1"}, "b": {"host_name": "192.0.2.1", "status": "OUT_OF_SERVICE"}},
            False,
        ),
        ({"a": {"host_name": "192.0.2.1"}, "b": {"host_name": "192.0.2.1", "status": UNKNOWN}}, False),
        ({key: {"host_name": "192.0.2.1", "metadata": UNKNOWN} for key in ("a", "b")}, False),
        ({"a": {"host_name": "192.0.2.1"}, "b": {"host_name": "192.0.2.1", "port": 8080.0}}, True),
        ({"a": {"host_name": "192.0.2.1"}, "b": {"host_name": "192.0.2.1", "port": 9090}}, False),
        ({"a": {"host_name": "192.0.2.1"}, "b": {"host_name": "192.0.2.1", "secure_port": 8443}}, False),
        ({"a": {"host_name": UNKNOWN}, "b": {"host_name": UNKNOWN}}, False),
        ({key: {**each, "port_enabled": False} for key, each in TWICE.items()}, False),
        (
            {
                "a": {"host_name": "192.0.2.1", "secure_port": 8443, "port_enabled": False},
                "b": {"host_name": "192.0.2.1", "secure_port": 9443, "port_enabled": False},
            },
            False,
        ),
    ],
)
def test_two_instances_that_callers_find_at_one_address_are_refused(
    instances: dict[str, Any], is_refused: bool
) -> None:
    """The check refuses the second instance without asking Eureka, since callers would call the address
    twice as often.
    """
    found = check_application({}, {**ALL, "instances": instances})
    assert bool(found.problems) is is_refused
    for each in found.problems:
        assert each.property == "instances.b.host_name"
        assert "the instance 'a' of this application registers the same" in each.reason
        assert "give one of them another host_name or port" in each.reason
        assert "192.0.2.1" not in each.reason_without_value()


def test_two_instances_that_stand_at_one_address_go_on_with_a_warning() -> None:
    """An earlier release allowed two instances; a third one at the address is refused."""
    standing = {**ALL, "instances": TWICE}
    found = check_application(standing, standing)
    assert found.problems == ()
    (warning,) = found.warnings
    assert (warning.property, "this one was registered there before, and stays" in warning.reason) == (
        "instances.b.host_name",
        True,
    )
    (refused,) = check_application(
        standing, {**ALL, "instances": {**TWICE, "c": {"host_name": "192.0.2.1"}}}
    ).problems
    assert refused.property == "instances.c.host_name"


def test_a_third_host_behind_one_gateway_is_added() -> None:
    """Instances with different host names may share a gateway's IP address."""
    hosts = {key: {"host_name": f"{key}.example.com", "ip_address": "192.0.2.1"} for key in ("a", "b", "c")}
    standing = {**ALL, "instances": {key: hosts[key] for key in ("a", "b")}}
    found = check_application(standing, {**ALL, "instances": hosts})
    assert (found.problems, found.warnings) == ((), ())


def test_what_goes_up_at_an_address_that_is_called_already_is_refused() -> None:
    """An instance that was out of service at a shared address must not become UP."""
    waiting = {"a": {"host_name": "192.0.2.1"}, "b": {"host_name": "192.0.2.1", "status": "OUT_OF_SERVICE"}}
    standing = {**ALL, "instances": waiting}
    assert not check_application(standing, standing).problems
    assert check_application(standing, {**ALL, "instances": TWICE}).problems
    swapped = {"a": waiting["b"], "b": waiting["a"]}
    assert not check_application(standing, {**ALL, "instances": swapped}).problems
