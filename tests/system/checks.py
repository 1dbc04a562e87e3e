"""``python -m tests.system.checks KUBECONFIG...``: ``operator --check`` with each, in a process of its own.

Loading the operator takes longer than the check, so that it is loaded once, and every process begins there.
"""

from __future__ import annotations

import json
import os
import sys

from eurekube_provider.operator.__main__ import main

_BROKEN = 70
"""The exit code of a check that raised, which none may."""


def begin(kubeconfig: str) -> tuple[int, int]:
    """Start a check; its process, and where to read what it prints."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    os.dup2(writing, sys.stdout.fileno())
    code = _BROKEN
    try:
        code = main(["--check", "--output", "json", "--kubeconfig", kubeconfig])
        sys.stdout.flush()
    finally:
        os._exit(code)


def end(child: int, reading: int) -> tuple[int, str]:
    """Wait for a check; its exit code, and what it printed."""
    with open(reading, encoding="utf-8") as printed:
        text = printed.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text


if __name__ == "__main__":
    begun = [begin(kubeconfig) for kubeconfig in sys.argv[1:]]
    json.dump([end(*check) for check in begun], sys.stdout)
