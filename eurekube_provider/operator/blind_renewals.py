"""Renewals of a process that could not read its cluster yet, since the Kubernetes API does not answer.

All replicas may have been started again in that hour, by a limit of memory or a node. Their pods serve, and
would lapse in Eureka within minutes. Who knows the cluster's name renews what Eureka shows as that cluster's
syncers', and what stacks ask this operator to renew. It changes nothing, and ends as soon as this process
leads by what it has read of the cluster, or reads that another one leads.

Nothing but the settings can be read in that hour, so that the name must be given there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from eurekube_provider.core.identity import Cluster, cluster_of
from eurekube_provider.core.registry import Registry, Unread
from eurekube_provider.core.wording import counted
from eurekube_provider.operator.registries import KINDS
from eurekube_provider.operator.settings import Settings

_log = logging.getLogger(__name__)

SILENT_API_SECONDS = 5.0
"""How long the Kubernetes API may leave the first question open before what stands in Eureka is renewed."""

LOOK_SECONDS = 1.0


class BlindRenewals:
    """Renews by what Eureka shows alone, from :meth:`start` to :meth:`stop`; threads may share it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._registries: Mapping[str, Registry] = {}
        self._stopped = threading.Event()
        self._is_reported = False

    def start_unless(self, answered: threading.Event) -> None:
        """Begin unless the Kubernetes API answers soon: one that is frozen takes a request, and is silent."""

        def wait() -> None:
            if not answered.wait(SILENT_API_SECONDS):
                self.start()

        threading.Thread(target=wait, name="silent-api", daemon=True).start()

    def start(self) -> None:
        """Begin, unless it has begun or ended already; returns at once."""
        settings = self._settings
        with self._lock:
            if self._registries or self._stopped.is_set() or self._is_reported:
                return
            self._is_reported = True
            if settings.cluster_name is None:
                _log.warning(
                    "renewing no instance until the Kubernetes API answers, since the cluster's"
                    " name is not known: its instances lapse in Eureka within minutes",
                    extra={"hint": "set --cluster-name, also to the name that it has by default"},
                )
                return
            cluster = Cluster(settings.cluster_name, "")
            self._registries = {
                name: KINDS[type(connection).__name__](
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
                    target=self._renew, args=(name, registry), name=f"blind-renewals-{name}", daemon=True
                ).start()
        _log.warning(
            "the Kubernetes API does not answer: renewing the cluster's instances in Eureka,"
            " changing nothing",
            extra={"cluster": settings.cluster_name},
        )

    def stop(self) -> None:
        """Renew no more: this process does by what it has read, or another one leads."""
        with self._lock:
            was_stopped = self._stopped.is_set()
            self._stopped.set()
            registries, self._registries = self._registries, {}
        for registry in registries.values():  # which may wait for a Eureka that hangs
            threading.Thread(target=registry.stop, name="blind-renewals-end", daemon=True).start()
        if registries and not was_stopped:
            _log.info("stopped renewing without the Kubernetes API")

    @property
    def count(self) -> int:
        """How many instances are renewed so."""
        with self._lock:
            registries = list(self._registries.values())
        return sum(registry.figures().held for registry in registries)

    @property
    def sentence(self) -> str:
        """Tell a person that it goes on; empty while it does not."""
        with self._lock:
            is_on = bool(self._registries)
        if not is_on:
            return ""
        return (
            f"the Kubernetes API has not answered since this process began: {counted(self.count)} that Eureka"
            f" shows as the cluster {self._settings.cluster_name}'s are renewed, and nothing is changed"
        )

    def _renew(self, name: str, registry: Registry) -> None:
        """Renew at one registry what it shows, again and again: others may be back there."""
        names = {self._settings.cluster_name, *self._settings.previous_cluster_names}
        has_begun = False
        while not self._stopped.wait(LOOK_SECONDS):
            try:
                if isinstance(registry.condition(), Unread):
                    continue
                owners = [owner for owner in registry.owners() if cluster_of(owner) in names]
                there = [one for owner in owners for one in registry.known(owner=owner)]
                if not has_begun:
                    has_begun = True
                    registry.take_over(len(there))
                for one in there:
                    registry.keep(one)
            except Exception:  # noqa: BLE001 - the thread must go on
                _log.exception("failed to renew instances without the Kubernetes API", extra={"eureka": name})
