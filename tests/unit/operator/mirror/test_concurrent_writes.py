"""Concurrent writes of a mirror: which are begun, how many at once, and what a failure ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import pytest

from eurekube_provider.operator.mirror.concurrent_writes import Write, run_writes

LONGEST_SECONDS = 10.0


@pytest.mark.parametrize("writers", [1, 2, 8])
def test_all_are_carried_out_once(writers: int) -> None:
    """With any number of writer threads ``run_writes`` does each write once, and returns when all have
    ended.
    """
    done: list[int] = []
    run_writes((partial(done.append, number) for number in range(50)), writers)
    assert sorted(done) == list(range(50))


def test_one_writer_keeps_the_order_and_its_thread() -> None:
    """With one writer the writes run in order on the caller's thread."""
    done: list[tuple[int, threading.Thread]] = []

    def write(number: int) -> None:
        done.append((number, threading.current_thread()))

    run_writes((partial(write, number) for number in range(9)), 1)
    assert done == [(number, threading.current_thread()) for number in range(9)]


def test_so_many_are_under_way_at_once() -> None:
    """With four writers four writes run at once, never more: each waits here for three others."""
    together = threading.Barrier(4)
    lock = threading.Lock()
    at_once = [0, 0]

    def write() -> None:
        with lock:
            at_once[0] += 1
            at_once[1] = max(at_once)
        together.wait(LONGEST_SECONDS)
        with lock:
            at_once[0] -= 1

    run_writes((write for _ in range(40)), 4)
    assert at_once == [0, 4]


def test_nothing_to_write_takes_no_thread() -> None:
    """After most readings of Eureka there is nothing to write, and ``run_writes`` starts no thread."""
    deciders: list[threading.Thread] = []

    def writes() -> Iterator[Write]:
        deciders.extend([threading.current_thread()] * 3)
        yield from ()

    before = threading.active_count()
    run_writes(writes())
    assert deciders == [threading.current_thread()] * 3
    assert threading.active_count() == before


def test_what_to_write_is_decided_by_one_at_a_time() -> None:
    """Only one thread at a time takes the next write from the generator, which may ask Eureka and hold
    locks.
    """
    lock = threading.Lock()
    begun = threading.Barrier(4)

    def writes() -> Iterator[Write]:
        for _ in range(40):
            assert lock.acquire(blocking=False)
            threading.Event().wait(0.001)  # so that others come for the next one
            lock.release()
            yield partial(begun.wait, LONGEST_SECONDS)

    run_writes(writes(), 4)
    assert begun.n_waiting == 0


@pytest.mark.parametrize("is_first_to_fail", [False, True], ids=["helper fails", "caller fails"])
def test_none_is_begun_after_a_failure(*, is_first_to_fail: bool) -> None:
    """Writes under way end before the failure is reported, whichever thread failed: the caller's takes the
    first write.
    """
    lasting, failed, ended = threading.Event(), threading.Event(), threading.Event()
    begun: list[str] = []

    def fails() -> None:
        begun.append("fails")
        assert lasting.wait(LONGEST_SECONDS)
        failed.set()
        raise ValueError("the first")

    def lasts() -> None:
        begun.append("lasts")
        lasting.set()
        assert failed.wait(LONGEST_SECONDS)
        threading.Event().wait(0.05)  # so that who does not wait for it is found out
        ended.set()

    def writes() -> Iterator[Write]:
        yield from (fails, lasts) if is_first_to_fail else (lasts, fails)
        assert failed.wait(LONGEST_SECONDS)
        for number in range(100):
            yield partial(begun.append, str(number))

    with pytest.raises(ValueError, match="the first"):
        run_writes(writes(), 2)
    assert ended.is_set()
    assert begun[:2] in (["lasts", "fails"], ["fails", "lasts"])
    # One that was decided when the failure came may be begun, and no other.
    assert len(begun) <= 3


def test_who_cannot_decide_ends_it_as_well() -> None:
    """When the generator of writes raises, the earlier writes end and its error is raised."""
    done: list[int] = []

    def writes() -> Iterator[Write]:
        yield partial(done.append, 1)
        raise KeyError("no idea")

    with pytest.raises(KeyError, match="no idea"):
        run_writes(writes())
    assert done == [1]
