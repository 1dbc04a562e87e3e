"""Proofs that an instance left Eureka."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from eurekube_provider.core.errors import RegistryUnreachable
from eurekube_provider.core.model import Instance, Key, Port
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.registry import removal_proofs as module
from eurekube_provider.eureka.registry.removal_proofs import CHUNK, MOST_ASKED, RemovalProofs
from eurekube_provider.eureka.table import Table
from eurekube_provider.eureka.uncached_reads import UncachedReads

HERE = Instance("review", "a", "192.0.2.1", "192.0.2.1", Port(8080))
KEY: Key = HERE.key


class Scene:
    """Two servers, and what they hold."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.held: dict[str, Instance | None] = {"one": None, "two": None}
        self.failures: dict[str, RegistryUnreachable] = {}
        self.now = 10_000.0
        self.asked = 0
        self.chunks: list[int] = []
        self.runs_for = dict.fromkeys(self.held, windows.SERVER_SETTLED)
        self.looks = 0
        self.behind = 1
        self.restarts = SimpleNamespace(
            runs_for=self.runs_for.get, servers_behind=1, detect_behind_balancer=self.detect_behind_balancer
        )
        peers: Any = SimpleNamespace(peers=[SimpleNamespace(url="one"), SimpleNamespace(url="two")])
        restarts: Any = self.restarts
        self.table = Table(lambda: self.now)
        self.proofs = RemovalProofs(peers, self.table, restarts, lambda: self.now)
        monkeypatch.setattr(module, "read_everywhere", self.read)

    def detect_behind_balancer(self) -> None:
        """New connections lead to all servers that there are."""
        self.looks += 1
        self.restarts.servers_behind = self.behind

    def read(self, _: object, keys: list[Key]) -> UncachedReads:
        """The uncached reads of the servers that answer."""
        self.asked += len(keys)
        self.chunks.append(len(keys))
        if len(self.failures) == 2:
            raise self.failures["one"]
        answering = [url for url in self.held if url not in self.failures]
        by_url: dict[str, dict[Key, Instance | None]] = {
            url: dict.fromkeys(keys, self.held[url]) for url in answering
        }
        return UncachedReads(by_url, {**self.failures})

    def is_gone(self) -> bool:
        """Whether it is proved."""
        return self.proofs.find_unlisted([KEY]).gone == {KEY}


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Both hold nothing, and have run for long enough."""
    return Scene(monkeypatch)


def test_what_no_request_can_name_keeps_no_other_from_being_proved(scene: Scene) -> None:
    """A server would refuse to say anything of all that it is asked for with it."""
    odd = ("REVIEW", "a;b"), ("RE%VIEW", "a")
    assert scene.proofs.find_unlisted([*odd, KEY]).gone == {KEY}
    assert scene.asked == 1


def test_what_no_server_holds_is_gone(scene: Scene) -> None:
    """By the uncached read of each."""
    assert scene.is_gone()
    scene.held["two"] = HERE
    found = scene.proofs.find_unlisted([KEY])
    assert (found.registered, found.gone) == ((HERE,), frozenset())


def test_a_server_that_does_not_answer_proves_nothing(scene: Scene) -> None:
    """It may hold it."""
    scene.failures["two"] = RegistryUnreachable("away")
    assert not scene.is_gone()
    scene.failures["one"] = RegistryUnreachable("away")
    with pytest.raises(RegistryUnreachable):
        scene.proofs.find_unlisted([KEY])


def test_a_server_that_was_started_a_moment_ago_proves_nothing(scene: Scene) -> None:
    """It may have lost its memory; nor does one of which nobody knows, or several behind one URL."""
    scene.runs_for["two"] -= 1
    assert not scene.is_gone()
    del scene.runs_for["two"]
    assert not scene.is_gone()
    scene.runs_for["two"] = windows.SERVER_SETTLED
    scene.restarts.servers_behind = 2
    assert not scene.is_gone()


def test_a_server_that_hung_is_waited_for() -> None:
    """A Java client renews after up to ten times half a minute, once it waited in vain so often."""
    assert windows.SERVER_SETTLED >= 11 * 30


def test_a_server_is_looked_at_before_it_is_taken_to_be_alone(scene: Scene) -> None:
    """What is asked over one connection all goes to one server; not each time, and not for nothing."""
    scene.behind = 2
    scene.runs_for["two"] -= 1
    assert not scene.is_gone()
    assert scene.looks == 0
    scene.runs_for["two"] += 1
    assert not scene.is_gone()
    scene.behind = scene.restarts.servers_behind = 1
    assert scene.is_gone()
    assert scene.looks == 1
    scene.now += windows.TOPOLOGY + 1
    assert scene.is_gone()
    assert scene.looks == 2


def test_a_servers_word_is_proof_without_a_question(scene: Scene) -> None:
    """Also of a server that was started a moment ago: it held what it says that it lost."""
    scene.runs_for.clear()
    scene.table.left([KEY])
    assert scene.is_gone()
    assert scene.asked == 0


def test_servers_are_asked_for_so_many_only(scene: Scene) -> None:
    """In a while; then for those first that were asked for longest ago."""
    keys = [replace(HERE, instance_id=f"{number:04}").key for number in range(MOST_ASKED + 100)]
    assert scene.proofs.find_unlisted(keys).gone == set(keys[:MOST_ASKED])
    assert scene.proofs.find_unlisted(keys).gone == set()
    assert scene.asked == MOST_ASKED
    scene.now += windows.PROOFS_COUNTED
    assert scene.proofs.find_unlisted(keys).gone == {*keys[MOST_ASKED:], *keys[: MOST_ASKED - 100]}
    scene.now += windows.PROOF_KEPT + 1
    assert scene.is_gone()


def test_very_many_are_read_in_portions(scene: Scene) -> None:
    """Which a server far away has read soon after one that is near; not once one of them is silent."""
    keys = [("REVIEW", str(number)) for number in range(2 * CHUNK + 1)]
    assert scene.proofs.find_unlisted(keys).gone == set(keys)
    assert scene.chunks == [CHUNK, CHUNK, 1]
    scene.now += windows.PROOFS_COUNTED
    scene.held["one"], scene.failures["two"] = HERE, RegistryUnreachable("away")
    scene.chunks.clear()
    assert len(scene.proofs.find_unlisted(keys).registered) == len(keys)
    assert scene.chunks == [CHUNK, CHUNK + 1]


def test_a_large_application_keeps_no_other_from_being_asked_for(scene: Scene) -> None:
    """What waits has its turn before what was asked for since; each of them stands on a server."""
    scene.held["two"] = HERE
    many = [("LARGE", str(number)) for number in range(MOST_ASKED)]
    others = [("SMALL", str(number)) for number in range(10)]
    found = [0, 0]
    for _ in range(4):
        for number, keys in enumerate((many, others)):
            found[number] += len(scene.proofs.find_unlisted(keys).registered)
        scene.now += windows.PROOFS_COUNTED
    assert found == [4 * MOST_ASKED - 20, 20]
    assert len(scene.proofs.find_unlisted(others).registered) == 10


@pytest.mark.parametrize("is_back", [True, False])
def test_a_turn_is_not_kept_for_long(scene: Scene, *, is_back: bool) -> None:
    """Who waits may never ask again, or be back."""
    many = [("LARGE", str(number)) for number in range(MOST_ASKED)]
    scene.proofs.find_unlisted(many)
    scene.proofs.find_unlisted([KEY])
    if is_back:
        scene.table.found(HERE)
        scene.proofs.forget()
    scene.now += windows.PROOFS_COUNTED if is_back else windows.PROOF_TURN
    assert scene.proofs.find_unlisted(many).gone == set(many)


def test_a_proof_ends_when_the_instance_is_back_and_with_time(scene: Scene) -> None:
    """So that an old one says nothing of a later gap."""
    scene.runs_for.clear()
    scene.table.left([KEY])
    scene.proofs.forget()
    assert scene.is_gone()
    scene.table.found(HERE)
    scene.proofs.forget()
    scene.table.gone(KEY)
    assert not scene.is_gone()
    scene.table.left([KEY])
    scene.now += windows.PROOF_KEPT + 1
    assert not scene.is_gone()
