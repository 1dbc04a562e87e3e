"""A copy of the repository in which changes are made and tried."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.map.change import Change
from tests.mutants.workplace import fill

COPIED = ("crds", "docs", "eurekube_provider", "tests")
"""Folders that are copied; everything else that tests may read is linked."""

LONGEST_SECONDS = 300


class Copy:
    """A copy of the repository, in which one change, or several together, are made at a time.

    :param folder: empty, and removed by its creator.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        fill(folder, COPIED)

    def tried(self, *changes: Change) -> str:
        """Make the changes, run their tests, and undo the changes.

        :returns: pytest's output where a test fails, else nothing.
        """
        before: dict[Path, str | None] = {}
        try:
            for change in changes:
                for file, text in change.applied(self._read).items():
                    path = self._folder / file
                    before.setdefault(path, path.read_text(encoding="utf-8") if path.exists() else None)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(text, encoding="utf-8")
                    times = path.stat()
                    os.utime(path, (times.st_atime, times.st_mtime + 10))  # its bytecode is of another text
            return self._failures(dict.fromkeys(test for change in changes for test in change.tests))
        finally:
            for path, original in before.items():
                if original is None:
                    path.unlink()
                else:
                    path.write_text(original, encoding="utf-8")

    def _read(self, file: str) -> str:
        return (self._folder / file).read_text(encoding="utf-8")

    def _failures(self, tests: Iterable[str]) -> str:
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests],
            cwd=self._folder,
            env={**os.environ, "PYTHONPATH": str(self._folder), "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LONGEST_SECONDS,
            check=False,
        )
        return "" if ran.returncode == 0 else ran.stdout
