"""Renewals by a process that has not read its cluster yet, since the Kubernetes API does not answer.

A memory limit or a failed node may restart all replicas while the API is away. The pods still serve, and
their instances would lapse in Eureka within minutes. A process that knows the cluster's name therefore renews
the instances that Eureka shows as written by the syncers of that cluster, and the instances that stacks ask
this operator to renew. The process changes nothing. These renewals end as soon as the process leads with a
copy of the cluster, or reads that another replica leads.

Only the settings can be read while the API is away, so the cluster's name must be given there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from eurekube_provider.core.identity import Cluster, cluster_name_of_owner
from eurekube_provider.core.registry import NeverRead, Registry
from eurekube_provider.core.wording import format_count
from eurekube_provider.operator.registries import REGISTRY_FACTORY_BY_CONNECTION_CLASS
from eurekube_provider.operator.settings import Settings

_log = logging.getLogger(__name__)

SILENT_API_SECONDS = 5.0
"""Seconds that the Kubernetes API may take for its first answer before Eureka's instances are renewed
without it.
"""

POLL_SECONDS = 1.0
"""Seconds between two readings of a registry's instances."""


class RenewalsWithoutKubernetes:
    """The renewal of this cluster's instances, as Eureka lists them, while the Kubernetes API does not
    answer: from :meth:`start` to :meth:`stop`; threads may share it.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._registries: Mapping[str, Registry] = {}
        self._stopped = threading.Event()
        self._has_begun = False

    def start_if_api_is_silent(self, answered: threading.Event) -> None:
        """Start the renewals unless the event is set within :data:`SILENT_API_SECONDS`: a frozen API accepts
        a request and is silent.

        :param answered: set once the Kubernetes API has answered.
        """

        def start_after_silence() -> None:
            if not answered.wait(SILENT_API_SECONDS):
                self.start()

        threading.Thread(target=start_after_silence, name="silent-api", daemon=True).start()

    def start(self) -> None:
        """Start the renewals, unless they have begun or ended already; return at once."""
        settings = self._settings
        with self._lock:
            if self._stopped.is_set() or self._has_begun:
                return
            self._has_begun = True
            if settings.cluster_name is None:
                _log.warning(
                    "renewing nothing until the Kubernetes API answers: the cluster's name is not known, "
                    "instances lapse",
                    extra={"hint": "set --cluster-name, also to the name that it has by default"},
                )
                return
            cluster = Cluster(settings.cluster_name, "")
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
            "renewing the cluster's instances, changing nothing: the Kubernetes API does not answer",
            extra={"cluster": settings.cluster_name},
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
        with self._lock:
            registries = list(self._registries.values())
        return sum(registry.figures().renewed_here for registry in registries)

    @property
    def status_sentence(self) -> str:
        """Sentence about these renewals for a person; empty while none are under way."""
        with self._lock:
            is_on = bool(self._registries)
        if not is_on:
            return ""
        return (
            "the Kubernetes API has not answered since this process began: "
            f"{format_count(self.renewed_instance_count)} that Eureka"
            f" shows as the cluster {self._settings.cluster_name}'s are renewed, and nothing is changed"
        )

    def _renew_until_stopped(self, name: str, registry: Registry) -> None:
        """Renew what one registry lists of this cluster, every second, until stopped."""
        names = {self._settings.cluster_name, *self._settings.previous_cluster_names}
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
                for one in there:
                    registry.keep_registered(one)
            except Exception:  # noqa: BLE001 - the thread must go on
                _log.exception(
                    "failed to renew instances without the Kubernetes API, retrying: they lapse if this "
                    "goes on",
                    extra={"eureka": name, "retry_seconds": POLL_SECONDS},
                )
