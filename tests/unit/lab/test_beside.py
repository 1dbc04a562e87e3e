"""Two pieces of work beside each other: each ends what the other waits for."""

import os
import threading
from pathlib import Path

import pytest

from lab.beside import beside, pause
from lab.builds import run_tool
from lab.cache import locked

FOREVER = 60.0


class Broken(Exception):
    """An end that one of the two came to."""


def test_both_results_are_there_after_the_block() -> None:
    """The work runs while the block does."""
    both = threading.Barrier(2, timeout=FOREVER)

    def work() -> str:
        both.wait()
        return "work"

    with beside(work) as future:
        both.wait()
    assert future.result() == "work"


def test_an_error_of_the_work_ends_the_block() -> None:
    """The block's pause ends at once, and the work's error is what comes out."""

    def work() -> None:
        raise Broken

    def block() -> None:
        with beside(work):
            pause(FOREVER)
            pytest.fail("the block went on")

    with pytest.raises(Broken):
        block()


def test_an_error_of_the_block_ends_the_tool_that_the_work_runs(tmp_path: Path) -> None:
    """No process is left, and the block's error is what comes out, as with a signal."""
    log = tmp_path / "log"
    command = ["/bin/sh", "-c", "echo $$; exec sleep 60"]

    def work() -> None:
        run_tool("sleeping", command, directory=tmp_path, environment={}, log=log)

    def block() -> None:
        with beside(work):
            while not (log.exists() and log.read_text().strip()):
                pause(0.01)
            raise Broken

    with pytest.raises(Broken):
        block()
    with pytest.raises(ProcessLookupError):
        os.kill(int(log.read_text()), 0)


def test_who_waits_for_a_lock_can_be_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another lab may hold it for minutes."""
    monkeypatch.setenv("EUREKUBE_CACHE", str(tmp_path))
    waits = threading.Event()
    monkeypatch.setattr("lab.cache.say", lambda _: waits.set())

    def work() -> None:
        with locked("tool"):
            pytest.fail("the lock was free")

    def block() -> None:
        with locked("tool"), beside(work):
            assert waits.wait(FOREVER)
            raise Broken

    with pytest.raises(Broken):
        block()
