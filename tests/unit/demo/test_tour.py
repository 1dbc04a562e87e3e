"""The whole demo as a person starts it, without servers and configuration."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

EUREKUBE = [sys.executable, "-m", "eurekube_provider.cli.main"]
ROOT = Path(__file__).parents[3]


class Demo:
    """A demo process with its own home and temporary folder."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.temporary, self.home = directory / "temporary", directory / "home"
        self.temporary.mkdir()
        self.home.mkdir()
        self._mark = f"demo-of-{directory}"
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "TMPDIR": str(self.temporary),
            "PYTHONPATH": str(ROOT),
            "MARK": self._mark,
            "HTTP_PROXY": "http://127.0.0.1:9",
            "EUREKA_URL": "http://127.0.0.1:9/eureka",
            "KUBECONFIG": "/nothing",
        }
        self.process = subprocess.Popen(
            [*EUREKUBE, "demo", *options],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        self._lines = self.process.stdout

    def wait_for(self, words: str) -> None:
        """Read the output until a line has these words."""
        for line in self._lines:
            if words in line:
                return
        raise AssertionError(f"no line had {words!r}")

    def rest(self) -> str:
        """Wait for the end, and return the remaining output."""
        text = self._lines.read()
        self.process.wait(60)
        self._lines.close()
        return text

    def left(self) -> list[str]:
        """Return the processes and files that the demo has left."""
        found = [str(path) for folder in (self.temporary, self.home) for path in folder.rglob("*")]
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if self._mark.encode() in (process / "environ").read_bytes():
                    found.append((process / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue
        return found


def test_two_at_once_tell_the_whole_story(tmp_path: Path) -> None:
    """Two demos run at once and pass; one draws the table, the other one runs until Ctrl-C, and both leave
    nothing.
    """
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one, kept = Demo(tmp_path / "one", "--picture", "table.svg"), Demo(tmp_path / "two", "--keep")
    text = one.rest()
    assert one.process.returncode == 0, text
    assert "demo passed: 13 checks" in text
    assert "make demo-real" in text
    assert "The API has no controllers" in text
    assert one.left() == []
    assert "10.0.0.5" in (tmp_path / "one" / "table.svg").read_text().replace("&#160;", " ")
    kept.wait_for("(status page)")
    kept.wait_for("export KUBECONFIG=")
    kept.wait_for("Ctrl-C here ends all of it")
    kept.process.send_signal(signal.SIGINT)
    assert "interrupted; nothing is left running" in kept.rest()
    assert kept.left() == []


@pytest.mark.parametrize(
    ("words", "number"),
    [("deployed by", signal.SIGINT), ("is ready", signal.SIGTERM), ("alone renews", signal.SIGHUP)],
)
def test_an_interruption_leaves_nothing(tmp_path: Path, words: str, number: signal.Signals) -> None:
    """An interrupted demo leaves no process and no file, whether it deploys, starts pods or waits for a
    lease.
    """
    demo = Demo(tmp_path)
    demo.wait_for(words)
    demo.process.send_signal(number)
    assert "interrupted; nothing is left running" in demo.rest()
    assert demo.process.returncode == 130
    assert demo.left() == []
