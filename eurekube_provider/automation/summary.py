"""Derivation of a run's effect on discovery from Pulumi's steps. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from eurekube_provider.automation.discovery import (
    ApplicationChange,
    ChangeKind,
    Concern,
    Discovery,
    DiscoveryChange,
    DiscoveryWarning,
    RefusedChange,
)
from eurekube_provider.automation.registered import (
    NOT_KNOWN_YET,
    OPERATORS,
    SYNCER,
    Place,
    Registered,
    as_text,
    flattened,
    is_known,
    place_of,
    registered,
    unknown_keys,
)
from eurekube_provider.automation.steps import MASKED, EngineError, State, Step, StepLog
from eurekube_provider.core.brake import removes_all, removes_majority
from eurekube_provider.core.identity import APPLICATION_TYPE, GUARD_TYPE, INSTANCE_TYPE, SELF_RENEWED
from eurekube_provider.core.wording import listed

_NO_OBJECTS = ("pulumi:", "eurekube:index:", GUARD_TYPE)
"""Beginnings of the types of resources that exist in the state only."""

Details = Mapping[str, tuple[str, str]]
"""Old and new value by property."""


class _SummaryBuilder:
    """The changes of each application, collected step by step."""

    def __init__(self) -> None:
        self.changes: dict[Place, list[DiscoveryChange]] = {}
        self.before: dict[Place, list[Registered]] = {}
        self.after: dict[Place, list[Registered]] = {}
        self.losses: Counter[Place] = Counter()
        self.moved: dict[tuple[Place, str], list[Registered]] = {}
        """Instances that move, by application, old and new URL."""
        self.is_partial: set[Place] = set()
        self.refused: list[RefusedChange] = []
        self.warnings: list[DiscoveryWarning] = []

    @property
    def change_count(self) -> int:
        """The number of changes that were reported so far."""
        return sum(map(len, self.changes.values()))

    def change(
        self, kind: ChangeKind, of: Registered, details: Details | None = None, drain_seconds: int = 0
    ) -> None:
        change = DiscoveryChange(kind, of.key, of.address, of.instance_id, details or {}, drain_seconds)
        self.changes.setdefault(of.place, []).append(change)

    def warn(self, concern: Concern, about: str, text: str) -> None:
        self.warnings.append(DiscoveryWarning(concern, about, text))


def summarise(log: StepLog) -> Discovery:
    """Summarise the effect of a preview, or of an update, on discovery."""
    return _summary(log, found=False)


def summarise_drift(log: StepLog) -> Discovery:
    """Summarise a check for drift: old states are the stack's, new ones Eureka's and the cluster's."""
    return _summary(log, found=True)


def _summary(log: StepLog, *, found: bool) -> Discovery:
    builder = _SummaryBuilder()
    syncers: list[DiscoveryChange] = []
    others: Counter[str] = Counter()
    same_steps = sum(step.operation == "same" for step in log.steps)
    is_complete = same_steps >= log.changes.get("same", 0)
    for step in log.steps:
        if step.type in (INSTANCE_TYPE, APPLICATION_TYPE):
            _registrations(step, builder, found=found)
            if step.type == INSTANCE_TYPE and not is_complete:
                both = (*_instances(step, step.old, found=True), *_instances(step, step.new, found=found))
                builder.is_partial |= {each.place for each in both}
        elif step.is_change and step.type == SYNCER:
            syncers.append(_syncer(step, found=found))
        elif step.is_change and step.type in OPERATORS and step.new is None:
            text = "the operator goes: what it renews lapses within three minutes unless another renews it"
            builder.warn(Concern.RENEWER, step.name, text)
        elif step.is_change and not step.type.startswith(_NO_OBJECTS):
            others[step.operation] += 1
    applications = tuple(_application(place, builder) for place in sorted(builder.changes))
    if not found:
        builder.warnings += [warned for each in applications if (warned := _braked(each, builder))]
        builder.warnings += _moved(builder)
    elif not (applications or syncers or others or builder.warnings):
        others.update(step.operation for step in log.steps if step.is_change)  # whatever they are of
    project, stack = _names(log.steps, log.problems)
    return Discovery(
        project=project,
        stack=stack,
        applications=applications,
        syncers=tuple(syncers),
        refused=(*map(_refusal, log.problems), *builder.refused),
        warnings=tuple(sorted(builder.warnings, key=lambda each: list(Concern).index(each.concern))),
        other_changes=dict(sorted(others.items())),
        has_failed=bool(log.problems),
    )


def _registrations(step: Step, builder: _SummaryBuilder, *, found: bool) -> None:
    old = {each.key: each for each in _instances(step, step.old, found=True)}
    new = {each.key: each for each in _instances(step, step.new, found=found)}
    before, after = _properties(step.old, found=True), _properties(step.new, found=found)
    is_reported = is_known(before) and is_known(after)
    if not is_reported:
        builder.is_partial |= {place_of(before), place_of(after)}
    if not step.is_change:
        new = old = old or new
    for each in old.values():
        there = new.get(each.key, each)
        place = each.place if there.is_elsewhere_than(each) else there.place
        builder.before.setdefault(place, []).append(each)
    for each in new.values():
        builder.after.setdefault(each.place, []).append(each)
    if not step.is_change:
        for each in new.values() if found else ():
            if each.foreign_owner:  # an earlier refresh has reported the state, and no update can heal it
                owner = (as_text(before.get("owner")), each.foreign_owner)
                builder.change(ChangeKind.CHANGES, each, {"owner": owner})
        return
    for text in _unknown_properties({**unknown_keys(before), **unknown_keys(after)}):
        builder.warn(Concern.UNKNOWN, step.name, text)
    if not is_reported:
        return
    count_before = builder.change_count
    for key in sorted({*old, *new}):
        _instance(old.get(key), new.get(key), builder, found=found)
    if found and builder.change_count == count_before:
        builder.warn(Concern.UNKNOWN, step.name, _other_difference(before, after))
    if not found:
        _owners(step, old, new, builder)
        _renewers(step, old, new, builder)


def _other_difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return a sentence that names differences beside those of instances, so that each difference is
    reported.
    """
    old, new = flattened(before), flattened(after)
    names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    return (
        f"its state differs in {listed(names, 3)}" if names else "Pulumi finds a difference, and names none"
    )


def _unknown_properties(found: Mapping[str, Any]) -> Iterable[str]:
    secret = [name for name, value in found.items() if value == MASKED]
    later = [name for name in found if name not in secret]
    if {"application", "instances"} & set(later):
        yield "which instances it will have is looked up in the update only"
    elif later:
        yield f"known in the update only: {listed(later, 3)}"
    if secret:
        yield f"secret, and so not shown: {listed(secret, 3)}"


def _instance(
    old: Registered | None, new: Registered | None, builder: _SummaryBuilder, *, found: bool
) -> None:
    if old is not None and new is not None and old.application == new.application:
        is_reported = old.is_reported and new.is_reported
        details = _details(old.contents, new.contents) if is_reported else {}
        if found:
            details |= _details(old.marks, new.marks)
        if old.service_url != new.service_url:
            details = {"service_url": (old.service_url, new.service_url), **details}
        if new.is_elsewhere_than(old):
            builder.moved.setdefault((old.place, new.service_url), []).append(old)
        if new.is_elsewhere_than(old) or (is_reported and old.instance_id != new.instance_id):
            builder.change(ChangeKind.MOVES, new, details, _drain(old))
        elif details:
            builder.change(ChangeKind.CHANGES, new, details)
        return
    if old is not None:
        builder.change(ChangeKind.LEAVES, old, drain_seconds=_drain(old))
        builder.losses[old.place] += old.is_up and not old.foreign_owner
    if new is not None:
        builder.change(ChangeKind.REGISTERS, new)


def _owners(
    step: Step, old: Mapping[str, Registered], new: Mapping[str, Registered], builder: _SummaryBuilder
) -> None:
    for each in old.values():
        if not each.foreign_owner:
            continue
        where = f"{each.application} {each.instance_id}"
        if each.key not in new:
            text = f"{where} belongs to {each.foreign_owner} by now and is left as it is"
            builder.warn(Concern.OWNER, each.key, text)
        elif new[each.key].adopts:
            builder.warn(Concern.OWNER, each.key, f"{where} is taken over from {each.foreign_owner}")
        elif new[each.key].came_back(each):
            text = f"{where} was registered again by its own client, and is taken over"
            builder.warn(Concern.OWNER, each.key, text)
        else:
            reason = f"{where} belongs to {each.foreign_owner} by now; only on_conflict=adopt takes it over"
            builder.refused.append(RefusedChange(each.key, reason))
    adopting = [each for each in new.values() if each.adopts and each.key not in old]
    if adopting:
        text = (
            f"whatever stands in Eureka under {listed([each.instance_id for each in adopting], 3)} is taken"
            " over, and removed with this stack"
        )
        builder.warn(Concern.OWNER, step.name, text)


def _renewers(
    step: Step, old: Mapping[str, Registered], new: Mapping[str, Registered], builder: _SummaryBuilder
) -> None:
    before = {each.renewer for each in old.values()}
    after = {each.renewer for each in new.values()}
    for renewer in sorted(after - before):
        if renewer == SELF_RENEWED:
            text = "nobody of ours renews it: the application must send its own renewals, or it lapses"
        elif before:
            text = (
                f"from now on {renewer} renews it, and no more {', '.join(sorted(before))}: where no operator"
                " of that name runs, it lapses"
            )
        else:
            continue
        builder.warn(Concern.RENEWER, step.name, text)


def _application(place: Place, builder: _SummaryBuilder) -> ApplicationChange:
    changes = sorted(builder.changes[place], key=lambda each: (list(ChangeKind).index(each.kind), each.name))
    counts: tuple[int | None, int | None] = (None, None)
    if place not in builder.is_partial:
        counts = (len(builder.before.get(place, ())), len(builder.after.get(place, ())))
    return ApplicationChange(*place, tuple(changes), *counts)


def _braked(of: ApplicationChange, builder: _SummaryBuilder) -> DiscoveryWarning | None:
    """Return a warning if an operator's brake would hold the removals of an application; a stack has no
    brake.
    """
    place = (of.application, of.service_url)
    lost, arriving = builder.losses[place], len(of.of(ChangeKind.REGISTERS))
    up = sum(each.is_up for each in builder.before.get(place, ()))
    if of.before is None or not (removes_all(up, lost, arriving) or removes_majority(up, lost, arriving)):
        return None
    share = f"all {up}" if lost >= up else f"{lost} of {up}"
    text = f"{share} instances leave at once; an operator would hold that for a minute, an update does not"
    return DiscoveryWarning(Concern.BRAKE, of.application, text)


def _moved(builder: _SummaryBuilder) -> Iterable[DiscoveryWarning]:
    """Yield a warning for registrations at another URL, since only Eureka knows if that is another
    registry.
    """
    for ((application, before), after), moved in sorted(builder.moved.items()):
        up = [each for each in moved if each.is_up and not each.foreign_owner]
        if not up:
            continue
        every = sum(each.is_up for each in builder.before.get((application, before), ()))
        share = f"all {len(up)}" if len(up) >= every else f"{len(up)} of {every}"
        drain = max(each.drain_seconds for each in up)
        drained = f", out of service for {drain} s before" if drain else ""
        text = (
            f"callers that ask {before} lose {share} instances{drained}, unless it leads to the same"
            f" Eureka as {after}: then nothing goes"
        )
        yield DiscoveryWarning(Concern.BRAKE, application, text)


def _syncer(step: Step, *, found: bool) -> DiscoveryChange:
    old, new = _properties(step.old, found=found), _properties(step.new, found=found)
    object_metadata = (new or old).get("metadata") or {}
    metadata = object_metadata if isinstance(object_metadata, Mapping) else {"namespace": object_metadata}
    namespace, name = as_text(metadata.get("namespace")), as_text(metadata.get("name"))
    name = f"{namespace or 'default'}/{name or step.name}"
    if step.old is None:
        return DiscoveryChange(ChangeKind.REGISTERS, name)
    if step.new is None:
        return DiscoveryChange(ChangeKind.LEAVES, name)
    details = _details(flattened({"spec": old.get("spec") or {}}), flattened({"spec": new.get("spec") or {}}))
    return DiscoveryChange(ChangeKind.CHANGES, name, details=details)


def _refusal(problem: EngineError) -> RefusedChange:
    """Return a refusal with our sentence only, taken from an engine's error."""
    name, message = problem.urn.rpartition("::")[2], problem.message
    before, separator, reason = message.partition(" has a problem: ")
    if separator:
        _, _, rest = before.partition("property ")
        message = f"{rest.partition(' value ')[0]}: {reason}" if rest else reason
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return RefusedChange(name, lines[-1] if "Traceback" in message else " ".join(lines))


def _instances(step: Step, state: State | None, *, found: bool) -> Iterable[Registered]:
    """Return the instances of one state: as a refresh ``found`` them, else as the program asks for them."""
    return () if state is None else registered(step.type, step.name, _properties(state, found=found))


def _properties(state: State | None, *, found: bool) -> Mapping[str, Any]:
    if state is None:
        return {}
    return state.outputs if found and state.outputs else state.inputs


def _details(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    old, new = _as_shown(old, new), _as_shown(new, old)
    # A status that nobody asks for is Eureka's own, or a person's.
    names = sorted({*old, *new} - (set() if "status" in new else {"status"}))
    if all(each.get("ip_address") == each.get("host_name") for each in (old, new)):
        names = [name for name in names if name != "ip_address"]  # says nothing that the name does not
    return {name: (old.get(name, ""), new.get(name, "")) for name in names if old.get(name) != new.get(name)}


def _as_shown(of: Mapping[str, str], other: Mapping[str, str]) -> Mapping[str, str]:
    """Return contents with a map joined into one text where the other side hides or lacks its entries."""
    for name in [name for name, value in other.items() if value in (NOT_KNOWN_YET, MASKED)]:
        items = {each: value for each, value in of.items() if each.startswith(f"{name}.")}
        if items:
            text = ", ".join(f"{each.removeprefix(f'{name}.')}={value}" for each, value in items.items())
            of = {**{each: value for each, value in of.items() if each not in items}, name: text}
    return of


def _drain(of: Registered) -> int:
    return of.drain_seconds if of.is_up and not of.foreign_owner else 0


def _names(steps: tuple[Step, ...], problems: list[EngineError]) -> tuple[str, str]:
    """Return project and stack from a URN: ``urn:pulumi:<stack>::<project>::...``."""
    for urn in (*(step.urn for step in steps), *(problem.urn for problem in problems)):
        parts = urn.split("::")
        if len(parts) >= 3:
            return parts[1], parts[0].rpartition(":")[2]
    return "", ""
