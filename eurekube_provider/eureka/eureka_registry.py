"""One Eureka cluster behind the interface that every registry has: its parts, made and connected."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor

from eurekube_provider.core.errors import RegistrySilent
from eurekube_provider.core.identity import CLUSTER_UID_KEY, Cluster, cluster_part_of_id
from eurekube_provider.core.liveness import Liveness
from eurekube_provider.core.mirror_source import UnlistedInstances
from eurekube_provider.core.model import Instance, InstanceKey
from eurekube_provider.core.plan import Plan, PlanOutcome
from eurekube_provider.core.registry import Figures, RegistryCondition, RegistryListener, UncachedReading
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.registry.front_pages import FrontPages
from eurekube_provider.eureka.registry.known_instances import RegistryWriteNotes
from eurekube_provider.eureka.registry.plan_executor import PlanExecutor
from eurekube_provider.eureka.registry.reachability import Reachability
from eurekube_provider.eureka.registry.reader import Reader
from eurekube_provider.eureka.registry.renewals import Renewals
from eurekube_provider.eureka.registry.repair import Repair
from eurekube_provider.eureka.registry.restart_detection import RestartDetection
from eurekube_provider.eureka.registry.stacks import RenewedStackRegistrations
from eurekube_provider.eureka.rules import Ownership, is_owned_by_stack
from eurekube_provider.eureka.self_preservation import RenewalShare
from eurekube_provider.eureka.uncached_reads import RefusalByKey, read_instances
from eurekube_provider.eureka.writer import Writer

_log = logging.getLogger(__name__)

MOST_PARALLEL_CHANGES = 8
"""The number of changes of one kind that are made at the same time."""


class EurekaRegistry:
    """One Eureka cluster as this operator sees it.

    A :class:`~eurekube_provider.core.registry.Registry`, whose docstrings hold for what has none here.

    :param check_cluster: True if the first read looks for another cluster with this cluster's name; if it
        finds one, all work ends, see :class:`~eurekube_provider.core.registry.Misconfigured`.
    :param may_follow_another_leader: returns True if another replica may have led a moment ago.
    :param renewal_interval_seconds: the longest time between two renewals of one instance.
    """

    def __init__(
        self,
        peers: Peers,
        cluster: Cluster,
        operator_name: str,
        resync_seconds: float,
        *,
        check_cluster: bool = False,
        may_follow_another_leader: Callable[[], bool] = lambda: True,
        renewal_interval_seconds: float = windows.RENEWAL_INTERVAL_SECONDS,
    ) -> None:
        self.peers, self.table = peers, peers.table
        self._ownership = ownership = Ownership(cluster, operator_name, checks_cluster_uid=check_cluster)
        self.reachability = Reachability(peers)
        self.renewals = Renewals(peers, interval_seconds=renewal_interval_seconds)
        self.restarts = RestartDetection(
            peers,
            lambda peer: self.repair.server_restarted(peer),  # noqa: PLW0108 - it is made below
        )
        self.instances = RegistryWriteNotes(
            self.table, self.renewals, self.reachability, self.restarts, ownership
        )
        self.writer = Writer(peers, self.instances)
        self.stacks = RenewedStackRegistrations(self.writer, self.renewals, self.restarts, ownership)
        self.repair = Repair(peers, self.renewals, self.restarts, self.reachability, self.stacks, ownership)
        self.reader = Reader(
            peers,
            self.renewals,
            self.reachability,
            self.restarts,
            self.stacks,
            self.repair,
            ownership,
            resync_seconds,
            self._after_reading,
        )
        self._may_follow_another_leader = may_follow_another_leader
        self._expected = 0
        self._share = RenewalShare(0, 0)
        self._servers_per_renewal = 1
        self._followers: list[Callable[[], None]] = []
        self._front_pages = FrontPages(peers.peers)
        self._executor = ThreadPoolExecutor(MOST_PARALLEL_CHANGES, thread_name_prefix="apply")
        self._plans = PlanExecutor(self.writer, self._executor)

    @classmethod
    def from_connection(
        cls,
        connection: Connection,
        cluster: Cluster,
        operator_name: str,
        resync_seconds: float,
        *,
        may_write: Callable[[], bool] = lambda: True,
        waits_for_all_servers: bool = False,
        check_cluster: bool = False,
        may_follow_another_leader: Callable[[], bool] = lambda: True,
    ) -> EurekaRegistry:
        """Return the registry of a connection's Eureka.

        :param may_write: asked before each change.
        :param waits_for_all_servers: see :class:`~eurekube_provider.eureka.peers.Peers`.
        """
        return cls(
            Peers(connection, may_write, waits_for_all_servers=waits_for_all_servers),
            cluster,
            operator_name,
            resync_seconds,
            check_cluster=check_cluster,
            may_follow_another_leader=may_follow_another_leader,
        )

    def start(self, listener: RegistryListener | None = None) -> None:
        """Begin to read; renewals begin with :meth:`start_leading`."""
        self.table.listener = listener or self.table.listener
        self.renewals.stand_by()
        self.renewals.start(self.repair)
        self.repair.start()
        self.reader.start()

    def stop(self) -> None:
        self.reader.stop()
        self.repair.stop()
        self._executor.shutdown(wait=False, cancel_futures=True)
        self.renewals.stop()
        self.peers.close()

    def liveness(self) -> list[Liveness]:
        return [*self.reader.liveness(), *self.renewals.liveness(), *self.repair.liveness()]

    def condition(self) -> RegistryCondition:
        return self.reachability.condition()

    def known_instances(self, *, owner: str = "", application: str = "") -> list[Instance]:
        """Return the known instances: of an owner, of an application, of both, or all.

        With an owner or an application, instances of another cluster of this cluster's name are left out.
        """
        if not (owner or application):
            return self.table.known_instances()
        table, name = self.table, application.upper()
        there = table.instances_of_owner(owner) if owner else table.instances_of_application(name)
        if owner and name:
            there = [one for one in there if one.application == name]
        uid, is_of_other = self._ownership.cluster.uid, self._ownership.is_of_other_cluster_of_same_name
        return [one for one in there if one.metadata.get(CLUSTER_UID_KEY) == uid or not is_of_other(one)]

    def instances_by_application(self) -> dict[str, tuple[Instance, ...]]:
        """Return all known instances, see :meth:`.MirrorSource.instances_by_application`."""
        return self.table.instances_by_application()

    def get(self, key: InstanceKey) -> Instance | None:
        return self.table.get(key)

    def owners(self, *, lookup_name: str = "") -> set[str]:
        return set(self.table.owners_found_under_name(lookup_name)) if lookup_name else self.table.owners()

    def cluster_names(self) -> set[str]:
        return self.table.cluster_names()

    def count_up_instances(self, *, owner: str = "", cluster: str = "") -> int:
        return self.table.count_up_instances(owner=owner, cluster=cluster)

    def apply(self, plan: Plan, owner: str) -> PlanOutcome:
        """Carry out a plan on behalf of ``owner``; other owners' plans may share its requests."""
        return self._plans.apply(plan, owner, lease_count=max(self._expected, len(self.renewals)))

    def read_everywhere(self, keys: Iterable[InstanceKey]) -> UncachedReading:
        wanted = list(keys)
        refused: RefusalByKey = {}  # one that is refused for good keeps no other one unread
        answers, failures = self.peers.ask_all_or_raise(
            lambda peer: read_instances(peer, wanted, refused),
            asks_avoided=True,
            grace_seconds=windows.BULK_READ_GRACE_SECONDS,
        )
        hang = [url for url, error in failures.items() if isinstance(error, RegistrySilent)]
        return UncachedReading(
            answers,
            {url: self.peers.avoided.silent_since(url) for url in hang},
            self.peers.avoided.callers_may_be_away_until_by_url(),
        )

    def keep_registered(self, *instances: Instance) -> None:
        for one in self.renewals.find_not_renewed(instances):
            if not self._ownership.is_of_other_cluster_of_same_name(one):
                self.renewals.add(one, just_registered=False)

    def let_lapse(self, instance: Instance) -> None:
        if instance.key in self.renewals:
            self.renewals.remove(instance.key)

    def instances_lost_by_registry(self, owner: str) -> list[Instance]:
        return self.table.instances_lost_by_registry(owner)

    def stop_tracking_lost_instances(self, owner: str, wanted: Collection[InstanceKey] = ()) -> None:
        self.table.stop_tracking_lost_instances(owner, wanted)

    def call_after_reads(self, was_read: Callable[[], None]) -> None:
        """Have ``was_read`` called after each reading. Call this before :meth:`start`."""
        self._followers.append(was_read)
        self.reader.read_often_after_changes()

    def look_up_unlisted(self, keys: Iterable[InstanceKey]) -> UnlistedInstances:
        """Ask the servers about instances that no list shows any more.

        :raises RegistryError: no server answers.
        """
        return self.repair.look_up_unlisted(keys)

    def figures(self, *, in_full: bool = False) -> Figures:
        """Return the figures for metrics; in full, also those of the servers' front pages."""
        held, counts, started = len(self.renewals), self.renewals.counts, self.restarts.started_ms_by_url
        share = RenewalShare.of_list(held, self._share.registered)
        pages = {peer.url: self._front_pages.latest(peer.url) for peer in self.peers.peers if in_full}
        return Figures(
            servers=[
                peer.traffic.figures(peer.url, started.get(peer.url), pages.get(peer.url))
                for peer in self.peers.peers
            ],
            read_at=self.reachability.read_at,
            registered=share.registered,
            renewed_here=held,
            renewed_share=share.share_of_instances,
            share_warning=share.warning_sentence,
            # Not by the last reading: while no server answers, none ends.
            renewals_last_minute=counts.accepted_last_minute / self._servers_per_renewal,
            expected_renewals_per_minute=share.expected_renewals_per_minute,
            accepted_renewals=counts.accepted,
            missing_renewals=counts.missing,
            failed_renewals=counts.failed,
            overdue_seconds=counts.overdue_seconds,
            refused_instances=counts.refused_instances,
            renewed_for_stacks=[one for one in self.renewals.renewed_instances() if is_owned_by_stack(one)]
            if in_full
            else [],
            may_have_lost_memory=self.restarts.may_have_lost_memory,
        )

    def start_leading(self, expected: int) -> None:
        """Begin to renew the instances in the list of one server that every client gets; see :mod:`.reader`.

        Instances that only other servers hold are looked for soon after.
        """
        self._expected = expected
        self.renewals.resume()
        self.reader.read_as_new_leader(may_follow_another_leader=self._may_follow_another_leader())

    def stand_by(self) -> None:
        self.renewals.stand_by()
        self.table.stand_by()
        self.reader.stand_by()
        self.stacks.stand_by()

    def refresh(self, keys: Iterable[InstanceKey], *, include_known: bool = False) -> None:
        """Read instances past the caches: with ``include_known`` all of them, else only unknown ones, and
        only until the first list after a take-over.

        An instance that is not found is renewed no more. The owner of an unknown one is notified, since the
        instance may be in the way of the caller's.
        """
        if not include_known and not self.reachability.awaits_list_after_takeover:
            return
        asked = [key for key in keys if include_known or self.table.is_key_unused(key)]
        for key, found in read_instances(self.peers, asked).items():
            if found is None:
                self.renewals.remove(key)
                if cluster_part_of_id(key[0], self._ownership.cluster.name) in key[1]:
                    self.table.store_confirmed_absence(key)
                else:
                    self.table.store_unconfirmed_absence(key)
            else:
                is_news = not self.table.has_instance(key)
                self.table.store_read_instance(found)
                self.table.notify_owners([found.owner] if is_news else ())

    def _after_reading(self, registered: int) -> None:
        """Notify the followers of a reading; log once when this operator's share becomes a danger."""
        self.table.forget_departures_of_registered()
        count, before = len(self.renewals), self._share.warning_sentence
        self._servers_per_renewal = len(self.peers.peers) if self.peers.uses_batches(count) else 1
        self._share = share = RenewalShare.of_list(count, registered)
        if share.warning_sentence and not before:
            _log.warning(
                "renewing a large share of Eureka's instances, going on: Eureka keeps them if this process "
                "stops",
                extra={"hint": share.warning_sentence},
            )
        for was_read in self._followers:
            was_read()
