"""The Pulumi CLI without a language host of its own; a script stands in for the CLI."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import ModuleType
from typing import Any

import pytest
import yaml

from lab.inline import make_program_runner
from lab.pulumi import write_inline_cli

CLI = f"""#!{sys.executable}
import json, os, sys

found = {{"words": sys.argv[1:], "interpreter": os.environ.get("PULUMI_PYTHON_CMD"), "process": os.getpid()}}
for word in sys.argv[1:]:
    if word.startswith("--client="):
        import grpc
        from google.protobuf import empty_pb2
        from pulumi.runtime.proto import language_pb2_grpc
        with grpc.insecure_channel(word.partition("=")[2]) as channel:
            runtime = language_pb2_grpc.LanguageRuntimeStub(channel)
            found["server"] = runtime.About(empty_pb2.Empty()).executable
print(json.dumps(found))
sys.exit(7)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for a project with the stand-in CLI, and a cache of the test's own."""
    monkeypatch.setenv("EUREKUBE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cli").write_text(CLI)
    (tmp_path / "cli").chmod(0o755)
    return tmp_path


def run(project: Path, runtime: str | Mapping[str, Any], *words: str) -> dict[str, Any]:
    """Run the stand-in CLI in a project with this runtime, and return its output."""
    (project / "Pulumi.yaml").write_text(yaml.safe_dump({"name": "shop", "runtime": runtime}))
    command = [str(write_inline_cli(project / "cli")), *words]
    with subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, text=True) as process:
        document: dict[str, Any] = json.loads(process.communicate(timeout=60)[0])
    assert process.returncode == 7
    assert document["process"] == process.pid
    return document


def test_the_cli_calls_a_server_with_the_projects_interpreter(project: Path) -> None:
    """The CLI and dynamic providers use the project's interpreter; the CLI's arguments, process id and
    exit code stay.
    """
    environment = project / "environment"
    environment.symlink_to(sys.prefix)
    python = str(environment / "bin" / "python")
    runtime = {"name": "python", "options": {"virtualenv": "environment"}}
    reported = run(project, runtime, "--non-interactive", "up", "--yes")
    client = reported["words"].pop(3)
    assert client.startswith("--client=127.0.0.1:")
    assert reported["words"] == ["--non-interactive", "up", "--yes", "--exec-kind=auto.inline"]
    assert Path(reported["server"]).samefile(python)
    assert reported["interpreter"] == python


@pytest.mark.parametrize(
    ("runtime", "words"),
    [
        ("python", ["stack", "init", "up"]),
        ("python", ["up", "--client=127.0.0.1:9"]),
        ("yaml", ["up", "--yes"]),
    ],
    ids=["no program runs", "a server is there", "another language"],
)
def test_the_cli_is_left_alone(project: Path, runtime: str, words: list[str]) -> None:
    """The CLI is called unchanged where it runs no Python program, or where a language server is given."""
    (project / "cli").write_text(CLI.replace("import grpc", "continue"))  # it would ask nobody
    assert run(project, runtime, *words)["words"] == words


MEETING = """
import meeting

meeting.barrier.wait(10)
meeting.seen.add((__name__, __file__))
meeting.barrier.wait(10)
"""


def test_programs_in_threads_have_nothing_in_common(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two programs that run at once see their own files, and leave ``sys.argv`` and the main module
    unchanged.
    """
    meeting = ModuleType("meeting")
    seen: set[tuple[str, str]] = set()
    vars(meeting).update(barrier=Barrier(2), seen=seen)
    monkeypatch.setitem(sys.modules, "meeting", meeting)
    files = [tmp_path / "one.py", tmp_path / "two.py"]
    before = (list(sys.argv), sys.modules["__main__"])
    with ThreadPoolExecutor(2) as threads:
        for file in files:
            file.write_text(MEETING)
            threads.submit(make_program_runner(file))
    assert seen == {("__main__", str(file)) for file in files}
    assert (sys.argv, sys.modules["__main__"]) == before
