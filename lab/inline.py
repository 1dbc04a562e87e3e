"""The Pulumi CLI on projects in Python, without a language host.

In a project's folder, `python -P lab/inline.py <the CLI> up --yes` does what `pulumi up --yes` does. The
program runs like an inline program of the Automation API: the CLI is asked to call the SDK's own language
server. A child process serves that, with the interpreter, the working directory, the environment and the
module path that a language host gives to a program. This process becomes the CLI, so that signals, exit code
and process id are the CLI's. It imports nothing of the lab: a project may have another version of the
package.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

PYTHON_COMMAND_VARIABLE = "PULUMI_PYTHON_CMD"
"""Environment variable by which a language host's own program for dynamic providers names the interpreter."""

_COMMANDS_WITH_PROGRAM = frozenset({"up", "preview", "refresh", "destroy"})
_SERVE_COMMAND = "serve"
_PARENT_CHECK_SECONDS = 0.05


def make_program_runner(file: Path) -> Callable[[], None]:
    """Return a function that runs a file as a program, in any thread.

    `runpy` exchanges `sys.argv` and `sys.modules["__main__"]` while it runs, and a process has only one of
    each.
    """

    def run() -> None:
        code = compile(file.read_bytes(), str(file), "exec")
        exec(code, {"__name__": "__main__", "__file__": str(file)})  # noqa: S102 - what it is for

    return run


def main(arguments: Sequence[str]) -> None:
    """Become the CLI, with a language server beside it if the command may run a program in Python."""
    cli, *words = arguments
    environment = dict(os.environ)
    project = Path.cwd() / "Pulumi.yaml"
    if project.is_file():
        described = yaml.safe_load(project.read_text("utf-8"))
        python = _find_interpreter(described["runtime"])
        command = next((word for word in words if not word.startswith("-")), "")
        has_server = any(word.startswith("--client") for word in words)
        if python is not None:
            environment[PYTHON_COMMAND_VARIABLE] = python
            if command in _COMMANDS_WITH_PROGRAM and not has_server:
                port = _start_language_server(python, project.parent / described.get("main", "."))
                words += [f"--client=127.0.0.1:{port}", "--exec-kind=auto.inline"]
    os.execve(cli, [cli, *words], environment)  # noqa: S606


def _find_interpreter(runtime: str | Mapping[str, Any]) -> str | None:
    """Return the interpreter of a project's environment, else this one; None if its language is another."""
    name, options = (runtime, {}) if isinstance(runtime, str) else (runtime["name"], runtime.get("options"))
    if name != "python":
        return None
    environment = (options or {}).get("virtualenv")
    return str(Path.cwd() / environment / "bin" / "python") if environment else sys.executable


def _start_language_server(python: str, folder: Path) -> str:
    """Start a language server that runs a folder's program until this process ends; return its port."""
    readable, writable = os.pipe()
    command = [python, "-P", __file__, _SERVE_COMMAND, str(writable), str(os.getpid())]
    subprocess.Popen(command, cwd=folder, pass_fds=[writable])
    os.close(writable)
    with os.fdopen(readable) as answer:
        return answer.read() or sys.exit(1)


def _serve_language_host(port_pipe: int, parent_pid: int) -> None:
    import grpc
    from pulumi.automation._server import LanguageServer
    from pulumi.runtime.proto import language_pb2_grpc

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the CLI decides
    folder = Path.cwd()
    sys.path.insert(0, str(folder))
    server = grpc.server(ThreadPoolExecutor())  # type: ignore[no-untyped-call]
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(
        LanguageServer(make_program_runner(folder / "__main__.py")), server
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with os.fdopen(port_pipe, "w") as writable:
        writable.write(str(port))
    while os.getppid() == parent_pid:
        time.sleep(_PARENT_CHECK_SECONDS)
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1] == _SERVE_COMMAND:
        _serve_language_host(*map(int, sys.argv[2:]))
    main(sys.argv[1:])
