"""One Eureka cluster behind the door that every registry has: its parts are built here, and used by it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor

from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.liveness import Liveness
from eurekube_provider.core.mirror_source import UnlistedInstances
from eurekube_provider.core.model import Instance, Key
from eurekube_provider.core.plan import Outcome, Plan
from eurekube_provider.core.registry import Condition, Figures, RegistryListener
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.registry.coalescing import Coalescer
from eurekube_provider.eureka.registry.front_pages import FrontPages
from eurekube_provider.eureka.registry.known_instances import KnownInstances
from eurekube_provider.eureka.registry.late_write_repair import LateWriteRepair
from eurekube_provider.eureka.registry.list_lag import ListLag
from eurekube_provider.eureka.registry.ownership import Ownership
from eurekube_provider.eureka.registry.reachability import Reachability
from eurekube_provider.eureka.registry.recovery import Recovery
from eurekube_provider.eureka.registry.removal_proofs import RemovalProofs
from eurekube_provider.eureka.registry.renewals import Renewals
from eurekube_provider.eureka.registry.restart_detection import RestartDetection
from eurekube_provider.eureka.registry.resync import Resync
from eurekube_provider.eureka.registry.stack_renewals import StackRenewals
from eurekube_provider.eureka.registry.subscription import Subscription
from eurekube_provider.eureka.registry.sweeper import Sweeper
from eurekube_provider.eureka.rules import is_of_stack
from eurekube_provider.eureka.uncached_reads import read_each
from eurekube_provider.eureka.writer import Writer

APPLY_THREADS = 8
"""How many changes of one kind are under way at once."""


class EurekaRegistry:
    """One Eureka cluster as this operator sees it; a :class:`~eurekube_provider.core.registry.Registry`.

    :param check_cluster: whether the first read looks for another cluster of our name; one that is found ends
        all work, see :class:`~eurekube_provider.core.registry.Refused`.
    :param follows_another: whether another replica may have led a moment ago when this one comes to lead.
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
        follows_another: Callable[[], bool] = lambda: True,
        renewal_interval_seconds: float = windows.RENEWAL_INTERVAL,
    ) -> None:
        self.peers = peers
        self.subscription = told = Subscription()
        self.reachability = Reachability(peers)
        self.list_lag = ListLag()
        ownership = Ownership(cluster, operator_name, checks_cluster=check_cluster)
        self.table = peers.table
        self.renewals = Renewals(peers, interval_seconds=renewal_interval_seconds)
        self.restarts = RestartDetection(peers, self.renewals.renew_all_now)
        self.repair = LateWriteRepair(peers, self.table, self.renewals, ownership, told)
        self.sweeper = Sweeper(
            peers,
            is_registered=self.table.holds,
            came_back=self.renewals.renew_soon,
            came_late=self.repair.came_late,
            servers_behind=lambda: self.restarts.servers_behind,
        )
        self.instances = KnownInstances(
            peers,
            self.table,
            self.renewals,
            self.sweeper,
            self.reachability,
            self.list_lag,
            self.restarts,
            ownership,
            told,
        )
        self.writer = Writer(peers, self.instances)
        self.stack_renewals = StackRenewals(
            peers, self.table, self.renewals, self.restarts, ownership, self.writer.restore
        )
        self.recovery = Recovery(peers, self.instances, self.restarts, self.stack_renewals, ownership, told)
        self.resync = Resync(
            peers,
            self.instances,
            self.reachability,
            self.list_lag,
            self.restarts,
            self.stack_renewals,
            ownership,
            told,
            cluster,
            resync_seconds,
            checks_cluster=check_cluster,
        )
        self.renewals.tell(self.recovery)
        self._follows_another = follows_another
        self._expected = 0
        self._proofs: RemovalProofs | None = None
        self._front_pages = FrontPages(peers.peers)
        self._executor = ThreadPoolExecutor(APPLY_THREADS, thread_name_prefix="apply")
        self._coalescer = Coalescer(self.writer, self._executor)

    @classmethod
    def connected(
        cls,
        connection: Connection,
        cluster: Cluster,
        operator_name: str,
        resync_seconds: float,
        *,
        may_write: Callable[[], bool] = lambda: True,
        waits_for_all: bool = False,
        check_cluster: bool = False,
        follows_another: Callable[[], bool] = lambda: True,
    ) -> EurekaRegistry:
        """The Eureka of a connection.

        :param may_write: asked before each change.
        :param waits_for_all: see :class:`~eurekube_provider.eureka.peers.Peers`.
        """
        return cls(
            Peers(connection, may_write, waits_for_all=waits_for_all),
            cluster,
            operator_name,
            resync_seconds,
            check_cluster=check_cluster,
            follows_another=follows_another,
        )

    def start(self, listener: RegistryListener | None = None) -> None:
        """Begin to read, and to renew with :meth:`take_over`."""
        self.subscription.listener = listener or self.subscription.listener
        self.renewals.stand_by()
        self.renewals.start()
        self.sweeper.start()
        self.resync.start()

    def stop(self) -> None:
        """Read, renew and change nothing more; nothing is removed."""
        self.resync.stop()
        self.repair.stop()
        self._executor.shutdown(wait=False, cancel_futures=True)
        self.renewals.stop()
        self.sweeper.stop()
        self.peers.close()

    def liveness(self) -> list[Liveness]:
        """The threads that read, renew and sweep."""
        return [*self.resync.liveness(), *self.renewals.liveness(), *self.sweeper.liveness()]

    def condition(self) -> Condition:
        """Whether the registry was read, and answers."""
        return self.reachability.condition()

    def known(self, *, owner: str = "", application: str = "") -> list[Instance]:
        """What is known to be there: of an owner, of an application, of both, or all.

        Of an owner, or of an application, without what another cluster of our name registered.
        """
        there = self.table.known(owner, application)
        if not (owner or application):
            return there
        return [one for one in there if not self.instances.is_of_another_cluster(one)]

    def get(self, key: Key) -> Instance | None:
        """One instance, as far as known."""
        return self.table.get(key)

    def owners(self, *, called: str = "") -> set[str]:
        """Who has instances, or has some that callers find by this name."""
        return set(self.table.owners_called(called)) if called else self.table.owners()

    def up(self, *, owner: str = "", cluster: str = "") -> int:
        """How many instances of an owner, or of a cluster's syncers, are UP."""
        return self.table.up(owner=owner, cluster=cluster)

    def apply(self, plan: Plan, owner: str) -> Outcome:
        """Carry out a plan on behalf of ``owner``, alone or with others' that wait as well."""
        return self._coalescer.apply(plan, owner, leases=max(self._expected, len(self.renewals)))

    def keep(self, instance: Instance) -> None:
        """Renew what stands there already."""
        if instance.key not in self.renewals and not self.instances.is_of_another_cluster(instance):
            self.renewals.add(instance, just_registered=False)

    def let_lapse(self, instance: Instance) -> None:
        """Renew what stands there no more, and leave it to Eureka to forget it."""
        if instance.key in self.renewals:
            self.renewals.remove(instance.key)

    def forgotten(self, owner: str) -> list[Instance]:
        """What an owner had, and Eureka lost when it began anew."""
        return self.table.lost(owner)

    def give_up(self, owner: str, wanted: Collection[Key] = ()) -> None:
        """Let what Eureka forgot of an owner be."""
        self.table.give_up(owner, wanted)

    def follow(self, was_read: Callable[[], None]) -> None:
        """Have ``was_read`` called after each reading, and keep the proofs that :meth:`find_unlisted` needs.

        Before :meth:`start`.
        """
        self._proofs = proofs = RemovalProofs(self.peers, self.table, self.restarts)
        self.resync.fetcher.removals_seen = self.table.left

        def read() -> None:
            proofs.forget()
            was_read()

        self.resync.was_read = read
        self.resync.is_followed = True

    def find_unlisted(self, keys: Iterable[Key]) -> UnlistedInstances:
        """Find out what became of instances that are listed no more.

        :raises RegistryError: no server answers.
        """
        return self._proofs.find_unlisted(keys) if self._proofs is not None else UnlistedInstances()

    def figures(self, *, in_full: bool = False) -> Figures:
        """What metrics tell; in full, also what the servers' front pages show."""
        share, counts, started = self.resync.share, self.renewals.counts, self.restarts.started_by_url
        pages = {peer.url: self._front_pages.latest(peer.url) for peer in self.peers.peers if in_full}
        return Figures(
            servers=[
                peer.traffic.figures(peer.url, started.get(peer.url), pages.get(peer.url))
                for peer in self.peers.peers
            ],
            read_at=self.reachability.read_at,
            registered=share.registered,
            held=len(self.renewals),
            share=share.share,
            warning=share.warning,
            renewals_last_minute=share.renewals_last_minute,
            renewals_expected=share.renewals_expected,
            accepted=counts.accepted,
            missing=counts.missing,
            failed=counts.failed,
            late_seconds=self.renewals.late_seconds,
            refused=self.renewals.refused,
            for_stacks=[one for one in self.renewals.held() if is_of_stack(one)] if in_full else [],
        )

    def take_over(self, expected: int) -> None:
        """Begin to renew, from the list that every client gets, of one server; see :mod:`.list_lag`.

        What only other servers hold is looked for soon after.
        """
        self._expected = expected
        if self._follows_another():
            self.list_lag.begin()
        self.renewals.resume()
        self.resync.take_over()

    def stand_by(self) -> None:
        """End renewals, those in flight included: another replica renews. Reading goes on."""
        self.renewals.stand_by()
        self.table.stand_by()
        self.resync.stand_by()
        self.stack_renewals.stand_by()

    def refresh(self, keys: Iterable[Key], *, known_too: bool = False) -> None:
        """Read what another replica may have registered so shortly before that no list shows it yet."""
        if not known_too and not self.list_lag.lasts:
            return
        asked = [key for key in keys if known_too or self.table.is_new(key)]
        for key, found in read_each(self.peers, asked).items():
            if found is None:
                self.table.gone(key)
            else:
                self.table.found(found)
