"""``python -m tests.mutants.harms [NAME...]``: check that the explorer finds each known harm by itself.

Each harm is one that users met. Its fix is undone in a copy of the repository. The explorer gets no hint of
the harm: it tries the sequences that it always tries.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.mutants.mutant import FOLDER, Mutant
from tests.mutants.workplace import Workplace

LONGEST_MINUTES = 10.0
SEED = 1


@dataclass(frozen=True, slots=True)
class Harm:
    """A harm that users met, and the edits that undo its fix.

    :ivar harm: the harm to callers, or to Eureka.
    :ivar changes: the edits that undo the fix.
    """

    name: str
    harm: str
    changes: tuple[Mutant, ...]


def harms(folder: Path = FOLDER / "taken_back") -> list[Harm]:
    """Return all harms, file by file."""
    return [
        Harm(name, str(written["harm"]), tuple(_change(name, each) for each in written["changes"]))
        for path in sorted(folder.glob("*.toml"))
        for name, written in tomllib.loads(path.read_text(encoding="utf-8")).items()
    ]


def _change(name: str, written: Mapping[str, Any]) -> Mutant:
    old, new = (str(written[key]).removeprefix("\n") for key in ("old", "new"))
    return Mutant(name, name, str(written["file"]), old, new, ())


def main() -> int:
    """Try all harms, or the named ones; return 1 unless the explorer finds each."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.harms", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    names = parser.parse_args().names
    left = 0
    for harm in harms():
        if names and harm.name not in names:
            continue
        found = _explored(harm)
        print(f"{'found' if found else 'NOT FOUND'}: {harm.name}: {harm.harm}\n{found}", flush=True)
        left += not found
    return 1 if left else 0


def _explored(harm: Harm) -> str:
    """Return the explorer's report on the code without a fix; empty if it found nothing."""
    with tempfile.TemporaryDirectory(prefix="harms-") as folder:
        Workplace(Path(folder))
        for change in harm.changes:
            path = Path(folder) / change.file
            path.write_text(change.applied(path.read_text(encoding="utf-8")), encoding="utf-8")
        how = (
            "--of",
            "stacks",
            "--seed",
            str(SEED),
            "--minutes",
            str(LONGEST_MINUTES),
            "--jobs",
            "1",
            "--first",
        )
        ran = subprocess.run(
            [sys.executable, "-m", "tests.explore", *how],
            cwd=folder,
            env={"PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    if ran.returncode not in (0, 1) or not ran.stdout:
        raise RuntimeError(f"{harm.name}: the explorer fails: {ran.stderr[-2000:]}")
    return ran.stdout if ran.returncode else ""


if __name__ == "__main__":
    sys.exit(main())
