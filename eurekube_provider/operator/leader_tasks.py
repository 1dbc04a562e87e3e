"""The tasks of the replica that leads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eurekube_provider.operator.controller import Controller
from eurekube_provider.operator.sources import ClusterCache
from eurekube_provider.operator.triggers.triggers import StackRefreshController

if TYPE_CHECKING:
    from eurekube_provider.operator.mirror.mirrors import MirrorController


class OperatorTasks:
    """The tasks of this operator's replica while it leads: syncers, mirrors, and the stacks' triggers."""

    def __init__(
        self,
        controller: Controller,
        sources: ClusterCache,
        triggers: StackRefreshController | None,
        mirrors: MirrorController | None,
    ) -> None:
        self.start_renewals = controller.start_renewals
        self._mirrors = mirrors
        self._controller = controller
        self._sources = sources
        self._triggers = triggers

    def is_cluster_copy_current(self) -> bool:
        """Return whether this replica's copy of the cluster is current, so that it may act on the copy."""
        return self._sources.is_current

    def pause_and_check_idle(self) -> bool:
        """Begin no change until :meth:`lead`; return True once all changes that were begun have ended."""
        have_ended = self._mirrors.pause_and_check_idle() if self._mirrors else True
        return self._controller.pause_and_check_idle() and have_ended

    def lead(self) -> None:
        """Start to reconcile syncers and mirrors, and to run the stacks' triggers."""
        self._controller.lead()
        if self._mirrors:
            self._mirrors.lead()
        if self._triggers:
            self._triggers.lead()

    def stand_by(self) -> None:
        """Stop all tasks of the leader, and only watch."""
        self._controller.stand_by()
        if self._triggers:
            self._triggers.stand_by()
        if self._mirrors:
            self._mirrors.stand_by()
