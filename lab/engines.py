"""Two ways to deploy the project's program: a real Pulumi CLI, or `eurekube apply` where Pulumi is missing.

Each works on a copy of the program, with a home, a backend and a passphrase of its own: no login, context or
file of the user is touched.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from lab.errors import LabError
from lab.progress import report_signs_of_life
from lab.pulumi import find_kubernetes_plugin, find_pulumi, pulumi_environment, write_inline_cli

ROOT = Path(__file__).parent.parent
_COMMAND_TIMEOUT_SECONDS = 300


class Engine(Protocol):
    """An engine that deploys a stack of the program and takes it down again."""

    name: str

    def up(self) -> None:
        """Deploy; raise LabError with the program's output if that fails."""

    def destroy(self) -> None:
        """Remove all that `up` deployed."""


class PulumiEngine:
    """An engine that runs `pulumi up` on a file backend; the program runs inline, so that it needs no
    language host.
    """

    def __init__(self, cli: Path, directory: Path, stack: str, config: Mapping[str, str]) -> None:
        version = subprocess.run([cli, "version"], capture_output=True, text=True, check=False).stdout.strip()
        self.name = f"pulumi up ({version}, inline program, file backend)"
        self._stack = stack
        self._config = config
        self._project = copy_project(directory / "program")
        backend = directory / "backend"
        backend.mkdir(parents=True)
        self._cli = write_inline_cli(cli)
        self._environment = {
            **pulumi_environment(),
            "PULUMI_BACKEND_URL": backend.as_uri(),
            "PULUMI_CONFIG_PASSPHRASE": "demo",
        }

    def up(self) -> None:
        self._run("stack", "init", self._stack)
        for key, value in self._config.items():
            self._run("config", "set", key, value)
        with report_signs_of_life("pulumi up", lambda: "resources are being created"):
            self._run("up", "--yes", "--skip-preview")

    def destroy(self) -> None:
        self._run("destroy", "--yes", "--skip-preview")

    def _run(self, *arguments: str) -> None:
        command = [str(self._cli), *arguments, "--non-interactive", "--color", "never"]
        if arguments[0] != "stack":
            command += ["--stack", self._stack]
        _run(command, self._project, self._environment)


class EurekubeApplyEngine:
    """An engine that runs `eurekube apply`: the same program without Pulumi, a state or a preview."""

    name = "eurekube apply (no Pulumi CLI here: the same program without an engine)"

    def __init__(self, directory: Path, stack: str, config: Mapping[str, str], kubeconfig: Path) -> None:
        self._project = copy_project(directory / "program")
        self._options = ["--stack", stack]
        for key, value in config.items():
            self._options += ["--config", f"{key}={value}"]
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}

    def up(self) -> None:
        self._run("apply")

    def destroy(self) -> None:
        self._run("remove")

    def _run(self, command: str) -> None:
        program = [sys.executable, "-m", "eurekube_provider.cli.main", command, *self._options]
        _run(program, self._project, self._environment)


def choose_engine(directory: Path, stack: str, config: Mapping[str, str], kubeconfig: Path) -> Engine:
    """Return the Pulumi engine if its CLI and Kubernetes plugin are or can be installed, else `eurekube
    apply`.
    """
    cli = find_pulumi()
    if cli is not None and find_kubernetes_plugin(cli) is not None:
        return PulumiEngine(cli, directory, stack, config)
    return EurekubeApplyEngine(directory, stack, config, kubeconfig)


def copy_project(directory: Path) -> Path:
    """Copy the program, since the CLI writes into the stack's configuration file."""
    directory.mkdir(parents=True)
    for name in ("Pulumi.yaml", "__main__.py"):
        shutil.copy(ROOT / name, directory / name)
    shutil.copytree(ROOT / "stacks", directory / "stacks")
    (directory / ".venv").symlink_to(sys.prefix)
    return directory


def _run(command: list[str], directory: Path, environment: Mapping[str, str]) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_COMMAND_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        output = error.output.decode(errors="replace") if isinstance(error.output, bytes) else error.output
        raise LabError(
            f"{' '.join(command[:3])} took longer than {_COMMAND_TIMEOUT_SECONDS} s:\n{output}"
        ) from None
    if done.returncode != 0:
        raise LabError(f"{' '.join(command[:3])} failed:\n{done.stdout}")
