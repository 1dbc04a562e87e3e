"""The lab that stays up: a detached process that holds the servers, and the files by which others find it.

The folder (`.lab`) has `lab.json` (the servers' state), `kubeconfig`, the logs, and `lock`, which the
supervisor holds as long as it lives: a lab is up when the lock is taken, whatever the files say.
"""

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import TextIO

from lab.errors import LabError
from lab.eureka import EurekaServer
from lab.lab import Lab
from lab.ports import FIXED_PORTS, Ports
from lab.processes import Process
from lab.progress import say
from lab.waiting import wait_until

_LAB_FILE_NAMES = (
    "certificates",
    "etcd",
    "logs",
    "kubeconfig",
    "tokens.csv",
    "audit-policy.yaml",
    "lab.json",
    "supervisor.log",
    "lock",
)
_WATCH_INTERVAL_SECONDS = 0.5
_STOP_TIMEOUT_SECONDS = 30
_ROOT = Path(__file__).parent.parent

LOCK_WRITE_TIMEOUT_SECONDS = 2.0
"""Seconds that a new supervisor may take to write its process id into the lock."""


@dataclass(frozen=True, slots=True)
class ServerState:
    """One server in `lab.json`; `pid` is None when it does not run."""

    name: str
    state: str
    pid: int | None
    url: str
    log: str


@dataclass(frozen=True, slots=True)
class LabState:
    """The content of `lab.json`: the supervisor, the URLs and the servers of a running lab."""

    supervisor_pid: int
    eureka_urls: list[str]
    api_server_url: str
    kubeconfig: str
    servers: list[ServerState]


class StopSignal(KeyboardInterrupt):
    """Raised by SIGTERM, SIGHUP or Ctrl-C: the lab shall end."""


def supervisor_pid(folder: Path) -> int | None:
    """Return the process id of the supervisor of this folder's lab; None when it is not up.

    :raises LabError: the lock is held, but names no valid process id. Only a valid one may be sent a signal:
        0 would be our own process group, and -1 everybody.
    """
    deadline = time.monotonic() + LOCK_WRITE_TIMEOUT_SECONDS
    while True:
        try:
            with (folder / "lock").open() as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    text = lock.read().strip()
                else:
                    return None
        except FileNotFoundError:
            return None
        if re.fullmatch("[1-9][0-9]*", text):
            return int(text)
        if time.monotonic() > deadline:  # it is written a moment after it is taken
            raise LabError(f"{folder / 'lock'} is held and names no process: see `fuser {folder / 'lock'}`")
        time.sleep(_WATCH_INTERVAL_SECONDS / 10)


def describe_running_lab(folder: Path) -> str:
    """Return a sentence about the lab that an interrupted command has left running, or about its absence."""
    try:
        pid = supervisor_pid(folder)
    except LabError as error:
        return str(error)
    if pid is None:
        return "nothing is left running"
    return f"the lab in {folder} is left running (process {pid}): `make lab-down` ends it"


def read_state(folder: Path) -> LabState | None:
    """Return the supervisor's state; None until all servers are ready."""
    try:
        content = json.loads((folder / "lab.json").read_text())
    except FileNotFoundError:
        return None
    return LabState(**{**content, "servers": [ServerState(**server) for server in content["servers"]]})


def start_detached(folder: Path, eureka: int, *, ports: Ports) -> LabState:
    """Start a supervisor, show its progress, and return when its lab is ready; take it down if
    interrupted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "supervisor.log"
    command = [
        sys.executable,
        "-m",
        "lab",
        f"--directory={folder}",
        "up",
        "--foreground",
        f"--eureka={eureka}",
    ]
    if ports != FIXED_PORTS:
        command.append("--free-ports")
    with log.open("wb") as errors:
        child = subprocess.Popen(
            command,
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
    try:
        with raising_on_signals(), log.open() as progress:
            while True:
                ended = child.poll() is not None
                state = read_state(folder)
                sys.stderr.write(progress.read())
                if ended:
                    raise LabError("the lab did not come up, for the reason above")
                if state is not None and state.supervisor_pid == child.pid:
                    return state
                time.sleep(_WATCH_INTERVAL_SECONDS / 5)
    except StopSignal:
        child.terminate()
        child.wait(_STOP_TIMEOUT_SECONDS)
        _remove_lab_files(folder)
        raise


def run_in_foreground(folder: Path, eureka: int, *, ports: Ports, report: Callable[[LabState], None]) -> None:
    """Run a lab until a signal comes, then restore the folder, except for logs after an error."""
    folder.mkdir(parents=True, exist_ok=True)
    with _hold_lab_lock(folder):
        _remove_lab_files(folder, spare=("lock", "supervisor.log"))
        try:
            with raising_on_signals(), Lab(eureka=eureka, ports=ports, directory=folder) as lab:
                _write_state_changes(lab, folder, report)
        except StopSignal:
            _remove_lab_files(folder)
            say("the lab is down")
        except BaseException:
            _remove_lab_files(folder, spare=("logs", "supervisor.log"))
            if (folder / "logs").exists():
                say(f"the logs are kept in {folder / 'logs'}")
            raise


@contextmanager
def _hold_lab_lock(folder: Path) -> Iterator[None]:
    while True:
        with (folder / "lock").open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LabError(f"a lab is up in {folder} (process {supervisor_pid(folder)})") from None
            if not _is_same_file(
                lock, folder / "lock"
            ):  # a lab that went down meanwhile took the file with it
                folder.mkdir(parents=True, exist_ok=True)
                continue
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            yield
            return


def _is_same_file(file: TextIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def stop_lab(folder: Path) -> bool:
    """Take the lab of this folder down and clean the folder; return whether one was up."""
    pid = supervisor_pid(folder)
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        try:
            wait_until(
                lambda: supervisor_pid(folder) is None, "the lab's supervisor to end", _STOP_TIMEOUT_SECONDS
            )
        except LabError:
            say(f"the supervisor (process {pid}) does not end and is killed; its servers go with it")
            os.kill(pid, signal.SIGKILL)
            wait_until(
                lambda: supervisor_pid(folder) is None, "the lab's supervisor to end", _STOP_TIMEOUT_SECONDS
            )
    _remove_lab_files(folder)
    return pid is not None


class raising_on_signals:  # noqa: N801 - reads as a function where it is used
    """A context manager in whose block the first SIGTERM, SIGHUP or Ctrl-C raises StopSignal.

    Later signals do not disturb the clean-up.
    """

    _SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)

    def __enter__(self) -> None:
        self._before = {number: signal.signal(number, self._raise) for number in self._SIGNALS}

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _raise(self, _number: int, _frame: FrameType | None) -> None:
        for number in self._SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        raise StopSignal


def _write_state_changes(lab: Lab, folder: Path, report: Callable[[LabState], None]) -> None:
    """Write the servers' state into `lab.json`, at once and whenever it changes."""
    known = _read_lab_state(lab)
    _write_state(folder, known)
    report(known)
    while True:
        time.sleep(_WATCH_INTERVAL_SECONDS)
        state = _read_lab_state(lab)
        if state != known:
            for process in lab.processes:
                if process.state not in ("running", "paused"):
                    say(f"{process.name} {process.state}\n{process.read_log_end()}")
            _write_state(folder, state)
            known = state


def _read_lab_state(lab: Lab) -> LabState:
    return LabState(
        supervisor_pid=os.getpid(),
        eureka_urls=lab.eureka_urls,
        api_server_url=lab.api_server_url,
        kubeconfig=str(lab.kubeconfig),
        servers=[
            ServerState(process.name, process.state, process.pid, _server_url(process, lab), str(process.log))
            for process in lab.processes
        ],
    )


def _server_url(process: Process, lab: Lab) -> str:
    if isinstance(process, EurekaServer):
        return process.url
    return lab.api_server_url if process is lab.api_server else ""


def _write_state(folder: Path, state: LabState) -> None:
    temporary = folder / "lab.json.new"
    temporary.write_text(json.dumps(asdict(state), indent=2) + "\n")
    temporary.replace(folder / "lab.json")


def _remove_lab_files(folder: Path, spare: tuple[str, ...] = ()) -> None:
    """Remove the files that a lab writes, and the folder if no other files are in it."""
    for name in _LAB_FILE_NAMES:
        if name in spare:
            continue
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
