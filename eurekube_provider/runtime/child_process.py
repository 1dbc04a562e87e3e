"""A child process that never outlives its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

STOP_GRACE_SECONDS = 15.0

# Runs in the child before the program; getppid is checked in case the parent died before prctl.
_DIE_WITH_PARENT_SCRIPT = """\
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


def wrap_to_die_with_parent(command: Sequence[str]) -> list[str]:
    """Return a command whose process Linux, but no other system, kills when its parent's thread ends."""
    if sys.platform != "linux":
        return [*command]
    return [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT_SCRIPT, str(os.getpid()), *command]


class ChildProcess:
    """A running program in a session of its own, so that no signal of a terminal reaches it.

    :param log: the file to which its output is appended.
    :param environment: all of its environment variables.
    """

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                wrap_to_die_with_parent(command),
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def exit_code(self) -> int | None:
        """The program's exit code; None while it runs."""
        return self._process.poll()

    def read_output(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def stop(self) -> None:
        """Ask the program to end, and kill it if it has not after :data:`STOP_GRACE_SECONDS`."""
        self._send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_GRACE_SECONDS)
        self.kill()

    def kill(self) -> None:
        """Kill the program and the processes that it started, at once."""
        self._send_signal(signal.SIGKILL)
        self._process.wait()

    def _send_signal(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)
