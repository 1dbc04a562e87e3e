"""What is known to stand in one Eureka, and renewed there: whoever writes, or reads uncached, tells it."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from eurekube_provider.core.model import Instance, Key, Status
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.registry.forgotten import ForgottenInstances
from eurekube_provider.eureka.registry.late_writes import LateWrites
from eurekube_provider.eureka.registry.list_lag import ListLag
from eurekube_provider.eureka.registry.ownership import Ownership
from eurekube_provider.eureka.registry.reachability import Reachability
from eurekube_provider.eureka.registry.renewals import Renewals
from eurekube_provider.eureka.registry.restart_detection import RestartDetection
from eurekube_provider.eureka.registry.subscription import Subscription
from eurekube_provider.eureka.registry.sweeper import Sweeper
from eurekube_provider.eureka.registry.view import View

_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class KnownInstances:
    """The instances of one Eureka; an :class:`~eurekube_provider.eureka.observer.Observer`.

    :ivar forgotten: what Eureka lost, for who registers nothing anew but keeps what stood.
    """

    _peers: Peers
    view: View
    renewals: Renewals
    _sweeper: Sweeper
    _late: LateWrites
    _reachability: Reachability
    _list_lag: ListLag
    _restarts: RestartDetection
    _ownership: Ownership
    _subscription: Subscription
    forgotten: ForgottenInstances = field(default_factory=ForgottenInstances, init=False)
    _lost_overrides: dict[Key, Instance] = field(default_factory=dict, init=False)
    _former_owners: dict[Key, set[str]] = field(default_factory=dict, init=False)
    """The owners before hand-overs while this replica leads: a server that is away may not know of one."""

    def stand_by(self) -> None:
        """Believe the next list, and forget what only holds for who leads."""
        self.view.doubt()
        self._lost_overrides.clear()
        self._former_owners.clear()
        self.forgotten.clear()

    def registered(self, instance: Instance) -> None:
        """Take what was written for known, and renew it.

        Of two syncers that want the same at once, each may find the place empty: the one whose registration
        was written over is told, and says so.
        """
        self._lost_overrides.pop(instance.key, None)
        self.forgotten.stands(instance)
        known = self.view.get(instance.key)
        former = known.owner if known is not None and known.owner != instance.owner else ""
        if former:
            self._former_owners.setdefault(instance.key, set()).add(former)
        self.view.registered(instance)
        self.renewals.add(instance, just_registered=True)
        self._subscription.owner_changed(former)
        was_leaving = known is not None and known.is_leaving
        if instance.is_leaving and instance.is_overridden and not was_leaving:
            self._subscription.owner_changed(instance.owner)  # an OUT_OF_SERVICE of ours that nobody knew of

    def leaving(self, instance: Instance) -> None:
        """End its renewals, since it is about to be removed."""
        if not self._is_anothers(instance):
            self.renewals.remove(instance.key)

    def found(self, instance: Instance) -> None:
        """Take what an uncached read found under another owner for known.

        What another syncer of this operator holds is renewed for that one, and goes on to be. That one is
        told unless it was known: a server that was frozen while it handed the instance over told nobody of
        that, and the others show it as it was.
        """
        known = self.view.get(instance.key)
        self.forgotten.stands(instance)
        self.view.registered(instance)
        if self.is_of_another_cluster(instance):
            self.renewals.remove(instance.key)
            return  # its owner has the name of who asked, and knows
        is_ours = self._ownership.is_ours(instance)
        if is_ours and known is not None and known.owner == instance.owner:
            return
        if known is not None or not is_ours:
            self.renewals.remove(instance.key)
        if is_ours and known is not None and known.owner and self._ownership.is_syncers(known):
            self._former_owners.setdefault(instance.key, set()).add(known.owner)
        self._subscription.owner_changed(instance.owner)  # which may have begun to renew it meanwhile

    def gone(self, instance: Instance) -> None:
        """Take it for removed, and have it looked for again."""
        if self._is_anothers(instance):
            return
        self._lost_overrides.pop(instance.key, None)
        self.forgotten.stands(instance)
        self.view.gone(instance.key)
        if instance.is_leaving and len(self._peers.peers) > 1:
            self._late.override(instance)
        former = frozenset(self._former_owners.pop(instance.key, ()))
        self._sweeper.removed(self._late.newest(instance), former)

    def is_of_another_cluster(self, instance: Instance) -> bool:
        """Whether another cluster of our name registered an instance."""
        return self._ownership.is_of_another_cluster(instance)

    def is_known(self, owner: str) -> bool:
        """Whether an owner has an instance."""
        return self.view.count(owner) > 0

    def holds(self, key: Key) -> bool:
        """Whether something is known to stand under a key."""
        return self.view.holds(key)

    def is_new(self, key: Key) -> bool:
        """Whether nothing stands or stood lately under a key; False too where what is known is old."""
        if self._reachability.failure or not self._reachability.was_read:
            return False
        if self._list_lag.lasts or self._restarts.lost_memory:
            return False
        return key not in self._lost_overrides and self.view.is_new(key)

    def lost_override(self, key: Key) -> Status:
        """Return the status that was set over an instance when every server forgot it; else UNKNOWN."""
        lost = self._lost_overrides.get(key)
        return Status.UNKNOWN if lost is None else lost.overridden_status

    def give_up(self, owner: str, wanted: Collection[Key]) -> None:
        """Let what Eureka forgot of an owner be, and keep what was set over the status of what it wants.

        A pod that takes the name of one which ended meanwhile is another one.
        """
        self.forgotten.forget(owner)
        for key, lost in list(self._lost_overrides.items()):
            if lost.owner == owner and key not in wanted:
                self._lost_overrides.pop(key, None)

    def renew_no_more(self, instances: Sequence[Instance]) -> None:
        """End the renewals of what somebody else has taken over, or it would never lapse."""
        for instance in instances:
            if instance.key not in self.renewals or self._ownership.is_ours(instance):
                continue
            _log.info(
                "renewing no more what somebody else has taken over",
                extra={"instance": instance.instance_id, "owner": instance.owner or ""},
            )
            ours = self.renewals.remove(instance.key)
            if ours is not None:
                self._subscription.owner_changed(ours.owner)

    def vanished(self, key: Key) -> None:
        """Take it for gone, since no server holds it.

        If they forgot it, what a person had set over its status comes back with it.
        """
        known = self.view.get(key)
        if known is not None and known.is_overridden and self._restarts.lost_memory:
            self.remember_override(known)
        self.view.gone(key)

    @property
    def may_be_forgotten(self) -> bool:
        """Whether what is missing was perhaps not removed: a server was restarted, or nobody could renew."""
        return self._restarts.lost_memory or self._reachability.failed_within(windows.MEMORY_LOST)

    def remember_override(self, lost: Instance) -> None:
        """Remember what a person had set over the status of an instance that servers forgot."""
        if not lost.is_leaving:  # which is ours, not a person's
            self._lost_overrides[lost.key] = lost

    def _is_anothers(self, instance: Instance) -> bool:
        """Whether another syncer of this operator has registered it meanwhile."""
        known = self.view.get(instance.key)
        return known is not None and known.owner != instance.owner

    def unanswered(self, sent: Instance) -> None:
        """Look for this write of ours, to which a server gave no answer: it may carry it out late."""
        self._late.note(sent)
        self._sweeper.may_come(sent)

    def overriding(self, instance: Instance) -> None:
        """Look for a status that is set or taken off: a server may tell another one of it again later."""
        if len(self._peers.peers) > 1:
            self._late.override(instance)
            self._sweeper.may_come(instance)
