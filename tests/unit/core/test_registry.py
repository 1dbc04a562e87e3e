"""Syncers adjusted to the capabilities of their registry, and the documentation of these capabilities."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.model import EurekaLease
from eurekube_provider.core.registry import REGISTER_BEFORE_READY_ANNOTATION, adapt_to_registry
from eurekube_provider.core.registry_kinds import EUREKA, ZOOKEEPER, RegistryKind
from eurekube_provider.core.syncer import NotReady, Syncer

PAGE = Path(__file__).parents[3] / "docs" / "guides" / "zookeeper.md"


def asked(registry: RegistryKind, *annotations: str, **spec: Any) -> Syncer:
    """Return a syncer adjusted to that registry."""
    item = {
        "metadata": {
            "namespace": "shop",
            "name": "rating",
            "annotations": dict.fromkeys(annotations, "true"),
        },
        "spec": {"mode": "pod", "selector": {"app": "Rating"}, "eureka": "zk", **spec},
    }
    return adapt_to_registry(Syncer.from_object(item), item, registry)


def test_eureka_has_all_that_can_be_asked_for() -> None:
    """For Eureka the syncer's settings stay unchanged."""
    one = asked(EUREKA, policy="UpsertOnly", notReady="Down", onTermination="OutOfService")
    assert (one.not_ready, one.vip_address) == (NotReady.DOWN, "rating")
    assert asked(EUREKA, lease={"durationSeconds": 5}).lease.duration_seconds == 5


def test_what_is_not_ready_is_not_registered_where_many_would_call_it() -> None:
    """ZooKeeper's clients call every instance: ``notReady: Down``, the API server's default, counts as Remove
    without the annotation.
    """
    assert asked(ZOOKEEPER, notReady="Down").not_ready is NotReady.REMOVE
    assert asked(ZOOKEEPER, REGISTER_BEFORE_READY_ANNOTATION, notReady="Down").not_ready is NotReady.DOWN
    assert asked(ZOOKEEPER, REGISTER_BEFORE_READY_ANNOTATION, notReady="Remove").not_ready is NotReady.REMOVE


def test_names_are_as_they_are_written_where_case_counts() -> None:
    """With ZooKeeper the default VIP address keeps the case of the application's name."""
    assert asked(ZOOKEEPER).vip_address == asked(ZOOKEEPER).secure_vip_address == "Rating"
    assert asked(ZOOKEEPER, vipAddress="Stars").vip_address == "Stars"
    assert asked(ZOOKEEPER, secureVipAddress="Safe").secure_vip_address == "Safe"
    assert asked(ZOOKEEPER, lease={"durationSeconds": 5}).lease == EurekaLease()


@pytest.mark.parametrize(
    "spec", [{"policy": "UpsertOnly"}, {"onTermination": "OutOfService"}, {"removeDeadSelfRegistered": True}]
)
def test_what_would_do_harm_there_is_refused(spec: dict[str, Any]) -> None:
    """The error names the field, the connection and the reason."""
    with pytest.raises(
        ConfigurationError, match=rf"spec\.{next(iter(spec))} is .* connection zk .*ZooKeeper, w"
    ):
        asked(ZOOKEEPER, **spec)


def test_the_page_has_a_row_for_each_capability() -> None:
    """docs/guides/zookeeper.md lists every capability with its true values."""
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (\w+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    yes = {True: "yes", False: "no"}
    names = [one.name for one in fields(RegistryKind) if one.type == "bool"]
    assert rows == [(one, yes[getattr(EUREKA, one)], yes[getattr(ZOOKEEPER, one)]) for one in names]
