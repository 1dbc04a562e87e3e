"""The user's cache folder: programs are kept there between runs, shared by every lab of the user.

A folder is filled under a temporary name and renamed when it is complete, so nobody ever sees half of one. A
lock file for each name keeps two labs from making the same program twice.
"""

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from lab.beside import pause_unless_other_work_ended
from lab.errors import LabError
from lab.progress import say

_POLL_SECONDS = 0.1


def cache_folder() -> Path:
    """Return `$EUREKUBE_CACHE`, else `$XDG_CACHE_HOME/eurekube`, else `~/.cache/eurekube`; made when
    missing.
    """
    if folder := os.environ.get("EUREKUBE_CACHE"):
        path, why = Path(folder), "EUREKUBE_CACHE"
    elif folder := os.environ.get("XDG_CACHE_HOME"):
        path, why = Path(folder) / "eurekube", "XDG_CACHE_HOME"
    elif folder := os.environ.get("HOME"):
        path, why = Path(folder) / ".cache" / "eurekube", "HOME"
    else:
        raise LabError(
            "no place for the lab's programs: HOME is not set; set EUREKUBE_CACHE to a writable folder"
        )
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise LabError(
            f"the lab's programs cannot be kept in {path} (from {why}): {error.strerror}; "
            "make it writable or set EUREKUBE_CACHE to a folder that is"
        ) from error
    return path.resolve()


@contextmanager
def hold_cache_lock(name: str) -> Iterator[None]:
    """Hold the lock of one name in the cache; say so when another lab holds it."""
    locks = cache_folder() / ".locks"
    locks.mkdir(exist_ok=True)
    with (locks / re.sub(r"[^\w.-]", "_", name)).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{name}: waiting for another lab that is getting it")
            _wait_for_lock(lock)
        yield


def _wait_for_lock(lock: IO[str]) -> None:
    while True:
        pause_unless_other_work_ended(_POLL_SECONDS)
        with suppress(BlockingIOError):
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def fill_folder_atomically(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder that replaces `folder` when the block ends well, and is removed otherwise.

    The caller holds the lock of `folder.parent`, so an unfinished folder of an earlier lab may be removed.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    for left_over in folder.parent.glob(".making-*"):
        shutil.rmtree(left_over, ignore_errors=True)
    with tempfile.TemporaryDirectory(
        dir=folder.parent, prefix=".making-", ignore_cleanup_errors=True
    ) as temporary:
        content = Path(temporary) / "content"
        content.mkdir()
        yield content
        if folder.exists():
            shutil.rmtree(folder)
        content.rename(folder)
