"""What the operator learns of Eureka: what fakes are enough for; the rest is proven on real servers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from eurekube_provider.core.errors import RegistryError, RegistryUnreachable
from eurekube_provider.core.identity import Cluster
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peer import Peer, ServerStatus
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.operator.registry import Registry
from lab.waiting import wait_until

OWNER = "cluster/lab/shop/rating"
STATUS = ServerStatus("1m", 1, (), (), (), 0.0)


def instance(name: str) -> Instance:
    """One of ours."""
    return Instance("rating", name, "10.0.0.1", "10.0.0.1", Port(8080), metadata={"eurekube.owner": OWNER})


class TwoServers(Peers):
    """The first one was restarted empty a moment ago; the second one still holds an instance."""

    def __init__(self, held: list[Instance]) -> None:
        super().__init__(Connection(("http://127.0.0.1:1/eureka", "http://127.0.0.1:2/eureka")))
        self._held = held
        self.silent: dict[str, RegistryError] = {}
        for peer, lists in zip(self.peers, ([], held), strict=True):
            peer.list_instances = lambda *_, lists=lists, **__: lists  # type: ignore[method-assign]
            peer.status = lambda: STATUS  # type: ignore[method-assign]

    def list_instances(self, application: str | None = None, *, anew: bool = False) -> list[Instance]:
        """What the first one lists."""
        assert not application
        assert anew
        return []

    def list_by(self, read: Callable[[Peer], list[Instance]]) -> list[Instance]:
        """The same."""
        assert callable(read)
        return []

    def read(self, application: str, instance_id: str) -> Instance | None:
        """Whichever holds it."""
        return next((one for one in self._held if one.key == (application, instance_id)), None)

    def each(self, ask: Callable[[Peer], Any]) -> tuple[dict[str, Any], dict[str, RegistryError]]:
        """Both answer, but for who is silent."""
        asked = [peer for peer in self.peers if peer.url not in self.silent]
        return {peer.url: ask(peer) for peer in asked}, self.silent


def after_a_restart(servers: TwoServers) -> Registry:
    """A registry, not started, that is to notice that the first server was restarted."""
    registry = Registry(servers, Cluster("lab", "u"), "operator", 600.0, lambda _: None, lambda: None)
    registry.restarts.notice()
    again = replace(STATUS, started_timestamp_ms=(STATUS.started_timestamp_ms or 0) + 1)
    servers.peers[0].status = lambda: again  # type: ignore[method-assign]
    return registry


def test_who_takes_over_looks_for_what_only_other_servers_hold() -> None:
    """The server that was asked first had lost its memory: what is stale on the others is found, too."""
    stale = instance("stale")
    concerned: list[str] = []
    registry = Registry(
        TwoServers([stale]), Cluster("lab", "u"), "operator", 600.0, concerned.append, lambda: None
    )
    registry.start()
    try:
        assert registry.wait_read(10.0)
        registry.take_over()
        wait_until(lambda: OWNER in concerned, "its owner to be looked at", 30.0)
        assert registry.view.owned(OWNER) == [stale]
    finally:
        registry.stop()


def test_nothing_is_new_before_all_servers_were_listed() -> None:
    """What the first server had forgotten may stand on the others, a status that a person set included."""
    registry = Registry(
        TwoServers([instance("held")]), Cluster("lab", "u"), "operator", 600.0, lambda _: None, lambda: None
    )
    registry.take_over()  # nobody reads on: as it is until all are listed
    assert registry.was_read
    assert not registry.is_new(("RATING", "held"))
    assert not registry.is_new(("RATING", "another"))
    registry.start()
    try:
        wait_until(lambda: registry.is_new(("RATING", "another")), "all to be listed", 30.0)
        assert not registry.is_new(("RATING", "held"))
    finally:
        registry.stop()


def test_what_a_restarted_server_forgot_stands_on_the_others() -> None:
    """Its list is not all there is: somebody else's instance may keep a place, or an address, from us."""
    servers, foreign = TwoServers([instance("theirs")]), ("RATING", "theirs")
    registry = after_a_restart(servers)
    registry.start()
    try:
        assert registry.wait_read(10.0)
        assert registry.view.get(foreign) is not None
    finally:
        registry.stop()


def test_what_nobody_can_be_asked_for_is_kept() -> None:
    """A server came back empty while the one that holds it does not answer."""
    servers, foreign = TwoServers([instance("theirs")]), ("RATING", "theirs")
    registry = after_a_restart(servers)
    registry.take_over()
    assert registry.view.get(foreign) is not None
    servers.silent = {servers.peers[1].url: RegistryUnreachable("away")}
    registry.take_over()
    assert registry.view.get(foreign) is not None


def test_what_somebody_else_took_over_is_renewed_no_more() -> None:
    """Or it would never lapse when its application dies; a list tells, or the answer to a renewal."""
    whose = {"eurekube.owner": "stack/o/p/s/billing", "eurekube.renewer": "operator"}
    stacks = replace(instance("vm"), metadata=whose, last_dirty_timestamp_ms=1)
    its_own = replace(stacks, metadata={}, last_dirty_timestamp_ms=2)
    self_renewed = replace(its_own, metadata={**whose, "eurekube.renewer": "self"})
    syncers = replace(instance("pod"), last_dirty_timestamp_ms=1)
    foreign = replace(syncers, metadata={"eurekube.owner": "cluster/other/a/b"}, last_dirty_timestamp_ms=2)
    for ours, theirs in ((stacks, its_own), (stacks, self_renewed), (syncers, foreign)):
        for is_answer in (False, True):
            concerned: list[str] = []
            registry = Registry(
                TwoServers([theirs]), Cluster("lab", "u"), "operator", 600.0, concerned.append, lambda: None
            )
            registry._take([ours], is_complete=True)
            registry.hold(ours)
            assert ours.key in registry.renewals
            concerned.clear()
            if is_answer:
                registry.newer(theirs)
            else:
                registry._take([theirs], is_complete=True)
            assert ours.key not in registry.renewals
            assert registry.view.get(ours.key) == theirs
            assert ours.owner in concerned
