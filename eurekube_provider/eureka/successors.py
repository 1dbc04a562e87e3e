"""Successors of an instance stand at a server before the instance leaves it.

A registration goes to one server, which tells the others, and a removal to each of them. A server that the
others cannot reach would lose the last instance of an application at once, and hear of what replaces it only
from the renewals, some 70 s later: its callers would find none. So a server that was not seen to hold any of
those that remain is asked for them first, and sent them where it lacks them.

The question is rare. The record knows where each registration was taken, or seen since; what was registered
longer ago than :data:`.windows.SUCCESSORS_SENT` stands everywhere as far as anybody can tell. So one more
request is sent only by anyone who removes the last instance that a server is known to hold, of an application
that has others; and its answer holds for those that follow.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from eurekube_provider.core.errors import RegistryError, RegistryRejected, RegistryUnreachable
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.eureka import rules, windows
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.table import Table

_log = logging.getLogger(__name__)

HeldBack = Mapping[str, RegistryError]
"""The servers at which instances are not removed now, by URL, and why."""


def held_back(peers: Peers, table: Table, leaving: Collection[Instance]) -> HeldBack:
    """Return where these must not be removed yet, after each server was notified of what replaces them.

    A stack's run ends, and what it was asked to remove leaves: it tells each server, and waits for none.

    :param leaving: of one application. What else remains of it replaces them.
    """
    unseen = table.unseen_successors(leaving)
    if not unseen:
        return {}

    def ask(peer: Peer) -> None:
        if peer.url in unseen:
            _require_successors(peer, peers, table, unseen[peer.url])

    failures = peers.each(ask, grace_seconds=windows.SUCCESSORS_GRACE)[1]
    if any(map(rules.is_of_stack, leaving)):
        return {}
    return {url: error for url, error in failures.items() if url in unseen}


def held_back_by_application(peers: Peers, table: Table, leaving: Iterable[Instance]) -> dict[str, HeldBack]:
    """Return :func:`held_back` of each application of which some are leaving."""
    by_application = defaultdict[str, list[Instance]](list)
    for one in leaving:
        by_application[one.application].append(one)
    return {name: held for name, those in by_application.items() if (held := held_back(peers, table, those))}


def _require_successors(peer: Peer, peers: Peers, table: Table, unseen: Collection[Instance]) -> None:
    """Have a server hold what replaces an instance.

    :raises RegistryUnreachable: it does not answer.
    :raises RegistryRejected: it holds none of them, and was notified of none.
    """
    lacking = list[Instance]()
    for one in unseen:
        held = peer.read(*one.key)
        if held is not None and held.status is Status.UP:
            table.seen(peer.url, [one.key])
            if not lacking:
                return  # the longest ago: servers tell this one the others
        elif held is None:
            lacking.append(one)
    updated = [one for one in lacking if peers.tell_cut_off(peer, one)]
    table.seen(peer.url, [one.key for one in updated])
    if len(lacking) == len(unseen) and not updated:
        application = next(iter(unseen)).application
        raise RegistryRejected(
            f"{peer.url} holds none of what replaces it in {application}, and was not updated: the"
            " Eureka servers do not tell each other; it is removed there as soon as that stands, or"
            f" {windows.SUCCESSORS_SENT:.0f} s after its registration",
            url=peer.url,
        )


def refusal(held: HeldBack) -> RegistryError | None:
    """Return why a removal is to be tried again; None where each server that answers may carry it out."""
    return next((error for error in held.values() if not isinstance(error, RegistryUnreachable)), None)
