"""Assertions about registrations, and their messages about differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from eurekube_provider.registrations.discovered import FoundInstance
from eurekube_provider.testing.assertions import ExpectedInstances, RegistrationAssertions

RATING = FoundInstance(
    application="RATING",
    instance_id="vm-1",
    host_name="192.0.2.1",
    ip_address="192.0.2.1",
    port=8080,
    port_enabled=True,
    secure_port=443,
    secure_port_enabled=False,
    vip_address="rating",
    status="UP",
    zone="",
    owner="",
    metadata={"tier": "1"},
)
SECOND = FoundInstance(**{**RATING, "instance_id": "vm-2", "status": "DOWN"})
BILLING = FoundInstance(**{**RATING, "application": "BILLING"})


class Places(RegistrationAssertions):
    """Assertions about places with given instances."""

    def __init__(self, **places: Sequence[FoundInstance]) -> None:
        self._places = places

    def instances_by_place(self) -> Mapping[str, Sequence[FoundInstance]]:
        """Return the given instances."""
        return self._places


def complaint(places: Places, application: str, expected: ExpectedInstances | None) -> str:
    """Return the message of the failing assertion."""
    with pytest.raises(AssertionError) as caught:
        places.assert_registered(application, expected)
    return str(caught.value)


@pytest.mark.parametrize(
    "expected",
    [
        None,
        {"vm-1": {}, "vm-2": {}},
        {"vm-1": {"status": "UP", "host_name": "192.0.2.1", "port": 8080}, "vm-2": {"status": "DOWN"}},
        {"vm-1": {"metadata": {"tier": "1", "canary": None}}, "vm-2": {"metadata": {}}},
    ],
)
def test_what_is_as_expected_passes(expected: ExpectedInstances | None) -> None:
    """The assertion compares only named fields and metadata, and ignores the case of the application's
    name.
    """
    Places(a=[RATING, BILLING, SECOND]).assert_registered("rating", expected)


def test_each_difference_has_a_line() -> None:
    """The message has a line for each differing field, missing or surplus instance, and lists the
    applications.
    """
    expected = {"vm-1": {"status": "DOWN", "port": 80, "metadata": {"tier": "2", "x": "y"}}, "vm-0": {}}
    assert complaint(Places(a=[RATING, SECOND, BILLING]), "rating", expected).splitlines() == [
        "RATING at a is not as expected:",
        "- vm-0: expected, not registered",
        "! vm-1: status is 'UP', expected 'DOWN'",
        "! vm-1: port is 8080, expected 80",
        "! vm-1: metadata.tier is '1', expected '2'",
        "! vm-1: metadata.x is None, expected 'y'",
        "+ vm-2: registered, not expected: DOWN at 192.0.2.1:8080",
        "  registered there: BILLING (1), RATING (2)",
    ]


def test_places_that_differ_in_the_same_way_are_named_together() -> None:
    """Places with the same difference share one paragraph; a place without one is not named."""
    places = Places(a=[], b=[RATING], c=[], d=[BILLING])
    assert complaint(places, "rating", None).splitlines() == [
        "RATING at a, c is not as expected:",
        "- any instance: expected, not registered",
        "  registered there: nothing",
        "RATING at d is not as expected:",
        "- any instance: expected, not registered",
        "  registered there: BILLING (1)",
    ]


def test_a_forbidden_application_is_refused_at_any_place() -> None:
    """``assert_not_registered`` fails if any place has the application, and lists its instances."""
    places = Places(a=[BILLING], b=[RATING])
    places.assert_not_registered("legacy")
    with pytest.raises(AssertionError, match=r"RATING at b is not as expected:\n\+ vm-1: registered, not"):
        places.assert_not_registered("rating")


def test_a_field_that_no_instance_has_is_a_mistake_of_the_test() -> None:
    """An expected field that does not exist raises ValueError with the field's name."""
    with pytest.raises(ValueError, match="an instance has no field 'hostname': host_name is one"):
        Places(a=[]).assert_registered("rating", {"vm-1": {"hostname": "a"}})


def test_instances_of_several_places_are_returned_once() -> None:
    """Each instance is returned once, in order of application and id, as the first place holds it."""
    newer = FoundInstance(**{**RATING, "status": "DOWN"})
    places = Places(a=[SECOND, RATING], b=[newer, BILLING])
    assert places.instances() == [BILLING, RATING, SECOND]
    assert places.instances("rating") == [RATING, SECOND]
    assert places.instances("legacy") == []
