"""Who holds a stack, and whether it was a run of ours that died.

Pulumi's own backends (a folder, S3 ...) lock a stack by a file that names process and host. A run that is
killed leaves it behind, and every later run is refused. What we started is written down beside Pulumi's own
files while it runs, so that a lock of ours can be told from another's; another's is never broken.
"""

from __future__ import annotations

import json
import re
import socket
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from eurekube_provider.automation.processes import began_at, birth_of, end_session, is_running

CLOCK_SECONDS = 2.0
"""How exactly the system says when a process began."""

_HOLDER = re.compile(r"created by (?P<user>.+)@(?P<host>\S+) \(pid (?P<pid>\d+)\) at (?P<since>\S+)")


@dataclass(frozen=True, slots=True)
class Holder:
    """Whom a lock names."""

    user: str
    host: str
    pid: int
    since: datetime

    def __str__(self) -> str:
        return (
            f"{self.user}@{self.host} (process {self.pid}) since {self.since.isoformat(timespec='seconds')}"
        )


def holders(message: str) -> tuple[Holder, ...]:
    """Whom Pulumi's refusal names; none where the backend does not say."""
    return tuple(
        Holder(found["user"], found["host"], int(found["pid"]), datetime.fromisoformat(found["since"]))
        for found in _HOLDER.finditer(message)
    )


@dataclass(frozen=True, slots=True)
class Record:
    """A process that we started.

    :ivar started: seconds since the epoch, rounded down.
    :ivar birth: what tells it from a later process of the same number; empty where the system does not say.
    """

    host: str
    pid: int
    started: int
    birth: str

    def is_of(self, holder: Holder) -> bool:
        """Whether this process wrote the lock."""
        return (self.host, self.pid) == (holder.host, holder.pid) and holder.since.timestamp() >= self.started

    def has_left(self, holder: Holder) -> bool:
        """Whether the lock of ``holder`` is one that this process left.

        Not where the process that has its number today was there already: somebody else's, it may hold it.
        """
        if not self.is_dead:
            return False
        began = began_at(self.pid)
        return not is_running(self.pid) or (
            began is not None and began > holder.since.timestamp() + CLOCK_SECONDS
        )

    @property
    def is_dead(self) -> bool:
        """Whether it certainly runs no more. Of another host nothing is certain."""
        if self.host != socket.gethostname():
            return False
        if not is_running(self.pid):
            return True
        return bool(self.birth) and birth_of(self.pid) != self.birth


class Records:
    """The processes that we started for one stack.

    :param folder: survives the process, and is writable: inside of Pulumi's home.
    """

    def __init__(self, folder: Path, work_dir: Path, stack: str) -> None:
        self._folder = folder
        self._key = sha256(f"{work_dir.resolve()}\0{stack}".encode()).hexdigest()[:16]

    def add(self, pid: int, started: datetime) -> Path:
        """Write down a process; the file is to be removed when it has ended.

        It is named by when it began, too: the record of a dead process of the same number stays beside it.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        record = Record(socket.gethostname(), pid, int(started.timestamp()), birth_of(pid))
        began = f"{record.started}-{record.birth}"
        path = self._folder / f"{self._key}.{record.host}.{pid}.{began}.json"
        written = path.with_suffix(".new")
        written.write_text(json.dumps(asdict(record)))
        written.replace(path)
        return path

    def all_ours_and_dead(self, found: tuple[Holder, ...]) -> bool:
        """Whether each of these locks was left by a run of ours that is certainly over."""
        records = self._read().values()
        suspects = [(holder, [record for record in records if record.is_of(holder)]) for holder in found]
        # One that runs may hold the lock, although a dead one had its number before.
        return bool(found) and all(
            each and all(record.has_left(holder) for record in each) for holder, each in suspects
        )

    def end_dead(self) -> None:
        """End the providers that still work for runs that are over."""
        for record in self._read().values():
            if record.is_dead:
                end_session(record.pid)

    def forget_dead(self) -> None:
        """Remove the records of runs that are over."""
        for path, record in self._read().items():
            if record.is_dead:
                path.unlink(missing_ok=True)

    def _read(self) -> dict[Path, Record]:
        found: dict[Path, Record] = {}
        for path in self._folder.glob(f"{self._key}.*.json"):
            with suppress(OSError, ValueError, TypeError):
                found[path] = Record(**json.loads(path.read_text()))
        return found


def now() -> datetime:
    """This moment, with its zone."""
    return datetime.now(UTC)
