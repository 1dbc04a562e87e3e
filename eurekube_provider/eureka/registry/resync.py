"""The readings of one Eureka, again and again.

A list only suggests: what it says against our own knowledge is checked by an uncached read before anybody
acts on it.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field

from eurekube_provider.core.errors import ConfigurationError, RegistryError
from eurekube_provider.core.identity import CLUSTER_UID_KEY, Cluster
from eurekube_provider.core.liveness import Liveness, liveness_of
from eurekube_provider.core.model import Instance, Key
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.registry.known_instances import KnownInstances
from eurekube_provider.eureka.registry.list_lag import ListLag
from eurekube_provider.eureka.registry.ownership import Ownership
from eurekube_provider.eureka.registry.reachability import Reachability
from eurekube_provider.eureka.registry.registry_fetcher import RegistryFetcher
from eurekube_provider.eureka.registry.restart_detection import RestartDetection
from eurekube_provider.eureka.registry.stack_renewals import StackRenewals
from eurekube_provider.eureka.registry.subscription import Subscription
from eurekube_provider.eureka.self_preservation import RenewalShare

_log = logging.getLogger(__name__)

FEWEST_TO_WARN_OF = 20
"""In smaller registries a share says little."""


@dataclass(eq=False, repr=False)
class Resync:
    """The readings of one Eureka, on a thread of their own.

    :ivar checks_cluster: whether the first reading looks for another cluster of the name.
    :ivar share: our part in the registry, at the last reading.
    """

    _peers: Peers
    _known: KnownInstances
    _reachability: Reachability
    _list_lag: ListLag
    _restarts: RestartDetection
    _stack_renewals: StackRenewals
    _ownership: Ownership
    _subscription: Subscription
    _cluster: Cluster
    _resync_seconds: float
    _: KW_ONLY
    checks_cluster: bool
    share: RenewalShare = field(default=RenewalShare(0, 0, 0.0), init=False)
    reads_everywhere: bool = field(default=False, init=False)
    _unlisted: set[str] = field(default_factory=set, init=False)
    """The servers that could not be listed since this replica came to lead."""

    def __post_init__(self) -> None:
        self.fetcher = RegistryFetcher(self._peers)
        self.was_read: Callable[[], None] = lambda: None
        """Called after each reading that was learnt from, on the thread that reads."""
        self.is_followed = False
        """Whether somebody follows all that is listed, so that it is read more often while it changes."""
        self._listed: list[Instance] = []
        self._has_told_of_cluster = False
        self._changed_lately_until = -windows.FOLLOWED
        self._reading = threading.Lock()
        self._stopped = threading.Event()
        self._went_round_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="registry", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._went_round_at = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Read no more."""
        self._stopped.set()

    def liveness(self) -> list[Liveness]:
        """The thread that reads."""
        age = time.monotonic() - self._went_round_at
        return liveness_of([self._thread], age, self._resync_seconds + windows.LONGEST_READING)

    def take_over(self) -> None:
        """Read what there is, to begin to renew; a failure is found again by the next reading."""
        try:
            self.read(takes_over=True)
        except ConfigurationError as error:
            self._refuse(error)
        except RegistryError as error:
            _log.warning("Eureka cannot be read", extra={"error": str(error)})
            if self._reachability.failed(error):
                self._subscription.condition_changed()

    def stand_by(self) -> None:
        """Forget what only holds for who leads."""
        self._unlisted.clear()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self.read()
            except ConfigurationError as error:
                self._refuse(error)
                return
            except RegistryError as error:
                if str(self._reachability.failure) != str(error):
                    _log.warning("Eureka cannot be read", extra={"error": str(error)})
                if self._reachability.failed(error):
                    self._subscription.condition_changed()
            except Exception:  # noqa: BLE001 - the thread must read again
                _log.exception("Eureka could not be read")
            self._went_round_at = time.monotonic()
            fast = self._reachability.failure is not None or not self._reachability.was_read
            seconds = windows.RESTART_CHECK if fast else self.interval_seconds
            try:
                self._rest(min(seconds, self._resync_seconds))
            except Exception:  # noqa: BLE001 - as above
                _log.exception("Eureka's servers could not be asked")
                self._stopped.wait(windows.RESTART_CHECK)

    @property
    def interval_seconds(self) -> float:
        """Between two readings that went well.

        Servers make their answers anew each half minute, and an answer that is the same costs little.
        """
        has_changed_lately = self.is_followed and time.monotonic() < self._changed_lately_until
        longest = windows.FOLLOWED_INTERVAL if has_changed_lately else self._resync_seconds
        return min(longest, self._resync_seconds)

    def _refuse(self, why: ConfigurationError) -> None:
        self._reachability.refuse(why)
        self._subscription.condition_changed()

    def _rest(self, seconds: float) -> None:
        """Wait until the next reading."""
        until = time.monotonic() + seconds
        while not self._stopped.wait(min(windows.RESTART_CHECK, max(0.0, until - time.monotonic()))):
            if (
                time.monotonic() >= until
                or self.reads_everywhere
                or self._list_lag.ends_with(time.monotonic())
            ):
                return
            if not self._known.renewals.stands_by:
                self._restarts.notice()
                self.catch_up()
                self._stack_renewals.check()

    def read(self, *, takes_over: bool = False) -> None:
        """Read the registry once, and learn from it.

        :param takes_over: from the list that every client gets, of one server; what only others hold is
            looked for soon after.
        :raises RegistryError: it cannot be read.
        :raises ConfigurationError: another cluster uses our name.
        """
        with self._reading:
            asked_at = time.monotonic()
            # Also finds out which server does not answer, before one of them is asked for a list.
            self._restarts.notice(windows.SHORT_GRACE if takes_over else None)
            are_several = len(self._peers.peers) > 1
            if takes_over:
                self.reads_everywhere = are_several
            # What a server that was restarted does not list may stand on the others.
            reads_everywhere = self.reads_everywhere or self._list_lag.ends_with(asked_at)
            everywhere = are_several and (self._restarts.lost_memory or (reads_everywhere and not takes_over))
            silent: Mapping[str, RegistryError] = {}
            has_deferred_list = False
            if everywhere:
                listed, silent = self._peers.list_everywhere()
            else:
                in_doubt = takes_over or self._is_in_doubt
                listed = self.fetcher.read(self._restarts.started_by_url, in_doubt=in_doubt)
                has_deferred_list = self.fetcher.has_deferred_list
            if takes_over:
                self._known.table.doubt()
            self.learn(listed, is_complete=not silent)
            if has_deferred_list:
                self._stopped.wait(windows.DEFERRED_LIST)
                self.learn(self.fetcher.read_deferred_list(), is_complete=True)
            if everywhere:
                self.reads_everywhere = False
                if self._list_lag.lasts:
                    self._unlisted = set(silent)
            if self._list_lag.ends_with(asked_at) and (everywhere or not are_several):
                self._list_lag.end()
        if not takes_over:  # else soon, on the thread that reads: nothing else waits for it
            self._stack_renewals.check()

    def catch_up(self) -> None:
        """List the servers that could not be listed since this replica came to lead, once they answer.

        What the leader before removed meanwhile may still stand there, and nobody else knows: it is looked at
        by its owner. Of stacks' registrations it says nothing, since they would be renewed.
        """
        for peer in self._peers.asked_first if self._unlisted else ():
            if peer.url not in self._unlisted:
                continue
            try:
                listed = peer.list_instances()
            except RegistryError:
                continue  # looked at again soon
            self._unlisted.discard(peer.url)
            left = [
                one
                for one in listed
                if self._ownership.is_syncers(one) and self._known.table.get(one.key) is None
            ]
            news, _ = self._known.table.merge(left, is_complete=False)
            self._subscription.owners_changed(
                one.owner for one in (*news, *self._left_out_of_service(listed))
            )

    def _left_out_of_service(self, listed: Iterable[Instance]) -> list[Instance]:
        """Take instances as leaving that one server shows so, and the others do not."""
        table, left = self._known.table, []
        for one in listed:
            known = table.get(one.key) if one.is_leaving and self._ownership.is_syncers(one) else None
            if known is not None and not known.is_leaving:
                table.found(one)
                left.append(one)
        return left

    @property
    def _is_in_doubt(self) -> bool:
        """Whether the list itself is to be read, whatever deltas say.

        Behind a load balancer each answer may be another server's; a take-over waits for the first list that
        shows everything. A start waits for the first list of all, and for no delta beside it: after many
        changes that is larger than the list.
        """
        return (
            not self._reachability.was_read
            or self._reachability.failure is not None
            or self._list_lag.lasts
            or self._restarts.lost_memory
            or self._restarts.servers_behind > 1
        )

    def learn(self, listed: list[Instance], *, is_complete: bool) -> None:
        """Learn from a list of the whole registry."""
        if self.checks_cluster and not self._reachability.was_read:
            # Before anything of it is known: what another cluster of this name holds would be taken for ours.
            refuse_cluster_of_same_name(self._peers, self._cluster, listed)
        listed = self._known.table.marked(listed)
        if self.is_followed:
            if self._listed and listed != self._listed:
                self._changed_lately_until = time.monotonic() + windows.FOLLOWED
            self._listed = listed
        news, doubts = self._known.table.merge(
            listed, is_complete=is_complete, is_forgotten=self._restarts.lost_memory
        )
        was_away = self._reachability.answered()
        self._subscription.owners_changed({instance.owner for instance in news} | self._owners_beside(news))
        self._known.renew_no_more(news)
        self._tell_of_another_cluster(news)
        for key in doubts:
            self._settle(key)
        self._stack_renewals.take(listed)
        self._gauge(len(listed))
        is_first = self._reachability.read()
        if is_first:
            _log.info("Eureka was read", extra={"instances": len(listed)})
        elif was_away:
            _log.warning("Eureka answers again")
        if is_first or was_away:
            self._subscription.condition_changed()
        self.was_read()

    def _tell_of_another_cluster(self, news: Sequence[Instance]) -> None:
        """Say once that another cluster uses our name, which had nothing registered when this one started."""
        theirs = next((one for one in news if self._ownership.is_of_another_cluster(one)), None)
        if theirs is not None and not self._has_told_of_cluster:
            self._has_told_of_cluster = True
            _log.error(
                "another cluster uses this cluster's name: what it registers is left as it is",
                extra={
                    "application": theirs.application,
                    "instance": theirs.instance_id,
                    "hint": "set another --cluster-name for one of them",
                },
            )

    def _owners_beside(self, news: Sequence[Instance]) -> set[str | None]:
        """Who has instances in applications of which another one is news that registered itself."""
        names = {instance.application for instance in news if instance.owner is None}
        return {one.owner for name in names for one in self._known.table.application(name)}

    def _gauge(self, registered: int) -> None:
        """Measure our part in the registry; say so once when it has become a danger."""
        before, renewals = self.share.warning, self._known.renewals
        servers = len(self._peers.peers) if self._peers.uses_batches(len(renewals)) else 1
        self.share = RenewalShare(len(renewals), registered, renewals.last_minute / servers)
        if self.share.warning and not before and registered >= FEWEST_TO_WARN_OF:
            _log.warning(
                "a large part of Eureka depends on this operator", extra={"hint": self.share.warning}
            )

    def _settle(self, key: Key) -> None:
        """Read an instance of which a list contradicts what we knew, and tell whoever owns it."""
        before = self._known.table.get(key)
        now = self._peers.read(*key)
        if now is None:
            self._known.vanished(key)
        else:
            (now,) = self._known.table.marked([now])
            self._known.table.found(now)
            self._known.renew_no_more([now])
        self._subscription.owners_changed(one.owner for one in (before, now) if one is not None)


def refuse_cluster_of_same_name(peers: Peers, cluster: Cluster, listed: Sequence[Instance]) -> None:
    """Refuse to go on where another cluster uses our name, and would take our instances for its own.

    It is looked for on every server that answers: one that was restarted a moment ago holds nothing yet, and
    may be the one that ``listed`` is from.

    :raises ConfigurationError: it does.
    """
    lists: list[Sequence[Instance]] = [listed]
    if len(peers.peers) > 1:
        answers, _ = peers.each(lambda peer: peer.list_instances())
        lists += answers.values()
    for instance in itertools.chain.from_iterable(lists):
        uid = instance.metadata.get(CLUSTER_UID_KEY)
        if uid and uid != cluster.uid and cluster.syncer_of(instance.owner) is not None:
            raise ConfigurationError(
                f"the cluster name {cluster.name!r} is in use by another cluster:"
                f" {instance.application} {instance.instance_id} has UID {uid}, this cluster has"
                f" {cluster.uid}. Set another --cluster-name; or, if this cluster was rebuilt"
                " and the other is gone, --take-over-cluster true"
            )
