"""The command ``eurekube explain``: an instance's owner, renewer and status, and possible events."""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from eurekube_provider.cli.comparison_blocks import remedy_blocks
from eurekube_provider.cli.inventory_options import (
    COULD_NOT_READ_EXIT_CODE,
    WELL_EXIT_CODE,
    add_inventory_options,
    exit_if_nothing_read,
    open_inventory_reader,
    show_progress,
)
from eurekube_provider.cli.output import Block, Cell, Line, OutputFormat, Tone, print_output
from eurekube_provider.cli.terminal import print_error_line
from eurekube_provider.comparison.comparing import Comparison, compare
from eurekube_provider.comparison.explaining import InstanceExplanation, InstanceObservation, explain_instance
from eurekube_provider.comparison.managers import ManagerKind
from eurekube_provider.comparison.mirror_explaining import (
    MirrorExplanation,
    ServiceUse,
    explain_mirrors,
    find_mirrored_applications,
)
from eurekube_provider.core.errors import KubernetesError, RegistryError, RegistryRejected
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.objects import Object
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.syncer import Syncer
from eurekube_provider.core.wording import format_count
from eurekube_provider.doctor.inventory_reader import (
    NO_EUREKA_MESSAGE,
    Inventory,
    InventoryReader,
    find_endpoint,
    try_parse_syncer,
)
from eurekube_provider.eureka.overrides import can_be_named_in_url, find_named_instances
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.uncached_reads import RefusalByKey, UncachedReads, read_everywhere
from eurekube_provider.kube.access import PODS, KubeAccess

MAX_EXPLAINED_INSTANCES = 20
"""The number of instances of an application that are explained; those that are not UP come first."""

NOT_FOUND_EXIT_CODE = 1
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.add_argument(
        "target", metavar="APPLICATION|INSTANCE|SYNCER", help="A name, an id, or NAMESPACE/NAME of a syncer."
    )
    parser.add_argument(
        "--connection", default="default", metavar="NAME", help="Which Eureka of the configuration. [default]"
    )
    add_inventory_options(parser)


def run(options: argparse.Namespace) -> int:
    target, connection = options.target, options.connection
    with open_inventory_reader("explain", options) as reader:
        with show_progress() as progress:
            inventory = reader.read(progress)
        exit_if_nothing_read("explain", inventory)
        comparisons = [
            one
            for one in compare(inventory.kubernetes, inventory.instances)
            if one.eureka_name == connection and one.manager.kind is ManagerKind.SYNCER
        ]
        peers = reader.peers.get(connection)
        if peers is None:
            message = f"--connection {connection}: there is none; there are {', '.join(reader.peers)}"
            print_error_line(f"eurekube explain: {message if reader.peers else NO_EUREKA_MESSAGE}")
            return COULD_NOT_READ_EXIT_CODE
        if connection not in inventory.instances:
            return COULD_NOT_READ_EXIT_CODE  # which was said
        kind_name = inventory.eurekas[connection].registry_kind.name
        target = _resolve_application(comparisons, target)
        application_comparisons = [one for one in comparisons if one.application == target.upper()]
        try:
            found = list(find_named_instances(peers, target))
        except RegistryError as error:
            shown = find_mirrored_applications(inventory.mirrors, target) or {target.upper()}
            mirror_explanations = _explain_mirrors(inventory, connection, shown, target, [target])
            is_called = isinstance(error, RegistryRejected) and any(
                one.instances for one in mirror_explanations
            )
            held = f"Eureka holds no instance of {target}, and mirrors show what it held before"
            print_error_line(f"eurekube explain: {held if is_called else error}")
            for one in application_comparisons:
                problem = f": {one.problem}" if one.problem else ""
                print_error_line(
                    f"eurekube explain: {one.manager} wants {one.kubernetes or 'none'} there{problem}"
                )
                if one.problem and one.problem.remedy:
                    print_error_line(f"eurekube explain: to fix it: {one.problem.remedy}")
            for mirror in mirror_explanations:
                message = f"{mirror.mirror_state.subject} shows it as the Service {mirror.service or '-'}"
                print_error_line(f"eurekube explain: {message}; {_format_called_count(mirror)}")
            if is_called:
                _print_explanation(options, kind_name, application_comparisons, [], 0, mirror_explanations)
            return NOT_FOUND_EXIT_CODE
        chosen = sorted(found, key=lambda one: (one.status is Status.UP, one.key))[:MAX_EXPLAINED_INSTANCES]
        with show_progress() as progress:
            progress(f"reading {format_count(len(chosen))}")
            explained = _explain_instances(
                reader, inventory, peers, chosen, comparisons, shown_in_full=application_comparisons
            )
    mirror_explanations = _explain_mirrors(
        inventory, connection, {one.application for one in found}, target, [one.instance_id for one in found]
    )
    _print_explanation(
        options, kind_name, application_comparisons, explained, len(found) - len(chosen), mirror_explanations
    )
    return WELL_EXIT_CODE


def _print_explanation(
    options: argparse.Namespace,
    kind_name: str,
    application_comparisons: Sequence[Comparison],
    explanations: Sequence[InstanceExplanation],
    omitted_count: int,
    mirror_explanations: Sequence[MirrorExplanation],
) -> None:
    document = {
        "applications": [one.to_dict() for one in application_comparisons],
        "instances": [one.to_dict() for one in explanations],
        "more": omitted_count,
        "mirrors": [one.to_dict() for one in mirror_explanations],
    }
    blocks = [
        *_explanation_blocks(kind_name, application_comparisons, explanations, omitted_count),
        *_mirror_blocks(mirror_explanations),
    ]
    print_output(OutputFormat(options.output), document, blocks)


def _resolve_application(comparisons: Sequence[Comparison], target: str) -> str:
    """Return the application of the syncer that ``target`` names, if it names one, else ``target``."""
    if any(one.application == target.upper() for one in comparisons):
        return target
    named = [one for one in comparisons if target in (one.manager.name, one.manager.name.partition("/")[2])]
    return named[0].application if len({one.application for one in named}) == 1 else target


def _explain_mirrors(
    inventory: Inventory, connection: str, applications: Collection[str], target: str, ids: Sequence[str]
) -> list[MirrorExplanation]:
    """Explain how one Eureka's mirrors show the applications, or these instances of another ``target``."""
    if inventory.kubernetes is None:
        return []
    listed = inventory.instances.get(connection, ())
    is_about_all = target.upper() in applications
    return [
        explanation if is_about_all else explanation.limited_to_instances(ids)
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


def _explain_instances(
    reader: InventoryReader,
    inventory: Inventory,
    peers: Peers,
    chosen: Sequence[Instance],
    comparisons: Sequence[Comparison],
    *,
    shown_in_full: Sequence[Comparison],
) -> list[InstanceExplanation]:
    """Explain each chosen instance, read by its id on every server, with its endpoint and pod if known; one
    of a comparison that is not shown in full gets that comparison's remedy.
    """
    keys = [one.key for one in chosen if can_be_named_in_url(one)]
    reads = read_everywhere(peers, keys, RefusalByKey()) if keys else UncachedReads({}, {})
    syncers = {}
    if inventory.kubernetes:
        syncers = {
            f"{one.namespace}/{one.name}": one
            for one in map(try_parse_syncer, inventory.kubernetes.syncers)
            if one
        }
    problems = {
        one.manager.name: str(one.problem) if one in shown_in_full else _format_problem(one.problem)
        for one in comparisons
        if one.problem
    }
    now_ms = time.time() * 1000
    found = []
    for listed in chosen:
        instance = reads.newest(listed.key) or listed
        manager = inventory.manager_of(instance)
        syncer = syncers.get(manager.name) if manager.kind is ManagerKind.SYNCER else None
        endpoint = find_endpoint(inventory, syncer, instance) if syncer else None
        observed = InstanceObservation(
            instance,
            manager,
            reads.held_by_url(listed.key) if can_be_named_in_url(listed) else {},
            {url: str(error) for url, error in reads.failures.items()},
            inventory.kubernetes is not None,
            syncer,
            problems.get(manager.name, "") if manager.kind is ManagerKind.SYNCER else "",
            endpoint,
            _read_pod(reader.access, syncer, endpoint) if instance.status is not Status.UP else None,
        )
        found.append(explain_instance(observed, now_ms))
    return found


def _read_pod(access: KubeAccess | None, syncer: Syncer | None, endpoint: Object | None) -> Object | None:
    """Return the pod behind an endpoint; None where there is none, or the pod may not be read."""
    target = (endpoint or {}).get("targetRef") or {}
    if access is None or syncer is None or target.get("kind") != "Pod" or not target.get("name"):
        return None
    try:
        return access.get(PODS.path(syncer.selector.namespace, target["name"]))
    except KubernetesError:
        return None


def _explanation_blocks(
    kind_name: str,
    application_comparisons: Sequence[Comparison],
    explanations: Sequence[InstanceExplanation],
    omitted_count: int,
) -> Iterable[Block]:
    for row in application_comparisons:
        kubernetes, eureka = row.kubernetes or "-", row.eureka or "-"
        yield Line((Cell(row.application, Tone.STRONG), Cell(f"  {row.manager}: {row.state}")))
        yield Line.of(f"{kubernetes} in Kubernetes, {eureka} in {kind_name}", indent=2)
        if row.problem:
            yield Line.of(str(row.problem), Tone.WARNING, 2)
        yield from remedy_blocks(row.problem, indent=2)
        yield Line.of("")
    alike: dict[tuple[object, ...], list[InstanceExplanation]] = defaultdict(list)
    for one in explanations:
        alike[one.application, dict(one.facts).get("kept by"), one.impact].append(one)
    for group in alike.values():
        yield from _group_blocks(group)
    if omitted_count:
        yield Line.of(f"and {omitted_count} more: name one of them", Tone.DIM)


def _group_blocks(group: Sequence[InstanceExplanation]) -> Iterable[Block]:
    """Yield the explanation of instances of one application and manager; shared facts are given once."""
    first, indent = group[0], 2
    common = [fact for fact in first.facts if all(fact in one.facts for one in group)]
    if len(group) > 1:
        indent = 4
        yield Line.of(f"{format_count(len(group))} of {first.application}", Tone.STRONG)
        yield from _fact_lines(common, 2)
        yield from _effect_lines(first)
    for one in group:
        tone = Tone.GOOD if one.status == Status.UP else Tone.BAD
        name = f"{one.application} {one.instance_id}" if len(group) == 1 else one.instance_id
        yield Line((Cell(f"{name}  ", Tone.STRONG), Cell(one.status, tone)), indent - 2)
        yield from _fact_lines([fact for fact in one.facts if len(group) == 1 or fact not in common], indent)
    if len(group) == 1:
        yield from _effect_lines(first)
    yield Line.of("")


def _fact_lines(facts: Iterable[tuple[str, str]], indent: int) -> Iterable[Block]:
    for topic, sentence in facts:
        yield Line((Cell(f"{topic}: ", Tone.DIM), Cell(sentence)), indent)


def _effect_lines(explanation: InstanceExplanation) -> Iterable[Block]:
    yield Line.of("what would happen if", Tone.DIM, 2)
    for event, outcome in explanation.impact:
        yield Line((Cell(f"{event}: ", Tone.DIM), Cell(outcome)), 4)


_TONE_BY_SERVICE_USE = {
    ServiceUse.LEFT_OUT: Tone.BAD,
    ServiceUse.NOT_CALLED: Tone.WARNING,
    ServiceUse.HELD: Tone.WARNING,
}


def _mirror_blocks(mirror_explanations: Sequence[MirrorExplanation]) -> Iterable[Block]:
    for one in mirror_explanations:
        service = f"Service {one.mirror_state.namespace}/{one.service}" if one.service else "no Service"
        yield Line(
            (
                Cell(one.application, Tone.STRONG),
                Cell(f"  {one.mirror_state.subject}: {one.mirror_state.state}"),
            )
        )
        yield Line.of(f"{service}, {_format_called_count(one)}", indent=2)
        if one.mirror_state.problem:
            yield Line.of(_format_problem(one.mirror_state.problem), Tone.WARNING, 2)
        for each in one.instances[:MAX_EXPLAINED_INSTANCES]:
            place = f" at {each.address}" if each.address else ""
            state = Cell(str(each.use), _TONE_BY_SERVICE_USE.get(each.use, Tone.GOOD))
            yield Line(
                (Cell(f"{each.instance_id}{place}: "), state, Cell(f": {each.why}" if each.why else "")), 4
            )
        if len(one.instances) > MAX_EXPLAINED_INSTANCES:
            yield Line.of(f"and {len(one.instances) - MAX_EXPLAINED_INSTANCES} more", Tone.DIM, 4)
        yield Line.of("")


def _format_problem(problem: Problem) -> str:
    return f"{problem.reason}: {problem.text}"


def _format_called_count(mirror: MirrorExplanation) -> str:
    called = sum(one.use in (ServiceUse.CALLED, ServiceUse.HELD) for one in mirror.instances)
    return f"{called} of {len(mirror.instances)} instances are called by it"
