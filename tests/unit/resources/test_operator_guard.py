"""The resource that is asked before an operator goes."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest
from pulumi.dynamic.dynamic import serialize_provider
from pulumi.runtime import rpc, set_all_config

from eurekube_provider.core.errors import OperatorStillNeeded
from eurekube_provider.kube import syncer_guard
from eurekube_provider.resources.operator_guard import OperatorGuardProvider, cluster_inputs

GIVEN: dict[str, Any] = {
    "namespace": "bridge",
    "namespace_uid": "uid-1",
    "stack_label": "shop.dev",
    "watch_namespaces": ["shop"],
    "owns_crds": False,
    "force": False,
}


def test_its_path_in_users_states_stays() -> None:
    """Pickled by reference, without attributes."""
    pickled = base64.b64decode(serialize_provider(OperatorGuardProvider()))
    assert b"eurekube_provider.resources.operator_guard" in pickled
    assert b"OperatorGuardProvider" in pickled
    assert len(pickled) < 150


def test_every_change_is_an_update_in_place() -> None:
    """Of what will be asked; a state that the native provider wrote is written anew."""
    provider = OperatorGuardProvider()
    made = provider.create({**GIVEN, "__provider": "x"})
    assert (made.id, made.outs) == ("bridge/operator", GIVEN)
    assert not provider.diff(made.id, {**GIVEN, "__provider": "x"}, {**GIVEN, "context": None}).changes
    changed = provider.diff(made.id, GIVEN, {**GIVEN, "force": True})
    assert (changed.changes, changed.replaces or []) == (True, [])
    moved = provider.diff(made.id, GIVEN, {**GIVEN, "namespace_uid": "uid-2"})
    assert (moved.changes, moved.replaces or []) == (True, [])
    unknown = {"context": rpc.UNKNOWN, "watch_namespaces": [rpc.UNKNOWN]}
    assert not provider.diff(made.id, GIVEN, {**GIVEN, **unknown}).changes
    assert provider.diff(made.id, {**GIVEN, "context": "prod"}, GIVEN).changes
    natives = {"namespace": "bridge", "namespaceUid": "uid-1", "stackLabel": "shop.dev"}
    assert provider.diff(made.id, {**natives, "watchNamespaces": ["shop"]}, GIVEN).changes
    assert provider.update(made.id, GIVEN, {**GIVEN, "force": True}).outs == {**GIVEN, "force": True}


def test_the_deletion_asks_with_what_the_state_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever provider wrote it."""
    asked = []

    def refuse(operator: syncer_guard.GuardedOperator) -> None:
        asked.append(operator)
        raise OperatorStillNeeded("by others")

    monkeypatch.setattr(syncer_guard, "refuse_while_needed", refuse)
    natives = {"namespace": "bridge", "namespaceUid": "uid-1", "stackLabel": "shop.dev", "context": "prod"}
    for state in ({**GIVEN, "context": "prod"}, {**natives, "watchNamespaces": ["shop"]}):
        with pytest.raises(OperatorStillNeeded, match="by others"):
            OperatorGuardProvider().delete("bridge/operator", state)
    expected = syncer_guard.GuardedOperator(
        "bridge", "uid-1", "shop.dev", watch_namespaces=("shop",), context="prod"
    )
    assert asked == [expected, expected]


def test_the_way_to_the_cluster_of_the_stacks_own_provider() -> None:
    """As that is configured; its kubeconfig is a secret."""

    async def look() -> tuple[Any, ...]:
        found = cluster_inputs(None)
        kubeconfig: Any = found["kubeconfig"]
        return found["context"], await kubeconfig.future(), await kubeconfig.is_secret()

    set_all_config({"kubernetes:kubeconfig": "text", "kubernetes:context": "prod"})
    try:
        assert asyncio.run(look()) == ("prod", "text", True)
    finally:
        set_all_config({})
    assert cluster_inputs(None) == {}
