"""Supervision of a child process (here ``sleep``), and the choice of ports."""

import os
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.errors import LabError
from lab.ports import find_port_holder, free_ports, is_port_free
from lab.processes import Process, kill_all
from lab.waiting import wait_until

SHELL = shutil.which("sh") or "/bin/sh"


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Process]:
    """Yield a process that sleeps for a minute."""
    process = Process("sleeper", [SHELL, "-c", "exec sleep 60"], log=tmp_path / "sleeper.log")
    yield process
    process.kill()


def test_a_process_is_started_stopped_and_started_again(sleeper: Process) -> None:
    """Each start after a stop makes a new process; a start of a running process changes nothing."""
    seen = [(sleeper.pid, sleeper.state)]
    for step in (sleeper.start, sleeper.start, sleeper.restart, sleeper.stop):
        step()
        seen.append((sleeper.pid, sleeper.state))
    first, second = seen[1][0], seen[3][0]
    assert seen == [
        (None, "not running"),
        (first, "running"),
        (first, "running"),
        (second, "running"),
        (None, "not running"),
    ]
    assert len({None, first, second}) == 3


def test_a_paused_process_can_be_stopped(sleeper: Process) -> None:
    """A paused process is stopped, although SIGTERM alone has no effect on it."""
    sleeper.start()
    sleeper.pause()
    assert sleeper.state == "paused"
    sleeper.stop()
    assert sleeper.state == "not running"


def test_a_process_outlives_the_thread_that_started_it(sleeper: Process) -> None:
    """A process survives the end of the thread that started it, although the kernel binds the death signal
    to a thread.
    """
    starter = threading.Thread(target=sleeper.start)
    starter.start()
    starter.join()
    with pytest.raises(LabError, match="in vain"):
        wait_until(lambda: sleeper.state != "running", "its death", 0.3)


def test_a_process_that_ends_by_itself_says_how(tmp_path: Path) -> None:
    """The state has the exit code of an ended process, and the error the end of its log."""
    process = Process(
        "failing", [SHELL, "-c", "echo no such luck; exit 3"], log=tmp_path / "log", is_ready=lambda: False
    )
    with pytest.raises(LabError, match=r"(?s)failing exited with 3 before it was ready\n.*no such luck"):
        process.start()
    assert process.state == "exited with 3"


def test_a_process_that_never_gets_ready_is_reported(tmp_path: Path) -> None:
    """The error for a process that is not ready in time says how long was waited; the process can still be
    killed.
    """
    process = Process(
        "slow",
        [SHELL, "-c", "exec sleep 60"],
        log=tmp_path / "log",
        is_ready=lambda: False,
        ready_seconds=0.1,
    )
    with pytest.raises(LabError, match=r"slow \(process \d+\) was not ready within 0 s"):
        process.start()
    assert process.state == "running"
    kill_all([process])
    assert process.state == "not running"


def test_free_ports_are_different_and_free() -> None:
    """Free ports are distinct, and lie below the range of outgoing connections."""
    ports = free_ports(5)
    assert len(set(ports)) == 5
    assert all(is_port_free(port) and port < 32768 for port in ports)


def test_the_holder_of_a_port_is_named() -> None:
    """A port in use leads to the process that listens there and its command."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert not is_port_free(port)
        holder = find_port_holder(port)
    assert holder is not None
    assert holder.startswith(f"process {os.getpid()} (")
    assert is_port_free(port)
    assert find_port_holder(port) is None
