"""The model of an instance: its defaults, and the values it refuses."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest

from eurekube_provider.core.errors import InvalidInstance
from eurekube_provider.core.model import DataCenter, EurekaLease, Instance, Port, Status

RATING = Instance("rating", "rating-1", "10.0.0.1", "10.0.0.1", Port(8080))


def test_defaults_are_those_of_eureka_clients() -> None:
    """By default an instance is UP, has an Eureka lease of 30 and 90 s, and its application's name as VIP
    address.
    """
    assert RATING.application == "RATING"
    assert (RATING.vip_address, RATING.secure_vip_address) == ("rating", "rating")
    assert RATING.status is Status.UP
    assert RATING.lease == EurekaLease(30, 90)
    assert RATING.secure_port == Port(443, enabled=False)
    assert RATING.data_center.name == "MyOwn"


def test_secure_vip_address_follows_the_vip_address() -> None:
    """A VIP address without a secure one counts for both."""
    assert replace(RATING, vip_address="x", secure_vip_address="").secure_vip_address == "x"


@pytest.mark.parametrize(
    ("field", "value"),
    [("application", ""), ("application", "a/b"), ("instance_id", ""), ("instance_id", "a/b")],
)
def test_names_that_could_never_be_removed_again(field: str, value: str) -> None:
    """An empty name or one with a slash is refused, and the error names the field."""
    with pytest.raises(InvalidInstance) as caught:
        replace(RATING, **{field: value})  # type: ignore[arg-type]
    assert caught.value.field == field
    assert repr(value) in str(caught.value)


def test_instance_is_a_value() -> None:
    """An instance is immutable."""
    with pytest.raises(FrozenInstanceError):
        RATING.status = Status.DOWN  # type: ignore[misc]


def test_zone_comes_from_where_clients_look() -> None:
    """The zone is the metadata's ``zone``, or an Amazon instance's availability zone."""
    assert replace(RATING, metadata={"zone": "a"}).zone == "a"
    amazon = DataCenter("Amazon", "com.netflix.appinfo.AmazonInfo", {"availability-zone": "us-east-1a"})
    assert replace(RATING, metadata={"zone": "a"}, data_center=amazon).zone == "us-east-1a"
    assert RATING.zone is None


def test_owner_and_renewer_come_from_metadata() -> None:
    """Owner and renewer are read from the metadata keys that test_identity pins."""
    owned = replace(RATING, metadata={"eurekube.owner": "cluster/a/b/c", "eurekube.renewer": "eurekube"})
    assert (owned.owner, owned.renewer) == ("cluster/a/b/c", "eurekube")
    assert (RATING.owner, RATING.renewer) == (None, None)
