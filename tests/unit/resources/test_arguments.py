"""The forms in which a program may pass a resource's arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pulumi
import pytest
from pulumi.runtime import set_all_config

from eurekube_provider import (
    ApplicationInstanceArgs,
    EurekaApplication,
    EurekaApplicationArgs,
    EurekaInstance,
    EurekaInstanceArgs,
)
from eurekube_provider.resources.program import ProgramError, runs_without_engine


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """Yield the list of properties of each resource that is created."""
    made: list[dict[str, Any]] = []

    def keep(_self: Any, _provider: Any, _name: str, properties: dict[str, Any], _opts: Any) -> None:
        made.append({name: value for name, value in properties.items() if value is not None})

    monkeypatch.setattr(pulumi.dynamic.Resource, "__init__", keep)
    set_all_config({"eurekube:url": "http://eureka:8761/eureka"})
    token = runs_without_engine.set(True)
    yield made
    runs_without_engine.reset(token)
    set_all_config({})


WAYS: dict[str, list[Callable[[], Any]]] = {
    "EurekaInstance": [
        lambda: EurekaInstance("billing", application="billing", host_name="h", port=1, drain_seconds=2),
        lambda: EurekaInstance(
            "billing", EurekaInstanceArgs(application="billing", host_name="h", port=1, drain_seconds=2)
        ),
        lambda: EurekaInstance(
            "billing", {"application": "billing", "host_name": "h", "port": 1, "drain_seconds": 2}
        ),
        lambda: EurekaInstance(  # type: ignore[call-overload]
            "billing",
            {"application": "billing", "hostName": "h", "port": 1, "drainSeconds": 2},
        ),
    ],
    "EurekaApplication": [
        lambda: EurekaApplication(
            "billing", application="billing", instances={"a": {"host_name": "h", "vip_address": "v"}}
        ),
        lambda: EurekaApplication(
            "billing",
            EurekaApplicationArgs(
                application="billing",
                instances={"a": ApplicationInstanceArgs(host_name="h", vip_address="v")},
            ),
        ),
        lambda: EurekaApplication(  # type: ignore[call-overload]
            "billing",
            {"application": "billing", "instances": {"a": {"hostName": "h", "vipAddress": "v"}}},
        ),
    ],
}


@pytest.mark.parametrize("kind", WAYS)
def test_every_way_says_the_same(kind: str, given: list[dict[str, Any]]) -> None:
    """Keywords, a class, a dictionary, and a dictionary in camel case yield the same properties."""
    for way in WAYS[kind]:
        way()
    plain = [_plain(each) for each in given]
    assert plain[0]["application"] == "billing"
    assert plain[1:] == plain[:1] * (len(plain) - 1)


def _plain(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: _plain(item) for key, item in value.items() if item is not None}


def test_one_way_at_a_time(given: list[dict[str, Any]]) -> None:
    """Mixed or missing arguments raise one sentence that names the resource."""
    wrong: Any = {"application": "billing"}
    with pytest.raises(
        ProgramError, match="EurekaInstance 'billing': port must be among the other arguments"
    ):
        EurekaInstance("billing", wrong, port=1)  # type: ignore[call-overload]
    with pytest.raises(ProgramError, match="EurekaApplication 'billing': there are no arguments"):
        EurekaApplication("billing")  # type: ignore[call-overload]
    assert given == []
