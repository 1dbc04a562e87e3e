"""A replacement of the notes of writes that records each call."""

from __future__ import annotations

from eurekube_provider.core.model import Instance, Key
from eurekube_provider.eureka.notes import Notes, Order
from eurekube_provider.eureka.table import Table


class RecordingNotes(Notes):
    """Notes of writes that record each call as the note's name and the instance's id.

    :param all_is_new: True if it has seen no id before, and each owner has some.
    :param all_gives_way: True if what it holds needs no read before an update.
    """

    def __init__(self, *, all_is_new: bool = False, all_gives_way: bool = False) -> None:
        super().__init__(Table())
        self._all_gives_way = all_gives_way
        self.notes: list[tuple[str, str]] = []
        self._all_is_new = all_is_new

    @property
    def servers_behind(self) -> int:
        """Return 1: a registry knows that the server at each URL is alone there."""
        return 1

    def registered(self, instance: Instance) -> None:
        """Record the call, and note the registration."""
        self.notes.append(("registered", instance.instance_id))
        super().registered(instance)

    def leaving(self, instance: Instance) -> None:
        """Record the call."""
        self.notes.append(("leaving", instance.instance_id))

    def found(self, instance: Instance) -> None:
        """Record the call, and note that the instance was found."""
        self.notes.append(("found", instance.instance_id))
        super().found(instance)

    def gone(self, instance: Instance, *, is_read_back: bool = False) -> None:
        """Record the call, and note that the instance is gone."""
        self.notes.append(("gone", instance.instance_id))
        super().gone(instance, is_read_back=is_read_back)

    def known_under(self, order: Order) -> Instance | None:
        """Return the instance that the table holds under the order's key, if ``all_gives_way`` is set."""
        return self.table.get(order.key) if self._all_gives_way else None

    def is_known(self, _: str) -> bool:
        """Return ``all_is_new``, whichever owner is asked for."""
        return self._all_is_new

    def is_new(self, _: Key) -> bool:
        """Return ``all_is_new``, whichever key is asked for."""
        return self._all_is_new
