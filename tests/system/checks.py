"""``python -m tests.system.checks KUBECONFIG...``: run ``operator --check`` with each kubeconfig, in
processes of their own.

Importing the operator takes longer than the check: it is imported once, and each check runs in a fork.
"""

from __future__ import annotations

import json
import os
import sys

from eurekube_provider.operator.__main__ import main

_BROKEN = 70
"""Exit code of a check that raised an exception."""


def begin(kubeconfig: str) -> tuple[int, int]:
    """Fork a process that runs a check; return its process id and the descriptor of its output."""
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
    """Wait for a check; return its exit code and its output."""
    with open(reading, encoding="utf-8") as printed:
        text = printed.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text


if __name__ == "__main__":
    begun = [begin(kubeconfig) for kubeconfig in sys.argv[1:]]
    json.dump([end(*check) for check in begun], sys.stdout)
