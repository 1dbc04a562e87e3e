"""What is said of a syncer, by what is known at that moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eurekube_provider.core.errors import ConfigurationError, EurekubeError, RegistryError
from eurekube_provider.core.identity import Cluster, ClusterOwner
from eurekube_provider.core.model import Instance
from eurekube_provider.core.plan import Outcome
from eurekube_provider.core.registry import Condition, Failing, Unread
from eurekube_provider.operator.conditions import Finding, Reconciled, Report, reason_of, report
from eurekube_provider.operator.decision import Decision, Result
from eurekube_provider.operator.drain_check import DrainCheck
from eurekube_provider.operator.index import SyncerKey, key_of
from eurekube_provider.operator.registries import Registries
from eurekube_provider.operator.sources import Sources

Object = Mapping[str, Any]

_NOTHING = Outcome()


class Reports:
    """Makes reports; any number of workers may share it."""

    def __init__(
        self, cluster: Cluster, registries: Registries, sources: Sources, drain_check: DrainCheck
    ) -> None:
        self._cluster = cluster
        self._registries = registries
        self._sources = sources
        self._drain_check = drain_check

    def done(self, decided: Decision, outcome: Outcome) -> Report:
        """When a reconcile went to its end."""
        trouble = _lasting_failure(decided.registry.condition())
        return report(decided.reconciled(outcome, trouble, self._drain_check.problem(decided.wanted.key)))

    def waiting(self, decided: Decision, error: RegistryError) -> Result:
        """While changes wait for a registry that does not answer."""
        drain = self._drain_check.problem(decided.wanted.key)
        said = report(decided.reconciled(_NOTHING, error, drain))
        return Result(decided.wanted.item, said, differing=decided.differing, held_back=decided.held_back)

    def unresponsive(self, key: SyncerKey, name: str, error: RegistryError) -> Result:
        """While a syncer is not reconciled, since its registry does not answer; perhaps nothing is said."""
        item = self._sources.syncers.get(*key)
        if item is None or item["metadata"].get("deletionTimestamp"):
            return Result()
        try:
            syncer = self._sources.parsed(item)
        except ConfigurationError:
            return Result()  # which the first reconcile says
        registry, held, registered = self._registries[name], list[Instance](), None
        if isinstance(registry.condition(), Unread):
            registered = (item.get("status") or {}).get("registered", 0)
        else:
            held = registry.known(owner=syncer.owner(self._cluster))
        application, desired = syncer.application.upper(), len(self._sources.desired(syncer).instances)
        failure, drain = Finding(reason_of(error), str(error)), self._drain_check.problem(key)
        return Result(item, report(Reconciled(application, held, desired, drain, failure, registered)))

    def ended_early(
        self, item: Object, error: EurekubeError, registries: Registries, reason: str = ""
    ) -> Report:
        """When a reconcile did not go to its end.

        :param registries: as its workers use them.
        :param reason: where it is not the error's.
        """
        key, before = key_of(item), item.get("status") or {}
        owned = registries.owned(str(ClusterOwner(self._cluster.name, *key)))
        held = [one for there in owned.values() for one in there]
        application, desired, registered = (
            before.get("application", ""),
            before.get("desired", len(held)),
            None,
        )
        if isinstance(error, RegistryError) and registries.is_served_unread:
            held, registered = [], before.get("registered", 0)
        failure, drain = Finding(reason or reason_of(error), str(error)), self._drain_check.problem(key)
        return report(Reconciled(application, held, desired, drain, failure, registered))


def _lasting_failure(condition: Condition) -> RegistryError | None:
    """Why a registry cannot be read, where all its syncers are to say so."""
    return condition.error if isinstance(condition, Failing) and condition.lasts else None
