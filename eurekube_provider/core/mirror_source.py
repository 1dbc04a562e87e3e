"""Where a mirror's instances come from: types only, as far as a mirror sees a registry."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from eurekube_provider.core.model import Instance, Key
from eurekube_provider.core.registry import Condition, Figures


@dataclass(frozen=True, slots=True)
class UnlistedInstances:
    """The fate of instances that no list shows any more.

    :ivar registered: those that a server holds all the same, as it holds them.
    :ivar gone: those of which it is proved that they left. Of the others nothing is known.
    :ivar absent: those of ``gone`` by absence alone: no server holds them, and none says that it ever did.
    """

    registered: tuple[Instance, ...] = ()
    gone: frozenset[Key] = frozenset()
    absent: frozenset[Key] = frozenset()


@runtime_checkable
class MirrorSource(Protocol):
    """A registry that mirrors can show. One reading of it serves all mirrors and syncers."""

    def follow(self, was_read: Callable[[], None]) -> None:
        """Have ``was_read`` called after each reading, and keep proofs of what left. Before it is started."""

    def condition(self) -> Condition:
        """Return whether the registry was read, and answers."""

    def known(self, *, owner: str = "", application: str = "") -> list[Instance]:
        """Return the known instances: of an owner, of an application, of both, or all."""

    def find_unlisted(self, keys: Iterable[Key]) -> UnlistedInstances:
        """Find out what became of instances that are listed no more.

        :raises RegistryError: no server answers.
        """

    def figures(self, *, in_full: bool = False) -> Figures:
        """When the registry was read, among others."""
