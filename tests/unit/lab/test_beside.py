"""Work in a thread beside a block: an error of either one ends the other."""

import os
import threading
from pathlib import Path

import pytest

from lab.beside import pause_unless_other_work_ended, run_in_background
from lab.builds import run_tool
from lab.cache import hold_cache_lock

FOREVER = 60.0


class Broken(Exception):
    """An error raised by the work or by the block."""


def test_both_results_are_there_after_the_block() -> None:
    """The work runs at the same time as the block, and its result is available afterwards."""
    both = threading.Barrier(2, timeout=FOREVER)

    def work() -> str:
        both.wait()
        return "work"

    with run_in_background(work) as future:
        both.wait()
    assert future.result() == "work"


def test_an_error_of_the_work_ends_the_block() -> None:
    """An error of the work ends the block's pause at once and is raised."""

    def work() -> None:
        raise Broken

    def block() -> None:
        with run_in_background(work):
            pause_unless_other_work_ended(FOREVER)
            pytest.fail("the block went on")

    with pytest.raises(Broken):
        block()


def test_an_error_of_the_block_ends_the_tool_that_the_work_runs(tmp_path: Path) -> None:
    """An error of the block kills the process that the work runs, and is raised."""
    log = tmp_path / "log"
    command = ["/bin/sh", "-c", "echo $$; exec sleep 60"]

    def work() -> None:
        run_tool("sleeping", command, directory=tmp_path, environment={}, log=log)

    def block() -> None:
        with run_in_background(work):
            while not (log.exists() and log.read_text().strip()):
                pause_unless_other_work_ended(0.01)
            raise Broken

    with pytest.raises(Broken):
        block()
    with pytest.raises(ProcessLookupError):
        os.kill(int(log.read_text()), 0)


def test_who_waits_for_a_lock_can_be_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An error of the block ends work that waits for a lock, which another lab may hold for minutes."""
    monkeypatch.setenv("EUREKUBE_CACHE", str(tmp_path))
    waits = threading.Event()
    monkeypatch.setattr("lab.cache.say", lambda _: waits.set())

    def work() -> None:
        with hold_cache_lock("tool"):
            pytest.fail("the lock was free")

    def block() -> None:
        with hold_cache_lock("tool"), run_in_background(work):
            assert waits.wait(FOREVER)
            raise Broken

    with pytest.raises(Broken):
        block()
