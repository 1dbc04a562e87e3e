"""The status of a stack's registration, and the mark that tells an enforced status from a person's.

A stack's registration begins UP and leaves its status to people, unless its program enforces one. The mark
:data:`~eurekube_provider.core.identity.ENFORCED_KEY` is written before the status and goes after it: whatever
dies in between, the next run knows whose the status is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from eurekube_provider.core.identity import ENFORCED_KEY, LEAVING_KEY
from eurekube_provider.core.model import Instance, Status


@dataclass(frozen=True, slots=True)
class InstancePolicy:
    """The policy by which one registration of a stack is planned. A syncer's instances have none.

    :ivar adopt: True if it is taken over where it belongs to somebody else.
    :ivar enforce: the status to bring about, over a person's as well; None leaves it to people, and lifts one
        that is marked as enforced.
    """

    adopt: bool = False
    enforce: Status | None = None


def status_to_reach(enforce: Status | None, have: Instance | None) -> Status | None:
    """The status to bring about; None where it is left to people.

    UP where a program enforced another one, and none asks for it any more. What a person set since stands,
    and STARTING is what it has on its way to OUT_OF_SERVICE.
    """
    if enforce is not None or have is None or not have.enforced:
        return enforce
    is_on_its_way = have.status is Status.STARTING and not have.is_overridden
    return Status.UP if have.is_enforced or is_on_its_way else None


def being_lifted(have: Instance | None, status: Status | None) -> Status | None:
    """The status that a run began to lift, where the server that was asked has it UP already; else None."""
    former, _, later = have.enforced.partition(" ") if have is not None else ("", "", "")
    is_lifted = have is not None and status is Status.UP is have.status and later == Status.UP
    return Status(former) if is_lifted else None


def has_another_status(enforce: Status | None, have: Instance | None) -> bool:
    """Return whether registering alone does not bring the status about, or another server may hold a former
    one.
    """
    if have is None:
        return enforce is Status.OUT_OF_SERVICE
    status = status_to_reach(enforce, have)
    return status not in (None, have.status) or being_lifted(have, status) is not None


def sent_first(want: Instance, enforce: Status | None, have: Instance | None) -> Instance:
    """Return the registration that must precede the setting or clearing of the status, where there is one.

    A status of ours that stands until then, and the one that is to come, are both marked: whatever dies in
    between, neither passes for a person's. The mark of the first goes after its status has gone.
    """
    status = status_to_reach(enforce, have)
    sent = replace(want, status=status_to_send(status, have))
    if have is not None and _may_be_out_elsewhere(enforce, have):
        sent = replace(sent, metadata={**sent.metadata, LEAVING_KEY: have.metadata[LEAVING_KEY]})
    if have is not None and being_lifted(have, status):
        return replace(sent, metadata={**sent.metadata, ENFORCED_KEY: have.enforced})
    if have is None or status is None or not have.is_enforced or have.status in (status, Status.UP):
        return sent
    if sent.status is status and not have.is_overridden:
        return sent  # it brings the status itself
    return replace(sent, metadata={**sent.metadata, ENFORCED_KEY: f"{have.status} {status}"})


def status_to_send(wanted: Status | None, have: Instance | None) -> Status:
    """The status to register with, so that a person's override stays and callers see no state in between.

    The server believes DOWN and STARTING even over an override, and ignores a registration that comes or
    goes OUT_OF_SERVICE: that one is set afterwards.
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


def own_status(have: Instance) -> Status:
    """The instance's own status, as far as it can be known: under an override it is taken for UP."""
    return Status.UP if have.is_overridden else have.status


def as_it_may_stand(want: Instance, enforce: Status | None, held: Instance) -> Instance:
    """``want`` with the marks that stay while a server is away that may hold what they tell of."""
    marks = dict(want.metadata)
    if _may_be_out_elsewhere(enforce, held):
        marks[LEAVING_KEY] = held.metadata[LEAVING_KEY]
    if being_lifted(held, status_to_reach(enforce, held)):
        marks[ENFORCED_KEY] = held.enforced
    return replace(want, metadata=marks)


def _may_be_out_elsewhere(enforce: Status | None, have: Instance) -> bool:
    """Return whether a drain was undone but at a server that was away: our mark stays until that one was
    asked.
    """
    return have.is_leaving and have.status is Status.UP and enforce is not Status.OUT_OF_SERVICE
