"""The repeated readings of one Eureka, and the processing of their lists.

A list is only a hint: where it contradicts what is known, an uncached read decides first.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from eurekube_provider.core.errors import ConfigurationError, RegistryError, RegistryUnreachable
from eurekube_provider.core.identity import CLUSTER_UID_KEY
from eurekube_provider.core.liveness import Liveness, liveness_of_started_threads
from eurekube_provider.core.model import Instance
from eurekube_provider.eureka import rules, windows
from eurekube_provider.eureka.listing import Listing
from eurekube_provider.eureka.peers import Peers, merge_lists
from eurekube_provider.eureka.registry.reachability import Reachability
from eurekube_provider.eureka.registry.registry_fetcher import RegistryFetcher
from eurekube_provider.eureka.registry.renewals import Renewals
from eurekube_provider.eureka.registry.repair import Repair
from eurekube_provider.eureka.registry.restart_detection import RestartDetection
from eurekube_provider.eureka.registry.stacks import RenewedStackRegistrations
from eurekube_provider.eureka.rules import Ownership

_log = logging.getLogger(__name__)


class Reader:
    """A thread that reads one Eureka repeatedly, and passes the lists to table, stacks and repair.

    :param was_read: called on the thread that reads with each processed reading's number of instances.
    """

    def __init__(
        self,
        peers: Peers,
        renewals: Renewals,
        reachability: Reachability,
        restarts: RestartDetection,
        stacks: RenewedStackRegistrations,
        repair: Repair,
        ownership: Ownership,
        resync_seconds: float,
        was_read: Callable[[int], None],
    ) -> None:
        self._peers, self._table, self._ownership = peers, peers.table, ownership
        self._renewals, self._reachability, self._restarts = renewals, reachability, restarts
        self._stacks, self._repair = stacks, repair
        self._resync_seconds = resync_seconds
        self._was_read = was_read
        table = peers.table
        self._fetcher = RegistryFetcher(peers, departures_seen=table.note_departures, find_known=table.get)
        self._reads_everywhere = False
        self._led_since = 0.0
        self._urls_to_list: set[str] = set()  # not listed yet since this replica came to lead
        self._is_followed = False
        self._listed = self._to_share = Listing()
        self._changed_lately_until = -windows.FREQUENT_READS_AFTER_CHANGE_SECONDS
        self._has_reported_of_cluster = False
        self._reading = threading.Lock()
        self._stopped = threading.Event()
        self._went_round_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="registry", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._went_round_at = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Stop reading."""
        self._stopped.set()

    def liveness(self) -> list[Liveness]:
        """Return the liveness of the reading thread."""
        age = time.monotonic() - self._went_round_at
        longest = self._resync_seconds + windows.READING_STUCK_AFTER_SECONDS
        return liveness_of_started_threads([self._thread], age, longest)

    def read_often_after_changes(self) -> None:
        """Read more often while the lists change, since a mirror follows all that is listed."""
        self._is_followed = True

    def read_as_new_leader(self, *, may_follow_another_leader: bool = True) -> None:
        """Read the registry once, so that renewals can begin; after a failure the next reading tries again.

        :param may_follow_another_leader: True if another replica may have led a moment ago.
        """
        self._led_since = time.time()
        if may_follow_another_leader:
            self._reachability.await_list_after_takeover()
        try:
            self.read(as_new_leader=True)
        except ConfigurationError as error:
            self._report_misconfiguration(error)
        except RegistryError as error:
            self._report_failure(error)

    def stand_by(self) -> None:
        """Forget the state that only the leading replica needs."""
        self._urls_to_list.clear()

    @property
    def is_early_read_due(self) -> bool:
        """True if a reading of other servers, or of the first list that shows every write, is due."""
        return self._reads_everywhere or self._reachability.would_list_end_takeover(time.monotonic())

    @property
    def interval_seconds(self) -> float:
        """Seconds between two successful readings.

        Servers make their answers again each half minute, and an answer that is the same costs little.
        """
        has_changed_lately = self._is_followed and time.monotonic() < self._changed_lately_until
        longest = windows.FREQUENT_READ_INTERVAL_SECONDS if has_changed_lately else self._resync_seconds
        return min(longest, self._resync_seconds)

    @property
    def seconds_until_next_read(self) -> float:
        """Seconds until the next reading, after a success or a failure."""
        failure = self._reachability.failure
        if self._reachability.fails_repeatedly and isinstance(failure, RegistryUnreachable):
            return windows.OUTAGE_RETRY_SECONDS
        if failure is not None or not self._reachability.has_been_read:
            return windows.RESTART_CHECK_INTERVAL_SECONDS
        return self.interval_seconds

    @property
    def seconds_until_next_check(self) -> float:
        """Seconds until the next check between two readings: soon while no server can be reached, since one
        that comes back has most likely forgotten everything.
        """
        if self._restarts.reaches_no_server:
            return windows.OUTAGE_RETRY_SECONDS
        return windows.RESTART_CHECK_INTERVAL_SECONDS

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self.read()
            except ConfigurationError as error:
                self._report_misconfiguration(error)
                return
            except RegistryError as error:
                self._report_failure(error)
            except Exception:  # noqa: BLE001 - the thread must read again
                _log.exception(
                    "failed to read Eureka, retrying and going on with what was read before: unexpected error"
                )
            self._went_round_at = time.monotonic()
            try:
                self._check_until_next_read(min(self.seconds_until_next_read, self._resync_seconds))
            except Exception:  # noqa: BLE001 - as above
                _log.exception(
                    "failed to check the Eureka servers between readings, reading Eureka again soon"
                )
                self._stopped.wait(windows.RESTART_CHECK_INTERVAL_SECONDS)

    def _check_until_next_read(self, seconds: float) -> None:
        """Wait until the next reading; meanwhile make the checks between readings."""
        until = time.monotonic() + seconds
        while not self._stopped.wait(min(self.seconds_until_next_check, max(0.0, until - time.monotonic()))):
            self._share_listed_instances()
            if time.monotonic() >= until or self.is_early_read_due:
                return
            self.check_between_reads()

    def _share_listed_instances(self) -> None:
        """Have renewals hold the instances of the last list; not at once, since mirrors write now."""
        listed, self._to_share = self._to_share, Listing()
        self._renewals.hold_listed(listed)

    def check_between_reads(self) -> None:
        """Make the checks that need not wait for the next reading; none while another replica leads."""
        if self._renewals.is_standing_by:
            return
        self._restarts.detect_restarts()
        self.read_lists_of_missed_servers()
        self._stacks.renew_suggested_by_list()

    def read(self, *, as_new_leader: bool = False) -> None:
        """Read the registry once, and process the list.

        :param as_new_leader: True to read the list that every client gets, from one server; instances that
            only others hold are looked for soon after.
        :raises RegistryError: the registry cannot be read.
        :raises ConfigurationError: another cluster uses this cluster's name.
        """
        with self._reading:
            asked_at = time.monotonic()
            # Also finds out which server does not answer, before one of them is asked for a list.
            grace_seconds = windows.SHORT_SERVER_GRACE_SECONDS if as_new_leader else None
            answered = self._restarts.detect_restarts(grace_seconds)
            are_several = len(self._peers.peers) > 1
            if as_new_leader:
                self._reads_everywhere = are_several
            # What a server that was restarted does not list may stand on the others.
            reads_everywhere = self._reads_everywhere or self._reachability.would_list_end_takeover(asked_at)
            everywhere = are_several and (
                self._restarts.may_have_lost_memory or (reads_everywhere and not as_new_leader)
            )
            lists: Mapping[str, list[Instance]] = {}
            silent: Mapping[str, RegistryError] = {}
            if everywhere:
                lists, silent = self._peers.ask_all_or_raise(lambda peer: peer.list_instances())
                listed = Listing.of(merge_lists(lists.values()))
            else:
                in_doubt = as_new_leader or self._needs_full_list
                listed = self._fetcher.read(
                    self._restarts.started_ms_by_url,
                    in_doubt=in_doubt,
                    wants_departure_proofs=self._needs_delta_as_departure_proof and not as_new_leader,
                )
            if not answered:  # one that answers only since then may have been restarted, and hold nothing
                self._restarts.detect_restarts()
            if as_new_leader:
                self._table.believe_next_list()
            self.process_list(listed, is_complete=not silent)
            if not everywhere and self._fetcher.has_deferred_list:
                self._stopped.wait(windows.LIST_PARSE_DELAY_SECONDS)
                self.process_list(self._fetcher.parse_deferred_list(), is_complete=True)
            if everywhere:
                self._reads_everywhere = False
                if self._reachability.awaits_list_after_takeover:
                    self._urls_to_list = set(silent)
            if self._reachability.would_list_end_takeover(asked_at) and (everywhere or not are_several):
                self._check_late_overrides_of_former_leader(lists.values())
                self._reachability.stop_awaiting_list_after_takeover()
        if not as_new_leader:  # else soon, on the thread that reads: nothing else waits for it
            self._stacks.renew_suggested_by_list()

    def _check_late_overrides_of_former_leader(self, lists: Iterable[Sequence[Instance]]) -> None:
        """Have the servers checked for an OUT_OF_SERVICE that the former leader gave to a pod, and that came
        to some of them over the next pod of its name: that leader alone knew that no person had set it.

        What a person sets is at all servers by the time of the check; older registrations are left alone.
        """
        since_ms = (self._led_since - windows.STATUS_MAY_RETURN_SECONDS) * 1000
        for one in rules.instances_out_of_service_at_some(lists):
            if one.written_at_ms >= since_ms and self._ownership.is_renewed_by_this_operator(one):
                # So long ago that only what is not at all servers is undone.
                self._table.note_override_change(one, windows.SENT_STATUS_ARRIVAL_SECONDS)

    @property
    def _needs_full_list(self) -> bool:
        """True if the list itself must be read, and deltas are not enough.

        Behind a load balancer each answer may come from another server; a take-over waits for the first list
        that shows every write. A start waits for the very first list, and reads no delta beside it: after
        many changes a delta is larger than the list.
        """
        is_sure = self._reachability.knows_all_instances and not self._restarts.may_have_lost_memory
        return not is_sure or self._restarts.most_servers_at_one_url > 1

    @property
    def _needs_delta_as_departure_proof(self) -> bool:
        """True if a delta is read beside a list in doubt: it may be the only proof that an instance left.

        A take-over is in doubt for half a minute, in which mirrors would otherwise learn of no removal. The
        very first list waits for no delta, which may be larger than the list.
        """
        is_alone = self._restarts.most_servers_at_one_url == 1
        return self._is_followed and self._reachability.has_been_read and is_alone

    def read_lists_of_missed_servers(self) -> None:
        """Read the lists of servers that did not answer when this replica began to lead, once they do.

        Such a server may still hold an instance that the former leader removed, and no one else knows of it:
        its owner is notified. Stacks' registrations are left out, since they would be renewed.
        """
        for peer in self._peers.peers_not_avoided if self._urls_to_list else ():
            if peer.url not in self._urls_to_list:
                continue
            try:
                listed = peer.list_instances()
            except RegistryError:
                continue  # looked at again soon
            self._urls_to_list.discard(peer.url)
            syncers = [one for one in listed if self._ownership.is_owned_under_any_name_of_this_cluster(one)]
            left = [one for one in syncers if not self._table.has_instance(one.key)]
            news, _ = self._table.merge_list(left, is_complete=False)
            ours = ((one, self._table.get(one.key)) for one in syncers if one.is_leaving)
            out = [one for one, known in ours if known is not None and not known.is_leaving]
            for one in out:  # as this server shows it, and the others do not
                self._table.store_read_instance(one)
            self._table.notify_owners(one.owner for one in (*news, *out))

    def process_list(self, instances: Collection[Instance], *, is_complete: bool) -> None:
        """Process a list of the whole registry."""
        if not self._reachability.has_been_read:
            # Before anything of it is known: what another cluster of this name holds would be taken for ours.
            self._refuse_other_cluster_of_same_name(instances)
        listed = Listing.of(self._table.add_leaving_marks_to_late_overrides(instances))
        if self._is_followed:
            if self._listed and listed.differs_from(self._listed):
                self._changed_lately_until = time.monotonic() + windows.FREQUENT_READS_AFTER_CHANGE_SECONDS
            self._listed = listed
        news, doubts = self._table.merge_list(
            listed, is_complete=is_complete, may_be_forgotten=self._restarts.may_have_lost_memory
        )
        was_away = self._reachability.clear_failure_and_check_recovery()
        self._table.notify_affected_owners(news)
        self._repair.stop_renewing_taken_over(news)
        self._log_other_cluster_of_same_name(news)
        self._repair.resolve_doubts(doubts)
        self._stacks.process_list(listed)
        is_first = self._reachability.note_read_and_check_first()
        if is_first:
            _log.info(
                "read Eureka for the first time, renewals and changes there can begin",
                extra={"instances": len(listed)},
            )
        elif was_away:
            _log.warning("Eureka answers again, reading it as before")
        if is_first or was_away:
            self._notify_condition_changed()
        self._was_read(len(listed))
        self._to_share = listed

    def _report_failure(self, error: RegistryError) -> None:
        if str(self._reachability.failure) != str(error):
            _log.warning(
                "failed to read Eureka, retrying and going on with what was read before",
                extra={"error": str(error)},
            )
        if self._reachability.note_failure_and_check_lasting(error):
            self._notify_condition_changed()

    def _report_misconfiguration(self, why: ConfigurationError) -> None:
        self._reachability.note_misconfiguration(why)
        self._notify_condition_changed()

    def _notify_condition_changed(self) -> None:
        if self._table.listener is not None:
            self._table.listener.condition_changed()

    def _log_other_cluster_of_same_name(self, news: Iterable[Instance]) -> None:
        """Log once that another cluster uses this cluster's name, if it began to after the start."""
        theirs = next(filter(self._ownership.is_of_other_cluster_of_same_name, news), None)
        if theirs is not None and not self._has_reported_of_cluster:
            self._has_reported_of_cluster = True
            _log.error(
                "leaving another cluster's instances unchanged, going on: it uses this cluster's name",
                extra={
                    "application": theirs.application,
                    "instance": theirs.instance_id,
                    "hint": "set another --cluster-name for one of them",
                },
            )

    def _refuse_other_cluster_of_same_name(self, listed: Collection[Instance]) -> None:
        """Refuse to go on if another cluster of this name would take this cluster's instances for its own.

        Every server that answers is asked: ``listed`` may come from one that just restarted, and is empty.

        :raises ConfigurationError: another cluster uses the name.
        """
        if not self._ownership.checks_cluster_uid:
            return
        lists: list[Collection[Instance]] = [listed]
        if len(self._peers.peers) > 1:
            answers, _ = self._peers.ask_all(lambda peer: peer.list_instances())
            lists += answers.values()
        cluster = self._ownership.cluster
        every = itertools.chain.from_iterable(lists)
        instance = next(filter(self._ownership.is_of_other_cluster_of_same_name, every), None)
        if instance is not None:
            raise ConfigurationError(
                f"the cluster name {cluster.name!r} is in use by another cluster:"
                f" {instance.application} {instance.instance_id} has UID"
                f" {instance.metadata[CLUSTER_UID_KEY]}, this cluster has"
                f" {cluster.uid}. Set another --cluster-name; or, if this cluster was rebuilt"
                " and the other is gone, --take-over-cluster true"
            )
