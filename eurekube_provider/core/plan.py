"""The one function that decides: desired instances against actual ones, and what must change.

Pulumi, the operator and the command line all call :func:`plan`; none of them compares instances itself.
It does no I/O, takes linear time, and applying its result makes a second plan empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from eurekube_provider.core.enforcement import (
    InstancePolicy,
    has_another_status,
    own_status,
    sent_first,
    status_to_reach,
)
from eurekube_provider.core.errors import OwnershipConflict, RegistryError
from eurekube_provider.core.identity import LEAVING_KEY, OWNER_KEY
from eurekube_provider.core.model import Instance, Key, Status, same_contents
from eurekube_provider.core.quoting import printable
from eurekube_provider.core.registry_kinds import kind_of

_NO_POLICIES: Mapping[tuple[str, str], InstancePolicy] = {}
_NO_TWINS: Mapping[Key, Instance] = {}


class Policy(StrEnum):
    """How far a plan may go."""

    SYNC = "Sync"
    """Register, update and deregister."""

    UPSERT_ONLY = "UpsertOnly"
    """Register and update; what is no longer desired stays until its renewals end."""


class Action(StrEnum):
    """The effect of a change. Their order here is the order in which they are carried out."""

    REGISTER = "register"
    UPDATE = "update"
    SET_STATUS = "set-status"
    ENFORCE = "enforce"
    """Bring about the status of ``instance`` over another one, once ``actual`` stands there."""

    DEREGISTER = "deregister"


class RefusalReason(StrEnum):
    """Why a desired instance is left alone; the names are those of the syncer's conditions."""

    CONFLICT = "Conflict"
    """Another owner has an instance under this id."""

    SELF_REGISTERED = "SelfRegistered"
    """The application itself, or the pod's own client, has registered it."""


@dataclass(frozen=True, slots=True)
class Change:
    """One step: ``instance`` is what shall be there (what shall go, for DEREGISTER); ``actual`` what is.

    :ivar adopts: True if ``actual`` belongs to somebody else and is taken over.
    """

    action: Action
    instance: Instance
    actual: Instance | None = None
    adopts: bool = False

    def describe(self) -> str:
        """One line for a person, e.g. ``+ RATING rating-1.shop.eks:rating:8080 UP 10.0.0.1:8080``."""
        sign = {Action.REGISTER: "+", Action.DEREGISTER: "-"}.get(self.action, "~")
        head = f"{sign} {self.instance.application} {self.instance.instance_id}"
        if self.action is Action.DEREGISTER:
            return head
        if self.actual is None:
            return f"{head} {self.instance.status} {_address(self.instance)}"
        return f"{head} {', '.join(differences(self.instance, self.actual))}"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A desired instance that was left alone, and whose instance stands in its way."""

    reason: RefusalReason
    instance: Instance
    actual: Instance

    def describe(self) -> str:
        """One sentence for a person: what stands there, whose it is, and what to do.

        It stands in conditions and Events as well, which `kubectl` prints as they are.
        """
        remedy = ""
        if self.reason is RefusalReason.SELF_REGISTERED:
            remedy = f": {switch_its_client_off(self.actual)}, or it would be called twice as often"
        return f"{self.problem}{remedy}"

    @property
    def problem(self) -> str:
        """Return the fault, without its remedy."""
        if self.reason is RefusalReason.SELF_REGISTERED:
            return f"{self.in_the_way} registered itself"
        return f"{self.in_the_way} {whose(self.actual)} and was left as it is"

    @property
    def in_the_way(self) -> str:
        """Return the instance in the way; with its address where that is what is in the way."""
        there = f"{self.actual.application} {self.actual.instance_id}"
        is_at_address = self.reason is RefusalReason.SELF_REGISTERED or self.actual.key != self.instance.key
        at = f" at {_address(self.actual)}" if is_at_address else ""
        return printable(f"{there}{at}")


def switch_its_client_off(actual: Instance) -> str:
    """Return what to do about an instance that registered itself, by its kind of registry."""
    kind = kind_of(actual)
    return f"switch its own {kind.name} client off ({kind.client_off})"


def whose(actual: Instance) -> str:
    """Return the owner of an instance as the end of a sentence's first half; fit to be printed."""
    if actual.unreadable and not actual.owner:
        return f"cannot be read ({printable(actual.unreadable)})"
    return f"belongs to {printable(actual.owner)}" if actual.owner else "was not registered by Eurekube"


@dataclass(frozen=True, slots=True)
class Plan:
    """The ordered changes that turn actual into desired, and what was refused.

    :param doubled: desired instances, there or planned, although the application registered itself, too. A
        list tells of that up to half a minute after ours was registered; then nothing is taken out. One at
        another address or port keeps no caller from needing ours: it may be another server of the pod, or a
        dead pod's that had the address before.
    """

    changes: tuple[Change, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    doubled: tuple[Refusal, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes)

    def of(self, action: Action) -> tuple[Change, ...]:
        """The changes with this action, in order."""
        return tuple(change for change in self.changes if change.action is action)

    def describe(self) -> str:
        """A line for each change and refusal, and the sum; for people."""
        lines = [printable(change.describe()) for change in self.changes]
        lines += [f"! {refusal.describe()}" for refusal in self.refusals]
        counts = {action: len(self.of(action)) for action in Action}
        total = ", ".join(f"{count} to {action}" for action, count in counts.items() if count) or "no changes"
        return "\n".join([*lines, f"{total}, {len(self.refusals)} refused" if self.refusals else total])

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain JSON values."""
        return {
            "changes": [
                {
                    "action": str(change.action),
                    "application": change.instance.application,
                    "instanceId": change.instance.instance_id,
                    "differences": (
                        differences(change.instance, change.actual)
                        if change.actual is not None and change.action is not Action.DEREGISTER
                        else []
                    ),
                }
                for change in self.changes
            ],
            "refusals": [
                {
                    "reason": str(refusal.reason),
                    "application": refusal.instance.application,
                    "instanceId": refusal.instance.instance_id,
                    "message": refusal.describe(),
                }
                for refusal in self.refusals
            ],
        }


ChangeError = RegistryError | OwnershipConflict
"""Why a change was not carried out."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A change that was not carried out, and why."""

    change: Change
    error: ChangeError


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a plan."""

    done: tuple[Change, ...] = ()
    failures: tuple[Failure, ...] = ()

    @classmethod
    def of(cls, changes: Sequence[Change], errors: Sequence[ChangeError | None]) -> Outcome:
        """Make an outcome of an error, or None, for each change."""
        pairs = list(zip(changes, errors, strict=True))
        return cls(
            tuple(change for change, error in pairs if error is None),
            tuple(Failure(change, error) for change, error in pairs if error is not None),
        )

    def __add__(self, other: Outcome) -> Outcome:
        """Return the result of both plans, or of both parts of one."""
        return Outcome((*self.done, *other.done), (*self.failures, *other.failures))


def plan(
    desired: Iterable[Instance],
    actual: Iterable[Instance],
    owner: str,
    policy: Policy = Policy.SYNC,
    policies: Mapping[tuple[str, str], InstancePolicy] = _NO_POLICIES,
    twins: Mapping[Key, Instance] = _NO_TWINS,
) -> Plan:
    """Decide what must change.

    :param desired: the instances that shall be there; each carries ``owner`` in its metadata. The last of two
        with the same application and id counts.
    :param actual: the instances that are there: everything of this owner, and of other owners at least what
        shares an application with a desired instance.
    :param owner: the owner of the instances that may be changed and removed. Everybody else's are never
        touched.
    :param policies: by application and id, for the registrations of a stack: whether one is taken over from
        somebody else, and the status that its program enforces. What is taken over counts as ours.
    :param twins: by application and id of what is desired, what its pod registered itself, wherever that is;
        see :mod:`.self_registered`.
    :returns: changes in the order register, update, set status, enforce, deregister.
    """
    wanted = {instance.key: instance for instance in desired}
    there = {instance.key: instance for instance in actual}
    steps: dict[Action, list[Change]] = {action: [] for action in Action}
    refusals: list[Refusal] = []
    doubled: list[Refusal] = []
    adopted = {key for key, own in policies.items() if own.adopt}
    strange = [other for other in there.values() if other.owner != owner]
    occupants = {_place(other): other for other in strange if other.key not in adopted}
    is_ours_alone = not strange and not policies
    for key, want in wanted.items():
        have = there.get(key)
        if is_ours_alone and have is not None and have.status is want.status and same_contents(want, have):
            continue  # as nearly all are, nearly always
        own = policies.get(key)
        occupant = occupants.get(_place(want)) if occupants else None
        occupant = occupant or twins.get(key)
        if have is None:
            if occupant is not None and _place(occupant) == _place(want):
                kind = RefusalReason.CONFLICT if occupant.owner else RefusalReason.SELF_REGISTERED
                refusals.append(Refusal(kind, want, occupant))
            elif own is not None:
                _add_by_policy(steps, want, None, own)
            else:
                steps[Action.REGISTER].append(Change(Action.REGISTER, want))
                if occupant is not None:
                    doubled.append(Refusal(RefusalReason.SELF_REGISTERED, want, occupant))
        elif have.owner != owner and key not in adopted:
            refusals.append(Refusal(RefusalReason.CONFLICT, want, have))
        elif own is not None:
            _add_by_policy(steps, want, have, own, adopts=have.owner != owner)
        else:
            if occupant is not None and occupant.owner is None and occupant.status is Status.UP:
                doubled.append(Refusal(RefusalReason.SELF_REGISTERED, want, occupant))
            stays_out = _is_out_by_us(have) and not want.is_leaving
            settled = not stays_out and _status_settled(want, have)
            reserved = not settled and (stays_out or Status.OUT_OF_SERVICE in (want.status, have.status))
            contents = _still_leaving(want, have) if reserved else want
            if not same_contents(contents, have) or not (settled or reserved):
                steps[Action.UPDATE].append(Change(Action.UPDATE, contents, have))
            if reserved:  # which registering again would not change
                steps[Action.SET_STATUS].append(Change(Action.SET_STATUS, want, have))
    if policy is Policy.SYNC:
        steps[Action.DEREGISTER] = [
            Change(Action.DEREGISTER, have, have)
            for key, have in there.items()
            if key not in wanted and have.owner == owner
        ]
    changes = tuple(change for action in Action for change in steps[action])
    return Plan(changes, tuple(refusals), tuple(doubled))


def _add_by_policy(
    steps: dict[Action, list[Change]],
    want: Instance,
    have: Instance | None,
    own: InstancePolicy,
    *,
    adopts: bool = False,
) -> None:
    """Yield the changes that register ``want`` by its policy, and set its status where registering does
    not.
    """
    sent = sent_first(want, own.enforce, have)
    if have is None:
        steps[Action.REGISTER].append(Change(Action.REGISTER, sent))
    elif not same_contents(sent, have) or sent.status is not own_status(have):
        steps[Action.UPDATE].append(Change(Action.UPDATE, sent, have, adopts))
    status = status_to_reach(own.enforce, have)
    if status is not None and has_another_status(own.enforce, have):
        steps[Action.ENFORCE].append(Change(Action.ENFORCE, replace(want, status=status), sent))


_COMPUTED = {
    "overridden_status",
    "last_dirty_timestamp_ms",
    "last_updated_timestamp_ms",
    "lease_ends_ms",
    "unknown_fields",
    "unreadable",
}
"""The fields that the server computes, that are only handed back, or that the reader adds."""

_CONTENTS = tuple(
    each.name
    for each in fields(Instance)
    if each.name not in {"application", "instance_id", "key", "status", "data_center", *_COMPUTED}
)


def differences(want: Instance, have: Instance) -> list[str]:
    """The fields that differ, each as ``name: actual -> desired``; metadata key by key, sorted."""
    found = []
    if not _status_settled(want, have):
        found.append(f"status: {have.status} -> {want.status}")
    for name in _CONTENTS:
        old, new = getattr(have, name), getattr(want, name)
        if old == new:
            continue
        if name == "metadata":
            found += [
                f"metadata.{key}: {old.get(key)} -> {new.get(key)}"
                for key in sorted({*old, *new})
                if old.get(key) != new.get(key)
            ]
        else:
            found.append(f"{name}: {_in_words(old)} -> {_in_words(new)}")
    return found


def _in_words(value: object) -> object:
    """A nested value in words."""
    if hasattr(value, "number"):
        return f"{value.number}{'' if value.enabled else ' (disabled)'}"  # type: ignore[attr-defined]
    if hasattr(value, "duration_seconds"):
        return f"{value.renewal_interval_seconds}/{value.duration_seconds} s"  # type: ignore[attr-defined]
    return value or "(none)"


def _status_settled(want: Instance, have: Instance) -> bool:
    """A person's override stands over what the source says; registering again would not change it.

    Our own, on the way out, is undone when the instance is wanted again.
    """
    return have.status is want.status or (
        have.is_overridden and have.status is have.overridden_status and not have.is_leaving
    )


def _is_out_by_us(have: Instance) -> bool:
    """Return whether our OUT_OF_SERVICE stands over its own status, which may be the next pod's already."""
    return have.overridden_status is Status.OUT_OF_SERVICE and have.is_leaving


def _still_leaving(want: Instance, have: Instance) -> Instance:
    """``want`` with our mark while our OUT_OF_SERVICE stands: without it, it would pass for a person's."""
    if not have.is_leaving or want.is_leaving:
        return want
    return replace(want, metadata={**want.metadata, LEAVING_KEY: have.metadata[LEAVING_KEY]})


def as_found(want: Instance, have: Instance) -> Instance:
    """``want`` with our mark if what is found, perhaps otherwise than it was planned for, is out by us."""
    return _still_leaving(want, have) if _is_out_by_us(have) else want


def handover(pairs: Iterable[tuple[Instance, Instance]]) -> Plan:
    """Give instances to the syncer that wants them next.

    :param pairs: each as it is wanted, and as it stands.
    """
    return Plan(tuple(Change(Action.UPDATE, _handed_over(want, have), have) for want, have in pairs))


def take_over(former: Iterable[Instance], owner: str) -> Plan:
    """Give to ``owner`` what was its own under another name, as it stands: what else it wants follows."""
    return Plan(
        tuple(
            Change(
                Action.UPDATE,
                replace(have, metadata={**have.metadata, OWNER_KEY: owner}),
                have,
                adopts=True,
            )
            for have in former
        )
    )


def eviction(dead: Instance) -> Change:
    """Return the removal of what a pod that is gone registered itself, as it was read last."""
    return Change(Action.DEREGISTER, dead, dead, adopts=True)


def _handed_over(want: Instance, have: Instance) -> Instance:
    """``have`` as its heir wants it, but for the status: its owner from now on decides about
    that."""
    kept = replace(want, status=have.status, overridden_status=have.overridden_status)
    return _still_leaving(kept, have)


def _place(instance: Instance) -> tuple[str, str, int]:
    """Where callers of an application end up."""
    return (instance.application, instance.ip_address, instance.port.number)


def _address(instance: Instance) -> str:
    return f"{instance.ip_address}:{instance.port.number}"
