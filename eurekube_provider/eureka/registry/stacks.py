"""Stacks' registrations that this process renews, since they ask for this operator.

No program of a stack runs all the time: what a server forgot is restored, what a person removed is not.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence, Set

from eurekube_provider.core.errors import LeadershipLost, RegistryError, RegistryRejected
from eurekube_provider.core.identity import RENEWER_KEY
from eurekube_provider.core.model import Instance, InstanceKey, newest
from eurekube_provider.eureka import rules, windows
from eurekube_provider.eureka.listing import Listing, ListingMark
from eurekube_provider.eureka.registry.renewals import Renewals
from eurekube_provider.eureka.registry.restart_detection import RestartDetection
from eurekube_provider.eureka.rules import InstanceVerdict, Ownership, ServerAnswers
from eurekube_provider.eureka.uncached_reads import RefusalByKey, UncachedReads, read_everywhere
from eurekube_provider.eureka.writer import Writer

_log = logging.getLogger(__name__)

NEW_REGISTRATIONS_PER_CHUNK = 250
"""The number of new registrations that are read at once, before the first of them are renewed.

Of more, as after a change of leader, the next ones are read two seconds later: without a pause, 10,000 would
cost each server 12 s of its processor, and syncers' changes would wait.
"""

MOST_INSTANCES_COMPARED = 8
"""The most other instances that are read to find out whether servers share any, where one is missing."""


class RenewedStackRegistrations:
    """The stacks' registrations at one Eureka."""

    def __init__(
        self, writer: Writer, renewals: Renewals, restarts: RestartDetection, ownership: Ownership
    ) -> None:
        self._writer, self._peers, self._table = writer, writer.peers, writer.peers.table
        self._renewals, self._restarts, self._ownership = renewals, restarts, ownership
        self._lock = threading.Lock()
        self._suggested: dict[InstanceKey, Instance] = {}  # by a list; the most urgent first
        self._restoring: set[InstanceKey] = set()  # what a server forgot, and could not be restored yet
        self._elsewhere: set[InstanceKey] = set()  # what servers show of another region, and do not hold
        self._listed_mark: ListingMark | None = None  # of the list that was processed last
        self._listed_ours: Mapping[InstanceKey, Instance] = {}  # what it shows of ours

    def stand_by(self) -> None:
        """Forget all registrations, since another replica renews them."""
        self._restoring.clear()
        self._elsewhere.clear()
        with self._lock:
            self._suggested = {}

    def process_list(self, listed: Iterable[Instance]) -> None:
        """Process a list of the registry; :meth:`renew_suggested_by_list` reads what is new here.

        A list may be half a minute old, or come from a server that missed a removal.
        """
        if self._renewals.is_standing_by:
            return
        ours = self._update_listed_ours(Listing.of(listed))
        # What stands again was perhaps restored without an answer: from now on, who removes it means it.
        self._restoring.difference_update(ours)
        suggested: list[Instance] = []
        for key, instance in ours.items():
            if key in self._renewals:
                self._renewals.add(instance, just_registered=False)
            elif rules.does_list_suggest_renewal(self._table.copy_record(key), instance, self._table.clock()):
                suggested.append(instance)
        with self._lock:
            self._suggested = {one.key: one for one in sorted(suggested, key=_lapses_at)}

    def _update_listed_ours(self, listing: Listing) -> Mapping[InstanceKey, Instance]:
        """Return the listed registrations that this process renews, of which only those of changed keys are
        looked at where the listing was made of the last one.
        """
        changed = listing.keys_changed_since(self._listed_mark)
        ours = {} if changed is None else {**self._listed_ours}
        for key in listing.by_key if changed is None else changed:
            one = listing.by_key.get(key)
            ours.pop(key, None)
            if one is not None and RENEWER_KEY in one.metadata and self._ownership.is_renewed_for_stack(one):
                ours[key] = one
        self._listed_mark, self._listed_ours = listing.mark, ours
        return ours

    def renew_suggested_by_list(self) -> None:
        """Read what a list suggested on every server that answers, and renew the existing ones.

        Of very many only those that may lapse first are read; the next reading goes on.
        """
        while not self._renewals.is_standing_by:
            with self._lock:
                chunk = list(itertools.islice(self._suggested.values(), NEW_REGISTRATIONS_PER_CHUNK))
            if not chunk:
                return
            try:
                self._renew_existing(chunk)
            except RegistryError:
                return  # looked at again soon: anyone who reads the list says so
            with self._lock:
                for instance in chunk:
                    if self._suggested.get(instance.key) is instance:
                        del self._suggested[instance.key]
                following = next(iter(self._suggested.values()), None)
            if following is not None and _lapses_at(following) > time.time() + windows.LAPSES_SOON_SECONDS:
                return

    def _renew_existing(self, listed: Sequence[Instance]) -> None:
        """Read the listed registrations and renew the existing ones; one that is refused stops no other."""
        refused: RefusalByKey = {}
        reads = self._read_everywhere([one.key for one in listed], refused)
        for one in listed:
            if one.key not in refused or reads.newest(one.key) is not None:
                self._renew_if_existing(
                    one, reads, have_all_answered=not reads.failures and one.key not in refused
                )
                continue
            _log.warning(
                "not renewing a stack's registration, letting it lapse for now: Eureka refuses to show it",
                extra={**_log_fields(one), "error": str(refused[one.key])},
            )
            self._table.store_dropped_registration(one)

    def _renew_if_existing(self, listed: Instance, reads: UncachedReads, *, have_all_answered: bool) -> None:
        """Renew a listed registration if the servers' answers show that it exists and was not removed."""
        held, now = reads.held_by_url(listed.key), time.time()
        servers = self._restarts.complete_server_answers(held, have_all_answered=have_all_answered)
        record, found = self._table.copy_record(listed.key), servers.newest
        verdict = rules.judge_listed_stack_registration(
            record, servers, self._ownership, now, self._do_servers_share_instances
        )
        if verdict is InstanceVerdict.REGISTERED and found is not None:
            if found.key in self._elsewhere and not self._peers.renew(found):
                self._table.store_dropped_registration(found)  # asked again after a while
                return
            self._elsewhere.discard(found.key)
            self._table.forget_dropped_registration(found.key)
            _log.info(
                "renewing a stack's registration that was found in Eureka, from now on",
                extra={**_log_fields(found), "owner": found.owner},
            )
            self._renewals.add(found, just_registered=False)
        elif verdict is InstanceVerdict.REMOVED:
            ours = found if found is not None and self._ownership.is_renewed_for_stack(found) else None
            dropped = record.dropped
            if ours and (dropped is None or rules.is_registered_again(dropped, ours, servers.held_by_url)):
                _log.warning(
                    "letting a stack's registration lapse that some servers removed: to keep it, run its "
                    "stack with a refresh",
                    extra={**_log_fields(ours), "lacking": ", ".join(rules.urls_where_removed(servers, now))},
                )
            self._table.store_dropped_registration(ours or listed)

    def restore_or_drop(self, instance: Instance) -> None:
        """Restore a registration that a server forgot; stop renewing one that somebody removed."""
        self._renewals.remove(instance.key)
        self._table.store_confirmed_absence(instance.key)
        try:
            answered = self._restarts.detect_restarts_of_all()
            reads = self._read_everywhere([instance.key], ends_with_restart=True)
            verdict, servers = self._judge_missing_registration(instance, reads, answered)
            record = self._table.copy_record(instance.key)
            if rules.is_held_in_another_region(record, servers, instance) and not self._peers.renew(instance):
                self._elsewhere.add(instance.key)
                _log.warning(
                    "not renewing a stack's registration that Eureka shows and does not hold, as that of "
                    "another region: give the operators of the regions different names, and the stack the "
                    "name of its own",
                    extra=_log_fields(instance),
                )
                self._table.store_dropped_registration(instance)
            elif verdict is InstanceVerdict.FORGOTTEN:
                self._restoring.add(instance.key)
                self._restore(instance, servers.newest)
                self._restoring.discard(instance.key)
            elif verdict is InstanceVerdict.UNDECIDED:
                self._renewals.add(instance, just_registered=True)  # the next renewal finds it missing again
            else:
                _log.warning(
                    "stopped renewing a stack's registration that somebody removed, not registering it again",
                    extra=_log_fields(instance),
                )
                lacking = frozenset(url for url, held in servers.held_by_url.items() if held is None)
                latest = newest((instance, servers.newest)) or instance
                self._table.store_dropped_registration(latest, lacking)
        except RegistryError as error:
            _log.warning(
                "failed to read or restore a stack's registration, retrying at its next renewal: callers "
                "may miss it",
                extra={**_log_fields(instance), "error": str(error)},
            )
            self._renewals.add(instance, just_registered=False)
        except LeadershipLost:
            # The next renewal finds it missing again: it is restored as soon as this replica may write.
            self._renewals.add(instance, just_registered=True)

    def _restore(self, instance: Instance, held: Instance | None) -> None:
        up_again = rules.give_cleared_status_back(held)
        if up_again is not None:
            self._writer.restore(up_again, held)
            _log.warning(
                "registered a stack's registration as UP, callers find it again: somebody cleared its status "
                "without naming the next",
                extra=_log_fields(instance),
            )
            return
        self._writer.restore(held or instance)
        _log.warning(
            "restored a stack's registration that a Eureka server had lost, renewing it as before",
            extra=_log_fields(instance),
        )

    def _judge_missing_registration(
        self, instance: Instance, reads: UncachedReads, answered: Set[str]
    ) -> tuple[InstanceVerdict, ServerAnswers]:
        """Judge why a registration is missing, and return the verdict with the servers' answers.

        :param answered: the servers that, just before the reads, told for how long they have run.
        """
        key, there, are_all = instance.key, reads.held_by_url(instance.key), not reads.failures
        servers = self._restarts.complete_server_answers(there, have_all_answered=are_all)
        lately = {
            url
            for url, held in servers.held_by_url.items()
            if held is None and self._table.has_accepted_renewal_lately(url, instance)
        }
        are_several = len(self._peers.peers) > 1
        removed_from = lately & servers.urls_with_kept_memory if are_several else frozenset[str]()
        if removed_from:  # one that was restarted before the read says so now
            said = self._restarts.detect_restarts()
            servers = self._restarts.complete_server_answers(there, have_all_answered=are_all)
            removed_from &= said & servers.urls_with_kept_memory
        is_restoring = key in self._restoring
        verdict = rules.judge_missing_stack_registration(
            servers,
            lately,
            removed_from,
            answered,
            time.time(),
            self._do_servers_share_instances,
            is_restoring=is_restoring,
        )
        return verdict, servers

    def _do_servers_share_instances(self) -> bool:
        """Return whether at least one known instance is on all servers that answer."""
        known = self._table.known_instances()
        for one in known[:: -(-len(known) // MOST_INSTANCES_COMPARED) or 1]:  # of many applications
            try:
                reads = read_everywhere(self._peers, [one.key])
            except RegistryRejected:
                continue  # no matter who registered it, under whatever id
            if all(held is not None for held in reads.held_by_url(one.key).values()):
                return True
        return False

    def _read_everywhere(
        self, keys: list[InstanceKey], refused: RefusalByKey | None = None, *, ends_with_restart: bool = False
    ) -> UncachedReads:
        """Read instances on every server; behind a load balancer often enough to reach each of its servers.

        :param ends_with_restart: True to stop once a server was restarted, which explains what is missing.
        """
        reads = read_everywhere(self._peers, keys, refused)
        servers = self._restarts.most_servers_at_one_url
        for _ in range(servers if servers > 1 else 0):
            missing = [key for key in keys if reads.newest(key) is None and key not in (refused or ())]
            if not missing or (ends_with_restart and self._restarts.may_have_lost_memory):
                break
            reads = reads.merge_with(read_everywhere(self._peers, missing, refused))
        return reads


def _log_fields(instance: Instance) -> dict[str, str]:
    return {"application": instance.application, "instance": instance.instance_id}


def _lapses_at(listed: Instance) -> float:
    """Return the Unix time at which an instance without renewals may be evicted; 0 where unknown."""
    ends = listed.lease_ends_ms
    return 0.0 if ends is None else ends / 1000 + listed.lease.duration_seconds
