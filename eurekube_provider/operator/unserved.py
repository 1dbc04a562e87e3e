"""The search for syncers of this cluster that no operator serves, in namespaces that this operator does not
watch.

An operator of some namespaces sees no pods of the others, and can keep nothing there. But it can see in
Eureka which instances of its own cluster nobody renews, although a syncer's status says otherwise.
"""

from __future__ import annotations

import difflib
import logging
import random
import time
from collections.abc import Callable, Collection, Mapping

from eurekube_provider.core.errors import EurekubeError, KubernetesError, LeadershipLost
from eurekube_provider.core.identity import Cluster, ClusterOwner
from eurekube_provider.core.model import Instance
from eurekube_provider.core.objects import Object, key_of
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.registry import Healthy, Registry
from eurekube_provider.core.served import (
    MAX_INSTANCES_READ_UNCACHED,
    UNRENEWED_LIMIT_SECONDS,
    not_served_problem,
    not_served_status_patch,
    status_says_not_served,
    syncers_not_watched,
)
from eurekube_provider.kube.access import MERGE_PATCH_TYPE, SYNCERS, KubeAccess
from eurekube_provider.kube.events import EventRecorder, EventType
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.loop import Loop
from eurekube_provider.operator.registries import instances_under_other_cluster_names
from eurekube_provider.runtime.clock import format_utc_time

_log = logging.getLogger(__name__)

SEARCH_PERIOD_SECONDS = 30.0
"""Average seconds between two searches."""

LONGEST_SEARCH_SECONDS = 120.0
"""Seconds after which a search counts as stuck."""


class UnservedSyncerSearch(Loop):
    """The search for unserved syncers while this replica leads; each finding is put into the status.

    :param dropped: returns the namespaces that this operator watched before and does not any more; it gets
        the namespaces with syncers that this operator does not watch.
    """

    def __init__(
        self,
        namespaces: Collection[str],
        cluster: Cluster,
        access: KubeAccess,
        registries: Mapping[str, Registry],
        events: EventRecorder,
        dropped: Callable[[Collection[str]], Collection[str]],
        may_write: Callable[[], bool],
    ) -> None:
        self._namespaces = namespaces
        self._cluster = cluster
        self._access = access
        self._registries = registries
        self._events = events
        self._dropped = dropped
        self._may_write = may_write
        self._since: dict[SyncerKey, float] = {}  # Unix time at which nobody was seen to serve it first
        self._said: set[SyncerKey] = set()  # on which it stands that nobody serves them
        self._served: set[SyncerKey] = set()  # on which somebody has written otherwise since
        self._reported_dropped: set[str] = set()
        self._reported_misspelt: set[str] = set()
        self._last_error = ""
        super().__init__(
            "unserved",
            self._search_if_leading,
            lambda: SEARCH_PERIOD_SECONDS * random.uniform(0.8, 1.2),  # noqa: S311 - jitter, no secret
            "failed to check whether syncers in other namespaces are served, retrying",
            SEARCH_PERIOD_SECONDS + LONGEST_SEARCH_SECONDS,
        )

    @property
    def unserved_count(self) -> int:
        return len(self._since)

    def search_and_report(self, now: float) -> dict[SyncerKey, Problem]:
        """Search once, and write a status to each syncer that is unserved for longer than a Eureka lease.

        :param now: Unix time.
        :returns: the syncers that nobody seems to serve, with the reason.
        :raises EurekubeError: the syncers or a Eureka cannot be read.
        """
        every = [item for page in self._access.pages(SYNCERS.path()) for item in page.get("items") or ()]
        items = syncers_not_watched(every, self._namespaces)
        dropped = self._dropped({str(item["metadata"]["namespace"]) for item in items})
        self._log_dropped_namespaces(dropped, items)
        self._log_misspelt_namespaces({str(item["metadata"]["namespace"]) for item in every})
        found: dict[SyncerKey, tuple[Object, Problem]] = {}
        # While a Eureka does not answer no operator could renew there, and nothing can be concluded.
        do_all_answer = all(isinstance(one.condition(), Healthy) for one in self._registries.values())
        for item in items if do_all_answer else ():
            key = key_of(item)
            if key in self._said and not status_says_not_served(item):
                self._said.discard(key)
                self._served.add(key)
            if key in self._served:
                continue
            had_instances_there = key in self._since or key[0] in dropped
            why = not_served_problem(
                item, self._read_instances(key), now, had_instances_there=had_instances_there
            )
            if why is not None:
                found[key] = item, why
        self._since = {key: self._since.get(key, now) for key in found}
        for key, (item, why) in found.items():
            if self._since[key] == now:
                _log.warning(
                    "found a syncer that no operator serves, reporting it in its status if that lasts",
                    extra={"syncer": "/".join(key), "reason": why.message, "hint": why.remedy},
                )
            if self._since[key] <= now - UNRENEWED_LIMIT_SECONDS:
                self._report_unserved(item, why, now)
        return {key: why for key, (_, why) in found.items()}

    def _search_if_leading(self) -> None:
        if not self._may_write():
            for known in (self._since, self._said, self._served):
                known.clear()
            return
        try:
            self.search_and_report(time.time())
            self._last_error = ""
        except LeadershipLost:
            raise
        except EurekubeError as error:
            if str(error) != self._last_error:
                self._last_error = str(error)
                _log.warning(
                    "failed to check whether syncers in other namespaces are served, retrying",
                    extra={"error": str(error)},
                )

    def _read_instances(self, key: SyncerKey) -> list[Instance]:
        owner = str(ClusterOwner(self._cluster.name, *key))
        found: list[Instance] = []
        for registry in self._registries.values():
            there = (
                *registry.known_instances(owner=owner),
                *instances_under_other_cluster_names(registry, self._cluster, key),
            )
            keys = [one.key for one in there[:MAX_INSTANCES_READ_UNCACHED]]
            registry.refresh(keys, include_known=True)
            found += [one for each in keys if (one := registry.get(each)) is not None]
        return found

    def _log_dropped_namespaces(self, dropped: Collection[str], items: Collection[Object]) -> None:
        """Log once each namespace with syncers that this operator watched before and does not any more."""
        for namespace in sorted(set(dropped) - self._reported_dropped):
            names = [one["metadata"]["name"] for one in items if one["metadata"]["namespace"] == namespace]
            self._reported_dropped.add(namespace)
            if names:
                _log.warning(
                    "found syncers in a namespace that this operator watches no more, neither renewing nor "
                    "changing anything there",
                    extra={
                        "namespace": namespace,
                        "syncers": ",".join(sorted(names)),
                        "hint": "unless another operator serves it, its instances lapse within minutes:"
                        " add it to --watch-namespace again",
                    },
                )

    def _log_misspelt_namespaces(self, known: Collection[str]) -> None:
        """Log once each watched namespace that is not among ``known``, if a similar name there is."""
        others = set(known).difference(self._namespaces)
        for namespace in self._namespaces if others else ():
            near = difflib.get_close_matches(namespace, others, n=1)
            if not near or namespace in known or namespace in self._reported_misspelt:
                continue
            self._reported_misspelt.add(namespace)
            _log.warning(
                "found no syncer in a watched namespace, but one in a namespace of a similar name, not "
                "serving it",
                extra={"namespace": namespace, "hint": f"--watch-namespace {near[0]}"},
            )

    def _report_unserved(self, item: Object, why: Problem, now: float) -> None:
        self._said.add(key_of(item))
        status = not_served_status_patch(item, why, format_utc_time(now))
        if status is None:
            return
        metadata = item["metadata"]
        # Anyone who begins to serve it meanwhile has written it again.
        body = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": status}
        path = SYNCERS.path(metadata["namespace"], metadata["name"], "status")
        try:
            self._access.request("PATCH", path, body=body, content_type=MERGE_PATCH_TYPE)
        except KubernetesError as error:
            self._said.discard(key_of(item))
            if error.status_code not in (404, 409):
                raise
            return
        kind = {"apiVersion": f"{SYNCERS.group}/{SYNCERS.version}", "kind": "EurekaSyncer"}
        self._events.record({**kind, **item}, EventType.WARNING, why.reason, why.text)
