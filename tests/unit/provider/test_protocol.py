"""Pulumi's messages come without its SDK, and with it where they need it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from eurekube_provider.provider import protocol

ROOT = Path(__file__).parents[3]


def loaded(sdk: Path | None) -> subprocess.CompletedProcess[str]:
    """Import the messages in a process of its own; what it printed: whether the SDK came with them."""
    program = "import sys; from eurekube_provider.provider import protocol; print('pulumi' in sys.modules)"
    path = os.pathsep.join(map(str, (*([sdk] if sdk else []), ROOT)))
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def fake_sdk(folder: Path, generated: str) -> Path:
    """An SDK whose generated modules have this text."""
    package = folder / "pulumi"
    for each in (package, package / "runtime", package / "runtime" / "proto"):
        each.mkdir()
        (each / "__init__.py").write_text("WHOLE = True\n")
    for name in protocol.__all__:
        (package / "runtime" / "proto" / f"{name}.py").write_text(generated)
    return folder


def test_the_messages_need_nothing_of_the_sdk() -> None:
    """With the SDK that is installed."""
    done = loaded(None)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_an_sdk_whose_messages_need_more_of_it_is_loaded_whole(tmp_path: Path) -> None:
    """A later release may import what an empty package does not have."""
    done = loaded(fake_sdk(tmp_path, "from pulumi import WHOLE\n"))
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_an_sdk_without_the_messages_is_an_import_error(tmp_path: Path) -> None:
    """The error is Python's own."""
    done = loaded(fake_sdk(tmp_path, "from pulumi import NOTHING_OF_THIS_NAME\n"))
    assert "ImportError" in done.stderr
