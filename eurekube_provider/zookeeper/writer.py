"""The one place that writes to ZooKeeper: it carries out plans, and keeps the marker node.

Each write names the version that was read before it. A new node is written a second time in the transaction
that creates it: so its version differs from that of a node which somebody else created in its place.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from kazoo.exceptions import NoNodeError, RolledBackError

from eurekube_provider.core.errors import LeadershipLost, OwnershipConflict, RegistryError, RegistryRejected
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.model import Instance
from eurekube_provider.core.plan import Action, Change, ChangeError, Plan, PlanOutcome, describe_owner
from eurekube_provider.runtime.clock import format_utc_time
from eurekube_provider.zookeeper.codec import Node, decode_node, encode_node
from eurekube_provider.zookeeper.ensemble import CALL_TIMEOUT_SECONDS, CONFLICT_ERRORS, Ensemble
from eurekube_provider.zookeeper.nodes import KnownNodes

WRITE_THREADS, WRITE_ATTEMPTS = 16, 5
"""The changes that are made at once, and the tries of one change while other clients write first."""

MARKER_UPDATE_INTERVAL_SECONDS = 30.0
"""Seconds between two updates of the cluster's marker by the leading operator."""


class Writer:
    """A writer for one cluster, as long as ``may_write`` returns True; any number of threads may share it."""

    def __init__(
        self,
        ensemble: Ensemble,
        nodes: KnownNodes,
        cluster: Cluster,
        operator: str,
        may_write: Callable[[], bool],
    ) -> None:
        self._ensemble, self._client, self._root = ensemble, ensemble.client, ensemble.connection.root
        self._nodes, self._cluster, self._operator = nodes, cluster, operator
        self._may_write = may_write
        self._pool = ThreadPoolExecutor(WRITE_THREADS, thread_name_prefix="zookeeper-apply")
        self._marking = threading.Lock()
        self._marked_at = -math.inf

    def close(self) -> None:
        """Begin no further change."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def apply(self, plan: Plan, owner: str) -> PlanOutcome:
        """Carry out a plan, all changes of one kind at once, as long as ``may_write`` returns True."""
        outcome = PlanOutcome()
        if not plan:
            return outcome
        try:
            self.update_marker()
        except RegistryError as error:
            return PlanOutcome.of(plan.changes, [error] * len(plan.changes))
        for action in Action:
            changes = plan.of(action)
            if action is Action.DEREGISTER:
                outcome, changes = outcome.hold_back(changes)
            outcome += PlanOutcome.of(
                changes, list(self._pool.map(lambda one: self._apply_change(one, owner), changes))
            )
        return outcome

    def remove(self, instance: Instance) -> ChangeError | None:
        """Remove the instance if it still belongs to its owner; return why it is still there."""
        return self._retry_conflicts(lambda _: self._remove_nodes(instance, {instance.owner or ""}))

    def update_marker(self) -> None:
        """Note in the marker node that this cluster's operator writes here; at most twice a minute."""
        with self._marking:
            self._require_may_write()
            if time.monotonic() - self._marked_at < MARKER_UPDATE_INTERVAL_SECONDS:
                return
            path = marker_path(self._root, self._cluster.name)
            at = format_utc_time(time.time())
            said = {"uid": self._cluster.uid, "operator": self._operator, "writtenAt": at}
            # Without the node it is written next time.
            with self._ensemble.translate_errors(f"write the marker {path}"), suppress(NoNodeError):
                self._ensemble.create_shared_node(path)
                self._client.set_async(path, json.dumps(said).encode()).get(timeout=CALL_TIMEOUT_SECONDS)
            self._marked_at = time.monotonic()

    def _require_may_write(self) -> None:
        if not self._may_write():
            raise LeadershipLost("another replica may lead by now")
        self._ensemble.require_connection()

    def _apply_change(self, change: Change, owner: str) -> ChangeError | None:
        want, owners = change.instance, {owner}
        if change.adopts and change.actual is not None:
            owners.add(change.actual.owner or "")
        if change.action is Action.DEREGISTER:
            return self._retry_conflicts(lambda _: self._remove_nodes(want, owners))
        return self._retry_conflicts(lambda attempt: self._write_node(change, owners, is_first=not attempt))

    def _retry_conflicts(self, act: Callable[[int], None]) -> ChangeError | None:
        """Call ``act`` again while another client writes first, a limited number of times."""
        for attempt in range(WRITE_ATTEMPTS):
            try:
                self._require_may_write()
                act(attempt)
            except CONFLICT_ERRORS:
                continue
            except (RegistryError, OwnershipConflict) as error:
                return error
            return None
        return RegistryRejected(
            f"others changed the node {WRITE_ATTEMPTS} times on end ({self._ensemble.url})"
        )

    def _write_node(self, change: Change, owners: set[str], *, is_first: bool) -> None:
        want, is_new = change.instance, change.action is Action.REGISTER
        path = instance_path(self._root, want)
        held = self._nodes.nodes_of_key(want.key)  # elsewhere is what a changed VIP address leaves behind
        others = [one.path for one in held if one.path != path and one.instance.owner in owners - {""}]
        there = None if is_new and is_first else self._ensemble.read_nodes([path])[path]
        if there is not None:
            self._require_owner(there, owners)
            data = encode_node(want, there.registered_ms, there)
            if data != there.data:
                with self._ensemble.translate_errors(f"write {path}"):
                    stat = self._client.set_async(path, data, version=there.version).get(
                        timeout=CALL_TIMEOUT_SECONDS
                    )
                self._nodes.store_and_return_owners(decode_node(path, data, stat))
        elif is_new or others:  # else somebody removed it, as a watch tells the one that wants it
            self._create_node(path, encode_node(want, round(time.time() * 1000)))
        for other in others:
            self._delete_node(other, owners)

    def _create_node(self, path: str, data: bytes) -> None:
        with self._ensemble.translate_errors(f"create {path}"):
            both = self._client.transaction()
            both.create(path, data)
            both.set_data(path, data)
            created, written = both.commit_async().get(timeout=CALL_TIMEOUT_SECONDS)
            if isinstance(created, NoNodeError):  # which is tried again
                self._ensemble.create_shared_node(self._root)
                self._client.ensure_path_async(path.rpartition("/")[0]).get(timeout=CALL_TIMEOUT_SECONDS)
            if isinstance(created, Exception):
                raise written if isinstance(created, RolledBackError) else created
        self._nodes.store_and_return_owners(decode_node(path, data, written))

    def _remove_nodes(self, instance: Instance, owners: set[str]) -> None:
        meant = instance_path(self._root, instance)
        there = self._nodes.nodes_of_key(instance.key)
        for path in sorted({meant, *(one.path for one in there if (one.instance.owner or "") in owners)}):
            self._delete_node(path, owners)

    def _delete_node(self, path: str, owners: set[str]) -> None:
        there = self._ensemble.read_nodes([path])[path]
        if there is not None:
            self._require_owner(there, owners)
            # Somebody else may have done so.
            with self._ensemble.translate_errors(f"remove {path}"), suppress(NoNodeError):
                self._client.delete_async(path, version=there.version).get(timeout=CALL_TIMEOUT_SECONDS)
            self._nodes.store_and_return_owners(there)
        self._nodes.remove_and_return_owners(path, by_us=True)

    def _require_owner(self, there: Node, owners: set[str]) -> None:
        """Raise an OwnershipConflict for a node that belongs to another owner, or cannot be read."""
        one = there.instance
        why = one.unreadable
        if not why and (one.owner or "") not in owners:
            why = f"it {describe_owner(one)}"
        elif not why and self._nodes.is_of_other_cluster_of_same_name(one):
            why = "it belongs to another cluster of this name"
        if why:
            raise OwnershipConflict(f"{there.path} was left as it is: {why}")


def instance_path(root: str, instance: Instance) -> str:
    """Return the path of an instance's node: below the name that callers use, in its own case."""
    return f"{root}/{instance.vip_address}/{instance.instance_id}"


def marker_path(root: str, cluster: str) -> str:
    """Return the path of a cluster's marker, outside the root: Spring would take it for a service there."""
    return f"/eurekube{root}/{cluster}"
