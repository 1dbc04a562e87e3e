"""Carry out a plan: every write is preceded by an uncached read, every removal followed by one.

The read tells whose the instance is *now* and which timestamp it has; a list could be half a minute old. Only
what is registered under an id that was never seen is written first, so that it gives way to what may stand
there after all, and read afterwards; several servers are each asked for it before, and not again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace

from eurekube_provider.core.enforcement import status_to_send
from eurekube_provider.core.errors import (
    LeadershipLost,
    OwnershipConflict,
    RegistryError,
    RegistryUnreachable,
)
from eurekube_provider.core.model import EMPTY, Instance, Key, Status
from eurekube_provider.core.plan import Action, Change, ChangeError, Outcome, Plan
from eurekube_provider.eureka import rules, windows
from eurekube_provider.eureka.bulk import change_many
from eurekube_provider.eureka.enforce import bring_about, verified
from eurekube_provider.eureka.observer import (
    Observer,
    is_owned,
    not_ours,
    now_ms,
    yielding_timestamp,
)
from eurekube_provider.eureka.peers import Peers

_log = logging.getLogger(__name__)


BULK_FROM_CHANGES = 20
"""Fewer changes of one kind are sent one by one, and forwarded by the server."""

REMOVAL_ATTEMPTS = 5
"""How often what was removed and is back is removed again."""


def apply(
    plan: Plan,
    owner: str,
    peers: Peers,
    observer: Observer | None = None,
    executor: Executor | None = None,
    *,
    leases: int = 0,
    is_fresh: bool = False,
) -> Outcome:
    """Carry out ``plan`` on behalf of ``owner``.

    One change that fails does not stop the others. Where no server can be reached at all, the rest of the
    plan would only wait for the same time-outs, and is given up.

    :param executor: runs single changes of one kind in parallel; None for one after the other.
    :param leases: how many Eureka leases the caller has or is about to have: with many, and many changes,
        batches are used where the servers allow it.
    :param is_fresh: whether the plan was made a moment ago of what was read past the caches, so that a single
        change need not read that again.
    :raises LeadershipLost: ``peers`` may not write any more; raised when nothing is under way any more.
    """
    outcome = Outcome()
    in_bulk = len(plan.changes) >= BULK_FROM_CHANGES and peers.uses_batches(max(leases, len(plan.changes)))
    for action in Action:
        changes = plan.of(action)
        if not changes:
            continue
        if action is Action.ENFORCE:
            failed = {failure.change.instance.key for failure in outcome.failures}
            changes = tuple(change for change in changes if change.instance.key not in failed)
        if in_bulk and action not in (Action.SET_STATUS, Action.ENFORCE):
            errors = _in_bulk(action, changes, owner, peers, observer)
        else:
            steps = [
                _ApplyStep(change, owner, peers, observer, _is_new(change, owner, observer), is_fresh)
                for change in changes
            ]
            errors = _one_by_one(steps, executor)
        outcome += Outcome.of(changes, errors)
        errors_so_far = (failure.error for failure in outcome.failures)
        unreachable = next((one for one in errors_so_far if isinstance(one, RegistryUnreachable)), None)
        if unreachable is not None:
            settled = {id(change) for change in outcome.done}
            settled |= {id(failure.change) for failure in outcome.failures}
            rest = [change for change in plan.changes if id(change) not in settled]
            return outcome + Outcome.of(rest, [unreachable] * len(rest))
    return outcome


def _one_by_one(steps: Sequence[_ApplyStep], executor: Executor | None) -> list[ChangeError | None]:
    """Carry out changes of one kind by single requests; an error or None for each."""
    ended = list(
        executor.map(_ApplyStep.run, steps) if executor and len(steps) > 1 else map(_ApplyStep.run, steps)
    )
    errors: list[ChangeError | None] = []
    for error in ended:
        if isinstance(error, LeadershipLost):
            raise error  # only now, when none goes on in the background
        errors.append(error)
    return errors


def _is_new(change: Change, owner: str, observer: Observer | None) -> bool:
    """Whether to write before reading: one more instance of an owner that has some, under an id never seen.

    An owner's first ones are looked at before, since an id that somebody else took is found out with them.
    """
    if observer is None or change.action is not Action.REGISTER:
        return False
    return observer.is_known(owner) and observer.is_new(change.instance.key)


def _in_bulk(
    action: Action, changes: Sequence[Change], owner: str, peers: Peers, observer: Observer | None
) -> list[ChangeError | None]:
    """Carry out changes of one kind in batches; an error or None for each."""
    instances = [change.instance for change in changes]
    owners = {
        change.instance.key: change.actual.owner if change.adopts and change.actual else owner
        for change in changes
    }
    none: Sequence[Instance] = ()
    wanted, leaving = (none, instances) if action is Action.DEREGISTER else (instances, none)
    failed: Mapping[Key, ChangeError]
    try:
        failed = change_many(peers, wanted, leaving, owners, observer)
    except RegistryError as error:
        failed = dict.fromkeys(owners, error)
    return [failed.get(change.instance.key) for change in changes]


@dataclass(frozen=True, slots=True)
class _ApplyStep:
    change: Change
    owner: str
    peers: Peers
    observer: Observer | None
    is_new: bool
    is_fresh: bool

    def run(self) -> RegistryError | OwnershipConflict | LeadershipLost | None:
        """Carry out one change; the error instead of raising it."""
        if not self.peers.may_write():  # what waits for its turn ends at once, and asks nothing
            return LeadershipLost(f"{self.change.action}: not begun, since another replica may lead by now")
        try:
            if self.change.action is Action.DEREGISTER:
                self._deregister()
            elif self.change.action is Action.ENFORCE:
                self._enforce()
            else:
                self._write()
        except (RegistryError, OwnershipConflict, LeadershipLost) as error:
            return error
        return None

    def _write(self) -> None:
        want, stamp = self.change.instance, None
        # Lists of several servers are read from one, and may never agree.
        looks = self.is_new and len(self.peers.peers) > 1
        seen = self.peers.read_everywhere(*want.key) if looks else None
        is_free = seen is not None and seen.is_gone
        if self.is_new and not is_free and (seen is None or seen.found is None):
            stamp = yielding_timestamp()
            self.peers.register(replace(want, last_dirty_timestamp_ms=stamp))
        have = None if is_free else self._read()
        if self.change.action is Action.SET_STATUS and have is not None:
            written = set_status(self.peers, want, have)
            if have.is_leaving and not want.is_leaving:
                written = write(self.peers, want, written)  # only now without our mark
        else:
            if self.observer:
                want = rules.wanted_over(want, have, self.observer.lost_override(want.key))
            written = write(self.peers, want, have, self.change.actual)
            is_as_found = have is not None and written.written_at_ms == have.written_at_ms
            # What was sent a moment ago needs no second change in the list of every client.
            if have is not None and is_as_found and have.written_at_ms != stamp and self._is_missed(have):
                self.peers.register(have)
        if self.observer:
            self.observer.registered(written)

    def _is_missed(self, have: Instance) -> bool:
        """Whether another server behind the one URL may lack what one of them holds: a renewal missed it.

        Whichever takes it now tells the others. A person's status would not be told with it.
        """
        is_lost = self.change.action is Action.REGISTER and self.observer is not None
        return is_lost and len(self.peers.peers) == 1 and not have.is_overridden

    def _deregister(self) -> None:
        instance = self.change.instance
        have = self._read()
        if self.observer:
            self.observer.leaving(instance)
        if have is not None:  # else a removal could only hit whoever registers it at this moment
            remove(self.peers, instance)
        if self.observer:
            self.observer.gone(have or instance)

    def _enforce(self) -> None:
        want, sent = self.change.instance, self.change.actual or self.change.instance
        held = bring_about(self.peers, want, sent)
        if held is not None:
            marked = replace(want, status=status_to_send(want.status, held))  # without the former one's mark
            write(self.peers, marked, held)
            held = verified(self.peers, marked, want.status)
        if self.observer:
            self.observer.registered(held or sent)

    def _read(self) -> Instance | None:
        """What stands there: ours, or what the plan takes over from somebody else."""
        actual = self.change.actual
        if self.is_fresh:
            return actual
        have = self.peers.read(*self.change.instance.key)
        is_adopted = (
            self.change.adopts and have is not None and actual is not None and have.owner == actual.owner
        )
        if have is not None and not is_owned(have, self.owner, self.observer) and not is_adopted:
            if self.observer:
                self.observer.found(have)
            raise not_ours(have, self.owner)
        return have


def write(peers: Peers, want: Instance, have: Instance | None, known: Instance | None = None) -> Instance:
    """Register ``want`` over ``have``, see :func:`.rules.next_write`; returns it as it stands from now on."""
    sent = rules.next_write(want, have, known, now_ms=now_ms())
    if sent is None:
        return replace(have or want, unknown_fields=EMPTY)
    peers.register(sent)
    if have is not None and have.incarnation != sent.incarnation and sent.status is Status.UP:
        # Another status of its own, told the first server again, would stand over an override set meanwhile.
        peers.replace_everywhere(sent)
    return rules.overridden(sent)


def set_status(peers: Peers, want: Instance, have: Instance) -> Instance:
    """Bring the status to OUT_OF_SERVICE or back, which registering again cannot do."""
    if want.status is Status.OUT_OF_SERVICE:
        if want.is_leaving and not have.is_leaving:
            # The server that was told of our mark is frozen: here the status would pass for a person's.
            have = write(peers, want, have)
        held = peers.set_status(want, want.status)
    else:
        if not have.is_overridden:
            # It was registered OUT_OF_SERVICE: clearing does nothing where there is no override.
            peers.set_status(want, want.status)
        held = peers.clear_status(want, want.status)
    if not held:
        return write(peers, want, None)
    override = want.status if want.status is Status.OUT_OF_SERVICE else Status.UNKNOWN
    return replace(have, status=want.status, overridden_status=override)


def remove(peers: Peers, instance: Instance, *, wait: Callable[[float], None] = time.sleep) -> None:
    """Remove ``instance`` and read until no server that answers holds it.

    A renewal that a server forwarded just before may bring it back once; so it is looked at again. What
    somebody else has registered in its place meanwhile is theirs, and stays: there is time for that while a
    server that does not answer is waited for.

    :raises RegistryError: no server could be asked, or one keeps holding it.
    """
    for attempt in range(REMOVAL_ATTEMPTS):
        left = peers.deregister(*instance.key)
        there = [held for held in left.instances.values() if held is not None]
        if not all(rules.came_back(held, instance) for held in there):
            _log.info("left what was registered in its place", extra={"instance": instance.instance_id})
            return
        if not there:
            for url, error in left.failures.items():
                _log.warning(
                    "not checked whether the instance is gone: the server does not answer",
                    extra={"url": url, "instance": instance.instance_id, "error": str(error)},
                )
            return
        wait(windows.READ_AGAIN * (attempt + 1))
    urls = ", ".join(url for url, held in left.instances.items() if held is not None)
    raise RegistryUnreachable(
        f"deregister {instance.application} {instance.instance_id}: {urls} keeps holding it although it said"
        " that it removed it; somebody else may be registering it again",
        url=urls,
    )
