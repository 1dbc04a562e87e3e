"""Whether a syncer may do what it asks for, and at which Eureka."""

from __future__ import annotations

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.remedies import TO_MEND
from eurekube_provider.core.syncer import Syncer
from eurekube_provider.operator.registries import Registries
from eurekube_provider.operator.settings import Settings
from eurekube_provider.operator.sources import Sources


class UnknownEureka(ConfigurationError):
    """A syncer names a connection that the operator does not have."""


class NameTaken(ConfigurationError):
    """Another namespace of the cluster is called by a name that a syncer wants to be called by."""


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

    def check(self, syncer: Syncer, claimed: frozenset[str]) -> None:
        """Raise unless a syncer may register what it asks for, where it asks for it.

        :param claimed: names by which it was called before, and so may be still.
        :raises ConfigurationError: it may not, or there is no such connection.
        :raises RegistryError: the connection's Eureka has not been read yet.
        """
        self._check_configured(syncer)
        if syncer.eureka not in self._registries:
            raise UnknownEureka(
                f"spec.eureka is {syncer.eureka!r}, and the operator's configuration has no connection of"
                f" that name; there are {', '.join(sorted(self._registries))}"
            )
        self._registries.require_read(syncer.eureka)
        self._refuse_taken(syncer, claimed)

    def _check_configured(self, syncer: Syncer) -> None:
        target = syncer.selector.namespace
        if not self._settings.may_select(syncer.namespace, target):
            raise ConfigurationError(
                f"spec.selector.namespace is {target}, and syncers of {syncer.namespace} may"
                f" not select Services there{TO_MEND}move the syncer, or allow it in the operator's"
                f" configuration with --cross-namespace {syncer.namespace}={target}"
            )
        if not self._settings.watches(target):
            raise ConfigurationError(
                f"spec.selector.namespace is {target}, which this operator does not"
                f" watch{TO_MEND}add it to --watch-namespace"
            )
        for name in sorted(syncer.names):
            if self._reservations.allow(syncer.namespace, name) is False:
                raise ConfigurationError(
                    f"it would be called {name!r}, which the operator's configuration reserves for other"
                    f" namespaces{TO_MEND}take another name, or allow it with"
                    f" --reserve {syncer.namespace}={name}"
                )
        others = syncer.names - {syncer.selector.app.lower()}  # which every Service that it selects is called
        own = self._sources.names_of(syncer.selector) if others else frozenset()
        for name in sorted(others - own) if own else ():
            if not self._settings.may_publish(syncer.namespace, name):
                called = ", ".join(sorted(own))
                raise ConfigurationError(
                    f"it would be called {name!r}, and its Services are called {called}: whoever"
                    f" calls another service by that name would come here{TO_MEND}leave the name out, or"
                    f" allow it in the operator's configuration with --publish {syncer.namespace}={name}"
                )

    def _refuse_taken(self, syncer: Syncer, claimed: frozenset[str]) -> None:
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
            raise NameTaken(
                f"it would be called {name!r}, and so are instances of {theirs}, a syncer of another"
                f" namespace: whoever calls those would come here as well{TO_MEND}take another name; or, if"
                " both shall be called, allow it in the operator's configuration with"
                f" --reserve {min(holders)[0]}={name},{syncer.namespace}={name}"
            )
