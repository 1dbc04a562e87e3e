"""Edits of a Pulumi program: what it was, and what it becomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.explore.engine import FAILS, Program

URL = "http://eureka-1:8761/eureka"
OTHER_SPELLING = "https://eureka.example.com/eureka"
"""Another URL of the same server."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of a program, run to its end by as many ``up`` as it takes.

    :ivar first: the program as it ran before, without any trouble.
    :ivar middle: the program of the runs that are disturbed.
    :ivar last: the program of the last run, which nothing disturbs; by default ``middle``.
    :ivar targets: what the disturbed runs are restricted to.
    :ivar runs: how many runs are disturbed.
    """

    name: str
    first: Program
    middle: Program
    last: Program | None = None
    targets: frozenset[str] | None = None
    refresh: bool = False
    runs: int = 2

    @property
    def end(self) -> Program:
        """The program that stands in the end."""
        return self.middle if self.last is None else self.last


def instance(**properties: Any) -> dict[str, Any]:
    """An EurekaInstance as a program has it."""
    return {
        "application": "billing",
        "host_name": "10.0.0.1",
        "port": 8080,
        "renewer": "eurekube",
        "service_url": URL,
        **properties,
    }


def application(*keys: str, **properties: Any) -> dict[str, Any]:
    """An EurekaApplication as a program has it."""
    return {
        "application": "rating",
        "port": 8080,
        "renewer": "eurekube",
        "service_url": URL,
        "instances": {key: {"host_name": f"10.0.1.{number}"} for number, key in enumerate(keys, 1)},
        **properties,
    }


_NAMED = instance(instance_id="vm-1")
_PLAIN: Mapping[str, Any] = {"i": instance()}

EDITS = (
    Edit("create", {}, _PLAIN),
    Edit("create with refresh", {}, _PLAIN, refresh=True),
    Edit("create out of service", {}, {"i": instance(status="OUT_OF_SERVICE")}),
    Edit("remove", _PLAIN, {}),
    Edit("remove with a drain", {"i": instance(drain_seconds=30)}, {}),
    Edit("remove with a drain, and think better of it", {"i": instance(drain_seconds=30)}, {},
         {"i": instance(drain_seconds=30)}, runs=1),
    Edit("change metadata", _PLAIN, {"i": instance(metadata={"tier": "1"})}),
    Edit("another port and id", _PLAIN, {"i": instance(port=8081)}),
    Edit("another id", {"i": _NAMED}, {"i": instance(instance_id="vm-2")}),
    Edit("another id, with a drain", {"i": instance(instance_id="vm-1", drain_seconds=30)},
         {"i": instance(instance_id="vm-2", drain_seconds=30)}),
    Edit("moved without an alias", {"i": _NAMED}, {"parent/i": _NAMED}),
    Edit("moved without an alias, something else fails", {"i": _NAMED}, {"parent/i": _NAMED, "f": FAILS},
         {"parent/i": _NAMED}),
    Edit("moved without an alias, with targets", {"i": _NAMED}, {"parent/i": _NAMED},
         targets=frozenset({"parent/i"})),
    Edit("another spelling of the URL", {"i": _NAMED},
         {"i": instance(instance_id="vm-1", service_url=OTHER_SPELLING)}),
    Edit("another spelling of the URL, with a drain", {"i": instance(instance_id="vm-1", drain_seconds=30)},
         {"i": instance(instance_id="vm-1", service_url=OTHER_SPELLING, drain_seconds=30)}),
    Edit("status enforced", _PLAIN, {"i": instance(status="OUT_OF_SERVICE")}),
    Edit("status no more enforced", {"i": instance(status="OUT_OF_SERVICE")}, _PLAIN),
    Edit("DOWN no more enforced", {"i": instance(status="DOWN")}, _PLAIN),
    Edit("application: create", {}, {"a": application("a", "b")}),
    Edit("application: remove", {"a": application("a", "b")}, {}),
    Edit("application: remove with a drain", {"a": application("a", "b", drain_seconds=30)}, {}),
    Edit("application: drain, and think better of it", {"a": application("a", "b", drain_seconds=30)}, {},
         {"a": application("a", "b", drain_seconds=30)}, runs=1),
    Edit("application: one more, one less", {"a": application("a", "b")}, {"a": application("b", "c")}),
    Edit("application: moved without an alias", {"a": application("a")}, {"parent/a": application("a")}),
    Edit("application: metadata", {"a": application("a", "b")},
         {"a": application("a", "b", metadata={"tier": "1"})}),
    Edit("application: another spelling of the URL", {"a": application("a", "b")},
         {"a": application("a", "b", service_url=OTHER_SPELLING)}),
    Edit("application: status no more enforced", {"a": application("a", status="OUT_OF_SERVICE")},
         {"a": application("a")}),
)  # fmt: skip
