"""The controller of the EurekaSyncers that are derived from a namespace's syncer.

Derived syncers are ordinary objects, so that claims, brake, hand-over, status and history work for each as
for any syncer, and survive a restart. An event of a Service reconciles that Service's syncer alone. The
status of the namespace's syncer is computed once a second at most.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eurekube_provider.core.brake import HOLD_SECONDS, RELEASE_ANNOTATION
from eurekube_provider.core.condition_types import ConditionType, Reason
from eurekube_provider.core.derived_syncer import (
    INHERITED,
    Membership,
    ServiceCounts,
    ServiceState,
    controller_of,
    derived_name,
    derived_syncer,
    inherited_marks,
    is_of_namespace,
    membership_of,
    split_derived_name,
    state_of,
)
from eurekube_provider.core.errors import ConfigurationError, KubernetesError
from eurekube_provider.core.objects import Object, conditions_of, qualified
from eurekube_provider.core.plan import Policy
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.remedies import REMEDIES
from eurekube_provider.core.syncer import (
    FINALIZER,
    FORCE_DELETE_ANNOTATION,
    has_annotation,
    has_finalizer,
    is_deleted,
)
from eurekube_provider.core.wording import counted
from eurekube_provider.kube.access import MERGE_PATCH, SERVICES, SYNCERS, KubeAccess, objects_named
from eurekube_provider.kube.finalizers import set_finalizer
from eurekube_provider.operator.conditions import Report
from eurekube_provider.operator.index import SyncerKey, key_of
from eurekube_provider.operator.reports import Ended, SyncerResult
from eurekube_provider.operator.sources import SUM_SECONDS, Sources

_log = logging.getLogger(__name__)

LEAVE_SECONDS = HOLD_SECONDS
"""Seconds for which a Service must be no member, without having opted out, before its syncer is deleted.

As long as the brake holds: a chart that lost its annotations, or an incomplete list, is repaired by then.
"""

REFUSED_SECONDS = 60.0
"""Seconds before a spec that the API server refused is sent again."""

RETRY_SECONDS = 10.0
"""Seconds before a request that failed for another reason is repeated; the present syncer is served
meanwhile.
"""

WRITE_SECONDS = 5.0
"""The time-out of a write: a worker of a registry waits for the answer."""

SHOWN_SECONDS = 5.0
"""Seconds for which a single pass waits until its watch shows what it wrote."""

_SAFEGUARDS = ("paused", "policy")
"""Fields that protect instances, and reach a derived syncer whatever else is wrong with its Service."""

_ORPHAN = "orphan"
"""The finalizer of ``kubectl delete --cascade=orphan``: derived syncers stay, as a person's own."""

ReportRefusal = Callable[[Object, Problem], None]
"""Called with a Service that is refused, and the reason."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    """The reason why the syncer of a Service does not have the desired spec.

    :ivar wanted: the spec that the API server refused; None if it was not sent.
    :ivar until: the monotonic time at which the spec may be sent again.
    """

    problem: Problem
    wanted: Mapping[str, Any] | None = None
    until: float = 0.0


class DerivedSyncers:
    """The writer of derived syncers; any number of workers may share it, each with a syncer of its own.

    :param waits: True to wait until the watch shows a syncer that was created, since a single pass has no
        later reconcile.
    """

    def __init__(
        self,
        access: KubeAccess,
        sources: Sources,
        report: ReportRefusal = lambda *_: None,
        *,
        waits: bool = False,
    ) -> None:
        self._access = access
        self._sources = sources
        self._report = report
        self._waits = waits
        self._lock = threading.Lock()
        self._refused: dict[SyncerKey, _Refusal] = {}
        self._leaving: dict[SyncerKey, float] = {}  # the monotonic time at which it may be deleted
        self._held_until: dict[str, float] = {}  # by namespace: writes wait until then after a failed one

    def forget_all(self) -> None:
        """Forget the leader's memory: another replica leads."""
        with self._lock:
            self._refused.clear()
            self._leaving.clear()
            self._held_until.clear()

    def refuses(self, key: SyncerKey) -> bool:
        """Return True if the Service of a derived syncer is refused, which registers nothing new then."""
        with self._lock:
            refusal = self._refused.get(key)
        return refusal is not None and refusal.problem.reason == Reason.SERVICE_REFUSED

    def ensure(self, key: SyncerKey) -> SyncerResult | None:
        """Create, change or delete one derived syncer as its Service asks.

        :returns: None if the syncer is to be reconciled as it stands.
        :raises KubernetesError: a missing syncer cannot be created.
        """
        try:
            return self._ensure(key)
        except KubernetesError as error:
            problem, now = Problem(Reason.KUBERNETES_ERROR, str(error)), time.monotonic()
            with self._lock:
                before = self._refused.get(key)
                is_away = _is_away(error)
                # The others of the namespace try before this one does again.
                retry_seconds = RETRY_SECONDS * (2 if is_away else 1)
                self._refused[key] = _Refusal(problem, until=now + retry_seconds)
                if is_away:
                    self._held_until[key[0]] = now + RETRY_SECONDS
            if before is None or before.problem != problem:
                self._enqueue_parent(key)
            if self._sources.syncers.get(*key) is None:
                raise
            # The present syncer is served, whatever prevents its change.
            extra = {"syncer": "/".join(key), "error": str(error), "retry_seconds": retry_seconds}
            _log.warning("failed to update a derived syncer, retrying", extra=extra)
            self._sources.enqueue_later(key, retry_seconds)
            return None

    def _ensure(self, key: SyncerKey) -> SyncerResult | None:
        parent_name, service_name = split_derived_name(key[1])
        parent = self._sources.syncers.get(key[0], parent_name) if parent_name else None
        item = self._sources.syncers.get(*key)
        # The CRD's rules let no syncer become or stop being a namespace's: a missing field says that an older
        # CRD drops it, and nothing may leave because of that.
        if parent is None or not is_of_namespace(parent):
            return None
        is_ours = item is not None and controller_of(item) == (parent_name, parent["metadata"].get("uid"))
        if item is not None and is_deleted(item):
            if is_ours and self._lacks_force_delete(item, parent) and self._may_write(key):
                self._annotate(item, FORCE_DELETE_ANNOTATION)
            return None  # its finalizer goes after its instances have left
        if is_deleted(parent):
            if is_ours and item is not None and _ORPHAN not in parent["metadata"].get("finalizers", ()):
                return self._delete(item, parent) if self._may_write(key) else None
            return None
        if not self._is_prepared(parent) or not self._sources.knows_services_of(key[0]):
            return _as_it_stands(item)
        service = self._sources.service(key[0], service_name)
        membership = membership_of(parent, service)
        if membership is Membership.MEMBER and service is not None:
            with self._lock:
                self._leaving.pop(key, None)
            return self._join(key, parent, service, item, is_ours=is_ours)
        if is_ours and item is not None:
            return self._leave(key, parent, item, membership)
        self._clear_refusal(key)
        return None

    def _is_prepared(self, parent: Object) -> bool:
        """Return True if a namespace's syncer has the finalizer, which a dry run cannot write."""
        return has_finalizer(parent) or not self._access.sends_writes

    def _join(
        self, key: SyncerKey, parent: Object, service: Object, item: Object | None, *, is_ours: bool
    ) -> SyncerResult | None:
        try:
            wanted = derived_syncer(parent, service)
        except ConfigurationError as error:
            if is_ours and item is not None:
                self._copy_safeguards(key, item, parent)
            return self._refuse(key, service, item, _Refusal(Problem(Reason.SERVICE_REFUSED, str(error))))
        if item is not None and not is_ours:
            why = f"there is an EurekaSyncer {qualified(item)}, which is not derived from {qualified(parent)}"
            remedy = "rename or delete that one, or annotate the Service with eurekube.io/sync=false"
            problem = Problem(Reason.SERVICE_REFUSED, why, remedy)
            return self._refuse(key, service, item, _Refusal(problem))
        if item is not None and _is_up_to_date(item, wanted):
            self._clear_refusal(key)
            return None
        if not self._may_write(key, wanted):
            if item is not None:
                self._copy_safeguards(key, item, parent)
            return _as_it_stands(item)
        try:
            answer = self._write(item, wanted)
        except KubernetesError as error:
            is_refused = error.status_code == 422
            result = self._refuse_spec(key, service, item, wanted, str(error)) if is_refused else None
            if item is not None and not _is_away(error):
                self._copy_safeguards(key, item, parent)
            if not is_refused:
                raise
            return result
        if answer is not None and not _is_up_to_date(answer, wanted):
            why = "the API server stores another spec of its EurekaSyncer: a webhook or an old CRD changes it"
            remedy = "exempt EurekaSyncers from that webhook, or upgrade the CRD"
            return self._refuse_spec(key, service, item, wanted, why, remedy)
        self._clear_refusal(key)
        if not self._access.sends_writes:
            return _as_it_stands(item)
        if item is not None and item.get("spec") == wanted["spec"]:
            return None  # of a change of labels alone no event leads here again
        return None if self._is_seen(key, wanted) else SyncerResult()

    def _may_write(self, key: SyncerKey, wanted: Object | None = None) -> bool:
        """Return True unless the same was refused, or a write failed, a short while ago.

        After a failure of the API server one worker tries again, and the others of its namespace wait for the
        result. A syncer that must wait is reconciled again by then.
        """
        now = time.monotonic()
        with self._lock:
            refusal, held_until = self._refused.get(key), self._held_until.get(key[0], 0.0)
            is_same = refusal is not None and (
                refusal.wanted is None or (wanted is not None and refusal.wanted == wanted["spec"])
            )
            wait_seconds = max(refusal.until if refusal and is_same else 0.0, held_until) - now
            if wait_seconds <= 0 and held_until:
                self._held_until[key[0]] = now + RETRY_SECONDS
        if wait_seconds > 0:
            self._sources.enqueue_later(key, wait_seconds)
        return wait_seconds <= 0

    def _send(
        self, method: str, key: tuple[str] | SyncerKey, body: Object, content_type: str = "application/json"
    ) -> Object:
        """Send one write with a short time-out: a worker of a registry waits for it.

        :param key: the syncer's namespace and name; the namespace alone to create one.
        :raises KubernetesError: the write failed.
        """
        namespace, path = key[0], SYNCERS.path(*key)
        try:
            answer = self._access.request(
                method, path, body=body, content_type=content_type, timeout_seconds=WRITE_SECONDS
            )
        except KubernetesError as error:
            if not _is_away(error):
                self._end_hold(namespace)
            raise
        self._end_hold(namespace)
        return answer

    def _patch(self, item: Object, metadata: Object, spec: Object | None = None) -> Object:
        """Change a syncer, unless another one has its name by now.

        :raises KubernetesError: the write failed.
        """
        body: dict[str, Any] = {"metadata": {"uid": item["metadata"].get("uid"), **metadata}}
        if spec is not None:
            body["spec"] = spec
        return self._send("PATCH", key_of(item), body, MERGE_PATCH)

    def _end_hold(self, namespace: str) -> None:
        with self._lock:
            self._held_until.pop(namespace, None)

    def _copy_safeguards(self, key: SyncerKey, item: Object, parent: Object) -> None:
        """Copy ``paused`` and ``policy`` from the namespace's syncer, also while a Service is refused or
        leaves. Raises nothing.
        """
        there = item.get("spec") or {}
        spec = {field: parent["spec"].get(field) for field in _SAFEGUARDS}
        changes = {field: value for field, value in spec.items() if there.get(field) != value}
        if not changes or not self._may_write(key):
            return
        try:
            self._patch(item, {}, changes)
        except KubernetesError as error:
            extra = {"syncer": "/".join(key), "error": str(error), "retry_seconds": RETRY_SECONDS}
            _log.warning("failed to pause a derived syncer or to change its policy, retrying", extra=extra)
            self._sources.enqueue_later(key, RETRY_SECONDS)

    def _write(self, item: Object | None, wanted: Mapping[str, Any]) -> Object | None:
        """Create or change a derived syncer; return it as it is stored, None where that is not known yet."""
        key, is_dry = key_of(wanted), not self._access.sends_writes
        extra = {"syncer": "/".join(key)}
        if item is None:
            try:
                answer = self._send("POST", key[:1], wanted)
            except KubernetesError as error:
                if error.status_code != 409:
                    raise
                return None  # it exists already, and the watch is about to show it
            said = "dry run: would create a derived syncer" if is_dry else "created a derived syncer"
            _log.info(said, extra=extra)
            return answer
        answer = self._patch(item, _marks_patch(wanted), merge_patch(item.get("spec") or {}, wanted["spec"]))
        if is_dry:
            _log.info("dry run: would change a derived syncer", extra=extra)
            return None
        return answer

    def _is_seen(self, key: SyncerKey, wanted: Mapping[str, Any]) -> bool:
        """Wait, in a single pass, until the watch shows a syncer as it was written."""

        def is_shown() -> bool:
            item = self._sources.syncers.get(*key)
            return item is not None and _is_up_to_date(item, wanted)

        return self._wait_until(is_shown)

    def _wait_until(self, is_shown: Callable[[], bool]) -> bool:
        """Wait, in a single pass, until the watch shows what was written; return False if it does not."""
        deadline = time.monotonic() + SHOWN_SECONDS
        while self._waits and time.monotonic() < deadline:
            if is_shown():
                return True
            time.sleep(0.02)
        return False

    def _refuse_spec(
        self, key: SyncerKey, service: Object, item: Object | None, wanted: Object, why: str, remedy: str = ""
    ) -> SyncerResult | None:
        """Refuse a Service whose derived spec the API server does not store, and try again later."""
        problem, now = Problem(Reason.SERVICE_REFUSED, why, remedy), time.monotonic()
        self._sources.enqueue_later(key, REFUSED_SECONDS)
        return self._refuse(key, service, item, _Refusal(problem, wanted["spec"], now + REFUSED_SECONDS))

    def _refuse(
        self, key: SyncerKey, service: Object, item: Object | None, refusal: _Refusal
    ) -> SyncerResult | None:
        """Report a refused Service; its present syncer is served."""
        with self._lock:
            before, self._refused[key] = self._refused.get(key), refusal
        if before is None or before.problem != refusal.problem:
            self._report(service, refusal.problem)
            self._enqueue_parent(key)
        return _as_it_stands(item)

    def _clear_refusal(self, key: SyncerKey) -> None:
        with self._lock:
            was_refused = self._refused.pop(key, None) is not None
        if was_refused:
            self._enqueue_parent(key)

    def _leave(
        self, key: SyncerKey, parent: Object, item: Object, membership: Membership
    ) -> SyncerResult | None:
        """Delete the syncer of a Service that is no member any more: at once if a person opted out.

        A paused syncer changes nothing, and UpsertOnly deregisters nothing that no person took out.
        """
        self._copy_safeguards(key, item, parent)
        is_meant = membership is Membership.OPTED_OUT or has_annotation(item, RELEASE_ANNOTATION)
        removes = is_meant or parent["spec"].get("policy") != Policy.UPSERT_ONLY
        if parent["spec"].get("paused") or not removes:
            with self._lock:
                self._leaving.pop(key, None)
            self._clear_refusal(key)
            return None
        now = time.monotonic()
        with self._lock:
            is_new = key not in self._leaving
            remaining_seconds = self._leaving.setdefault(key, now + LEAVE_SECONDS) - now
        if not is_meant and remaining_seconds > 0:
            if is_new:
                extra = {"syncer": "/".join(key), "seconds": LEAVE_SECONDS}
                _log.warning("keeping a derived syncer for now: its Service joins no more", extra=extra)
                self._enqueue_parent(key)
            self._clear_refusal(key)
            self._sources.enqueue_later(key, remaining_seconds)
            return None
        if not self._may_write(key):
            return None
        # Instances are about to leave: the Service is read once more from the API server.
        services = objects_named(self._access, SERVICES, split_derived_name(key[1])[1], key[0])
        if membership_of(parent, services[0] if services else None) is not membership:
            _log.warning(
                "kept a derived syncer: its Service differs from the watched one",
                extra={"syncer": "/".join(key)},
            )
            self._end_hold(key[0])
            self._sources.enqueue_later(key, LEAVE_SECONDS)
            return None
        return self._delete(item, parent)

    def _delete(self, item: Object, parent: Object) -> SyncerResult | None:
        """Delete a derived syncer; its finalizer goes after its instances have left."""
        key = key_of(item)
        if not self._access.sends_writes:
            _log.info("dry run: would delete a derived syncer", extra={"syncer": "/".join(key)})
            return None
        try:
            if self._lacks_force_delete(item, parent):
                self._annotate(item, FORCE_DELETE_ANNOTATION)
            body = {"preconditions": {"uid": item["metadata"].get("uid")}}
            self._send("DELETE", key, body)
        except KubernetesError as error:
            if error.status_code not in (404, 409):
                raise
        else:
            _log.info("deleted a derived syncer", extra={"syncer": "/".join(key)})
        with self._lock:
            self._leaving.pop(key, None)
            self._refused.pop(key, None)
        return SyncerResult()

    @staticmethod
    def _lacks_force_delete(item: Object, parent: Object) -> bool:
        """Return True if a person ends the deletion of a namespace's syncer alone while Eureka is away."""
        there, here = (has_annotation(one, FORCE_DELETE_ANNOTATION) for one in (parent, item))
        return there and not here

    def reconcile(self, parent: Object) -> SyncerResult:
        """Compute the status of a namespace's syncer from all its Services.

        :raises KubernetesError: the syncer, or one that is derived from it, cannot be written.
        """
        key = key_of(parent)
        derived = {one: self._sources.syncers.get(*one) for one in self._sources.derived_from(key)}
        if is_deleted(parent):
            return self._end(parent, derived)
        if not self._is_prepared(parent):
            set_finalizer(self._access, SYNCERS, parent, FINALIZER, present=True)

            def is_shown() -> bool:
                item = self._sources.syncers.get(*key)
                return item is not None and has_finalizer(item)

            if not self._wait_until(is_shown):
                return SyncerResult()  # the event of the finalizer leads here again
        if not self._sources.knows_services_of(key[0]):
            why = f"the Services of namespace {key[0]} have not been read yet: nothing is changed before"
            unread = Problem(Reason.NAMESPACE_NOT_READ, why).with_remedy(REMEDIES)
            status = parent.get("status") or {}
            report = Report(
                None,
                unread,
                is_synced=False,
                synced=unread,
                desired=int(status.get("desired") or 0),
                registered=int(status.get("registered") or 0),
            )
            return SyncerResult(parent, report, again_seconds=SUM_SECONDS)
        if has_annotation(parent, RELEASE_ANNOTATION):
            self._release(parent, derived)
        concerned = set[SyncerKey]()
        states = list(self._states(parent, derived, concerned))
        return SyncerResult(parent, report_of(parent, states), concerned=frozenset(concerned))

    def _states(
        self, parent: Object, derived: Mapping[SyncerKey, Object | None], concerned: set[SyncerKey]
    ) -> Iterator[ServiceState]:
        """Yield the state of each Service that is or was a member, and collect the syncers to reconcile."""
        namespace, name = key_of(parent)
        left = dict(derived)
        for service in self._sources.services.objects(namespace):
            if membership_of(parent, service) is not Membership.MEMBER:
                continue
            service_name = str(service["metadata"]["name"])
            key = (namespace, derived_name(name, service_name))
            item = left.pop(key, None)
            with self._lock:
                refusal = self._refused.get(key)
            is_up_to_date = self._is_up_to_date(parent, service, item)
            if refusal is not None or not is_up_to_date:
                concerned.add(key)
            problem = refusal.problem if refusal else None
            yield state_of(service_name, item, problem, is_up_to_date=is_up_to_date)
        concerned.update(left)
        yield from self._states_of_leaving(left)

    def _states_of_leaving(self, left: Mapping[SyncerKey, Object | None]) -> Iterator[ServiceState]:
        """Yield the state of each Service that is no member any more and has a derived syncer."""
        for key, item in left.items():
            if item is None:
                continue
            with self._lock:
                refusal, leaves = self._refused.get(key), key in self._leaving
            if refusal is not None:
                problem = refusal.problem
            elif is_deleted(item):
                problem = Problem(Reason.LEAVING, "its EurekaSyncer is being deleted")
            elif leaves:
                problem = Problem(Reason.LEAVING, "it joins no more; its EurekaSyncer goes within a minute")
            else:
                problem = None  # kept: its own conditions tell
            yield state_of(split_derived_name(key[1])[1], item, problem)

    @staticmethod
    def _is_up_to_date(parent: Object, service: Object, item: Object | None) -> bool:
        try:
            return item is not None and _is_up_to_date(item, derived_syncer(parent, service))
        except ConfigurationError:
            return False

    def _release(self, parent: Object, derived: Mapping[SyncerKey, Object | None]) -> None:
        """Release the brake of each derived syncer that is held or waits to be deleted."""
        for key, item in derived.items():
            if item is None:
                continue
            braked = conditions_of(item).get(ConditionType.BRAKED) or {}
            with self._lock:
                if key in self._leaving:
                    self._leaving[key] = time.monotonic()
            if braked.get("status") == "True":
                self._annotate(item, RELEASE_ANNOTATION)
        self._patch(parent, {"annotations": {RELEASE_ANNOTATION: None}})

    def _annotate(self, item: Object, annotation: str) -> None:
        self._patch(item, {"annotations": {annotation: "now"}})

    def _end(self, parent: Object, derived: Mapping[SyncerKey, Object | None]) -> SyncerResult:
        """Remove the finalizer of a deleted namespace's syncer once no derived syncer is left."""
        if not has_finalizer(parent):
            return SyncerResult(ended=Ended())
        if derived:
            # A single pass takes a deleted syncer that has a report for one that was not released.
            report = None if self._waits else report_of(parent, list(self._states_of_leaving(derived)))
            return SyncerResult(parent, report, concerned=frozenset(derived), again_seconds=LEAVE_SECONDS)
        set_finalizer(self._access, SYNCERS, parent, FINALIZER, present=False)
        return SyncerResult(parent, ended=Ended())

    def _enqueue_parent(self, key: SyncerKey) -> None:
        self._sources.enqueue_later((key[0], split_derived_name(key[1])[0]), SUM_SECONDS)


def report_of(parent: Object, states: list[ServiceState]) -> Report:
    """Return the conditions and counts of a namespace's syncer."""
    namespace, _ = key_of(parent)
    counts = ServiceCounts.of(states)
    summary = f"{counts.ready} of {counted(counts.total, 'Service')} of namespace {namespace} ready"
    well = Problem(ConditionType.SYNCED, summary if states else f"no Service of namespace {namespace} joins")
    first = counts.worst[0] if counts.worst else None
    synced = ready = well
    if first is not None and first.problem is not None:
        more = f", {len(states) - counts.synced - 1} more" if len(states) - counts.synced > 1 else ""
        message = f"{summary}; {first.service}: {first.problem.message}{more}"
        synced = Problem(first.problem.reason, message, first.problem.remedy).with_remedy(REMEDIES)
        ready = synced
    is_ready: bool | None = True
    if any(one.is_ready is False for one in states):
        is_ready = False
    elif any(one.is_ready is None for one in states):
        is_ready = None
    elif first is not None:
        ready = Problem(Reason.INSTANCES_UP, synced.message)
    return Report(
        is_ready,
        ready,
        first is None,
        synced,
        desired=sum(one.desired for one in states),
        registered=sum(one.registered for one in states),
        names=frozenset(),
        services=counts,
    )


def _as_it_stands(item: Object | None) -> SyncerResult | None:
    """Return the result by which an existing syncer is reconciled as it stands, and a missing one is not."""
    return None if item is not None else SyncerResult()


def _is_away(error: KubernetesError) -> bool:
    """Return True if the API server, or a webhook, did not answer or failed; False for a refusal."""
    return error.status_code is None or error.status_code >= 500


def _is_up_to_date(item: Object, wanted: Mapping[str, Any]) -> bool:
    """Return True if a derived syncer has the desired spec, label and annotation."""
    return bool(item.get("spec") == wanted["spec"]) and inherited_marks(item) == inherited_marks(wanted)


def _marks_patch(wanted: Object) -> dict[str, dict[str, str | None]]:
    """Return the part of a merge patch for the inherited label and annotation."""
    marks = inherited_marks(wanted)
    return {kind: {key: marks[kind].get(key)} for kind, key in INHERITED.items()}


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON merge patch (RFC 7396) that changes one object into another."""
    patch: dict[str, Any] = dict.fromkeys(before.keys() - after.keys())
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            if changed := merge_patch(old, value):
                patch[key] = changed
        elif value != old or key not in before:
            patch[key] = value
    return patch
