"""Derivation of a run's effect on service discovery from Pulumi's steps. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from eurekube_provider.automation.registered import (
    OPERATOR_TYPES,
    SYNCER_TYPE,
    UNKNOWN_VALUE_TEXT,
    ApplicationPlace,
    RegisteredInstance,
    application_place,
    as_text,
    find_unknown_values,
    flatten,
    iterate_instances,
    lists_all_instances,
)
from eurekube_provider.automation.steps import MASKED_VALUE, EngineErrorReport, ResourceState, Step, StepLog
from eurekube_provider.core.brake import removes_all_of_several, removes_majority_of_many
from eurekube_provider.core.identity import (
    DYNAMIC_APPLICATION_TYPE,
    DYNAMIC_INSTANCE_TYPE,
    DYNAMIC_OPERATOR_GUARD_TYPE,
    SELF_RENEWER_VALUE,
)
from eurekube_provider.core.wording import format_list


class ChangeKind(StrEnum):
    """The kinds of changes of an instance, or of a syncer."""

    REGISTERS = "registers"
    LEAVES = "leaves"
    MOVES = "moves"
    """The instance is registered under another id or at other servers, and the old one is removed."""
    CHANGES = "changes"


class WarningConcern(StrEnum):
    """The subjects of warnings."""

    BRAKE = "brake"
    RENEWER = "renewer"
    OWNER = "owner"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class DiscoveryChange:
    """The change of one instance of an application, or of one syncer.

    :ivar name: the resource's name, or the key within its EurekaApplication; ``namespace/name`` of a syncer.
    :ivar details: old and new value by property; empty texts for values that are not set.
    :ivar drain_seconds: the seconds out of service before the removal.
    """

    kind: ChangeKind
    name: str
    address: str = ""
    instance_id: str = ""
    details: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    drain_seconds: int = 0


@dataclass(frozen=True, slots=True)
class ApplicationChange:
    """The changes of one application at one Eureka; ``before`` and ``after`` are counts of instances."""

    application: str
    service_url: str
    changes: tuple[DiscoveryChange, ...]
    before: int | None
    after: int | None

    def changes_of_kind(self, kind: ChangeKind) -> tuple[DiscoveryChange, ...]:
        return tuple(change for change in self.changes if change.kind is kind)


@dataclass(frozen=True, slots=True)
class RefusedChange:
    """A refused change of a stack's run: the resource's name, or an instance's key within it, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class DiscoveryWarning:
    """A warning to a person about one resource, instance or application."""

    concern: WarningConcern
    about: str
    text: str


@dataclass(frozen=True, slots=True)
class DiscoverySummary:
    """The effect of one run of a stack on Eureka: changes, refusals and warnings.

    :ivar other_changes: the number of other resources by operation, without registrations and syncers.
    :ivar has_failed: True if the run ended with an error, so that the summary may be incomplete.
    """

    project: str
    stack: str
    applications: tuple[ApplicationChange, ...]
    syncers: tuple[DiscoveryChange, ...]
    refused: tuple[RefusedChange, ...]
    warnings: tuple[DiscoveryWarning, ...]
    other_changes: Mapping[str, int]
    has_failed: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


_STATE_ONLY_TYPE_PREFIXES = ("pulumi:", "eurekube:index:", DYNAMIC_OPERATOR_GUARD_TYPE)

ChangeDetails = Mapping[str, tuple[str, str]]
"""Old and new value by property."""


class _SummaryBuilder:
    """The changes of each application, collected step by step.

    :ivar is_drift: True for a check for drift: old states are the stack's, new ones those that were found.
    """

    def __init__(self, *, is_drift: bool) -> None:
        self.is_drift = is_drift
        self.changes: dict[ApplicationPlace, list[DiscoveryChange]] = {}
        self.instances_before: dict[ApplicationPlace, list[RegisteredInstance]] = {}
        self.instances_after: dict[ApplicationPlace, list[RegisteredInstance]] = {}
        self.lost_up_counts: Counter[ApplicationPlace] = Counter()
        """The number of instances with status UP that leave."""
        self.moved: dict[tuple[ApplicationPlace, str], list[RegisteredInstance]] = {}
        """Instances that move, by application, old and new URL."""
        self.uncounted_places: set[ApplicationPlace] = set()
        """Places at which not all instances are reported, so that they cannot be counted."""
        self.refused: list[RefusedChange] = []
        self.warnings: list[DiscoveryWarning] = []

    @property
    def change_count(self) -> int:
        return sum(map(len, self.changes.values()))

    def add_change(
        self,
        kind: ChangeKind,
        instance: RegisteredInstance,
        details: ChangeDetails | None = None,
        drain_seconds: int = 0,
    ) -> None:
        change = DiscoveryChange(
            kind, instance.key, instance.address, instance.instance_id, details or {}, drain_seconds
        )
        self.changes.setdefault(instance.place, []).append(change)

    def add_warning(self, concern: WarningConcern, about: str, text: str) -> None:
        self.warnings.append(DiscoveryWarning(concern, about, text))


def summarise(log: StepLog, *, is_drift: bool = False) -> DiscoverySummary:
    """Summarise the effect of a preview or an update on discovery, or the findings of a check for drift."""
    builder = _SummaryBuilder(is_drift=is_drift)
    syncers: list[DiscoveryChange] = []
    others: Counter[str] = Counter()
    same_steps = sum(step.operation == "same" for step in log.steps)
    is_complete = same_steps >= log.changes.get("same", 0)
    for step in log.steps:
        if step.type in (DYNAMIC_INSTANCE_TYPE, DYNAMIC_APPLICATION_TYPE):
            _add_registration_changes(step, builder)
            if step.type == DYNAMIC_INSTANCE_TYPE and not is_complete:
                both = (
                    *_state_instances(step, step.old, use_outputs=True),
                    *_state_instances(step, step.new, use_outputs=is_drift),
                )
                builder.uncounted_places |= {each.place for each in both}
        elif step.is_change and step.type == SYNCER_TYPE:
            syncers.append(_syncer_change(step, is_drift=is_drift))
        elif step.is_change and step.type in OPERATOR_TYPES and step.new is None:
            text = "the operator goes: what it renews lapses within three minutes unless another renews it"
            builder.add_warning(WarningConcern.RENEWER, step.name, text)
        elif step.is_change and not step.type.startswith(_STATE_ONLY_TYPE_PREFIXES):
            others[step.operation] += 1
    applications = tuple(_application_change(place, builder) for place in sorted(builder.changes))
    if not is_drift:
        builder.warnings += [warned for each in applications if (warned := _brake_warning(each, builder))]
        builder.warnings += _changed_url_warnings(builder)
    elif not (applications or syncers or others or builder.warnings):
        others.update(step.operation for step in log.steps if step.is_change)  # of any type
    project, stack = _project_and_stack(log.steps, log.problems)
    return DiscoverySummary(
        project=project,
        stack=stack,
        applications=applications,
        syncers=tuple(syncers),
        refused=(*map(_refused_change, log.problems), *builder.refused),
        warnings=tuple(sorted(builder.warnings, key=lambda each: list(WarningConcern).index(each.concern))),
        other_changes=dict(sorted(others.items())),
        has_failed=bool(log.problems),
    )


def _add_registration_changes(step: Step, builder: _SummaryBuilder) -> None:
    is_drift = builder.is_drift
    old = {each.key: each for each in _state_instances(step, step.old, use_outputs=True)}
    new = {each.key: each for each in _state_instances(step, step.new, use_outputs=is_drift)}
    before = _state_properties(step.old, use_outputs=True)
    after = _state_properties(step.new, use_outputs=is_drift)
    are_instances_known = lists_all_instances(before) and lists_all_instances(after)
    if not are_instances_known:
        builder.uncounted_places |= {application_place(before), application_place(after)}
    if not step.is_change:
        new = old = old or new
    for each in old.values():
        there = new.get(each.key, each)
        place = each.place if there.shares_no_url_with(each) else there.place
        builder.instances_before.setdefault(place, []).append(each)
    for each in new.values():
        builder.instances_after.setdefault(each.place, []).append(each)
    if not step.is_change:
        for each in new.values() if is_drift else ():
            if each.foreign_owner:  # an earlier refresh has stored the owner, and no update can take over
                owner = (as_text(before.get("owner")), each.foreign_owner)
                builder.add_change(ChangeKind.CHANGES, each, {"owner": owner})
        return
    for text in _describe_unknown_properties({**find_unknown_values(before), **find_unknown_values(after)}):
        builder.add_warning(WarningConcern.UNKNOWN, step.name, text)
    if not are_instances_known:
        return
    count_before = builder.change_count
    for key in sorted({*old, *new}):
        _add_instance_change(old.get(key), new.get(key), builder)
    if is_drift and builder.change_count == count_before:
        difference = _describe_non_instance_difference(before, after)
        builder.add_warning(WarningConcern.UNKNOWN, step.name, difference)
    if not is_drift:
        _add_owner_warnings(step, old, new, builder)
        _add_renewer_warnings(step, old, new, builder)


def _describe_non_instance_difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return a sentence that names the properties that differ although no instance does."""
    old, new = flatten(before), flatten(after)
    names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    if not names:
        return "Pulumi finds a difference, and names none"
    return f"its state differs in {format_list(names, 3)}"


def _describe_unknown_properties(found: Mapping[str, Any]) -> Iterable[str]:
    secret = [name for name, value in found.items() if value == MASKED_VALUE]
    later = [name for name in found if name not in secret]
    if {"application", "instances"} & set(later):
        yield "which instances it will have is looked up in the update only"
    elif later:
        yield f"known in the update only: {format_list(later, 3)}"
    if secret:
        yield f"secret, and so not shown: {format_list(secret, 3)}"


def _add_instance_change(
    old: RegisteredInstance | None, new: RegisteredInstance | None, builder: _SummaryBuilder
) -> None:
    if old is not None and new is not None and old.application == new.application:
        has_known_properties = old.has_known_properties and new.has_known_properties
        details = _changed_properties(old.contents, new.contents) if has_known_properties else {}
        if builder.is_drift:
            details |= _changed_properties(old.owner_marks, new.owner_marks)
        if old.service_url != new.service_url:
            details = {"service_url": (old.service_url, new.service_url), **details}
        if new.shares_no_url_with(old):
            builder.moved.setdefault((old.place, new.service_url), []).append(old)
        if new.shares_no_url_with(old) or (has_known_properties and old.instance_id != new.instance_id):
            builder.add_change(ChangeKind.MOVES, new, details, _expected_drain_seconds(old))
        elif details:
            builder.add_change(ChangeKind.CHANGES, new, details)
        return
    if old is not None:
        builder.add_change(ChangeKind.LEAVES, old, drain_seconds=_expected_drain_seconds(old))
        builder.lost_up_counts[old.place] += old.is_up and not old.foreign_owner
    if new is not None:
        builder.add_change(ChangeKind.REGISTERS, new)


def _add_owner_warnings(
    step: Step,
    old: Mapping[str, RegisteredInstance],
    new: Mapping[str, RegisteredInstance],
    builder: _SummaryBuilder,
) -> None:
    for each in old.values():
        if not each.foreign_owner:
            continue
        where = f"{each.application} {each.instance_id}"
        if each.key not in new:
            text = f"{where} belongs to {each.foreign_owner} by now and is left as it is"
            builder.add_warning(WarningConcern.OWNER, each.key, text)
        elif new[each.key].adopts:
            builder.add_warning(
                WarningConcern.OWNER, each.key, f"{where} is taken over from {each.foreign_owner}"
            )
        elif new[each.key].was_registered_again_by_client(each):
            text = f"{where} was registered again by its own client, and is taken over"
            builder.add_warning(WarningConcern.OWNER, each.key, text)
        else:
            reason = f"{where} belongs to {each.foreign_owner} by now; only on_conflict=adopt takes it over"
            builder.refused.append(RefusedChange(each.key, reason))
    adopting = [each for each in new.values() if each.adopts and each.key not in old]
    if adopting:
        text = (
            f"whatever stands in Eureka under {format_list([each.instance_id for each in adopting], 3)} is "
            "taken over, and removed with this stack"
        )
        builder.add_warning(WarningConcern.OWNER, step.name, text)


def _add_renewer_warnings(
    step: Step,
    old: Mapping[str, RegisteredInstance],
    new: Mapping[str, RegisteredInstance],
    builder: _SummaryBuilder,
) -> None:
    before = {each.renewer for each in old.values()}
    after = {each.renewer for each in new.values()}
    for renewer in sorted(after - before):
        if renewer == SELF_RENEWER_VALUE:
            text = "nobody of ours renews it: the application must send its own renewals, or it lapses"
        elif before:
            text = (
                f"from now on {renewer} renews it, and no more {', '.join(sorted(before))}: where no "
                "operator of that name runs, it lapses"
            )
        else:
            continue
        builder.add_warning(WarningConcern.RENEWER, step.name, text)


def _application_change(place: ApplicationPlace, builder: _SummaryBuilder) -> ApplicationChange:
    changes = sorted(builder.changes[place], key=lambda each: (list(ChangeKind).index(each.kind), each.name))
    counts: tuple[int | None, int | None] = (None, None)
    if place not in builder.uncounted_places:
        counts = (len(builder.instances_before.get(place, ())), len(builder.instances_after.get(place, ())))
    return ApplicationChange(*place, tuple(changes), *counts)


def _brake_warning(change: ApplicationChange, builder: _SummaryBuilder) -> DiscoveryWarning | None:
    """Return a warning if an operator's brake would hold these removals; a stack has no brake."""
    place = (change.application, change.service_url)
    lost, arriving = builder.lost_up_counts[place], len(change.changes_of_kind(ChangeKind.REGISTERS))
    up = sum(each.is_up for each in builder.instances_before.get(place, ()))
    if change.before is None or not (
        removes_all_of_several(up, lost, arriving) or removes_majority_of_many(up, lost, arriving)
    ):
        return None
    share = f"all {up}" if lost >= up else f"{lost} of {up}"
    text = f"{share} instances leave at once; an operator would hold that for a minute, an update does not"
    return DiscoveryWarning(WarningConcern.BRAKE, change.application, text)


def _changed_url_warnings(builder: _SummaryBuilder) -> Iterable[DiscoveryWarning]:
    """Yield warnings of registrations at another URL: only Eureka knows if that is another registry."""
    for ((application, before), after), moved in sorted(builder.moved.items()):
        up = [each for each in moved if each.is_up and not each.foreign_owner]
        if not up:
            continue
        every = sum(each.is_up for each in builder.instances_before.get((application, before), ()))
        share = f"all {len(up)}" if len(up) >= every else f"{len(up)} of {every}"
        drain = max(each.drain_seconds for each in up)
        drained = f", out of service for {drain} s before" if drain else ""
        text = (
            f"callers that ask {before} lose {share} instances{drained}, unless it leads to the same"
            f" Eureka as {after}: then nothing goes"
        )
        yield DiscoveryWarning(WarningConcern.BRAKE, application, text)


def _syncer_change(step: Step, *, is_drift: bool) -> DiscoveryChange:
    old, new = (_state_properties(state, use_outputs=is_drift) for state in (step.old, step.new))
    object_metadata = (new or old).get("metadata") or {}
    metadata = object_metadata if isinstance(object_metadata, Mapping) else {"namespace": object_metadata}
    namespace, name = as_text(metadata.get("namespace")), as_text(metadata.get("name"))
    name = f"{namespace or 'default'}/{name or step.name}"
    if step.old is None:
        return DiscoveryChange(ChangeKind.REGISTERS, name)
    if step.new is None:
        return DiscoveryChange(ChangeKind.LEAVES, name)
    details = _changed_properties(
        flatten({"spec": old.get("spec") or {}}), flatten({"spec": new.get("spec") or {}})
    )
    return DiscoveryChange(ChangeKind.CHANGES, name, details=details)


def _refused_change(problem: EngineErrorReport) -> RefusedChange:
    """Return a refusal with our sentence only, taken from an engine's error."""
    name, message = problem.urn.rpartition("::")[2], problem.message
    before, separator, reason = message.partition(" has a problem: ")
    if separator:
        _, _, rest = before.partition("property ")
        message = f"{rest.partition(' value ')[0]}: {reason}" if rest else reason
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return RefusedChange(name, lines[-1] if "Traceback" in message else " ".join(lines))


def _state_instances(
    step: Step, state: ResourceState | None, *, use_outputs: bool
) -> Iterable[RegisteredInstance]:
    """Return the instances of one state, by its outputs if ``use_outputs``, else by the program's inputs."""
    if state is None:
        return ()
    return iterate_instances(step.type, step.name, _state_properties(state, use_outputs=use_outputs))


def _state_properties(state: ResourceState | None, *, use_outputs: bool) -> Mapping[str, Any]:
    if state is None:
        return {}
    return state.outputs if use_outputs and state.outputs else state.inputs


def _changed_properties(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    old, new = _join_maps_masked_in_other(old, new), _join_maps_masked_in_other(new, old)
    # A status that the program does not set is Eureka's own, or was set by a person.
    names = sorted({*old, *new} - (set() if "status" in new else {"status"}))
    if all(each.get("ip_address") == each.get("host_name") for each in (old, new)):
        names = [name for name in names if name != "ip_address"]  # the address only repeats the host name
    return {name: (old.get(name, ""), new.get(name, "")) for name in names if old.get(name) != new.get(name)}


def _join_maps_masked_in_other(contents: Mapping[str, str], other: Mapping[str, str]) -> Mapping[str, str]:
    """Return contents in which each map that is hidden or unknown in ``other`` is one text."""
    for name in [name for name, value in other.items() if value in (UNKNOWN_VALUE_TEXT, MASKED_VALUE)]:
        items = {each: value for each, value in contents.items() if each.startswith(f"{name}.")}
        if items:
            text = ", ".join(f"{each.removeprefix(f'{name}.')}={value}" for each, value in items.items())
            contents = {**{each: value for each, value in contents.items() if each not in items}, name: text}
    return contents


def _expected_drain_seconds(instance: RegisteredInstance) -> int:
    return instance.drain_seconds if instance.is_up and not instance.foreign_owner else 0


def _project_and_stack(steps: tuple[Step, ...], problems: list[EngineErrorReport]) -> tuple[str, str]:
    """Return project and stack from a URN: ``urn:pulumi:<stack>::<project>::...``."""
    for urn in (*(step.urn for step in steps), *(problem.urn for problem in problems)):
        parts = urn.split("::")
        if len(parts) >= 3:
            return parts[1], parts[0].rpartition(":")[2]
    return "", ""
