"""The plugin process, and its end."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

STARTS_IT = """
import subprocess, sys, time
plugin = subprocess.Popen([sys.executable, "-m", "eurekube_provider.provider"], stdout=subprocess.PIPE)
print(plugin.pid, int(plugin.stdout.readline()), flush=True)
time.sleep(60)
"""


def test_it_ends_when_its_engine_was_killed() -> None:
    """The plugin ends by itself, although a killed engine sends it nothing."""
    engine = subprocess.Popen([sys.executable, "-c", STARTS_IT], stdout=subprocess.PIPE, text=True)
    assert engine.stdout is not None
    with engine.stdout as output:
        pid, port = map(int, output.readline().split())
        assert port > 0
        assert _runs(pid)
        engine.kill()
        engine.wait()
        deadline = time.monotonic() + 30
        while _runs(pid):
            assert time.monotonic() < deadline, "it still runs"
            time.sleep(0.1)


def _runs(pid: int) -> bool:
    """Return True if a process runs; a zombie, which its new parent may collect late, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
