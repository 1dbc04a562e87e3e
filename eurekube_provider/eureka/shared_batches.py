"""Batches to one server, shared by the threads that write to it.

Items that come while a request is under way are sent together in the next one, and the server handles them in
the order in which they came. So a removal is read in one request and sent in the next, and both carry other
threads' items; nobody waits longer than for the request that is under way.

Items are made when their request is sent: what waited for a frozen server may be undone by then.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eurekube_provider.core.errors import RegistryRejected
from eurekube_provider.eureka.protocol.batch import MOST_ITEMS_PER_BATCH, ItemResponse
from eurekube_provider.eureka.protocol.peer import Peer

MakeItems = Callable[[], Sequence[bytes]]
"""Makes the items of a batch, when the batch is sent."""

MOST_SHARED_ITEMS = 50
"""The most items that are sent together with others; more get a request of their own at once, which then
costs little for each item.
"""


@dataclass(slots=True, eq=False)
class _ThreadItems:
    """The items of one thread, and the answers to them.

    :ivar most_items: the most items that ``make_items`` returns.
    :ivar wake_up: set when the items were answered, or when the thread must send the waiting ones.
    :ivar error: raised by the request that had the items; None where it was answered.
    :ivar is_shared: True if that request had other threads' items, too.
    :ivar is_answered: True once that request has ended, be it with an error.
    """

    make_items: MakeItems
    most_items: int
    wake_up: threading.Event
    answers: Sequence[ItemResponse] = ()
    error: BaseException | None = None
    is_shared: bool = False
    is_answered: bool = False


class SharedBatches:
    """The batches of one server, for any number of threads."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._lock = threading.Lock()
        self._is_busy = False
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
            self.waiting.append(mine)
            waits, self._is_busy = self._is_busy, True
        if waits:
            mine.wake_up.wait()
        if not mine.is_answered:
            self._send_waiting()
        if isinstance(mine.error, RegistryRejected) and mine.is_shared:
            return self._send(make_items())  # what the server refuses may be another one's
        if mine.error is not None:
            raise mine.error
        return mine.answers

    def _send(self, items: Sequence[bytes]) -> Sequence[ItemResponse]:
        return self._peer.send_batch(items) if items else ()

    def _send_waiting(self) -> None:
        """Send the waiting items in one request, and have the first thread that came meanwhile send the
        next.
        """
        with self._lock:
            parts, room = list[_ThreadItems](), MOST_ITEMS_PER_BATCH
            while self.waiting and self.waiting[0].most_items <= room:
                parts.append(self.waiting.popleft())
                room -= parts[-1].most_items
        try:
            made = [part.make_items() for part in parts]
            answers = iter(self._send([item for items in made for item in items]))
            for part, items in zip(parts, made, strict=True):
                part.answers = [next(answers) for _ in items]
        except BaseException as error:  # noqa: BLE001 - raised again for each of them, on its own thread
            for part in parts:
                part.error = error
        with self._lock:
            following = self.waiting[0] if self.waiting else None
            self._is_busy = following is not None
        if following is not None:
            following.wake_up.set()
        for part in parts:
            part.is_answered, part.is_shared = True, len(parts) > 1
            part.wake_up.set()
