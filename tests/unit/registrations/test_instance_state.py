"""Differences between a state and a program, and the state that is read from Eureka."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eurekube_provider.core.enforcement import registration_before_status_change
from eurekube_provider.core.identity import ENFORCED_KEY
from eurekube_provider.core.model import EurekaLease, Instance, Status
from eurekube_provider.registrations.actual import ActualState
from eurekube_provider.registrations.defaults import FIXED_DEFAULTS, with_defaults, without_fixed_defaults
from eurekube_provider.registrations.desired import DesiredState
from eurekube_provider.registrations.difference import StateDifference, diff
from eurekube_provider.registrations.instance_state import inputs
from eurekube_provider.registrations.instance_state import outputs as outputs_of
from eurekube_provider.registrations.property_check import check
from eurekube_provider.registrations.values import UNKNOWN
from tests.unit.registrations.test_properties import LEAST, checked


def actual_of(properties: dict[str, Any], **changes: Any) -> Instance:
    """Return the instance that Eureka holds after a registration with these properties."""
    instance = replace(
        DesiredState.from_properties(properties).single_registration.instance,
        last_updated_timestamp_ms=1_700_000_000_000,
    )
    return replace(instance, **changes)


def outputs(properties: dict[str, Any], held: Instance) -> dict[str, Any]:
    """Return the registration's state, read from a Eureka that holds this instance."""
    desired = DesiredState.from_properties(properties)
    is_ours = held.owner == desired.owner
    places = {held.key: held}
    return outputs_of(properties, desired, ActualState(*((places, {}) if is_ours else ({}, places)), {}))


def state(held: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """Return the state after a creation as Pulumi sends it, with floats and without None."""
    properties = without_fixed_defaults(checked(**changes))
    outs = outputs(properties, actual_of(properties, **(held or {})))
    return {key: float(value) if type(value) is int else value for key, value in outs.items()}


def test_nothing_changes_where_the_same_is_asked_for() -> None:
    """Floats, missing keys and values that Eureka computes make no difference."""
    assert StateDifference(has_changes=False) == diff(state(), checked())
    assert StateDifference(has_changes=False) == diff(state(status="DOWN"), checked(status="DOWN"))


@pytest.mark.parametrize(
    "changes",
    [
        {"host_name": "192.0.2.11"},
        {"metadata": {"tier": "1"}},
        {"zone": "zone-b"},
        {"status": "DOWN"},
        {"secure_port": 8443},
        {"renewer": "self"},
        {"duration_seconds": 120},
        {"home_page_url": "http://billing/"},
        {"drain_seconds": 10},
        {"on_conflict": "adopt"},
        {"vip_address": "Billing"},
        {"metadata": {"tier": UNKNOWN}},
        {"host_name": UNKNOWN},
    ],
)
def test_contents_update_in_place(changes: dict[str, Any]) -> None:
    """Every property that is no part of the registration's name is updated in place."""
    assert StateDifference(has_changes=True) == diff(state(), checked(**changes))


@pytest.mark.parametrize(
    ("changes", "replaces"),
    [
        ({"application": "invoices"}, ("application", "instance_id")),
        ({"application": "invoices", "instance_id": "billing.dev.shop:billing:8080"}, ("application",)),
        ({"instance_id": "legacy"}, ("instance_id",)),
        ({"port": 9090}, ("instance_id",)),
        ({"port": UNKNOWN}, ("instance_id",)),
    ],
)
def test_another_name_is_another_registration(changes: dict[str, Any], replaces: tuple[str, ...]) -> None:
    """A changed application or id is a replacement, whose new registration is made before the old one is
    removed.
    """
    assert StateDifference(has_changes=True, replaces=replaces) == diff(state(), checked(**changes))


def test_another_port_under_an_id_of_ones_own_updates_in_place() -> None:
    """A port is part of the default id only."""
    assert StateDifference(has_changes=True) == diff(
        state(instance_id="legacy"), checked(instance_id="legacy", port=9090)
    )


def test_other_servers_are_a_replacement_and_the_new_one_comes_first() -> None:
    """Both URLs may lead to one Eureka, where the old registration's removal finds a newer incarnation and
    leaves it.
    """
    assert StateDifference(has_changes=True, replaces=("service_url",)) == diff(
        state(), checked(service_url="http://other:8761/eureka")
    )


def test_one_more_server_of_the_same_eureka_updates_in_place() -> None:
    """Two lists of URLs that share a URL are the same Eureka."""
    both = "http://eureka:8761/eureka,http://eureka-2:8761/eureka"
    assert StateDifference(has_changes=True) == diff(state(), checked(service_url=both))


def test_a_renamed_stack_updates_in_place() -> None:
    """The owner is rewritten, and the id stays."""
    olds = state()
    renamed = check(olds, {**LEAST, "owner": "stack/organization/shop/production/billing"})
    assert StateDifference(has_changes=True) == diff(olds, renamed.properties)


def test_drift_is_a_change() -> None:
    """After a refresh the state has Eureka's values, which differ from the program's."""
    assert diff(state(held={"host_name": "192.0.2.99"}), checked()).has_changes
    assert diff(state(held={"status": Status.OUT_OF_SERVICE}, status="UP"), checked(status="UP")).has_changes


def test_a_persons_override_is_no_drift_where_no_status_is_asked_for() -> None:
    """Without an input ``status`` the registration starts UP, and people may change it later."""
    held = {"status": Status.OUT_OF_SERVICE, "overridden_status": Status.OUT_OF_SERVICE}
    assert StateDifference(has_changes=False) == diff(state(held=held), checked())


def test_to_enforce_a_status_no_longer_is_a_change() -> None:
    """Without an update the state would keep the enforced status, and each refresh would add it to the
    inputs.
    """
    assert diff(state(status="UP"), checked()).has_changes


def test_somebody_elses_instance_shows_and_never_becomes_ours() -> None:
    """The state's ``owner`` decides what may be removed, and stays the stack's; ``seen_owner`` shows
    Eureka's.
    """
    properties = checked()
    stolen = {"eurekube.owner": "cluster/a/b/c", "eurekube.renewer": "eurekube"}
    olds = outputs(properties, actual_of(properties, metadata=stolen))
    assert (properties["owner"], "cluster/a/b/c") == (olds["owner"], olds["seen_owner"])
    assert diff(olds, properties).has_changes


def test_inputs_after_a_refresh_are_what_eureka_holds() -> None:
    """A preview then shows each drift as a difference of inputs."""
    properties = checked(metadata={"tier": "1"})
    held = actual_of(properties, host_name="192.0.2.99", status=Status.DOWN)
    olds = outputs(properties, held)
    assert {**properties, "host_name": "192.0.2.99"} == with_defaults(inputs(olds))
    assert inputs(olds) == without_fixed_defaults(inputs(olds))


def test_inputs_carry_the_status_only_where_it_is_enforced() -> None:
    """If the inputs had an unenforced status, a refresh would turn a person's override into a wish of the
    program.
    """
    properties = checked(status="UP")
    held = actual_of(properties, status=Status.DOWN)
    assert inputs(outputs(properties, held))["status"] == "DOWN"


def test_no_fixed_default_comes_into_the_state_and_none_goes() -> None:
    """Defaults that an earlier release wrote stay in the state, so that a refresh shows no removed
    property.
    """
    properties = checked(duration_seconds=120)
    assert state(duration_seconds=120).keys() & FIXED_DEFAULTS.keys() == {"duration_seconds"}
    olds = {**state(duration_seconds=120), **with_defaults(without_fixed_defaults(properties))}
    held = actual_of(properties, lease=EurekaLease())
    assert outputs(olds, held) == {**olds, "duration_seconds": 90}
    assert "duration_seconds" not in outputs(without_fixed_defaults(checked()), held)


def test_the_state_tells_when_eureka_last_changed_it() -> None:
    """``last_updated`` is a readable date."""
    assert state()["last_updated"] == "2023-11-14T22:13:20.000Z"


OUT = Status.OUT_OF_SERVICE


@pytest.mark.parametrize(
    ("held", "expected"),
    [(OUT, Status.UP), (Status.DOWN, None), (Status.UP, None), (None, None)],
)
def test_an_unenforced_status_goes_unless_a_person_changed_it(
    held: Status | None, expected: Status | None
) -> None:
    """A status that is no longer enforced becomes UP once; a status that a person has set since is kept."""
    previous = DesiredState.from_properties(state(status=OUT.value)).single_registration
    wanted = DesiredState.from_properties(checked()).single_registration
    have = replace(wanted.instance, status=held) if held else None
    assert wanted.enforce_up_once_where_status_lifted(previous, have).enforced_status is expected
    lifted = wanted.enforce_up_once_where_status_lifted(wanted, replace(wanted.instance, status=OUT))
    assert lifted.enforced_status is None


def test_a_status_that_is_lifted_at_one_server_keeps_its_mark() -> None:
    """The run may be killed before the status is lifted at the second server."""
    wanted = DesiredState.from_properties(checked()).single_registration
    marks = {**wanted.instance.metadata, ENFORCED_KEY: f"{OUT} UP"}
    lifted = replace(wanted.instance, status=Status.UP, metadata=marks)
    assert registration_before_status_change(wanted.instance, None, lifted).enforced == f"{OUT} UP"
    assert not registration_before_status_change(
        wanted.instance, None, replace(lifted, metadata=wanted.instance.metadata)
    ).enforced


def test_under_a_persons_status_up_is_sent() -> None:
    """A server would let a registered DOWN or STARTING win over a person's override, so that UP is
    registered.
    """
    wanted = DesiredState.from_properties(checked(status="DOWN")).single_registration
    persons = replace(wanted.instance, status=OUT, overridden_status=OUT)
    assert registration_before_status_change(wanted.instance, Status.DOWN, persons).status is Status.UP
    down = replace(persons, status=Status.DOWN)
    assert registration_before_status_change(wanted.instance, None, down).status is Status.UP
    assert (
        registration_before_status_change(
            wanted.instance, Status.DOWN, replace(wanted.instance, status=Status.UP)
        ).status
        is Status.DOWN
    )
