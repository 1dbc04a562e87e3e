"""A copy of the repository in which one mutant after the other is tried."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.mutants.mutant import ROOT, DoesNotApply, Mutant

HALF_WRITTEN = shutil.ignore_patterns("*.pyc.*")
"""A filter for copying that leaves out bytecode which is being written; finished bytecode is copied and
stays valid.
"""

COPIED = ("eurekube_provider", "tests")
"""Folders that are copied; everything else that tests may read is linked."""

LONGEST_SECONDS = 150
"""Longest time for one mutant, in seconds.

Its tests take seconds, and many times as long on a busy machine.
"""

PYTEST = (sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider")
_FAILED = 1
"""pytest's exit code when tests ran and failed, and nothing else went wrong."""


def fill(folder: Path, copied: Collection[str]) -> None:
    """Make a folder a copy of the repository, with links to everything that will not be changed."""
    for path in ROOT.iterdir():
        if path.name in copied:
            shutil.copytree(path, folder / path.name, ignore=HALF_WRITTEN)
        elif not path.name.startswith("."):
            (folder / path.name).symlink_to(path)


class Verdict(StrEnum):
    """The result of trying a mutant."""

    KILLED = "killed"
    SURVIVED = "SURVIVED"
    DOES_NOT_APPLY = "DOES NOT APPLY"
    UNDECIDED = "UNDECIDED"
    """The tests did not run: there is no test of that name, for example, or the code cannot be imported."""


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of one trial of a mutant.

    :ivar detail: an explanation for a person, unless the mutant was killed.
    """

    verdict: Verdict
    seconds: float
    detail: str = ""


class Workplace:
    """A copy of the repository, in which one mutant is tried at a time.

    :param folder: empty, and removed by its creator.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        fill(folder, COPIED)

    def unchanged(self, mutants: Iterable[Mutant]) -> str:
        """Run the tests of all mutants on the unchanged code; return pytest's output if one fails, else
        nothing.

        The run also leaves the bytecode of all files that do not change.
        """
        ran = self._run(dict.fromkeys(test for one in mutants for test in one.tests), keeps_bytecode=True)
        return "" if ran.returncode == 0 else ran.stdout

    def trial(self, mutant: Mutant) -> Trial:
        """Run a mutant's tests on the code with that mutant."""
        path = self._folder / mutant.file
        text, times = path.read_text(encoding="utf-8"), path.stat()
        try:
            changed = mutant.applied(text)
        except DoesNotApply as error:
            return Trial(Verdict.DOES_NOT_APPLY, 0.0, str(error))
        began = time.monotonic()
        try:
            path.write_text(changed, encoding="utf-8")
            # Python knows by time and size whether bytecode is of this text.
            os.utime(path, (times.st_atime, times.st_mtime + 10))
            ran = self._run(mutant.tests)
        except subprocess.TimeoutExpired:
            detail = f"its tests took longer than {LONGEST_SECONDS} s: {' '.join(mutant.tests)}"
            return Trial(Verdict.UNDECIDED, time.monotonic() - began, detail)
        finally:
            path.write_text(text, encoding="utf-8")
            os.utime(path, (times.st_atime, times.st_mtime))
        seconds = time.monotonic() - began
        if ran.returncode == _FAILED:
            return Trial(Verdict.KILLED, seconds)
        if ran.returncode == 0:
            return Trial(Verdict.SURVIVED, seconds, f"none of its tests fails: {' '.join(mutant.tests)}")
        return Trial(Verdict.UNDECIDED, seconds, f"pytest ended with {ran.returncode}: {ran.stdout}")

    def _run(self, tests: Iterable[str], *, keeps_bytecode: bool = False) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(self._folder)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        if not keeps_bytecode:
            environment["PYTHONDONTWRITEBYTECODE"] = "1"
        return subprocess.run(
            [*PYTEST, *tests],
            cwd=self._folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=10 * LONGEST_SECONDS if keeps_bytecode else LONGEST_SECONDS,
            check=False,
        )
