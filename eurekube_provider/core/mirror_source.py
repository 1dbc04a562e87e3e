"""The interface through which a mirror reads a registry: types only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from eurekube_provider.core.model import Instance, InstanceKey
from eurekube_provider.core.registry import Figures, RegistryCondition


@dataclass(frozen=True, slots=True)
class UnlistedInstances:
    """Servers' answers on instances that no list shows any more.

    :ivar registered: instances that a server holds all the same, as it holds them.
    :ivar gone: instances that are proved to have left. Nothing is known of the others.
    :ivar gone_by_absence: those of ``gone`` for which absence is the only proof: no server holds them, and
        none says that it ever did.
    """

    registered: tuple[Instance, ...] = ()
    gone: frozenset[InstanceKey] = frozenset()
    gone_by_absence: frozenset[InstanceKey] = frozenset()


@runtime_checkable
class MirrorSource(Protocol):
    """A registry that mirrors can show. One reading of the registry serves all mirrors and syncers."""

    def call_after_reads(self, was_read: Callable[[], None]) -> None:
        """Have ``was_read`` called after each reading, and keep proofs of instances' ends. Call this
        before the start.
        """

    def condition(self) -> RegistryCondition:
        """Return whether the registry was read, and whether it answers."""

    def known_instances(self, *, owner: str = "", application: str = "") -> list[Instance]:
        """Return the known instances: of an owner, of an application, of both, or all."""

    def instances_by_application(self) -> Mapping[str, Sequence[Instance]]:
        """Return all known instances by application; while nothing changes in an application, its instances
        are the same object, so that mirrors need not compare them.
        """

    def look_up_unlisted(self, keys: Iterable[InstanceKey]) -> UnlistedInstances:
        """Ask the servers about instances that no list shows any more.

        :raises RegistryError: no server answers.
        """

    def figures(self, *, in_full: bool = False) -> Figures:
        """Return the registry's figures, among them the time when it was last read."""
