"""One reconcile of one mirror: the writes after which the cluster shows Eureka's instances.

While Eureka cannot be read, all endpoints stay, and the status says how old they are.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial

from eurekube_provider.core.address_policy import AddressPolicy
from eurekube_provider.core.brake import RELEASE_BRAKE_ANNOTATION
from eurekube_provider.core.condition_types import MirrorReason, Reason
from eurekube_provider.core.errors import ConfigurationError, KubernetesError
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.mirror import Mirror, MirrorForm, mirrored_application
from eurekube_provider.core.mirror_conditions import (
    MirrorCondition,
    MirroredServiceCounts,
    MirrorReport,
    merge_problems_by_reason,
)
from eurekube_provider.core.mirror_endpoints import host_name_problem, is_excluded_from_mirror
from eurekube_provider.core.mirror_names import assign_service_names
from eurekube_provider.core.mirror_slices import endpoints_in_slices
from eurekube_provider.core.mirror_source import MirrorSource
from eurekube_provider.core.model import Instance
from eurekube_provider.core.objects import is_being_deleted, key_of
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.registry import Failing, NeverRead, reading_error
from eurekube_provider.core.syncer import has_annotation
from eurekube_provider.core.wording import join_sentences
from eurekube_provider.operator.index import Object
from eurekube_provider.operator.mirror.application_reconciler import ApplicationReconciler
from eurekube_provider.operator.mirror.concurrent_writes import MOST_CONCURRENT_WRITES, Write, run_writes
from eurekube_provider.operator.mirror.host_names import ENDPOINT_HOST_NAME_TTL_SECONDS, HostNameCache
from eurekube_provider.operator.mirror.mirror_objects import MirrorKey, MirrorObjects
from eurekube_provider.operator.mirror.mirror_writer import (
    MIRROR_FINALIZER,
    SINGLE_OBJECT_REFUSAL_CODES,
    MirrorWriter,
)
from eurekube_provider.operator.mirror.service_writer import MirrorRound, ServiceWriter

_log = logging.getLogger(__name__)

HELD_ENDPOINT_RECHECK_SECONDS = 15.0
"""Seconds until Eureka is asked again whether a held endpoint's instance is gone."""

REFUSED_APPLICATIONS_THAT_END_ROUND = 8
"""Number of refused applications after which a round ends, since the cause is no single application then."""

ORPHAN_FINALIZER = "orphan"
"""Kubernetes' own finalizer of an object that is deleted without its dependents."""


@dataclass(frozen=True, slots=True)
class MirrorResult:
    """The result of a mirror's reconcile.

    :ivar report: the content of the mirror's next status; None for a deleted mirror, or to keep the status.
    :ivar expired_instance_names: the instances, as application and id, whose endpoints were removed without
        proof that they left.
    :ivar requeue_after_seconds: seconds until the next reconcile without a change; None for no such
        reconcile.
    """

    report: MirrorReport | None = None
    expired_instance_names: tuple[str, ...] = ()
    requeue_after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class _NamedServices:
    """The names of a mirror's Services.

    :ivar names: the Service of each application.
    :ivar others: the existing Service of each application that gets another one, or none.
    :ivar problems: why applications get none.
    """

    names: Mapping[str, str]
    others: Mapping[str, str]
    problems: tuple[Problem, ...] = ()


class _LastRound:
    """The findings of a mirror's last round, and all that stays true while the same is given.

    :ivar listed: Eureka's instances by application; None before the first round. Applications that have
        changed since are written first.
    :ivar instances: all that Eureka listed by application; ``selected`` those that this spec selects, and
        ``meant`` the applications of which it mirrors an instance.
    """

    def __init__(
        self, item: Object, mirror: Mirror, listed: Mapping[str, Sequence[Instance]] | None = None
    ) -> None:
        self.item, self.mirror, self.listed = item, mirror, listed
        self.instances: Mapping[str, Sequence[Instance]] = {}
        self.selected: Mapping[str, Sequence[Instance]] = {}
        self.meant: Set[str] = frozenset()
        self._shown: tuple[object, Mapping[str, str]] | None = None
        self._named: tuple[object, _NamedServices] | None = None

    def application_by_service(self, round_: MirrorRound) -> Mapping[str, str]:
        """Return the application that each Service shows, see :func:`_application_by_service`."""
        given = round_.services, round_.slices
        if self._shown is None or self._shown[0] != given:
            kept = dict(round_.services), dict(round_.slices)  # a round changes its own
            self._shown = kept, _application_by_service(round_)
        return self._shown[1]

    def name_services(self, meant: Set[str], existing: Mapping[str, str]) -> _NamedServices:
        """Return the names of the Services, see :func:`_name_services`."""
        given = meant, existing
        if self._named is None or self._named[0] != given:
            self._named = given, _name_services(self.mirror, meant, existing)
        return self._named[1]


class MirrorReconciler:
    """The reconciler of mirrors, each by one thread at a time; any number of threads may share it.

    :param sources: the registries that mirrors show, by the name that ``spec.eureka`` may give.
    :param policy: returns the policy on addresses that may be mirrored now.
    :param service: returns a Service from the operator's copy, by namespace and name.
    :param others_slices: returns the EndpointSlices of a Service that no mirror wrote, by namespace and name.
    :param called_names: the cache by which instances' host names are compared with their IP addresses; None
        to compare none.
    :param writers: most writes of a mirror that may be under way at once.
    """

    def __init__(
        self,
        cluster: Cluster,
        objects: MirrorObjects,
        writer: MirrorWriter,
        sources: Mapping[str, MirrorSource],
        policy: Callable[[], AddressPolicy],
        names: HostNameCache,
        service: Callable[[str, str], Object | None],
        clock: Callable[[], float] = time.monotonic,
        writers: int = MOST_CONCURRENT_WRITES,
        others_slices: Callable[[str, str], Iterable[Object]] = lambda *_: (),
        called_names: HostNameCache | None = None,
    ) -> None:
        self._cluster, self._objects, self._writer = cluster, objects, writer
        self._sources, self._policy, self._writers = sources, policy, writers
        self._called_names = called_names
        self._services = ServiceWriter(objects, writer, service, others_slices)
        self.applications = ApplicationReconciler(cluster, objects, writer, names, self._services, clock)
        self._refused: dict[MirrorKey, set[str]] = {}
        """Applications whose last write was refused: they come last in the next round."""
        self._last_rounds: dict[MirrorKey, _LastRound] = {}

    def on_leadership_lost(self) -> None:
        """Forget since when endpoints are held, since each new leader counts that time anew."""
        self._last_rounds.clear()
        self.applications.on_leadership_lost()

    def reconcile(self, key: MirrorKey) -> MirrorResult:
        """Make the cluster show the instances that a mirror selects.

        :raises KubernetesError: a write failed; earlier writes stand.
        :raises LeadershipLost: another replica leads.
        """
        item = self._objects.mirrors.get(*key)
        if item is None:
            self._forget(key)
            return MirrorResult()
        if is_being_deleted(item):
            return self._clean_up_deleted(key, item)
        self._writer.settle_unanswered_deletions(key[0])
        services, slices = self._objects.services_of(key), self._objects.slices_of(key)
        try:
            mirror = self._mirror_of(key, item)
        except ConfigurationError as error:
            return MirrorResult(
                self._report_on_shown_endpoints(
                    services, slices, Problem(MirrorReason.INVALID_SPEC, str(error))
                )
            )
        source = self._sources.get(mirror.eureka)
        if source is None:
            known = ", ".join(sorted(self._sources)) or "none"
            sentence = (
                f"spec.eureka is {mirror.eureka!r}: of connections that a mirror can show, the"
                f" operator's configuration has {known}"
            )
            return MirrorResult(
                self._report_on_shown_endpoints(services, slices, Problem(Reason.UNKNOWN_EUREKA, sentence))
            )
        has_finalizer = MIRROR_FINALIZER in (item["metadata"].get("finalizers") or ())
        if not has_finalizer and not self._writer.set_finalizer(item, present=True):
            return MirrorResult()  # the mirror is gone: nobody would delete objects that are made for it now
        condition, figures = source.condition(), source.figures()
        if isinstance(condition, Failing) and not condition.lasts:
            return MirrorResult(
                requeue_after_seconds=HELD_ENDPOINT_RECHECK_SECONDS
            )  # for a moment, most likely

        def make_round(*, is_frozen: bool) -> MirrorRound:
            return MirrorRound(
                key,
                item,
                mirror,
                source,
                self._policy(),
                figures.read_at,
                services,
                slices,
                self._objects.slices_by_application(key),
                self._objects.slice_names_of(key),
                " ".join(sorted(one.url for one in figures.servers)),
                is_brake_released=key in self.applications.released
                or has_annotation(item, RELEASE_BRAKE_ANNOTATION),
                is_frozen=is_frozen,
            )

        if isinstance(condition, NeverRead | Failing):
            self._delete_slices_of_opted_out_services(item, mirror, slices)
            self.applications.restart_hold_times(key)
            if isinstance(condition, Failing) and not mirror.is_paused:
                self._sync_services_and_slices(make_round(is_frozen=True))
            return self._result_while_unreachable(key, condition, figures.read_at)
        if mirror.is_paused:
            report = self._report_on_shown_endpoints(services, slices, None, figures.read_at)
            sentence = "spec.paused is true: nothing is changed in the cluster"
            paused = merge_problems_by_reason([Problem(MirrorCondition.PAUSED, sentence)])
            return MirrorResult(replace(report, problems=paused))
        self._writer.forget_freed_slice_names(key[0])
        if figures.may_have_lost_memory:
            self.applications.restart_hold_times(key)
        round_ = make_round(is_frozen=False)
        self._sync_services_and_slices(round_)
        if round_.is_brake_released and key not in self.applications.released:
            self._writer.remove_release_annotation(item, was_held=False)
        self.applications.released.discard(key)
        shown = {one.service for one in round_.shown_services}
        written = [service for name, service in round_.services.items() if name in shown]
        run_writes(self._services.last_read_annotation_writes(written, round_.read_at), self._writers)
        held = [one for one in round_.shown_services if one.held]
        sentences = [f"{one.held - one.braked} of {one.application}" for one in held if one.held > one.braked]
        if sentences:
            round_.problems.append(
                Problem(
                    MirrorCondition.REMOVALS_HELD,
                    f"Eureka lists them no more, nor says that they left: {join_sentences(sentences)};"
                    f" each is kept for {mirror.hold_seconds} s at most (spec.holdSeconds)",
                )
            )
        report = MirrorReport(
            tuple(round_.shown_services), merge_problems_by_reason(round_.problems), None, round_.read_at
        )
        again = [HELD_ENDPOINT_RECHECK_SECONDS] if held else []
        again += [ENDPOINT_HOST_NAME_TTL_SECONDS] if round_.uses_host_names else []
        return MirrorResult(report, tuple(round_.expired_instance_names), min(again, default=None))

    def _delete_slices_of_opted_out_services(
        self, item: Object, mirror: Mirror, slices: dict[str, tuple[Object, ...]]
    ) -> None:
        """Delete the mirror's slices of each Service that a person owns and that does not ask for them.

        No answer of Eureka is needed.
        """
        key = key_of(item)
        for name in sorted(slices):
            if (
                not mirror.is_paused
                and self._services.is_owned_by_person(key[0], name)
                and not self._services.has_opted_in(key, name)
            ):
                self._services.remove_owner_reference(item, name)
                self.applications.delete_service_and_slices(key, name, None, slices.pop(name))

    def _result_while_unreachable(
        self, key: MirrorKey, condition: NeverRead | Failing, read_at: float | None
    ) -> MirrorResult:
        """Return the result for a mirror whose Eureka does not answer: all endpoints stay, and the report has
        the age of the last answer.
        """
        services, slices = self._objects.services_of(key), self._objects.slices_of(key)
        if isinstance(condition, Failing):
            run_writes(
                self._services.last_read_annotation_writes(services.values(), read_at, is_exact=True),
                self._writers,
            )
        report = self._report_on_shown_endpoints(services, slices, None, read_at)
        why = reading_error(condition) or "no answer yet"
        sentence = f"Eureka cannot be read, so everything stays as it is ({why})"
        unreachable = merge_problems_by_reason([Problem(MirrorCondition.SOURCE_UNREACHABLE, sentence)])
        return MirrorResult(replace(report, problems=unreachable))

    def report_after_failure(self, key: MirrorKey, before: MirrorReport, failure: Problem) -> MirrorReport:
        """Return the report on a reconcile that failed: what the cluster shows by now, and why not all is
        done.

        :param before: the last report, from which the problems are, and what was held.
        """
        services, slices = self._objects.services_of(key), self._objects.slices_of(key)
        shown = self._report_on_shown_endpoints(services, slices, failure, before.read_at)
        held = {one.service: one for one in before.services}
        counts = [
            replace(one, held=held[one.service].held, braked=held[one.service].braked)
            if one.service in held
            else one
            for one in shown.services
        ]
        return replace(shown, services=tuple(counts), problems=before.problems)

    def _report_on_shown_endpoints(
        self,
        services: Mapping[str, Object],
        slices: Mapping[str, Sequence[Object]],
        failure: Problem | None,
        read_at: float | None = None,
    ) -> MirrorReport:
        """Return a report on the endpoints that the cluster shows already."""
        found = []
        for name in sorted({*services, *slices}):
            marked = [services[name]] if name in services else slices[name]
            endpoints = endpoints_in_slices(slices.get(name, ()))
            ready = sum(one.is_ready for one in endpoints)
            found.append(MirroredServiceCounts(mirrored_application(marked[0]), name, len(endpoints), ready))
        return MirrorReport(tuple(found), {}, failure, read_at)

    def _sync_services_and_slices(self, round_: MirrorRound) -> None:
        """Write the Services and slices of all applications that the mirror selects, and delete all
        others.
        """
        mirror, last = round_.mirror, self._last_rounds[round_.key]
        listed, meant = self._listed_instances(mirror, round_.source, last)
        existing = last.application_by_service(round_)
        if not mirror.application:
            meant |= {one for one in existing.values() if one in listed or mirror.selects_application(one)}
        named = last.name_services(meant, existing)
        names, earlier = named.names, self._earlier_services(round_, named)
        round_.problems += named.problems
        refused_before = self._refused.setdefault(round_.key, set())
        before, last.listed = last.listed if last.listed is not None else listed, listed

        def rank(named: tuple[str, str]) -> tuple[bool, int, tuple[str, str]]:
            application, _ = named
            change = _rank_change(before.get(application), listed.get(application))
            return application in refused_before, change, named

        def decide_writes(ranks: Iterable[tuple[bool, int, tuple[str, str]]]) -> Iterator[Write]:
            for _, _, (application, name) in ranks:
                write = self.applications.decide_writes(
                    round_, application, name, listed.get(application, ())
                )
                if write is not None:
                    yield partial(try_write, application, write)

        refused: list[KubernetesError] = []

        def try_write(application: str, write: Write) -> None:
            try:
                write()
            except KubernetesError as error:
                refused.append(error)
                refused_before.add(application)
                if (
                    error.status_code not in SINGLE_OBJECT_REFUSAL_CODES
                    or len(refused) >= REFUSED_APPLICATIONS_THAT_END_ROUND
                ):
                    raise
            else:
                refused_before.discard(application)

        # Changed applications are written before the others are decided, which would delay their writes.
        order = [*names.items(), *earlier.items()]
        may_differ = [one for one in order if before.get(one[0]) is not listed.get(one[0])]
        changed = [one for one in sorted(map(rank, may_differ)) if one[:2] < (False, _UNCHANGED_RANK)]
        run_writes(decide_writes(changed), min(self._writers, len(changed)))
        run_writes(decide_writes(sorted({*map(rank, order)}.difference(changed))), self._writers)
        if refused:
            raise refused[0]  # before any deletion: callers of those endpoints have no other Service yet
        refused_before.clear()
        round_.add_parts()
        if round_.is_frozen:
            return
        round_.problems += self._host_name_address_problems(round_, listed)
        round_.shown_services.sort(key=lambda one: (one.application, one.service))
        shown = {one.application for one in round_.shown_services}
        for name in sorted({*round_.services, *round_.slices} - {*names.values(), *earlier.values()}):
            application = existing.get(name, "")
            if name not in round_.services and self._services.has_opted_in(round_.key, name):
                application = mirrored_application(round_.slices[name][0])  # it was attached there until now
            if name in round_.services and not application and mirror.pattern:
                continue  # somebody removed the annotation, so that its application is not known
            if application in meant and application not in shown:
                continue  # its new Service does not exist yet, so that callers need this one
            self._services.remove_owner_reference(round_.mirror_object, name)
            self.applications.delete_service_and_slices(
                round_.key, name, round_.services.get(name), round_.slices.get(name, ())
            )

    def _host_name_address_problems(
        self, round_: MirrorRound, listed: Mapping[str, Sequence[Instance]]
    ) -> Iterator[Problem]:
        """Yield a problem for each instance whose host name, which Spring's clients call, has another address
        than the mirror's endpoint.
        """
        names = self._called_names
        if names is not None:
            for application in sorted({one.application for one in round_.shown_services}):
                for instance in listed.get(application, ()):
                    if instance.ip_address != instance.host_name and not is_excluded_from_mirror(
                        round_.mirror, instance, self._cluster
                    ):
                        problem = host_name_problem(instance, round_.policy, names.addresses_of)
                        if problem is not None:
                            yield problem

    def _earlier_services(self, round_: MirrorRound, named: _NamedServices) -> dict[str, str]:
        """Return the earlier Service of each application that cannot have the one that the mirror names now.

        Its callers have no other, so that it goes on following Eureka.
        """
        # Nearly always each Service has the name that is meant, and nothing is looked at.
        return {
            application: name
            for application, name in named.others.items()
            if application not in named.names
            or self._services.is_owned_by_person(round_.key[0], named.names[application])
        }

    def _mirror_of(self, key: MirrorKey, item: Object) -> Mirror:
        """Return the mirror's spec as a value; what was found by another spec is forgotten.

        :raises ConfigurationError: as :meth:`Mirror.from_object`.
        """
        last = self._last_rounds.get(key)
        if last is not None and last.item is item:
            return last.mirror
        mirror = Mirror.from_object(item)
        if last is not None and last.mirror == mirror:
            last.item = item  # its status differs
            return last.mirror
        self._last_rounds[key] = _LastRound(item, mirror, last.listed if last is not None else None)
        return mirror

    def _listed_instances(
        self, mirror: Mirror, source: MirrorSource, last: _LastRound
    ) -> tuple[Mapping[str, Sequence[Instance]], set[str]]:
        """Return the instances that Eureka lists by application, of those that the mirror selects; and the
        applications that have an instance which is mirrored.
        """
        if mirror.application:
            known = source.known_instances(application=mirror.application)
            return {mirror.application: known}, {mirror.application}
        now, selected, meant = source.instances_by_application(), dict(last.selected), set(last.meant)
        for application in last.instances.keys() - now.keys():
            selected.pop(application, None)
            meant.discard(application)
        for application, instances in now.items():
            if last.instances.get(application) is instances or not mirror.selects_application(application):
                continue
            selected[application] = instances
            if all(is_excluded_from_mirror(mirror, one, self._cluster) for one in instances):
                meant.discard(application)
            else:
                meant.add(application)
        last.instances, last.selected, last.meant = now, selected, frozenset(meant)
        return selected, meant

    def _clean_up_deleted(self, key: MirrorKey, item: Object) -> MirrorResult:
        """Delete all Services and slices of a deleted mirror, then remove its finalizer."""
        if MIRROR_FINALIZER in (item["metadata"].get("finalizers") or ()):
            services, slices = self._objects.services_of(key), self._objects.slices_of(key)
            # `kubectl delete --cascade=orphan`: a person wants to keep the mirror's Services and slices.
            is_kept = ORPHAN_FINALIZER in item["metadata"]["finalizers"]
            for name in () if is_kept else sorted({*services, *slices}):
                try:
                    self.applications.delete_service_and_slices(
                        key, name, services.get(name), slices.get(name, ())
                    )
                except KubernetesError as error:
                    if error.status_code != 403:
                        raise
                    # In a deleted namespace the operator's rights may end first; the owner references remain.
                    _log.info(
                        "lacked the right to delete a deleted mirror's Service, leaving it to Kubernetes' "
                        "garbage collection",
                        extra={"mirror": "/".join(key), "service": name},
                    )
            taken_over: list[Object] = []
            try:
                taken_over = self._writer.list_services_taken_over(item)
            except KubernetesError as error:
                if error.status_code != 403:  # the rights have ended, as above
                    raise
            for service in taken_over:  # the finalizer stays until none can be deleted with the mirror
                self._writer.remove_owner_reference(service, item["metadata"]["uid"])
            self._writer.set_finalizer(item, present=False)
        self._forget(key)
        return MirrorResult()

    def _forget(self, key: MirrorKey) -> None:
        self._refused.pop(key, None)
        self._last_rounds.pop(key, None)
        self.applications.forget(key)


_UNCHANGED_RANK = 2


def _rank_change(before: Sequence[Instance] | None, after: Sequence[Instance] | None) -> int:
    """Return the rank by which applications are written, the lowest first, from an application's instances
    before and now.

    Changed applications have rank 0; those that also lost an instance have 1, since Eureka is asked for that
    instance and may hang; unchanged ones have 2.
    """
    if before is after or before == after:
        return _UNCHANGED_RANK
    return int(bool({one.key for one in before or ()} - {one.key for one in after or ()}))


def _application_by_service(round_: MirrorRound) -> dict[str, str]:
    """Return the application that each Service shows, by Service name, from its annotation or else its
    slices.

    A Service whose application is unknown is left out: any application that gets its name may use it.
    """
    found: dict[str, str] = {}
    for name, service in round_.services.items():
        written_there = map(mirrored_application, round_.slices.get(name, ()))
        if application := mirrored_application(service) or next(filter(None, written_there), ""):
            found[name] = application
    return found


def _name_services(mirror: Mirror, meant: Set[str], existing: Mapping[str, str]) -> _NamedServices:
    """Name the Service of each application that a mirror shows.

    :param meant: the applications.
    :param existing: the application that each Service of the mirror shows, by the Service's name.
    """
    if mirror.form is MirrorForm.ATTACHED:
        return _NamedServices({mirror.application: mirror.attach_to}, {})
    # A Service whose application is meant no more goes over to the one that gets its name: made again it
    # would have another address.
    keep = {name: application for name, application in existing.items() if application in meant}
    assigned = assign_service_names(mirror.service_name, meant, keep)
    names, waiting = _names_within_service_limit(mirror, assigned.names, existing)
    problems = [
        *waiting,
        *(Problem(MirrorCondition.NAME_TAKEN, one) for one in assigned.refusal_sentences.values()),
        *(Problem(MirrorCondition.NO_NAME, one) for one in assigned.unnameable_sentences.values()),
    ]
    others = {
        application: name
        for name, application in sorted(keep.items(), reverse=True)
        if name != names.get(application)
    }
    return _NamedServices(names, others, tuple(problems))


def _names_within_service_limit(
    mirror: Mirror, names: Mapping[str, str], existing: Mapping[str, str]
) -> tuple[Mapping[str, str], list[Problem]]:
    """Return the Service names, by application, that the mirror may show: those that exist, and new ones up
    to ``spec.maxServices``; and a problem for the others.
    """
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
            f" (spec.maxServices), such as {join_sentences(waiting)}"
        )
    named = {application: name for application, name in names.items() if application not in {*waiting}}
    is_refused = bool(waiting or mirror.allows_all)
    return named, [Problem(MirrorCondition.TOO_MANY_SERVICES, sentence)] if is_refused else []
