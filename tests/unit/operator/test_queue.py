"""The work queue: equal keys merge, and none is reconciled twice at once."""

from __future__ import annotations

import threading
import time

from eurekube_provider.operator.queue import FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS, WorkQueue
from eurekube_provider.runtime.backoff import backoff


def test_equal_keys_merge() -> None:
    """A key that waits already is handed out once, in the order of its first arrival."""
    queue: WorkQueue[str] = WorkQueue()
    for key in ("a", "b", "a"):
        queue.add(key)
    assert [queue.get(), queue.get()] == ["a", "b"]
    queue.add("c")
    assert queue.get() == "c"


def test_a_key_in_work_comes_once_more_afterwards() -> None:
    """A change during the work on a key has the key worked on once more."""
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
    """However many workers and additions there are, one key is with one worker."""
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
    """A key with a delay comes when that is over, and another one before it."""
    queue: WorkQueue[str] = WorkQueue()
    started = time.monotonic()
    queue.add_after("later", 0.05)
    queue.add("now")
    assert queue.get() == "now"
    assert queue.get() == "later"
    assert time.monotonic() - started >= 0.05


def test_of_several_later_looks_the_earliest_is_kept() -> None:
    """Or a key that asks for two at each reconcile would be reconciled ever more often."""
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


def test_a_waiting_worker_takes_what_comes_sooner() -> None:
    """A worker that waits for a distant key is woken for a near one."""
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("distant", 600)
    taken: list[str | None] = []
    worker = threading.Thread(target=lambda: taken.append(queue.get()))
    worker.start()
    queue.add_after("near", 0.02)
    worker.join(timeout=5)
    assert taken == ["near"]


def test_retries_wait_longer_and_longer() -> None:
    """Delays double with each failure up to a limit, with a jitter, and success starts again."""
    queue: WorkQueue[str] = WorkQueue()
    for failure in range(12):
        longest = min(FIRST_DELAY_SECONDS * 2**failure, LONGEST_DELAY_SECONDS)
        assert longest / 2 <= queue.retry("a") <= longest
    queue.forget_failures("a")
    assert queue.retry("a") <= FIRST_DELAY_SECONDS
    assert queue.retry("b") <= FIRST_DELAY_SECONDS


def test_a_key_may_fail_for_days() -> None:
    """More often than a float can be doubled."""
    queue: WorkQueue[str] = WorkQueue()
    for _ in range(2_000):
        last = queue.retry("a")
    assert LONGEST_DELAY_SECONDS / 2 <= last <= LONGEST_DELAY_SECONDS
    assert 0.05 <= backoff(2_000, 0.01, 0.1) <= 0.1


def test_closing_ends_every_worker() -> None:
    """A closed queue hands out nothing more, not even what waits."""
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
    """It is idle once all that was handed out has come back; what came meanwhile follows."""
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    assert queue.get() == "a"
    assert not queue.pause()
    queue.add("b")
    found: list[str | None] = []
    worker = threading.Thread(target=lambda: found.append(queue.get()))
    worker.start()
    queue.done("a")
    assert queue.pause()
    assert found == []
    queue.resume()
    worker.join(timeout=10.0)
    assert found == ["b"]


def test_what_changed_last_in_a_pause_comes_first() -> None:
    """Nobody has looked at it yet; what is added afterwards waits in line."""
    queue: WorkQueue[str] = WorkQueue()
    for key in ("a", "b", "c"):
        queue.add(key)
    queue.pause()
    queue.add("b")
    queue.add("c")
    for key in ("a", "b", "e"):
        queue.add(key, is_news=False)  # who comes to lead reconciles everything
    queue.resume()
    queue.add("a")
    queue.add("d")
    assert [queue.get() for _ in range(5)] == ["c", "b", "a", "e", "d"]


def divided() -> WorkQueue[str]:
    """A queue with two groups, named by how keys begin."""
    queue: WorkQueue[str] = WorkQueue()
    queue.divide(("a", "b"), lambda key: key[0])
    return queue


def test_each_lane_has_what_is_its_own() -> None:
    """Nobody takes what belongs to others, now or later, however much there is."""
    queue = divided()
    for number in range(3):
        queue.add(f"a{number}")
    queue.add("b0")
    queue.add_after("b1", 0.05)
    assert [queue.get("b"), queue.get("b"), queue.get("a")] == ["b0", "b1", "a0"]
    assert queue.depth == 2


def test_a_key_that_changes_groups_is_worked_on_once() -> None:
    """It moves on while it waits, and comes to the others' workers only once its last reconcile has ended."""
    groups = {"x": "a"}
    queue: WorkQueue[str] = WorkQueue()
    queue.divide(("a", "b"), lambda key: groups.get(key, "a"))
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
    """After a pause each goes on when it may; without a name all do."""
    queue = divided()
    queue.pause()
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
    """Two groups; each key is in the one that ``where`` says."""
    queue: WorkQueue[str] = WorkQueue()
    queue.divide(["well", "hanging"], lambda key: where[key])
    return queue


def test_what_waits_for_its_time_moves_with_its_key() -> None:
    """Its old group's workers may all hang: it must not be lost there, nor keep a later one from counting."""
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
    """A moved key waits for the workers of its own group, with any time planned in the one before."""
    where = {"a": "hanging", "b": "hanging"}
    queue = moving(where)
    queue.add_after("a", 0.01)
    where["a"] = "well"
    queue.add("a")
    time.sleep(0.02)
    queue.add("b")
    assert (queue.get("hanging"), queue.get("well")) == ("b", "a")
