"""What several servers hold, put together."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from eurekube_provider.core.errors import RegistryError
from eurekube_provider.core.model import Instance, Key, newest


@dataclass(frozen=True, slots=True)
class InstanceByServer:
    """One instance as every server holds it.

    :ivar instances: what the servers that answered hold, by URL; None where one holds nothing.
    :ivar failures: the servers that did not answer, by URL.
    """

    instances: dict[str, Instance | None]
    failures: dict[str, RegistryError]

    @property
    def found(self) -> Instance | None:
        """The newest version that any server holds."""
        return newest(self.instances.values())

    @property
    def is_gone(self) -> bool:
        """Every server answered, and none holds it."""
        return not self.failures and self.found is None


def merged(lists: Iterable[Iterable[Instance]]) -> list[Instance]:
    """Each instance of several servers' lists once, as it was written last."""
    held: dict[Key, Instance] = {}
    for instance in itertools.chain.from_iterable(lists):
        other = held.get(instance.key)
        if other is None or instance.written_at_ms > other.written_at_ms:
            held[instance.key] = instance
    return list(held.values())
