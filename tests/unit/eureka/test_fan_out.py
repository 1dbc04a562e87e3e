"""Requests to several servers at once, and how long each is waited for when one hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from unittest import mock

import pytest

from eurekube_provider.core.errors import LeadershipLost, RegistrySilent, RegistryUnreachable
from eurekube_provider.core.model import Instance, Port
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.fan_out import PeerExecutor, seconds_to_wait
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol.peer import Peer
from lab.waiting import wait_until

URLS = tuple(f"http://{name}/eureka" for name in ("one", "two", "three"))
LONG_SECONDS = 30.0


class Cluster:
    """Three servers, some of which hang until the test ends, as servers do whose requests time out."""

    def __init__(self, *, waits_for_all_servers: bool = False) -> None:
        self.peers = Peers(Connection(URLS), waits_for_all_servers=waits_for_all_servers)
        self.hanging: set[str] = set()
        self.asked: list[str] = []
        self.healed = threading.Event()

    def ask(self, peer: Peer) -> str:
        """Ask one server for its URL."""
        self.asked.append(peer.url)
        if peer.url in self.hanging:
            self.healed.wait(LONG_SECONDS)
            raise RegistryUnreachable(f"{peer.url} did not answer", url=peer.url)
        return peer.url

    def each(self, *, asks_avoided: bool = False) -> tuple[set[str], set[str], float]:
        """Ask each server, and return the URLs that answered, those that failed, and the seconds spent."""
        started = time.monotonic()
        answers, failures = self.peers.ask_all(self.ask, asks_avoided=asks_avoided)
        return set(answers), set(failures), time.monotonic() - started


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Yield servers for a caller that does not wait for all of them."""
    made = Cluster()
    yield made
    made.healed.set()
    made.peers.close()


@pytest.mark.parametrize(
    ("answered_after", "expected"),
    [([], None), ([0.01], 0.01 + windows.SERVER_GRACE_SECONDS), ([0.01, 3.0], 6.0), ([3.0, 0.01], 6.0)],
)
def test_how_long_the_others_are_waited_for(answered_after: list[float], expected: float | None) -> None:
    """Other servers are waited for until a grace after the first answer, or twice the slowest answer's time;
    without an answer there is no limit.
    """
    assert seconds_to_wait(answered_after, windows.SERVER_GRACE_SECONDS) == expected


def test_one_that_hangs_is_waited_for_once(cluster: Cluster) -> None:
    """A server that hangs is given up after the grace, and not asked by the next calls."""
    cluster.hanging = {URLS[0]}
    answered, failed, seconds = cluster.each()
    assert (answered, failed) == (set(URLS[1:]), {URLS[0]})
    assert windows.SERVER_GRACE_SECONDS <= seconds < LONG_SECONDS / 3
    cluster.asked.clear()
    answered, failed, seconds = cluster.each()
    assert (answered, failed, set(cluster.asked)) == (set(URLS[1:]), {URLS[0]}, set(URLS[1:]))
    assert seconds < windows.SERVER_GRACE_SECONDS


def test_all_that_wait_for_it_wait_together(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """With more calls than threads, all calls give up a server that hangs after the same grace."""
    monkeypatch.setattr(windows, "SERVER_GRACE_SECONDS", 2.0)
    cluster.hanging = {URLS[2]}
    started = time.monotonic()
    found: list[tuple[set[str], set[str], float]] = []
    threads = [threading.Thread(target=lambda: found.append(cluster.each())) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(answered, failed) for answered, failed, _ in found] == [(set(URLS[:2]), {URLS[2]})] * 40
    assert time.monotonic() - started < 2 * 2.0
    cluster.asked.clear()
    cluster.healed.set()
    cluster.hanging.clear()
    wait_until(lambda: URLS[2] in cluster.each(asks_avoided=True)[0], "its return", LONG_SECONDS)
    assert cluster.asked.count(URLS[2]) < 40  # what was given up before it was put is never put


def test_nobody_else_answers(cluster: Cluster) -> None:
    """When no server has answered, all are waited for, even if one of them failed at once."""
    cluster.hanging = set(URLS[:2])
    real = cluster.ask

    def ask(peer: Peer) -> str:
        if peer.url == URLS[2]:
            raise RegistryUnreachable("refused", url=peer.url)
        return real(peer)

    cluster.ask = ask  # type: ignore[method-assign]
    threading.Timer(3 * windows.SERVER_GRACE_SECONDS, cluster.healed.set).start()
    answered, failed, seconds = cluster.each()
    assert (answered, failed) == (set(), set(URLS))
    assert seconds >= 2 * windows.SERVER_GRACE_SECONDS
    with pytest.raises(RegistryUnreachable):
        cluster.peers.ask_all_or_raise(cluster.ask)


def test_one_that_answers_again_is_asked_again(cluster: Cluster) -> None:
    """An avoided server is asked again once a call that includes avoided servers got its answer."""
    cluster.hanging = {URLS[1]}
    cluster.each()
    cluster.hanging.clear()
    assert cluster.each()[1] == {URLS[1]}
    assert cluster.each(asks_avoided=True)[1] == set()
    assert cluster.each()[1] == set()


def test_who_cannot_tell_later_waits_for_all() -> None:
    """With ``waits_for_all_servers`` every server is waited for, as a process that ends soon must know all
    outcomes.
    """
    cluster = Cluster(waits_for_all_servers=True)
    cluster.hanging = {URLS[0]}
    threading.Timer(3 * windows.SERVER_GRACE_SECONDS, cluster.healed.set).start()
    assert cluster.each()[2] >= 2 * windows.SERVER_GRACE_SECONDS
    assert set(cluster.asked) == set(URLS)
    cluster.asked.clear()
    assert cluster.each()[:2] == (set(URLS[1:]), {URLS[0]})
    assert set(cluster.asked) == set(URLS)
    cluster.peers.close()


def test_a_long_silence_is_not_waited_for_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``waits_for_all_servers`` a server that answered none of its requests for long is left out for a
    while, since each of many questions would wait for its time-out; one that answered in between is asked.
    """
    clock = mock.Mock(monotonic=mock.Mock(return_value=1000.0))
    for module in ("avoided_peers", "peers"):
        monkeypatch.setattr(f"eurekube_provider.eureka.{module}.time", clock)
    cluster = Cluster(waits_for_all_servers=True)
    avoided, (answered, silent, _) = cluster.peers.avoided, cluster.peers.peers
    for peer in (answered, silent):
        avoided.avoid(peer, "does not answer", RegistrySilent("no answer", url=peer.url))
    clock.monotonic.return_value += windows.AVOID_SERVER_SECONDS
    avoided.stop_avoiding(answered)
    for peer in (answered, silent):
        avoided.avoid(peer, "does not answer", RegistrySilent("no answer", url=peer.url))
    assert cluster.each()[:2] == ({URLS[0], URLS[2]}, {URLS[1]})
    assert URLS[1] not in cluster.asked
    clock.monotonic.return_value += windows.AVOID_SERVER_SECONDS
    assert cluster.each()[:2] == (set(URLS), set())
    cluster.peers.close()


@pytest.mark.parametrize("waits_for_all_servers", [False, True])
def test_a_request_after_the_end_gets_an_answer(waits_for_all_servers: bool) -> None:
    """A call after ``close`` fails at once for every server, and does not wait."""
    cluster = Cluster(waits_for_all_servers=waits_for_all_servers)
    cluster.peers.close()
    assert cluster.each()[:2] == (set(), set(URLS))
    assert cluster.asked == []


def test_what_must_not_be_written_is_reported(cluster: Cluster) -> None:
    """A LeadershipLost for one server is raised to the caller after the other servers were asked."""

    def ask(peer: Peer) -> str:
        if peer.url == URLS[0]:
            raise LeadershipLost("not sent")
        return cluster.ask(peer)

    with pytest.raises(LeadershipLost):
        cluster.peers.ask_all(ask)
    assert set(cluster.asked) == set(URLS[1:])


def test_a_question_within_a_question(cluster: Cluster) -> None:
    """A call made within another call is answered, although all threads of a server may be in use."""
    answers, failures = cluster.peers.ask_all(lambda _: cluster.peers.ask_all(cluster.ask))
    assert failures == {}
    assert all(set(found) == set(URLS) for found, _ in answers.values())


class Quick:
    """Peers that record each read with its URL, and True if its time-out was short."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: Callable[[str, bool], bool]) -> None:
        monkeypatch.setattr(windows, "SHORT_TIMEOUT_SECONDS", 0.05)
        self.asked: list[tuple[str, bool]] = []
        self.peers = Peers(Connection(URLS), waits_for_all_servers=False)

        def read(peer: Peer, *_: str) -> Instance:
            is_short = peer.timeout_seconds is not None
            self.asked.append((peer.url, is_short))
            if not answer(peer.url, is_short):
                time.sleep(peer.timeout_seconds or 0.0)
                raise RegistryUnreachable("did not answer", url=peer.url)
            return Instance("A", "a", "a", "192.0.2.1", Port(1))

        monkeypatch.setattr(Peer, "read", read)
        monkeypatch.setattr(Peer, "deregister", lambda *_: True)


def test_where_another_one_can_be_asked_none_is_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the first server hangs, the second one is asked after a short time-out, and first from then on."""
    quick = Quick(monkeypatch, lambda url, _: url != URLS[0])
    quick.peers.read("A", "a")
    quick.peers.read("A", "a")
    assert quick.asked == [(URLS[0], True), (URLS[1], True), (URLS[1], True)]


def test_where_all_are_slow_one_is_given_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """When no server answers within the short time-out, the first one is asked again with the full one."""
    quick = Quick(monkeypatch, lambda _, is_short: not is_short)
    quick.peers.read("A", "a")
    assert quick.asked == [*((url, True) for url in URLS), (URLS[0], False)]


def test_an_executor_makes_threads_as_it_needs_them() -> None:
    """An executor starts threads as work requires, at most its maximum, and none after ``close``."""
    executor = PeerExecutor("test", most=3)
    running: list[str] = []
    gate = threading.Event()

    def work() -> None:
        running.append(threading.current_thread().name)
        gate.wait(LONG_SECONDS)

    for _ in range(5):
        executor.submit(work)
    wait_until(lambda: len(running) == 3, "three at once", LONG_SECONDS)
    assert len(set(running)) == 3
    gate.set()
    wait_until(lambda: len(running) == 5, "the rest", LONG_SECONDS)
    assert len(set(running)) == 3
    executor.close()
    executor.submit(work)
    wait_until(
        lambda: not any(thread.name.startswith("test-") for thread in threading.enumerate()),
        "the threads' end",
        LONG_SECONDS,
    )
    assert len(running) == 5
