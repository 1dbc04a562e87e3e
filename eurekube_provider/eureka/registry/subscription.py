"""Who is told of changes in one Eureka: nobody before its registry is started."""

from __future__ import annotations

from collections.abc import Iterable

from eurekube_provider.core.registry import RegistryListener


class Subscription:
    """The listener of one registry, whom its parts tell."""

    def __init__(self) -> None:
        self.listener: RegistryListener | None = None

    def owner_changed(self, owner: str | None) -> None:
        """Tell that instances of an owner are not what they were; of nobody's, nothing."""
        if self.listener is not None and owner:
            self.listener.owner_changed(owner)

    def owners_changed(self, owners: Iterable[str | None]) -> None:
        """Tell it of several, each once."""
        for owner in set(owners):
            self.owner_changed(owner)

    def condition_changed(self) -> None:
        """Tell that a reading went otherwise than the one before."""
        if self.listener is not None:
            self.listener.condition_changed()
