"""A replacement of the notes of writes that records each call."""

from __future__ import annotations

from eurekube_provider.core.model import Instance, InstanceKey
from eurekube_provider.eureka.notes import ChangeOrder, WriteNotes
from eurekube_provider.eureka.table import InstanceTable


class RecordingNotes(WriteNotes):
    """Notes of writes that record each call as the note's name and the instance's id.

    :param all_is_new: True if it has seen no id before, and each owner has some.
    :param all_gives_way: True if what it holds needs no read before an update, nor before the removal of a
        terminated pod's instance.
    """

    def __init__(self, *, all_is_new: bool = False, all_gives_way: bool = False) -> None:
        super().__init__(InstanceTable())
        self._all_gives_way = all_gives_way
        self.notes: list[tuple[str, str]] = []
        self._all_is_new = all_is_new

    @property
    def most_servers_at_one_url(self) -> int:
        """Return 1: a registry knows that the server at each URL is alone there."""
        return 1

    def note_registered(self, instance: Instance) -> None:
        """Record the call, and note the registration."""
        self.notes.append(("registered", instance.instance_id))
        super().note_registered(instance)

    def note_removal_begins(self, instance: Instance) -> None:
        """Record the call."""
        self.notes.append(("leaving", instance.instance_id))

    def note_found_under_other_owner(self, instance: Instance) -> None:
        """Record the call, and note that the instance was found."""
        self.notes.append(("found", instance.instance_id))
        super().note_found_under_other_owner(instance)

    def note_removed(self, instance: Instance, *, is_confirmed_gone: bool = False) -> None:
        """Record the call, and note that the instance is gone."""
        self.notes.append(("gone", instance.instance_id))
        super().note_removed(instance, is_confirmed_gone=is_confirmed_gone)

    def registered_instance_if_certain(self, order: ChangeOrder) -> Instance | None:
        """Return the instance that the table holds under the order's key, if ``all_gives_way`` is set."""
        return self.table.get(order.key) if self._all_gives_way else None

    def can_remove_unread(self, order: ChangeOrder) -> bool:
        """Return ``all_gives_way`` for a terminated pod's instance, else False."""
        return self._all_gives_way and order.change.is_terminated

    def has_instances(self, _: str) -> bool:
        """Return ``all_is_new``, whichever owner is asked for."""
        return self._all_is_new

    def is_key_unused(self, _: InstanceKey) -> bool:
        """Return ``all_is_new``, whichever key is asked for."""
        return self._all_is_new
