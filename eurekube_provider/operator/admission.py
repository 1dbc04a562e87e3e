"""Whether a syncer may do what it asks for, and at which Eureka."""

from __future__ import annotations

from collections.abc import Mapping

from eurekube_provider.core.errors import ConfigurationError
from eurekube_provider.core.syncer import Syncer
from eurekube_provider.operator.departure import require_read
from eurekube_provider.operator.registry import Registry
from eurekube_provider.operator.settings import Settings
from eurekube_provider.operator.sources import Sources


class UnknownEureka(ConfigurationError):
    """A syncer names a connection that the operator does not have."""


class Admission:
    """Asks the operator's configuration.

    :param registries: by the name that ``spec.eureka`` may give.
    """

    def __init__(self, settings: Settings, registries: Mapping[str, Registry]) -> None:
        self._settings = settings
        self._registries = registries

    def registry_of(self, wanted: Syncer, sources: Sources) -> Registry:
        """Where a syncer registers.

        :raises ConfigurationError: it may not, or there is no such connection.
        :raises RegistryError: the connection's Eureka has not been read yet.
        """
        self._admit(wanted, sources)
        registry = self._registries.get(wanted.eureka)
        if registry is None:
            raise UnknownEureka(
                f"spec.eureka is {wanted.eureka!r}, and the operator's configuration has no connection of"
                f" that name; there are {', '.join(sorted(self._registries))}"
            )
        require_read(registry, wanted.eureka)
        return registry

    def _admit(self, syncer: Syncer, sources: Sources) -> None:
        target = syncer.selector.namespace
        if not self._settings.may_select(syncer.namespace, target):
            raise ConfigurationError(
                f"spec.selector.namespace is {target}, and syncers of {syncer.namespace} may"
                " not select Services there: move the syncer, or allow it in the operator's configuration"
                f" with --cross-namespace {syncer.namespace}={target}"
            )
        if not self._settings.watches(target):
            raise ConfigurationError(
                f"spec.selector.namespace is {target}, which this operator does not watch:"
                " add it to --watch-namespace"
            )
        own = sources.names_of(syncer.selector)
        for name in sorted(syncer.names - own) if own else ():
            if not self._settings.may_publish(syncer.namespace, name):
                called = ", ".join(sorted(own))
                raise ConfigurationError(
                    f"it would be called {name!r}, and its Services are called {called}: whoever"
                    " calls another service by that name would come here. Leave the name out, or allow it in"
                    f" the operator's configuration with --publish {syncer.namespace}={name}"
                )
