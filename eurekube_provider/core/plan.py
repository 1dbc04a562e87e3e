"""The one function that compares desired instances with actual ones, and decides what must change.

Pulumi, the operator and the command line all call :func:`plan`; none of them compares instances itself. It
does no I/O, takes linear time, and applying its result makes a second plan empty.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from eurekube_provider.core.enforcement import (
    StackInstancePolicy,
    needs_separate_status_request,
    registration_before_status_change,
    status_to_reach,
    status_without_override,
)
from eurekube_provider.core.errors import OwnershipConflict, RegistryError
from eurekube_provider.core.identity import LEAVING_KEY, OWNER_KEY
from eurekube_provider.core.model import (
    EurekaLease,
    Instance,
    InstanceKey,
    Port,
    Status,
    same_contents_but_status,
)
from eurekube_provider.core.quoting import printable
from eurekube_provider.core.registry_kinds import registry_kind_of_instance

_NO_POLICIES: Mapping[tuple[str, str], StackInstancePolicy] = {}
_NO_SELF_REGISTERED_INSTANCES: Mapping[InstanceKey, Instance] = {}


class Policy(StrEnum):
    """The kinds of changes that a plan may contain."""

    SYNC = "Sync"
    """Register, update and deregister."""

    UPSERT_ONLY = "UpsertOnly"
    """Register and update; what is no longer desired is not removed, and lapses without renewals."""


class Action(StrEnum):
    """The kinds of changes, in the order in which they are carried out."""

    REGISTER = "register"
    UPDATE = "update"
    SET_STATUS = "set-status"
    ENFORCE = "enforce"
    """Set the status of ``instance``, replacing another one, once ``actual`` is registered."""

    DEREGISTER = "deregister"


class RefusalReason(StrEnum):
    """The reasons for which a desired instance is left alone, named as the syncer's conditions."""

    CONFLICT = "Conflict"
    """Another owner has an instance under this id."""

    SELF_REGISTERED = "SelfRegistered"
    """The application itself, or the pod's own client, has registered the instance."""


@dataclass(frozen=True, slots=True)
class Change:
    """One step: ``instance`` is wanted, or with DEREGISTER removed; ``actual`` is the registered one.

    :ivar adopts: True if ``actual`` belongs to another owner and is taken over.
    :ivar is_terminated: True if ``instance`` is removed because its endpoint was seen terminating.
    """

    action: Action
    instance: Instance
    actual: Instance | None = None
    adopts: bool = False
    is_terminated: bool = False

    def describe(self) -> str:
        """Return one line for a person, e.g. ``+ RATING rating-1.shop.eks:rating:8080 UP 10.0.0.1:8080``."""
        sign = {Action.REGISTER: "+", Action.DEREGISTER: "-"}.get(self.action, "~")
        head = f"{sign} {self.instance.application} {self.instance.instance_id}"
        if self.action is Action.DEREGISTER:
            return head
        if self.actual is None:
            return f"{head} {self.instance.status} {_format_address(self.instance)}"
        return f"{head} {', '.join(describe_differences(self.instance, self.actual))}"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A desired instance that is not registered or changed, and the instance of another owner in its way."""

    reason: RefusalReason
    instance: Instance
    actual: Instance

    def describe(self) -> str:
        """Return one sentence for a person: the instance in the way, its owner, and what to do.

        Conditions and Events show the sentence as well, and ``kubectl`` prints it as it is.
        """
        remedy = ""
        if self.reason is RefusalReason.SELF_REGISTERED:
            remedy = f": {self_registration_remedy(self.actual)}, or it would be called twice as often"
        return f"{self.problem_sentence}{remedy}"

    @property
    def problem_sentence(self) -> str:
        """The fault, without its remedy."""
        if self.reason is RefusalReason.SELF_REGISTERED:
            return f"{self.blocking_instance_description} registered itself"
        return f"{self.blocking_instance_description} {describe_owner(self.actual)} and was left as it is"

    @property
    def blocking_instance_description(self) -> str:
        """The name of the instance in the way; with its address where that is what blocks the desired one."""
        there = f"{self.actual.application} {self.actual.instance_id}"
        is_at_address = self.reason is RefusalReason.SELF_REGISTERED or self.actual.key != self.instance.key
        at = f" at {_format_address(self.actual)}" if is_at_address else ""
        return printable(f"{there}{at}")


def self_registration_remedy(actual: Instance) -> str:
    """Return the remedy for an instance that registered itself: the setting that switches its client off."""
    kind = registry_kind_of_instance(actual)
    return f"switch its own {kind.name} client off ({kind.client_off_setting})"


def describe_owner(actual: Instance) -> str:
    """Return the end of a clause that names an instance's owner, such as ``belongs to ...``; printable."""
    if actual.unreadable and not actual.owner:
        return f"cannot be read ({printable(actual.unreadable)})"
    return f"belongs to {printable(actual.owner)}" if actual.owner else "was not registered by Eurekube"


@dataclass(frozen=True, slots=True)
class Plan:
    """The ordered changes that turn actual into desired instances, and the refusals.

    :param duplicates: desired instances that are registered, or will be, although the application registered
        itself, too. Eureka's lists may show its instance only half a minute after Eurekube's was registered;
        then neither is removed. An instance at another address or port does not replace the desired one: it
        may be another server of the pod, or of a dead pod that had the address before.
    """

    changes: tuple[Change, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    duplicates: tuple[Refusal, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes)

    def of(self, action: Action) -> tuple[Change, ...]:
        """Return the changes with this action, in order."""
        return tuple([change for change in self.changes if change.action is action])

    def describe(self) -> str:
        """Return a line for each change and refusal, and the totals; for people."""
        lines = [printable(change.describe()) for change in self.changes]
        lines += [f"! {refusal.describe()}" for refusal in self.refusals]
        counts = {action: len(self.of(action)) for action in Action}
        total = ", ".join(f"{count} to {action}" for action, count in counts.items() if count) or "no changes"
        return "\n".join([*lines, f"{total}, {len(self.refusals)} refused" if self.refusals else total])

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain JSON values."""
        return {
            "changes": [
                {
                    "action": str(change.action),
                    "application": change.instance.application,
                    "instanceId": change.instance.instance_id,
                    "differences": (
                        describe_differences(change.instance, change.actual)
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
"""The types of errors for which a change was not carried out."""


@dataclass(frozen=True, slots=True)
class FailedChange:
    """A change that was not carried out, and its error."""

    change: Change
    error: ChangeError


@dataclass(frozen=True, slots=True)
class PlanOutcome:
    """The result of carrying out a plan.

    :ivar done: the changes that were made.
    :ivar failures: the changes that failed, each with its error.
    """

    done: tuple[Change, ...] = ()
    failures: tuple[FailedChange, ...] = ()

    @classmethod
    def of(cls, changes: Sequence[Change], errors: Sequence[ChangeError | None]) -> PlanOutcome:
        """Return the outcome of changes, with an error or None for each change."""
        pairs = list(zip(changes, errors, strict=True))
        return cls(
            tuple(change for change, error in pairs if error is None),
            tuple(FailedChange(change, error) for change, error in pairs if error is not None),
        )

    def __add__(self, other: PlanOutcome) -> PlanOutcome:
        """Return the combined outcome of two plans, or of two parts of one plan."""
        return PlanOutcome((*self.done, *other.done), (*self.failures, *other.failures))

    def hold_back(self, removals: Sequence[Change]) -> tuple[PlanOutcome, tuple[Change, ...]]:
        """Return this outcome with the removals that wait as failures, and the others, which may be made; see
        :func:`removals_that_wait`.
        """
        waiting = removals_that_wait(self.failures, removals)
        held_back = {id(one.change) for one in waiting}
        others = tuple(one for one in removals if id(one) not in held_back)
        return self + PlanOutcome((), waiting), others


def removals_that_wait(
    failures: Iterable[FailedChange], removals: Iterable[Change]
) -> tuple[FailedChange, ...]:
    """Return the removals that wait, each with its reason: the same endpoint could not be registered under
    the id, such as that of another port, which replaces the instance, and callers would find neither.

    :param failures: the changes of the same plan that failed.
    """
    error_by_endpoint = {
        _endpoint(one.change.instance): one.error for one in failures if one.change.action is Action.REGISTER
    }
    return tuple(
        FailedChange(removal, error)
        for removal in removals
        if (error := error_by_endpoint.get(_endpoint(removal.instance))) is not None
    )


def _endpoint(one: Instance) -> tuple[str, str]:
    """Return the pod, host or Service of an instance's id, and its IP address."""
    return one.instance_id.rsplit(":", 2)[0], one.ip_address


def plan(
    desired: Iterable[Instance],
    actual: Iterable[Instance],
    owner: str,
    policy: Policy = Policy.SYNC,
    policies: Mapping[tuple[str, str], StackInstancePolicy] = _NO_POLICIES,
    self_registered_by_key: Mapping[InstanceKey, Instance] = _NO_SELF_REGISTERED_INSTANCES,
) -> Plan:
    """Compare desired with actual instances, and return the changes to make.

    :param desired: the wanted instances; each carries ``owner`` in its metadata. The last of two with the
        same application and id counts.
    :param actual: the registered instances: all of this owner, and of other owners at least those that share
        an application with a desired instance.
    :param owner: the owner of the instances that may be changed and removed. Those of other owners are never
        touched.
    :param policies: by application and id, for the registrations of a stack: whether an instance is taken
        over from another owner, and the status that the stack's program enforces. An instance that is taken
        over counts as the owner's.
    :param self_registered_by_key: by application and id of a desired instance, the instance that its pod
        registered itself, under whatever id and address; see :mod:`.self_registered`.
    :returns: changes in the order register, update, set status, enforce, deregister.
    """
    wanted = {instance.key: instance for instance in desired}
    there = {instance.key: instance for instance in actual}
    steps: dict[Action, list[Change]] = defaultdict(list)
    refusals: list[Refusal] = []
    duplicates: list[Refusal] = []
    adopted = {key for key, own in policies.items() if own.adopts} if policies else set[InstanceKey]()
    strange = [other for other in there.values() if other.metadata.get(OWNER_KEY) != owner]
    occupants = (
        {_call_address(other): other for other in strange if other.key not in adopted} if strange else {}
    )
    is_ours_alone = not strange and not policies
    for key, want in wanted.items():
        have = there.get(key)
        if (
            is_ours_alone
            and have is not None
            and have.status is want.status
            and same_contents_but_status(want, have)
        ):
            continue  # as nearly all are, nearly always
        own = policies.get(key)
        occupant = occupants.get(_call_address(want)) if occupants else None
        occupant = occupant or self_registered_by_key.get(key)
        if have is None:
            if occupant is not None and _call_address(occupant) == _call_address(want):
                kind = RefusalReason.CONFLICT if occupant.owner else RefusalReason.SELF_REGISTERED
                refusals.append(Refusal(kind, want, occupant))
            elif own is not None:
                _add_changes_by_policy(steps, want, None, own)
            else:
                steps[Action.REGISTER].append(Change(Action.REGISTER, want))
                if occupant is not None:
                    duplicates.append(Refusal(RefusalReason.SELF_REGISTERED, want, occupant))
        elif have.owner != owner and key not in adopted:
            refusals.append(Refusal(RefusalReason.CONFLICT, want, have))
        elif own is not None:
            _add_changes_by_policy(steps, want, have, own, adopts=have.owner != owner)
        else:
            if occupant is not None and occupant.owner is None and occupant.status is Status.UP:
                duplicates.append(Refusal(RefusalReason.SELF_REGISTERED, want, occupant))
            stays_out = _is_out_of_service_by_eurekube(have) and not want.is_leaving
            settled = not stays_out and _needs_no_status_change(want, have)
            reserved = not settled and (stays_out or Status.OUT_OF_SERVICE in (want.status, have.status))
            contents = _keep_leaving_mark(want, have) if reserved else want
            if not same_contents_but_status(contents, have) or not (settled or reserved):
                steps[Action.UPDATE].append(Change(Action.UPDATE, contents, have))
            if reserved:  # which registering again would not change
                steps[Action.SET_STATUS].append(Change(Action.SET_STATUS, want, have))
    if policy is Policy.SYNC:
        steps[Action.DEREGISTER] = [
            Change(Action.DEREGISTER, have, have)
            for key, have in there.items()
            if key not in wanted and have.owner == owner
        ]
    changes = tuple([change for action in Action for change in steps.get(action, ())]) if steps else ()
    return Plan(changes, tuple(refusals), tuple(duplicates))


def _add_changes_by_policy(
    steps: dict[Action, list[Change]],
    want: Instance,
    have: Instance | None,
    own: StackInstancePolicy,
    *,
    adopts: bool = False,
) -> None:
    """Add the changes that register ``want`` by its policy, and set its status where registering does not."""
    sent = registration_before_status_change(want, own.enforced_status, have)
    if have is None:
        steps[Action.REGISTER].append(Change(Action.REGISTER, sent))
    elif not same_contents_but_status(sent, have) or sent.status is not status_without_override(have):
        steps[Action.UPDATE].append(Change(Action.UPDATE, sent, have, adopts))
    status = status_to_reach(own.enforced_status, have)
    if status is not None and needs_separate_status_request(own.enforced_status, have):
        steps[Action.ENFORCE].append(Change(Action.ENFORCE, replace(want, status=status), sent))


_UNCOMPARED_FIELDS = {
    "overridden_status",
    "last_dirty_timestamp_ms",
    "last_updated_timestamp_ms",
    "lease_ends_ms",
    "unknown_fields",
    "unreadable",
}
"""The fields of an instance that the server computes, that are only handed back, or that the reader adds."""

_COMPARED_FIELDS = tuple(
    each.name
    for each in fields(Instance)
    if each.name not in {"application", "instance_id", "key", "status", "data_center", *_UNCOMPARED_FIELDS}
)


def describe_differences(want: Instance, have: Instance) -> list[str]:
    """Return the fields that differ, each as ``name: actual -> desired``; metadata key by key, sorted."""
    found = []
    if not _needs_no_status_change(want, have):
        found.append(f"status: {have.status} -> {want.status}")
    for name in _COMPARED_FIELDS:
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
            found.append(f"{name}: {_format_value(old)} -> {_format_value(new)}")
    return found


def _format_value(value: object) -> object:
    """Return a field's value for people; ports and leases in short form."""
    if isinstance(value, Port):
        return f"{value.number}{'' if value.enabled else ' (disabled)'}"
    if isinstance(value, EurekaLease):
        return f"{value.renewal_interval_seconds}/{value.duration_seconds} s"
    return value or "(none)"


def _needs_no_status_change(want: Instance, have: Instance) -> bool:
    """Return whether the status needs no change: it is the wanted one, or a person's override hides it.

    A person's override stays, and registering again would not change it. Eurekube's own OUT_OF_SERVICE for a
    drain is undone when the instance is wanted again.
    """
    return have.status is want.status or (
        have.is_overridden and have.status is have.overridden_status and not have.is_leaving
    )


def _is_out_of_service_by_eurekube(have: Instance) -> bool:
    """Return whether Eurekube's OUT_OF_SERVICE hides the status, which may be the next pod's already."""
    return have.overridden_status is Status.OUT_OF_SERVICE and have.is_leaving


def _keep_leaving_mark(want: Instance, have: Instance) -> Instance:
    """Return ``want`` with Eurekube's mark of leaving while its OUT_OF_SERVICE is set: without the mark,
    that status would pass for a person's.
    """
    if not have.is_leaving or want.is_leaving:
        return want
    return replace(want, metadata={**want.metadata, LEAVING_KEY: have.metadata[LEAVING_KEY]})


def with_current_leaving_mark(want: Instance, have: Instance) -> Instance:
    """Return ``want`` with the mark of leaving if the registered instance, perhaps changed since the plan,
    is OUT_OF_SERVICE by Eurekube.
    """
    return _keep_leaving_mark(want, have) if _is_out_of_service_by_eurekube(have) else want


def plan_handover(pairs: Iterable[tuple[Instance, Instance]]) -> tuple[Change, ...]:
    """Return the changes that give instances to the syncer that wants them next.

    :param pairs: each instance as it is wanted, and as it is registered.
    """
    return tuple([Change(Action.UPDATE, _as_next_owner_wants(want, have), have) for want, have in pairs])


def plan_takeover(former: Iterable[Instance], owner: str) -> tuple[Change, ...]:
    """Return the changes that make ``owner`` the owner of instances it had under another name, otherwise
    unchanged: later plans change the rest.
    """
    return tuple(
        [
            Change(
                Action.UPDATE, replace(have, metadata={**have.metadata, OWNER_KEY: owner}), have, adopts=True
            )
            for have in former
        ]
    )


def removal_of_dead_registration(dead: Instance) -> Change:
    """Return the removal of an instance, as last read, that a pod which is gone had registered itself."""
    return Change(Action.DEREGISTER, dead, dead, adopts=True)


def _as_next_owner_wants(want: Instance, have: Instance) -> Instance:
    """Return ``have`` as its next owner wants it, except for the status, which that owner sets later."""
    kept = replace(want, status=have.status, overridden_status=have.overridden_status)
    return _keep_leaving_mark(kept, have)


def _call_address(instance: Instance) -> tuple[str, str, int]:
    """Return the address at which callers reach an instance: application, IP address and port."""
    return (instance.application, instance.ip_address, instance.port.number)


def _format_address(instance: Instance) -> str:
    return f"{instance.ip_address}:{instance.port.number}"
