"""What becomes of a registration that was sent and failed: nobody's state would ever remove it.

The engine drops a resource whose creation failed, and the program that follows may ask for another id. What
was sent would then be renewed for ever.
"""

from __future__ import annotations

from eurekube_provider.core.errors import RegistryError
from eurekube_provider.core.model import Instance
from eurekube_provider.eureka import apply
from eurekube_provider.eureka.peers import Peers


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
        if held.is_overridden and not before.is_overridden:
            peers.clear_status(held, before.status)
        apply.write(peers, before, held)
        if before.is_overridden and not held.is_overridden:
            peers.set_status(before, before.overridden_status)
    except RegistryError as error:
        return f"{left_over(peers, sent)} (it could not be taken back: {error})"
    return "what stood there before was given back"


def left_over(peers: Peers, *sent: Instance) -> str:
    """What may be registered although the creation failed, and how it goes."""
    url = peers.connection.service_urls[0]
    paths = ", ".join(f"{url}/apps/{each.application}/{each.instance_id}" for each in sent)
    return (
        "it may be registered all the same: the next update takes it over if it asks for the same name and"
        f" id, otherwise remove it with an HTTP DELETE of {paths}"
    )
