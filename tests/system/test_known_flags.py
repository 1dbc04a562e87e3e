"""The flags of kubectl, helm and pulumi in the documentation exist in those programs."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from lab.errors import LabError
from lab.programs import HELM, find_kubectl, provide_programs
from scripts.blocks import KNOWN_FLAGS_FILE

KNOWN = tomllib.loads(KNOWN_FLAGS_FILE.read_text())


def program(name: str) -> Path:
    """Return the path of a program; skip the test if it is not installed."""
    found = find_kubectl() if name == "kubectl" else None
    if name == HELM:
        try:
            found = provide_programs([HELM])[HELM]
        except LabError as error:
            pytest.skip(str(error))
    found = found or (Path(path) if (path := shutil.which(name)) else None)
    if found is None:
        pytest.skip(f"no {name}")
    return found


@pytest.mark.parametrize("name", KNOWN)
def test_each_flag_is_in_the_programs_own_help(name: str) -> None:
    """Each documented flag of a command appears in that command's help, or in the program's common
    options.
    """
    path = program(name)
    everywhere = KNOWN[name].pop("always")
    for command, flags in KNOWN[name].items():
        output = help_of(path, *command.split(), "--help")
        if name == "kubectl":
            output += help_of(path, "options")
        for flag in (*flags, *everywhere):
            assert re.search(rf"(?<![\w-]){flag}(?![\w-])", output), f"{name} {command} has no {flag}"


def help_of(path: Path, *words: str) -> str:
    """Return a program's help of a command, which must exist."""
    done = subprocess.run([path, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{path.name} {' '.join(words)}: {done.stderr[-300:]}"
    return done.stdout
