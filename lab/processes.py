"""One child process of the lab: started, awaited, stopped, killed, paused; it never outlives the lab.

Three measures bind a child to its lab. Each has a session of its own, so that a Ctrl-C in the terminal
reaches only the lab, which decides. The lab stops its children when its block ends. And on Linux the kernel
kills a child when its parent dies, even by SIGKILL: a tiny wrapper asks for that (PR_SET_PDEATHSIG) and then
becomes the server. The kernel means by "parent" the *thread* that forked, so every child is forked by one
thread that lives as long as the process.
"""

import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

from eurekube_provider.runtime.child_process import wrap_to_die_with_parent
from lab.errors import LabError

_POLL_SECONDS = 0.05
_STOP_TIMEOUT_SECONDS = 15.0
_LOG_END_LINES = 15


class Process:
    """A supervised child process. `is_ready` is called until it returns True; a crash meanwhile is an
    error.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        log: Path,
        is_ready: Callable[[], bool] = lambda: True,
        ready_seconds: float = 120.0,
        directory: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self._command = [str(word) for word in command]
        self._is_ready = is_ready
        self._ready_seconds = ready_seconds
        self._directory = directory
        self._environment = dict(environment) if environment is not None else None
        self._child: subprocess.Popen[bytes] | None = None
        self._paused = False

    @property
    def pid(self) -> int | None:
        """Process id while the process runs (also while it is paused), else None."""
        return self._child.pid if self._child is not None and self._child.poll() is None else None

    @property
    def state(self) -> str:
        """State in words: `running`, `paused`, `not running`, or, after the process ended by itself, `exited
        with 1` or `killed by SIGSEGV`.
        """
        if self._child is None:
            return "not running"
        code = self._child.poll()
        if code is None:
            return "paused" if self._paused else "running"
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"

    def start(self) -> None:
        """Start the process and wait until it is ready."""
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Start the process without waiting; do nothing when it runs already."""
        if self.pid is not None:
            return
        self.log.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._child = _spawner().spawn(self._command, self.log, self._directory, self._environment)
        except OSError as error:
            raise LabError(f"{self.name} could not be started ({self._command[0]}): {error}") from error
        self._paused = False

    def wait_until_ready(self) -> None:
        """Wait until the process is ready; raise LabError with the end of its log when it dies or takes
        too long.
        """
        deadline = time.monotonic() + self._ready_seconds
        while not self._is_ready():
            if self.pid is None:
                raise LabError(f"{self.name} {self.state} before it was ready\n{self.read_log_end()}")
            if time.monotonic() > deadline:
                raise LabError(
                    f"{self.name} (process {self.pid}) was not ready "
                    f"within {self._ready_seconds:.0f} s\n{self.read_log_end()}"
                )
            time.sleep(_POLL_SECONDS)
        if self.pid is None:  # somebody else answered in its place
            raise LabError(
                f"{self.name} {self.state} while another server answers on its port\n{self.read_log_end()}"
            )

    def wait(self) -> int:
        """Wait for the end of the process, and return its exit code."""
        if self._child is None:
            raise LabError(f"{self.name} was never started")
        return self._child.wait()

    def stop(self) -> None:
        """Send SIGTERM to the process, and kill it if it has not ended within 15 seconds."""
        if self._child is None:
            return
        self._send_signal(signal.SIGTERM)
        self.resume()
        try:
            self._child.wait(_STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self._child = None

    def terminate(self) -> None:
        """Send SIGTERM to the process, and do not wait for its end."""
        self._send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to the process, as sudden as a power cut."""
        if self._child is None:
            return
        self._send_signal(signal.SIGKILL)
        self._child.wait()
        self._child = None

    def restart(self) -> None:
        """Stop the process, start it, and wait until it is ready."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze the process (SIGSTOP): its port stays open and nobody answers."""
        self._send_signal(signal.SIGSTOP)
        self._paused = self.pid is not None

    def resume(self) -> None:
        """Let the process go on after a pause."""
        self._send_signal(signal.SIGCONT)
        self._paused = False

    def read_log_end(self) -> str:
        """Return the end of the process's log, with its path, for an error message."""
        try:
            lines = self.log.read_text(errors="replace").splitlines()[-_LOG_END_LINES:]
        except OSError:
            lines = []
        return "\n".join([f"the end of {self.log}:", *(f"  {line}" for line in lines)])

    def _send_signal(self, number: signal.Signals) -> None:
        process_id = self.pid
        if process_id is None:
            return
        try:
            os.killpg(process_id, number)
        except (ProcessLookupError, PermissionError):
            # Between fork and exec the child may not lead its group yet, and macOS refuses groups of zombies.
            if self._child is not None:
                self._child.send_signal(number)


def kill_all(processes: Sequence[Process]) -> None:
    """Kill all processes at once, then wait: for servers whose data is thrown away with them."""
    for process in processes:
        process._send_signal(signal.SIGKILL)  # noqa: SLF001 - same class, one at a time would take the sum of all ends
    for process in processes:
        process.kill()


class _Spawner:
    """The thread that forks every child process; the module's docstring says why it must never end."""

    def __init__(self) -> None:
        self.process_id = os.getpid()
        self._jobs: queue.SimpleQueue[
            tuple[Callable[[], subprocess.Popen[bytes]], Future[subprocess.Popen[bytes]]]
        ]
        self._jobs = queue.SimpleQueue()
        threading.Thread(target=self._run_jobs_forever, name="lab-spawner", daemon=True).start()

    def spawn(
        self, command: list[str], log: Path, directory: Path | None, environment: dict[str, str] | None
    ) -> subprocess.Popen[bytes]:
        """Start a command that appends its output to the log."""

        def job() -> subprocess.Popen[bytes]:
            with log.open("ab") as output:
                return subprocess.Popen(
                    wrap_to_die_with_parent(command),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=directory,
                    env=environment,
                    start_new_session=True,
                )

        result: Future[subprocess.Popen[bytes]] = Future()
        self._jobs.put((job, result))
        return result.result()

    def _run_jobs_forever(self) -> None:
        while True:
            job, result = self._jobs.get()
            try:
                result.set_result(job())
            except BaseException as error:  # noqa: BLE001 - it is raised again where the job came from
                result.set_exception(error)


_spawner_lock = threading.Lock()
_the_spawner: _Spawner | None = None


def _spawner() -> _Spawner:
    global _the_spawner  # noqa: PLW0603 - one thread for the whole process
    with _spawner_lock:
        if _the_spawner is None or _the_spawner.process_id != os.getpid():
            _the_spawner = _Spawner()
        return _the_spawner
