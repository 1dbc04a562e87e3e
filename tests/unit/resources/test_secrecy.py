"""Marks by which a program tells the check which derived values are secret."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pulumi

from eurekube_provider.registrations.members import check_members
from eurekube_provider.registrations.properties import (
    FROM_SECRET,
    INSTANCE_DERIVED,
    MEMBER_DERIVED,
    SECRET_ID,
    without_secrets,
)
from eurekube_provider.resources.secrecy import with_derived_secrets
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
    assert with_derived_secrets(plain, INSTANCE_DERIVED) == plain
    named = {**plain, "host_name": secret, "application": open_}
    found = resolved(loop, with_derived_secrets(named, INSTANCE_DERIVED))
    assert found["ip_address"] == (FROM_SECRET, True)
    assert {name for name, (value, _) in found.items() if value == FROM_SECRET} == {"ip_address"}
    assert not found["instance_id"][1]
    hidden = {**plain, "application": secret, "vip_address": "v"}
    found = resolved(loop, with_derived_secrets(hidden, INSTANCE_DERIVED))
    derived = {name for name, each in found.items() if each == (FROM_SECRET, True)}
    assert derived == {"secure_vip_address", "instance_id", SECRET_ID}
    found = resolved(loop, with_derived_secrets({"metadata": {"zone": secret}}, MEMBER_DERIVED))
    assert found == {"zone": (FROM_SECRET, True)}
    given = {**plain, "host_name": secret, "ip_address": "192.0.2.1"}
    assert with_derived_secrets(given, INSTANCE_DERIVED) == given


def test_the_check_writes_what_it_derives() -> None:
    """The check replaces each mark by the derived value, which the state then keeps as a secret."""
    assert without_secrets({"a": FROM_SECRET, "b": 1}) == ({"b": 1}, ["a"])
    application = {name: value for name, value in LEAST.items() if name not in ("host_name", "instance_id")}
    reported = {
        "host_name": "hidden",
        "ip_address": FROM_SECRET,
        "zone": FROM_SECRET,
        "metadata": {"zone": "z"},
    }
    checked = check_members({}, {**application, "instances": {"a": reported, "b": {"host_name": "open"}}})
    assert checked.problems == ()
    assert checked.properties["instances"] == {
        "a": {"host_name": "hidden", "ip_address": "hidden", "zone": "z", "metadata": {}},
        "b": {"host_name": "open"},
    }
