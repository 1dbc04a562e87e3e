"""Programs under Pulumi's mocks, with the results of an update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pulumi
import pytest

from eurekube_provider import EurekaApplication, EurekaInstance
from eurekube_provider.testing import EurekubeMocks


@pytest.fixture
def mocks() -> EurekubeMocks:
    """Set and return mocks for the next program, in the stack ``test`` of the project ``shop``."""
    made = EurekubeMocks()
    pulumi.runtime.set_mocks(made, project="shop", stack="test")
    pulumi.runtime.set_all_config({"eurekube:url": "http://eureka.example.com/eureka"})
    return made


def run(program: Callable[[], Any]) -> None:
    """Run a program to its end."""
    pulumi.runtime.test(program)()  # type: ignore[no-untyped-call]


def test_a_program_is_held_to_what_it_would_register(mocks: EurekubeMocks) -> None:
    """Assertions see both resources' instances with the ids, owner and defaults of an update."""

    def program() -> None:
        EurekaInstance("billing", application="billing", host_name="192.0.2.10", port=8080)
        EurekaApplication(
            "rating",
            application="rating",
            port=8081,
            metadata={"tier": "1"},
            instances={"a": {"host_name": "192.0.2.11"}, "b": {"host_name": "192.0.2.12", "status": "DOWN"}},
        )

    run(program)
    owner = "stack/organization/shop/test"
    mocks.assert_registered(
        "billing",
        {
            "billing.test.shop:billing:8080": {
                "host_name": "192.0.2.10",
                "port": 8080,
                "owner": f"{owner}/billing",
            }
        },
    )
    mocks.assert_registered(
        "rating",
        {
            "a.rating.test.shop:rating:8081": {"status": "UP", "metadata": {"tier": "1"}},
            "b.rating.test.shop:rating:8081": {"status": "DOWN", "port": 8081},
        },
    )
    with pytest.raises(AssertionError, match="BILLING at the program is not as expected"):
        mocks.assert_not_registered("billing")


def test_outputs_are_those_of_an_update(mocks: EurekubeMocks) -> None:
    """Outputs have known ids, also those of an application's instances."""
    found: dict[str, Any] = {}

    def program() -> pulumi.Output[Any]:
        one = EurekaInstance("billing", application="billing", host_name="192.0.2.10", port=8080)
        many = EurekaApplication("rating", application="rating", port=80, instances={"a": {"host_name": "a"}})
        return pulumi.Output.all(one=one.instance_id, many=many.instance_ids).apply(found.update)

    run(program)
    ids = {one.application: one.instance_id for one in mocks.instances()}
    assert found == {"one": ids["BILLING"], "many": {"a": ids["RATING"]}}


def test_a_registration_that_an_update_would_refuse_fails(mocks: EurekubeMocks) -> None:
    """After an invalid registration every assertion fails with its resource, property and reason."""

    def program() -> None:
        EurekaInstance("billing", application="billing", host_name="192.0.2.10", port=70000)

    run(program)
    with pytest.raises(
        AssertionError, match="the registration 'billing' cannot be made: port: 70000 must be"
    ):
        mocks.assert_registered("billing")
    with pytest.raises(AssertionError, match="the registration 'billing' cannot be made"):
        mocks.assert_not_registered("rating")


def test_other_resources_have_their_inputs(mocks: EurekubeMocks) -> None:
    """Resources of other packages get their inputs as outputs."""
    found: list[str] = []

    class Bucket(pulumi.CustomResource):
        """A resource of another package."""

        region: pulumi.Output[str]

        def __init__(self, name: str, region: str) -> None:
            super().__init__("cloud:index:Bucket", name, {"region": region})

    run(lambda: Bucket("logs", "eu-1").region.apply(found.append))
    assert found == ["eu-1"]
    assert [(one.typ, one.name) for one in mocks.resources] == [("cloud:index:Bucket", "logs")]
