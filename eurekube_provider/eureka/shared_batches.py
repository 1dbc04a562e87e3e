"""Batches to one server, shared by the threads that write to it.

Items that come while :data:`MOST_REQUESTS_UNDER_WAY` requests are under way are sent together in the next
one, in the order in which they came; nobody waits longer than for a request that is under way, and not long
for a slow one.

Items are made when their request is sent: what waited for a frozen server may be undone by then.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eurekube_provider.core.errors import LeadershipLost, RegistryRejected
from eurekube_provider.eureka.protocol.batch import MOST_ITEMS_PER_BATCH, ItemResponse
from eurekube_provider.eureka.protocol.peer import Peer

MakeItems = Callable[[], Sequence[bytes]]
"""Makes the items of a batch, when the batch is sent."""

MOST_REQUESTS_UNDER_WAY = 2
"""The most requests with shared items that are under way at once: with one, a change that comes alone often
waits for the answer to another one.
"""

LONGEST_WAIT_SECONDS = 0.05
"""The longest time, in seconds, that items wait for requests that are under way; then they go with one more.

Of several servers a distant one would else count as silent: it is waited for half a second at most once
another one has answered (:data:`.windows.SERVER_GRACE_SECONDS`), and the wait is a part of that.
"""

MOST_SHARED_ITEMS = 50
"""The most items that are sent together with others; more get a request of their own at once, which then
costs little for each item.
"""


@dataclass(slots=True, eq=False)
class _ThreadItems:
    """The items of one thread, and the answers to them.

    :ivar most_items: the most items that ``make_items`` returns.
    :ivar wake_up: set when the items were answered, or when the thread must send ``together``.
    :ivar together: the items that this thread sends in one request, its own first; empty where another one
        sends them.
    :ivar error: raised by the request that had the items; None where it was answered.
    :ivar is_shared: True if that request had other threads' items, too.
    """

    make_items: MakeItems
    most_items: int
    wake_up: threading.Event
    together: Sequence[_ThreadItems] = ()
    answers: Sequence[ItemResponse] = ()
    error: BaseException | None = None
    is_shared: bool = False


class SharedBatches:
    """The batches of one server, for any number of threads."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._lock = threading.Lock()
        self._under_way = 0
        self.waiting: deque[_ThreadItems] = deque()

    def send(self, make_items: MakeItems, most_items: int) -> Sequence[ItemResponse]:
        """Have the server carry out items, perhaps together with others'; see :meth:`.Peer.send_batch`.

        :param make_items: called once for each time that the items are sent, perhaps on another thread.
        :param most_items: the most items that it returns.
        :returns: an answer for each item that ``make_items`` returned last, in their order.
        """
        if most_items > MOST_SHARED_ITEMS:
            return self._send(make_items())
        mine = _ThreadItems(make_items, most_items, threading.Event())
        with self._lock:
            if self._under_way < MOST_REQUESTS_UNDER_WAY:
                self._under_way += 1
                mine.together = [mine]
            else:
                self.waiting.append(mine)
        while not mine.together and not mine.wake_up.wait(LONGEST_WAIT_SECONDS):
            with self._lock:
                if mine in self.waiting:
                    self.waiting.remove(mine)
                    self._under_way += 1
                    mine.together = [mine, *self._take_waiting(MOST_ITEMS_PER_BATCH - most_items)]
        if mine.together:
            self._send_together(mine.together)
        if isinstance(mine.error, RegistryRejected | LeadershipLost) and mine.is_shared:
            return self._send(make_items())  # what was refused may be another thread's
        if mine.error is not None:
            raise mine.error
        return mine.answers

    def _send(self, items: Sequence[bytes]) -> Sequence[ItemResponse]:
        return self._peer.send_batch(items) if items else ()

    def _send_together(self, parts: Sequence[_ThreadItems]) -> None:
        """Send items of several threads in one request, and have the first thread that waits then send the
        next one.
        """
        made = list[tuple[_ThreadItems, Sequence[bytes]]]()
        for part in parts:
            try:
                made.append((part, part.make_items()))
            except BaseException as error:  # noqa: BLE001 - raised again on its own thread
                part.error = error
        try:
            answers = iter(self._send([item for _, items in made for item in items]))
            for part, items in made:
                part.answers = [next(answers) for _ in items]
        except BaseException as error:  # noqa: BLE001 - raised again for each of them, on its own thread
            for part, _ in made:
                part.error = error
        with self._lock:
            following = self._take_waiting()
            self._under_way -= not following
        if following:
            following[0].together = following
            following[0].wake_up.set()
        for part in parts:
            part.is_shared = len(parts) > 1
            part.wake_up.set()

    def _take_waiting(self, room: int = MOST_ITEMS_PER_BATCH) -> list[_ThreadItems]:
        """Take waiting items, the first first, at most ``room`` of them; the lock must be held."""
        taken = list[_ThreadItems]()
        while self.waiting and self.waiting[0].most_items <= room:
            taken.append(self.waiting.popleft())
            room -= taken[-1].most_items
        return taken
