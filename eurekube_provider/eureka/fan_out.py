"""One question to several servers at once, and how long each server is waited for.

Each server has threads of its own: one that hangs blocks no thread of another one. They are daemons, since a
request that is never answered must not keep a process from ending.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import Generic, TypeVar

from eurekube_provider.core.errors import RegistryError, RegistryUnreachable
from eurekube_provider.eureka import windows
from eurekube_provider.eureka.protocol.peer import Peer

T = TypeVar("T")

_log = logging.getLogger(__name__)

MOST_THREADS_PER_SERVER = 16
"""The most threads for one server: as many as pooled connections."""

_thread_flags = threading.local()


def is_executor_thread() -> bool:
    """Return whether an executor runs the calling thread, which must not wait for others of its work."""
    return getattr(_thread_flags, "yes", False)


class PeerExecutor:
    """An executor for one server: work in the order of submission, on threads started when needed."""

    def __init__(self, name: str, most: int = MOST_THREADS_PER_SERVER) -> None:
        self._name, self._most = name, most
        self._work: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._threads = self._idle = 0
        self._closed = False

    def submit(self, work: Callable[[], None]) -> bool:
        """Queue ``work``, which must not raise; return False, and queue nothing, after :meth:`close`."""
        with self._changed:
            if self._closed:
                return False
            self._work.append(work)
            if self._idle >= len(self._work):
                self._changed.notify()
                return True
            if self._threads == self._most:
                return True
            self._threads += 1
            number = self._threads
        threading.Thread(target=self._run, name=f"{self._name}-{number}", daemon=True).start()
        return True

    def close(self) -> None:
        """Accept no more work; queued work is still done, since somebody may wait for it."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _run(self) -> None:
        _thread_flags.yes = True
        while (work := self._wait_for_work()) is not None:
            try:
                work()
            except Exception:  # noqa: BLE001 - the thread must go on
                _log.exception(
                    "failed to ask a Eureka server: unexpected error, not asking again, going on with the "
                    "next request"
                )

    def _wait_for_work(self) -> Callable[[], None] | None:
        with self._changed:
            while not self._work:
                if self._closed:
                    return None
                self._idle += 1
                self._changed.wait()
                self._idle -= 1
            return self._work.popleft()


def seconds_to_wait(answer_seconds: Collection[float], grace_seconds: float) -> float | None:
    """Return how many seconds after the question to stop waiting; None while no server has answered.

    :param answer_seconds: the seconds that each server took that has answered.
    """
    if not answer_seconds:
        return None
    slowest = max(answer_seconds)
    return slowest + max(grace_seconds, slowest)


class FanOut(Generic[T]):
    """A question that is put to each server on a thread of that server's own.

    :ivar answers: by URL; complete only after :meth:`wait_and_return_unanswered`.
    :ivar failures: by URL of each server that gave no answer.
    """

    def __init__(self, ask: Callable[[Peer], T]) -> None:
        self.answers: dict[str, T] = {}
        self.failures: dict[str, RegistryError] = {}
        self._ask = ask
        self._started = time.monotonic()
        self._ended = threading.Condition()
        self._answered_after: dict[str, float] = {}
        self._errors: dict[str, BaseException] = {}
        self._is_over = False

    def ask(self, peer: Peer) -> RegistryError | bool:
        """Ask one server, wait for it, and store the answer or the error.

        :returns: True if the server answered in time, False if it did not, or the error.
        """
        with self._ended:
            if self._is_over:
                return False
        try:
            answer = self._ask(peer)
        except RegistryError as error:
            with self._ended:
                if not self._is_over:
                    self.failures[peer.url] = error
                self._ended.notify_all()
            return error
        except BaseException as error:  # noqa: BLE001 - raised again for who asked
            with self._ended:
                self._errors[peer.url] = error
                self._ended.notify_all()
            return False
        with self._ended:
            in_time = not self._is_over
            if in_time:
                self.answers[peer.url] = answer
                self._answered_after[peer.url] = time.monotonic() - self._started
                self._ended.notify_all()
        return in_time

    def note_not_asked(self, peer: Peer) -> None:
        """Count a server as failed, since its executor is closed and asks it no more."""
        with self._ended:
            self.failures[peer.url] = RegistryUnreachable(f"{peer.url} is not asked any more", url=peer.url)

    def wait_and_return_unanswered(
        self,
        peers: Collection[Peer],
        avoided: Collection[Peer],
        *,
        for_all: bool,
        grace_seconds: float | None = None,
    ) -> list[Peer]:
        """Wait for the answers; later answers are ignored.

        :param peers: servers to wait for, for as long as :func:`seconds_to_wait` says.
        :param avoided: servers to wait for with less patience.
        :param for_all: True to wait for all, however long it takes.
        :param grace_seconds: in place of :data:`.windows.SERVER_GRACE_SECONDS`.
        :returns: those of ``peers`` that have not answered.
        """
        with self._ended:
            grace = windows.SERVER_GRACE_SECONDS if grace_seconds is None else grace_seconds
            self._wait_for(peers, None if for_all else grace)
            self._wait_for(avoided, None if for_all else windows.SHORT_SERVER_GRACE_SECONDS)
            self._is_over = True
            for error in self._errors.values():
                raise error
            return [peer for peer in peers if not self._has_answered_or_failed(peer)]

    def _wait_for(self, peers: Collection[Peer], grace_seconds: float | None) -> None:
        while not all(map(self._has_answered_or_failed, peers)):
            seconds = None
            if grace_seconds is not None:
                seconds = seconds_to_wait(self._answered_after.values(), grace_seconds)
            left = None if seconds is None else seconds - (time.monotonic() - self._started)
            if left is not None and left <= 0:
                return
            self._ended.wait(left)

    def _has_answered_or_failed(self, peer: Peer) -> bool:
        return peer.url in self.answers or peer.url in self.failures or peer.url in self._errors
