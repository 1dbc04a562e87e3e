"""An observer of writes that remembers what it was told."""

from __future__ import annotations

from eurekube_provider.core.model import Instance, Status


class RecordingObserver:
    """Remembers each call as its name and the instance's id.

    :param all_is_new: whether it has seen no id before.
    """

    def __init__(self, *, all_is_new: bool = False) -> None:
        self.told: list[tuple[str, str]] = []
        self._all_is_new = all_is_new

    def registered(self, instance: Instance) -> None:
        """Remember it."""
        self.told.append(("registered", instance.instance_id))

    def leaving(self, instance: Instance) -> None:
        """Remember it."""
        self.told.append(("leaving", instance.instance_id))

    def found(self, instance: Instance) -> None:
        """Remember it."""
        self.told.append(("found", instance.instance_id))

    def gone(self, instance: Instance) -> None:
        """Remember it."""
        self.told.append(("gone", instance.instance_id))

    def is_of_another_cluster(self, instance: Instance) -> bool:
        """It knows of none."""
        return not instance

    def is_known(self, owner: str) -> bool:
        """What it was told."""
        return self._all_is_new and bool(owner)

    def holds(self, key: tuple[str, str]) -> bool:
        """What it was told last."""
        told = [name for name, instance_id in self.told if instance_id == key[1]]
        return told[-1:] == ["registered"]

    def is_new(self, key: tuple[str, str]) -> bool:
        """What it was told."""
        return self._all_is_new and bool(key)

    def lost_override(self, key: tuple[str, str]) -> Status:
        """Nothing was lost."""
        assert key
        return Status.UNKNOWN
