"""``python -m tests.map [NAME...]``: print the files that each usual change of the code must touch.

Each change is made in a copy of the repository, and its tests run there. With ``--each`` the change is also
tried without the edits of each file in turn: a test must fail every time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.map.change import Change, changes
from tests.map.copy import Copy


def main() -> int:
    """Print the files of all changes, or of the named ones; return 1 unless all changes pass their tests."""
    parser = argparse.ArgumentParser(prog="python -m tests.map", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="changes, or a part of their names")
    parser.add_argument("--each", action="store_true", help="try each change without each of its files, too")
    arguments = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="map-") as folder:
        copy = Copy(Path(folder))
        for change in changes():
            if not arguments.names or any(name in change.name for name in arguments.names):
                wrong += _show(change, copy, each=arguments.each)
    return 1 if wrong else 0


def _show(change: Change, copy: Copy, *, each: bool) -> int:
    """Print one change, and return the number of its problems."""
    failures = copy.tried(change)
    print(f"{change.title}: {_counted(change)} ({change.example})")
    wrong = 1 if failures else 0
    for file, lines in change.files.items():
        note = f"  written by `{change.written[file]}`" if file in change.written else ""
        if each and lines and not failures and not copy.tried(change.without(file)):
            note, wrong = f"{note}  NO TEST MISSES IT", wrong + 1
        count = f"{lines:3} lines" if lines else " " * len("100 lines")
        print(f"  {file:<58} {count}{note}", flush=True)
    if failures:
        print(f"  ITS TESTS FAIL:\n{failures}")
    return wrong


def _counted(change: Change) -> str:
    count = len(change.sources)
    return f"{count} {'file' if count == 1 else 'files'}"


if __name__ == "__main__":
    sys.exit(main())
