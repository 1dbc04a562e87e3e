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

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from eurekube_provider.core.errors import RegistryError, RegistryRejected, RegistryUnreachable
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.eureka import rules, windows
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.table import InstanceTable

BlockingErrorByUrl = Mapping[str, RegistryError]
"""The servers, by URL, at which instances must not be removed yet, and the reason."""


def ensure_successors_by_application(
    peers: Peers, table: InstanceTable, leaving: Iterable[Instance]
) -> dict[str, BlockingErrorByUrl]:
    """Make sure that each server holds a successor of these instances, one that remains of their application:
    register the successors where none is known to be.

    :returns: by application, the servers where that failed, with the reason: its instances must not be
        removed there yet. None for a stack's run, whose removals must be done when it ends.
    """
    by_application = defaultdict[str, list[Instance]](list)
    for one in leaving:
        by_application[one.application].append(one)
    blocked: dict[str, BlockingErrorByUrl] = {}
    for name, those in by_application.items():
        unseen = table.note_leaving_and_find_unseen_successors(those)
        if not unseen:
            continue
        ask = partial(_ensure_successor_at, peers=peers, table=table, unseen_by_url=unseen)
        _, failures = peers.ask_all(ask, grace_seconds=windows.SUCCESSORS_GRACE_SECONDS)
        failures = {url: error for url, error in failures.items() if url in unseen}
        if failures and not any(map(rules.is_owned_by_stack, those)):
            blocked[name] = failures
    return blocked


def _ensure_successor_at(
    peer: Peer, *, peers: Peers, table: InstanceTable, unseen_by_url: Mapping[str, Sequence[Instance]]
) -> None:
    """Register the successors of the leaving instances at a server that holds none that is UP.

    :param unseen_by_url: the successors that each server was not seen to hold; the longest registered first.
    :raises RegistryUnreachable: the server does not answer.
    :raises RegistryRejected: the server holds none of the successors, and none could be registered there.
    """
    unseen = unseen_by_url.get(peer.url)
    if not unseen:
        return
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
        application = unseen[0].application
        raise RegistryRejected(
            f"{peer.url} holds none of what replaces it in {application}, and was not updated: the"
            " Eureka servers do not tell each other; it is removed there as soon as that stands, or"
            f" {windows.SUCCESSORS_SPREAD_SECONDS:.0f} s after its registration",
            url=peer.url,
        )


def blocking_error(blocked: BlockingErrorByUrl) -> RegistryError | None:
    """Return why a removal must be tried again; None where each server that answers may carry it out."""
    return next((error for error in blocked.values() if not isinstance(error, RegistryUnreachable)), None)
