"""Two pieces of work at once, as when Maven packages a server while Go builds other programs.

If one of the two ends early, by an error or a signal, the other one's wait ends, too.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

_Result = TypeVar("_Result")
_early_end_event: ContextVar[threading.Event | None] = ContextVar("_early_end_event", default=None)


class OtherWorkEndedError(Exception):
    """Raised where the other piece of work ended early, so that this one is of no use any more."""


@contextmanager
def run_in_background(work: Callable[[], _Result]) -> Iterator[Future[_Result]]:
    """Do the work in a thread while the block runs, and wait for both; the future has the work's result.

    Raises the work's error, also out of a :func:`pause_unless_other_work_ended` of the block.
    """
    ended = threading.Event()

    def work_and_report_failure() -> _Result:
        _early_end_event.set(ended)
        try:
            return work()
        except BaseException:
            ended.set()
            raise

    token = _early_end_event.set(ended)
    try:
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(work_and_report_failure)
            try:
                yield future
            except OtherWorkEndedError:
                future.result()
                raise
            except BaseException:
                ended.set()
                raise
            future.result()
    finally:
        _early_end_event.reset(token)


def pause_unless_other_work_ended(seconds: float) -> None:
    """Wait; raise OtherWorkEndedError as soon as the work beside this one has ended early."""
    ended = _early_end_event.get() or threading.Event()
    if ended.wait(seconds):
        raise OtherWorkEndedError
