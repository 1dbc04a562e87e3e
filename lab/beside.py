"""One piece of work beside another, as Maven packages a server while Go builds others.

Whatever ends one of the two early, an error or a signal, ends what the other waits for.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

_Result = TypeVar("_Result")
_ended: ContextVar[threading.Event | None] = ContextVar("_ended", default=None)


class EndedError(Exception):
    """The work beside this one ended early, so that this one is of no use any more."""


@contextmanager
def beside(work: Callable[[], _Result]) -> Iterator[Future[_Result]]:
    """Do the work in a thread while the block runs, and wait for both; the future has its result.

    Raises the work's error, also out of a :func:`pause` of the block.
    """
    ended = threading.Event()

    def done() -> _Result:
        _ended.set(ended)
        try:
            return work()
        except BaseException:
            ended.set()
            raise

    token = _ended.set(ended)
    try:
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(done)
            try:
                yield future
            except EndedError:
                future.result()
                raise
            except BaseException:
                ended.set()
                raise
            future.result()
    finally:
        _ended.reset(token)


def pause(seconds: float) -> None:
    """Wait; an EndedError as soon as the work beside this one has ended early."""
    ended = _ended.get() or threading.Event()
    if ended.wait(seconds):
        raise EndedError
