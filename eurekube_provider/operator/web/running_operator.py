"""The running operator, as the status page, the metrics and the probes read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eurekube_provider.core.identity import Cluster, ClusterOwner
from eurekube_provider.core.liveness import Liveness
from eurekube_provider.core.model import Instance
from eurekube_provider.core.registry import NeverRead, Registry
from eurekube_provider.operator.blind_renewals import RenewalsWithoutKubernetes
from eurekube_provider.operator.controller import Controller
from eurekube_provider.operator.index import SyncerKey
from eurekube_provider.operator.queue import WorkQueue
from eurekube_provider.operator.settings import Settings
from eurekube_provider.operator.sources import ClusterCache
from eurekube_provider.operator.status import StatusWriter
from eurekube_provider.operator.triggers.triggers import StackRefreshController
from eurekube_provider.operator.unserved import UnservedSyncerSearch

if TYPE_CHECKING:
    from eurekube_provider.operator.mirror.mirrors import MirrorController


@dataclass(frozen=True, slots=True)
class RunningOperator:
    """The parts of the running operator.

    :param is_leader: returns whether this replica leads; None where there is no election.
    :param started_at: Unix time.
    :param unserved: None where the operator watches all namespaces.
    :param blind: None where the operator never renews before it has read its cluster.
    """

    settings: Settings
    cluster: Cluster
    kubernetes_url: str
    sources: ClusterCache
    registries: Mapping[str, Registry]
    controller: Controller
    statuses: StatusWriter
    queue: WorkQueue[SyncerKey]
    is_leader: Callable[[], bool | None]
    started_at: float
    triggers: StackRefreshController | None = None
    mirrors: MirrorController | None = None
    blind: RenewalsWithoutKubernetes | None = None
    unserved: UnservedSyncerSearch | None = None
    hand_over_count: Callable[[], int] = int

    def liveness(self) -> list[Liveness]:
        """Return the liveness of all loops that must go on.

        Only the operator's own threads count. A Eureka or a Kubernetes API that is away must not restart the
        operator: a restart would bring neither back, and would end the renewals that still get through.
        """
        registries = [loop for registry in self.registries.values() for loop in registry.liveness()]
        return [
            *self.sources.liveness(),
            *registries,
            *self.controller.liveness(),
            *self.statuses.liveness(),
            *(self.triggers.liveness() if self.triggers else ()),
            *(self.mirrors.liveness() if self.mirrors else ()),
            *(self.unserved.liveness() if self.unserved else ()),
        ]

    def watch_restart_counts(self) -> dict[tuple[str, str], int]:
        """Return the number of watch restarts, by kind and reason."""
        refreshes = self.triggers.reflectors.restarts if self.triggers else {}
        return self.sources.watch_restart_counts | {
            ("refreshes", why): count for why, count in refreshes.items()
        }

    def not_ready_sentences(self) -> list[str]:
        """Return a sentence for each source that was not read yet; empty once the operator may act."""
        sentences = [self.blind.status_sentence] if self.blind and self.blind.status_sentence else []
        if not self.sources.is_synced_or_forbidden:
            why = "; ".join(f"{kind}: {error}" for kind, error in self.sources.failures.items())
            sentences.append(
                f"the Kubernetes objects were not read completely yet{f' ({why})' if why else ''}"
            )
        for name, registry in self.registries.items():
            condition = registry.condition()
            if isinstance(condition, NeverRead):
                why = f" ({condition.error})" if condition.error else ""
                sentences.append(f"the Eureka {name!r} was not read yet{why}")
        return sentences

    def instances_of(self, key: SyncerKey) -> list[Instance]:
        """Return the instances of a syncer that are in any Eureka, as far as known."""
        owner = str(ClusterOwner(self.cluster.name, *key))
        return [one for registry in self.registries.values() for one in registry.known_instances(owner=owner)]
