"""The command ``eurekube explain``: an instance's owner, its renewer, why it is not UP, and possible
events.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence

from eurekube_provider.cli.comparison_blocks import remedy_line
from eurekube_provider.cli.inventory_options import (
    COULD_NOT_READ,
    WELL,
    add_inventory_options,
    reading,
    require_one,
    shown_progress,
)
from eurekube_provider.cli.output import Block, Cell, Line, OutputFormat, Tone, emit
from eurekube_provider.cli.terminal import complain
from eurekube_provider.comparison.comparing import Comparison, compare
from eurekube_provider.comparison.explaining import Explanation, Observation, explain
from eurekube_provider.comparison.managers import ManagerKind
from eurekube_provider.comparison.mirror_explaining import (
    MirrorExplanation,
    Shown,
    applications_shown_for,
    explain_mirrors,
)
from eurekube_provider.core.errors import KubernetesError, RegistryError, RegistryRejected
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.objects import Object
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.syncer import Syncer
from eurekube_provider.core.wording import counted
from eurekube_provider.doctor.inventory_reader import (
    NO_EUREKA,
    Inventory,
    InventoryReader,
    asked,
    endpoint_at,
)
from eurekube_provider.eureka.overrides import can_be_asked_for, instances_named
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.uncached_reads import Refused, UncachedReads, read_everywhere
from eurekube_provider.kube.access import PODS, KubeAccess

MOST_EXPLAINED = 20
"""The number of instances of an application that are explained; those that are not UP come first."""

NOT_FOUND = 1
"""The exit code where Eureka holds neither an application nor an instance of that name."""


DESCRIPTION = """\
Explain an instance, or each instance of an application: who keeps it, who renews it and when it was last
renewed, and why it is not UP. Say what would happen to it if its pod or its syncer were deleted, its stack
were destroyed, or the operator or its renewer stopped. Name the EurekaMirrors that bring the application into
the cluster, their Services, and why an instance is not called by them.

It reads each of these instances by itself, past the servers' caches, and changes nothing. Kubernetes' side is
shown where a cluster is at hand.

  Exit code: 0 explained
             1 Eureka holds neither an application nor an instance of that name; what mirrors go on to
               call by it is explained
             2 Eureka is missing or could not be read, or wrong usage
"""


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.description = DESCRIPTION
    parser.add_argument(
        "target", metavar="APPLICATION|INSTANCE|SYNCER", help="A name, an id, or NAMESPACE/NAME of a syncer."
    )
    parser.add_argument(
        "--connection", default="default", metavar="NAME", help="Which Eureka of the configuration. [default]"
    )
    add_inventory_options(parser)


def run(options: argparse.Namespace) -> int:
    """Read Kubernetes and Eureka, print the explanation, and return the exit code."""
    target, connection = options.target, options.connection
    with reading("explain", options) as reader:
        with shown_progress() as progress:
            inventory = reader.read(progress)
        require_one("explain", inventory)
        comparisons = [
            one
            for one in compare(inventory.kubernetes, inventory.instances)
            if one.eureka_name == connection and one.manager.kind is ManagerKind.SYNCER
        ]
        peers = reader.peers.get(connection)
        if peers is None:
            message = f"--connection {connection}: there is none; there are {', '.join(reader.peers)}"
            complain(f"eurekube explain: {message if reader.peers else NO_EUREKA}")
            return COULD_NOT_READ
        if connection not in inventory.instances:
            return COULD_NOT_READ  # which was said
        target = _application_of_syncer(comparisons, target)
        wanted = [one for one in comparisons if one.application == target.upper()]
        try:
            found = list(instances_named(peers, target))
        except RegistryError as error:
            shown = applications_shown_for(inventory.mirrors, target) or {target.upper()}
            mirrored = _mirrored(inventory, connection, shown)
            if target.upper() not in shown:
                mirrored = [one.of_instances([target]) for one in mirrored]
            is_called = isinstance(error, RegistryRejected) and any(one.instances for one in mirrored)
            held = f"Eureka holds no instance of {target}, and mirrors show what it held before"
            complain(f"eurekube explain: {held if is_called else error}")
            for one in wanted:
                problem = f": {one.problem}" if one.problem else ""
                complain(f"eurekube explain: {one.manager} wants {one.kubernetes or 'none'} there{problem}")
                if one.problem and one.problem.remedy:
                    complain(f"eurekube explain: to fix it: {one.problem.remedy}")
            for mirror in mirrored:
                message = f"{mirror.mirror_state.subject} shows it as the Service {mirror.service or '-'}"
                complain(f"eurekube explain: {message}; {_counted(mirror)}")
            if is_called:
                _emit(options, wanted, [], 0, mirrored)
            return NOT_FOUND
        chosen = sorted(found, key=lambda one: (one.status is Status.UP, one.key))[:MOST_EXPLAINED]
        with shown_progress() as progress:
            progress(f"reading {counted(len(chosen))}")
            explained = _explained(reader, inventory, peers, chosen, comparisons, said=wanted)
    mirrored = _mirrored(inventory, connection, {one.application for one in found})
    if target.upper() not in {one.application for one in found}:
        mirrored = [one.of_instances(each.instance_id for each in found) for one in mirrored]
    _emit(options, wanted, explained, len(found) - len(chosen), mirrored)
    return WELL


def _emit(
    options: argparse.Namespace,
    wanted: Sequence[Comparison],
    explained: Sequence[Explanation],
    more: int,
    mirrored: Sequence[MirrorExplanation],
) -> None:
    document = {
        "applications": [one.to_dict() for one in wanted],
        "instances": [one.to_dict() for one in explained],
        "more": more,
        "mirrors": [one.to_dict() for one in mirrored],
    }
    blocks = [*_blocks(wanted, explained, more), *_mirror_blocks(mirrored)]
    emit(OutputFormat(options.output), document, blocks)


def _application_of_syncer(comparisons: Sequence[Comparison], target: str) -> str:
    """Return the application of the syncer `target`, its namespace given or not; without one `target`."""
    if any(one.application == target.upper() for one in comparisons):
        return target
    named = [one for one in comparisons if target in (one.manager.name, one.manager.name.partition("/")[2])]
    return named[0].application if len({one.application for one in named}) == 1 else target


def _mirrored(inventory: Inventory, connection: str, applications: Iterable[str]) -> list[MirrorExplanation]:
    """Return the explanations of applications by the mirrors of one Eureka."""
    if inventory.kubernetes is None:
        return []
    listed = inventory.instances.get(connection, ())
    return [
        explanation
        for application in sorted(applications)
        for explanation in explain_mirrors(
            inventory.mirrors,
            inventory.kubernetes.cluster,
            application,
            [one for one in listed if one.application == application],
            time.time(),
        )
        if explanation.mirror_state.eureka_name == connection
    ]


def _explained(
    reader: InventoryReader,
    inventory: Inventory,
    peers: Peers,
    chosen: Sequence[Instance],
    comparisons: Sequence[Comparison],
    *,
    said: Sequence[Comparison],
) -> list[Explanation]:
    """Explain each chosen instance, read by its id on every server, with its endpoint and pod if there is a
    cluster.

    :param said: the comparisons that are shown in full; for others, each instance's explanation has the
        remedy.
    """
    keys = [one.key for one in chosen if can_be_asked_for(one)]
    reads = read_everywhere(peers, keys, Refused()) if keys else UncachedReads({}, {})
    syncers = {}
    if inventory.kubernetes:
        syncers = {
            f"{one.namespace}/{one.name}": one for one in map(asked, inventory.kubernetes.syncers) if one
        }
    problems = {
        one.manager.name: str(one.problem) if one in said else _problem_sentence(one.problem)
        for one in comparisons
        if one.problem
    }
    now_ms = time.time() * 1000
    found = []
    for listed in chosen:
        instance = reads.newest(listed.key) or listed
        manager = inventory.manager_of(instance)
        syncer = syncers.get(manager.name) if manager.kind is ManagerKind.SYNCER else None
        endpoint = endpoint_at(inventory, syncer, instance) if syncer else None
        observed = Observation(
            instance,
            manager,
            reads.of(listed.key) if can_be_asked_for(listed) else {},
            {url: str(error) for url, error in reads.failures.items()},
            inventory.kubernetes is not None,
            syncer,
            problems.get(manager.name, "") if manager.kind is ManagerKind.SYNCER else "",
            endpoint,
            _pod(reader.access, syncer, endpoint) if instance.status is not Status.UP else None,
        )
        found.append(explain(observed, now_ms))
    return found


def _pod(access: KubeAccess | None, syncer: Syncer | None, endpoint: Object | None) -> Object | None:
    """Return the pod behind an endpoint; None where there is none, or the pod may not be read."""
    target = (endpoint or {}).get("targetRef") or {}
    if access is None or syncer is None or target.get("kind") != "Pod" or not target.get("name"):
        return None
    try:
        return access.get(PODS.path(syncer.selector.namespace, target["name"]))
    except KubernetesError:
        return None


def _blocks(wanted: Sequence[Comparison], explained: Sequence[Explanation], more: int) -> Iterable[Block]:
    for row in wanted:
        kubernetes, eureka = row.kubernetes or "-", row.eureka or "-"
        yield Line((Cell(row.application, Tone.STRONG), Cell(f"  {row.manager}: {row.state}")))
        yield Line.of(f"{kubernetes} in Kubernetes, {eureka} in Eureka", indent=2)
        if row.problem:
            yield Line.of(str(row.problem), Tone.MID, 2)
        yield from remedy_line(row.problem, indent=2)
        yield Line.of("")
    alike: dict[tuple[object, ...], list[Explanation]] = defaultdict(list)
    for one in explained:
        alike[one.application, dict(one.facts).get("kept by"), one.impact].append(one)
    for group in alike.values():
        yield from _group_blocks(group)
    if more:
        yield Line.of(f"and {more} more: name one of them", Tone.DIM)


def _group_blocks(group: Sequence[Explanation]) -> Iterable[Block]:
    """Yield the explanation of instances of one application and manager; facts that all share are given
    once.
    """
    first, indent = group[0], 2
    common = [fact for fact in first.facts if all(fact in one.facts for one in group)]
    if len(group) > 1:
        indent = 4
        yield Line.of(f"{counted(len(group))} of {first.application}", Tone.STRONG)
        yield from _facts(common, 2)
        yield from _impact(first)
    for one in group:
        tone = Tone.GOOD if one.status == Status.UP else Tone.BAD
        name = f"{one.application} {one.instance_id}" if len(group) == 1 else one.instance_id
        yield Line((Cell(f"{name}  ", Tone.STRONG), Cell(one.status, tone)), indent - 2)
        yield from _facts([fact for fact in one.facts if len(group) == 1 or fact not in common], indent)
    if len(group) == 1:
        yield from _impact(first)
    yield Line.of("")


def _facts(facts: Iterable[tuple[str, str]], indent: int) -> Iterable[Block]:
    for topic, sentence in facts:
        yield Line((Cell(f"{topic}: ", Tone.DIM), Cell(sentence)), indent)


def _impact(explanation: Explanation) -> Iterable[Block]:
    yield Line.of("what would happen if", Tone.DIM, 2)
    for event, outcome in explanation.impact:
        yield Line((Cell(f"{event}: ", Tone.DIM), Cell(outcome)), 4)


_SHOWN_TONES = {Shown.LEFT_OUT: Tone.BAD, Shown.NOT_CALLED: Tone.MID, Shown.HELD: Tone.MID}


def _mirror_blocks(mirrored: Sequence[MirrorExplanation]) -> Iterable[Block]:
    for one in mirrored:
        service = f"Service {one.mirror_state.namespace}/{one.service}" if one.service else "no Service"
        yield Line(
            (
                Cell(one.application, Tone.STRONG),
                Cell(f"  {one.mirror_state.subject}: {one.mirror_state.state}"),
            )
        )
        yield Line.of(f"{service}, {_counted(one)}", indent=2)
        if one.mirror_state.problem:
            yield Line.of(_problem_sentence(one.mirror_state.problem), Tone.MID, 2)
        for each in one.instances[:MOST_EXPLAINED]:
            place = f" at {each.address}" if each.address else ""
            state = Cell(str(each.shown), _SHOWN_TONES.get(each.shown, Tone.GOOD))
            yield Line(
                (Cell(f"{each.instance_id}{place}: "), state, Cell(f": {each.why}" if each.why else "")), 4
            )
        if len(one.instances) > MOST_EXPLAINED:
            yield Line.of(f"and {len(one.instances) - MOST_EXPLAINED} more", Tone.DIM, 4)
        yield Line.of("")


def _problem_sentence(problem: Problem) -> str:
    return f"{problem.reason}: {problem.text}"


def _counted(mirror: MirrorExplanation) -> str:
    called = sum(one.shown in (Shown.CALLED, Shown.HELD) for one in mirror.instances)
    return f"{called} of {len(mirror.instances)} instances are called by it"
