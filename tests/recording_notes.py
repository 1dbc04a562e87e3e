"""Notes of writes that remember what they were told."""

from __future__ import annotations

from eurekube_provider.core.model import Instance, Key
from eurekube_provider.eureka.notes import Notes
from eurekube_provider.eureka.table import Table


class RecordingNotes(Notes):
    """Remembers each note as its name and the instance's id.

    :param all_is_new: whether it has seen no id before, and each owner has some.
    """

    def __init__(self, *, all_is_new: bool = False) -> None:
        super().__init__(Table())
        self.told: list[tuple[str, str]] = []
        self._all_is_new = all_is_new

    @property
    def servers_behind(self) -> int:
        """Return 1: a registry knows that the server at each URL is alone there."""
        return 1

    def registered(self, instance: Instance) -> None:
        """Remember it."""
        self.told.append(("registered", instance.instance_id))
        super().registered(instance)

    def leaving(self, instance: Instance) -> None:
        """Remember it."""
        self.told.append(("leaving", instance.instance_id))

    def found(self, instance: Instance) -> None:
        """Remember it."""
        self.told.append(("found", instance.instance_id))
        super().found(instance)

    def gone(self, instance: Instance) -> None:
        """Remember it."""
        self.told.append(("gone", instance.instance_id))
        super().gone(instance)

    def is_known(self, _: str) -> bool:
        """What it was told."""
        return self._all_is_new

    def is_new(self, _: Key) -> bool:
        """What it was told."""
        return self._all_is_new
