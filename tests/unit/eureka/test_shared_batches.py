"""Batches of several threads to one server: sent at once or together, and each thread's answers."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import cast

import pytest

from eurekube_provider.core.errors import LeadershipLost, RegistryRejected, RegistryUnreachable
from eurekube_provider.eureka import shared_batches
from eurekube_provider.eureka.connection import Connection
from eurekube_provider.eureka.peers import Peers
from eurekube_provider.eureka.protocol.batch import MOST_ITEMS_PER_BATCH, ItemResponse
from eurekube_provider.eureka.protocol.peer import Peer
from eurekube_provider.eureka.shared_batches import (
    MOST_REQUESTS_UNDER_WAY,
    MOST_SHARED_ITEMS,
    MakeItems,
    SharedBatches,
)
from lab.waiting import wait_until

SECONDS = 30.0
WRITES = -2
"""An item that only the leader may send."""


class Server:
    """A server that records requests and answers each item with its number once the gate is open."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.got: list[list[int]] = []
        self.error: BaseException | None = None
        self.batches = SharedBatches(cast("Peer", self))
        self._pool = ThreadPoolExecutor(32)

    def send(self, *numbers: int) -> Future[Sequence[ItemResponse]]:
        """Send items on a thread of its own, and return once they are sent or wait."""
        return self.submit(lambda: [b"%d" % number for number in numbers], len(numbers))

    def submit(self, make_items: MakeItems, most_items: int) -> Future[Sequence[ItemResponse]]:
        """Send what ``make_items`` returns on a thread of its own, and return once it is sent or waits."""
        sent = len(self.got) + len(self.batches.waiting)
        future = self._pool.submit(self.batches.send, make_items, most_items)
        wait_until(lambda: len(self.got) + len(self.batches.waiting) > sent, "it sent", SECONDS)
        return future

    def send_batch(self, items: Sequence[bytes]) -> list[ItemResponse]:
        """Stand in for :meth:`.Peer.send_batch`."""
        self.got.append([int(item) for item in items])
        self.gate.wait(SECONDS)
        if self.error is not None:
            raise self.error
        if b"%d" % WRITES in items:
            raise LeadershipLost("not sent")
        if b"-1" in items:
            raise RegistryRejected("a field that it does not know")
        return [ItemResponse(int(item)) for item in items]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """Return a server without requests so far, which is sent one at a time."""
    monkeypatch.setattr(shared_batches, "MOST_REQUESTS_UNDER_WAY", 1)
    monkeypatch.setattr(shared_batches, "LONGEST_WAIT_SECONDS", SECONDS)
    return Server()


def codes(future: Future[Sequence[ItemResponse]]) -> list[int]:
    """Return the status codes that a sender got."""
    return [answer.status_code for answer in future.result(SECONDS)]


def test_what_comes_meanwhile_goes_together_in_its_order(server: Server) -> None:
    """Items that come while a request is under way go together in the next one; each thread gets its own
    answers.
    """
    sent = [server.send(1, 2), server.send(3), server.send(4, 5), server.send(6)]
    server.gate.set()
    assert [codes(one) for one in sent] == [[1, 2], [3], [4, 5], [6]]
    assert server.got == [[1, 2], [3, 4, 5, 6]]


def test_one_after_the_other_goes_at_once(server: Server) -> None:
    """Items wait only while another request is under way."""
    server.gate.set()
    assert [codes(server.send(number)) for number in range(5)] == [[number] for number in range(5)]
    assert server.got == [[number] for number in range(5)]


def test_a_slow_server_gets_one_more_request(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Items that have waited for long go together in one more request, beside those that are under way."""
    monkeypatch.setattr(shared_batches, "LONGEST_WAIT_SECONDS", 0.3)
    sent = [server.send(1), server.send(2), server.send(3)]
    wait_until(lambda: len(server.got) == 2, "one more request", SECONDS)
    server.gate.set()
    assert [codes(one) for one in sent] == [[1], [2], [3]]
    assert [sorted(one) for one in server.got] == [[1], [2, 3]]  # either thread may be the first to wake up


def test_items_that_cannot_be_made_fail_alone(server: Server) -> None:
    """An error in one thread's items is raised in that thread; the others' are sent."""

    def fail() -> list[bytes]:
        raise ValueError("no items")

    sent = [server.send(1), server.submit(fail, 1), server.send(2)]
    server.gate.set()
    assert isinstance(sent[1].exception(SECONDS), ValueError)
    assert (codes(sent[0]), codes(sent[2])) == ([1], [2])


def test_some_requests_are_under_way_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Items wait only while as many requests are under way as may be; each that ends makes room for one."""
    monkeypatch.setattr(shared_batches, "LONGEST_WAIT_SECONDS", SECONDS)
    server = Server()
    for _ in range(3):
        server.gate.clear()
        server.got.clear()
        first = [server.send(number) for number in range(MOST_REQUESTS_UNDER_WAY)]
        wait_until(lambda: len(server.got) == MOST_REQUESTS_UNDER_WAY, "all under way", SECONDS)
        waiting = [server.send(number) for number in (7, 8, 9)]
        server.gate.set()
        assert [codes(one) for one in (*first, *waiting)] == [
            *([number] for number in range(MOST_REQUESTS_UNDER_WAY)),
            [7],
            [8],
            [9],
        ]
        assert server.got[MOST_REQUESTS_UNDER_WAY:] == [[7, 8, 9]]


def test_who_has_much_goes_at_once(server: Server) -> None:
    """A large batch is sent at once beside the one under way."""
    first, large = server.send(1), server.send(*range(MOST_SHARED_ITEMS + 1))
    assert len(server.got) == 2
    server.gate.set()
    assert (codes(first), codes(large)) == ([1], list(range(MOST_SHARED_ITEMS + 1)))


def test_a_request_has_no_more_items_than_a_batch(server: Server) -> None:
    """Waiting items beyond the size of a batch go with the next request."""
    sent = [server.send(1), *(server.send(*range(MOST_SHARED_ITEMS)) for _ in range(7))]
    server.gate.set()
    assert [len(codes(one)) for one in sent] == [1, *[MOST_SHARED_ITEMS] * 7]
    assert [len(request) for request in server.got] == [1, MOST_ITEMS_PER_BATCH, 2 * MOST_SHARED_ITEMS]


def test_what_ends_a_request_is_raised_for_each_and_ends_no_other(server: Server) -> None:
    """An error of a request is raised in each thread that took part; the next request is sent."""
    server.error = RegistryUnreachable("away")
    sent = [server.send(number) for number in range(3)]
    server.gate.set()
    assert [one.exception(SECONDS) for one in sent] == [server.error] * 3
    server.error = None
    assert codes(server.send(7)) == [7]


def test_who_may_not_write_ends_no_others_read(server: Server) -> None:
    """A lost leadership is raised in threads that write; a read that shared their request is sent again."""
    sent = [server.send(1), server.send(WRITES), server.send(2)]
    server.gate.set()
    assert (codes(sent[0]), codes(sent[2])) == ([1], [2])
    assert isinstance(sent[1].exception(SECONDS), LeadershipLost)


def test_what_a_server_refuses_fails_alone(server: Server) -> None:
    """After a refused request each thread's items are sent alone, so that only the refused item fails."""
    sent = [server.send(1), server.send(2), server.send(-1), server.send(3)]
    server.gate.set()
    assert [codes(sent[number]) for number in (0, 1, 3)] == [[1], [2], [3]]
    assert isinstance(sent[2].exception(SECONDS), RegistryRejected)
    assert server.got[:2] == [[1], [2, -1, 3]]
    assert sorted(server.got[2:]) == [[-1], [2], [3]]


def test_items_are_made_when_they_are_sent(server: Server) -> None:
    """Items that are no longer due when their request is sent are left out; without any nothing is sent."""
    first = server.send(1)
    due = [2, 3]
    waiting = [
        server.submit(lambda: [b"%d" % number for number in due], 2),
        server.submit(list, 1),
        server.submit(lambda: [b"4"], 1),
    ]
    due.remove(2)
    server.gate.set()
    assert [codes(one) for one in (first, *waiting)] == [[1], [3], [], [4]]
    assert server.got == [[1], [3, 4]]
    assert [list(server.batches.send(list, most)) for most in (1, MOST_SHARED_ITEMS + 1)] == [[], []]
    assert server.got == [[1], [3, 4]]


def test_each_server_has_requests_of_its_own() -> None:
    """A server that does not answer holds up no request to another one."""
    peers = Peers(Connection(("http://one:1/eureka", "http://two:1/eureka")))
    hangs, answers = Server(), Server()
    answers.gate.set()
    for peer, one in zip(peers.peers, (hangs, answers), strict=True):
        peer.send_batch = one.send_batch  # type: ignore[method-assign]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(peers.send_batch, peers.peers[0], lambda: [b"1"], 1)
        assert [one.status_code for one in peers.send_batch(peers.peers[1], lambda: [b"2"], 1)] == [2]
        assert answers.got == [[2]]
        hangs.gate.set()
        assert codes(waiting) == [1]
    peers.close()
