"""Bring about the status that a program enforces, and lift one on every server.

A mark in the metadata, written before and after by whoever calls this, tells our statuses from a person's.
"""

from __future__ import annotations

import time

from eurekube_provider.core.enforcement import being_lifted
from eurekube_provider.core.errors import RegistryRejected
from eurekube_provider.core.model import Instance, Status
from eurekube_provider.core.plan import same_contents
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.peers import Peers

_CLEAR_ATTEMPTS = 10
_VERIFY_ATTEMPTS = 5


def bring_about(peers: Peers, want: Instance, sent: Instance) -> Instance | None:
    """Have ``want``'s status stand over another one.

    :param sent: what was registered for that, with the marks of both statuses.
    :returns: what stands there and still has to be written as ``want``, None where nothing has.
    :raises RegistryError: Eureka did not do it, or said so and holds something else.
    """
    status = want.status
    held = verified(peers, sent)
    former = being_lifted(held, status)
    if held.status is status and former is None:
        return None
    if former is not None:
        clear(peers, held, former)  # where another server still holds it
    elif status is Status.OUT_OF_SERVICE:
        peers.set_status(held, status)
    elif status is Status.UP and held.is_enforced:
        clear(peers, held, held.status)
    else:
        if not held.is_overridden:
            # Taken out of service without an override: clearing does nothing where there is none.
            peers.set_status(held, status)
        peers.clear_status(held, status)
    held = verified(peers, sent, status)
    if held.enforced == want.enforced:
        return None
    if being_lifted(held, status) and peers.read_everywhere(*held.key).failures:
        return None  # a server that is away may hold what was lifted: the mark has the next run read again
    return held


def verified(peers: Peers, want: Instance, status: Status | None = None) -> Instance:
    """Read back what was written; another server than the one written to may be half a second behind.

    :param status: the status that it must have; None for any.
    :raises RegistryRejected: somebody else writes or removes it at the same time.
    """
    for attempt in range(_VERIFY_ATTEMPTS):
        held = peers.read(*want.key)
        if held is not None and same_contents(want, held) and status in (None, held.status):
            return held
        time.sleep(windows.READ_AGAIN * (attempt + 1))
    urls = ", ".join(peers.connection.service_urls)
    holds = "does not hold it" if held is None else "holds something else"
    raise RegistryRejected(
        f"register {want.application} {want.instance_id}: {urls} accepted it and {holds};"
        " somebody else may be registering or removing it at the same time",
        url=urls,
    )


def clear(peers: Peers, instance: Instance, status: Status) -> bool:
    """Have no server hold it in ``status`` any more, but UP.

    :returns: whether every server said so.
    :raises RegistryError: one still does, or none answers.
    """
    has_several = len(peers.peers) > 1
    settled_at = time.monotonic() + (windows.STATUS_REPLICATED if has_several else 0)
    for _ in range(_CLEAR_ATTEMPTS):
        by_server = peers.read_everywhere(*instance.key)
        if not by_server.instances:
            raise next(iter(by_server.failures.values()))
        out = [one for one in by_server.instances.values() if one and one.status is status]
        if out:
            settled_at = time.monotonic() + (windows.STATUS_REPLICATED if has_several else 0)
            if not all(one.is_overridden for one in out):
                # Clearing does nothing where there is no override.
                peers.everywhere(lambda peer: peer.set_status(instance, Status.UP))
            peers.everywhere(lambda peer: peer.clear_status(instance, Status.UP))
        elif time.monotonic() >= settled_at:
            return not by_server.failures
        if has_several:
            time.sleep(windows.STATUS_REPLICATED / 3)
    urls = ", ".join(peers.connection.service_urls)
    raise RegistryRejected(
        f"put {instance.application} {instance.instance_id} back into service: {urls} accepted it and keeps"
        f" it {status}; somebody else may be setting it at the same time",
        url=urls,
    )
