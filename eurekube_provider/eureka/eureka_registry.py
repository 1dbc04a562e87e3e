"""The operator's side of Eureka: what is there, who renews it, and what drifted.

Reads the whole registry again and again. A list only suggests: what it says against our own knowledge is
checked by an uncached read before anybody acts on it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from eurekube_provider.core.errors import ConfigurationError, RegistryError, RegistryUnreachable
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.liveness import Liveness, liveness_of
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.plan import Outcome, Plan
from eurekube_provider.core.registry import Condition, Figures, RegistryListener
from eurekube_provider.eureka.accepted_renewals import is_of_stack
from eurekube_provider.eureka.bulk import bring_level, read_many
from eurekube_provider.eureka.cluster_name_conflict import refuse_namesake
from eurekube_provider.eureka.coalescing import Convoys
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.forgotten import Lost
from eurekube_provider.eureka.front_pages import FigureReader
from eurekube_provider.eureka.handover import Handover
from eurekube_provider.eureka.late_writes import Late, overtaken
from eurekube_provider.eureka.peer import Peer
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.reachability import Reachability
from eurekube_provider.eureka.registry_fetcher import Listing
from eurekube_provider.eureka.renewals import INTERVAL_SECONDS, Renewals
from eurekube_provider.eureka.restart_detection import MEMORY_SECONDS, Restarts
from eurekube_provider.eureka.self_preservation import Gauges
from eurekube_provider.eureka.stack_renewals import Adopted
from eurekube_provider.eureka.sweeper import Sweeper
from eurekube_provider.eureka.uncached_reads import read_each
from eurekube_provider.eureka.view import View

_log = logging.getLogger(__name__)

Key = tuple[str, str]

FEWEST_TO_WARN_OF = 20
"""In smaller registries a share says little."""

RESTART_LOOK_SECONDS = 2.0
"""How often who renews asks each server since when it runs: one that lost its memory need not wait."""

TAKE_OVER_GRACE_SECONDS = 0.1
"""How long who takes over waits for the rest of the servers once one has said since when it runs, which takes
milliseconds. One that is only slow is asked again in :data:`RESTART_LOOK_SECONDS`."""

TOLD_WITHIN_SECONDS = 3.0
"""What a person sets at one server stands at the others by then."""

APPLY_THREADS = 8
"""So many changes of one kind are under way at once."""

LONGEST_ROUND_SECONDS = 600.0
"""Reading a large registry, and settling many doubts one by one, takes its time; longer is stuck."""


class _Nobody:
    """A listener that does nothing."""

    def owner_changed(self, owner: str) -> None:
        """Do nothing."""

    def condition_changed(self) -> None:
        """Do nothing."""


class EurekaRegistry:
    """One Eureka cluster as this operator sees it; a :class:`~eurekube_provider.core.registry.Registry`.

    An :class:`~eurekube_provider.eureka.observer.Observer`: what is applied is renewed and remembered. A
    :class:`~eurekube_provider.eureka.heartbeat_sender.Listener`: what renewals find out is looked after.

    :param check_cluster: whether the first read looks for another cluster of our name; one that is found ends
        all work, see :class:`~eurekube_provider.core.registry.Refused`.
    :param follows_another: whether another replica may have led a moment ago when this one comes to lead.
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
        renewal_interval_seconds: float = INTERVAL_SECONDS,
    ) -> None:
        self.peers = peers
        self.listener: RegistryListener = _Nobody()
        self.view = View()
        self.reachability = Reachability(peers)
        self._listing = Listing(peers)
        self.renewals = Renewals(peers, self, interval_seconds=renewal_interval_seconds)
        self.restarts = Restarts(peers, self.renewals.renew_all_now)
        self.adopted = Adopted(peers, self.view, self.renewals, self.restarts, operator_name, self.registered)
        self.sweeper = Sweeper(
            peers,
            is_registered=lambda key: self.view.get(key) is not None,
            came_back=self.renewals.renew_soon,
            came_late=self._came_late,
            servers_behind=lambda: self.restarts.servers_behind,
        )
        self._late = Late()
        peers.unanswered = self._unanswered
        peers.unanswered_many = self._late.note_many
        peers.overriding = self._overriding
        self._gauges = Gauges(0, 0, 0.0)
        self._front_pages = FigureReader(peers.peers)
        self._executor = ThreadPoolExecutor(APPLY_THREADS, thread_name_prefix="apply")
        self._convoys = Convoys(peers, self._executor)
        self._cluster = cluster
        self._resync_seconds = resync_seconds
        self._checks_cluster = check_cluster
        self._follows_another = follows_another
        self._stopped = threading.Event()
        self._expected_leases = 0
        self._lost_overrides: dict[Key, Status] = {}
        self._lost = Lost()
        self._former_owners: dict[Key, set[str]] = {}
        """Of what was handed over while this replica leads: a server that is away may know of it, or not."""
        self._looks_everywhere = False
        self._unlisted: set[str] = set()
        """The servers that could not be listed since this replica came to lead."""
        self._handover = Handover()
        self._reading = threading.Lock()
        self._went_round_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="registry", daemon=True)

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
        self.listener = listener or self.listener
        self.renewals.stand_by()
        self.renewals.start()
        self.sweeper.start()
        self._went_round_at = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Read, renew and change nothing more; nothing is removed."""
        self._stopped.set()
        self._executor.shutdown(wait=False, cancel_futures=True)
        self.renewals.stop()
        self.sweeper.stop()
        self.peers.close()

    def liveness(self) -> list[Liveness]:
        """The threads that read, renew and sweep."""
        age = time.monotonic() - self._went_round_at
        reading = liveness_of([self._thread], age, self._resync_seconds + LONGEST_ROUND_SECONDS)
        return [*reading, *self.renewals.liveness(), *self.sweeper.liveness()]

    def condition(self) -> Condition:
        """Whether it was read, and answers."""
        return self.reachability.condition()

    def known(self, *, owner: str = "", application: str = "") -> list[Instance]:
        """What is known to be there: of an owner, of an application, of both, or all."""
        return self.view.known(owner, application)

    def get(self, key: Key) -> Instance | None:
        """One instance, as far as known."""
        return self.view.get(key)

    def owners(self, *, called: str = "") -> set[str]:
        """Who has instances, or has some that callers find by this name."""
        return set(self.view.owners_called(called)) if called else self.view.owners()

    def up(self, *, owner: str = "", cluster: str = "") -> int:
        """How many instances of an owner, or of a cluster's syncers, are UP."""
        return self.view.up(owner=owner, cluster=cluster)

    def apply(self, plan: Plan, owner: str) -> Outcome:
        """Carry out a plan on behalf of ``owner``, alone or with others' that wait as well.

        :raises LeadershipLost: this replica may not change anything.
        """
        return self._convoys.apply(plan, owner, self, leases=max(self._expected_leases, len(self.renewals)))

    def keep(self, instance: Instance) -> None:
        """Renew what stands there already."""
        if instance.key not in self.renewals:
            self.renewals.add(instance, just_registered=False)

    def let_lapse(self, instance: Instance) -> None:
        """Renew what stands there no more, and leave it to Eureka to forget it."""
        if instance.key in self.renewals:
            self.renewals.remove(instance.key)

    def forgotten(self, owner: str) -> list[Instance]:
        """What an owner had, and Eureka lost when it began anew."""
        return self._lost.of(owner)

    def give_up(self, owner: str) -> None:
        """Let what Eureka forgot of an owner be."""
        self._lost.forget(owner)

    def figures(self, *, in_full: bool = False) -> Figures:
        """What metrics tell; in full, also what the servers' front pages show."""
        gauges, counts, started = self._gauges, self.renewals.counts, self.restarts.started_by_url
        pages = {peer.url: self._front_pages.latest(peer.url) for peer in self.peers.peers if in_full}
        return Figures(
            servers=[
                peer.traffic.figures(peer.url, started.get(peer.url), pages.get(peer.url))
                for peer in self.peers.peers
            ],
            read_at=self.reachability.read_at,
            registered=gauges.registered,
            held=len(self.renewals),
            share=gauges.share,
            warning=gauges.warning,
            renewals_last_minute=gauges.renewals_last_minute,
            renewals_expected=gauges.renewals_expected,
            accepted=counts.accepted,
            missing=counts.missing,
            failed=counts.failed,
            late_seconds=self.renewals.late_seconds,
            refused=self.renewals.refused,
            for_stacks=[one for one in self.renewals.held() if is_of_stack(one)] if in_full else [],
        )

    def take_over(self, expected: int) -> None:
        """Begin to renew, from the list that every client gets, of one server; see :mod:`.handover`.

        What only other servers hold is looked for soon after.
        """
        self._expected_leases = expected
        if self._follows_another():
            self._handover.begin()
        self.renewals.resume()
        try:
            self.resync(takes_over=True)
        except ConfigurationError as error:
            self._refuse(error)
        except RegistryError as error:
            _log.warning("Eureka cannot be read", extra={"error": str(error)})
            if self.reachability.failed(error):
                self.listener.condition_changed()

    def refresh(self, keys: Iterable[Key], *, known_too: bool = False) -> None:
        """Read what another replica may have registered so shortly before that no list shows it yet.

        Does nothing once lists can be believed, but by ``known_too``.

        :param known_too: also what a list shows, perhaps wrongly.
        :raises RegistryError: no server answers.
        """
        if not known_too and not self._handover.lasts:
            return
        for key, found in read_each(
            self.peers, [key for key in keys if known_too or self.view.is_new(key)]
        ).items():
            if found is None:
                self.view.gone(key)
            else:
                self.view.registered(found)

    def resync(self, *, takes_over: bool = False) -> None:
        """Read it once now, as its thread does again and again.

        :param takes_over: this replica comes to lead; see :meth:`take_over`.
        :raises RegistryError: it cannot be read.
        :raises ConfigurationError: it must not be worked on.
        """
        with self._reading:
            asked_at = time.monotonic()
            # Also finds out which server does not answer, before one of them is asked for a list.
            self.restarts.notice(TAKE_OVER_GRACE_SECONDS if takes_over else None)
            are_several = len(self.peers.peers) > 1
            if takes_over:
                self._looks_everywhere = are_several
            # What a server that was restarted does not list may stand on the others.
            looks_everywhere = self._looks_everywhere or self._handover.ends_with(asked_at)
            everywhere = are_several and (self.restarts.lost_memory or (looks_everywhere and not takes_over))
            silent: Mapping[str, RegistryError] = {}
            if everywhere:
                listed, silent = self.peers.list_everywhere()
            else:
                in_doubt = takes_over or self._is_in_doubt
                listed = self._listing.read(self.restarts.started_by_url, in_doubt=in_doubt)
            if takes_over:
                self.view.doubt()
            self.learn(listed, is_complete=not silent)
            if everywhere:
                self._looks_everywhere = False
                if self._handover.lasts:
                    self._unlisted = set(silent)
            if self._handover.ends_with(asked_at) and (everywhere or not are_several):
                self._handover.end()
        if not takes_over:  # else soon, on the thread that reads: nothing else waits for it
            self.adopted.look()

    def learn(self, listed: list[Instance], *, is_complete: bool) -> None:
        """Learn from a list of the whole registry."""
        if self._checks_cluster and not self.reachability.was_read:
            # Before anything of it is known: what a namesake's syncers hold would be taken for ours.
            refuse_namesake(self.peers, self._cluster, listed)
        listed = self._late.marked(listed)
        overridden = self.view.overridden() if self.restarts.lost_memory else []
        news, doubts = self.view.merge(listed, is_complete=is_complete)
        for instance in overridden:
            if self.view.get(instance.key) is None:
                self._remember_override(instance)
        was_away = self.reachability.answered()
        for owner in {instance.owner for instance in news} | self._beside(news):
            if owner:
                self.listener.owner_changed(owner)
        self._renew_no_more(news)
        for key in doubts:
            self._settle(key)
        self.adopted.take(listed)
        self._gauge(len(listed))
        is_first = self.reachability.read()
        if is_first:
            _log.info("Eureka was read", extra={"instances": len(listed)})
        elif was_away:
            _log.warning("Eureka answers again")
        if is_first or was_away:
            self.listener.condition_changed()

    def stand_by(self) -> None:
        """Another replica renews: end it here, the renewals in flight included. Reading goes on."""
        self.renewals.stand_by()
        self.view.doubt()
        self._lost_overrides.clear()
        self._former_owners.clear()
        self._lost.clear()
        self._unlisted.clear()
        self.adopted.stand_by()

    def registered(self, instance: Instance) -> None:
        """See :class:`~eurekube_provider.eureka.observer.Observer`.

        Of two syncers that want the same at once, each may find the place empty: the one whose registration
        was written over is told, and says so.
        """
        self._lost_overrides.pop(instance.key, None)
        self._lost.stands(instance)
        known = self.view.get(instance.key)
        former = known.owner if known is not None and known.owner != instance.owner else ""
        if former:
            self._former_owners.setdefault(instance.key, set()).add(former)
        self.view.registered(instance)
        self.renewals.add(instance, just_registered=True)
        if former:
            self.listener.owner_changed(former)
        was_leaving = known is not None and known.is_leaving
        if instance.is_leaving and instance.is_overridden and not was_leaving and instance.owner:
            self.listener.owner_changed(instance.owner)  # an OUT_OF_SERVICE of ours that nobody knew of

    def leaving(self, instance: Instance) -> None:
        """See :class:`~eurekube_provider.eureka.observer.Observer`."""
        if not self._is_anothers(instance):
            self.renewals.remove(instance.key)

    def found(self, instance: Instance) -> None:
        """See :class:`~eurekube_provider.eureka.observer.Observer`.

        What another syncer of this operator holds is renewed for that one, and goes on to be. That one is
        told unless it was known: a server that was frozen while it handed the instance over told nobody of
        that, and the others show it as it was.
        """
        known = self.view.get(instance.key)
        self._lost.stands(instance)
        self.view.registered(instance)
        is_ours = self._is_ours(instance)
        if is_ours and known is not None and known.owner == instance.owner:
            return
        if known is not None or not is_ours:
            self.renewals.remove(instance.key)
        if is_ours and known is not None and known.owner and self._cluster.syncer_of(known.owner) is not None:
            self._former_owners.setdefault(instance.key, set()).add(known.owner)
        if instance.owner:
            self.listener.owner_changed(instance.owner)  # which may have begun to renew it meanwhile

    def gone(self, instance: Instance) -> None:
        """See :class:`~eurekube_provider.eureka.observer.Observer`."""
        if self._is_anothers(instance):
            return
        self._lost_overrides.pop(instance.key, None)
        self._lost.stands(instance)
        self.view.gone(instance.key)
        former = frozenset(self._former_owners.pop(instance.key, ()))
        self.sweeper.removed(self._late.newest(instance), former)

    def is_known(self, owner: str) -> bool:
        """See :class:`~eurekube_provider.eureka.observer.Observer`."""
        return self.view.count(owner) > 0

    def is_new(self, key: Key) -> bool:
        """See :class:`~eurekube_provider.eureka.observer.Observer`."""
        if self.reachability.failure or not self.reachability.was_read:
            return False
        if self._handover.lasts or self.restarts.lost_memory:
            return False
        return key not in self._lost_overrides and self.view.is_new(key)

    def lost_override(self, key: Key) -> Status:
        """See :class:`~eurekube_provider.eureka.observer.Observer`."""
        return self._lost_overrides.get(key, Status.UNKNOWN)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self.resync()
            except ConfigurationError as error:
                self._refuse(error)
                return
            except RegistryError as error:
                if str(self.reachability.failure) != str(error):
                    _log.warning("Eureka cannot be read", extra={"error": str(error)})
                if self.reachability.failed(error):
                    self.listener.condition_changed()
            except Exception:  # noqa: BLE001 - the thread must look again
                _log.exception("Eureka could not be read")
            self._went_round_at = time.monotonic()
            fast = self.reachability.failure is not None or not self.reachability.was_read
            self._rest(min(2.0, self._resync_seconds) if fast else self._resync_seconds)

    def _refuse(self, why: ConfigurationError) -> None:
        self.reachability.refuse(why)
        self.listener.condition_changed()

    def _rest(self, seconds: float) -> None:
        """Wait until the next reading."""
        until = time.monotonic() + seconds
        while not self._stopped.wait(min(RESTART_LOOK_SECONDS, max(0.0, until - time.monotonic()))):
            if (
                time.monotonic() >= until
                or self._looks_everywhere
                or self._handover.ends_with(time.monotonic())
            ):
                return
            if not self.renewals.stands_by:
                self.restarts.notice()
                self._catch_up()
                self.adopted.look()

    def _catch_up(self) -> None:
        """List the servers that could not be listed since this replica came to lead, once they answer.

        What the leader before removed meanwhile may still stand there, and nobody else knows: it is looked at
        by its owner. Of stacks' registrations it says nothing, since they would be renewed.
        """
        for peer in self.peers.asked_first if self._unlisted else ():
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
                if self._cluster.syncer_of(one.owner) is not None and self.view.get(one.key) is None
            ]
            news, _ = self.view.merge(left, is_complete=False)
            for owner in {one.owner for one in news}:
                if owner:
                    self.listener.owner_changed(owner)

    @property
    def _is_in_doubt(self) -> bool:
        """Whether the list itself is to be read, whatever deltas say.

        Behind a load balancer each answer may be another server's; a take-over waits for the first list that
        shows everything. A start waits for the first list of all, and for no delta beside it: after many
        changes that is larger than the list.
        """
        return (
            not self.reachability.was_read
            or self.reachability.failure is not None
            or self._handover.lasts
            or self.restarts.lost_memory
            or self.restarts.servers_behind > 1
        )

    def _beside(self, news: Sequence[Instance]) -> set[str | None]:
        """Who has instances in applications of which another one is news that registered itself."""
        names = {instance.application for instance in news if instance.owner is None}
        return {one.owner for name in names for one in self.view.application(name)}

    def _gauge(self, registered: int) -> None:
        """Measure our part in the registry; say so once when it has become a danger."""
        before = self._gauges.warning
        lanes = len(self.peers.peers) if self.peers.uses_batches(len(self.renewals)) else 1
        self._gauges = Gauges(len(self.renewals), registered, self.renewals.last_minute / lanes)
        if self._gauges.warning and not before and registered >= FEWEST_TO_WARN_OF:
            _log.warning(
                "a large part of Eureka depends on this operator", extra={"hint": self._gauges.warning}
            )

    def _settle(self, key: Key) -> None:
        """A list contradicts what we knew: look, and tell whoever owns it."""
        before = self.view.get(key)
        now = self.peers.read(*key)
        if now is None:
            self._vanished(key)
        else:
            (now,) = self._late.marked([now])
            self.view.registered(now)
            self._renew_no_more([now])
        for instance in (before, now):
            if instance is not None and instance.owner:
                self.listener.owner_changed(instance.owner)

    def _is_ours(self, instance: Instance) -> bool:
        """Whether it is a syncer's of this cluster, or a stack's that asks this operator to renew it."""
        return self._cluster.syncer_of(instance.owner) is not None or self.adopted.is_ours(instance)

    def _renew_no_more(self, instances: Sequence[Instance]) -> None:
        """What somebody else has taken over would never lapse, were it renewed here as well."""
        for instance in instances:
            if instance.key not in self.renewals or self._is_ours(instance):
                continue
            _log.info(
                "renewing no more what somebody else has taken over",
                extra={"instance": instance.instance_id, "owner": instance.owner or ""},
            )
            ours = self.renewals.remove(instance.key)
            if ours is not None and ours.owner:
                self.listener.owner_changed(ours.owner)

    def missing(self, instances: Sequence[Instance], peer: Peer | None) -> None:
        """See :class:`~eurekube_provider.eureka.heartbeat_sender.Listener`."""
        lost = instances
        if peer is not None:
            removed = self._removed_from(peer, instances)
            lost = self._level([one for one in instances if one.key not in removed], peer)
            lost += [one for one in instances if one.key in removed]
        if not lost:
            return
        ours = [instance for instance in lost if not is_of_stack(instance)]
        if ours and not self.restarts.lost_memory:
            self.restarts.notice()
        for instance in ours:
            self.renewals.remove(instance.key)
            if self._may_be_forgotten:
                self._lost.note(self.view.get(instance.key) or instance)
            self._vanished(instance.key)
        if ours:
            _log.warning("instances of ours are missing in Eureka", extra={"count": len(ours)})
        for owner in {instance.owner for instance in ours}:
            if owner:
                self.listener.owner_changed(owner)
        for instance in lost:
            if is_of_stack(instance):
                self.adopted.lost(instance)

    def newer(self, stored: Instance) -> None:
        """See :class:`~eurekube_provider.eureka.heartbeat_sender.Listener`."""
        known = self.view.get(stored.key)
        self.view.registered(stored)
        if self._is_ours(stored) and (known is None or known.owner == stored.owner):
            self.renewals.add(stored, just_registered=True)
        else:
            self.renewals.remove(stored.key)
        for owner in {stored.owner, known.owner if known else None}:
            if owner:
                self.listener.owner_changed(owner)

    def answers_again(self, peer: Peer) -> None:
        """See :class:`~eurekube_provider.eureka.heartbeat_sender.Listener`."""
        _log.warning("Eureka server answers again", extra={"url": peer.url})
        self.restarts.notice()

    def _removed_from(self, peer: Peer, instances: Sequence[Instance]) -> set[Key]:
        """What of stacks' registrations was removed there, and is not to be brought back from its fellows."""
        held_lately = [one.key for one in instances if self.peers.accepted.lately(peer.url, one)]
        if not held_lately or peer.url not in self.restarts.notice():
            return set()
        if self.restarts.lost_memory and not self.restarts.has_memory(peer.url):
            return set()
        try:
            # It may hold older contents, which get a 404 as well.
            held = read_each(peer, held_lately)
        except RegistryError:
            return set(held_lately)  # found out as soon as it answers
        return {key for key, found in held.items() if found is None}

    def _level(self, instances: Sequence[Instance], peer: Peer) -> list[Instance]:
        """Register on ``peer`` what its fellows hold; returns what none of them does."""
        found: dict[Key, Instance] = {}
        for other in self.peers.in_order():
            left = [instance for instance in instances if instance.key not in found]
            if other is peer or not left:
                continue
            try:
                held = read_many(other, left)
            except RegistryError:
                continue
            found.update({key: instance for key, instance in held.items() if instance is not None})
        if found and self.peers.may_write():
            # Else it is told with the next renewals: they go on, and find the same.
            bring_level(peer, list(found.values()))
            _log.warning("an Eureka server was brought level", extra={"url": peer.url, "count": len(found)})
        return [instance for instance in instances if instance.key not in found]

    def _is_anothers(self, instance: Instance) -> bool:
        """Whether another syncer of this operator has registered it meanwhile."""
        known = self.view.get(instance.key)
        return known is not None and known.owner != instance.owner

    def _unanswered(self, sent: Instance) -> None:
        """A server gave no answer to this write of ours, and may carry it out late."""
        self._late.note(sent)
        self.sweeper.may_come(sent)

    def _came_late(self, found: Instance) -> None:
        """This may have come when nobody expected it any more: whoever owns it knows what is wanted."""
        if not self._is_ours(found):
            return
        (found,) = self._late.marked([found])
        if self._late.may_be_told_again(found) and self._is_told_again(found.key):
            found = self._late.as_ours(found)
        known = self.view.get(found.key)
        if found.owner and (known is None or (found.is_leaving and not known.is_leaving)):
            self.view.registered(found)
            self.listener.owner_changed(found.owner)
        else:
            self._bring_status(found)

    def _bring_status(self, found: Instance) -> None:
        """Where a server holds another status than we wrote last, as :mod:`.late` says, tell it again.

        It is told what stands elsewhere, with the same timestamp: what is written meanwhile prevails.
        """
        ours = self.renewals.get(found.key)
        if ours is None or found.status is ours.status:
            return
        sighting = self.peers.read_everywhere(*found.key)
        urls = overtaken(sighting.instances, ours)
        for peer in self.peers.peers:
            # Else it was written anew or removed meanwhile, or is about to be.
            if peer.url in urls and self.renewals.get(found.key) is ours:
                try:
                    peer.tell(ours)  # no batch, which servers may refuse where none are used
                except RegistryUnreachable:
                    raise  # looked at again soon
                except RegistryError as error:
                    # The sweeper, which asks, goes on: it has dead instances to remove.
                    _log.warning(
                        "an Eureka server holds another status of an instance, and refuses to be told",
                        extra={"url": peer.url, "instance": ours.instance_id, "error": str(error)},
                    )
                    continue
                _log.warning(
                    "an Eureka server was told the status of an instance again",
                    extra={"url": peer.url, "instance": ours.instance_id, "status": ours.status.value},
                )

    def _overriding(self, instance: Instance) -> None:
        """A server may tell another one of a status again when it has been taken off."""
        if len(self.peers.peers) > 1:
            self._late.override(instance)
            self.sweeper.may_come(instance)

    def _is_told_again(self, key: Key) -> bool:
        """Whether an OUT_OF_SERVICE stands at some servers only, and not because a person set it just now."""
        for _ in range(2):
            sighting = self.peers.read_everywhere(*key)
            held = [one.overridden_status for one in sighting.instances.values() if one is not None]
            is_everywhere = all(status is Status.OUT_OF_SERVICE for status in held)
            if sighting.failures or is_everywhere or Status.OUT_OF_SERVICE not in held:
                return False
            if self._stopped.wait(TOLD_WITHIN_SECONDS):
                return False
        return True

    def _vanished(self, key: Key) -> None:
        """No server holds it. If they forgot it, what a person had set over its status comes back with it."""
        known = self.view.get(key)
        if known is not None and known.is_overridden and self.restarts.lost_memory:
            self._remember_override(known)
        self.view.gone(key)

    @property
    def _may_be_forgotten(self) -> bool:
        """Whether what is missing was perhaps not removed: a server was restarted, or nobody could renew."""
        return self.restarts.lost_memory or self.reachability.failed_within(MEMORY_SECONDS)

    def _remember_override(self, lost: Instance) -> None:
        if not lost.is_leaving:  # which is ours, not a person's
            self._lost_overrides[lost.key] = lost.overridden_status
