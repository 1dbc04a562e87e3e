"""One reconcile of one mirror: the writes after which the cluster shows what Eureka holds.

While Eureka cannot be read, all endpoints stay, and the status says how old they are.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from eurekube_provider.core.address_policy import AddressPolicy
from eurekube_provider.core.brake import RELEASE_ANNOTATION
from eurekube_provider.core.condition_types import MirrorReason, Reason
from eurekube_provider.core.errors import ConfigurationError, KubernetesError
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.mirror import Mirror, MirrorForm, application_of
from eurekube_provider.core.mirror_conditions import (
    MirrorCondition,
    MirroredService,
    MirrorReport,
    gathered,
)
from eurekube_provider.core.mirror_endpoints import host_name_problem, is_own_instance
from eurekube_provider.core.mirror_names import assigned_names
from eurekube_provider.core.mirror_slices import shown_endpoints
from eurekube_provider.core.mirror_source import MirrorSource
from eurekube_provider.core.model import Instance
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.registry import Failing, Unread, failure_of
from eurekube_provider.core.syncer import has_annotation
from eurekube_provider.core.wording import joined
from eurekube_provider.operator.index import Object, key_of
from eurekube_provider.operator.mirror.application_reconciler import ApplicationReconciler
from eurekube_provider.operator.mirror.concurrent_writes import WRITERS, Write, carry_out
from eurekube_provider.operator.mirror.host_names import TTL_SECONDS, HostNames
from eurekube_provider.operator.mirror.mirror_objects import MirrorKey, MirrorObjects
from eurekube_provider.operator.mirror.mirror_writer import MIRROR_FINALIZER, MirrorWriter
from eurekube_provider.operator.mirror.service_writer import MirrorRound, ServiceWriter

_log = logging.getLogger(__name__)

PROOF_SECONDS = 15.0
"""Seconds until Eureka is asked again for proof that a held endpoint's instance is gone."""

MOST_REFUSED = 8
"""Number of refused applications after which a round ends: then no single application is the cause."""

ORPHAN_FINALIZER = "orphan"
"""Kubernetes' own finalizer of an object that is deleted without its dependents."""

_OF_ONE = frozenset({400, 403, 404, 409, 413, 422})
"""HTTP statuses of refusals that may concern a single object: a quota, a webhook, an old copy."""


@dataclass(frozen=True, slots=True)
class MirrorResult:
    """The result of a mirror's reconcile.

    :ivar report: None for a deleted mirror, or where nothing new is to be reported.
    :ivar expired: sentences on instances whose endpoints were removed without proof.
    :ivar again_seconds: when to reconcile again without a change; None for not at all.
    """

    report: MirrorReport | None = None
    expired: tuple[str, ...] = ()
    again_seconds: float | None = None


class MirrorReconciler:
    """The reconciler of mirrors, each by one thread at a time; any number of threads may share it.

    :param sources: where instances come from, by the name that ``spec.eureka`` may give.
    :param policy: returns the addresses that may be mirrored now.
    :param service: returns a Service from the operator's copy, by namespace and name.
    :param others_slices: returns the EndpointSlices of a Service that no mirror wrote, by namespace and name.
    :param called_names: the addresses of instances' host names, where endpoints have the instances' IP
        addresses;
        None for not to compare the two.
    :param writers: how many writes of a mirror may be under way at once.
    """

    def __init__(
        self,
        cluster: Cluster,
        objects: MirrorObjects,
        writer: MirrorWriter,
        sources: Mapping[str, MirrorSource],
        policy: Callable[[], AddressPolicy],
        names: HostNames,
        service: Callable[[str, str], Object | None],
        clock: Callable[[], float] = time.monotonic,
        writers: int = WRITERS,
        others_slices: Callable[[str, str], Iterable[Object]] = lambda *_: (),
        called_names: HostNames | None = None,
    ) -> None:
        self._cluster, self._objects, self._writer = cluster, objects, writer
        self._sources, self._policy, self._writers = sources, policy, writers
        self._called_names = called_names
        self._services = ServiceWriter(objects, writer, service, others_slices)
        self.applications = ApplicationReconciler(cluster, objects, writer, names, self._services, clock)
        self._refused: dict[MirrorKey, set[str]] = {}
        """Applications whose last write was refused: they come last in the next round."""
        self._listed_before: dict[MirrorKey, Mapping[str, list[Instance]]] = {}
        """Eureka's instances in the last round: applications that have changed since come first."""

    def forget_all(self) -> None:
        """Forget since when endpoints are held: each new leader counts that time anew."""
        self._listed_before.clear()
        self.applications.forget_all()

    def reconcile(self, key: MirrorKey) -> MirrorResult:
        """Make the cluster show what a mirror asks for.

        :raises KubernetesError: a write failed; earlier writes stand.
        :raises LeadershipLost: another replica leads.
        """
        item = self._objects.mirrors.get(*key)
        if item is None:
            self._forget(key)
            return MirrorResult()
        if item["metadata"].get("deletionTimestamp"):
            return self._release(key, item)
        services, slices = self._objects.services_of(key), self._objects.slices_of(key)
        try:
            mirror = Mirror.from_object(item)
        except ConfigurationError as error:
            return MirrorResult(
                self._existing(services, slices, Problem(MirrorReason.INVALID_SPEC, str(error)))
            )
        source = self._sources.get(mirror.eureka)
        if source is None:
            known = ", ".join(sorted(self._sources)) or "none"
            sentence = (
                f"spec.eureka is {mirror.eureka!r}: of connections that a mirror can show, the"
                f" operator's configuration has {known}"
            )
            return MirrorResult(self._existing(services, slices, Problem(Reason.UNKNOWN_EUREKA, sentence)))
        has_finalizer = MIRROR_FINALIZER in (item["metadata"].get("finalizers") or ())
        if not has_finalizer and not self._writer.set_finalizer(item, present=True):
            return MirrorResult()  # it is gone already: what is made for it now nobody would take away
        condition, figures = source.condition(), source.figures()
        if isinstance(condition, Failing) and not condition.lasts:
            return MirrorResult(again_seconds=PROOF_SECONDS)  # for a moment, most likely

        def round_(*, is_frozen: bool) -> MirrorRound:
            return MirrorRound(
                key,
                item,
                mirror,
                source,
                self._policy(),
                figures.read_at,
                services,
                slices,
                _by_application(slices),
                " ".join(sorted(one.url for one in figures.servers)),
                is_released=key in self.applications.released or has_annotation(item, RELEASE_ANNOTATION),
                is_frozen=is_frozen,
            )

        if isinstance(condition, Unread | Failing):
            self._leave_who_opted_out(item, mirror, slices)
            self.applications.restart_holds(key)
            if isinstance(condition, Failing) and not mirror.is_paused:
                self._show(round_(is_frozen=True))
            return self._cut_off(key, condition, figures.read_at)
        if mirror.is_paused:
            report = self._existing(services, slices, None, figures.read_at)
            sentence = "spec.paused is true: nothing is changed in the cluster"
            paused = gathered([Problem(MirrorCondition.PAUSED, sentence)])
            return MirrorResult(replace(report, problems=paused))
        self._writer.forget_freed_names(key[0])
        now = round_(is_frozen=False)
        self._show(now)
        self.applications.released.discard(key)
        shown = {one.service for one in now.shown}
        written = [service for name, service in now.services.items() if name in shown]
        carry_out(self._services.last_reads(written, now.read_at), self._writers)
        held = [one for one in now.shown if one.held]
        sentences = [f"{one.held - one.braked} of {one.application}" for one in held if one.held > one.braked]
        if sentences:
            now.problems.append(
                Problem(
                    MirrorCondition.REMOVALS_HELD,
                    f"Eureka lists them no more, nor says that they left: {joined(sentences)};"
                    f" each is kept for {mirror.hold_seconds} s at most (spec.holdSeconds)",
                )
            )
        report = MirrorReport(tuple(now.shown), gathered(now.problems), None, now.read_at)
        again = [PROOF_SECONDS] if held else []
        again += [TTL_SECONDS] if now.uses_names else []
        return MirrorResult(report, tuple(now.expired), min(again, default=None))

    def _leave_who_opted_out(self, item: Object, mirror: Mirror, slices: dict[str, list[Object]]) -> None:
        """Delete the mirror's slices of a person's Service that asks for them no more, or was the mirror's
        before.

        No answer of Eureka is needed.
        """
        key = key_of(item)
        for name in sorted(slices):
            if (
                not mirror.is_paused
                and self._services.is_persons(key[0], name)
                and not self._services.has_opted_in(key, name)
            ):
                self._services.disown(item, name)
                self.applications.take_away(key, name, None, slices.pop(name))

    def _cut_off(self, key: MirrorKey, condition: Unread | Failing, read_at: float | None) -> MirrorResult:
        """Keep everything while Eureka does not answer, and report the age of its last answer."""
        services, slices = self._objects.services_of(key), self._objects.slices_of(key)
        if isinstance(condition, Failing):
            carry_out(self._services.last_reads(services.values(), read_at, is_exact=True), self._writers)
        report = self._existing(services, slices, None, read_at)
        why = failure_of(condition) or "no answer yet"
        sentence = f"Eureka cannot be read, so everything stays as it is ({why})"
        unreachable = gathered([Problem(MirrorCondition.SOURCE_UNREACHABLE, sentence)])
        return MirrorResult(replace(report, problems=unreachable))

    def _existing(
        self,
        services: Mapping[str, Object],
        slices: Mapping[str, list[Object]],
        failure: Problem | None,
        read_at: float | None = None,
    ) -> MirrorReport:
        """Return a report of the endpoints that are shown already, and stay."""
        found = []
        for name in sorted({*services, *slices}):
            marked = [services[name]] if name in services else slices[name]
            endpoints = shown_endpoints(slices.get(name, ()))
            ready = sum(one.is_ready for one in endpoints)
            found.append(MirroredService(application_of(marked[0]), name, len(endpoints), ready))
        return MirrorReport(tuple(found), {}, failure, read_at)

    def _show(self, now: MirrorRound) -> None:
        """Show every application that the mirror selects, and take away all others."""
        mirror = now.mirror
        listed = self._listed(mirror, now.source)
        existing = _existing_applications(now)
        if mirror.application:
            meant = {mirror.application}
        else:
            meant = {one for one in existing.values() if one in listed or mirror.means(one)}
            meant |= {
                application
                for application, instances in listed.items()
                if any(not is_own_instance(mirror, one, self._cluster) for one in instances)
            }
        if mirror.form is MirrorForm.ATTACHED:
            names: Mapping[str, str] = {mirror.application: mirror.attach_to}
        else:
            # A Service whose application is meant no more goes over to the one that gets its name: made again
            # it would have another address.
            keep = {name: application for name, application in existing.items() if application in meant}
            assigned = assigned_names(mirror.service_name, meant, keep)
            names = self._bounded(now, assigned.names, existing)
            now.problems += [
                Problem(MirrorCondition.NAME_TAKEN, sentence) for sentence in assigned.refused.values()
            ]
            now.problems += [
                Problem(MirrorCondition.NO_NAME, sentence) for sentence in assigned.unnameable.values()
            ]
        parts: list[MirrorRound] = []
        refused_before = self._refused.setdefault(now.key, set())
        before = self._listed_before.get(now.key, listed)
        self._listed_before[now.key] = listed

        def rank(named: tuple[str, str]) -> tuple[bool, int, tuple[str, str]]:
            application, _ = named
            change = _change(before.get(application), listed.get(application))
            return application in refused_before, change, named

        order = sorted(map(rank, names.items()))

        def writes(ranks: Iterable[tuple[bool, int, tuple[str, str]]]) -> Iterator[Write]:
            for _, _, (application, name) in ranks:
                parts.append(now.part())
                write = self.applications.decided(parts[-1], application, name, listed.get(application, []))
                if write is not None:
                    yield partial(attempt, application, write)

        refused: list[KubernetesError] = []

        def attempt(application: str, write: Write) -> None:
            try:
                write()
            except KubernetesError as error:
                refused.append(error)
                refused_before.add(application)
                if error.status_code not in _OF_ONE or len(refused) >= MOST_REFUSED:
                    raise
            else:
                refused_before.discard(application)

        # What changed is written before the rest is looked at: that would take the interpreter from it.
        changed = sum(rank[:2] < (False, _UNCHANGED) for rank in order)
        carry_out(writes(order[:changed]), self._writers)
        carry_out(writes(order[changed:]), self._writers)
        if refused:
            raise refused[0]  # before anything is taken away: what is called there has no other place yet
        refused_before.clear()
        for part in parts:
            now.join(part)
        if now.is_frozen:
            return
        now.problems += self._differing(now, listed)
        now.shown.sort(key=lambda one: (one.application, one.service))
        shown = {one.application for one in now.shown}
        for name in sorted({*now.services, *now.slices} - set(names.values())):
            application = existing.get(name, "")
            if name not in now.services and self._services.has_opted_in(now.key, name):
                application = application_of(now.slices[name][0])  # it was attached there until now
            if name in now.services and not application and mirror.pattern:
                continue  # somebody took the annotation off: whose it is cannot be determined
            if application in meant and application not in shown:
                continue  # it has no other name yet, so that it is called by this one
            self._services.disown(now.item, name)
            self.applications.take_away(now.key, name, now.services.get(name), now.slices.get(name, ()))

    def _differing(self, now: MirrorRound, listed: Mapping[str, list[Instance]]) -> Iterator[Problem]:
        """Yield a problem for each instance that Spring's clients call at another address than the
        mirror's Service does.
        """
        names = self._called_names
        if names is not None:
            for application in sorted({one.application for one in now.shown}):
                for instance in listed.get(application, ()):
                    if instance.ip_address != instance.host_name and not is_own_instance(
                        now.mirror, instance, self._cluster
                    ):
                        problem = host_name_problem(instance, now.policy, names.resolved)
                        if problem is not None:
                            yield problem

    @staticmethod
    def _bounded(
        now: MirrorRound, names: Mapping[str, str], existing: Mapping[str, str]
    ) -> Mapping[str, str]:
        """Return the names of applications that have a Service, and of as many new ones as the mirror may
        still show.
        """
        mirror = now.mirror
        have = {*existing.values()}
        new = sorted(application for application in names if application not in have)
        room = max(0, mirror.max_services - (len(names) - len(new)))
        if mirror.allows_all:
            room = 0
        waiting = new[room:]
        if mirror.allows_all:
            sentence = (
                "spec.allow keeps no application away, so that anyone who registers in Eureka makes Services"
                f" here: what stands is kept, and no new one is made; {len(waiting)} wait"
            )
        else:
            sentence = (
                f"{len(waiting)} applications wait for a Service: {mirror.max_services} are the most"
                f" (spec.maxServices), such as {joined(waiting)}"
            )
        if waiting or mirror.allows_all:
            now.problems.append(Problem(MirrorCondition.TOO_MANY_SERVICES, sentence))
        return {application: name for application, name in names.items() if application not in {*waiting}}

    @staticmethod
    def _listed(mirror: Mirror, source: MirrorSource) -> dict[str, list[Instance]]:
        if mirror.application:
            return {mirror.application: source.known(application=mirror.application)}
        listed: dict[str, list[Instance]] = defaultdict(list)
        means: dict[str, bool] = {}
        for one in source.known():
            is_meant = means.get(one.application)
            if is_meant is None:
                is_meant = means[one.application] = mirror.means(one.application)
            if is_meant:
                listed[one.application].append(one)
        return listed

    def _release(self, key: MirrorKey, item: Object) -> MirrorResult:
        """Remove all that a deleted mirror made, then remove its finalizer."""
        if MIRROR_FINALIZER in (item["metadata"].get("finalizers") or ()):
            services, slices = self._objects.services_of(key), self._objects.slices_of(key)
            # `kubectl delete --cascade=orphan`: a person wants what it made to outlive it.
            is_kept = ORPHAN_FINALIZER in item["metadata"]["finalizers"]
            for name in () if is_kept else sorted({*services, *slices}):
                try:
                    self.applications.take_away(key, name, services.get(name), slices.get(name, ()))
                except KubernetesError as error:
                    if error.status_code != 403:
                        raise
                    # Of a namespace that is deleted our rights may go first; the owner references remain.
                    _log.info(
                        "left an object to Kubernetes' garbage collection",
                        extra={"mirror": "/".join(key), "service": name},
                    )
            try:
                self._writer.disown_all(item)
            except KubernetesError as error:
                if error.status_code != 403:
                    raise
            self._writer.set_finalizer(item, present=False)
        self._forget(key)
        return MirrorResult()

    def _forget(self, key: MirrorKey) -> None:
        self._refused.pop(key, None)
        self._listed_before.pop(key, None)
        self.applications.forget(key)


_UNCHANGED = 2


def _change(before: list[Instance] | None, after: list[Instance] | None) -> int:
    """Return the turn in which an application comes: the lower, the sooner.

    A changed application comes first; next one that also lost an instance, since Eureka is asked for that
    instance and may hang; last an unchanged one.
    """
    if before == after:
        return _UNCHANGED
    return int(bool({one.key for one in before or ()} - {one.key for one in after or ()}))


def _existing_applications(now: MirrorRound) -> dict[str, str]:
    """Return the application that each Service shows, from its annotation or else from its slices.

    A Service whose application is unknown is left out: any application that gets its name may use it.
    """
    found: dict[str, str] = {}
    for name, service in now.services.items():
        applications = (application_of(item) for item in (service, *now.slices.get(name, ())))
        if application := next(filter(None, applications), ""):
            found[name] = application
    return found


def _by_application(slices: Mapping[str, list[Object]]) -> dict[str, list[tuple[str, Object]]]:
    """Return each application's slices, each with the name of its Service."""
    found: dict[str, list[tuple[str, Object]]] = defaultdict(list)
    for name, those in slices.items():
        for item in those:
            found[application_of(item)].append((name, item))
    return found
