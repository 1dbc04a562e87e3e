"""The one place that writes to Eureka: plans, single instances, statuses and removals, by single requests.

Many changes go in batches (:mod:`.batches`), by the same rules: the registered instance is read past the
servers' caches, :mod:`.rules` gives the registration to send over it, and the write is noted (:mod:`.notes`).
Each read has one purpose:

- Before an update one server tells the instance's present owner and timestamp: a list could be half a minute
old. A plan that was just made from such a read needs no other.
- Before a removal every server is asked: an instance that only one of them holds may be somebody else's, and
one that none holds is not removed, since the removal could only hit somebody who registers it at this moment.
In a batch the instance of a terminated pod, renewed within :data:`.windows.RENEWAL_INTERVAL_SECONDS`, is read
in the request that removes it; what was another owner's is put back.
Nothing is read afterwards, except where several servers answer at one URL: a server's answer to a removal
says whether it held the instance. A renewal that was under way may bring the instance back a second later,
and is looked for then (:mod:`.registry.repair`, :mod:`.removal_checks`).
- Before the last instance of an application leaves a server, the server is asked for its successors
(:mod:`.successors`), unless one was seen there.
- An instance under an id that was never seen is registered so that it gives way to one that is there after
all, and each server is asked for that one afterwards. Of several servers each is asked a moment later if no
other change is under way (:data:`.windows.READ_AFTER_FIRST_REGISTRATION_SECONDS`).
- A status that a program enforces is read back: another server than the one that was asked may still hold the
former status.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TypeVar

from eurekube_provider.core.enforcement import enforced_status_being_lifted, status_to_register
from eurekube_provider.core.errors import (
    LeadershipLost,
    OwnershipConflict,
    RegistryError,
    RegistryRejected,
    RegistryUnreachable,
)
from eurekube_provider.core.model import EMPTY_MAPPING, Instance, Status, newest, same_contents_but_status
from eurekube_provider.core.plan import Action, Change, ChangeError, Plan, PlanOutcome
from eurekube_provider.eureka import batches, rules, windows
from eurekube_provider.eureka.notes import (
    ChangeOrder,
    WriteNotes,
    next_timestamp_ms,
    timestamp_ms_giving_way,
    unix_now_ms,
)
from eurekube_provider.eureka.peers import MOST_REMOVALS_UNTIL_HOLDER_ANSWERS, Peers, still_held_error
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.successors import (
    BlockingErrorByUrl,
    blocking_error,
    ensure_successors_by_application,
)

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

FEWEST_CHANGES_FOR_BATCHES = 20
"""The fewest changes in a plan that go in batches; fewer go one by one, and servers forward them."""

MOST_UNANSWERED_IN_A_ROW = 16
"""The number of single changes in a row that no server answers, after which the others of a plan are given
up: each would wait for its own time-out.
"""

MOST_REMOVALS_WHILE_STILL_SHOWN = 5
"""The most times that an instance is removed while one of several servers behind one URL still shows it."""

_BATCH_ACTIONS = (Action.REGISTER, Action.UPDATE, Action.DEREGISTER)
"""The changes that batches carry; a status is set by single requests."""

_STATUS_CLEAR_ATTEMPTS = 10
_READ_BACK_ATTEMPTS = 5

_Step = Callable[[ChangeOrder], ChangeError | LeadershipLost | None]


class Writer:
    """A writer to the servers of one Eureka; any number of threads may share it.

    Each method raises :class:`LeadershipLost` where ``peers`` may not write any more.

    :param notes: by default those of a run or a command, in the table of ``peers``.
    :param sent: called by the default notes, see :class:`.WriteNotes`.
    """

    def __init__(
        self,
        peers: Peers,
        notes: WriteNotes | None = None,
        *,
        sent: Callable[[str, int], None] = lambda _, __: None,
    ) -> None:
        self.peers = peers
        self.notes = notes or WriteNotes(peers.table, sent)
        self._lock = threading.Lock()
        self._under_way = 0  # changes of all plans

    def apply(
        self,
        plan: Plan,
        owner: str,
        executor: Executor | None = None,
        *,
        lease_count: int = 0,
        is_from_uncached_reads: bool = False,
    ) -> PlanOutcome:
        """Carry out ``plan`` on behalf of ``owner``.

        One change that fails does not stop the others. Where no server can be reached at all, the rest of the
        plan would only wait for the same time-outs, and is given up: changes of the same kind after several
        in a row, those of other kinds after one. Where a server answers as it should not, such as with a 500
        to one registration, only removals are given up.

        :param executor: runs single changes of one kind in parallel; None for one after the other.
        :param lease_count: how many Eureka leases the caller has or soon will have: with many, and many
            changes, batches are used where the servers allow it.
        :param is_from_uncached_reads: True if the plan was just made from reads past the caches.
        :raises LeadershipLost: this replica may not write; raised once no change is under way any more.
        """
        with self._lock:
            self._under_way += len(plan.changes)
        try:
            outcome = PlanOutcome()
            many = len(plan.changes) >= FEWEST_CHANGES_FOR_BATCHES and self.peers.uses_batches(
                max(lease_count, len(plan.changes))
            )
            for action in Action:
                if not (changes := plan.of(action)):
                    continue
                if action is Action.ENFORCE:
                    failed = {failure.change.instance.key for failure in outcome.failures}
                    changes = tuple(change for change in changes if change.instance.key not in failed)
                if action is Action.DEREGISTER:
                    before = (one.error for one in outcome.failures)
                    strange = next((one for one in before if isinstance(one, RegistryUnreachable)), None)
                    if strange is not None:
                        return outcome + PlanOutcome.of(changes, [strange] * len(changes))
                    outcome, changes = outcome.hold_back(changes)
                if not changes:
                    continue
                orders = [ChangeOrder(change, owner) for change in changes]
                if many and action in _BATCH_ACTIONS:
                    errors = self.apply_in_batches(orders)
                else:
                    errors = self._apply_one_by_one(
                        orders, executor, is_from_uncached_reads=is_from_uncached_reads
                    )
                outcome += PlanOutcome.of(changes, errors)
                unreachable = next((one for one in errors if isinstance(one, RegistryUnreachable)), None)
                if unreachable is not None and unreachable.status_code is None:
                    settled = {id(change) for change in outcome.done}
                    settled |= {id(failure.change) for failure in outcome.failures}
                    rest = [change for change in plan.changes if id(change) not in settled]
                    return outcome + PlanOutcome.of(rest, [unreachable] * len(rest))
            return outcome
        finally:
            with self._lock:
                self._under_way -= len(plan.changes)

    def apply_in_batches(self, orders: Sequence[ChangeOrder]) -> list[ChangeError | None]:
        """Carry out changes in batches; return an error or None for each.

        :param orders: no two with the same key, and no change of a status.
        """
        try:
            failed = batches.apply_orders_in_batches(self.peers, self.notes, orders)
        except RegistryError as error:
            return [error] * len(orders)
        return [failed.get(order.key) for order in orders]

    def _apply_one_by_one(
        self, orders: Sequence[ChangeOrder], executor: Executor | None, *, is_from_uncached_reads: bool
    ) -> list[ChangeError | None]:
        """Carry out changes of one kind by single requests; return an error or None for each."""
        blocked: dict[str, BlockingErrorByUrl] = {}
        if orders[0].change.action is Action.DEREGISTER:
            leaving = [one.change.instance for one in orders]
            blocked = ensure_successors_by_application(self.peers, self.notes.table, leaving)
        apply_one = partial(self._apply_one, blocked=blocked, is_from_uncached_reads=is_from_uncached_reads)
        step = _give_up_after_time_outs(apply_one) if len(orders) > 1 else apply_one
        ended = list(executor.map(step, orders) if executor and len(orders) > 1 else map(step, orders))
        errors: list[ChangeError | None] = []
        for error in ended:
            if isinstance(error, LeadershipLost):
                raise error  # only now, when none goes on in the background
            errors.append(error)
        return errors

    def _apply_one(
        self, order: ChangeOrder, *, blocked: Mapping[str, BlockingErrorByUrl], is_from_uncached_reads: bool
    ) -> ChangeError | LeadershipLost | None:
        """Carry out one change; return the error instead of raising it."""
        action = order.change.action
        try:
            # An owner's first instances are read before: the read shows who else has taken their ids.
            if (
                action is Action.REGISTER
                and self.notes.has_instances(order.owner)
                and self.notes.is_key_unused(order.key)
            ):
                self._register_new(order)  # begins with a write, before which may_write is asked
            elif not self.peers.may_write():  # what waits for its turn ends at once, and asks nothing
                return LeadershipLost(f"{action}: not begun, since another replica may lead by now")
            elif action is Action.DEREGISTER:
                self._deregister(
                    order,
                    blocked.get(order.change.instance.application, {}),
                    is_from_uncached_reads=is_from_uncached_reads,
                )
            elif action is Action.ENFORCE:
                self._enforce_status(order.change)
            else:
                self._replace_registered(
                    order, order.change.actual if is_from_uncached_reads else self._read_registered(order)
                )
        except (RegistryError, OwnershipConflict, LeadershipLost) as error:
            return error
        self.notes.sent("", 1)
        return None

    def _read_registered(self, order: ChangeOrder) -> Instance | None:
        """Read the registered instance, which must be the owner's, or the one that the plan takes over."""
        have = self.peers.read(*order.key)
        self.notes.require_ownership(have, order)
        return have

    def _register_new(self, order: ChangeOrder) -> None:
        """Register what was never seen, so that it gives way to an instance that is there after all."""
        if len(self.peers.peers) > 1:
            # Lists of several servers are read from one, and may never agree: what only another one holds
            # may be of any age.
            stamp = timestamp_ms_giving_way(windows.OLDER_THAN_ANY_REGISTRATION_SECONDS)
            self.register(replace(order.change.instance, last_dirty_timestamp_ms=stamp))
            if self._under_way == 1:  # else the wait would add up
                time.sleep(windows.READ_AFTER_FIRST_REGISTRATION_SECONDS)
            held, failures = self.peers.read_everywhere(*order.key)
            found = newest(held.values())
            if found is not None and (not failures or found.last_dirty_timestamp_ms != stamp):
                self.notes.require_ownership(found, order)
                self._replace_registered(order, found)
                return
            # A server that does not answer may hold a former version of ours, which must not win later.
        stamp = timestamp_ms_giving_way()
        self.register(replace(order.change.instance, last_dirty_timestamp_ms=stamp))
        self._replace_registered(order, self._read_registered(order), stamp)

    def _replace_registered(
        self, order: ChangeOrder, have: Instance | None, sent_timestamp_ms: int | None = None
    ) -> None:
        """Replace the registered instance by the wanted one.

        :param sent_timestamp_ms: the timestamp with which the instance was registered a moment ago.
        """
        want, action = order.change.instance, order.change.action
        if action is Action.SET_STATUS and have is not None:
            written = self.change_status(want, have)
            if have.is_leaving and not want.is_leaving:
                written = self.register_over(want, written)  # only now without our mark
        else:
            adapted = self.notes.adapt_to_registered(want, have)
            written = self.register_over(adapted, have, order.change.actual)
            if (
                action is Action.REGISTER
                and len(self.peers.peers) == 1
                and have is not None
                and not have.is_overridden  # a person's override would not be told with it
                and have.written_at_ms == written.written_at_ms != sent_timestamp_ms  # it was as wanted
            ):
                # Another server behind the same URL missed its renewal: this one tells the others.
                self.register(have)
        self.notes.note_registered(written)

    def _deregister(
        self, order: ChangeOrder, blocked: BlockingErrorByUrl, *, is_from_uncached_reads: bool
    ) -> None:
        instance, have = order.change.instance, order.change.actual
        if not is_from_uncached_reads:
            seen, _ = self.peers.ask_all_or_raise(lambda peer: peer.read(*order.key))
            have = newest(seen.values())
            self.notes.require_removable(seen.values(), order)
        self.notes.note_removal_begins(instance)
        if have is not None:  # else a removal could only hit anyone who registers it at this moment
            self.remove(instance, blocked)
        self.notes.note_removed(have or instance)

    def remove(self, instance: Instance, blocked: BlockingErrorByUrl = MappingProxyType({})) -> None:
        """Remove ``instance`` from every server that can be reached.

        A server that does not hold the instance answers 404 and tells none of its peers, so that asking one
        of them is not enough. Behind one URL another server may answer than the one that showed the instance:
        the removal is repeated until a server held it; a single server answers so at once. Where several
        servers answer at one URL, the next one may still show the instance, to anyone who is about to
        register in its place: it is removed until none shows it.

        :param blocked: the servers at which the instance must stay for now, by URL.
        :raises RegistryError: no server could be asked, or one that answers must keep the instance for now.
        """
        tries = MOST_REMOVALS_UNTIL_HOLDER_ANSWERS if len(self.peers.peers) == 1 else 1

        def ask(peer: Peer) -> None:
            if blocked and peer.url in blocked:
                raise blocked[peer.url]
            any(peer.deregister(*instance.key) for _ in range(tries))

        for attempt in range(MOST_REMOVALS_WHILE_STILL_SHOWN):
            _, failures = self.peers.ask_all_or_raise(ask)
            if self.notes.most_servers_at_one_url <= len(self.peers.peers):
                break
            held = self.peers.read(*instance.key)
            if held is None or not rules.is_same_registration(held, instance):
                break
            time.sleep(windows.READ_BACK_DELAY_SECONDS * (attempt + 1))
        else:
            raise still_held_error(self.peers, instance)
        for url, error in failures.items():
            _log.warning(
                "failed to remove an instance from a Eureka server, which may show it until a later check "
                "or it lapses",
                extra={"url": url, "instance": instance.instance_id, "error": str(error)},
            )
        stays = blocking_error(blocked)
        if stays is not None:
            raise stays
        refused = {url: error for url, error in failures.items() if error.status_code is not None}
        held_at = self.peers.read_everywhere(*instance.key)[0] if refused else {}
        for url, error in refused.items():  # it answers, and shows what it did not remove
            one = held_at.get(url)
            if one is not None and rules.is_same_registration(one, instance):
                raise error

    def register_over(self, want: Instance, have: Instance | None, known: Instance | None = None) -> Instance:
        """Register ``want`` over ``have``, see :func:`.rules.registration_to_send`; return the result."""
        sent = rules.registration_to_send(want, have, known, now_ms=unix_now_ms())
        if sent is None:
            return replace(have or want, unknown_fields=EMPTY_MAPPING)
        self.register(sent)
        if have is not None and have.incarnation != sent.incarnation and sent.status is Status.UP:
            # Another status, sent to the first server again, would stand over an override set meanwhile.
            self._replace_old_incarnations(sent)
        return rules.apply_override(sent)

    def restore(self, lost: Instance, have: Instance | None = None) -> None:
        """Register an instance that the servers forgot, and note it.

        :param have: the instance as a server holds it, where it must be replaced.
        """
        self.notes.note_registered(self.register_over(lost, have))

    def register(self, instance: Instance) -> None:
        """Register ``instance`` at the first server that answers, which tells the others.

        The override of ``instance`` is written only to a server that does not hold the instance: without it,
        a restarted server would show UP, whatever a person had set at its peers.
        """

        def ask(peer: Peer) -> None:
            if instance.is_overridden and peer.read(*instance.key) is None:
                peer.restore(instance)
            else:
                peer.register(instance)
            if len(self.peers.peers) > 1:
                self.notes.table.note_registered_at(peer.url, [instance])

        self.peers.ask_in_turn(partial(self._ask_and_remember_unanswered, instance, ask))

    def _replace_old_incarnations(self, instance: Instance) -> None:
        """Register an instance at each server that holds another incarnation of it.

        A server that freezes before it tells the others leaves them the old incarnation: somebody would take
        that for the present one, and its removal would reach the frozen server later.
        """

        def ask(peer: Peer) -> None:
            held = peer.read(*instance.key)
            if held is not None and held.incarnation != instance.incarnation:
                peer.register(instance)

        self.peers.ask_all(partial(self._ask_and_remember_unanswered, instance, ask))

    def _ask_and_remember_unanswered(self, sent: Instance, ask: Callable[[Peer], _T], peer: Peer) -> _T:
        """Ask a server, and note a write that it does not answer: a frozen one may carry it out later."""
        try:
            return ask(peer)
        except RegistryUnreachable:
            self.notes.table.remember_unanswered_write(sent)
            raise

    # Statuses over the instance's own.

    def change_status(self, want: Instance, have: Instance) -> Instance:
        """Set or clear OUT_OF_SERVICE, which a registration cannot do; return the instance as it is then."""
        if want.status is Status.OUT_OF_SERVICE:
            if want.is_leaving and not have.is_leaving:
                # The server that was notified of our mark is frozen: here the status would pass for a
                # person's.
                have = self.register_over(want, have)
            held = self.set_status(want, want.status)
        else:
            held = self._replace_override(want, have, want.status)
        if not held:
            return self.register_over(want, None)
        override = want.status if want.status is Status.OUT_OF_SERVICE else Status.UNKNOWN
        return replace(have, status=want.status, overridden_status=override)

    def set_status(self, instance: Instance, status: Status) -> bool:
        """Set an override at the first server that answers and holds the instance.

        The mark of leaving is written before Eurekube's OUT_OF_SERVICE, to the first server; if that one does
        not answer now, another server may not have the mark yet, and gets it first.

        :returns: False where no server holds the instance.
        """
        self.notes.table.note_override_change(instance)
        is_first = True

        def ask(peer: Peer) -> bool:
            nonlocal is_first
            if instance.is_leaving and not is_first:
                held = peer.read(*instance.key)
                if held is not None and held.owner == instance.owner and not held.is_leaving:
                    newer_ms = next_timestamp_ms(held)
                    peer.register(replace(instance, status=held.status, last_dirty_timestamp_ms=newer_ms))
            is_first = False
            return peer.set_status(instance, status)

        sent = replace(instance, status=status, overridden_status=status)
        return self.peers.ask_in_turn(partial(self._ask_and_remember_unanswered, sent, ask), is_found=bool)

    def clear_status(self, instance: Instance, status: Status = Status.UP) -> bool:
        """Clear the instance's override, at each server that holds the instance.

        A server that the others do not reach would otherwise keep the override. With the next renewal it gets
        the instance as it is then, without the mark of leaving, and the override would pass for a person's.

        :returns: False where no server holds the instance.
        """
        self.notes.table.note_override_change(instance)
        held, _ = self.peers.ask_all_or_raise(lambda peer: peer.clear_status(instance, status))
        return any(held.values())

    def _replace_override(self, instance: Instance, have: Instance, status: Status) -> bool:
        """Replace an override, or an OUT_OF_SERVICE that came with the registration, by ``status``."""
        if not have.is_overridden:
            # It was registered OUT_OF_SERVICE: clearing does nothing where there is no override.
            self.set_status(instance, status)
        return self.clear_status(instance, status)

    def set_status_everywhere(self, instance: Instance, status: Status) -> None:
        """Set an override at every server.

        :raises RegistryError: no server answers.
        """
        self.notes.table.note_override_change(instance)
        self.peers.ask_all_or_raise(lambda peer: peer.set_status(instance, status))

    def clear_status_everywhere(self, instance: Instance, held: Iterable[Instance], status: Status) -> None:
        """Replace an override, or a status that came with the registration, by ``status`` at every server.

        :param held: the servers' versions of the instance that have another status.
        :raises RegistryError: no server answers.
        """
        if not all(one.is_overridden for one in held):  # clearing does nothing where there is no override
            self.set_status_everywhere(instance, status)
        self.clear_status(instance, status)

    def clear_status_until_up(self, instance: Instance, status: Status) -> bool:
        """Clear ``status`` at every server that has it, so that the instance is UP there.

        :returns: True if every server answered.
        :raises RegistryError: a server still has the status, or none answers.
        """
        settle_seconds = windows.STATUS_REPLICATION_SECONDS if len(self.peers.peers) > 1 else 0.0
        settled_at = time.monotonic() + settle_seconds
        for _ in range(_STATUS_CLEAR_ATTEMPTS):
            held, failures = self.peers.ask_all_or_raise(lambda peer: peer.read(*instance.key))
            out = [one for one in held.values() if one is not None and one.status is status]
            if out:
                settled_at = time.monotonic() + settle_seconds
                self.clear_status_everywhere(instance, out, Status.UP)
            elif time.monotonic() >= settled_at:
                return not failures
            if settle_seconds:
                time.sleep(settle_seconds / 3)
        raise self._not_as_written_error(
            f"put {instance.application} {instance.instance_id} back into service", f"keeps it {status}"
        )

    def _enforce_status(self, change: Change) -> None:
        """Set a status, between the writes of the marks that tell an enforced one from a person's."""
        want, sent = change.instance, change.actual or change.instance
        held = self._set_enforced_status(want, sent)
        if held is not None:
            # Without the mark of the former one.
            marked = replace(want, status=status_to_register(want.status, held))
            self.register_over(marked, held)
            held = self._read_back(marked, want.status)
        self.notes.note_registered(held or sent)

    def _set_enforced_status(self, want: Instance, sent: Instance) -> Instance | None:
        """Set the status of ``want`` over another one.

        :param sent: the instance that was registered for that, with the marks of both statuses.
        :returns: the registered instance if it must still be written as ``want``; else None.
        """
        status = want.status
        held = self._read_back(sent)
        former = enforced_status_being_lifted(held, status)
        if held.status is status and former is None:
            return None
        if former is not None:
            self.clear_status_until_up(held, former)  # where another server still holds it
        elif status is Status.OUT_OF_SERVICE:
            self.set_status(held, status)
        elif status is Status.UP and held.is_status_enforced:
            self.clear_status_until_up(held, held.status)
        else:
            self._replace_override(held, held, status)
        held = self._read_back(sent, status)
        if held.enforced == want.enforced:
            return None
        if enforced_status_being_lifted(held, status) and self.peers.read_everywhere(*held.key)[1]:
            # A server that is away may hold what was lifted: the mark has the next run read again.
            return None
        return held

    def _read_back(self, want: Instance, status: Status | None = None) -> Instance:
        """Read a written instance until it is as written: another server may be half a second behind.

        :param status: the status that it must have; None for any.
        :raises RegistryRejected: somebody else writes or removes the instance at the same time.
        """
        for attempt in range(_READ_BACK_ATTEMPTS):
            held = self.peers.read(*want.key)
            if held is not None and same_contents_but_status(want, held) and status in (None, held.status):
                return held
            time.sleep(windows.READ_BACK_DELAY_SECONDS * (attempt + 1))
        holds = "does not hold it" if held is None else "holds something else"
        raise self._not_as_written_error(f"register {want.application} {want.instance_id}", holds)

    def _not_as_written_error(self, what: str, outcome: str) -> RegistryRejected:
        urls = ", ".join(self.peers.connection.service_urls)
        return RegistryRejected(
            f"{what}: {urls} accepted it and {outcome}; somebody else may be writing it at the same time",
            url=urls,
        )


def _give_up_after_time_outs(apply_one: _Step) -> _Step:
    """Return a function that applies one change, unless no server answered to several in a row before it."""
    unanswered: list[RegistryUnreachable] = []

    def step(order: ChangeOrder) -> ChangeError | LeadershipLost | None:
        in_a_row = list(unanswered)  # another thread may clear it
        if len(in_a_row) >= MOST_UNANSWERED_IN_A_ROW:
            return in_a_row[-1]
        error = apply_one(order)
        if isinstance(error, RegistryUnreachable) and error.status_code is None:
            unanswered.append(error)
        else:
            unanswered.clear()
        return error

    return step
