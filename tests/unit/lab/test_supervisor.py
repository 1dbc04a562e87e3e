"""The lab that stays up: the process that `lab down` ends, and the message of an interrupted command."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from lab import supervisor
from lab.errors import LabError
from lab.supervisor import describe_running_lab, stop_lab, supervisor_pid


@pytest.mark.parametrize("text", ["", "0", "-1", "x"])
def test_a_lock_that_names_no_process_ends_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """With a lock file without a valid process id no process is killed, least of all our own group (0) or
    all (-1).
    """
    monkeypatch.setattr(supervisor, "LOCK_WRITE_TIMEOUT_SECONDS", 0.1)
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append((pid, number)))
    with (tmp_path / "lock").open("w") as held:
        held.write(text)
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(LabError, match="names no process"):
            stop_lab(tmp_path)
        assert "names no process" in describe_running_lab(tmp_path)
    assert killed == []


def test_what_is_left_is_said(tmp_path: Path) -> None:
    """The message says that a lab is left running and how to end it, or that nothing is left."""
    assert describe_running_lab(tmp_path) == "nothing is left running"
    with (tmp_path / "lock").open("w") as held:
        held.write("4242")
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)
        assert supervisor_pid(tmp_path) == 4242
        assert "is left running (process 4242): `make lab-down` ends it" in describe_running_lab(tmp_path)
