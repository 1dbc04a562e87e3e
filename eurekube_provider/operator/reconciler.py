"""One reconcile of one syncer: what it wants, what Eureka holds, what must change, and what became of that.

No thread, no lock and nobody told: all that a reconcile comes to is in its :class:`SyncerResult`. It has two
steps, so that whoever runs it knows what waits while a registry takes its time: :meth:`Reconciler.decide` and
:meth:`Reconciler.carry_out`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from eurekube_provider.core.condition_types import Reason
from eurekube_provider.core.errors import ConfigurationError, EurekubeError, LeadershipLost, RegistryError
from eurekube_provider.core.identity import Cluster, ClusterOwner
from eurekube_provider.core.model import Instance
from eurekube_provider.core.objects import Object
from eurekube_provider.core.plan import Action, Change, Outcome, Plan, Policy, plan
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.registry import Registry
from eurekube_provider.core.syncer import Syncer, claimed_names
from eurekube_provider.core.syncer_plan import plan_of_syncer
from eurekube_provider.kube.access import SYNCERS, KubeAccess
from eurekube_provider.kube.finalizers import set_finalizer
from eurekube_provider.operator.conditions import problem_of
from eurekube_provider.operator.decision import Decision, Reports, SyncerResult, Wanted
from eurekube_provider.operator.deletion import FINALIZER, Deletion, has_finalizer
from eurekube_provider.operator.drain_check import DrainCheck
from eurekube_provider.operator.index import SyncerKey, key_of
from eurekube_provider.operator.ownership_transfer import (
    SUCCESSOR_POLL_SECONDS,
    OwnershipTransfer,
    TransferOffer,
)
from eurekube_provider.operator.permission import Permissions
from eurekube_provider.operator.registries import TOLD_WITHIN_SECONDS, Registries
from eurekube_provider.operator.removal_brake import Brake
from eurekube_provider.operator.retention import Retention
from eurekube_provider.operator.settings import Settings
from eurekube_provider.operator.sources import Sources

RECHECK_REFUSED_SECONDS = 20.0

_NO_OFFER = TransferOffer()
_NOTHING_UNWANTED = TransferOffer(asked=frozenset())


class Reconciler:
    """Reconciles; any number of workers may share it, each with a syncer of its own.

    :param may_write: whether this replica leads, as far as it knows.
    :param reads_each: have a first plan say what there is, although lists may be old: each instance is read.
    """

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        access: KubeAccess,
        registries: Mapping[str, Registry],
        sources: Sources,
        drain_check: DrainCheck,
        may_write: Callable[[], bool],
        *,
        reads_each: bool = False,
    ) -> None:
        self._cluster = cluster
        self._access = access
        alike = set[frozenset[str]]()
        self._registries = {name: Registries(registries, name, alike) for name in ("", *registries)}
        self._sources = sources
        self._permissions = Permissions(settings, cluster, self._registries[""], sources)
        self._brake = Brake(cluster, registries.values(), access, sources, time.monotonic)
        self._transfer = OwnershipTransfer(cluster, sources, self._permissions, waits_at_once=reads_each)
        self._deletion = Deletion(cluster, access, sources, self._transfer, settings.release_after_seconds)
        self.reports = Reports(cluster, self._registries[""], sources, drain_check)
        self._retention = Retention(cluster, access, sources)
        self._may_write = may_write
        self._reads_each = reads_each

    def reconcile(self, key: SyncerKey, served: str = "") -> SyncerResult:
        """Bring Eureka to what one syncer asks for; see :meth:`decide`."""
        decided = self.decide(key, served)
        return self.carry_out(decided) if isinstance(decided, Decision) else decided

    def decide(self, key: SyncerKey, served: str = "") -> Decision | SyncerResult:
        """What is to be done; a result where that was done already, or nothing can be.

        :param served: the name of the registry whose workers ask: they wait for no other one that fails.
            Empty for who waits for all.
        :raises LeadershipLost: this replica may not change anything any more.
        """
        if not self._may_write():
            raise LeadershipLost("another replica may lead by now")
        registries = self._registries[served]
        item = self._sources.syncers.get(*key)
        try:
            if item is None and not self._sources.knows_syncers_of(key[0]):
                registries.keep(self._owner(key))
                return SyncerResult()
            if item is None or item["metadata"].get("deletionTimestamp"):
                return self._delete(key, item, registries)
            try:
                syncer, claimed = self._sources.parsed(item), claimed_names(item)
            except ConfigurationError as error:
                return self._refuse(key, item, Problem(Reason.NOT_ALLOWED, str(error)), registries)
            refusal = self._permissions.refusal(syncer, claimed)
            if refusal is not None:
                return self._refuse(key, item, refusal, registries)
            return self._decide(self._wanted(key, item, syncer, claimed), registries)
        except LeadershipLost:
            raise
        except EurekubeError as error:
            return self._failed(item, error, registries)

    def carry_out(self, decided: Decision) -> SyncerResult:
        """Do what was decided.

        :raises LeadershipLost: this replica may not change anything any more.
        """
        try:
            return self._carry_out(decided)
        except LeadershipLost:
            raise
        except EurekubeError as error:
            return self._failed(decided.wanted.item, error, decided.registries)

    def forget_all(self) -> None:
        """Forget what only holds for who leads."""
        self._brake.forget_all()
        self._transfer.forget_all()
        self._deletion.forget_all()

    def _wanted(self, key: SyncerKey, item: Object, syncer: Syncer, claimed: frozenset[str]) -> Wanted:
        if not has_finalizer(item):
            set_finalizer(self._access, SYNCERS, item, FINALIZER, present=True)
        desired = self._sources.desired(syncer)
        keys = frozenset(instance.key for instance in desired.instances)
        return Wanted(key, item, syncer, claimed, syncer.owner(self._cluster), desired, keys)

    def _decide(self, wanted: Wanted, registries: Registries) -> Decision:
        syncer, desired, owner = wanted.syncer, wanted.desired, wanted.owner
        registry = registries[syncer.eureka]
        registry.refresh([(syncer.application.upper(), one) for one in desired.terminating])
        if self._reads_each:
            there = (*desired.instances, *registry.known(owner=owner))
            registry.refresh([one.key for one in there], known_too=True)
        if not wanted.is_open:
            alike, doubts = registries.alike_to(syncer.eureka, owner, wanted.keys)
            wanted = replace(wanted, alike=alike, doubts=doubts)
        offered = self._offer(wanted, registries)
        strays = {
            name: [
                one
                for one in at.known(owner=owner)
                if wanted.is_unread(name, one.key)
                or not (wanted.wants(name, one.key) or offered.keeps(name, one.key))
            ]
            for name, at in registries.items()
            if name != syncer.eureka
        }
        steps = self._plan(wanted, registry, offered)
        back = self._put_back(wanted, registry, registries)
        rest = steps.changes
        if back:
            keys_back = {one.instance.key for one in back}
            rest = tuple(one for one in rest if one.instance.key not in keys_back)
            steps = replace(steps, changes=(*back, *rest))
        differing, waiting = steps, 0
        if syncer.is_paused:
            steps = replace(differing, changes=back)
            waiting = len(rest) + sum(map(len, strays.values()))
        leaves = {}
        if not wanted.is_open and syncer.policy is Policy.SYNC:
            leaves = {one.instance.key: one for at in strays.values() for one in plan((), at, owner).changes}
        return self._braked(
            Decision(wanted, registries, steps, differing, offered, strays, leaves, waiting=waiting)
        )

    def _braked(self, decided: Decision) -> Decision:
        """Hold back removals that look like a broken source."""
        wanted, steps, leaves = decided.wanted, decided.steps, decided.leaves
        unwanted = tuple(change for key, change in leaves.items() if key not in wanted.keys)
        judged = replace(steps, changes=(*steps.changes, *unwanted)) if unwanted else steps
        allowed, hold = self._brake.check(
            wanted.key, wanted.item, judged, wanted.owner, is_repacked=wanted.desired.is_repacked
        )
        if hold is None:
            return decided
        going = {id(change) for change in allowed.changes}
        return replace(
            decided,
            steps=replace(steps, changes=tuple(one for one in steps.changes if id(one) in going)),
            leaves={k: one for k, one in leaves.items() if k in wanted.keys or id(one) in going},
            held_back=hold,
        )

    def _carry_out(self, decided: Decision) -> SyncerResult:
        wanted, steps, registries = decided.wanted, decided.steps, decided.registries
        outcome = decided.offered.outcome
        outcome += registries.apply(decided.name, decided.offered.beside(decided.name, steps), wanted.owner)
        outcome += self._take_out(decided)
        has_come = self._renew(decided)
        concerned = decided.offered.successors | self._unblocked(wanted.key, outcome)
        if has_come:
            concerned |= {wanted.key}
        errors = [failure.error for failure in outcome.failures]
        failed = next((error for error in errors if isinstance(error, RegistryError)), None)
        waits = [decided.held_back.wait_seconds] if decided.held_back else []
        if decided.offered.is_awaited:
            waits.append(SUCCESSOR_POLL_SECONDS)
        if wanted.doubts:
            waits.append(TOLD_WITHIN_SECONDS)
        if failed is None and (steps.refusals or steps.doubled or errors or wanted.desired.is_unread):
            waits.append(RECHECK_REFUSED_SECONDS)
        return SyncerResult(
            wanted.item,
            self.reports.done(decided, outcome),
            wanted.syncer,
            decided.differing,
            outcome,
            decided.held_back,
            concerned=concerned,
            again_seconds=min(waits, default=None),
            error=failed,
        )

    def _offer(self, wanted: Wanted, registries: Registries) -> TransferOffer:
        """Give what the syncer wants no more to whoever wants it. In doubt nothing is let go of."""
        if wanted.is_open:
            return _NO_OFFER
        unwanted = {
            name: [one for one in there if not wanted.wants(name, one.key)]
            for name, there in registries.owned(wanted.owner).items()
        }
        if not any(unwanted.values()):
            return _NOTHING_UNWANTED
        leaves = {
            # What was seen terminating is wanted by nobody.
            name: [one for one in there if not self._sources.seen_terminating(one.instance_id)]
            for name, there in unwanted.items()
        }
        asked = frozenset((name, one.key) for name, there in unwanted.items() for one in there)
        return self._transfer.offer(wanted.key, wanted.owner, leaves, registries, asked)

    def _plan(self, wanted: Wanted, registry: Registry, offered: TransferOffer) -> Plan:
        """What must change at ``registry``. In doubt only what was seen on its way out is removed."""
        syncer, desired = wanted.syncer, wanted.desired
        there = registry.known(owner=wanted.owner)
        name = syncer.application.upper()
        application = registry.known(application=syncer.application)
        steps = plan_of_syncer(syncer, desired, there, application, wanted.owner)
        gone = desired.terminating
        if desired.is_in_doubt and not syncer.is_paused and not desired.is_unread:
            gone |= self._retention.ended(wanted.key, [one for one in there if one.application == name])

        def may_go(instance: Instance) -> bool:
            if offered.keeps(syncer.eureka, instance.key):
                return False
            certain = instance.instance_id in gone or self._sources.seen_terminating(instance.instance_id)
            return certain or not desired.is_in_doubt

        stays = [one for one in steps.changes if one.action is not Action.DEREGISTER or may_go(one.instance)]
        return replace(steps, changes=tuple(stays)) if len(stays) < len(steps.changes) else steps

    def _put_back(self, wanted: Wanted, registry: Registry, registries: Registries) -> tuple[Change, ...]:
        """What a registry forgot of what a syncer keeps that is paused, or cannot tell what it wants."""
        if not wanted.is_open:
            for one in registries.values():
                one.give_up(wanted.owner, wanted.keys)
            return ()
        back = self._retention.restored(wanted.key, registry, wanted.owner)
        if wanted.syncer.is_paused:
            return back
        return tuple(one for one in back if one.instance.key not in wanted.keys)  # which its plan registers

    def _take_out(self, decided: Decision) -> Outcome:
        """Remove strays: what is wanted, once it stands at the Eureka that is named, and never in doubt."""
        wanted, registries, outcome = decided.wanted, decided.registries, Outcome()
        for name, there in decided.strays.items():
            changes = tuple(
                decided.leaves[one.key]
                for one in there
                if one.key in decided.leaves
                and (one.key not in wanted.keys or registries.holds(decided.name, one.key, wanted.owner))
            )
            if name in wanted.doubts:
                waiting = [one for one in changes if one.instance.key in wanted.keys]
                changes = tuple(one for one in changes if one.instance.key not in wanted.keys)
                error = wanted.doubts[name]
                outcome += Outcome.of(waiting, [error] * len(waiting)) if error else Outcome()
            steps = decided.offered.beside(name, Plan(changes))
            if there:
                outcome += registries.apply(name, steps, wanted.owner)
        return outcome

    def _renew(self, decided: Decision) -> bool:
        """Renew what is registered; with UpsertOnly, what is no longer desired, or not there, may lapse.

        :returns: whether something was found to be the syncer's while others were asked for what they want:
            that is reconciled anew.
        """
        wanted, offered, registries = decided.wanted, decided.offered, decided.registries
        lapses = wanted.syncer.policy is Policy.UPSERT_ONLY and not wanted.is_open
        has_come = False
        for name, there in registries.owned(wanted.owner).items():
            is_elsewhere = not wanted.is_at_home(name)
            for instance in there:
                key = instance.key
                has_moved = is_elsewhere and registries.holds(decided.name, key, wanted.owner)
                if lapses and not offered.keeps(name, key) and (key not in wanted.keys or has_moved):
                    registries[name].let_lapse(instance)
                else:
                    registries[name].keep(instance)
                has_come |= (is_elsewhere or key not in wanted.keys) and offered.is_news(name, key)
        return has_come

    def _unblocked(self, key: SyncerKey, outcome: Outcome) -> frozenset[SyncerKey]:
        """The syncers in whose way may have stood what was taken out."""
        names = {
            change.instance.application
            for change in outcome.done
            if change.action is Action.DEREGISTER
            and not self._sources.seen_terminating(change.instance.instance_id)
        }
        return frozenset(other for name in names for other in self._sources.syncers_of(name)) - {key}

    def _delete(self, key: SyncerKey, item: Object | None, registries: Registries) -> SyncerResult:
        self._transfer.forget(key)
        deleted = self._deletion.of(key, item, registries)
        if deleted.is_gone:
            self._brake.forget(key)
            self._retention.forget(key)
            for registry in registries.values():
                registry.give_up(self._owner(key))
        said = None
        if deleted.error is not None and item is not None:
            said = self.reports.ended_early(item, problem_of(deleted.error), registries)
        return SyncerResult(
            item,
            said,
            deleted=deleted,
            concerned=deleted.concerned,
            again_seconds=deleted.again_seconds,
            error=deleted.error,
        )

    def _refuse(self, key: SyncerKey, item: Object, refusal: Problem, registries: Registries) -> SyncerResult:
        """Take out what was seen terminating or ended unseen, keep the rest, and say why that is all."""
        owner, outcome = self._owner(key), Outcome()
        retained = self._retention.of_refused(item, owner, registries.owned(owner))
        leaves = Plan(tuple(one for parts in retained.values() for one in parts.leaves.changes))
        allowed, hold = self._brake.check(key, item, leaves, owner)
        going = {id(one) for one in allowed.changes}
        for name, parts in retained.items():
            goes = (one for one in parts.leaves.changes if id(one) in going)
            back = self._retention.restored(key, registries[name], owner)
            outcome += registries.apply(name, Plan((*back, *goes)), owner)
            for one in parts.leaves.changes:
                if id(one) not in going:
                    registries[name].keep(one.instance)
            for instance in parts.lapses:
                registries[name].let_lapse(instance)
            for instance in parts.stays:
                registries[name].keep(instance)
        errors = (one.error for one in outcome.failures)
        # What it selects now need not be what it holds.
        again = min(RECHECK_REFUSED_SECONDS, hold.wait_seconds) if hold else RECHECK_REFUSED_SECONDS
        return SyncerResult(
            item,
            self.reports.ended_early(item, refusal, registries),
            outcome=outcome,
            again_seconds=again,
            error=next((one for one in errors if isinstance(one, RegistryError)), None),
        )

    def _failed(self, item: Object | None, error: EurekubeError, registries: Registries) -> SyncerResult:
        """A reconcile ended early."""
        now = self._sources.syncers.get(*key_of(item)) if item is not None else None
        if now is None:
            return SyncerResult(error=error)
        return SyncerResult(now, self.reports.ended_early(now, problem_of(error), registries), error=error)

    def _owner(self, key: SyncerKey) -> str:
        return str(ClusterOwner(self._cluster.name, *key))
