"""Processes of this machine: their existence, start times, and the end of those that a dead one left.

All this needs /proc. On other systems any process with the same id counts as the recorded one.
"""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from pathlib import Path

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
