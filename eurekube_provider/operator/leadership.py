"""What a replica does with the Lease: leads, stands by, or waits to hear who leads.

Without the Lease it changes nothing. What it holds in Eureka it goes on renewing until it has read that
another replica leads: renewals from several replicas do no harm, and a Kubernetes API that is away for an
hour must not cost a single registration. Who comes to lead while its copy of the cluster is old, since the
API was away from it, renews at once and changes nothing before it knows what there is.
"""

from __future__ import annotations

import logging
import threading
from typing import Protocol

from eurekube_provider.kube.elector import Elector

_log = logging.getLogger(__name__)

POLL_SECONDS = 0.05


class Duties(Protocol):
    """What is begun and ended with leadership."""

    def pause(self) -> bool:
        """Begin no more changes; whether all that were begun have ended."""

    def take_over(self) -> None:
        """Renew what is there."""

    def is_current(self) -> bool:
        """Whether what there is to look at is known as it is now."""

    def lead(self) -> None:
        """Look at everything, and change what must be changed."""

    def stand_by(self) -> None:
        """Another replica leads: renew no more."""


class Leadership:
    """This replica's part in it.

    :param elector: None where this replica is the only one: it leads until it stops.
    """

    def __init__(self, elector: Elector | None) -> None:
        self._elector = elector
        self._term = 0
        self._taken_over = 0
        self._losses = 0
        self._closed = False

    def may_write(self) -> bool:
        """Whether a change may be sent at this moment.

        A term that :meth:`follow` has not begun yet allows nothing: what was begun in the one before must
        end first.
        """
        if self._closed:
            return False
        elector = self._elector
        return elector is None or (elector.may_write() and self._term == elector.term)

    def follows_another(self) -> bool:
        """Whether somebody may have led before this replica does, a moment ago even."""
        return self._elector is None or self._elector.follows_another

    def close(self) -> None:
        """Change nothing more: this replica stops."""
        self._closed = True

    def release(self) -> None:
        """Give the Lease to another replica, when nothing is under way any more."""
        if self._elector is not None:
            self._elector.stop()

    def follow(self, duties: Duties, stop: threading.Event) -> None:
        """Do what the Lease says until ``stop`` is set."""
        if self._elector is None:
            duties.take_over()
            while not duties.is_current() and not stop.wait(POLL_SECONDS):
                pass
            duties.lead()
            stop.wait()
            return
        self._elector.start()
        while not stop.is_set():
            self._step(self._elector, duties)
            stop.wait(POLL_SECONDS)

    def _step(self, elector: Elector, duties: Duties) -> None:
        losses, term = elector.losses, elector.term
        if losses != self._losses:
            if duties.pause():
                duties.stand_by()
                self._losses = losses
                _log.info("this replica stands by")
        elif not elector.may_write():
            duties.pause()
        elif term != self._term and duties.pause():
            begins, self._taken_over = term != self._taken_over, term
            if begins:
                duties.take_over()
            if duties.is_current():
                self._term = term
                duties.lead()
                _log.info("this replica leads", extra={"term": term})
            elif begins:
                _log.warning("this replica renews, and changes nothing before it has listed the cluster anew")
