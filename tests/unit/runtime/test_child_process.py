"""Child processes: they end when asked to, with their own children, and with their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from eurekube_provider.runtime.child_process import ChildProcess, wrap_to_die_with_parent

_SLEEP = "import time; print('up', flush=True); time.sleep(600)"
_DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + _SLEEP


def wait(holds: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, "waited for 30 s in vain"
        time.sleep(0.02)


def is_running(process_id: int) -> bool:
    """Return whether a process exists and is no zombie."""
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_child_ends_when_it_is_asked_to(tmp_path: Path) -> None:
    """``stop`` ends a child by SIGTERM, and its output is kept."""
    child = ChildProcess([sys.executable, "-c", _SLEEP], tmp_path / "log", os.environ)
    wait(lambda: "up" in child.read_output() and child.exit_code is None)
    child.stop()
    assert child.exit_code == -signal.SIGTERM
    assert child.read_output() == "up\n"


def test_a_child_that_does_not_listen_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that ignores SIGTERM is killed after a while."""
    monkeypatch.setattr("eurekube_provider.runtime.child_process.STOP_GRACE_SECONDS", 0.1)
    child = ChildProcess([sys.executable, "-c", _DEAF], tmp_path / "log", os.environ)
    wait(lambda: "up" in child.read_output())
    child.stop()
    assert child.exit_code == -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux's kernel ends a child with its parent")
def test_a_child_ends_with_its_parent(tmp_path: Path) -> None:
    """A child ends when its parent is killed."""
    log = tmp_path / "log"
    command = wrap_to_die_with_parent(
        [sys.executable, "-c", "import os; print(os.getpid(), flush=True);" + _SLEEP]
    )
    program = (
        "import subprocess, sys, time\n"
        "from eurekube_provider.runtime.child_process import wrap_to_die_with_parent\n"
        f"command = wrap_to_die_with_parent({command[command.index(sys.executable, 1) :]!r})\n"
        f"subprocess.Popen(command, stdout=open({str(log)!r}, 'w'), start_new_session=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=Path(__file__).parents[3])
    wait(lambda: log.exists() and "up" in log.read_text())
    process_id = int(log.read_text().split()[0])
    assert is_running(process_id)
    parent.kill()
    parent.wait()
    wait(lambda: not is_running(process_id))
