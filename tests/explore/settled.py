"""States from which the undisturbed end of an edit was right: the end is not run again from an equal state.

Most faults leave one of a few states. That state decides what follows: two undisturbed runs, a comparison, a
refresh and one more run. As model checkers do, the explorer goes that way once from each state. States are
equal if they differ only in times and in the random marks of incarnations. The order of times counts, since a
server decides by it which data are newer.

All sequences of an edit also begin alike, with an undisturbed run. Its result is kept, and each sequence
continues from a copy.
"""

from __future__ import annotations

import hashlib
import pickle
import re
from collections.abc import Sequence
from itertools import count
from typing import Any

from eurekube_provider.dev.eureka.cluster import EurekaCluster
from tests.explore.others import Others

_TIMES = re.compile(r"'(?:created|last_updated)': '[^']*'")
_INCARNATION = re.compile(r"(incarnation': ')([0-9a-f]+)")


MOST_STARTS = 100
"""Number of edits whose first run's result is kept, some kilobytes each."""


class Settled:
    """Known states and starts from one process's sequences."""

    def __init__(self) -> None:
        self._known: set[bytes] = set()
        self._starts: dict[tuple[Any, ...], tuple[object, bytes]] = {}
        self.skipped = 0

    def start(self, edit: object, how: tuple[Any, ...]) -> Any:
        """Return a copy of the kept start of an edit for that kind of sequence; None if there is none."""
        kept = self._starts.get((id(edit), *how))
        return None if kept is None else pickle.loads(kept[1])  # noqa: S301 - our own

    def keep_start(self, edit: object, how: tuple[Any, ...], left: Any) -> None:
        """Keep the result of an edit's start."""
        if len(self._starts) >= MOST_STARTS:
            self._starts.clear()
        self._starts[id(edit), *how] = (edit, pickle.dumps(left))

    def knows(self, state: bytes) -> bool:
        """Return whether this state is known to end well."""
        is_known = state in self._known
        self.skipped += is_known
        return is_known

    def learn(self, states: Sequence[bytes]) -> None:
        """Note that each of these states ended well."""
        self._known.update(states)


def state_of(cluster: EurekaCluster, others: Others, beside: Sequence[Any]) -> bytes:
    """Return a digest of everything that decides what follows, once no request is under way.

    :param beside: further data that decide it: the edit, the tool's state.
    """
    numbers: dict[str, str] = {}
    counted = count()
    text = _TIMES.sub("", repr([*beside, _servers(cluster), _people(others)]))
    text = _INCARNATION.sub(lambda found: found[1] + numbers.setdefault(found[2], f"{next(counted)}"), text)
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _servers(cluster: EurekaCluster) -> list[Any]:
    shown: list[Any] = [sorted(cluster.down), sorted(cluster.cut)]
    ages: dict[tuple[str, str], list[int]] = {}
    for server in cluster.servers.values():
        leases = sorted(server.registry.all_leases(), key=lambda lease: (lease.holder.app, lease.holder.id))
        for lease in leases:
            ages.setdefault((lease.holder.app, lease.holder.id), []).append(lease.holder.dirty_ms)
        held = [lease.holder for lease in leases]
        shown.append([(info.app, info.id, info.fields, info.status, info.overridden) for info in held])
        shown.append(sorted((key, status) for key, (status, _) in server.registry.overrides.items()))
        shown.append(
            [
                (
                    list(link.pending),
                    link.closed,
                    link.delay_ms,
                    link.is_next_batch_overtaken,
                    link.is_next_status_repeated,
                )
                for link in server.links.values()
            ]
        )
        shown.append(sorted(server.caches.read_only))
    shown.append(
        [(place, [sorted(found).index(one) for one in found]) for place, found in sorted(ages.items())]
    )
    return shown


def _people(others: Others) -> list[Any]:
    return [
        sorted(others.theirs),
        sorted(others.out),
        sorted(others.doubtful),
        sorted(others.removed),
        sorted(others.contested),
        others.beside,
        others.stand_in_the_way,
    ]
