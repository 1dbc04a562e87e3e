"""Results of lookups as Pulumi's values."""

from __future__ import annotations

import asyncio

import pulumi
import pytest
from pulumi.runtime import rpc
from pulumi.runtime.stack import massage

from eurekube_provider.registrations.connections import OFFLINE_VARIABLE
from eurekube_provider.registrations.discovered import (
    FieldMapping,
    FoundApplication,
    FoundEndpoint,
    FoundInstance,
    to_plain_data,
)
from eurekube_provider.resources.lookups import get_application_output

INSTANCE = FoundInstance(
    application="RATING",
    instance_id="vm-1",
    host_name="vm-1",
    ip_address="192.0.2.1",
    port=8080,
    port_enabled=True,
    secure_port=443,
    secure_port_enabled=False,
    vip_address="rating",
    status="UP",
    zone="",
    owner="",
    metadata={"someKey": "1"},
)
DOWN = FoundInstance(**{**INSTANCE, "instance_id": "vm-2", "status": "DOWN"})
ENDPOINT = FoundEndpoint("a", "10.0.0.1", {"http": 8080}, ready=True, terminating=False, zone="", node="n")


@pytest.mark.parametrize("answer", [INSTANCE, ENDPOINT, FoundApplication("RATING", (INSTANCE, DOWN))])
def test_an_answer_can_be_exported_as_it_is(answer: FieldMapping) -> None:
    """The SDK accepts a result as an input and as a stack's output, without a conversion."""
    sent = asyncio.run(rpc.serialize_property(answer, [], None))
    assert set(sent) == set(answer)
    assert massage(answer, []) == to_plain_data(answer)
    if isinstance(answer, FoundApplication):
        (up,) = asyncio.run(rpc.serialize_property(answer.up, [], None))
        assert (up["instance_id"], up["metadata"]) == ("vm-1", {"someKey": "1"})
        assert massage(answer.up, []) == [to_plain_data(INSTANCE)]
    assert {**answer} == {name: getattr(answer, name) for name in answer}
    with pytest.raises(KeyError):
        answer["nothing"]


def test_an_offline_preview_makes_nothing_of_an_answer(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The output is unknown, so that no part of the program that needs the answer runs."""
    monkeypatch.setenv(OFFLINE_VARIABLE, "true")
    monkeypatch.setattr(pulumi.runtime, "is_dry_run", lambda: True)
    found = get_application_output("rating")
    made: pulumi.Output[None] = found.apply(lambda _: pytest.fail("something was made of it"))
    assert [loop.run_until_complete(each.is_known()) for each in (found, made)] == [False, False]
