"""What becomes of a registration that was sent and failed: nobody's state would ever remove it.

The engine drops a resource whose creation failed, and the program that follows may ask for another id. What
was sent would then be renewed for ever.
"""

from __future__ import annotations

from dataclasses import replace

from eurekube_provider.core.errors import RegistryError
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.eureka import apply
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.registrations.draining import unmarked


def take_back(sent: Instance, before: Instance | None, peers: Peers) -> str:
    """Bring back what stood there before ``sent`` was, a person's status included.

    Only what carries the owner and the incarnation of ``sent`` is changed.

    :param before: what was read before it was sent; None for nothing.
    :returns: the end of a sentence that says how it went, and what is left to do.
    """
    try:
        sighting = peers.read_everywhere(*sent.key)
        held = sighting.found
        if held is None and sighting.failures:
            return left_over(peers, sent)
        if held is None or (held.owner, held.incarnation) != (sent.owner, sent.incarnation):
            return "nothing of it is left"
        if before is None:
            apply.remove(peers, held)
            return "what was registered was taken back"
        restore(before, held, peers)
    except RegistryError as error:
        return f"{left_over(peers, sent)} (it could not be taken back: {error})"
    return "what stood there before was given back"


def undo(sent: Instance, before: Instance, peers: Peers) -> str:
    """Bring back what stood there before an update that failed, so that it is what the state says.

    A status that was enforced, and that the program no longer asks for next time, would else stay.

    :returns: the end of a sentence that says how it went.
    """
    try:
        held = peers.read(*before.key)
        ours = {(one.owner, one.incarnation) for one in (sent, before)}
        if held is not None and (held.owner, held.incarnation) in ours:
            restore(before, held, peers)
    except RegistryError as error:
        return f"what stands there now is not known, and the next refresh shows it ({error})"
    return "what stood there before stands there again"


def restore(before: Instance, held: Instance, peers: Peers) -> None:
    """Have ``before`` stand again in place of ``held``; what a drain of ours had left out, in service."""
    if before.is_leaving:
        before = replace(unmarked(before), status=Status.UP, overridden_status=Status.UNKNOWN)
    if held.is_overridden and not before.is_overridden:
        peers.clear_status(held, before.status)
        held = replace(held, status=before.status, overridden_status=Status.UNKNOWN)
    if before.overridden_status is not held.overridden_status:
        if held.status is before.overridden_status:
            # Setting the status that stands does nothing. Nobody calls what is STARTING.
            held = apply.write(peers, replace(held, status=Status.STARTING), held)
        peers.set_status(held, before.overridden_status)
        held = replace(held, status=before.status, overridden_status=before.overridden_status)
    if before.is_overridden:
        before = replace(before, status=Status.UP)  # a server believes DOWN over an override
    apply.write(peers, before, held)


def left_over(peers: Peers, *sent: Instance) -> str:
    """What may be registered although the creation failed, and how it goes."""
    url = peers.connection.service_urls[0]
    paths = ", ".join(f"{url}/apps/{each.application}/{each.instance_id}" for each in sent)
    return (
        "it may be registered all the same: the next update takes it over if it asks for the same name and"
        f" id, otherwise remove it with an HTTP DELETE of {paths}"
    )
