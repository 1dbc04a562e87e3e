"""Comparisons of both worlds as blocks and as a document: what `status` and `watch` show."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from eurekube_provider.cli.output import Block, Cell, Line, Table, Tone
from eurekube_provider.comparison.comparing import Comparison, compare
from eurekube_provider.comparison.discrepancy import DifferenceGroup, grouped
from eurekube_provider.comparison.mirror_state import MirrorState, mirror_states
from eurekube_provider.comparison.operators import (
    operator_lines,
    operators_to_dict,
    troubles_of_operators,
)
from eurekube_provider.comparison.reported_state import SyncState
from eurekube_provider.comparison.troubles import (
    Severity,
    Trouble,
    eureka_troubles,
    headline,
    troubles_of,
)
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.registry import ZOOKEEPER
from eurekube_provider.core.wording import counted
from eurekube_provider.doctor.worlds_reader import Worlds

_TONES = {
    SyncState.NOT_READY: Tone.BAD,
    SyncState.NOT_KNOWN: Tone.MID,
    SyncState.NOT_SYNCED: Tone.MID,
    SyncState.SYNCED: Tone.GOOD,
    SyncState.NOT_COMPARED: Tone.DIM,
}
_TROUBLE_TONES = {Severity.FAULT: Tone.BAD, Severity.WARNING: Tone.MID, Severity.NOTE: Tone.DIM}


@dataclass(frozen=True, slots=True)
class WorldsStatus:
    """The contents of `status`.

    :ivar shown: the comparisons that were asked for, worst first; ``mirrors`` the mirrors.
    :ivar now_seconds: Unix time of the look.
    """

    worlds: Worlds
    shown: Sequence[Comparison]
    troubles: Sequence[Trouble]
    mirrors: Sequence[MirrorState] = ()
    now_seconds: float = 0.0

    @property
    def differs(self) -> bool:
        """Return whether a person should look at something."""
        return any(one.severity is not Severity.NOTE for one in self.troubles)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        kubernetes = self.worlds.kubernetes
        return {
            "headline": headline(self.shown, self.mirrors),
            "cluster": kubernetes.cluster.name if kubernetes else None,
            "operators": operators_to_dict(self.worlds.operators, self.now_seconds)
            if self.worlds.operators
            else [],
            "eurekas": [
                {
                    "name": name,
                    "servers": read.servers,
                    "instances": None if read.error else len(read.instances),
                    "error": read.error,
                }
                for name, read in self.worlds.eurekas.items()
            ],
            "missing": list(self.worlds.missing),
            "unread": list(self.worlds.unread),
            "troubles": [one.to_dict() for one in self.troubles],
            "applications": [one.to_dict() for one in self.shown],
            "mirrors": [one.to_dict() for one in self.mirrors],
        }


def status_of(
    worlds: Worlds, applications: Collection[str] = (), *, only_differing: bool = False
) -> WorldsStatus:
    """Compare what was read.

    :param applications: in any case: show these only; none for all.
    :param only_differing: leave out what is in sync, or has nothing to be compared with.
    """
    wanted = {name.upper() for name in applications}
    every = [
        one for one in compare(worlds.kubernetes, worlds.instances) if not wanted or one.application in wanted
    ]
    others = [
        trouble
        for name, read in worlds.eurekas.items()
        for trouble in eureka_troubles(name, error=read.error, away=read.failures.items(), endangered=())
    ]
    now = time.time()
    if worlds.operators is not None and worlds.kubernetes is not None:
        objects = [*worlds.kubernetes.syncers, *worlds.mirrors.items]
        others += troubles_of_operators(worlds.operators, objects, now)
    mirrors = [
        one
        for one in mirror_states(worlds.mirrors.items, now)
        if not wanted or any(one.concerns(name) for name in wanted)
    ]
    troubles = troubles_of(every, others, mirrors)
    if only_differing:
        every = [one for one in every if one.state.is_fault]
        mirrors = [one for one in mirrors if one.state.is_fault]
    return WorldsStatus(worlds, every, troubles, mirrors, now)


def blocks_of(status: WorldsStatus) -> Iterable[Block]:
    """Write it for a person: the sum, what is wrong, everything side by side, what differs."""
    worlds = status.worlds
    for line in operator_lines(worlds.operators, status.now_seconds) if worlds.operators else ():
        yield Line.of(line, Tone.DIM)
    worst = status.troubles[0].severity if status.troubles else None
    tone = _TROUBLE_TONES[worst] if worst else Tone.GOOD
    yield Line(
        (Cell(headline(status.shown, status.mirrors), tone), Cell(f"  ·  {_looked_at(worlds)}", Tone.DIM))
    )
    for trouble in status.troubles:
        yield from _trouble(trouble)
    told = [one.problem for one in status.troubles]
    if status.shown:
        column = worlds.kind.upper()
        age = "" if worlds.kind == ZOOKEEPER else ", by its list, which may be 30 s old"
        yield Line.of("")
        yield table_of(status.shown, column, has_several=len(worlds.eurekas) > 1, told=told)
        yield Line.of(f"KUBERNETES: endpoints, ready/all; {column}: instances, UP/all{age}", Tone.DIM)
    if status.mirrors:
        yield Line.of("")
        yield mirror_table(status.mirrors, status.now_seconds, told)
        yield Line.of("ENDPOINTS: ready/all; EUREKA READ: how old what the Service shows is", Tone.DIM)
    for one in status.shown:
        yield from _differences(one, told, worlds.kind)


def _looked_at(worlds: Worlds) -> str:
    parts = []
    if worlds.kubernetes:
        parts.append(f"cluster {worlds.kubernetes.cluster.name or '(without a name)'}")
    for name, read in worlds.eurekas.items():
        parts.append(f"{read.kind} {name} ({counted(read.servers, 'server')})")
    return ", ".join(parts)


def _trouble(trouble: Trouble) -> Iterable[Block]:
    tone = _TROUBLE_TONES[trouble.severity]
    told = f"  {trouble.told}" if trouble.told else ""
    yield Line((Cell(trouble.problem.reason, tone), Cell(told)), 2)
    yield Line.of(trouble.problem.message, indent=4)
    yield from remedy_line(trouble.problem, indent=4)


def remedy_line(problem: Problem | None, indent: int) -> Iterable[Block]:
    """Say what mends a problem, if anybody knows."""
    if problem and problem.remedy:
        yield Line.of(f"to mend it: {problem.remedy}", indent=indent)


def table_of(
    shown: Sequence[Comparison], column: str, *, has_several: bool = False, told: Collection[Problem] = ()
) -> Table:
    """Everything side by side, worst first.

    :param column: the name of what is registered.
    :param has_several: whether there are several registries, so that each row names its own.
    :param told: what was told above: a row with the same problem names its reason alone.
    """
    at = ("AT",) if has_several else ()
    rows = [
        (
            Cell(one.application, Tone.STRONG if one.state.is_fault else Tone.PLAIN),
            Cell(str(one.keeper)),
            *([Cell(one.eureka_name)] if has_several else ()),
            Cell(str(one.kubernetes) if one.kubernetes else "-"),
            Cell(str(one.eureka) if one.eureka else "-"),
            Cell(str(one.state), _TONES[one.state]),
            _why(one.problem, told),
        )
        for one in shown
    ]
    columns = ("APPLICATION", "KEPT BY", *at, "KUBERNETES", column, "STATE", "WHY")
    return Table(columns, rows, last_is_cut=True)


def _why(problem: Problem | None, told: Collection[Problem]) -> Cell:
    return Cell(problem.reason if problem and problem in told else str(problem or ""))


def mirror_table(mirrors: Sequence[MirrorState], now_seconds: float, told: Collection[Problem]) -> Table:
    """The mirrors, worst first.

    :param now_seconds: Unix time.
    :param told: as for :func:`table_of`.
    """
    rows = [
        (
            Cell(one.application, Tone.STRONG if one.state.is_fault else Tone.PLAIN),
            Cell(f"{one.namespace}/{one.name}"),
            Cell(one.service or "-"),
            Cell(f"{one.ready}/{one.endpoints}"),
            Cell(_age(one, now_seconds)),
            Cell(str(one.state), _TONES[one.state]),
            _why(one.problem, told),
        )
        for one in mirrors
    ]
    columns = ("APPLICATION", "MIRROR", "SERVICE", "ENDPOINTS", "EUREKA READ", "STATE", "WHY")
    return Table(columns, rows, last_is_cut=True)


def _age(mirror: MirrorState, now_seconds: float) -> str:
    age = mirror.read_seconds_ago(now_seconds)
    if age is None:
        return "-"
    return f"{max(0.0, age):.0f} s ago" if age < 120 else f"{age / 60:.0f} min ago"


def _differences(comparison: Comparison, told: Collection[Problem], kind: str) -> Iterable[Block]:
    groups, problem = grouped(comparison.differences), comparison.problem
    if groups:
        yield Line.of("")
        yield Line.of(f"{comparison.application}, {comparison.keeper}", Tone.STRONG)
    for group in groups:
        # Of a single cause it stands above already.
        if len(groups) > 1 or problem not in told or problem is None or group.told not in problem.message:
            yield Line.of(group.told, indent=2)
        yield from _instances(group, kind)


def _instances(group: DifferenceGroup, kind: str) -> Iterable[Block]:
    for one in group.shown:
        there = f"{one.kubernetes or 'not there'} in Kubernetes, {one.eureka or 'not there'} in {kind}"
        yield Line((Cell(f"{one.instance_id}  "), Cell(there, Tone.DIM)), 4)
    if group.more:
        yield Line.of(f"and {group.more} more", Tone.DIM, 4)
