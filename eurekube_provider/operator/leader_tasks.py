"""The work of the replica that leads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eurekube_provider.operator.controller import Controller
from eurekube_provider.operator.sources import Sources
from eurekube_provider.operator.triggers.triggers import Triggers

if TYPE_CHECKING:
    from eurekube_provider.operator.mirror.mirrors import Mirrors


class OperatorTasks:
    """The work of this operator's replica while it leads."""

    def __init__(
        self, controller: Controller, sources: Sources, triggers: Triggers | None, mirrors: Mirrors | None
    ) -> None:
        self.take_over = controller.take_over
        self._mirrors = mirrors
        self._controller = controller
        self._sources = sources
        self._triggers = triggers

    def is_current(self) -> bool:
        """Return whether this replica's copy of the cluster is current, so that it may act on the copy."""
        return self._sources.is_current

    def pause(self) -> bool:
        """Begin no change until :meth:`lead`; return whether all changes that were begun have ended."""
        have_ended = self._mirrors.pause() if self._mirrors else True
        return self._controller.pause() and have_ended

    def lead(self) -> None:
        """Start to reconcile syncers and mirrors, and to run the stacks' triggers."""
        self._controller.lead()
        if self._mirrors:
            self._mirrors.lead()
        if self._triggers:
            self._triggers.lead()

    def stand_by(self) -> None:
        """Stop all work of the leader, and only watch."""
        self._controller.stand_by()
        if self._triggers:
            self._triggers.stand_by()
        if self._mirrors:
            self._mirrors.stand_by()
