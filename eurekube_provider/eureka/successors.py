"""The step before a removal that makes sure that each server holds a successor of the removed instance.

A registration goes to one server, which tells the others, but a removal goes to each of them. A server that
the others cannot reach would lose the last instance of an application at once, and hear of its successor only
from the renewals, some 70 s later: its callers would find none. So a server that was not seen to hold any of
the remaining instances is first asked for them, and they are registered there if it lacks them.

The question is rare. The record notes which servers took or showed each registration; one that is older than
:data:`.windows.SUCCESSORS_SPREAD_SECONDS` is assumed to be everywhere. So one more request is needed only for
the removal of the last instance that a server is known to hold, of an application that has others; its answer
holds for the following removals.
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
from eurekube_provider.eureka.table import InstanceTable

_log = logging.getLogger(__name__)

BlockingErrorByUrl = Mapping[str, RegistryError]
"""The servers, by URL, at which instances must not be removed yet, and the reason."""


def ensure_successors(
    peers: Peers, table: InstanceTable, leaving: Collection[Instance]
) -> BlockingErrorByUrl:
    """Make sure that each server holds a successor of these instances: register the successors where none is
    known to be. Return the servers where that failed, with the reason.

    These instances must not be removed there yet. For a stack's run no server is returned: its removals must
    be done when it ends, so that it does not wait for a server.

    :param leaving: instances of one application. The application's remaining instances are their successors.
    """
    unseen = table.note_leaving_and_find_unseen_successors(leaving)
    if not unseen:
        return {}

    def ask(peer: Peer) -> None:
        if peer.url in unseen:
            _ensure_successor_at(peer, peers, table, unseen[peer.url])

    failures = peers.ask_all(ask, grace_seconds=windows.SUCCESSORS_GRACE_SECONDS)[1]
    if any(map(rules.is_owned_by_stack, leaving)):
        return {}
    return {url: error for url, error in failures.items() if url in unseen}


def ensure_successors_by_application(
    peers: Peers, table: InstanceTable, leaving: Iterable[Instance]
) -> dict[str, BlockingErrorByUrl]:
    """Make sure that each server holds successors of these instances; return, by application, the result of
    :func:`ensure_successors`, without applications for which it succeeded everywhere.
    """
    by_application = defaultdict[str, list[Instance]](list)
    for one in leaving:
        by_application[one.application].append(one)
    return {
        name: held
        for name, those in by_application.items()
        if (held := ensure_successors(peers, table, those))
    }


def _ensure_successor_at(
    peer: Peer, peers: Peers, table: InstanceTable, unseen: Collection[Instance]
) -> None:
    """Make sure that a server holds a successor of the leaving instances: register the successors there if it
    holds none that is UP.

    :param unseen: the successors; the longest registered first.
    :raises RegistryUnreachable: the server does not answer.
    :raises RegistryRejected: the server holds none of the successors, and none could be registered there.
    """
    lacking = list[Instance]()
    for one in unseen:
        held = peer.read(*one.key)
        if held is not None and held.status is Status.UP:
            table.note_held_at(peer.url, one.key)
            if not lacking:
                return  # the longest ago: servers tell this one the others
        elif held is None:
            lacking.append(one)
    updated = [one for one in lacking if peers.copy_to_cut_off_server(peer, one)]
    if len(lacking) == len(unseen) and not updated:
        application = next(iter(unseen)).application
        raise RegistryRejected(
            f"{peer.url} holds none of what replaces it in {application}, and was not updated: the"
            " Eureka servers do not tell each other; it is removed there as soon as that stands, or"
            f" {windows.SUCCESSORS_SPREAD_SECONDS:.0f} s after its registration",
            url=peer.url,
        )


def blocking_error(blocked: BlockingErrorByUrl) -> RegistryError | None:
    """Return why a removal must be tried again; None where each server that answers may carry it out."""
    return next((error for error in blocked.values() if not isinstance(error, RegistryUnreachable)), None)
