"""Renewals by a process that has not read its cluster yet, since the Kubernetes API does not answer, or
refuses it.

A memory limit or a failed node may restart all replicas while the API is away, or after a role was lost. The
pods still serve, and their instances would lapse in Eureka within minutes. A process that knows the cluster's
name therefore renews the instances that Eureka shows as written by the syncers of that cluster, and the
instances that stacks ask this operator to renew. The process changes nothing. These renewals end as soon as
the process leads with a copy of the cluster, or reads that another replica leads. Where the API refuses, they
begin only if no replica renews the Lease: a leader knows what must lapse.

While the API is away, or refuses the namespace kube-system, only the settings give the cluster's name.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping

from eurekube_provider.core.errors import KubernetesError
from eurekube_provider.core.identity import Cluster, cluster_name_of_owner
from eurekube_provider.core.objects import Object
from eurekube_provider.core.registry import NeverRead, Registry
from eurekube_provider.core.wording import format_count
from eurekube_provider.kube.access import LEASES, KubeAccess, is_api_unavailable
from eurekube_provider.operator.registries import REGISTRY_FACTORY_BY_CONNECTION_CLASS
from eurekube_provider.operator.settings import Settings
from eurekube_provider.runtime.clock import boot_clock_seconds

_log = logging.getLogger(__name__)

SILENT_API_SECONDS = 5.0
"""Seconds that the Kubernetes API may take to answer before instances are renewed without it."""

POLL_SECONDS = 1.0

LEASE_READ_SECONDS = 2.0
"""The least seconds between two readings of the Lease."""


class LeaseWatch:
    """Readings of the Lease by a process that is no candidate yet.

    :param name: the Lease's namespace and name; None where there is no election.
    :param duration_seconds: after this time without a renewal nobody holds the Lease.
    """

    def __init__(
        self,
        access: KubeAccess,
        name: tuple[str, str] | None,
        duration_seconds: float,
        clock: Callable[[], float] = boot_clock_seconds,
    ) -> None:
        self._access = access
        self._name = name
        self._duration_seconds = duration_seconds
        self._clock = clock
        self._read_at: float | None = None
        self._changed_at = 0.0
        self._spec: Object | None = None

    def may_be_renewed(self) -> bool:
        """Read the Lease if that is due; return False once it has stayed the same for its duration.

        One that is not there, or is refused, cannot be renewed by a process with the same rights.
        """
        now = self._clock()
        if self._name is None:
            return False
        if self._read_at is None or now - self._read_at >= LEASE_READ_SECONDS:
            self._read_at = now
            try:
                spec = self._access.get(LEASES.path(*self._name)).get("spec") or {}
            except KubernetesError as error:
                spec = {"refused": error.status_code}
            if spec != self._spec:
                self._spec, self._changed_at = spec, now
        return now - self._changed_at < self._duration_seconds


class RenewalsWithoutKubernetes:
    """The renewal of this cluster's instances, as Eureka lists them, while the Kubernetes API does not
    answer, or refuses: from :meth:`start` to :meth:`stop`; threads may share it.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._registries: Mapping[str, Registry] = {}  # replaced as a whole, never changed
        self._stopped = threading.Event()
        self._cluster_name = settings.cluster_name
        self._is_name_missing = False

    def start_if_api_is_silent(self, answered: threading.Event) -> None:
        """Start the renewals unless the event is set in time: a frozen API takes a request, and is silent."""

        def start_after_silence() -> None:
            if not answered.wait(SILENT_API_SECONDS):
                self.start()

        threading.Thread(target=start_after_silence, name="silent-api", daemon=True).start()

    def start_if_unread(
        self, errors: Collection[KubernetesError], lease: LeaseWatch, cluster: Cluster | None = None
    ) -> None:
        """Start the renewals if the cluster cannot be read for these errors, and nobody leads, as while the
        Kubernetes API is away.
        """
        if self._registries or not errors:
            return
        if any(map(is_api_unavailable, errors)) or not lease.may_be_renewed():
            self.start(cluster)

    def start(self, cluster: Cluster | None = None) -> None:
        """Start the renewals, unless they have begun or ended already; return at once.

        :param cluster: None while only the settings may tell its name.
        """
        settings = self._settings
        with self._lock:
            if self._stopped.is_set() or self._registries:
                return
            if cluster is None and settings.cluster_name is not None:
                cluster = Cluster(settings.cluster_name, "")
            if cluster is None:
                if not self._is_name_missing:
                    self._is_name_missing = True
                    _log.warning(
                        "renewing nothing until the Kubernetes API answers: the cluster's name is not known, "
                        "instances lapse",
                        extra={"hint": "set --cluster-name, also to the name that it has by default"},
                    )
                return
            self._cluster_name = cluster.name
            self._registries = {
                name: REGISTRY_FACTORY_BY_CONNECTION_CLASS[type(connection).__name__](
                    connection,
                    cluster,
                    settings.operator_name,
                    settings.resync_seconds,
                    may_write=lambda: False,
                )
                for name, connection in settings.connections.items()
            }
            for name, registry in self._registries.items():
                registry.start()
                threading.Thread(
                    target=self._renew_until_stopped,
                    args=(name, registry),
                    name=f"blind-renewals-{name}",
                    daemon=True,
                ).start()
        _log.warning(
            "renewing the cluster's instances, changing nothing: the Kubernetes API does not answer, or "
            "refuses",
            extra={"cluster": cluster.name},
        )

    def stop(self) -> None:
        """Stop these renewals: this process leads with its own copy of the cluster, or another one leads."""
        with self._lock:
            self._stopped.set()
            registries, self._registries = self._registries, {}
        for registry in registries.values():  # which may wait for a Eureka that hangs
            threading.Thread(target=registry.stop, name="blind-renewals-end", daemon=True).start()
        if registries:
            _log.info("stopped renewing without the Kubernetes API: an operator leads, or this process ends")

    @property
    def renewed_instance_count(self) -> int:
        """Number of instances that are renewed without the Kubernetes API."""
        return sum(registry.figures().renewed_here for registry in self._registries.values())

    @property
    def status_sentence(self) -> str:
        """Sentence about these renewals for a person; empty while none are under way."""
        if not self._registries:
            return ""
        return (
            "the Kubernetes API has not answered, or has refused, since this process began: "
            f"{format_count(self.renewed_instance_count)} that Eureka"
            f" shows as the cluster {self._cluster_name}'s are renewed, and nothing is changed"
        )

    def _renew_until_stopped(self, name: str, registry: Registry) -> None:
        """Renew what one registry lists of this cluster, every second, until stopped."""
        names = {self._cluster_name, *self._settings.previous_cluster_names}
        has_begun = False
        while not self._stopped.wait(POLL_SECONDS):
            try:
                if isinstance(registry.condition(), NeverRead):
                    continue
                owners = [owner for owner in registry.owners() if cluster_name_of_owner(owner) in names]
                there = [one for owner in owners for one in registry.known_instances(owner=owner)]
                if not has_begun:
                    has_begun = True
                    registry.start_leading(len(there))
                registry.keep_registered(*there)
            except Exception:  # noqa: BLE001 - the thread must go on
                _log.exception(
                    "failed to renew instances without the Kubernetes API, retrying: they lapse if this "
                    "goes on",
                    extra={"eureka": name, "retry_seconds": POLL_SECONDS},
                )
