"""Edits of a Pulumi program that are explored: the program before and after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.explore.engine import FAILS, Program
from tests.explore.others import Act, Place
from tests.explore.world import NO_ANSWERS, Fault

URL = "http://eureka-1:8761/eureka"
OTHER_SPELLING = "https://eureka.example.com/eureka"
"""Another URL that leads to the same server."""

SECOND_URL = "http://eureka-2:8761/eureka"
SECOND_SPELLING = "https://eureka-2.example.com/eureka"
_BESIDE = {URL: SECOND_URL, OTHER_SPELLING: SECOND_SPELLING}


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of a program, completed by as many ``up`` as it takes.

    :ivar first: the program that ran before, undisturbed.
    :ivar middle: the program of the runs that are disturbed.
    :ivar last: the program of the last run, which nothing disturbs; by default ``middle``.
    :ivar targets: the resources to which the disturbed runs are restricted.
    :ivar runs: how many runs are disturbed.
    :ivar is_old: True if the first run was one of 0.1.0, which knew no incarnations.
    :ivar aliases: the earlier URN, by URN in the program.
    :ivar is_refreshed: True if the last run begins with a refresh.
    :ivar faults: the kinds of faults that are tried.
    """

    name: str
    first: Program
    middle: Program
    last: Program | None = None
    targets: frozenset[str] | None = None
    refresh: bool = False
    runs: int = 2
    is_old: bool = False
    aliases: Mapping[str, str] = field(default_factory=dict)
    is_refreshed: bool = True
    faults: tuple[Fault | Act, ...] = NO_ANSWERS

    @property
    def needs_no_engine(self) -> bool:
        """True if `eurekube apply` can carry out the edit, although it knows no state, aliases, targets or
        refreshes.
        """
        is_whole = FAILS not in self.middle.values() and bool(self.first)
        return is_whole and not (self.is_old or self.aliases or self.refresh or self.targets)

    @property
    def end(self) -> Program:
        """The program of the last run."""
        return self.middle if self.last is None else self.last


def at_two_servers(edit: Edit) -> Edit:
    """Return an edit in which two servers hold one registry."""

    def both(program: Program) -> Program:
        return {urn: each if each is FAILS else {**each, **_urls(each)} for urn, each in program.items()}

    last = None if edit.last is None else both(edit.last)
    return replace(edit, first=both(edit.first), middle=both(edit.middle), last=last)


def _urls(properties: Mapping[str, Any]) -> dict[str, str]:
    url = str(properties["service_url"])
    return {"service_url": f"{url},{_BESIDE[url]}"}


def instance(**properties: Any) -> dict[str, Any]:
    """Return the properties of a EurekaInstance in a program."""
    return {
        "application": "billing",
        "host_name": "10.0.0.1",
        "port": 8080,
        "renewer": "eurekube",
        "service_url": URL,
        **properties,
    }


def application(*keys: str, **properties: Any) -> dict[str, Any]:
    """Return the properties of a EurekaApplication in a program."""
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


_LOSSES = (Fault.LOST_BEFORE, Fault.LOST_AFTER)
_OUT = "OUT_OF_SERVICE"
_TIER: Mapping[str, Any] = {"metadata": {"tier": "1"}}
_SPELT: Mapping[str, Any] = {"service_url": OTHER_SPELLING}
_DRAINED = instance(instance_id="vm-1", drain_seconds=30)
_ADOPTING = instance(instance_id="vm-1", on_conflict="adopt")
_TWO = application("a", "b")
_FIVE = application(*"abcde", drain_seconds=30)
_FOUR = {**_FIVE, "instances": {key: each for key, each in _FIVE["instances"].items() if key != "c"}}


def _at_ids(*ids: str, **properties: Any) -> dict[str, Any]:
    """Return a EurekaApplication of the same application as an :func:`instance`, with ids of its own."""
    instances = {id_: {"host_name": f"10.0.0.{at}", "instance_id": id_} for at, id_ in enumerate(ids, 1)}
    return application(application="billing", instances=instances, **properties)


_TWO_OUT: Program = {"a": {**_TWO, "status": _OUT}}
_TWO_DOWN: Program = {"a": {**_TWO, "status": "DOWN"}}


_ADOPTED = _at_ids("vm-1", "vm-2", on_conflict="adopt")


def _back(name: str, first: Program, middle: Program, **how: Any) -> Edit:
    """Return an edit that is reverted after one run, which may have failed."""
    return Edit(f"{name}, and back", first, middle, first, runs=1, **how)


def _unseen(name: str, first: Program, middle: Program, **how: Any) -> Edit:
    """Return an edit that is reverted without a refresh, which is needed only if the process was killed."""
    edit = _back(name, first, middle, is_refreshed=False, **{"faults": _LOSSES, **how})
    return replace(edit, name=f"{edit.name}, not refreshed")


SECOND_THOUGHTS = (
    Edit("0.1.0: metadata, and remove", _PLAIN, {"i": instance(**_TIER)}, {}, is_old=True, runs=1,
         is_refreshed=False),
    Edit("0.1.0: application: metadata, and remove", {"a": _TWO}, {"a": {**_TWO, **_TIER}}, {}, is_old=True,
         runs=1),
    Edit("0.1.0: application: one more, one less, and remove", {"a": _TWO}, {"a": application("b", "c")}, {},
         is_old=True, runs=1),
    Edit("0.1.0: moved", {"i": _NAMED}, {"parent/i": _NAMED}, is_old=True),
    _back("0.1.0: application: metadata", {"a": _TWO}, {"a": {**_TWO, **_TIER}}, is_old=True),
    _back("0.1.0: moved", {"i": _NAMED}, {"parent/i": _NAMED, "f": FAILS}, is_old=True),
    _back("0.1.0: application: moved", {"a": _TWO}, {"parent/a": _TWO, "f": FAILS}, is_old=True),
    _back("0.1.0: another spelling", {"i": _NAMED}, {"i": {**_NAMED, **_SPELT}, "f": FAILS}, is_old=True),
    _unseen("0.1.0: metadata", _PLAIN, {"i": instance(**_TIER)}, is_old=True),
    _back("moved", {"i": _NAMED}, {"parent/i": _NAMED, "f": FAILS}),
    _unseen("moved", {"i": _NAMED}, {"parent/i": _NAMED, "f": FAILS}),
    Edit("moved, and back with other metadata", {"i": _NAMED}, {"parent/i": _NAMED, "f": FAILS},
         {"i": {**_NAMED, **_TIER}}, runs=1),
    _unseen("application: moved", {"a": _TWO}, {"parent/a": _TWO, "f": FAILS}),
    _back("application: moved with one more", {"a": _TWO}, {"parent/a": application(*"abc"), "f": FAILS}),
    _back("application: moved with one less, drained", {"a": {**_TWO, "drain_seconds": 30}},
          {"parent/a": application("a", drain_seconds=30)}),
    _back("another id, with a drain", {"i": _DRAINED}, {"i": {**_DRAINED, "instance_id": "vm-2"}},
          faults=_LOSSES),
    _back("another spelling, with a drain", {"i": _DRAINED}, {"i": {**_DRAINED, **_SPELT}}),
    _unseen("another spelling", {"i": _NAMED}, {"i": {**_NAMED, **_SPELT}, "f": FAILS}),
    _back("application: another spelling", {"a": _TWO}, {"a": {**_TWO, **_SPELT}, "f": FAILS}),
    Edit("adopted by another name", {"i": _ADOPTING}, {"j": _ADOPTING}),
    _unseen("adopted by another name", {"i": _ADOPTING}, {"j": _ADOPTING, "f": FAILS}),
    Edit("application: adopted by another name", {"a": _ADOPTED}, {"b": _ADOPTED}),
    _unseen("application: adopted by another name", {"a": _ADOPTED}, {"b": _ADOPTED, "f": FAILS}),
    Edit("an instance into an application", {"one/x": _NAMED}, {"many/x": _at_ids("vm-1")}),
    _unseen("an instance into an application", {"one/x": _NAMED}, {"many/x": _at_ids("vm-1"), "f": FAILS}),
    _unseen("an application into an instance", {"many/x": _at_ids("vm-1")}, {"one/x": _NAMED, "f": FAILS}),
    _back("application: one of five with a drain", {"a": _FIVE}, {"a": _FOUR}),
    _back("application: another port with a drain", {"a": {**_TWO, "drain_seconds": 30}},
          {"a": {**_TWO, "port": 8081, "drain_seconds": 30}}),
    _back("status enforced", _PLAIN, {"i": instance(status=_OUT)}, is_refreshed=False),
    _back("DOWN enforced", _PLAIN, {"i": instance(status="DOWN")}, is_refreshed=False),
    _back("application: status enforced", {"a": _TWO}, _TWO_OUT, is_refreshed=False),
    _back("application: status enforced, refreshed", {"a": _TWO}, _TWO_OUT),
    _back("application: DOWN enforced", {"a": _TWO}, _TWO_DOWN, is_refreshed=False),
    Edit("DOWN enforced in place of OUT_OF_SERVICE", {"i": instance(status=_OUT)},
         {"i": instance(status="DOWN")}, is_refreshed=False),
    Edit("another status enforced, and then none, moved", {"i": {**_NAMED, "status": _OUT}},
         {"i": {**_NAMED, "status": "DOWN"}}, {"parent/i": _NAMED}, runs=1, is_refreshed=False),
    Edit("the other status enforced, and then none, moved", {"i": {**_NAMED, "status": "DOWN"}},
         {"i": {**_NAMED, "status": _OUT}}, {"parent/i": _NAMED}, runs=1, is_refreshed=False),
    Edit("application: another status enforced, and then none, moved", _TWO_OUT, _TWO_DOWN,
         {"parent/a": _TWO}, runs=1, is_refreshed=False),
    Edit("application: the other status enforced, and then none, moved", _TWO_DOWN, _TWO_OUT,
         {"parent/a": _TWO}, runs=1, is_refreshed=False),
    _unseen("status no more enforced, and moved", {"i": {**_NAMED, "status": _OUT}},
            {"parent/i": _NAMED}, faults=NO_ANSWERS),
    _unseen("DOWN no more enforced, and moved", {"i": {**_NAMED, "status": "DOWN"}}, {"parent/i": _NAMED},
            faults=NO_ANSWERS),
    _unseen("application: status no more enforced, and moved", _TWO_OUT, {"parent/a": _TWO}),
    Edit("status no more enforced, and moved", {"i": {**_NAMED, "status": _OUT}}, {"parent/i": _NAMED}),
    Edit("status no more enforced, and another spelling", {"i": {**_NAMED, "status": _OUT}},
         {"i": {**_NAMED, **_SPELT}}),
    Edit("application: status no more enforced, and moved", _TWO_OUT, {"parent/a": _TWO}),
    Edit("application: DOWN no more enforced, and another spelling", _TWO_DOWN, {"a": {**_TWO, **_SPELT}}),
    _unseen("application: status no more enforced", _TWO_OUT, {"a": _TWO}),
    _unseen("application: DOWN no more enforced, and moved", _TWO_DOWN, {"parent/a": _TWO, "f": FAILS}),
    _unseen("application: status no more enforced, and another spelling", _TWO_OUT,
            {"a": {**_TWO, **_SPELT}, "f": FAILS}),
    _back("moved and enforced", {"i": _NAMED}, {"parent/i": {**_NAMED, "status": _OUT}, "f": FAILS}),
    _back("remove", _PLAIN, {}, is_refreshed=False),
    _back("remove with a drain", {"i": _DRAINED}, {}, is_refreshed=False),
    _back("application: remove", {"a": _TWO}, {}, is_refreshed=False),
    _unseen("application: one less", {"a": _TWO}, {"a": application("a")}),
    Edit("drain, and out of service", {"i": _DRAINED}, {}, {"i": {**_DRAINED, "status": _OUT}}, runs=1),
    Edit("drain, and back below a parent", {"i": _DRAINED}, {}, {"parent/i": _DRAINED}, runs=1),
    Edit("renamed with an alias", {"i": _NAMED}, {"j": _NAMED}, aliases={"j": "i"}),
    _unseen("renamed with an alias", {"i": _NAMED}, {"j": _NAMED}, aliases={"j": "i", "i": "j"}),
    _back("renamed with an alias", {"i": _NAMED}, {"j": _NAMED}, aliases={"j": "i", "i": "j"}),
    Edit("renamed with an alias, and removed", {"i": _NAMED}, {"j": _NAMED}, {}, aliases={"j": "i"}, runs=1,
         is_refreshed=False),
    Edit("application: renamed with an alias", {"a": _TWO}, {"b": application("b", "c")},
         aliases={"b": "a"}, is_refreshed=False),
    # With ids of their own: what a refresh finds gone is made again under its new name.
    _back("application: renamed with an alias", {"a": _at_ids("vm-1", "vm-2")},
          {"b": _at_ids("vm-2", "vm-3")}, aliases={"b": "a", "a": "b"}),
    Edit("application: renamed with an alias, and removed", {"a": _TWO}, {"b": _TWO}, {},
         aliases={"b": "a"}, runs=1, is_refreshed=False),
    Edit("create, and not", {}, _PLAIN, {}, runs=1, faults=_LOSSES),
    Edit("application: create, and not", {}, {"a": _TWO}, {}, runs=1, faults=_LOSSES),
    _back("application: one more", {"a": _TWO}, {"a": application(*"abc")}),
)  # fmt: skip
"""Edits that are reverted or changed after a run that may have failed, and edits of a state of 0.1.0."""


def edit(name: str) -> Edit:
    """Return the edit with this name."""
    return next(one for one in (*EDITS, *SECOND_THOUGHTS) if one.name == name)


def statuses_of(edit: Edit, program: Program) -> dict[Place, str]:
    """Return the status of each instance of a program, by place."""
    found: dict[Place, str] = {}
    for urn, properties in program.items():
        if properties is FAILS:
            continue
        name = urn.rpartition("/")[2]
        status = str(properties.get("status") or "UP")
        app, port = str(properties["application"]), properties["port"]
        suffix = f"{app}:{port}"
        if "instances" in properties:
            # One that was renamed keeps the ids that it has.
            earlier = urn if urn in edit.first else edit.aliases.get(urn, urn)
            base = f"{earlier.rpartition('/')[2]}.dev.explored"
            for key, each in properties["instances"].items():
                own = each.get("instance_id") or f"{key}.{base}:{suffix}"
                found[app.upper(), str(own)] = status
        else:
            own = properties.get("instance_id") or f"{name}.dev.explored:{suffix}"
            found[app.upper(), str(own)] = status
    return found


def places_of(edit: Edit) -> list[Place]:
    """Return the places that an edit's programs name."""
    return sorted(
        {place for program in (edit.first, edit.middle, edit.end) for place in statuses_of(edit, program)}
    )
