"""``python -m tests.mutants [NAME...]``: check that each mutant fails the test that it names."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.mutants.mutant import mutants
from tests.mutants.workplace import Verdict, Workplace


def main() -> int:
    """Try all mutants, or the named ones; return 1 unless all are killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutants, or a part of their names")
    parser.add_argument("--list", action="store_true", help="only say which there are, and what each breaks")
    arguments = parser.parse_args()
    chosen = [
        one for one in mutants() if not arguments.names or any(name in one.name for name in arguments.names)
    ]
    if not chosen:
        parser.error(f"there is no mutant with such a name: {' '.join(arguments.names)}")
    if arguments.list:
        print("\n".join(f"{one.name}: {one.rule}" for one in chosen))
        return 0
    alive, seconds = 0, 0.0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        place = Workplace(Path(folder))
        broken = place.unchanged(chosen)
        if broken:
            print(f"these tests fail without any mutant, so that they say nothing:\n{broken}")
            return 1
        for one in chosen:
            trial = place.trial(one)
            seconds += trial.seconds
            print(f"{trial.verdict:<16} {trial.seconds:5.1f} s  {one.name}", flush=True)
            if trial.verdict is not Verdict.KILLED:
                alive += 1
                print(f"    rule: {one.rule}\n    {trial.detail}", flush=True)
    print(f"{len(chosen)} mutants, {len(chosen) - alive} killed, {seconds:.0f} s")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
