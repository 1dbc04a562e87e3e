"""Instances in doubt: the servers are asked for them, and wrong or left-over ones are repaired.

A removed instance is looked for again on every server, which may have missed the removal, or got the instance
back. A server forwards a renewal up to a second after it came. If a removal overtakes the renewal, the
receiving server no longer knows the instance, and the sending one registers it there. Nobody renews that
instance, so that it lapses in the end; but until then callers would find it. The same happens with a server
that was frozen or cut off: it still holds the instance, and tells the others of it when it is back. So once
it has been asked, all servers are asked again.

An instance that was registered again meanwhile stays. But the removal may still be on its way: in a server
that was frozen when it was sent, or from one server to the others, which do not know of the later
registration. So the instance is renewed soon, to find out whether it is still there.

A registration, or a status, may also come late: it was sent to a frozen server, which carries it out when the
instance has been removed, or is wanted otherwise. Its owner is notified; it is not removed here.

Source: PeerEurekaNode.heartbeat and AcceptorExecutor of Netflix/eureka.
"""

from __future__ import annotations

import itertools
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from eurekube_provider.core.errors import (
    LeadershipLost,
    RegistryError,
    RegistryRejected,
    RegistryUnreachable,
)
from eurekube_provider.core.liveness import Liveness, liveness_of_started_threads
from eurekube_provider.core.mirror_source import UnlistedInstances
from eurekube_provider.core.model import Instance, InstanceKey
from eurekube_provider.core.text import describe_unaddressable_name
from eurekube_provider.eureka import rules, windows
from eurekube_provider.eureka.batches import read_and_renew_at, register_copies_at
from eurekube_provider.eureka.peers import MOST_REMOVALS_UNTIL_HOLDER_ANSWERS, Peers
from eurekube_provider.eureka.protocol import batch
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.record import PlannedCheck
from eurekube_provider.eureka.registry.reachability import Reachability
from eurekube_provider.eureka.registry.renewals import Renewals
from eurekube_provider.eureka.registry.restart_detection import RestartDetection
from eurekube_provider.eureka.registry.stacks import RenewedStackRegistrations
from eurekube_provider.eureka.rules import InstanceVerdict, Ownership, ServerAnswers
from eurekube_provider.eureka.uncached_reads import (
    MOST_PARALLEL_READS,
    RefusalByKey,
    UncachedReads,
    read_everywhere,
    read_instances,
)

_log = logging.getLogger(__name__)

MOST_INSTANCES_CHECKED_LONGER = 1_000
"""The most instances, due at once, that are looked for longer, with several reads each; more lapse."""

MOST_UNLISTED_ASKED_PER_WINDOW = 500
"""The most unlisted instances that each server is asked for within
:data:`.windows.DEPARTURE_QUESTIONS_WINDOW_SECONDS`: of more, as with a server's memory, the rest waits.
"""

MOST_READ_FOR_CLEARED_STATUS = 20
"""The most missing instances that are read one after the other, for a status that somebody cleared: of more,
as after the process was suspended, nobody cleared all, and they must be registered again soon.
"""

UNLISTED_READS_PER_CHUNK = 2 * MOST_PARALLEL_READS
"""The number of unlisted instances that are read at once: within two answers of each server."""


class Repair:
    """The repair of instances that are in doubt.

    A :class:`~eurekube_provider.eureka.registry.heartbeats.HeartbeatListener`. One loop checks each server,
    on a thread of that server's own, since a server that hangs blocks its thread.
    """

    def __init__(
        self,
        peers: Peers,
        renewals: Renewals,
        restarts: RestartDetection,
        reachability: Reachability,
        stacks: RenewedStackRegistrations,
        ownership: Ownership,
    ) -> None:
        self._peers, self._table = peers, peers.table
        self._renewals, self._restarts, self._reachability = renewals, restarts, reachability
        self._stacks, self._ownership = stacks, ownership
        self._balancer_checked_at = -windows.TOPOLOGY_CACHE_SECONDS
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(peer,), name=f"repair-{number}", daemon=True)
            for number, peer in enumerate(peers.peers)
        ]

    def start(self) -> None:
        """Start the threads that check the servers."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop the threads, and wait for them."""
        self._stopped.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def liveness(self) -> list[Liveness]:
        """Return the liveness of the threads that check the servers."""
        return liveness_of_started_threads(self._threads)

    def _run(self, peer: Peer) -> None:
        was_away = False
        while not self._stopped.wait(windows.REMOVAL_CHECK_TICK_SECONDS):
            if not self._peers.may_write():
                continue  # the leader checks, and removes
            try:
                was_away = self.check_and_clean_server(peer, was_away=was_away)
            except RegistryError:
                # Anyone who writes or renews there says so; what is due stays due.
                was_away = True
                self._stopped.wait(windows.LONGEST_RETRY_SECONDS)
            except LeadershipLost:
                self._stopped.wait(windows.LONGEST_RETRY_SECONDS)
            except Exception:  # noqa: BLE001 - the thread must check again
                _log.exception(
                    "failed to verify removals, retrying: callers may still find the instances there",
                    extra={"url": peer.url},
                )

    # What was removed, or may come late.

    def check_and_clean_server(self, peer: Peer, *, was_away: bool = False) -> bool:
        """Check one server for the removed or late instances that are due, and remove those that it holds and
        that are not wanted; ask nothing if none is due.

        :param was_away: True if the server did not answer the last time: others are then checked, too.
        :returns: the value of ``was_away`` for the next time.
        """
        due = self._table.due_checks(peer.url)
        if not due:
            return was_away
        refused: RefusalByKey = {}
        removed = self._process_due_checks(peer, due, refused)
        if removed:
            _log.warning(
                "removed instances that a Eureka server had kept after their removal, callers find them no "
                "more",
                extra={"url": peer.url, "count": removed},
            )
        self._renewals.renew_soon(check.instance.key for check in due)  # the removal may have hit them
        are_several = self._restarts.most_servers_at_one_url > 1 and len(self._peers.peers) == 1
        looks_longer = are_several and len(due) <= MOST_INSTANCES_CHECKED_LONGER
        after_seconds = (
            windows.BALANCED_URL_REMOVAL_CHECKS_AFTER_SECONDS
            if looks_longer
            else windows.REMOVAL_CHECKS_AFTER_SECONDS
        )
        for check in due:
            if check.instance.key in refused:
                is_last = check.next_check(after_seconds) is None
                _log_refused_check(peer, check, refused[check.instance.key], is_last=is_last)
        self._table.plan_next_checks(peer.url, due, after_seconds, was_away=was_away)
        return False

    def _process_due_checks(self, peer: Peer, due: Sequence[PlannedCheck], refused: RefusalByKey) -> int:
        """Remove left-over instances, and repair late ones; return the number of removals."""
        held = self._read_one_by_one(peer, [check.instance.key for check in due], refused)
        self._peers.avoided.stop_avoiding(peer)
        removed = 0
        for check in due:
            key = check.instance.key
            found = held[key]
            verdict = self._judge_check(check, found)
            if verdict is InstanceVerdict.LEFT_OVER:
                try:
                    removed += self._remove_left_over(peer, check, found if len(due) == 1 else None)
                except RegistryRejected as error:
                    refused[key] = error
            elif verdict is InstanceVerdict.LATE_WRITE and found is not None:
                self._process_late_instance(found)
        return removed

    def _judge_check(self, check: PlannedCheck, found: Instance | None) -> InstanceVerdict:
        record = self._table.copy_record(check.instance.key)
        return rules.judge_checked_instance(check, record, found, int(time.time() * 1000))

    def _read_one_by_one(
        self, peer: Peer, keys: Sequence[InstanceKey], refused: RefusalByKey
    ) -> dict[InstanceKey, Instance | None]:
        """Read instances from a server one by one: a batch would renew them, and they must lapse.

        Where several servers answer at one URL it is asked more often: each answer may be another one's.
        """
        servers = self._restarts.most_servers_at_one_url
        held = read_instances(peer, keys, refused)
        for _ in range(2 * servers if servers > 1 else 0):
            missing = [key for key in keys if held[key] is None and key not in refused]
            if not missing:
                break
            held.update(read_instances(peer, missing, refused))
        return held

    def _remove_left_over(self, peer: Peer, check: PlannedCheck, found: Instance | None) -> bool:
        """Remove a left-over instance at its holder, which alone tells the others; return whether it was.

        :param found: the instance as just read; None to read it again, since many take some time.
        """
        key = check.instance.key
        again = found or peer.read(*key)
        # Behind one URL another server may have answered, which does not hold it.
        is_elsewhere = again is None and len(self._peers.peers) == 1
        if not is_elsewhere and self._judge_check(check, again) is not InstanceVerdict.LEFT_OVER:
            return False
        # Where it was read, another server may answer next: a balancer takes them in turn.
        return any(
            not self._table.has_instance(key) and peer.deregister(*key)
            for _ in range(MOST_REMOVALS_UNTIL_HOLDER_ANSWERS)
        )

    def _process_late_instance(self, found: Instance) -> None:
        """Notify the owner of an instance that may have come late, or repair its status."""
        if not self._ownership.is_renewed_by_this_operator(found):
            return
        (found,) = self._table.add_leaving_marks_to_late_overrides([found])
        record, now = self._table.copy_record(found.key), self._table.clock()
        # A person is hardly as quick; later, servers may tell each other of ours again.
        is_ours = rules.looks_manual_soon_after_ours(record, found, now, windows.SENT_STATUS_ARRIVAL_SECONDS)
        looks_ours = rules.looks_manual_soon_after_ours(record, found, now, windows.STATUS_MAY_RETURN_SECONDS)
        if is_ours or (looks_ours and self._is_override_partial(found.key)):
            found = rules.add_leaving_mark(found)
        if rules.judge_late_instance(self._table.copy_record(found.key), found) is InstanceVerdict.LATE_WRITE:
            self._notify_owner(found)
        else:
            self._send_status_again_where_other(found)

    def _notify_owner(self, found: Instance) -> None:
        self._table.store_read_instance(found)
        self._table.notify_owners([found.owner])

    def _is_override_partial(self, key: InstanceKey) -> bool:
        """Return whether only some servers have an OUT_OF_SERVICE, and still do after a moment."""
        for _ in range(2):
            held, failures = self._peers.read_everywhere(*key)
            if not rules.are_only_some_out_of_service(ServerAnswers(held, have_all_answered=not failures)):
                return False
            if self._stopped.wait(windows.MANUAL_STATUS_REPLICATION_SECONDS):
                return False
        return True

    def _send_status_again_where_other(self, found: Instance) -> None:
        """Send a server its instance's status again if it holds another one than was last written, see
        :func:`.rules.urls_with_other_status_than_written`.

        The server gets the version that the other servers hold, with the same timestamp: a later write
        prevails. If no server holds that version, the owner is notified.
        """
        ours = self._renewals.get(found.key)
        if ours is None or found.status is ours.status:
            return
        held, _ = self._peers.read_everywhere(*found.key)
        urls = rules.urls_with_other_status_than_written(held, ours)
        if rules.is_status_other_than_written_everywhere(held, ours):
            self._notify_owner(found)
        for peer in self._peers.peers:
            # Else it was written again or removed meanwhile, or is about to be.
            if peer.url in urls and self._renewals.is_renewed_as(ours):
                fields = {"url": peer.url, "instance": ours.instance_id}
                try:
                    peer.register_as_replica(ours)  # no batch, which servers may refuse where none are used
                except RegistryUnreachable:
                    raise  # looked at again soon
                except RegistryError as error:
                    # The loop, which asks, goes on: it has dead instances to remove.
                    _log.warning(
                        "failed to send an instance's status again, going on: the Eureka server refuses it, "
                        "callers see another",
                        extra={**fields, "error": str(error)},
                    )
                    continue
                _log.warning(
                    "sent an instance's status to a Eureka server that held another one, so that all show "
                    "the same",
                    extra={**fields, "status": ours.status.value},
                )

    # What a renewal finds missing, or otherwise than it was registered.

    def instances_missing(self, instances: Sequence[Instance], peer: Peer | None) -> None:
        """Copy to a server what it lacks; of what all lack, notify the owners, and restore stacks'."""
        lost = instances
        if peer is not None:
            removed = self._stack_keys_removed_at(peer, instances)
            others = [one for one in instances if one.key not in removed]
            lost = self._copy_missing_and_return_lost(others, peer)
            lost += [one for one in instances if one.key in removed]
        ours = [one for one in lost if not rules.is_owned_by_stack(one)]
        self._have_registered_again(ours, self._is_not_registered_again)
        for instance in lost:
            if rules.is_owned_by_stack(instance):
                self._stacks.restore_or_drop(instance)

    def server_restarted(self, peer: Peer) -> None:
        """Find out what a restarted server forgot, and have it registered again.

        A server that is alone lost everything that it does not list by now: one list tells what thousands of
        renewals would tell one by one. The list may not show yet what was written or read there since the
        start. It only suggests, and each owner reads its instances before it registers them again. All others
        are renewed at once, which shows what is missing: stacks' registrations, what the list shows, and
        everything where another server may hold it.
        """
        renewed = self._renewals.renewed_instances()
        forgotten = list[Instance]()
        if renewed and len(self._peers.peers) == 1 and self._peers.uses_batches(len(renewed)):
            with suppress(RegistryError):  # else the renewals show it
                listed = {one.key for one in peer.list_instances()}
                uptime = self._restarts.uptime_seconds(peer.url)
                since_start = math.inf if uptime is None else uptime + windows.CLOCK_ROUNDING_SECONDS
                forgotten = [
                    one
                    for one in renewed
                    if one.key not in listed
                    and not rules.is_owned_by_stack(one)
                    and not self._table.was_confirmed_within(one.key, since_start)
                ]
        noted = self._have_registered_again(forgotten, self._renewals.is_renewed_as)
        self._renewals.renew_now(peer, [one.key for one in renewed if one.key not in noted])

    def _have_registered_again(
        self, missing: Sequence[Instance], is_still_missing: Callable[[Instance], bool]
    ) -> set[InstanceKey]:
        """Have syncers look for their instances that no server seems to hold, and register them again.

        One after the other, each notified at once: it registers those that are noted, and the rest later.

        :param is_still_missing: asked before each is noted: it may have been removed or registered meanwhile.
        :returns: the keys of those that were noted.
        """
        noted = set[InstanceKey]()
        if not missing:
            return noted
        # A gateway without its route answers renewals with 404, too, as while the server behind it restarts.
        says_no_server = not self._restarts.may_have_lost_memory and self._says_no_server_any_more()
        may_be_forgotten = says_no_server or self._may_be_forgotten()
        are_few = len(missing) <= MOST_READ_FOR_CLEARED_STATUS
        for owner, instances in itertools.groupby(sorted(missing, key=_owner_or_empty), _owner_or_empty):
            for instance in filter(is_still_missing, instances):
                noted.add(instance.key)
                self._renewals.remove(instance.key)
                if may_be_forgotten or (are_few and self._was_status_cleared(instance)):
                    self._table.remember_lost_instance(instance)
                self._table.store_confirmed_absence(instance.key, may_be_forgotten=may_be_forgotten)
            self._table.notify_owners([owner])
        if noted:
            _log.warning(
                "found instances missing in Eureka, having their syncers register those that they want: "
                "callers miss these until then",
                extra={"count": len(noted)},
            )
        return noted

    def _says_no_server_any_more(self) -> bool:
        """Ask the servers for how long they have run; return whether none says it that said it before."""
        return not self._restarts.detect_restarts() and bool(self._restarts.started_ms_by_url)

    def _was_status_cleared(self, missing: Instance) -> bool:
        """Return whether a renewal was refused since somebody cleared the instance's override without naming
        the next status; the instance is then known as it is to be.
        """
        try:
            up_again = rules.give_cleared_status_back(self._peers.read(*missing.key))
        except RegistryError:
            return False  # its owner meets the same
        if up_again is None or up_again.owner != missing.owner:
            return False
        self._table.store_read_instance(up_again)
        return True

    def _is_not_registered_again(self, missing: Instance) -> bool:
        """Return whether no newer version was registered since an instance was found missing."""
        known = self._table.get(missing.key)
        return known is None or known.written_at_ms <= missing.written_at_ms

    def newer_version_found(self, stored: Instance) -> None:
        """Note an instance that somebody else wrote, and notify its former owner."""
        known = self._table.get(stored.key)
        self._table.store_read_instance(stored)
        is_ours = self._ownership.is_renewed_by_this_operator(stored)
        if is_ours and (known is None or known.owner == stored.owner):
            self._renewals.add(stored, just_registered=True)
        else:
            self._renewals.remove(stored.key)
        self._table.notify_owners((stored.owner, known.owner if known else None))

    def server_answers_again(self, peer: Peer) -> None:
        """Ask at once whether a server that answers again was restarted."""
        _log.warning("Eureka server answers again, renewing instances there again", extra={"url": peer.url})
        self._restarts.detect_restarts()

    def _stack_keys_removed_at(self, peer: Peer, instances: Sequence[Instance]) -> set[InstanceKey]:
        """Return the stacks' registrations removed at a server, which must not be copied back to it."""
        held_lately = [one.key for one in instances if self._table.has_accepted_renewal_lately(peer.url, one)]
        if not held_lately or peer.url not in self._restarts.detect_restarts():
            return set()
        if self._restarts.may_have_lost_memory and not self._restarts.has_kept_memory(peer.url):
            return set()
        try:
            # It may hold older contents, which get a 404 as well.
            held = read_instances(peer, held_lately)
        except RegistryError:
            return set(held_lately)  # found out as soon as it answers
        return {key for key, found in held.items() if found is None}

    def _copy_missing_and_return_lost(self, instances: Sequence[Instance], peer: Peer) -> list[Instance]:
        """Register on ``peer`` the instances that other servers hold; return those that none holds."""
        found: dict[InstanceKey, Instance] = {}
        for other in self._peers.peers_in_order():
            left = [instance for instance in instances if instance.key not in found]
            if other is peer or not left:
                continue
            try:
                held = read_and_renew_at(self._peers, other, left)
            except RegistryError:
                continue
            found.update({key: instance for key, instance in held.items() if instance is not None})
        if found and self._peers.may_write():
            # Else it is reported with the next renewals: they go on, and find the same.
            for chunk in batch.chunks(found.values()):
                # Of thousands, some may have been removed since they were read.
                register_copies_at(peer, [one for one in chunk if one.key in self._renewals])
            _log.warning(
                "copied missing instances to a Eureka server from others, so that its callers find them "
                "again",
                extra={"url": peer.url, "count": len(found)},
            )
        return [instance for instance in instances if instance.key not in found]

    # What a list shows otherwise than it is known, or no more.

    def resolve_doubts(self, keys: Iterable[InstanceKey]) -> None:
        """Read the instances for which a list contradicts what this process knew, and notify their owners."""
        for key in keys:
            before = self._table.get(key)
            if before is None:
                continue  # removed, or found missing, since the list was judged
            try:
                now = self._peers.read(*key)
            except RegistryRejected:
                continue  # nobody can say more of it than the lists
            if now is None:
                self._table.store_confirmed_absence(key, may_be_forgotten=self._may_be_forgotten())
            else:
                (now,) = self._table.add_leaving_marks_to_late_overrides([now])
                self._table.store_read_instance(now)
                self.stop_renewing_taken_over([now])
            self._table.notify_affected_owners([before] if now is None else [before, now])

    def stop_renewing_taken_over(self, instances: Iterable[Instance]) -> None:
        """Stop renewing instances that another owner has taken over, so that they can lapse."""
        for instance in instances:
            if instance.key not in self._renewals or self._ownership.is_renewed_by_this_operator(instance):
                continue
            _log.info(
                "stopped renewing an instance that another owner has taken over, leaving it to that owner",
                extra={"instance": instance.instance_id, "owner": instance.owner or ""},
            )
            ours = self._renewals.remove(instance.key)
            self._table.notify_owners([ours.owner if ours is not None else None])

    def _may_be_forgotten(self) -> bool:
        """Return whether servers may have forgotten what is missing, or nobody could renew it."""
        return self._restarts.may_have_lost_memory or self._reachability.failed_within(
            windows.MEMORY_LOSS_SECONDS
        )

    def look_up_unlisted(self, keys: Iterable[InstanceKey]) -> UnlistedInstances:
        """Ask the servers about instances that no list shows any more, as a list may have gaps.

        An instance has left if a server says in its delta that it deregistered the instance, or evicted it
        and no other server may have its renewals; or if no server holds it by an uncached read. A server that
        was started a moment ago proves nothing, since it may not have heard of the instance yet. Without an
        eviction in a delta, absence is the only proof: a Eureka that never had the instance answers the same.
        For an instance that no request can name, or that a server refuses to show, only deltas are a proof.

        :raises RegistryError: no server answers.
        """
        wanted = list(dict.fromkeys(keys))
        now = self._table.clock()
        gone = {key for key in wanted if rules.is_departure_proof(self._table.copy_record(key).left_at, now)}
        asked = [key for key in wanted if key not in gone and not any(map(describe_unaddressable_name, key))]
        rest = self._table.choose_keys_to_ask_servers_about(asked, MOST_UNLISTED_ASKED_PER_WINDOW)
        refused = RefusalByKey()
        found = self._read_in_chunks(rest, refused)
        have_servers_warmed_up = bool(rest) and not found.failures and self._have_servers_warmed_up()
        registered: list[Instance] = []
        absent: set[InstanceKey] = set()
        for key in rest:
            servers = ServerAnswers(
                found.held_by_url(key), have_all_answered=not found.failures and key not in refused
            )
            verdict = rules.judge_unlisted_instance(servers, have_servers_warmed_up=have_servers_warmed_up)
            if verdict is InstanceVerdict.GONE:
                gone.add(key)
                # A server that evicted it had held it.
                if not rules.is_departure_proof(self._table.copy_record(key).evicted_at, now):
                    absent.add(key)
            elif servers.newest is not None:
                registered.append(servers.newest)
        return UnlistedInstances(tuple(registered), frozenset(gone), frozenset(absent))

    def _read_in_chunks(self, keys: list[InstanceKey], refused: RefusalByKey) -> UncachedReads:
        """Read instances in chunks, and all remaining ones at once when a server is silent.

        Without chunks, the nearest server would answer for very many instances before a more distant one had
        answered half of them, and the distant one would count as silent.
        """
        found = UncachedReads({}, {})
        while keys:
            count = len(keys) if found.failures else UNLISTED_READS_PER_CHUNK
            found = found.merge_with(read_everywhere(self._peers, keys[:count], refused))
            keys = keys[count:]
        return found

    def _have_servers_warmed_up(self) -> bool:
        """Return whether every server has run for long enough, and is the only one at its URL; ask the
        servers whether it is, where the last answer is too old.
        """

        def have_warmed_up() -> bool:
            ages = (self._restarts.uptime_seconds(peer.url) or 0.0 for peer in self._peers.peers)
            is_alone = self._restarts.most_servers_at_one_url == 1
            return is_alone and all(age >= windows.SERVER_WARM_UP_SECONDS for age in ages)

        if not have_warmed_up():
            return False
        now = self._table.clock()
        if now - self._balancer_checked_at > windows.TOPOLOGY_CACHE_SECONDS:
            self._balancer_checked_at = now
            self._restarts.detect_servers_behind_balancer()
        return have_warmed_up()


def _owner_or_empty(instance: Instance) -> str:
    return instance.owner or ""


def _log_refused_check(peer: Peer, check: PlannedCheck, error: RegistryRejected, *, is_last: bool) -> None:
    application, instance_id = check.instance.key
    extra = {"url": peer.url, "application": application, "instance": instance_id, "error": str(error)}
    if is_last:
        _log.warning(
            "gave up verifying a removal, callers may find the instance until it lapses: the Eureka server "
            "refuses",
            extra=extra,
        )
    else:
        _log.warning(
            "failed to verify a removal, checking again later: the Eureka server refuses to show or remove "
            "the instance",
            extra=extra,
        )
