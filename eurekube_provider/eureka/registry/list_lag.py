"""The time in which no list shows yet what another replica did before this one came to lead.

Who comes to lead begins with the list that every client gets, which a server answers at once from its
cache. A list of its own would be of this moment, but would stay in that cache for good, one for each change
of leader. So the first list may be wrong about the last half minute, and nothing is done by it alone:

* What it shows is read by itself before it is changed or removed, as ever. What is gone by then is not
  registered again for it, and a renewal that finds nothing says so.
* What it lacks is not taken for new: it is read before it is registered, so that neither a newer version nor
  a person's status is written over. What is on its way out is read as well, since it must leave.
* What was registered in that time and has left Kubernetes altogether since is found with the list that shows
  it, and removed then.

There is no such time where nobody led before: the first operator of a cluster, which makes the Lease.
"""

from __future__ import annotations

import time

from eurekube_provider.eureka import windows


class ListLag:
    """Knows whether lists still lag behind a take-over; who reads a registry and who changes it share it."""

    def __init__(self) -> None:
        self._until: float | None = None

    def begin(self) -> None:
        """Begin to wait for lists: this replica leads from now on."""
        self._until = time.monotonic() + windows.LIST_LAG

    @property
    def lasts(self) -> bool:
        """Whether no list was read yet that shows everything."""
        return self._until is not None

    def ends_with(self, asked_at: float) -> bool:
        """Whether lists that were, or would be, asked for at this time are the first to show everything."""
        return self._until is not None and asked_at >= self._until

    def end(self) -> None:
        """Stop waiting: the lists of every server that answers were read."""
        self._until = None
