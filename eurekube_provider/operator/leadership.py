"""A replica's part in the election by the Lease: it leads, stands by, or waits to learn who leads.

Without the Lease a replica changes nothing. It goes on renewing its instances in Eureka until it has read
that another replica leads: renewals from several replicas do no harm, and a Kubernetes API that is away for
an hour must not cost a single registration. If the leader's process ends while the API is away, or refuses
the Lease to all, nobody can take it over: then the other replicas renew the instances that they have read in
Eureka, until they read who leads. A new leader whose copy of the cluster is old, since it could not reach the
API, renews at once and changes nothing until the copy is current. A leader that alone does not reach Eureka
hands the Lease over (:mod:`.hand_over`) once all changes that were under way have ended.

Two operators of one name are one operator to Eureka: they own and renew the same instances. A Lease keeps
them apart only if both use the same one. In a cluster the Lease's namespace is the operator's own; outside it
would be the kubeconfig context's, which may be any. So a process outside the cluster that was not told the
Lease's namespace looks for the Lease in all namespaces, before it becomes a candidate and regularly
afterwards.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from eurekube_provider.core.errors import ConfigurationError, EurekubeError, KubernetesError
from eurekube_provider.core.objects import parse_api_time
from eurekube_provider.kube.access import LEASES, KubeAccess, list_objects_by_name
from eurekube_provider.kube.elector import Elector
from eurekube_provider.kube.reflector import WATCH_SETTLE_SECONDS
from eurekube_provider.runtime.clock import boot_clock_seconds

_log = logging.getLogger(__name__)

POLL_SECONDS = 0.05

SUSPENDED_AFTER_SECONDS = 10.0
"""Seconds without a look after which the process was suspended, and its copy of the cluster may be old."""


class LeaderTasks(Protocol):
    """Tasks that begin and end with a replica's leadership."""

    def pause_and_check_idle(self) -> bool:
        """Begin no more changes; return True once all changes that were begun have ended."""

    def start_renewals(self) -> None:
        """Begin to renew the instances that are in Eureka."""

    def is_cluster_copy_current(self) -> bool:
        """Return whether the local copy of the objects to reconcile is current."""

    def lead(self) -> None:
        """Reconcile everything, and make the necessary changes."""

    def stand_by(self) -> None:
        """Stop renewing, since another replica leads."""


class Leadership:
    """This replica's part in the election of the leader.

    :param elector: None where this replica is the only one: it leads until it stops.
    :param find_successor: returns the replica to which this one must hand the Lease over now; empty for none.
    """

    def __init__(
        self,
        elector: Elector | None,
        find_successor: Callable[[], str] = str,
        clock: Callable[[], float] = boot_clock_seconds,
    ) -> None:
        self._elector = elector
        self._find_successor = find_successor
        self._clock = clock
        self._looked_at = math.inf  # by :meth:`run_tasks`, last
        self._settles_at = -math.inf  # until then watches bring what came during a suspension
        self._term = 0
        self._taken_over = 0
        self._losses = 0
        self._renews_for_all = False  # renews without the Lease, since no replica can lead
        self._closed = False

    def may_write(self) -> bool:
        """Return whether a change may be sent at this moment.

        A term that :meth:`run_tasks` has not begun yet allows no change: changes of the former term must end
        first. Nor does a process that was suspended: it must read first what changed meanwhile.
        """
        if self._closed or self._clock() - self._looked_at >= SUSPENDED_AFTER_SECONDS:
            return False
        elector = self._elector
        return self._term == 1 if elector is None else elector.may_write() and self._term == elector.term

    def had_earlier_leader(self) -> bool:
        """Return whether another replica may have led before, even a moment ago; True without an election."""
        return self._elector is None or self._elector.had_earlier_leader

    def forbid_changes(self) -> None:
        """Forbid all further changes: this replica stops."""
        self._closed = True

    def release_lease(self) -> None:
        """Give the Lease up for another replica; call once no change is under way any more."""
        if self._elector is not None:
            self._elector.stop()

    def wait_for_lease(self, stop: threading.Event, longest_seconds: float) -> bool:
        """Wait until this replica holds the Lease, for a single pass; return False when asked to stop.

        :raises EurekubeError: another process renews the Lease meanwhile, or it cannot be taken.
        """
        elector = self._elector
        if elector is None:
            self._term = 1
            return True
        elector.start()
        give_up_at = time.monotonic() + longest_seconds
        while not elector.may_write():
            if elector.is_renewed_by_another:
                raise EurekubeError(
                    f"nothing was changed, since {elector.holder} leads and renews the Lease"
                    f" {elector.lease_name}: stop that operator, or look only, with --dry-run"
                )
            if time.monotonic() > give_up_at:
                why = elector.failure or f"{elector.holder or 'nobody'} holds it"
                raise EurekubeError(
                    f"nothing was changed, since the Lease {elector.lease_name} could not be taken ({why});"
                    " if no operator can be running any more, do without it: --without-lease"
                )
            if stop.wait(POLL_SECONDS):
                return False
        self._term = elector.term
        return True

    def require_lease(self) -> None:
        """Raise an error if a single pass has lost the Lease."""
        if not self.may_write() and self._elector is not None and not self._closed:
            raise EurekubeError(
                f"not all was done, since the Lease {self._elector.lease_name} was not renewed in time, or"
                " another operator took it: run it again"
            )

    def run_tasks(
        self, tasks: LeaderTasks, stop: threading.Event, on_leader_known: Callable[[], None] = lambda: None
    ) -> None:
        """Begin, pause and end the leader's tasks as the Lease says, until ``stop`` is set.

        :param on_leader_known: called once this replica leads, or reads that a live replica leads.
        """
        elector = self._elector
        if elector is not None:
            elector.start()
        is_settled = False
        while not stop.is_set():
            self.apply_election_state(elector, tasks)
            if not is_settled and (self._term or (elector is not None and elector.is_renewed_by_another)):
                is_settled = True
                on_leader_known()
            stop.wait(POLL_SECONDS)

    def apply_election_state(self, elector: Elector | None, tasks: LeaderTasks) -> None:
        """Begin, pause or end the leader's tasks by the elector's present state, and after a suspension."""
        now = self._clock()
        if now - self._looked_at >= SUSPENDED_AFTER_SECONDS:
            self._term = self._taken_over = 0
            self._settles_at = now + WATCH_SETTLE_SECONDS
            _log.warning(
                "noticed that the process was suspended, changing nothing until the copy of the cluster is "
                "current",
                extra={"seconds": round(now - self._looked_at)},
            )
        self._looked_at = now
        if elector is None:
            self._begin_term(1, tasks)
            return
        losses, term = elector.lease_loss_count, elector.term
        if losses != self._losses:
            if tasks.pause_and_check_idle():
                tasks.stand_by()
                self._losses = losses
                _log.info("standing by, renewing nothing: another replica leads")
        elif not elector.may_write():
            has_ended = tasks.pause_and_check_idle()
            if elector.no_replica_can_lead and not self._renews_for_all:
                self._renews_for_all = True
                tasks.start_renewals()
                _log.warning(
                    "renewing all instances without a leader, changing nothing: no replica can take the "
                    "expired Lease"
                )
            elif self._renews_for_all and has_ended and not elector.no_replica_can_lead:
                self._renews_for_all = False
                tasks.stand_by()
                _log.info("standing by, ending the renewals without a leader: a replica can lead again")
        elif successor := self._find_successor():
            self._term = 0  # no change is allowed any more; all is reconciled again if the hand-over fails
            if tasks.pause_and_check_idle():
                elector.hand_over_to(successor)
        else:
            self._begin_term(term, tasks)

    def _begin_term(self, term: int, tasks: LeaderTasks) -> None:
        """Lead unless this term has begun, once former changes have ended and the copy is current."""
        if term == self._term or not tasks.pause_and_check_idle() or self._clock() < self._settles_at:
            return
        begins, self._taken_over = term != self._taken_over, term
        if begins:
            self._renews_for_all = False
            tasks.start_renewals()
        if tasks.is_cluster_copy_current():
            self._term = term
            tasks.lead()
            _log.info("became the leader, reconciling everything", extra={"term": term})
        elif begins:
            _log.warning(
                "became the leader with an old copy of the cluster, renewing but changing nothing until it is"
                " current"
            )
        self._looked_at = self._clock()  # all that may have taken long, and was no suspension


def find_lease_namespace(access: KubeAccess, namespace: str, name: str) -> str:
    """Return the namespace that has a Lease of this name; ``namespace`` where no Lease exists.

    :raises ConfigurationError: several namespaces have such a Lease, or the Leases may not be listed.
    """
    try:
        listed = list_objects_by_name(access, LEASES, name)
    except KubernetesError as error:
        if error.status_code != 403:
            raise
        raise ConfigurationError(
            f"it cannot be found out where the Lease {name} of the operator is ({error}): name its namespace"
            " with --lease-namespace"
        ) from None
    found = sorted(str(one["metadata"]["namespace"]) for one in listed)
    if len(found) > 1:
        raise ConfigurationError(
            f"there are Leases {name} in the namespaces {', '.join(found)}: name the operator's with "
            "--lease-namespace"
        )
    return found[0] if found else namespace


CLOCK_TOLERANCE_SECONDS = 60.0
"""Seconds of clock difference allowed when a Lease that is seen first is judged by its renew time."""


class DuplicateOperatorCheck:
    """The periodic check that no operator of the same name leads by a Lease in another namespace.

    :param period_seconds: average seconds between two checks.
    :param found: called when another operator holds such a Lease, which :attr:`refusal` then describes.
    """

    def __init__(
        self,
        access: KubeAccess,
        namespace: str,
        name: str,
        period_seconds: float,
        found: Callable[[], None],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._access = access
        self._namespace = namespace
        self._name = name
        self._period_seconds = period_seconds
        self._found = found
        self._now = now
        self._renewed: dict[str, str] = {}
        self.refusal: ConfigurationError | None = None
        """Reason why this operator must not go on; None while no other operator is found."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="duplicate-operator", daemon=True)

    def require_no_duplicate(self) -> None:
        """Check once for another operator of this name.

        :raises ConfigurationError: another operator runs, or the Leases may not be listed.
        :raises KubernetesError: the Leases could not be listed.
        """
        try:
            listed = list_objects_by_name(self._access, LEASES, self._name)
        except KubernetesError as error:
            if error.status_code != 403:
                raise
            if self._own_lease_exists():
                _log.warning(
                    "failed to check for another operator of this name in the cluster, going on without the "
                    "check",
                    extra={"error": str(error), "hint": "set --lease-namespace"},
                )
                return
            raise ConfigurationError(
                f"it cannot be found out whether an operator with the Lease {self._name} leads in this"
                f" cluster already ({error}): name the namespace of its Lease with --lease-namespace; or, if"
                " there is none, one for this operator's own, e.g. --lease-namespace"
                f" {self._namespace}"
            ) from None
        for lease in listed:
            namespace = str(lease["metadata"]["namespace"])
            if namespace != self._namespace and self._note_renew_time_and_check_alive(
                namespace, lease.get("spec") or {}
            ):
                raise ConfigurationError(
                    f"{lease['spec']['holderIdentity']} leads in this cluster by the Lease"
                    f" {namespace}/{self._name}, and this operator would lead beside it by another one in the"
                    f" namespace {self._namespace}: both would change the same instances. To stand by for it,"
                    f" set --lease-namespace {namespace}; to be another operator, set --operator-name, and"
                    " --watch-namespace to what the other one does not watch; to look only, --dry-run"
                )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        is_logged = False
        # Of two that began in the same moment only the one that checks first shall give way.
        while not self._stopped.wait(self._period_seconds * random.uniform(0.5, 1.5)):  # noqa: S311
            try:
                self.require_no_duplicate()
            except ConfigurationError as error:
                self.refusal = error
                self._found()
                return
            except KubernetesError as error:
                if not is_logged:
                    is_logged = True
                    _log.warning(
                        "failed to list Leases in other namespaces, retrying: an operator of the same name "
                        "there stays unnoticed",
                        extra={"error": str(error)},
                    )
            except Exception:  # noqa: BLE001 - the thread must check again
                _log.exception(
                    "failed to check Leases in other namespaces, retrying: an operator of the same name "
                    "there stays unnoticed"
                )

    def _own_lease_exists(self) -> bool:
        """Return whether this operator's own Lease exists: then the operator has led before, and this process
        must not stop. False where the Lease cannot be read.
        """
        try:
            self._access.get(LEASES.path(self._namespace, self._name))
        except KubernetesError:
            return False
        return True

    def _note_renew_time_and_check_alive(self, namespace: str, spec: Mapping[str, Any]) -> bool:
        """Note a Lease's renew time; return whether a process renews it: it is recent, or has changed."""
        renewed = str(spec.get("renewTime") or "")
        before = self._renewed.get(namespace)
        self._renewed[namespace] = renewed
        if not spec.get("holderIdentity") or not renewed:
            return False
        if before is not None and before != renewed:
            return True
        lives = float(spec.get("leaseDurationSeconds") or 0) + CLOCK_TOLERANCE_SECONDS
        at = parse_api_time(renewed)
        return at is not None and abs(self._now() - at) < timedelta(seconds=lives)
