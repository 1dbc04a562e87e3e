"""The registries of one operator, by the names that ``spec.eureka`` may give, and what makes each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pkgutil import resolve_name

from eurekube_provider.core.errors import RegistryUnreachable
from eurekube_provider.core.model import Instance
from eurekube_provider.core.plan import Outcome, Plan
from eurekube_provider.core.registry import Registry, Unread, failure_of

KINDS: dict[str, Callable[..., Registry]] = {
    name: resolve_name(factory)
    for name, factory in {
        "Connection": "eurekube_provider.eureka.eureka_registry:EurekaRegistry.connected",
    }.items()
}
"""What makes a registry, by the class of its connection."""


class Registries(dict[str, Registry]):
    """All registries, as the workers of one of them use them: a failing one of the others is not waited for.

    :param served: whose workers these are; empty for who waits for any.
    """

    def __init__(self, registries: Mapping[str, Registry], served: str = "") -> None:
        super().__init__(registries)
        self._served = served

    @property
    def is_served_unread(self) -> bool:
        """Whether the one whose workers these are has never been read."""
        served = self.get(self._served)
        return served is not None and isinstance(served.condition(), Unread)

    def owned(self, owner: str) -> dict[str, list[Instance]]:
        """What an owner has at each."""
        return {name: registry.known(owner=owner) for name, registry in self.items()}

    def apply(self, name: str, steps: Plan, owner: str) -> Outcome:
        """Carry out a plan; see :meth:`~eurekube_provider.core.registry.Registry.apply`."""
        registry = self[name]
        failure = failure_of(registry.condition()) if self._served not in ("", name) else None
        if failure is not None:
            return Outcome.of(steps.changes, [failure] * len(steps.changes))
        return registry.apply(steps, owner)

    def holds(self, name: str, key: tuple[str, str], owner: str) -> bool:
        """Whether an owner's instance stands at one of them."""
        there = self[name].get(key)
        return there is not None and there.owner == owner

    def keep(self, owner: str) -> None:
        """Renew what an owner has, wherever."""
        for name, instances in self.owned(owner).items():
            for instance in instances:
                self[name].keep(instance)

    def require_read(self, name: str) -> None:
        """Refuse to go on before a registry has been read once.

        :raises RegistryError: it has not.
        """
        condition = self[name].condition()
        if isinstance(condition, Unread):
            raise condition.error or RegistryUnreachable(f"the Eureka {name!r} has not been read yet")
