"""The work queue: equal keys merge, and none is reconciled twice at once."""

from __future__ import annotations

import threading
import time

import pytest

from eurekube_provider.operator.queue import FIRST_RETRY_DELAY_SECONDS, LONGEST_RETRY_DELAY_SECONDS, WorkQueue
from eurekube_provider.runtime.backoff import backoff_seconds


def test_equal_keys_merge() -> None:
    """A waiting key that is added again is handed out once, at its first place."""
    queue: WorkQueue[str] = WorkQueue()
    for key in ("a", "b", "a"):
        queue.add(key)
    assert [queue.get(), queue.get()] == ["a", "b"]
    queue.add("c")
    assert queue.get() == "c"


def test_a_key_in_work_comes_once_more_afterwards() -> None:
    """A key that is added while a worker has it is handed out once again after ``done``."""
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    assert queue.get() == "a"
    queue.add("a")
    queue.add("a")
    queue.add("b")
    assert queue.get() == "b"
    queue.done("b")
    queue.done("a")
    assert queue.get() == "a"
    queue.done("a")
    queue.add("c")
    assert queue.get() == "c"


def test_no_key_is_worked_on_twice_at_once() -> None:
    """Only one worker at a time has a key, whatever the number of workers and additions."""
    queue: WorkQueue[int] = WorkQueue()
    working: set[int] = set()
    seen: dict[int, int] = {}
    lock = threading.Lock()
    clashes: list[int] = []

    def work() -> None:
        while (key := queue.get()) is not None:
            with lock:
                if key in working:
                    clashes.append(key)
                working.add(key)
                seen[key] = seen.get(key, 0) + 1
            time.sleep(0)
            with lock:
                working.discard(key)
            queue.done(key)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for _ in range(200):
        for key in range(5):
            queue.add(key)
    queue.add(99)
    deadline = time.monotonic() + 5
    while 99 not in seen and time.monotonic() < deadline:
        time.sleep(0.001)
    queue.close()
    for worker in workers:
        worker.join()
    assert clashes == []
    assert set(seen) == {0, 1, 2, 3, 4, 99}


def test_later_is_later() -> None:
    """A key that is added with a delay comes after it, and other keys come earlier."""
    queue: WorkQueue[str] = WorkQueue()
    started = time.monotonic()
    queue.add_after("later", 0.05)
    queue.add("now")
    assert queue.get() == "now"
    assert queue.get() == "later"
    assert time.monotonic() - started >= 0.05


def test_of_several_later_looks_the_earliest_is_kept() -> None:
    """Of several delays of a key the shortest counts; if each counted, the key would be reconciled ever
    more often.
    """
    queue: WorkQueue[str] = WorkQueue()
    for delay in (600.0, 0.05, 900.0):
        queue.add_after("a", delay)
    queue.add_after("end", 0.3)
    started = time.monotonic()
    assert queue.get() == "a"
    assert time.monotonic() - started >= 0.05
    queue.done("a")
    assert queue.get() == "end"
    queue.add_after("a", 0.01)
    assert queue.get() == "a"


def test_two_keys_that_add_each_other_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that others' work adds is handed out at once, and again only after a rest."""
    monkeypatch.setattr("eurekube_provider.operator.queue.REST_SECONDS", 0.3)
    queue: WorkQueue[str] = WorkQueue()
    began = time.monotonic()
    for other in "abab":
        queue.add_rested(other)
        assert queue.get() == other
        queue.done(other)
        if other == "b" and time.monotonic() - began < 0.3:
            began_again = time.monotonic()
    assert began_again - began < 0.25
    assert time.monotonic() - began >= 0.3
    queue.add("a")
    assert queue.get() == "a"  # what changed itself waits for nothing


def test_a_waiting_worker_takes_what_comes_sooner() -> None:
    """A worker that waits for a distant key wakes up for one that is due earlier."""
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("distant", 600)
    taken: list[str | None] = []
    worker = threading.Thread(target=lambda: taken.append(queue.get()))
    worker.start()
    queue.add_after("near", 0.02)
    worker.join(timeout=5)
    assert taken == ["near"]


def test_retries_wait_longer_and_longer() -> None:
    """The delay doubles with each failure up to a limit, with a jitter; a success resets it."""
    queue: WorkQueue[str] = WorkQueue()
    for failure in range(12):
        longest = min(FIRST_RETRY_DELAY_SECONDS * 2**failure, LONGEST_RETRY_DELAY_SECONDS)
        assert longest / 2 <= queue.retry("a") <= longest
    queue.forget_failures("a")
    assert queue.retry("a") <= FIRST_RETRY_DELAY_SECONDS
    assert queue.retry("b") <= FIRST_RETRY_DELAY_SECONDS


def test_a_key_may_fail_for_days() -> None:
    """The delay stays at its limit after more failures than a float can be doubled."""
    queue: WorkQueue[str] = WorkQueue()
    for _ in range(2_000):
        last = queue.retry("a")
    assert LONGEST_RETRY_DELAY_SECONDS / 2 <= last <= LONGEST_RETRY_DELAY_SECONDS
    assert 0.05 <= backoff_seconds(2_000, 0.01, 0.1) <= 0.1


def test_closing_ends_every_worker() -> None:
    """A closed queue hands out no key, not even one that waits."""
    queue: WorkQueue[str] = WorkQueue()
    ended: list[str | None] = []
    workers = [threading.Thread(target=lambda: ended.append(queue.get())) for _ in range(3)]
    for worker in workers:
        worker.start()
    queue.close()
    for worker in workers:
        worker.join(timeout=5)
    queue.add("a")
    assert ended == [None, None, None]
    assert queue.get() is None


def test_nothing_is_handed_out_while_it_is_paused() -> None:
    """A paused queue is idle once all keys in work are done; keys added during the pause follow after it."""
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    assert queue.get() == "a"
    assert not queue.pause_and_check_idle()
    queue.add("b")
    found: list[str | None] = []
    worker = threading.Thread(target=lambda: found.append(queue.get()))
    worker.start()
    queue.done("a")
    assert queue.pause_and_check_idle()
    assert found == []
    queue.resume()
    worker.join(timeout=10.0)
    assert found == ["b"]


def test_what_changed_last_in_a_pause_comes_first() -> None:
    """Keys that changed during the pause come first, the latest of them first; all others keep their
    order.
    """
    queue: WorkQueue[str] = WorkQueue()
    for key in ("a", "b", "c"):
        queue.add(key)
    queue.pause_and_check_idle()
    queue.add("b")
    queue.add("c")
    for key in ("a", "b", "e"):
        queue.add(key, is_change=False)  # who comes to lead reconciles everything
    queue.resume()
    queue.add("a")
    queue.add("d")
    assert [queue.get() for _ in range(5)] == ["c", "b", "a", "e", "d"]


def divided() -> WorkQueue[str]:
    """Return a queue of two groups; a key's first letter names its group."""
    queue: WorkQueue[str] = WorkQueue()
    queue.divide_into_groups(("a", "b"), lambda key: key[0])
    return queue


def test_each_lane_has_what_is_its_own() -> None:
    """A group's workers get only keys of that group, with or without a delay."""
    queue = divided()
    for number in range(3):
        queue.add(f"a{number}")
    queue.add("b0")
    queue.add_after("b1", 0.05)
    assert [queue.get("b"), queue.get("b"), queue.get("a")] == ["b0", "b1", "a0"]
    assert queue.depth == 2


def test_a_key_that_changes_groups_is_worked_on_once() -> None:
    """A waiting key moves to its new group; a key in work goes to the new group's workers only after
    ``done``.
    """
    groups = {"x": "a"}
    queue: WorkQueue[str] = WorkQueue()
    queue.divide_into_groups(("a", "b"), lambda key: groups.get(key, "a"))
    queue.add("x")
    groups["x"] = "b"
    queue.add("x")
    queue.add("y")
    assert [queue.get("b"), queue.get("a")] == ["x", "y"]
    groups["x"] = "a"
    queue.add("x")
    queue.add("z")
    assert queue.get("a") == "z"
    queue.done("x")
    assert queue.get("a") == "x"


def test_lanes_are_opened_one_by_one() -> None:
    """After a pause ``resume`` opens one named group, or all without a name."""
    queue = divided()
    queue.pause_and_check_idle()
    queue.add("a0")
    queue.add("b0")
    queue.resume("b")
    assert queue.get("b") == "b0"
    found: list[str | None] = []
    waiting = threading.Thread(target=lambda: found.append(queue.get("a")))
    waiting.start()
    waiting.join(0.1)
    assert found == []
    queue.resume()
    waiting.join(10.0)
    assert found == ["a0"]
    assert not queue.is_idle
    queue.done("a0")
    queue.done("b0")
    assert queue.is_idle


def moving(where: dict[str, str]) -> WorkQueue[str]:
    """Return a queue of two groups, in which ``where`` gives each key's group."""
    queue: WorkQueue[str] = WorkQueue()
    queue.divide_into_groups(["well", "hanging"], lambda key: where[key])
    return queue


def test_what_waits_for_its_time_moves_with_its_key() -> None:
    """A delayed key whose group changes is not lost with the old group, whose workers may hang, and can be
    delayed anew.
    """
    where = {"a": "hanging"}
    queue = moving(where)
    queue.add_after("a", 0.01)
    where["a"] = "well"
    queue.add("a")
    assert queue.get("well") == "a"
    queue.add_after("a", 0.02)
    queue.done("a")
    assert queue.get("well") == "a"


def test_a_lane_takes_nothing_from_another_by_an_old_time() -> None:
    """A key that moved is handed out by its new group only, although its delay began in the old one."""
    where = {"a": "hanging", "b": "hanging"}
    queue = moving(where)
    queue.add_after("a", 0.01)
    where["a"] = "well"
    queue.add("a")
    time.sleep(0.02)
    queue.add("b")
    assert (queue.get("hanging"), queue.get("well")) == ("b", "a")
