"""Marks by which a program tells the check which derived values are secret."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pulumi

from eurekube_provider.registrations.members import check_application
from eurekube_provider.registrations.properties import (
    INSTANCE_DERIVATION_SOURCES,
    MEMBER_DERIVATION_SOURCES,
    SECRET_ID_MARK,
    SECRET_PLACEHOLDER,
    split_secret_placeholders,
)
from eurekube_provider.resources.program_inputs import add_secret_stand_ins
from tests.unit.registrations.test_properties import LEAST


def resolved(loop: asyncio.AbstractEventLoop, given: Mapping[str, Any]) -> dict[str, tuple[Any, bool]]:
    """Return each output's value, and whether it is secret."""

    async def look() -> dict[str, tuple[Any, bool]]:
        outputs = {name: each for name, each in given.items() if isinstance(each, pulumi.Output)}
        return {name: (await each.future(), await each.is_secret()) for name, each in outputs.items()}

    return loop.run_until_complete(look())


def test_what_is_derived_from_a_secret_is_marked_as_one(loop: asyncio.AbstractEventLoop) -> None:
    """The mark is also set for a secret within a map; values derived from public ones get none."""
    secret = pulumi.Output.secret("hidden")
    open_ = pulumi.Output.from_input("open")
    plain = {"application": "a", "host_name": "h", "port": 1, "metadata": {"zone": "z"}}
    assert add_secret_stand_ins(plain, INSTANCE_DERIVATION_SOURCES) == plain
    named = {**plain, "host_name": secret, "application": open_}
    found = resolved(loop, add_secret_stand_ins(named, INSTANCE_DERIVATION_SOURCES))
    assert found["ip_address"] == (SECRET_PLACEHOLDER, True)
    assert {name for name, (value, _) in found.items() if value == SECRET_PLACEHOLDER} == {"ip_address"}
    assert not found["instance_id"][1]
    hidden = {**plain, "application": secret, "vip_address": "v"}
    found = resolved(loop, add_secret_stand_ins(hidden, INSTANCE_DERIVATION_SOURCES))
    derived = {name for name, each in found.items() if each == (SECRET_PLACEHOLDER, True)}
    assert derived == {"secure_vip_address", "instance_id", SECRET_ID_MARK}
    found = resolved(loop, add_secret_stand_ins({"metadata": {"zone": secret}}, MEMBER_DERIVATION_SOURCES))
    assert found == {"zone": (SECRET_PLACEHOLDER, True)}
    given = {**plain, "host_name": secret, "ip_address": "192.0.2.1"}
    assert add_secret_stand_ins(given, INSTANCE_DERIVATION_SOURCES) == given


def test_the_check_writes_what_it_derives() -> None:
    """The check replaces each mark by the derived value, which the state then keeps as a secret."""
    assert split_secret_placeholders({"a": SECRET_PLACEHOLDER, "b": 1}) == ({"b": 1}, ["a"])
    application = {name: value for name, value in LEAST.items() if name not in ("host_name", "instance_id")}
    reported = {
        "host_name": "hidden",
        "ip_address": SECRET_PLACEHOLDER,
        "zone": SECRET_PLACEHOLDER,
        "metadata": {"zone": "z"},
    }
    checked = check_application({}, {**application, "instances": {"a": reported, "b": {"host_name": "open"}}})
    assert checked.problems == ()
    assert checked.properties["instances"] == {
        "a": {"host_name": "hidden", "ip_address": "hidden", "zone": "z", "metadata": {}},
        "b": {"host_name": "open"},
    }
