"""Whether a syncer may do what it asks for, and at which Eureka."""

from __future__ import annotations

from eurekube_provider.core.condition_types import ConditionType, Reason
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.problem import Problem
from eurekube_provider.core.syncer import Syncer
from eurekube_provider.operator.registries import Registries
from eurekube_provider.operator.settings import Settings
from eurekube_provider.operator.sources import Sources


class Permissions:
    """Tells by the operator's configuration, and by who was there first, what a syncer may publish."""

    def __init__(
        self, settings: Settings, cluster: Cluster, registries: Registries, sources: Sources
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._registries = registries
        self._sources = sources
        self._reservations = settings.reservations

    def refusal(self, syncer: Syncer, claimed: frozenset[str]) -> Problem | None:
        """Return why a syncer may not register what it asks for, where it asks for it; None where it may.

        :param claimed: names by which it was called before, and so may be still.
        :raises RegistryError: the connection's Eureka has not been read yet.
        """
        refusal = self._not_configured(syncer)
        if refusal is not None:
            return refusal
        if syncer.eureka not in self._registries:
            return Problem(
                Reason.UNKNOWN_EUREKA,
                f"spec.eureka is {syncer.eureka!r}, and the operator's configuration has no connection of"
                f" that name; there are {', '.join(sorted(self._registries))}",
            )
        self._registries.require_read(syncer.eureka)
        return self._taken(syncer, claimed)

    def _not_configured(self, syncer: Syncer) -> Problem | None:
        target = syncer.selector.namespace
        if not self._settings.may_select(syncer.namespace, target):
            return Problem(
                Reason.NOT_ALLOWED,
                f"spec.selector.namespace is {target}, and syncers of {syncer.namespace} may"
                " not select Services there",
                "move the syncer, or allow it in the operator's"
                f" configuration with --cross-namespace {syncer.namespace}={target}",
            )
        if not self._settings.watches(target):
            return Problem(
                Reason.NOT_ALLOWED,
                f"spec.selector.namespace is {target}, which this operator does not watch",
                "add it to --watch-namespace",
            )
        for name in sorted(syncer.names):
            if self._reservations.allow(syncer.namespace, name) is False:
                return Problem(
                    Reason.NOT_ALLOWED,
                    f"it would be called {name!r}, which the operator's configuration reserves for other"
                    " namespaces",
                    f"take another name, or allow it with --reserve {syncer.namespace}={name}",
                )
        others = syncer.names - {syncer.selector.app.lower()}  # which every Service that it selects is called
        own = self._sources.names_of(syncer.selector) if others else frozenset()
        for name in sorted(others - own) if own else ():
            if not self._settings.may_publish(syncer.namespace, name):
                called = ", ".join(sorted(own))
                return Problem(
                    Reason.NOT_ALLOWED,
                    f"it would be called {name!r}, and its Services are called {called}: whoever"
                    " calls another service by that name would come here",
                    "leave the name out, or allow it in the operator's configuration with"
                    f" --publish {syncer.namespace}={name}",
                )
        return None

    def _taken(self, syncer: Syncer, claimed: frozenset[str]) -> Problem | None:
        """Refuse a name by which another namespace of this cluster is called, and this one is not."""
        for name in sorted(syncer.names - claimed):
            if self._reservations.allow(syncer.namespace, name):
                continue
            called = self._registries[syncer.eureka].owners(called=name)
            owners = [self._cluster.syncer_of(owner) for owner in called]
            holders = {(owner.namespace, owner.syncer) for owner in owners if owner is not None}
            if not holders or any(namespace == syncer.namespace for namespace, _ in holders):
                continue
            theirs = "/".join(min(holders))
            return Problem(
                ConditionType.CONFLICT,
                f"it would be called {name!r}, and so are instances of {theirs}, a syncer of another"
                " namespace: whoever calls those would come here as well",
                "take another name; or, if both shall be called, allow it in the operator's configuration"
                f" with --reserve {min(holders)[0]}={name},{syncer.namespace}={name}",
            )
        return None
