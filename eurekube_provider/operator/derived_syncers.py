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
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from eurekube_provider.core.brake import BRAKE_HOLD_SECONDS, RELEASE_BRAKE_ANNOTATION
from eurekube_provider.core.condition_types import Reason, SyncerCondition
from eurekube_provider.core.derived_syncer import (
    INHERITED_METADATA_KEYS,
    MemberServiceCounts,
    MemberServiceState,
    Membership,
    derived_syncer,
    derived_syncer_name,
    inherited_metadata,
    is_namespace_syncer,
    membership_of_service,
    name_and_uid_of_parent_syncer,
    read_member_service_state,
    split_derived_syncer_name,
)
from eurekube_provider.core.errors import ConfigurationError, KubernetesError
from eurekube_provider.core.objects import Object, conditions_of, is_being_deleted, key_of, qualified_name
from eurekube_provider.core.plan import Policy
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.remedies import SYNCER_REMEDIES
from eurekube_provider.core.syncer import (
    FINALIZER,
    FORCE_DELETE_ANNOTATION,
    has_annotation,
    has_finalizer,
)
from eurekube_provider.core.wording import format_count
from eurekube_provider.kube.access import (
    MERGE_PATCH_TYPE,
    SERVICES,
    SYNCERS,
    KubeAccess,
    is_api_unavailable,
    list_objects_by_name,
)
from eurekube_provider.kube.finalizers import set_finalizer
from eurekube_provider.operator.conditions import SyncerReport
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.reports import SyncerDeletion, SyncerResult
from eurekube_provider.operator.sources import NAMESPACE_SYNCER_DELAY_SECONDS, ClusterCache

_log = logging.getLogger(__name__)

DELETION_DELAY_SECONDS = BRAKE_HOLD_SECONDS
"""Seconds between the moment at which a Service ceases to join, without having opted out, and the deletion of
its syncer.

The brake holds removals as long: a chart that lost its annotations, or an incomplete list, is repaired by
then.
"""

REFUSED_SPEC_RETRY_SECONDS = 60.0

RETRY_SECONDS = 10.0
"""Seconds until a request is repeated that failed otherwise than by a refused spec."""

WRITE_TIMEOUT_SECONDS = 5.0
"""The time-out of a write in seconds, which is short since a worker of a registry waits for the answer."""

LONGEST_WATCH_WAIT_SECONDS = 5.0
"""Most seconds that a single pass (``--once``) waits until the watch shows an object that it wrote."""

_SAFEGUARD_FIELDS = ("paused", "policy")
"""Fields of the spec that protect instances, and are copied even while the Service is refused."""

_ORPHAN_FINALIZER = "orphan"
"""The finalizer of ``kubectl delete --cascade=orphan``: derived syncers then stay as ordinary syncers."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    """The reason why a derived syncer does not have the desired spec.

    :ivar refused_spec: the spec that the API server refused; None if no spec was sent.
    :ivar retry_at: the monotonic time from which the spec may be sent again.
    """

    problem: Problem
    refused_spec: Mapping[str, Any] | None = None
    retry_at: float = 0.0


class DerivedSyncerController:
    """The controller of derived syncers; any number of workers may share it, each with a syncer of its own.

    :param waits: True to wait until the watch shows a created syncer, since a single pass has no later
        reconcile.
    """

    def __init__(
        self,
        access: KubeAccess,
        sources: ClusterCache,
        report: Callable[[Object, Problem], None] = lambda *_: None,
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
        # By namespace: writes wait until then after a failed one.
        self._writes_paused_until: dict[str, float] = {}

    def on_leadership_lost(self) -> None:
        """Forget refusals and pending deletions, since another replica leads."""
        with self._lock:
            self._refused.clear()
            self._leaving.clear()
            self._writes_paused_until.clear()

    def is_service_refused(self, key: SyncerKey) -> bool:
        """Return True if a derived syncer's Service is refused: nothing new is registered for it."""
        with self._lock:
            refusal = self._refused.get(key)
        return refusal is not None and refusal.problem.reason == Reason.SERVICE_REFUSED

    def sync_with_service(self, key: SyncerKey) -> SyncerResult | None:
        """Create, change or delete one derived syncer as its Service asks.

        :returns: None if the syncer must be reconciled as it is now; otherwise the result of the reconcile.
        :raises KubernetesError: a missing syncer cannot be created.
        """
        try:
            return self._sync_with_service(key)
        except KubernetesError as error:
            problem, now = Problem(Reason.KUBERNETES_ERROR, str(error)), time.monotonic()
            with self._lock:
                before = self._refused.get(key)
                is_away = is_api_unavailable(error)
                # The others of the namespace try before this one does again.
                retry_seconds = RETRY_SECONDS * (2 if is_away else 1)
                self._refused[key] = _Refusal(problem, retry_at=now + retry_seconds)
                if is_away:
                    self._writes_paused_until[key[0]] = now + RETRY_SECONDS
            if before is None or before.problem != problem:
                self._enqueue_parent(key)
            if self._sources.syncers.get(*key) is None:
                raise
            # The present syncer is served, whatever prevents its change.
            extra = {"syncer": "/".join(key), "error": str(error), "retry_seconds": retry_seconds}
            _log.warning(
                "failed to update a derived syncer, serving its present spec and retrying", extra=extra
            )
            self._sources.enqueue_later(key, retry_seconds)
            return None

    def _sync_with_service(self, key: SyncerKey) -> SyncerResult | None:
        parent_name, service_name = split_derived_syncer_name(key[1])
        parent = self._sources.syncers.get(key[0], parent_name) if parent_name else None
        # The CRD's rules let no syncer become or stop being a namespace's: a missing field says that an older
        # CRD drops it, and nothing may leave because of that.
        if parent is None or not is_namespace_syncer(parent):
            return None
        item = self._sources.syncers.get(*key)
        is_ours = item is not None and name_and_uid_of_parent_syncer(item) == (
            parent_name,
            parent["metadata"].get("uid"),
        )
        if item is not None and is_being_deleted(item):
            if is_ours and _is_force_deleted_by(parent, item) and self._may_write_or_enqueue_later(key):
                self._annotate_with_now(item, FORCE_DELETE_ANNOTATION)
            return None  # its finalizer goes after its instances have left
        if is_being_deleted(parent):
            if (
                is_ours
                and item is not None
                and _ORPHAN_FINALIZER not in parent["metadata"].get("finalizers", ())
            ):
                return self._delete_syncer(item, parent) if self._may_write_or_enqueue_later(key) else None
            return None
        if not self._has_finalizer_or_is_dry_run(parent) or not self._sources.knows_services_of(key[0]):
            return _empty_result_if_missing(item)
        service = self._sources.service(key[0], service_name)
        membership = membership_of_service(parent, service)
        if membership is Membership.MEMBER and service is not None:
            with self._lock:
                self._leaving.pop(key, None)
            return self._sync_syncer_of_member_service(key, parent, service, item, is_ours=is_ours)
        if is_ours and item is not None:
            return self._delete_syncer_of_non_member(key, parent, item, membership)
        self._clear_refusal(key)
        return None

    def _has_finalizer_or_is_dry_run(self, parent: Object) -> bool:
        """Return True if a namespace's syncer has the finalizer, or a dry run cannot write it."""
        return has_finalizer(parent) or not self._access.sends_writes

    def _sync_syncer_of_member_service(
        self, key: SyncerKey, parent: Object, service: Object, item: Object | None, *, is_ours: bool
    ) -> SyncerResult | None:
        """Create or update the syncer of a Service that joins; None if it must be reconciled as it is."""
        try:
            wanted = derived_syncer(parent, service)
        except ConfigurationError as error:
            if is_ours and item is not None:
                self._copy_safeguard_fields(key, item, parent)
            return self._report_refusal(
                key, service, item, _Refusal(Problem(Reason.SERVICE_REFUSED, str(error)))
            )
        if item is not None and not is_ours:
            why = (
                f"there is an EurekaSyncer {qualified_name(item)}, which is not derived from "
                f"{qualified_name(parent)}"
            )
            remedy = "rename or delete that one, or annotate the Service with eurekube.io/sync=false"
            problem = Problem(Reason.SERVICE_REFUSED, why, remedy)
            return self._report_refusal(key, service, item, _Refusal(problem))
        if item is not None and _has_wanted_spec_and_metadata(item, wanted):
            self._clear_refusal(key)
            return None
        if not self._may_write_or_enqueue_later(key, wanted):
            if item is not None:
                self._copy_safeguard_fields(key, item, parent)
            return _empty_result_if_missing(item)
        try:
            answer = self._create_or_patch(item, wanted)
        except KubernetesError as error:
            is_refused = error.status_code == 422
            result = self._refuse_spec(key, service, item, wanted, str(error)) if is_refused else None
            if item is not None and not is_api_unavailable(error):
                self._copy_safeguard_fields(key, item, parent)
            if not is_refused:
                raise
            return result
        if answer is not None and not _has_wanted_spec_and_metadata(answer, wanted):
            why = "the API server stores another spec of its EurekaSyncer: a webhook or an old CRD changes it"
            remedy = "exempt EurekaSyncers from that webhook, or upgrade the CRD"
            return self._refuse_spec(key, service, item, wanted, why, remedy)
        self._clear_refusal(key)
        if not self._access.sends_writes:
            return _empty_result_if_missing(item)
        if item is not None and item.get("spec") == wanted["spec"]:
            return None  # of a change of labels alone no event leads here again
        is_watched = self._wait_until_watched(key, lambda it: _has_wanted_spec_and_metadata(it, wanted))
        return None if is_watched else SyncerResult()

    def _may_write_or_enqueue_later(self, key: SyncerKey, wanted: Object | None = None) -> bool:
        """Return True unless the same spec was refused, or a write to this namespace failed, a short while
        ago; otherwise queue the syncer for later.

        After a failure of the API server one worker writes again, and the others of its namespace wait for
        the result.
        """
        now = time.monotonic()
        with self._lock:
            refusal, held_until = self._refused.get(key), self._writes_paused_until.get(key[0], 0.0)
            is_same = refusal is not None and (
                refusal.refused_spec is None
                or (wanted is not None and refusal.refused_spec == wanted["spec"])
            )
            wait_seconds = max(refusal.retry_at if refusal and is_same else 0.0, held_until) - now
            if wait_seconds <= 0 and held_until:
                self._writes_paused_until[key[0]] = now + RETRY_SECONDS
        if wait_seconds > 0:
            self._sources.enqueue_later(key, wait_seconds)
        return wait_seconds <= 0

    def _send_syncer_write(
        self, method: str, key: tuple[str] | SyncerKey, body: Object, content_type: str = "application/json"
    ) -> Object:
        """Send one write with a short time-out, since a worker of a registry waits for the answer.

        :param key: the syncer's namespace and name; the namespace alone to create one.
        """
        namespace, path = key[0], SYNCERS.path(*key)
        try:
            answer = self._access.request(
                method, path, body=body, content_type=content_type, timeout_seconds=WRITE_TIMEOUT_SECONDS
            )
        except KubernetesError as error:
            if not is_api_unavailable(error):
                self._end_write_pause(namespace)
            raise
        self._end_write_pause(namespace)
        return answer

    def _patch_syncer(self, item: Object, metadata: Object, spec: Object | None = None) -> Object:
        """Patch a syncer, unless another object has its name by now."""
        body: dict[str, Any] = {"metadata": {"uid": item["metadata"].get("uid"), **metadata}}
        if spec is not None:
            body["spec"] = spec
        return self._send_syncer_write("PATCH", key_of(item), body, MERGE_PATCH_TYPE)

    def _end_write_pause(self, namespace: str) -> None:
        with self._lock:
            self._writes_paused_until.pop(namespace, None)

    def _copy_safeguard_fields(self, key: SyncerKey, item: Object, parent: Object) -> None:
        """Copy ``paused`` and ``policy``, also while the Service is refused or leaves; raise no error."""
        there = item.get("spec") or {}
        spec = {field: parent["spec"].get(field) for field in _SAFEGUARD_FIELDS}
        changes = {field: value for field, value in spec.items() if there.get(field) != value}
        if not changes or not self._may_write_or_enqueue_later(key):
            return
        try:
            self._patch_syncer(item, {}, changes)
        except KubernetesError as error:
            extra = {"syncer": "/".join(key), "error": str(error), "retry_seconds": RETRY_SECONDS}
            _log.warning(
                "failed to copy paused and policy to a derived syncer, which keeps its old ones, retrying",
                extra=extra,
            )
            self._sources.enqueue_later(key, RETRY_SECONDS)

    def _create_or_patch(self, item: Object | None, wanted: Mapping[str, Any]) -> Object | None:
        """Create or patch a derived syncer; return the stored object, or None where it is not known yet."""
        key, is_dry = key_of(wanted), not self._access.sends_writes
        extra = {"syncer": "/".join(key)}
        if item is None:
            try:
                answer = self._send_syncer_write("POST", key[:1], wanted)
            except KubernetesError as error:
                if error.status_code != 409:
                    raise
                return None  # it exists already, and the watch is about to show it
            if is_dry:
                _log.info("dry run: would create a derived syncer, creating none", extra=extra)
            else:
                _log.info("created a derived syncer, reconciling it next", extra=extra)
            return answer
        marks = inherited_metadata(wanted)
        metadata = {kind: {key: marks[kind].get(key)} for kind, key in INHERITED_METADATA_KEYS.items()}
        answer = self._patch_syncer(item, metadata, merge_patch(item.get("spec") or {}, wanted["spec"]))
        if is_dry:
            _log.info("dry run: would change a derived syncer, leaving it as it is", extra=extra)
            return None
        return answer

    def _wait_until_watched(self, key: SyncerKey, is_as_written: Callable[[Object], bool]) -> bool:
        """Wait, with ``--once`` alone, until the watch shows a syncer as written; False if it does not."""
        deadline = time.monotonic() + LONGEST_WATCH_WAIT_SECONDS
        while self._waits and time.monotonic() < deadline:
            if (item := self._sources.syncers.get(*key)) is not None and is_as_written(item):
                return True
            time.sleep(0.02)
        return False

    def _refuse_spec(
        self, key: SyncerKey, service: Object, item: Object | None, wanted: Object, why: str, remedy: str = ""
    ) -> SyncerResult | None:
        """Refuse a Service whose derived spec the API server does not store; try again later."""
        problem, now = Problem(Reason.SERVICE_REFUSED, why, remedy), time.monotonic()
        self._sources.enqueue_later(key, REFUSED_SPEC_RETRY_SECONDS)
        return self._report_refusal(
            key, service, item, _Refusal(problem, wanted["spec"], now + REFUSED_SPEC_RETRY_SECONDS)
        )

    def _report_refusal(
        self, key: SyncerKey, service: Object, item: Object | None, refusal: _Refusal
    ) -> SyncerResult | None:
        """Record and report a refusal; return the result by which the present syncer is served."""
        with self._lock:
            before, self._refused[key] = self._refused.get(key), refusal
        if before is None or before.problem != refusal.problem:
            self._report(service, refusal.problem)
            self._enqueue_parent(key)
        return _empty_result_if_missing(item)

    def _clear_refusal(self, key: SyncerKey) -> None:
        with self._lock:
            was_refused = self._refused.pop(key, None) is not None
        if was_refused:
            self._enqueue_parent(key)

    def _delete_syncer_of_non_member(
        self, key: SyncerKey, parent: Object, item: Object, membership: Membership
    ) -> SyncerResult | None:
        """Delete the syncer of a Service that does not join any more: at once if a person opted out,
        otherwise after :data:`DELETION_DELAY_SECONDS`.

        Delete none while the namespace's syncer is paused, or under UpsertOnly unless a person opted out.
        """
        self._copy_safeguard_fields(key, item, parent)
        is_meant = membership is Membership.OPTED_OUT or has_annotation(item, RELEASE_BRAKE_ANNOTATION)
        removes = is_meant or parent["spec"].get("policy") != Policy.UPSERT_ONLY
        if parent["spec"].get("paused") or not removes:
            with self._lock:
                self._leaving.pop(key, None)
            self._clear_refusal(key)
            return None
        now = time.monotonic()
        with self._lock:
            is_new = key not in self._leaving
            remaining_seconds = self._leaving.setdefault(key, now + DELETION_DELAY_SECONDS) - now
        if not is_meant and remaining_seconds > 0:
            if is_new:
                extra = {"syncer": "/".join(key), "seconds": DELETION_DELAY_SECONDS}
                _log.warning(
                    "keeping a derived syncer for now: its Service does not join any more, deleting the "
                    "syncer later",
                    extra=extra,
                )
                self._enqueue_parent(key)
            self._clear_refusal(key)
            self._sources.enqueue_later(key, remaining_seconds)
            return None
        if not self._may_write_or_enqueue_later(key):
            return None
        # Instances are about to leave: the Service is read once more from the API server.
        services = list_objects_by_name(self._access, SERVICES, split_derived_syncer_name(key[1])[1], key[0])
        if membership_of_service(parent, services[0] if services else None) is not membership:
            _log.warning(
                "kept a derived syncer, checking again later: the API server's Service differs from the "
                "watched one",
                extra={"syncer": "/".join(key)},
            )
            self._end_write_pause(key[0])
            self._sources.enqueue_later(key, DELETION_DELAY_SECONDS)
            return None
        return self._delete_syncer(item, parent)

    def _delete_syncer(self, item: Object, parent: Object) -> SyncerResult | None:
        """Delete a derived syncer; its finalizer goes after its instances have left."""
        key = key_of(item)
        if not self._access.sends_writes:
            _log.info("dry run: would delete a derived syncer, keeping it", extra={"syncer": "/".join(key)})
            return None
        try:
            if _is_force_deleted_by(parent, item):
                self._annotate_with_now(item, FORCE_DELETE_ANNOTATION)
            body = {"preconditions": {"uid": item["metadata"].get("uid")}}
            self._send_syncer_write("DELETE", key, body)
        except KubernetesError as error:
            if error.status_code not in (404, 409):
                raise
        else:
            _log.info(
                "deleted a derived syncer, its instances are handed over or deregistered next",
                extra={"syncer": "/".join(key)},
            )
        with self._lock:
            self._leaving.pop(key, None)
            self._refused.pop(key, None)
        return SyncerResult()

    def reconcile_namespace_syncer(self, parent: Object) -> SyncerResult:
        """Compute the status of a namespace's syncer from all its Services.

        :raises KubernetesError: the syncer, or one that is derived from it, cannot be written.
        """
        key = key_of(parent)
        derived = {one: self._sources.syncers.get(*one) for one in self._sources.derived_syncers_of(key)}
        if is_being_deleted(parent):
            return self._finish_deletion(parent, derived)
        if not self._has_finalizer_or_is_dry_run(parent):
            set_finalizer(self._access, SYNCERS, parent, FINALIZER, present=True)
            if not self._wait_until_watched(key, has_finalizer):
                return SyncerResult()  # the event of the finalizer leads here again
        if not self._sources.knows_services_of(key[0]):
            why = f"the Services of namespace {key[0]} have not been read yet: nothing is changed before"
            unread = Problem(Reason.NAMESPACE_NOT_READ, why).with_remedy(SYNCER_REMEDIES)
            status = parent.get("status") or {}
            report = SyncerReport(
                None,
                unread,
                is_synced=False,
                synced=unread,
                desired=int(status.get("desired") or 0),
                registered=int(status.get("registered") or 0),
            )
            return SyncerResult(parent, report, requeue_after_seconds=NAMESPACE_SYNCER_DELAY_SECONDS)
        if has_annotation(parent, RELEASE_BRAKE_ANNOTATION):
            self._release_brakes(parent, derived)
        to_reconcile = set[SyncerKey]()
        states = list(self._service_states(parent, derived, to_reconcile))
        return SyncerResult(
            parent,
            namespace_syncer_report(parent, states),
            syncers_to_reconcile=frozenset(to_reconcile),
        )

    def _service_states(
        self, parent: Object, derived: Mapping[SyncerKey, Object | None], to_reconcile: set[SyncerKey]
    ) -> Iterator[MemberServiceState]:
        """Yield the state of each Service that joins or joined.

        :param to_reconcile: filled with the derived syncers that must be reconciled.
        """
        namespace, name = key_of(parent)
        left = dict(derived)
        for service in self._sources.services.objects(namespace):
            if membership_of_service(parent, service) is not Membership.MEMBER:
                continue
            service_name = str(service["metadata"]["name"])
            key = (namespace, derived_syncer_name(name, service_name))
            item = left.pop(key, None)
            with self._lock:
                refusal = self._refused.get(key)
            is_up_to_date = False
            with suppress(ConfigurationError):
                is_up_to_date = item is not None and _has_wanted_spec_and_metadata(
                    item, derived_syncer(parent, service)
                )
            if refusal is not None or not is_up_to_date:
                to_reconcile.add(key)
            problem = refusal.problem if refusal else None
            yield read_member_service_state(service_name, item, problem, is_up_to_date=is_up_to_date)
        to_reconcile.update(left)
        yield from self._leaving_service_states(left)

    def _leaving_service_states(
        self, left: Mapping[SyncerKey, Object | None]
    ) -> Iterator[MemberServiceState]:
        """Yield the state of each Service that does not join any more and still has a derived syncer."""
        for key, item in left.items():
            if item is None:
                continue
            with self._lock:
                refusal, leaves = self._refused.get(key), key in self._leaving
            if refusal is not None:
                problem = refusal.problem
            elif is_being_deleted(item):
                problem = Problem(Reason.LEAVING, "its EurekaSyncer is being deleted")
            elif leaves:
                problem = Problem(Reason.LEAVING, "it joins no more; its EurekaSyncer goes within a minute")
            else:
                problem = None  # kept: its own conditions tell
            yield read_member_service_state(split_derived_syncer_name(key[1])[1], item, problem)

    def _release_brakes(self, parent: Object, derived: Mapping[SyncerKey, Object | None]) -> None:
        """Release the brake where it holds a derived syncer, and end the wait before pending deletions."""
        for key, item in derived.items():
            if item is None:
                continue
            braked = conditions_of(item).get(SyncerCondition.BRAKED) or {}
            with self._lock:
                if key in self._leaving:
                    self._leaving[key] = time.monotonic()
            if braked.get("status") == "True":
                self._annotate_with_now(item, RELEASE_BRAKE_ANNOTATION)
        self._patch_syncer(parent, {"annotations": {RELEASE_BRAKE_ANNOTATION: None}})

    def _annotate_with_now(self, item: Object, annotation: str) -> None:
        self._patch_syncer(item, {"annotations": {annotation: "now"}})

    def _finish_deletion(self, parent: Object, derived: Mapping[SyncerKey, Object | None]) -> SyncerResult:
        """Remove the finalizer of a deleted namespace's syncer once no derived syncer is left."""
        if not has_finalizer(parent):
            return SyncerResult(completed_deletion=SyncerDeletion())
        if derived:
            # A single pass takes a deleted syncer that has a report for one that was not released.
            report = (
                None
                if self._waits
                else namespace_syncer_report(parent, list(self._leaving_service_states(derived)))
            )
            return SyncerResult(
                parent,
                report,
                syncers_to_reconcile=frozenset(derived),
                requeue_after_seconds=DELETION_DELAY_SECONDS,
            )
        set_finalizer(self._access, SYNCERS, parent, FINALIZER, present=False)
        return SyncerResult(parent, completed_deletion=SyncerDeletion())

    def _enqueue_parent(self, key: SyncerKey) -> None:
        self._sources.enqueue_later(
            (key[0], split_derived_syncer_name(key[1])[0]), NAMESPACE_SYNCER_DELAY_SECONDS
        )


def namespace_syncer_report(parent: Object, states: list[MemberServiceState]) -> SyncerReport:
    """Return the conditions and counts of a namespace's syncer."""
    namespace, _ = key_of(parent)
    counts = MemberServiceCounts.of(states)
    summary = f"{counts.ready} of {format_count(counts.total, 'Service')} of namespace {namespace} ready"
    well = Problem(
        SyncerCondition.SYNCED, summary if states else f"no Service of namespace {namespace} joins"
    )
    first = counts.worst_services[0] if counts.worst_services else None
    synced = ready = well
    if first is not None and first.problem is not None:
        more = f", {len(states) - counts.synced - 1} more" if len(states) - counts.synced > 1 else ""
        message = f"{summary}; {first.service}: {first.problem.message}{more}"
        synced = Problem(first.problem.reason, message, first.problem.remedy).with_remedy(SYNCER_REMEDIES)
        ready = synced
    is_ready: bool | None = True
    if any(one.is_ready is False for one in states):
        is_ready = False
    elif any(one.is_ready is None for one in states):
        is_ready = None
    elif first is not None:
        ready = Problem(Reason.INSTANCES_UP, synced.message)
    return SyncerReport(
        is_ready,
        ready,
        first is None,
        synced,
        desired=sum(one.desired for one in states),
        registered=sum(one.registered for one in states),
        claimed_names=frozenset(),
        service_counts=counts,
    )


def _empty_result_if_missing(item: Object | None) -> SyncerResult | None:
    """Return None for a syncer to be reconciled as it is; an empty result for a missing one."""
    return None if item is not None else SyncerResult()


def _is_force_deleted_by(parent: Object, item: Object) -> bool:
    """Return True if the annotation that forces a deletion must be copied from ``parent`` to ``item``."""
    return has_annotation(parent, FORCE_DELETE_ANNOTATION) and not has_annotation(
        item, FORCE_DELETE_ANNOTATION
    )


def _has_wanted_spec_and_metadata(item: Object, wanted: Mapping[str, Any]) -> bool:
    return bool(item.get("spec") == wanted["spec"]) and inherited_metadata(item) == inherited_metadata(wanted)


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON merge patch (RFC 7396) that turns the object ``before`` into ``after``."""
    patch: dict[str, Any] = dict.fromkeys(before.keys() - after.keys())
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            if changed := merge_patch(old, value):
                patch[key] = changed
        elif value != old or key not in before:
            patch[key] = value
    return patch
