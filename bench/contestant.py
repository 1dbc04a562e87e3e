"""A contestant of a benchmark as a process of its own: started, measured from /proc, and ended.

It is started without any wrapper, since the time from its start is measured, too.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STOP_SECONDS = 15.0


class Contestant:
    """A contestant's running process; leaving the block ends it.

    :ivar started_at: ``time.perf_counter()`` just before it was started.
    """

    def __init__(
        self, name: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> None:
        self.name = name
        self.log = log
        kept = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
        self.started_at = time.perf_counter()
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                env={**kept, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def require_alive(self) -> None:
        """Raise an error if the process has ended.

        :raises RuntimeError: it ended; carries the end of its log.
        """
        if self._process.poll() is not None:
            last = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
            raise RuntimeError(f"{self.name} ended with {self._process.returncode}:\n{last}")

    def wait_for(self, text: str, timeout_seconds: float = 120.0) -> None:
        """Wait until the process has logged ``text``.

        :raises TimeoutError: it did not within this time.
        """
        deadline = time.monotonic() + timeout_seconds
        while text not in self.log.read_text(errors="replace"):
            self.require_alive()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} did not say {text!r} within {timeout_seconds:g} s")
            time.sleep(0.05)

    def cpu_seconds(self) -> float:
        """Return the processor seconds so far, in user and kernel, of the process and its children."""
        self.require_alive()
        return sum(map(process_cpu_seconds, self._process_tree()))

    def memory_mib(self) -> float:
        """Return the resident memory in MiB of the process and its children."""
        self.require_alive()
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self._process_tree())
        return pages * _PAGE_BYTES / 2**20

    def stop(self) -> None:
        """Send SIGTERM to the process, and kill it if it has not ended within 15 seconds."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()

    def terminate(self) -> None:
        """Send SIGTERM to the process, and do not wait for its end."""
        self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL to the process, as sudden as a power cut."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def _process_tree(self) -> list[int]:
        """Return the ids of the process and its descendants."""
        family = [self._process.pid]
        for pid in family:
            for task in Path(f"/proc/{pid}/task").iterdir():
                with suppress(FileNotFoundError):  # a thread that has ended meanwhile
                    family += map(int, (task / "children").read_text().split())
        return family


def process_cpu_seconds(pid: int) -> float:
    """Return the processor seconds so far, in user and kernel, of a process and of its children that
    ended.
    """
    # The fields after the name, which may have spaces of its own.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS_PER_SECOND


def machine_idle_seconds() -> float:
    """Return the idle seconds of all the machine's processors together since it was started."""
    return int(Path("/proc/stat").read_text().split()[4]) / _TICKS_PER_SECOND
