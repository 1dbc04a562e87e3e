"""Several servers as one: who is asked to renew, and what is remembered of a status."""

from __future__ import annotations

from functools import partial

from eurekube_provider.core.model import Instance, Status
from eurekube_provider.eureka.accepted_renewals import AcceptedRenewals
from tests.unit.eureka.servers import Holding, instance, of_a_stack


def test_a_status_is_remembered_before_it_is_set_or_taken_off() -> None:
    """It may come once more when it was taken off: a server tells a busy peer again."""
    shared = instance("shared")
    servers = Holding(shared)
    told: list[str] = []
    servers.overriding = lambda one: told.append(f"remember {one.instance_id}")

    def asked(what: str, _: Instance, status: Status) -> bool:
        told.append(f"{what} {status}")
        return True

    for peer in servers.peers:
        peer.set_status = partial(asked, "set")  # type: ignore[method-assign]
        peer.clear_status = partial(asked, "clear")  # type: ignore[method-assign]
    servers.set_status(shared, Status.OUT_OF_SERVICE)
    servers.clear_status(shared)
    assert told == ["remember shared", "set OUT_OF_SERVICE", "remember shared", "clear UP"]


def test_a_renewal_ends_at_who_removed_it() -> None:
    """A server that accepted it lately did not evict it; the other one, which missed the removal, would have
    it registered again. What nobody knows to have been accepted is renewed where it stands, as a syncer's is.
    """
    stacks, syncers = of_a_stack("vm"), instance("ours")
    servers = Holding(stacks, syncers)
    assert [servers.renew(one, turn) for one in (stacks, syncers) for turn in range(2)] == [True] * 4
    for one in (stacks, syncers):
        del servers.held[0][one.key]
    assert not servers.renew(stacks, 2)  # asks it
    assert not servers.renew(stacks, 3)  # begins with the other one
    assert servers.renew(syncers, 2)
    servers.accepted = AcceptedRenewals()
    assert servers.renew(stacks, 2)
