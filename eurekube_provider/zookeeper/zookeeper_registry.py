"""One ZooKeeper ensemble behind the interface that every registry has."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

from eurekube_provider.core.durations import Distribution
from eurekube_provider.core.errors import ConfigurationError, EurekubeError, OwnershipConflict, RegistryDenied
from eurekube_provider.core.identity import CLUSTER_UID_KEY, Cluster
from eurekube_provider.core.liveness import Liveness
from eurekube_provider.core.model import Instance, InstanceKey
from eurekube_provider.core.plan import Plan, PlanOutcome
from eurekube_provider.core.registry import Figures, RegistryListener, RegistryServer, UncachedReading
from eurekube_provider.zookeeper.connection import ZooKeeperConnection
from eurekube_provider.zookeeper.ensemble import Ensemble
from eurekube_provider.zookeeper.nodes import KnownNodes
from eurekube_provider.zookeeper.reader import RETRY_SECONDS, Reader
from eurekube_provider.zookeeper.writer import Writer

_log = logging.getLogger(__name__)

DENIED_RETRY_SECONDS = 60.0  # until a removal that an ACL denied is tried again


class ZooKeeperRegistry:
    """One ensemble, as a Registry of this operator; instances that would lapse in Eureka are removed here."""

    def __init__(
        self,
        connection: ZooKeeperConnection,
        cluster: Cluster,
        operator_name: str,
        _resync_seconds: float,
        *,
        may_write: Callable[[], bool] = lambda: True,
        check_cluster: bool = False,
        **_: object,
    ) -> None:
        self._cluster, self._may_write = cluster, may_write
        self._ensemble = Ensemble(connection)
        self._nodes = nodes = KnownNodes(cluster, checks_cluster=check_cluster)
        self._reader = Reader(self._ensemble, nodes, self._find_cluster_name_conflict)
        self._writer = Writer(self._ensemble, nodes, cluster, operator_name, may_write)
        self.condition, self.known_instances = self._reader.condition, nodes.known_instances
        self.owners, self.cluster_names = nodes.owners, nodes.cluster_names
        self.count_up_instances = nodes.count_up_instances
        self._leads, self._stopped = threading.Event(), threading.Event()
        # Each with the reason why its removal failed, and the time at which that is tried again.
        self._lock = threading.Lock()
        self._pending_removals = dict[InstanceKey, tuple[Instance, str, float]]()
        self._thread = threading.Thread(target=self._run, name="zookeeper-removals", daemon=True)

    def start(self, listener: RegistryListener | None = None) -> None:
        self._reader.start(listener)
        self._thread.start()

    def stop(self) -> None:
        """End all reads and changes; no instance is removed."""
        self._stopped.set()
        self._reader.stop()
        self._writer.close()
        self._ensemble.close()

    def get(self, key: InstanceKey) -> Instance | None:
        return next((one.instance for one in self._nodes.nodes_of_key(key)), None)

    def refresh(self, keys: Iterable[InstanceKey], *, include_known: bool = False) -> None:
        """Read the known ones among these instances again if ``include_known`` is True; a watch reports
        unknown ones."""
        paths = [one.path for key in keys for one in self._nodes.nodes_of_key(key)] if include_known else []
        for path, node in self._ensemble.read_nodes(paths).items() if paths else ():
            self._reader.notify_owners(self._nodes.update_and_return_owners(path, node))

    def read_everywhere(self, keys: Iterable[InstanceKey]) -> UncachedReading:
        """Read these instances from the ensemble now; one that no watch has reported counts as absent."""
        wanted = dict.fromkeys(keys)
        held = self._ensemble.read_nodes(
            one.path for one in self._nodes.all_nodes() if one.instance.key in wanted
        )
        found = {one.instance.key: one.instance for one in held.values() if one is not None}
        return UncachedReading({self._ensemble.url: {**wanted, **found}})

    def apply(self, plan: Plan, owner: str) -> PlanOutcome:
        self.keep_registered(*(change.instance for change in plan.changes))
        return self._writer.apply(plan, owner)

    def keep_registered(self, *instances: Instance) -> None:
        """Keep registered instances: cancel pending removals."""
        with self._lock:
            for one in instances if self._pending_removals else ():
                self._pending_removals.pop(one.key, None)

    def let_lapse(self, instance: Instance) -> None:
        """Remove an instance of this cluster as soon as the ensemble answers, since ZooKeeper lets no
        instance lapse."""
        is_named_so = self._cluster.parse_syncer_of_this_cluster(instance.owner) is not None
        if is_named_so and not self._nodes.is_of_other_cluster_of_same_name(instance):
            with self._lock:
                failed = self._pending_removals.get(instance.key, (instance, "", 0.0))[1:]
                self._pending_removals[instance.key] = instance, *failed

    def instances_lost_by_registry(self, _owner: str) -> list[Instance]:
        """Return nothing: ZooKeeper forgets no instance, so that a missing one was removed."""
        return []

    def stop_tracking_lost_instances(self, _owner: str, _wanted: Collection[InstanceKey] = ()) -> None:
        """Do nothing: ZooKeeper forgets no instance."""

    def start_leading(self, expected: int) -> None:  # noqa: ARG002 - nothing is renewed
        """Begin to update the marker of this cluster's operator, and to make pending removals."""
        self._leads.set()

    def stand_by(self) -> None:
        """Cancel all pending removals, since another replica leads."""
        self._leads.clear()
        with self._lock:
            self._pending_removals.clear()

    def figures(self, *, in_full: bool = False) -> Figures:  # noqa: ARG002 - nothing costs more
        """Return the figures for metrics, without renewals: ZooKeeper has none."""
        read_at = self._reader.answered_at if self._reader.read_at is not None else None
        is_up = self._ensemble.client.connected or (None if read_at is None else False)
        error = "" if is_up else str(self._ensemble.unreachable_error())
        url, since, times = self._ensemble.url, self._reader.connection_changed_at, Distribution()
        server = RegistryServer(url, is_up, since, error, None, {}, times, answered_at=read_at)
        return Figures([server], read_at=read_at, registered=len(self._nodes.paths()))

    def liveness(self) -> list[Liveness]:
        return [self._reader.liveness(), Liveness("zookeeper-removals", self._thread.is_alive())]

    def _find_cluster_name_conflict(self) -> ConfigurationError | None:
        """Return why this ensemble must not be used: another cluster of the same name writes here."""
        for one in self._nodes.all_nodes():
            if self._nodes.is_of_other_cluster_of_same_name(one.instance):
                uid = one.instance.metadata.get(CLUSTER_UID_KEY)
                return ConfigurationError(
                    f"the cluster name {self._cluster.name!r} is in use at {self._ensemble.url} by another"
                    f" cluster, of the UID {uid}: set --cluster-name to another one, or, if that cluster is"
                    " gone for good, --take-over-cluster true"
                )
        return None

    def _run(self) -> None:
        """Make pending removals and update the operator's marker while this replica leads, until stopped."""
        while not self._stopped.wait(RETRY_SECONDS):
            if self._leads.is_set() and self._ensemble.client.connected and self._may_write():
                with suppress(EurekubeError):  # which the next change meets as well, and says
                    self._writer.update_marker()
                    for one, why, at in list(self._pending_removals.values()):
                        # One that is not pending any more is wanted again.
                        if one.key in self._pending_removals and time.monotonic() >= at:
                            self._remove_unwanted(one, why)

    def _remove_unwanted(self, instance: Instance, last_error: str) -> None:
        fields = {"application": instance.application, "instance": instance.instance_id}
        error = self._writer.remove(instance)
        if error is None or isinstance(error, OwnershipConflict):  # which is not ours any more
            self.keep_registered(instance)
        pause_seconds = DENIED_RETRY_SECONDS if isinstance(error, RegistryDenied) else 0.0
        if error is None:
            _log.info("removed an instance that no syncer wants, callers find it no more", extra=fields)
        elif str(error) != last_error:
            if isinstance(error, OwnershipConflict):
                _log.warning(
                    "gave up removing an instance that no syncer wants, leaving it to its new owner",
                    extra={**fields, "error": str(error)},
                )
            else:
                retry_seconds = max(pause_seconds, RETRY_SECONDS)
                _log.warning(
                    "failed to remove an instance that no syncer wants, retrying: callers may still find it",
                    extra={**fields, "error": str(error), "retry_seconds": retry_seconds},
                )
        again_at = time.monotonic() + pause_seconds
        with self._lock:
            if instance.key in self._pending_removals:
                self._pending_removals[instance.key] = instance, str(error), again_at
