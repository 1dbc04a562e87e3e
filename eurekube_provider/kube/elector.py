"""Leader election by one Lease of coordination.k8s.io, under client-go's rules.

A candidate takes the Lease for expired by its own clock only, counted from the moment at which it last *saw*
the Lease change; no other machine's clock counts. The holder stops writing when it could not renew within the
renew deadline, which ends before the others may take over. The clock goes on while the machine sleeps: a
replica that was stopped and wakes up may not write before it has renewed the Lease, which fails if another
replica took it meanwhile.

A holder may also hand the Lease over: it writes another replica's identity into it, so that no third one
takes it. If that replica has ended, the Lease expires as any other.

Source: tools/leaderelection/leaderelection.go of kubernetes/client-go.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from eurekube_provider.core.errors import ConfigurationError, KubernetesError
from eurekube_provider.core.hand_over import HANDED_OVER_AT_ANNOTATION
from eurekube_provider.kube.access import LEASES, KubeAccess, is_api_unavailable
from eurekube_provider.runtime.clock import boot_clock_seconds

_log = logging.getLogger(__name__)

LEASE_WATCH_SECONDS = 240

LONGEST_WATCH_SILENCE_SECONDS = 60.0
"""The longest silence of the Lease's watch: the holder, if there is one, writes every few seconds."""

_RELEASED_LEASE_SECONDS = 1

_JITTER_FRACTION = 0.2
_REFUSED_STATUS_CODES = (401, 403, 404)  # 404: of the Lease's namespace
_RBAC_VERB_BY_METHOD = {"GET": "get", "POST": "create", "PUT": "update", "watch": "watch"}

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ElectionTiming:
    """The durations of leader election.

    :param lease_duration_seconds: after this time without a renewal, another replica takes over; written in
        whole seconds.
    :param renew_deadline_seconds: after this time without a renewal, the holder stops writing.
    :param retry_period_seconds: how often the holder renews the Lease, and the others look at it.
    """

    lease_duration_seconds: float = 15.0
    renew_deadline_seconds: float = 10.0
    retry_period_seconds: float = 2.0

    def __post_init__(self) -> None:
        if self.lease_duration_seconds < 1:
            raise ConfigurationError(
                f"--lease-duration-seconds: {self.lease_duration_seconds:g} must be at least 1"
            )
        if self.renew_deadline_seconds >= self.lease_duration_seconds:
            raise ConfigurationError(
                f"--renew-deadline-seconds: {self.renew_deadline_seconds:g} must be less than"
                f" --lease-duration-seconds ({self.lease_duration_seconds:g}): the holder must have stopped"
                " writing before another one begins"
            )
        if self.retry_period_seconds * (1 + _JITTER_FRACTION) >= self.renew_deadline_seconds:
            raise ConfigurationError(
                f"--retry-period-seconds: {self.retry_period_seconds:g} must be less than"
                f" {1 / (1 + _JITTER_FRACTION):.2f} times --renew-deadline-seconds "
                f"({self.renew_deadline_seconds:g})"
            )


class Elector:
    """This replica in the election by one Lease: a standby at first, a candidate after :meth:`start`.

    :param identity: identifies this process and no other, not even the next one of the same pod.
    :param make_metadata: takes the Lease's present metadata, and returns the metadata that the holder writes.
    """

    def __init__(
        self,
        access: KubeAccess,
        namespace: str,
        name: str,
        identity: str,
        timing: ElectionTiming,
        clock: Callable[[], float] = boot_clock_seconds,
        make_metadata: Callable[[Object], Mapping[str, Any]] = lambda metadata: metadata,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.identity = identity
        self.failure: KubernetesError | None = None
        """The error of the last read or write of the Lease; None after a success."""
        self.term = 0
        """The number of times that this replica has begun to lead."""
        self.had_earlier_leader = False
        """True if some replica led before this term; False only if no Lease existed, and none was seen."""
        self.lease_loss_count = 0
        self.hand_over_count = 0
        self.is_renewed_by_another = False
        """True if another replica wrote the Lease after it was first seen, so that the other one is alive."""
        self._access = access
        self._namespace = namespace
        self._name = name
        self._timing = timing
        self._clock = clock
        self._make_metadata = make_metadata
        self._wall_clock = wall_clock
        self._lock = threading.Lock()
        self._lease: Object | None = None  # as it was read or written last
        self._seen_at = 0.0
        self._holds = False
        self._renewed_at = -math.inf
        self._transitions: int | None = None  # of the Lease while we held it last
        self._successor = ""
        self._is_late = False
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, name="elector", daemon=True),
            threading.Thread(target=self._watch_until_stopped, name="elector-watch", daemon=True),
        ]

    def start(self) -> None:
        """Become a candidate."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop renewing the Lease, and release it, so that another replica need not wait for its end."""
        self._stopped.set()
        self._wake.set()
        if self._threads[0].is_alive():
            self._threads[0].join()
        self._release_lease()

    def may_write(self) -> bool:
        """Return whether this replica holds the Lease, and renewed it within the renew deadline."""
        with self._lock:
            return self._holds and not self._is_renewal_overdue()

    @property
    def no_replica_can_lead(self) -> bool:
        """True if no replica can take the Lease, as far as this one knows: it is free or unseen, and the API
        server does not answer, or refuses it: after a lost Role no replica of this ServiceAccount can lead.
        """
        failure = self.failure
        with self._lock:
            is_free = not self._holds and (self._lease is None or self._lease_expires_at() <= self._clock())
        return (
            is_free
            and failure is not None
            and (is_api_unavailable(failure) or failure.status_code in _REFUSED_STATUS_CODES)
        )

    @property
    def lease_name(self) -> str:
        """The Lease as messages name it: ``namespace/name``."""
        return f"{self._namespace}/{self._name}"

    @property
    def holder(self) -> str:
        """The holder of the Lease as it was last seen; empty for nobody."""
        with self._lock:
            return _lease_spec(self._lease).get("holderIdentity") or ""

    @property
    def lease(self) -> Object | None:
        """The Lease as it was last read or written; None before."""
        with self._lock:
            return self._lease

    def hand_over_to(self, successor: str) -> None:
        """Have another replica hold the Lease; call once no change is under way any more.

        This replica may not write from then on, unless the attempt fails and it acquires the Lease again.
        """
        with self._lock:
            if self._holds:
                self._successor = successor
                self._wake.set()

    def annotate_lease(self, annotate: Callable[[Object], Mapping[str, str]]) -> bool:
        """Add annotations to the Lease that another replica holds, and leave its holder and times unchanged.

        :param annotate: takes the Lease as it is now, and returns the annotations; none to write nothing.
        :returns: True if they were written.
        :raises KubernetesError: the Lease could not be read or written; 409 if it was written meanwhile.
        """
        lease = self._request("GET", self._lease_path)
        annotations = annotate(lease)
        if annotations:
            body = {**lease, "metadata": _with_annotations(lease["metadata"], annotations)}
            self._request("PUT", self._lease_path, body)
        return bool(annotations)

    def try_acquire_or_renew(self) -> None:
        """Renew the Lease if this replica holds it, else take it if it is free or has expired.

        :raises KubernetesError: the Lease could not be read or written.
        """
        if self._holds and self._lease is not None:
            try:
                self._write_lease(self._lease)
            except KubernetesError as error:
                if error.status_code not in (404, 409):
                    raise
            else:
                return
        try:
            lease = self._request("GET", self._lease_path)
        except KubernetesError as error:
            if error.status_code != 404:
                raise
            if self._holds or self._is_lease_free():  # else its holder may not know yet that it is gone
                self._create_lease()
            return
        self._update_from_read_lease(lease)
        if self._holds or self._is_lease_free():
            try:
                self._write_lease(lease)
            except KubernetesError as error:
                if error.status_code != 409:  # 409: another replica wrote it first
                    raise

    def seconds_until_next_try(self) -> float:
        """Return the retry period, or less if another holder's Lease expires sooner."""
        period = self._timing.retry_period_seconds
        wait = period * random.uniform(1 - _JITTER_FRACTION, 1 + _JITTER_FRACTION)  # noqa: S311 - jitter, no secret
        with self._lock:
            if self._holds or not self._lease:
                return wait
            left = self._lease_expires_at() - self._clock()
        return min(wait, max(0.0, left) + period * random.uniform(0, _JITTER_FRACTION))  # noqa: S311

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wake.clear()
            try:
                self.try_acquire_or_renew()
                self.failure = None
            except KubernetesError as error:
                if self.failure is None or str(self.failure) != str(error):
                    _log.warning(
                        "failed to read or renew the Lease, retrying: leading or standing by as before for "
                        "now",
                        extra={"error": str(error)},
                    )
                self.failure = error
            except Exception:  # noqa: BLE001 - the thread must try again
                _log.exception("failed to check the Lease, retrying: unexpected error")
            self._log_missed_renew_deadline()
            self._wake.wait(self.seconds_until_next_try())

    def _watch_until_stopped(self) -> None:
        """Watch the Lease, and wake the elector's thread when it must check the Lease at once."""
        query = {"fieldSelector": f"metadata.name={self._name}", "timeoutSeconds": str(LEASE_WATCH_SECONDS)}
        is_logged = False
        while not self._stopped.is_set():
            try:
                for event in self._access.watch(
                    LEASES.path(self._namespace), query, LONGEST_WATCH_SILENCE_SECONDS
                ):
                    if self._stopped.is_set():
                        return
                    is_logged = False
                    if self._requires_lease_check(event):
                        self._wake.set()
            except KubernetesError as error:
                if not is_logged and error.status_code is not None:
                    is_logged = True
                    about = {"error": str(self._add_missing_permission_to_error("watch", error))}
                    _log.warning(
                        "failed to watch the Lease, retrying: it is read at intervals meanwhile", extra=about
                    )
            except Exception:  # noqa: BLE001 - the thread must watch again
                _log.exception("failed to watch the Lease, retrying: it is read at intervals meanwhile")
            self._stopped.wait(self._timing.retry_period_seconds * random.uniform(0.5, 1.0))  # noqa: S311

    def _requires_lease_check(self, event: Object) -> bool:
        """Return whether a watch event says that the Lease is free, or that this replica lost or got it."""
        holder = _lease_spec(event["object"]).get("holderIdentity") or ""
        return event["type"] == "DELETED" or not holder or (holder == self.identity) != self._holds

    def _update_from_read_lease(self, lease: Object) -> None:
        """Store the Lease that was just read; count and log a loss if another replica has taken it."""
        with self._lock:
            spec = _lease_spec(lease)
            holder = spec.get("holderIdentity") or ""
            is_ours = holder == self.identity
            if spec != _lease_spec(self._lease):
                self._seen_at = self._clock()
                self.is_renewed_by_another |= self._lease is not None and bool(holder) and not is_ours
            self._lease = lease
            has_changed_hands = holder or _int_field(spec, "leaseTransitions") != self._transitions
            if self._transitions is not None and not is_ours and has_changed_hands:
                self._transitions = None
                self.lease_loss_count += 1
                _log.warning(
                    "lost the Lease to another replica, this one stops writing and stands by",
                    extra={"holder": holder or "released already"},
                )
            self._holds = self._holds and is_ours

    def _is_lease_free(self) -> bool:
        """Return whether this replica may take the Lease: also if it wrote the Lease, and got no answer."""
        with self._lock:
            holder = _lease_spec(self._lease).get("holderIdentity")
            return holder in (None, "", self.identity) or self._lease_expires_at() <= self._clock()

    def _lease_expires_at(self) -> float:
        duration = _int_field(_lease_spec(self._lease), "leaseDurationSeconds")
        return self._seen_at + (duration or self._timing.lease_duration_seconds)

    def _write_lease(self, lease: Object) -> None:
        """Renew, take or hand over the Lease, unless it was written since ``lease`` was read."""
        with self._lock:
            successor, self._successor = self._successor, ""
            if successor:
                self._holds = False  # before the write, whose answer may be lost
        spec, now = _lease_spec(lease), self._utc_timestamp()
        stays = spec.get("holderIdentity") == self.identity and not successor
        changed = {
            **spec,
            "holderIdentity": successor or self.identity,
            "leaseDurationSeconds": math.ceil(self._timing.lease_duration_seconds),
            "acquireTime": (stays and spec.get("acquireTime")) or now,
            "renewTime": now,
            "leaseTransitions": _int_field(spec, "leaseTransitions") + (0 if stays else 1),
        }
        sent_at = self._clock()
        metadata = self._make_metadata(lease["metadata"])
        if successor:
            metadata = _with_annotations(metadata, {HANDED_OVER_AT_ANNOTATION: now})
        written = self._request("PUT", self._lease_path, {**lease, "metadata": metadata, "spec": changed})
        if successor:
            self.hand_over_count += 1
            _log.warning(
                "handed the Lease over to another replica, which leads now", extra={"holder": successor}
            )
        else:
            self._record_accepted_write(written, sent_at)

    def _create_lease(self) -> None:
        now = self._utc_timestamp()
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": self._make_metadata({"namespace": self._namespace, "name": self._name}),
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": math.ceil(self._timing.lease_duration_seconds),
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": _int_field(_lease_spec(self._lease), "leaseTransitions"),
            },
        }
        sent_at = self._clock()
        try:
            made = self._request("POST", LEASES.path(self._namespace), lease)
            self._record_accepted_write(made, sent_at, had_earlier_leader=self._lease is not None)
        except KubernetesError as error:
            if error.status_code == 404:
                raise KubernetesError(
                    f"{error}; set --lease-namespace to a namespace that is there", status_code=404
                ) from None
            if error.status_code != 409:
                raise
            self._wake.set()  # another replica created it first: read it at once

    def _record_accepted_write(
        self, lease: Object, sent_at: float, *, had_earlier_leader: bool = True
    ) -> None:
        """Store a Lease that this replica wrote, and begin a term if it did not lead before.

        :param sent_at: the time before the write was sent, from which the renew deadline counts.
        """
        with self._lock:
            begins = not self._holds or self._is_renewal_overdue()
            self._lease, self._seen_at = lease, self._clock()
            self._holds, self._renewed_at = True, sent_at
            self._transitions = _int_field(_lease_spec(lease), "leaseTransitions")
            self._is_late = False
            if begins:
                self.had_earlier_leader = had_earlier_leader
                self.term += 1  # last: who sees a new term reads of it what is above
        if begins:
            _log.info(
                "acquired the Lease, this replica leads now",
                extra={"lease": self._lease_path, "identity": self.identity},
            )

    def _log_missed_renew_deadline(self) -> None:
        with self._lock:
            is_news = self._holds and self._is_renewal_overdue() and not self._is_late
            self._is_late = self._is_late or is_news
        if is_news:
            _log.warning(
                "failed to renew the Lease in time, retrying: changes are paused, renewals in Eureka go on"
            )

    def _is_renewal_overdue(self) -> bool:
        return self._clock() - self._renewed_at >= self._timing.renew_deadline_seconds

    def _release_lease(self) -> None:
        with self._lock:
            lease, held, self._holds = self._lease, self._holds, False
        if not held or lease is None:
            return
        now = self._utc_timestamp()
        spec = {
            **_lease_spec(lease),
            "holderIdentity": "",
            "leaseDurationSeconds": _RELEASED_LEASE_SECONDS,
            "acquireTime": now,
            "renewTime": now,
        }
        try:
            self._request("PUT", self._lease_path, {**lease, "spec": spec})
            _log.info(
                "released the Lease, another replica can lead at once", extra={"lease": self._lease_path}
            )
        except KubernetesError as error:
            _log.warning(
                "failed to release the Lease, another replica leads once it expires",
                extra={"error": str(error)},
            )

    def _utc_timestamp(self) -> str:
        return datetime.fromtimestamp(self._wall_clock(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    @property
    def _lease_path(self) -> str:
        return LEASES.path(self._namespace, self._name)

    def _request(self, method: str, path: str, body: Object | None = None) -> Object:
        """Send a request that cannot outlast the renew deadline."""
        try:
            return self._access.request(
                method, path, body=body, timeout_seconds=self._timing.renew_deadline_seconds / 2
            )
        except KubernetesError as error:
            raise self._add_missing_permission_to_error(method, error) from None

    def _add_missing_permission_to_error(self, method: str, error: KubernetesError) -> KubernetesError:
        if error.status_code != 403:
            return error
        return KubernetesError(
            f"{error}; the operator's ServiceAccount needs the verb {_RBAC_VERB_BY_METHOD[method]} for "
            f"leases of coordination.k8s.io in the namespace {self._namespace} (or run one replica with "
            "--leader-elect false)",
            status_code=403,
            reason=error.reason,
        )


def _with_annotations(metadata: Mapping[str, Any], annotations: Mapping[str, str]) -> Object:
    return {**metadata, "annotations": {**(metadata.get("annotations") or {}), **annotations}}


def _lease_spec(lease: Object | None) -> Object:
    return (lease or {}).get("spec") or {}


def _int_field(spec: Object, field: str) -> int:
    return int(spec.get(field) or 0)
