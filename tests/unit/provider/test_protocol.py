"""The import of Pulumi's protocol messages without its SDK, and with the SDK if they need it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from eurekube_provider.provider import protocol

ROOT = Path(__file__).parents[3]


def loaded(sdk: Path | None) -> subprocess.CompletedProcess[str]:
    """Import the messages in a new process, which prints True if the SDK was loaded."""
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
    """Write an SDK whose generated modules contain this text."""
    package = folder / "pulumi"
    for each in (package, package / "runtime", package / "runtime" / "proto"):
        each.mkdir()
        (each / "__init__.py").write_text("WHOLE = True\n")
    for name in protocol.__all__:
        (package / "runtime" / "proto" / f"{name}.py").write_text(generated)
    return folder


def test_the_messages_need_nothing_of_the_sdk() -> None:
    """The installed SDK's messages are imported without loading the SDK."""
    done = loaded(None)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_an_sdk_whose_messages_need_more_of_it_is_loaded_whole(tmp_path: Path) -> None:
    """A later SDK's messages may import names that only the whole package has."""
    done = loaded(fake_sdk(tmp_path, "from pulumi import WHOLE\n"))
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_an_sdk_without_the_messages_is_an_import_error(tmp_path: Path) -> None:
    """A name that the whole SDK lacks raises Python's own ImportError."""
    done = loaded(fake_sdk(tmp_path, "from pulumi import NOTHING_OF_THIS_NAME\n"))
    assert "ImportError" in done.stderr
