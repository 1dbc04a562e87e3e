"""The status of a stack's registration, and the mark that tells an enforced status from a person's.

A stack's registration begins UP and leaves its status to people, unless its program enforces one. The mark
:data:`~eurekube_provider.core.identity.ENFORCED_KEY` is written before the status is set and removed after
the status is gone: if a process dies in between, the next run still knows who set the status.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from eurekube_provider.core.identity import ENFORCED_KEY, LEAVING_KEY
from eurekube_provider.core.model import Instance, Status


@dataclass(frozen=True, slots=True)
class StackInstancePolicy:
    """The policy by which one registration of a stack is planned. A syncer's instances have none.

    :ivar adopts: True if the stack takes the instance over where it belongs to another owner.
    :ivar enforced_status: the status to bring about, replacing a person's as well; None leaves the status to
        people, and lifts one that is marked as enforced.
    """

    adopts: bool = False
    enforced_status: Status | None = None


def status_to_reach(enforce: Status | None, have: Instance | None) -> Status | None:
    """Return the status to bring about; None where it is left to people.

    UP replaces a status that an earlier program enforced when none is enforced any more. A status that a
    person set since then stays; STARTING counts as enforced, since an instance has it on its way to
    OUT_OF_SERVICE.
    """
    if enforce is not None or have is None or not have.enforced:
        return enforce
    is_on_its_way = have.status is Status.STARTING and not have.is_overridden
    return Status.UP if have.is_status_enforced or is_on_its_way else None


def enforced_status_being_lifted(have: Instance | None, status: Status | None) -> Status | None:
    """Return the enforced status that an earlier run began to lift, if the read server shows UP, or None."""
    former, _, later = have.enforced.partition(" ") if have is not None else ("", "", "")
    is_lifted = have is not None and status is Status.UP is have.status and later == Status.UP
    return Status(former) if is_lifted else None


def needs_separate_status_request(enforce: Status | None, have: Instance | None) -> bool:
    """Return whether a status must be set or cleared by a request of its own: a registration does not bring
    it about, or another server may hold a former status.
    """
    if have is None:
        return enforce is Status.OUT_OF_SERVICE
    status = status_to_reach(enforce, have)
    return status not in (None, have.status) or enforced_status_being_lifted(have, status) is not None


def registration_before_status_change(
    want: Instance, enforce: Status | None, have: Instance | None
) -> Instance:
    """Return the registration to send before the status is set or cleared.

    It marks the enforced status that still stands and the one that follows: if the process dies in between,
    neither is taken for a person's. The mark of the first status is removed after that status is gone.
    """
    status = status_to_reach(enforce, have)
    sent = replace(want, status=status_to_register(status, have))
    if have is not None and _may_be_out_of_service_elsewhere(enforce, have):
        sent = replace(sent, metadata={**sent.metadata, LEAVING_KEY: have.metadata[LEAVING_KEY]})
    if have is not None and enforced_status_being_lifted(have, status):
        return replace(sent, metadata={**sent.metadata, ENFORCED_KEY: have.enforced})
    if have is None or status is None or not have.is_status_enforced or have.status in (status, Status.UP):
        return sent
    if sent.status is status and not have.is_overridden:
        return sent  # it brings the status itself
    return replace(sent, metadata={**sent.metadata, ENFORCED_KEY: f"{have.status} {status}"})


def status_to_register(wanted: Status | None, have: Instance | None) -> Status:
    """Return the status to register with: a person's override stays, and callers see no state in between.

    A server accepts a registration's DOWN and STARTING even over an override. It ignores a registration to or
    from OUT_OF_SERVICE: that status is set by a request of its own afterwards.
    """
    if have is None:
        if wanted is Status.OUT_OF_SERVICE:
            return Status.STARTING
        return wanted or Status.UP
    if have.is_overridden or have.status is Status.UNKNOWN:
        return Status.UP
    if wanted is None or Status.OUT_OF_SERVICE in (wanted, have.status):
        return have.status
    return wanted


def status_without_override(have: Instance) -> Status:
    """Return the status that the instance registered, as far as it is known: under an override, UP."""
    return Status.UP if have.is_overridden else have.status


def with_marks_at_absent_servers(want: Instance, enforce: Status | None, held: Instance) -> Instance:
    """Return ``want`` with the marks of a drain or enforced status that a server which is away may hold."""
    marks = dict(want.metadata)
    if _may_be_out_of_service_elsewhere(enforce, held):
        marks[LEAVING_KEY] = held.metadata[LEAVING_KEY]
    if enforced_status_being_lifted(held, status_to_reach(enforce, held)):
        marks[ENFORCED_KEY] = held.enforced
    return replace(want, metadata=marks)


def _may_be_out_of_service_elsewhere(enforce: Status | None, have: Instance) -> bool:
    """Return whether a server that was away may still hold the OUT_OF_SERVICE of an undone drain: the mark
    stays until that server was read.
    """
    return have.is_leaving and have.status is Status.UP and enforce is not Status.OUT_OF_SERVICE
