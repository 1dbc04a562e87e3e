"""Random syncers, drawn from their CRD: after some edits Eureka is as after a fresh start with the last
specs.

There are two to five edits of one or two syncers, with one fault. A paused syncer, or one that removes
nothing, may leave earlier instances: those are not compared.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from eurekube_provider.core.identity import OWNER_KEY
from tests.explore.explorer import command
from tests.explore.operator.acts import (
    a_server_freezes,
    a_server_restarts_empty,
    a_server_restarts_with_a_copy,
    the_api_is_behind,
    the_operator_ends_in_peace,
    the_operator_is_killed_and_the_api_behind,
    watches_break,
)
from tests.explore.operator.edits import Edit, Step
from tests.explore.operator.explorer import CALM_SECONDS, Explored, Faults, Setup
from tests.explore.operator.rules import BRAKE_MS
from tests.explore.operator.schema import drawn, spec_schema
from tests.explore.operator.workloads import APP, SHOP, Workloads
from tests.explore.operator.world import Fault, Happening

_SCHEMA = spec_schema()

_HAPPENINGS: tuple[Happening, ...] = (
    *Fault,
    a_server_freezes,
    a_server_restarts_empty,
    a_server_restarts_with_a_copy,
    the_api_is_behind,
    the_operator_ends_in_peace,
    the_operator_is_killed_and_the_api_behind,
    watches_break,
)
"""Faults and acts that may happen; a person's act would stay at the end and not after a fresh start, so
that there is none.
"""

_SETUPS = (Setup(1), Setup(2), Setup(1, replicas=2), Setup(2, replicas=2, chance=20))
_WAITS = (0.0, 0.01, 0.5, 2.0, 5.0, 20.0)
_MOST_REQUESTS = 60
_NAMES = (APP, "stars")

Spec = dict[str, Any]
Place = tuple[str, str, str]
Contents = tuple[Any, ...]
Held = dict[Place, Contents]
Conditions = dict[str, dict[str, tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class Sequence:
    """A sequence of changes to syncers.

    :ivar first: their first specs, by their names.
    :ivar edits: each with the seconds before it, the syncer, and its new spec; None where it is deleted.
    """

    first: dict[str, Spec]
    edits: tuple[tuple[float, str, Spec | None], ...]
    faults: Faults
    setup: Setup

    @classmethod
    def draw(cls, seed: int) -> Sequence:
        """Draw the sequence that belongs to a seed."""
        draw = random.Random(seed)  # noqa: S311 - replayed by its seed
        names = draw.choice((_NAMES[:1], _NAMES))
        first = {name: drawn(draw, _SCHEMA) for name in names}
        edits = []
        for _ in range(draw.randint(2, 5)):
            spec = None if draw.random() < 0.1 else drawn(draw, _SCHEMA)
            edits.append((draw.choice(_WAITS), draw.choice(names), spec))
        faults = {draw.randrange(_MOST_REQUESTS): draw.choice(_HAPPENINGS)}
        return cls(first, tuple(edits), faults, draw.choice(_SETUPS))


class Ended(Explored):
    """A run in which syncers are edited, and its final state."""

    def __init__(
        self, first: dict[str, Spec], steps: tuple[tuple[float, Step], ...], sequence: Sequence
    ) -> None:
        edit = Edit("syncers", steps, begin=_begin(first), is_braked=True, names_another=True)
        super().__init__(edit, sequence.faults if steps else {}, sequence.setup)
        self.sequence = sequence

    def _settle(self) -> None:
        end = max(self.world.disturbed_ms, self.world.now_ms) + round(CALM_SECONDS * 1000) + BRAKE_MS
        self._pass((end - self.world.now_ms) / 1000)

    @property
    def syncers(self) -> dict[str, Any]:
        """The existing syncers, by their names."""
        return {item["metadata"]["name"]: item for item in self.world.kube.objects["eurekasyncers"].values()}

    def held(self) -> Held:
        """Return the operator's instances in Eureka, without times and incarnations."""
        found: Held = {}
        for url, server in {**self.world.cluster.servers, **self.world.other.servers}.items():
            for lease in server.registry.all_leases():
                info = lease.holder
                marks = dict(info.fields.get("metadata") or {})
                marks.pop("eurekube.incarnation", None)
                if str(marks.get(OWNER_KEY, "")).startswith("cluster/"):
                    fields = {
                        key: one for key, one in info.fields.items() if key not in ("metadata", "leaseInfo")
                    }
                    found[url, info.app, info.id] = (info.status, info.duration_s, marks, fields)
        return found

    def conditions(self) -> Conditions:
        """Status and reason of each syncer's conditions Ready and Synced, by the syncer's name."""
        return {
            name: {
                one["type"]: (one["status"], one["reason"])
                for one in (item.get("status") or {}).get("conditions") or ()
                if one["type"] in ("Ready", "Synced")
            }
            for name, item in self.syncers.items()
        }


def _begin(first: dict[str, Spec]) -> Step:
    def begin(workloads: Workloads) -> None:
        workloads.service(tier="web")
        workloads.service("stars", tier="web")
        workloads.no_syncer()
        for name, spec in first.items():
            workloads.syncer(name, **spec)

    return begin


def _step(name: str, spec: Spec | None) -> Step:
    def step(workloads: Workloads) -> None:
        item = workloads.kube.get("eurekasyncers", SHOP, name)
        if spec is None:
            workloads.no_syncer(name)
        elif item is None or "deletionTimestamp" not in item["metadata"]:
            workloads.syncer(name, **spec)

    return step


def tried(seed: int) -> str:
    """Run the sequence of a seed; return its violations, or nothing."""
    sequence = Sequence.draw(seed)
    edited = Ended(
        sequence.first, tuple((wait, _step(name, spec)) for wait, name, spec in sequence.edits), sequence
    )
    edited.run()
    last = {name: item["spec"] for name, item in edited.syncers.items()}
    fresh = Ended(last, (), sequence)
    fresh.run()
    wrong = list(_wrong(edited, fresh, last))
    if not wrong:
        return ""
    lines = [f"syncers: {wrong[0]}", f"replay: {replay(seed)}", *wrong[1:], f"at first: {sequence.first}"]
    lines += [f"after {wait} s: {name}: {spec or 'deleted'}" for wait, name, spec in sequence.edits]
    return "\n".join([*lines, *(f"  {one}" for one in edited.outcome.trace)])


def replay(seed: int) -> str:
    """Return the command that runs a sequence again."""
    return command(f"clusters.syncers({seed})")


def _wrong(edited: Ended, fresh: Ended, last: dict[str, Spec]) -> Iterator[str]:
    yield from (f"logged: {line}" for line in edited.world.logged)
    for process in edited.world.processes:
        yield from (f"{process.name} ended: {error!r}" for error in process.errors)
    yield from (one for one in edited.witness.violations if one.startswith("somebody else's"))
    for name, item in edited.syncers.items():
        if "deletionTimestamp" in item["metadata"]:
            yield f"the deleted syncer {name} is still there"
    reported, fresh_conditions = edited.conditions(), fresh.conditions()
    keeping = {
        name
        for name, spec in last.items()
        if spec["paused"]
        or spec["policy"] != "Sync"
        or fresh_conditions[name].get("Synced", ("",))[0] != "True"
    }
    held, wanted = edited.held(), fresh.held()
    differing = [
        place for place in sorted(held.keys() | wanted.keys()) if held.get(place) != wanted.get(place)
    ]
    silent = {name for name in last.keys() - keeping if reported[name] != fresh_conditions[name]}
    if not differing and not silent:
        return
    alone = _alone(last, edited.sequence)
    contested = {name for claims in alone.values() if len(claims) > 1 for name in claims}
    excused = keeping | contested  # who was first has it
    # The other one is refused, and keeps what it had elsewhere.
    keeping |= {name for name in contested if reported[name].get("Synced", ("",))[0] != "True"}
    for place in differing:
        is_, shall, owner = held.get(place), wanted.get(place), _owner(held.get(place))
        if owner in keeping and owner != _owner(shall):
            excused |= alone.get(place, {}).keys()  # by what it keeps others are kept out
        elif len(alone.get(place, ())) < 2 or is_ not in alone[place].values():
            yield f"{place[2]} at {place[0]} is {is_}, and after a fresh start {shall}"
    for name in sorted(silent - excused):
        yield f"the syncer {name} says {reported[name]}, and after a fresh start {fresh_conditions[name]}"


def _alone(last: dict[str, Spec], sequence: Sequence) -> dict[Place, dict[str, Contents]]:
    """Return the instances that each syncer would register if it were alone, by place and syncer."""
    found: dict[Place, dict[str, Contents]] = {}
    for name, spec in last.items():
        only = Ended({name: spec}, (), sequence)
        only.run()
        for place, contents in only.held().items():
            found.setdefault(place, {})[name] = contents
    return found


def _owner(contents: Contents | None) -> str:
    """Return the syncer that owns an instance; empty if there is no instance."""
    return str(contents[2][OWNER_KEY]).rpartition("/")[2] if contents else ""
