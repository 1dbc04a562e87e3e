"""The type check of `make lint`, which reuses mypy's cache from an earlier check of another clone.

Without a cache mypy takes three quarters of a minute of processor time; with one, a second or two. So the
first check of a clone starts from a copy in the user's cache folder, and leaves its own cache there if it
passes. mypy compares each file's text with its cache, wherever the file lies, and starts anew after a change
of its version or options.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from lab.cache import cache_folder, fill_folder_atomically, hold_cache_lock
from lab.errors import LabError

ROOT = Path(__file__).parents[1]
MYPY = (sys.executable, "-m", "mypy")

_LOCK_NAME = "mypy"


def check_types(project: Path = ROOT, mypy: Sequence[str] = MYPY) -> int:
    """Run mypy in a clone, and return its exit code.

    :param mypy: the command, which leaves its cache in ``.mypy_cache``.
    """
    own, kept = project / ".mypy_cache", _shared_cache_folder()
    is_first = not own.exists()
    if is_first and kept is not None and kept.exists():
        _copy_cache(kept, own)
    code = subprocess.run(mypy, cwd=project, check=False).returncode
    if is_first and kept is not None and code == 0 and own.exists():
        _copy_cache(own, kept)
    return code


def _shared_cache_folder() -> Path | None:
    """Return the folder of mypy's cache that all clones share; None where the user has no cache folder."""
    try:
        return cache_folder() / "types" / "mypy"
    except LabError:
        return None


def _copy_cache(there: Path, here: Path) -> None:
    with hold_cache_lock(_LOCK_NAME), fill_folder_atomically(here) as content:
        shutil.copytree(there, content, dirs_exist_ok=True)


if __name__ == "__main__":
    sys.exit(check_types())
