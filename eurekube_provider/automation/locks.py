"""Locks of a stack: their holders, and the removal of locks that a dead run of ours left.

Pulumi's own backends (a folder, S3 ...) lock a stack by a file that names process and host. A run that is
killed leaves it behind, and every later run is refused. Our processes are recorded while they run, so that
only our locks are removed, each by its file: ``pulumi cancel`` deletes every lock of a stack. Where the
backend is no folder, no lock is removed.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from urllib.parse import unquote, urlsplit

from eurekube_provider.core.errors import ConfigurationError

CLOCK_ERROR_SECONDS = 2.0
"""Seconds by which the system's time of a process's start may be wrong."""

_HOLDER_PATTERN = re.compile(
    r"(?:(?P<place>\S+): )?created by (?P<user>.+)@(?P<host>\S+) \(pid (?P<pid>\d+)\) at (?P<since>\S+)"
)


@dataclass(frozen=True, slots=True)
class LockHolder:
    """The process that a lock names as its holder.

    :ivar lock_url: the URL of the lock; empty where the backend does not give it.
    """

    user: str
    host: str
    pid: int
    since: datetime
    lock_url: str = field(default="", compare=False)

    def __str__(self) -> str:
        return (
            f"{self.user}@{self.host} (process {self.pid}) since {self.since.isoformat(timespec='seconds')}"
        )


def parse_holders(message: str) -> tuple[LockHolder, ...]:
    """Return the lock holders that Pulumi's refusal names; none where the backend does not name them."""
    return tuple(
        LockHolder(
            found["user"],
            found["host"],
            int(found["pid"]),
            datetime.fromisoformat(found["since"]),
            found["place"] or "",
        )
        for found in _HOLDER_PATTERN.finditer(message)
    )


def remove_lock(holder: LockHolder) -> bool:
    """Remove the lock of ``holder`` and no other; return False if it is no local file, or another's."""
    parts = urlsplit(holder.lock_url)
    path = Path(unquote(parts.path))
    if parts.scheme != "file" or path.suffix != ".json" or not {".pulumi", "locks"} <= set(path.parts):
        return False
    try:
        lock = json.loads(path.read_text())
        since = datetime.fromisoformat(lock["timestamp"]).replace(microsecond=0)
        found = LockHolder(lock["username"], lock["hostname"], lock["pid"], since)
        if found != holder:
            return False
        path.unlink()
    except FileNotFoundError:
        return True
    except (OSError, ValueError, KeyError, TypeError):
        return False
    with suppress(OSError):
        path.with_name(f"{path.name}.attrs").unlink()  # which the CLI's storage library may have put there
    return True


class StackBusy(Exception):
    """Raised where another run of ours works on the stack. The text is its process id, where it is known."""


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """The record of a process that we started.

    :ivar started: seconds since the epoch, rounded down.
    :ivar birth: a mark that tells it from a later process with the same id; may be empty.
    """

    host: str
    pid: int
    started: int
    birth: str

    def wrote_lock_of(self, holder: LockHolder) -> bool:
        return (self.host, self.pid) == (holder.host, holder.pid) and holder.since.timestamp() >= self.started

    def died_holding_lock_of(self, holder: LockHolder) -> bool:
        """Return whether this process is dead and left the lock, which no later one of its id took."""
        if not self.is_certainly_dead:
            return False
        began = start_time(self.pid)
        return not is_running(self.pid) or (
            began is not None and began > holder.since.timestamp() + CLOCK_ERROR_SECONDS
        )

    @property
    def is_certainly_dead(self) -> bool:
        """True if the process certainly does not run any more; never for a process of another host."""
        if self.host != socket.gethostname():
            return False
        if not is_running(self.pid):
            return True
        return bool(self.birth) and start_ticks(self.pid) != self.birth


class ProcessRecords:
    """The records of the processes that we started for one stack.

    :param folder: a writable folder that survives the process, inside of Pulumi's home.
    :param stack: a text that identifies the stack among all others.
    """

    def __init__(self, folder: Path, stack: str) -> None:
        self._folder = folder
        self._key = sha256(stack.encode()).hexdigest()[:16]

    @contextmanager
    def claim_stack(self) -> Iterator[None]:
        """Claim the stack against other runs of ours on this machine, until this process ends, however it
        does.

        :raises StackBusy: another run works on the stack.
        :raises ConfigurationError: the claim cannot be written.
        """
        path = self._folder / f"{self._key}.claim"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self.unwritable_error(error) from None
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StackBusy(os.read(file, 20).decode("ascii", "replace").strip()) from None
            os.ftruncate(file, 0)
            os.write(file, str(os.getpid()).encode())
            yield
        finally:
            os.close(file)

    def unwritable_error(self, error: OSError) -> ConfigurationError:
        """Return the error to raise where no run can be recorded in the folder."""
        return ConfigurationError(
            f"the run cannot be written down ({error.strerror}), so that nothing was begun: make"
            f" {self._folder} a folder that can be written to, or PULUMI_HOME another one"
        )

    def add(self, pid: int, started: datetime) -> Path:
        """Record a process in a file of its own, which the caller removes when the process has ended."""
        self._folder.mkdir(parents=True, exist_ok=True)
        record = ProcessRecord(socket.gethostname(), pid, int(started.timestamp()), start_ticks(pid))
        began = f"{record.started}-{record.birth}"
        path = self._folder / f"{self._key}.{record.host}.{pid}.{began}.json"
        written = path.with_suffix(".new")
        written.write_text(json.dumps(asdict(record)))
        written.replace(path)
        return path

    def were_locks_left_by_dead_runs(self, holders: tuple[LockHolder, ...]) -> bool:
        """Return whether each holder of a lock is a run of ours that is certainly dead; False without any."""
        records = self._read_records().values()
        suspects = [
            (holder, [record for record in records if record.wrote_lock_of(holder)]) for holder in holders
        ]
        # A running process may hold the lock, although a dead process had its id before.
        return bool(holders) and all(
            each and all(record.died_holding_lock_of(holder) for record in each) for holder, each in suspects
        )

    def kill_orphaned_providers(self) -> None:
        for record in self._read_records().values():
            if record.is_certainly_dead:
                kill_orphaned_session(record.pid)

    def remove_dead_records(self) -> None:
        for path, record in self._read_records().items():
            if record.is_certainly_dead:
                path.unlink(missing_ok=True)

    def _read_records(self) -> dict[Path, ProcessRecord]:
        found: dict[Path, ProcessRecord] = {}
        for path in self._folder.glob(f"{self._key}.*.json"):
            with suppress(OSError, ValueError, TypeError):
                found[path] = ProcessRecord(**json.loads(path.read_text()))
        return found


# What follows needs /proc. On other systems any process with the same id counts as the recorded one.

_STATE_INDEX, _SESSION_INDEX, _START_TICKS_INDEX = 0, 3, 19
"""Indices of the fields in /proc/PID/stat, counted from behind the name; see proc(5)."""


def is_running(pid: int) -> bool:
    """Return whether a process exists; a process that has ended, but was not waited for, does not count."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return _stat_fields(pid)[_STATE_INDEX : _STATE_INDEX + 1] != ["Z"]


def start_ticks(pid: int) -> str:
    """Return when a process began, in ticks since the system's start; empty where that cannot be known."""
    return next(iter(_stat_fields(pid)[_START_TICKS_INDEX:]), "")


def start_time(pid: int) -> float | None:
    """Return when a process began, as Unix time to a second or two; None where that is not known."""
    try:
        booted = re.search(r"^btime (\d+)$", Path("/proc/stat").read_text(), re.MULTILINE)
        ticks = int(start_ticks(pid))
    except (OSError, ValueError):
        return None
    return int(booted[1]) + ticks / os.sysconf("SC_CLK_TCK") if booted else None


def kill_orphaned_session(leader: int) -> None:
    """Kill the processes in the session of a leader that has ended: a killed CLI leaves its providers behind,
    which never end, perhaps in the middle of a registration.
    """
    if is_running(leader):
        return
    for each in Path("/proc").glob("[0-9]*"):
        if _stat_fields(int(each.name))[_SESSION_INDEX : _SESSION_INDEX + 1] == [str(leader)]:
            with suppress(OSError):
                os.kill(int(each.name), signal.SIGKILL)


def _stat_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat behind the name, which may hold spaces and brackets."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
