"""Later checks of removals: many removals share one wait, and instances registered again are kept."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from typing import Any, cast

import pytest

from eurekube_provider.core.errors import RegistryUnreachable
from eurekube_provider.core.identity import OWNER_KEY
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.removal_checks import RemovalChecks
from eurekube_provider.eureka.table import InstanceTable

Key = tuple[str, str]


class Server:
    """A server that keeps its instances in a dictionary."""

    def __init__(self) -> None:
        self.held: dict[Key, Instance] = {}
        self.keeps = ""
        """Id of an instance that the server does not remove."""

    def read(self, application: str, instance_id: str) -> Instance | None:
        """Return the instance that the server holds, or None."""
        return self.held.get((application, instance_id))

    def deregister(self, application: str, instance_id: str) -> bool:
        """Remove an instance, unless it is the one to keep."""
        if instance_id == self.keeps:
            return True
        return self.held.pop((application, instance_id), None) is not None


class Cluster:
    """Two servers with the parts of Peers that removal checks use."""

    def __init__(self) -> None:
        self.connection = Connection(("http://a/eureka", "http://b/eureka"))
        self.peers = (Server(), Server())
        self.table = InstanceTable()

    def ask_all_or_raise(self, ask: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Ask both servers."""
        return {str(number): ask(peer) for number, peer in enumerate(self.peers)}, {}


def instance(number: int, at: int = 1000) -> Instance:
    """Return a stack's instance with this number as its id."""
    owner = {OWNER_KEY: "stack/o/p/s/n"}
    return Instance("A", str(number), "h", "h", Port(1), metadata=owner, last_dirty_timestamp_ms=at)


def test_many_removals_wait_once_and_what_came_back_goes() -> None:
    """Five removals share one wait; an instance that came back is removed, and looked for a second time."""
    cluster, waits = Cluster(), list[float]()
    looks = RemovalChecks(waits.append)
    for number in range(5):
        looks.add_removal(cast("Peers", cluster), instance(number))
    cluster.peers[1].held[("A", "3")] = instance(3)
    looks.check_and_remove_again()
    assert len(waits) == 2  # and what came back is looked for once more
    assert 0 < waits[0] <= windows.RENEWAL_REPLICATION_SECONDS + windows.GROUP_REMOVAL_CHECKS_SECONDS
    assert cluster.peers[1].held == {}
    looks.check_and_remove_again()  # nothing is left to wait for


def test_checks_go_on_after_an_interrupted_wait() -> None:
    """A wait that was interrupted leaves the removals to the next call, which checks them."""
    cluster, waits = Cluster(), list[float]()

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 1:
            raise KeyboardInterrupt

    checks = RemovalChecks(wait)
    checks.add_removal(cast("Peers", cluster), instance(1))
    cluster.peers[1].held[("A", "1")] = instance(1)
    with pytest.raises(KeyboardInterrupt):
        checks.check_and_remove_again()
    checks.check_and_remove_again()
    assert cluster.peers[1].held == {}


def test_what_was_registered_again_stays() -> None:
    """An instance is kept if it is newer than the removed one, or if this process has announced its
    registration.
    """
    cluster = Cluster()
    looks = RemovalChecks(lambda _: None)
    looks.add_removal(cast("Peers", cluster), instance(1))
    looks.add_removal(cast("Peers", cluster), instance(2))
    looks.forget(cast("Peers", cluster), ("A", "2"))
    cluster.peers[0].held = {("A", "1"): instance(1, at=1001), ("A", "2"): instance(2)}
    looks.check_and_remove_again()
    assert set(cluster.peers[0].held) == {("A", "1"), ("A", "2")}


def test_what_is_somebody_elses_by_now_stays() -> None:
    """An instance of another owner is kept, even if its timestamp equals that of the removed one."""
    cluster = Cluster()
    looks = RemovalChecks(lambda _: None)
    looks.add_removal(cast("Peers", cluster), instance(1))
    theirs = replace(instance(1), metadata={OWNER_KEY: "stack/o/p/other/n"})
    cluster.peers[0].held = {theirs.key: theirs}
    looks.check_and_remove_again()
    assert cluster.peers[0].held == {theirs.key: theirs}


def test_while_one_looks_the_others_go_on() -> None:
    """A second caller does not wait: the first one, which is waiting, also checks the second one's
    removal.
    """
    cluster = Cluster()
    waiting, go_on = threading.Event(), threading.Event()

    def wait(_seconds: float) -> None:
        waiting.set()
        assert go_on.wait(30)

    looks = RemovalChecks(wait)
    looks.add_removal(cast("Peers", cluster), instance(1))
    first = threading.Thread(target=looks.check_and_remove_again)
    first.start()
    assert waiting.wait(30)
    cluster.peers[0].held[("A", "2")] = instance(2)
    looks.add_removal(cast("Peers", cluster), instance(2))
    looks.check_and_remove_again()  # returns at once
    assert first.is_alive()
    go_on.set()
    first.join(30)
    assert cluster.peers[0].held == {}


def test_a_failure_is_its_own_removals(capsys: pytest.CaptureFixture[str]) -> None:
    """A failed check raises to the thread that made the removal, and is printed when another thread made
    it.
    """
    cluster = Cluster()
    looks = RemovalChecks(lambda _: None)
    other = threading.Thread(target=looks.add_removal, args=(cluster, instance(1)))
    other.start()
    other.join(30)
    looks.add_removal(cast("Peers", cluster), instance(2))
    keeping = cluster.peers[0]
    keeping.keeps = "1"
    keeping.held = {("A", "1"): instance(1), ("A", "2"): instance(2)}
    looks.check_and_remove_again()
    assert re.fullmatch(
        r"A 1 was removed, and may have come back by a renewal that was under way: .* keeps holding it .*\n",
        capsys.readouterr().err,
    )
    assert set(keeping.held) == {("A", "1")}
    keeping.keeps = "2"
    looks.add_removal(cast("Peers", cluster), instance(2))
    keeping.held = {("A", "2"): instance(2)}
    with pytest.raises(RegistryUnreachable, match=r"A 2: .* keeps holding it"):
        looks.check_and_remove_again()
